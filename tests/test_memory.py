"""Snippets of the chapter on memory."""

import contextlib
import json
import subprocess
import sys
import weakref
from pathlib import Path
from statistics import median
from types import SimpleNamespace

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import pytest
import torch
from torch.overrides import TorchFunctionMode

from snippets.memory import (
    allocated_vs_reserved,
    empty_cache_myth,
    fragmentation,
    memory_timeline,
    per_stream_pools,
)
from snippets.timing.benchmark import Timing

MIB = 2**20
ROOT = Path(__file__).resolve().parent.parent


ALIVE = weakref.WeakSet()


class Fake:
    """Stands for a GPU tensor."""

    def __init__(self, size: int):
        self.size = size
        ALIVE.add(self)


def live_bytes() -> int:
    return sum(fake.size for fake in ALIVE)


@pytest.fixture
def fake_gpu(monkeypatch):
    """Replace the GPU by a counter of live bytes; gives the list of live bytes at each `empty_cache`."""
    emptied = []
    monkeypatch.setattr(allocated_vs_reserved, "tensor", Fake)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: emptied.append(live_bytes()))
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (1000 * MIB - live_bytes(), 1500 * MIB))
    monkeypatch.setattr(torch.cuda, "memory_allocated", live_bytes)
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda: 2 * live_bytes())
    return emptied


@pytest.mark.parametrize(
    ("size", "holds", "asks"),
    [
        (1, 512, 2 * MIB),
        (8, 512, 2 * MIB),
        (512, 512, 2 * MIB),
        (513, 1024, 2 * MIB),
        (MIB, MIB, 2 * MIB),
        (MIB + 1, MIB + 512, 20 * MIB),
        (10 * MIB - 512, 10 * MIB - 512, 20 * MIB),
        (10 * MIB, 10 * MIB, 10 * MIB),
        (13 * MIB, 13 * MIB, 14 * MIB),
        (100 * MIB, 100 * MIB, 100 * MIB),
    ],
)
def test_rules_of_the_allocator(size, holds, asks):
    assert allocated_vs_reserved.predicted(size) == {"size": size, "allocated": holds, "reserved": asks}


def test_story_frees_what_it_says(fake_gpu):
    seen = [(step, live_bytes()) for step in allocated_vs_reserved.story()]
    small = 8 + MIB + 1
    assert [size for _, size in seen] == [
        *(0, 8, small, small + 100 * MIB, small, small + 50 * MIB, small + 50 * MIB, small, 0)
    ]
    assert fake_gpu == [small + 50 * MIB, small, 0]
    assert [step for step, _ in seen if "empty_cache" in step] == [step for step, _ in seen[6:]]


def test_growth_is_that_of_one_tensor(fake_gpu):
    assert allocated_vs_reserved.growth(7 * MIB) == {"size": 7 * MIB, "allocated": 7 * MIB, "reserved": 14 * MIB}
    assert fake_gpu == [0]


def test_main_counts_after_every_step(fake_gpu, capsys):
    result = allocated_vs_reserved.main()
    assert result["steps"][1] == {"step": "+ 8 B", "allocated": 8, "reserved": 16, "device": 500 * MIB + 8}
    assert len(result["steps"]) == 9 and len(result["measured"]) == len(result["predicted"]) == 8
    assert [row["size"] for row in result["measured"]] == [row["size"] for row in result["predicted"]]
    assert "+ 100 MiB" in capsys.readouterr().out


def test_old_name_warns_or_is_gone(monkeypatch):
    monkeypatch.setattr(allocated_vs_reserved, "tensor", Fake)
    monkeypatch.setattr(torch.cuda.memory, "memory_reserved", lambda device=None: 4096)
    monkeypatch.setattr(torch.cuda, "memory_reserved", torch.cuda.memory.memory_reserved)
    name = allocated_vs_reserved.article_name()
    assert (name["cached"], name["reserved"]) == (4096, 4096)
    assert name["warns"] == (["FutureWarning"] if name["exists"] else [])
    monkeypatch.delattr(torch.cuda, "memory_cached", raising=False)
    assert allocated_vs_reserved.article_name() == {"cached": 4096, "reserved": 4096, "exists": False, "warns": []}


def test_steps_are_drawn_in_mib():
    steps = [{"step": "a", "allocated": 0, "reserved": 2 * MIB, "device": 9 * MIB}] * 2
    (ax,) = allocated_vs_reserved.plot({"steps": steps}, {}).axes
    lines = {line.get_label(): line for line in ax.get_lines()}
    assert {name: list(line.get_ydata()) for name, line in lines.items()} == {
        "allocated": [0.0, 0.0],
        "reserved": [2.0, 2.0],
        "device": [9.0, 9.0],
    }
    assert (lines["device"].get_color(), lines["device"].get_linestyle()) == ("gray", "--")
    plt.close("all")


def test_recorded_counters_are_in_order(recorded):
    for result in recorded("memory/allocated_vs_reserved").values():
        for row in result["steps"]:
            assert 0 <= row["allocated"] <= row["reserved"] < row["device"]
        assert result["predicted"] == [allocated_vs_reserved.predicted(row["size"]) for row in result["predicted"]]
        (ax,) = allocated_vs_reserved.plot(result, {}).axes
        assert max(ax.get_lines()[1].get_ydata()) == max(row["reserved"] for row in result["steps"]) / MIB
        plt.close("all")


@pytest.mark.gpu
def test_allocator_follows_its_rules():
    program = "import json; from snippets.memory import allocated_vs_reserved as m; print(json.dumps(m.main()))"
    child = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    result = json.loads(child.stdout.splitlines()[-1])
    assert result["measured"] == result["predicted"]
    assert [row["reserved"] // MIB for row in result["steps"]] == [0, 2, 22, 122, 122, 122, 122, 22, 0]


@pytest.mark.gpu
def test_tensor_has_the_size_asked_for():
    assert allocated_vs_reserved.tensor(513).nbytes == 513


class Held:
    """Stands for a tensor in a block of the fake allocator."""

    def fill_(self, value: int) -> "Held":
        return self


class FakeAllocator:
    """Whole blocks, kept by stream when freed, given back when a cap is reached: no splitting."""

    def __init__(self):
        self.blocks, self.cap, self.retries, self.stream, self.asked = [], float("inf"), 0, "main", []

    def reserved(self) -> int:
        return sum(block.size for block in self.blocks)

    def allocated(self) -> int:
        return sum(block.size for block in self.blocks if not block.free)

    def empty_cache(self) -> None:
        self.blocks = [block for block in self.blocks if not block.free]

    def limit(self, fraction: float) -> None:
        self.cap = fraction * 2**40

    def empty(self, size: int, dtype: torch.dtype, device: str) -> Held:
        assert (dtype, device) == (torch.uint8, "cuda")
        self.asked.append(size)
        fitting = [b for b in self.blocks if b.free and b.size == size and b.stream == self.stream]
        if not fitting:
            if self.reserved() + size > self.cap:
                self.retries += 1
                self.empty_cache()
            if self.reserved() + size > self.cap:
                raise torch.OutOfMemoryError("CUDA out of memory. Process 1 has 2 GiB memory in use. 2 GiB allowed.")
            self.blocks.append(SimpleNamespace(size=size, stream=self.stream))
        block, held = (fitting or self.blocks[-1:])[0], Held()
        block.free = False
        weakref.finalize(held, setattr, block, "free", True)
        return held


@contextlib.contextmanager
def on(gpu: FakeAllocator, stream: str):
    before, gpu.stream = gpu.stream, stream
    yield
    gpu.stream = before


@pytest.fixture
def allocator(monkeypatch):
    """A fake caching allocator in the place of CUDA's."""
    gpu = FakeAllocator()
    monkeypatch.setattr(torch, "empty", gpu.empty)
    fakes = {
        "memory_allocated": gpu.allocated,
        "memory_reserved": gpu.reserved,
        "empty_cache": gpu.empty_cache,
        "mem_get_info": lambda: (2**39, 2**40),
        "set_per_process_memory_fraction": gpu.limit,
        "memory_stats": lambda: {"num_alloc_retries": gpu.retries},
        "stream": lambda stream: on(gpu, stream.name),
        "current_stream": lambda: SimpleNamespace(wait_stream=lambda other: None),
    }
    for name, fake in fakes.items():
        monkeypatch.setattr(torch.cuda, name, fake)
    return gpu


def test_empty_cache_gives_back_what_no_tensor_holds(allocator):
    around = empty_cache_myth.given_back()
    assert around == {
        "before": {"allocated": 64 * MIB, "reserved": 1088 * MIB},
        "after": {"allocated": 64 * MIB, "reserved": 64 * MIB},
    }


def test_allocation_is_timed_after_it_was_prepared(allocator, monkeypatch):
    prepared = []

    def measured(work, warmup, trials) -> Timing:
        assert len(prepared) == len(allocator.asked) // 8 + 1, "prepared each time"
        work()
        return Timing([8e-6 * len(prepared)])

    monkeypatch.setattr(empty_cache_myth, "measure", measured)
    found = empty_cache_myth.allocation_us(16, lambda: prepared.append(1))
    assert found == pytest.approx([13, 18, 23, 28, 33, 38, 43, 48, 53]), "medians of five, the first two trials dropped"
    assert set(allocator.asked) == {16 * MIB} and len(allocator.asked) == 11 * 5 * 8


def test_only_dropping_a_tensor_makes_room(allocator):
    rows = empty_cache_myth.when_memory_is_out()
    assert [row["fits"] for row in rows] == [False, False, True]
    assert [row["emptied_by_itself"] for row in rows] == [1, 1, 1]
    assert allocator.cap == 4096 * MIB


def test_costs_are_medians_of_the_trials(allocator, monkeypatch, capsys):
    monkeypatch.setattr(empty_cache_myth, "measure", lambda work, warmup, trials: Timing([16e-6]))
    result = empty_cache_myth.main()
    assert result["us"] == {"cached": pytest.approx([2.0] * 4), "emptied": pytest.approx([2.0] * 4)}
    assert [len(row) for row in result["us_trials"]["emptied"]] == [9] * 4
    out = capsys.readouterr().out
    assert "reserved   1024 MiB less after empty_cache()" in out and "allocated     0 MiB less" in out
    assert "one of the three deleted  1.5 GiB more fit: True" in out


def test_costs_are_drawn_over_the_size():
    us = {"cached": [2.0, 2.5], "emptied": [80.0, 900.0]}
    (ax,) = empty_cache_myth.plot({"sizes_mib": [16, 1024], "us": us}, {}).axes
    drawn = {line.get_label(): line.get_ydata().tolist() for line in ax.get_lines()}
    assert drawn == {"after empty_cache()": [80.0, 900.0], "from the cache": [2.0, 2.5]}
    assert ax.get_xscale() == ax.get_yscale() == "log"
    plt.close("all")


def test_batches_grow_until_memory_is_out(allocator, monkeypatch):
    settings = {"allocator_settings": {"expandable_segments": 1}}
    monkeypatch.setattr(torch.cuda.memory, "_snapshot", lambda: settings)
    result = fragmentation.grow()
    assert [row[0] for row in result["batches"][:3]] == [32, 36, 40]
    assert result["batches"][1] == [36, 16 + 18, 32 + 16 + 36 + 18]
    assert result["words"] == "CUDA out of memory. 2 GiB allowed." and result["is_expandable"] is True
    assert result["end"][0] == result["batches"][-1][0] + 4
    assert allocator.asked[:4] == [32 * MIB, 16 * MIB, 36 * MIB, 18 * MIB]


def test_the_most_possible_batch_is_the_last_that_fits_without_loss():
    kept = range(32, fragmentation.most_possible(), 4)
    assert sum(mib // 2 for mib in kept) + 1.5 * fragmentation.most_possible() <= 2048
    one_more = fragmentation.most_possible() + 4
    assert sum(mib // 2 for mib in range(32, one_more, 4)) + 1.5 * one_more > 2048


def child_that_grew(largest: int, warns: bool = False) -> SimpleNamespace:
    row = [largest, 1000.0, 2000.0]
    found = {"batches": [row], "end": [largest + 4, 1100.0, 2048.0], "words": "out", "is_expandable": True}
    warning = "Warning: it is deprecated" if warns else ""
    return SimpleNamespace(returncode=0, stdout=json.dumps(found), stderr=warning)


def test_every_setting_runs_with_no_other_in_its_environment(monkeypatch, capsys):
    asked = []

    def run(command, env, capture_output, text):
        assert command[1:] == [fragmentation.__file__, "grow"]
        mine = {name: env[name] for name in env if name.endswith("ALLOC_CONF")}
        asked.append(mine)
        return child_that_grew(160 if mine else 128, warns="PYTORCH_CUDA_ALLOC_CONF" in mine)

    monkeypatch.setenv("PYTORCH_ALLOC_CONF", "backend:native")
    monkeypatch.setattr(subprocess, "run", run)
    result = fragmentation.main()
    assert sorted(asked, key=str) == sorted(fragmentation.SETTINGS.values(), key=str)
    largest = {name: run["largest_mib"] for name, run in result["settings"].items()}
    assert largest == {"default": 128, "max_split": 160, "expandable": 160, "expandable_by_new_name": 160}
    assert [run["warns"] for run in result["settings"].values()] == [False, True, True, False]
    out = capsys.readouterr().out
    assert "default                 largest batch 128 MiB; then tensors hold 1100 of 2048 MiB" in out


def test_a_child_that_fails_is_not_hidden(monkeypatch):
    failed = SimpleNamespace(returncode=1, stdout="", stderr="no GPU")
    monkeypatch.setattr(subprocess, "run", lambda *command, **options: failed)
    with pytest.raises(RuntimeError, match="no GPU"):
        fragmentation.in_process_of_its_own({})


def test_kept_memory_is_drawn_under_the_cap():
    runs = {name: {"batches": [[32, 16.0, 48.0], [36, 34.0, 84.0]]} for name in fragmentation.SETTINGS}
    (ax,) = fragmentation.plot({"cap_mib": 2048, "settings": runs}, {}).axes
    drawn = {line.get_label(): list(line.get_ydata()) for line in ax.get_lines()}
    kept = {name: [48.0, 84.0] for name in ("default", "max split", "expandable")}
    assert drawn == kept | {"held by tensors": [16.0, 34.0], "allowed": [2048, 2048]}
    plt.close("all")


@pytest.fixture
def streams(monkeypatch):
    """`torch.cuda.Stream()` gives one of 32 streams in turn."""
    made = []

    def new_stream() -> SimpleNamespace:
        made.append(1)
        return SimpleNamespace(name=f"side {len(made) % 32}", wait_stream=lambda other: None)

    monkeypatch.setattr(torch.cuda, "Stream", new_stream)
    return made


def test_each_stream_keeps_its_own_memory(allocator, streams, capsys):
    result = per_stream_pools.main()
    assert result["on_main"] == result["lent_to_side"] == [64.0] * 41
    assert result["on_side"] == [64.0 * min(1 + uses, 33) for uses in range(41)]
    assert result["emptied_mib"] == 0
    assert "on_side       MiB kept: 64 at first, 128 after one use, 2112 after 40" in capsys.readouterr().out


def test_pools_are_drawn_over_what_is_in_use():
    result = {"block_mib": 64, "on_side": [64.0, 128.0], "lent_to_side": [64.0, 64.0], "on_main": [64.0, 64.0]}
    (ax,) = per_stream_pools.plot(result, {}).axes
    drawn = {line.get_label(): list(line.get_ydata()) for line in ax.get_lines()}
    assert drawn == {"on side": [64.0, 128.0], "lent to side": [64.0, 64.0], "in use at any time": [64, 64]}
    plt.close("all")


class OnCpu(TorchFunctionMode):
    """Tensors that are meant for the GPU are made on the CPU."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if kwargs.get("device") == "cuda":
            kwargs["device"] = "cpu"
        return func(*args, **kwargs)


def test_a_step_goes_through_its_phases():
    torch.manual_seed(0)
    with OnCpu():
        net = memory_timeline.network(6)
        optimizer, phases = torch.optim.Adam(net.parameters()), {}
        before = net[0].weight.clone()
        for phase in memory_timeline.step(net, optimizer, 5):
            graded, moved = net[0].weight.grad is not None, not torch.equal(before, net[0].weight)
            phases[phase] = (graded, moved, len(optimizer.state))
    assert len(net) == 8 and list(phases) == list(memory_timeline.PHASES)
    assert phases["forward"] == (False, False, 0) and phases["backward"] == (True, False, 0)
    assert phases["optimizer"] == (True, True, 4) and phases["zero_grad"] == (False, True, 4)


def test_prediction_counts_what_autograd_and_adam_keep(monkeypatch):
    monkeypatch.setattr(memory_timeline, "WIDTH", 6)
    monkeypatch.setattr(memory_timeline, "ROWS", 5)
    weights, batch = 4 * 4 * 6 * 6, 4 * 5 * 6
    saved = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        saved[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with OnCpu(), torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        net = memory_timeline.network(6)
        x = torch.rand(5, 6)
        loss = net(x).square().mean()
    for parameter in net.parameters():
        saved.pop(parameter.data_ptr(), None)
    assert sum(saved.values()) == batch + 4 * batch, "the input and an activation per layer"
    loss.backward()
    optimizer = torch.optim.Adam(net.parameters())
    optimizer.step()
    moments = sum(v.nbytes for state in optimizer.state.values() for v in state.values() if v.dim())
    first, second = memory_timeline.predicted().values()
    assert first[:3] == [weights + batch, weights + 5 * batch, 2 * weights + batch]
    assert first[3:] == [2 * weights + moments + batch, weights + moments + batch]
    assert second == [first[4], first[4] + 4 * batch, first[3], first[3], first[4]]


def test_history_follows_allocations_and_frees(monkeypatch):
    actions = [("alloc", 5), ("segment_alloc", 20), ("alloc", 7), ("free_requested", 5), ("free_completed", 5)]
    trace = [{"action": action, "size": size} for action, size in actions]
    monkeypatch.setattr(torch.cuda.memory, "_snapshot", lambda: {"device_traces": [trace]})
    assert memory_timeline.history() == [0, 5, 12, 7]


def test_every_phase_of_two_steps_is_measured(monkeypatch, capsys):
    monkeypatch.setattr(memory_timeline, "WIDTH", 6)
    monkeypatch.setattr(memory_timeline, "ROWS", 5)
    counter, recording = iter(range(1000, 2000)), []
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda: next(counter))
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda: 5000)
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda: None)
    monkeypatch.setattr(torch.cuda.memory, "_record_memory_history", lambda context: recording.append(context))
    monkeypatch.setattr(torch.cuda.memory, "_snapshot", lambda: {"device_traces": [[]]})
    with OnCpu():
        result = memory_timeline.main()
    assert recording == [None] and result["workspaces"] == 1000 and result["model"] == 1
    assert result["measured"] == {"first": [2, 3, 4, 5, 6], "second": [7, 8, 9, 10, 11]}
    assert result["peak"] == {"first": 4000, "second": 4000}
    assert len(result["marks"]) == 12 and result["history"] == [0]
    assert "second step, zero_grad" in capsys.readouterr().out


def test_steps_of_memory_are_drawn_phase_by_phase():
    gib = 2**30
    predicted = {"first": [2 * gib] * 5, "second": [3 * gib] * 5}
    result = {"history": [0, gib, *range(2 * gib, 12 * gib, gib)], "marks": [0, *range(1, 12)], "model": gib}
    (ax,) = memory_timeline.plot(result | {"predicted": predicted}, {}).axes
    (held,), (levels,) = ax.get_lines(), ax.collections
    assert list(held.get_ydata()) == list(range(12)) and list(held.get_xdata()) == list(range(12))
    assert [segment[0][1] for segment in levels.get_segments()] == [1.0, *[2.0] * 5, *[3.0] * 5]
    assert [label.get_text() for label in ax.get_xticklabels()][:3] == ["model", "batch", "forward"]
    plt.close("all")


def test_recorded_costs_are_medians(recorded):
    for result in recorded("memory/empty_cache_myth").values():
        for way, rows in result["us_trials"].items():
            assert result["us"][way] == pytest.approx([median(row) for row in rows])
        assert result["given_back"]["after"]["reserved"] >= result["given_back"]["after"]["allocated"]
        empty_cache_myth.plot(result, {})
        plt.close("all")


def test_recorded_batches_grow_and_are_counted(recorded):
    for result in recorded("memory/fragmentation").values():
        assert result["most_possible_mib"] == fragmentation.most_possible()
        for run in result["settings"].values():
            assert run["largest_mib"] == run["batches"][-1][0] < run["end"][0]
            assert all(allocated <= reserved for _, allocated, reserved in run["batches"])
        assert len(fragmentation.plot(result, {}).axes[0].get_lines()) == 5
        plt.close("all")


def test_recorded_pools_and_phases(recorded):
    for result in recorded("memory/per_stream_pools").values():
        assert len(result["on_side"]) == len(result["on_main"]) == 41
        per_stream_pools.plot(result, {})
    for result in recorded("memory/memory_timeline").values():
        assert result["predicted"] == memory_timeline.predicted()
        assert result["marks"] == sorted(result["marks"]) and result["marks"][-1] < len(result["history"])
        assert max(result["history"]) <= max(result["peak"].values()) + MIB
        memory_timeline.plot(result, {})
    plt.close("all")


def run_alone(name: str) -> dict:
    """What main() of a snippet of this chapter returns in a fresh process."""
    program = f"import json; from snippets.memory import {name} as m; print(json.dumps(m.main()))"
    child = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    return json.loads(child.stdout.splitlines()[-1])


@pytest.mark.gpu
def test_memory_is_kept_per_stream_on_a_gpu():
    result = run_alone("per_stream_pools")
    assert result["on_side"][1] == 128 and result["on_side"][-1] == 33 * 64 and result["lent_to_side"][-1] == 64


@pytest.mark.gpu
def test_memory_of_a_step_is_as_predicted():
    result = run_alone("memory_timeline")
    for name, expected in memory_timeline.predicted().items():
        assert result["measured"][name] == pytest.approx(expected, rel=0.02)


@pytest.mark.gpu
def test_expandable_segments_get_further():
    settings = run_alone("fragmentation")["settings"]
    assert settings["expandable"]["largest_mib"] > settings["default"]["largest_mib"]
    assert [row["fits"] for row in run_alone("empty_cache_myth")["out_of_memory"]] == [False, False, True]
