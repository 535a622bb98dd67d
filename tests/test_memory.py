"""Snippets of the chapter on memory."""

import copy
import json
import os
import pickle
import subprocess
import time
import warnings
import weakref
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from conftest import run_alone
from torch import nn
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import Shard, distribute_tensor

from snippets.memory import (
    accumulate_parts,
    activations_on_host,
    activations_twice,
    allocated_vs_reserved,
    allocator_rules,
    allocator_settings,
    changing_sizes,
    children_left,
    convnet_peak,
    empty_cache_cost,
    empty_cache_myth,
    kept_for_backward,
    kept_outputs,
    loss_in_parts,
    loss_keeps_memory,
    memory_timeline,
    nvidia_smi,
    oom_snapshot,
    orphan_holds,
    peak_predicted,
    per_stream_pools,
    pinned_rounding,
    private_pools,
    rank_contexts,
    resume_checkpoint,
    snapshot_reading,
)
from snippets.pictures import Spans
from snippets.timing.benchmark import Timing

MIB = 2**20


@pytest.fixture
def ledger(monkeypatch):
    """Counts what CPU tensors hold, in the place of the GPU's allocator."""
    found = peak_predicted.Peak("cpu")
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda: sum(found.sizes.values()))
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda: found.bytes)
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda: setattr(found, "bytes", 0))
    return found


@pytest.mark.parametrize(
    ("size", "holds", "takes"),
    [
        (1, 512, 2 * MIB),
        (8, 512, 2 * MIB),
        (512, 512, 2 * MIB),
        (513, 1024, 2 * MIB),
        (MIB, MIB, 2 * MIB),
        (MIB + 1, MIB + 512, 20 * MIB),
        (10 * MIB - 512, 10 * MIB - 512, 20 * MIB),
        (10 * MIB, 10 * MIB, 10 * MIB),
        (25 * MIB // 2, 25 * MIB // 2, 14 * MIB),
        (13 * MIB, 14 * MIB, 14 * MIB),  # a rest of 1 MiB is not cut off
        (13 * MIB - 512, 13 * MIB - 512, 14 * MIB),
        (100 * MIB, 100 * MIB, 100 * MIB),
    ],
)
def test_rules_of_the_allocator(size, holds, takes):
    assert allocator_rules.predicted(size) == {"size": size, "allocated": holds, "reserved": takes}


def test_rules_are_measured_by_growth(allocator):
    held = torch.empty(MIB, dtype=torch.uint8, device="cuda")
    expected = {"size": 7 * MIB, "allocated": 7 * MIB, "reserved": 7 * MIB}
    assert allocator_rules.measured(7 * MIB) == expected
    del held
    assert allocator_rules.measured(7 * MIB) == expected, "the cache is emptied before"


def test_story_frees_what_it_says(allocator):
    seen = [(row["step"], row["allocated"]) for row in allocated_vs_reserved.main()["steps"]]
    small = 8 + MIB + 1
    sizes = [0, 8, small, small + 100 * MIB, small, small + 50 * MIB, small + 50 * MIB, small, 0]
    assert [size for _, size in seen] == sizes
    assert [step for step, _ in seen if "empty_cache" in step] == [step for step, _ in seen[6:]]


@pytest.fixture
def smi(monkeypatch, allocator):
    """A `nvidia-smi` that counts 1 GiB of others, and 500 MiB for a context."""
    asked = []

    def run(command, capture_output, check):
        asked.append(command)
        context = 500 if len(asked) > 2 else 0
        return SimpleNamespace(stdout=b"%d\n" % (1024 + context + allocator.reserved() // MIB))

    monkeypatch.setattr(subprocess, "run", run)
    return asked


def test_nvidia_smi_is_asked_of_the_first_visible_gpu_by_its_uuid(smi):
    assert nvidia_smi.used_mib() == 1024 and "--id=GPU-uuid-0" in smi[0]


def test_what_no_counter_shows_is_what_is_left_of_nvidia_smi(smi, monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_memory_used", lambda: 1531 * MIB)
    monkeypatch.setattr(torch._C, "_cuda_clearCublasWorkspaces", lambda: None, raising=False)
    result = nvidia_smi.main()
    assert [row["tensors"] for row in result["mib"]] == [0, 0, 1024, 1024, 1024, 0, 0, 0]
    assert [row["reserved"] for row in result["mib"]] == [0, 0, 1024, 1024, 1025, 1025, 0, 0]
    assert [row["outside"] for row in result["mib"]] == [0, *[500] * 7]
    assert result["torch_says_mib"] == 1531


def test_the_parts_of_a_process_add_up_to_what_nvidia_smi_shows():
    """Before and after the tensor is deleted; what is left of tensors then is not the reader's."""
    rows = [dict.fromkeys(("tensors", "reserved", "smi"), 0)] * 4
    rows += [{"tensors": 1056, "reserved": 1058, "smi": 1743}, {"tensors": 32, "reserved": 1058, "smi": 1743}]
    _, parts = nvidia_smi.plot({"mib": [*rows, *rows[:2]]}, {})
    counters = "memory_allocated()", "memory_reserved()", "nvidia-smi"
    for panel, sums in zip(parts["account"].panels, ((1056, 1058, 1743), (32, 1058, 1743)), strict=True):
        shown = {name: sum(mark.values.get(name, 0) for mark in panel.marks) for name in counters}
        assert tuple(shown.values()) == sums, panel.title
        texts = {name: text for mark in panel.marks for name, text in (mark.texts or {}).items()}
        assert texts == {name: f"{mib:,}" for name, mib in zip(counters, sums, strict=True)}
    before, after = ({m.name: m.values for m in panel.marks} for panel in parts["account"].panels)
    assert before["your tensor"] == dict.fromkeys(counters, 1024)
    assert set(after.get("your tensor", {}).values()) <= {0}
    assert before["cache"] == dict.fromkeys(counters[1:], 2) and after["cache"] == dict.fromkeys(
        counters[1:], 1026
    )
    assert before["context"] == after["context"] == {"nvidia-smi": 685}
    assert before["workspace of cuBLAS"] == after["workspace of cuBLAS"] == dict.fromkeys(counters, 32)


def test_empty_cache_gives_back_what_no_tensor_holds(allocator):
    around = empty_cache_myth.given_back()
    assert around == {
        "before": {"allocated": 64 * MIB, "reserved": 1088 * MIB, "device": 2**39},
        "after": {"allocated": 64 * MIB, "reserved": 64 * MIB, "device": 2**39},
    }


def test_only_dropping_a_tensor_makes_room(allocator):
    rows = empty_cache_myth.main()["out_of_memory"]
    assert [row["fits"] for row in rows] == [False, False, True]
    assert [row["emptied_by_itself"] for row in rows] == [1, 1, 1]
    assert allocator.cap == 4096 * MIB


def test_costs_of_the_call_are_medians_of_rounds(gpu, monkeypatch):
    rounds = iter(range(1, 1000))
    names = ("cached", "call", "next", "busy_call", "kernel")
    monkeypatch.setattr(empty_cache_cost, "one_round", lambda mib: dict.fromkeys(names, next(rounds)))
    timings = {"plain": Timing([1e-3] * 3), "emptied": Timing([1e-3, 2e-3, 3e-3])}
    monkeypatch.setattr(empty_cache_cost, "take_turns", lambda works, calls: timings)
    gpu.most = 16
    result = empty_cache_cost.main()
    assert result["us_trials"]["call"][0] == list(range(2, 11)) and result["us"]["call"] == [6, 15, 24, 33]
    assert result["slower"] == 2 and result["ms"]["emptied"] == pytest.approx(2)


def test_a_busy_gpu_holds_the_call(allocator):
    us = empty_cache_cost.one_round(64)
    assert us["kernel"] == pytest.approx(1e4, rel=0.01) and us["call"] < 1 and us["busy_call"] > 0.99e4


def frame(name: str, file: str = "/home/me/train.py") -> dict:
    return {"filename": file, "name": name, "line": 3}


LINEAR = frame("__init__", "/usr/lib/python3.12/site-packages/torch/nn/modules/linear.py")
MADE = [LINEAR, frame("make_model"), frame("main")]
CPP = {"filename": "??", "name": "at::empty", "line": 0}
LOADED = [CPP, frame("load"), frame("main")]
HELD, FREE = "active_allocated", "inactive"


def block(size: int, asked: int = 0, state: str = HELD, frames: list | tuple = ()) -> dict:
    return {"size": size, "requested_size": asked or size, "state": state, "frames": list(frames)}


def event(action: str, addr: int, size: int, frames: list | tuple = ()) -> dict:
    return {"action": action, "addr": addr, "size": size, "frames": list(frames)}


SNAPSHOT = {
    "allocator_settings": {"expandable_segments": 1},
    "segments": [
        {"address": 9, "device": 0, "blocks": [block(2 * MIB, state=FREE)]},
        {
            "address": 3,
            "device": 0,
            "blocks": [
                block(4 * MIB, 3 * MIB, frames=MADE),
                block(6 * MIB, state=FREE),
                block(8 * MIB),
                block(MIB, state="active_pending_free", frames=LOADED),
                block(5 * MIB, frames=LOADED),
            ],
        },
        {"address": 1, "device": 1, "blocks": [block(64 * MIB, frames=LOADED)]},
    ],
    "device_traces": [
        [
            event("segment_alloc", 3, 24 * MIB),
            event("alloc", 3, 3 * MIB, MADE),
            event("free_completed", 77, 50 * MIB),
            event("alloc", 5, 7 * MIB, LOADED),
            event("free_requested", 5, 7 * MIB),
            event("free_completed", 5, 7 * MIB),
            event("alloc", 5, 2 * MIB, LOADED),
            {"action": "alloc", "addr": 6, "size": 4 * MIB},
            {"action": "oom", "device_free": 0, "size": 30 * MIB},
        ],
        [event("alloc", 1, 64 * MIB, LOADED)],
    ],
}


def test_a_block_belongs_to_the_innermost_function_outside_pytorch():
    assert snapshot_reading.owner(MADE) == "make_model" and snapshot_reading.owner(LOADED) == "load"
    assert snapshot_reading.owner([]) == snapshot_reading.owner([LINEAR]) == "no Python frame"


def test_a_snapshot_says_who_allocated_what_is_held():
    held = snapshot_reading.held_by(SNAPSHOT)
    pending = "dropped, but another stream still uses it"
    assert held == {"no Python frame": 8 * MIB, "load": 5 * MIB, "make_model": 4 * MIB, pending: MIB}
    assert next(iter(held)) == "no Python frame", "the largest first"
    assert snapshot_reading.held_by(SNAPSHOT, device=1) == {"load": 64 * MIB}
    assert snapshot_reading.held_by(pickle.loads(pickle.dumps(SNAPSHOT))) == held
    with pytest.raises(TypeError):
        snapshot_reading.held_by("snapshot.pickle")


def test_a_history_is_replayed_to_its_peak():
    older = 50 + 8 + 1 + 5  # what was freed unseen, and three blocks that were there
    assert snapshot_reading.at_peak(SNAPSHOT) == {snapshot_reading.OLDER: older * MIB, "make_model": 3 * MIB}
    assert snapshot_reading.at_peak(SNAPSHOT, device=1) == {"load": 64 * MIB}
    assert snapshot_reading.at_peak({"device_traces": [[]]}) == {}


def test_a_ring_that_has_wrapped_forgets_names_and_no_bytes():
    events = [
        event("alloc", 0, 6 * MIB, MADE),
        event("alloc", 6 * MIB, 2 * MIB, LOADED),
        event("free_completed", 6 * MIB, 2 * MIB),
        event("alloc", 6 * MIB, 3 * MIB, LOADED),
    ]
    blocks = [block(6 * MIB, frames=MADE), block(4 * MIB, 3 * MIB, frames=LOADED), block(MIB, state=FREE)]
    segments = [{"address": 0, "device": 0, "blocks": blocks}]
    peaks = []
    for first in range(4):
        snapshot = {"segments": segments, "device_traces": [events[first:]]}
        peaks.append(snapshot_reading.at_peak(snapshot))
    older = {snapshot_reading.OLDER: 6 * MIB, "load": 3 * MIB}
    assert peaks == [{"make_model": 6 * MIB, "load": 3 * MIB}, older, older, older]


def test_free_memory_is_measured_by_its_largest_piece():
    free = snapshot_reading.free_memory(SNAPSHOT)
    assert free == {"free": 8 * MIB, "largest": 6 * MIB, "ends": MIB, "in_pieces": 0.25}
    assert snapshot_reading.free_memory(SNAPSHOT, device=1)["in_pieces"] == 0


@pytest.fixture
def recorder(monkeypatch, gpu):
    """PyTorch's recording of memory, which gives one snapshot; what was asked of it."""
    asked = []

    def dump(path: str) -> None:
        asked.append("dump")
        with open(path, "wb") as file:
            pickle.dump(SNAPSHOT, file)

    def record(enabled="all", **how) -> None:
        asked.append(how.get("stacks", "all") if enabled else "stop")

    stats = {"requested_bytes.all.peak": 9, "requested_bytes.all.current": 4, "num_ooms": 2}
    stats |= {"allocated_bytes.all.peak": 9, "allocated_bytes.all.current": 4}
    monkeypatch.setattr(torch.cuda, "memory_stats", lambda: stats)
    monkeypatch.setattr(torch.cuda.memory, "_snapshot", lambda: SNAPSHOT)
    monkeypatch.setattr(torch.cuda.memory, "_dump_snapshot", dump)
    monkeypatch.setattr(torch.cuda.memory, "_record_memory_history", record)
    return asked


def test_a_loop_is_watched_and_its_last_snapshot_is_read(recorder, monkeypatch):
    for name, value in {"WIDTH": 8, "ROWS": 4, "CALLS": 2}.items():
        monkeypatch.setattr(snapshot_reading, name, value)
    result = json.loads(json.dumps(snapshot_reading.main()))
    assert recorder[:6] == ["python", "dump", "stop"] * 2, "and then without a second thread"
    assert len(result["steps"]) == len(result["named"]["steps"]) == 3
    assert result["gradient_bytes"] == 4 * 4 * 8 * 8
    assert (result["held_before"], result["peak_asked"], result["peak_held"]) == (4, 5, 5)
    assert result["events"] == 9 and result["file_bytes"] > 0
    assert result["blocks"][:3] == [[0, 4, "make_model"], [0, 6, ""], [0, 8, "no Python frame"]]
    modes = ["not recorded", "python", "all"]
    assert set(result["us"]) == {*modes, *(f"{mode}, deeper" for mode in modes)}
    assert result["frames"] == {"near": 3, "deeper": 3}, "as in the imitated snapshot"
    (panel,) = snapshot_reading.plot(result, {}).panels
    assert sum(len(mark.spans) for mark in panel.marks if isinstance(mark, Spans)) == len(result["blocks"])


def test_out_of_memory_writes_one_snapshot(recorder, monkeypatch, tmp_path, gpu):
    observers = []
    attach = lambda observer: observers.append(observer)  # noqa: E731
    monkeypatch.setattr(torch._C, "_cuda_attach_out_of_memory_observer", attach, raising=False)
    written = oom_snapshot.snapshot_on_oom(tmp_path / "a.pickle", most=2)
    assert written == [] and recorder == ["python"]
    for _ in range(3):
        observers[0](0, 1, 2, 3)
    assert [path.name for path in written] == ["a.pickle", "a_2.pickle"]
    assert sorted(tmp_path.iterdir()) == written
    assert oom_snapshot.refused_bytes(pickle.loads(written[0].read_bytes())) == 30 * MIB


def test_a_snapshot_that_cannot_be_written_is_no_error(recorder, monkeypatch):
    observers = []
    monkeypatch.setattr(torch._C, "_cuda_attach_out_of_memory_observer", observers.append, raising=False)
    written = oom_snapshot.snapshot_on_oom("/no/such/folder/a.pickle")
    for _ in range(2):  # the first failure does not use up the one file
        with pytest.warns(UserWarning, match="no snapshot in /no/such/folder/a.pickle"):
            observers[0](0, 1, 2, 3)
    assert written == []


def test_without_cuda_nothing_observes(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert oom_snapshot.snapshot_on_oom("a.pickle") == []


def test_the_observer_sees_more_than_the_handler(recorder, monkeypatch):
    observers, steps = [], []
    monkeypatch.setattr(torch._C, "_cuda_attach_out_of_memory_observer", observers.append, raising=False)
    monkeypatch.setattr(oom_snapshot, "WIDTH", 8)

    def step(net, rows: int) -> None:
        steps.append(rows)
        if rows == oom_snapshot.ROWS:
            observers[0](0, 1, 2, 3)
            raise torch.OutOfMemoryError("CUDA out of memory.")

    monkeypatch.setattr(oom_snapshot, "step", step)
    result = json.loads(json.dumps(oom_snapshot.main()))
    rows = oom_snapshot.ROWS
    assert steps == [64, rows, rows, rows // 2] and list(result["seen"]) == [
        "observer",
        "in handler",
        "after it",
    ]
    assert result["written"] == result["files"] == ["oom.pickle"] and result["refused_bytes"] == 30 * MIB
    assert result["at_peak"]["observer"] == result["at_peak"]["in handler"] != {}


def test_memory_is_mapped_by_address():
    expected = [[4, "make_model", 3, 0], [6, "", 0, 0], [8, "no Python frame", 8, 0]]
    assert allocator_settings.memory_map(SNAPSHOT)[:3] == expected
    assert allocator_settings.memory_map(SNAPSHOT)[-1] == [2, "", 0, 1]


def test_batches_grow_until_memory_is_out(allocator, monkeypatch):
    monkeypatch.setattr(torch.cuda.memory, "_snapshot", lambda: SNAPSHOT)
    monkeypatch.setattr(torch.cuda.memory, "_record_memory_history", lambda **how: None)
    counts = {"num_device_alloc": 5, "num_device_free": 3}
    monkeypatch.setattr(torch.cuda, "memory_stats", lambda: counts)
    result = allocator_settings.grow(1, empty=False, limited=True)
    assert allocator.cap == 2048 * MIB and allocator.reserved() <= allocator.cap
    assert allocator.reserved() + result["refused_mib"] * MIB // 2 > allocator.cap
    assert result["words"] == "CUDA out of memory. 2 GiB allowed." and result["is_expandable"] is True
    asked, empty_cache = [], torch.cuda.empty_cache
    monkeypatch.setattr(
        torch.cuda, "empty_cache", lambda: asked.append(allocator.allocated() // MIB) or empty_cache()
    )
    allocator_settings.grow(1, empty=True, limited=True)
    assert asked[:2] == [16, 16 + 18], "after each batch"
    assert result["gave_back"] == 3 and result["asked_cuda"] == 5


def test_without_a_limit_the_loop_ends_where_nothing_more_would_fit(allocator, monkeypatch):
    monkeypatch.setattr(torch.cuda.memory, "_snapshot", lambda: SNAPSHOT)
    monkeypatch.setattr(torch.cuda.memory, "_record_memory_history", lambda **how: None)
    counts = {"num_device_alloc": 5, "num_device_free": 0}
    monkeypatch.setattr(torch.cuda, "memory_stats", lambda: counts)
    result = allocator_settings.grow(1, empty=False, limited=False)
    assert result["words"] == "" and result["refused_mib"] == 172 and result["gave_back"] == 0
    assert allocator.cap == float("inf")


def test_every_setting_runs_with_no_other_in_its_environment(monkeypatch):
    asked = []

    def run(command, env, stdout, check):
        assert command[1:3] == [allocator_settings.__file__, "grow"] and check
        name, scale = command[3:]
        asked.append((scale, name, {key: env[key] for key in env if key.endswith("ALLOC_CONF")}))
        blocks = [[30, "result_of", 20, 0], [20, "batch_of", 20, 1], [4, "", 0, 1], [6, "", 0, 2]]
        found = {"blocks": blocks, "refused_mib": 64 * int(scale), "words": "out", "gave_back": 7}
        return SimpleNamespace(stdout=json.dumps(found | {"is_expandable": True, "asked_cuda": 9}))

    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (9 * 2**30, 9 * 2**30))

    monkeypatch.setenv("PYTORCH_ALLOC_CONF", "backend:native")
    monkeypatch.setattr(subprocess, "run", run)
    result = allocator_settings.main()
    assert {name: env for _, name, env in asked} == allocator_settings.SETTINGS
    assert [scale for scale, _, _ in asked] == ["1"] * 8, "8 GiB do not fit on this GPU"
    assert result["scales"] == [1] and result["refused"]["default"] == [64] and result["furthest_mib"] == 176
    for row in result["settings"].values():
        assert row["held_mib"] == 50 and row["holes_mib"] == [4, 6]
    assert result["gave_back"] == {"limited": 7, "unlimited": 7}
    picture, others = allocator_settings.plot(result, {})
    (panel,) = picture.panels
    ends = [
        mark.spans for mark in panel.marks if isinstance(mark, Spans) and mark.name == "unused end of a block"
    ]
    assert ends == [[(20, 10)]] * 6, "the unused end of a result"
    bars, most = others["large"].panels[0].marks
    assert list(bars.values.values()) == [60] * 6 and most.at == 172, "one tensor before it was refused"


def test_larger_scales_leave_out_what_one_scale_answers(monkeypatch):
    asked = []
    child = lambda name, scale: asked.append((name, scale)) or {}  # noqa: E731
    monkeypatch.setattr(allocator_settings, "in_process_of_its_own", child)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (2**40, 2**40))
    allocator_settings.all_settings(4)
    assert {name for name, _ in asked} == set(allocator_settings.SETTINGS) - set(
        allocator_settings.AT_SCALE_ONE_ALONE
    )
    assert {scale for _, scale in asked} == {4}


def test_a_child_that_fails_is_not_hidden(monkeypatch):
    monkeypatch.setattr(allocator_settings, "__file__", "no_such_file.py")
    with pytest.raises(subprocess.CalledProcessError, match="'grow', 'default'"):
        allocator_settings.in_process_of_its_own("default")


def test_each_stream_keeps_its_own_memory(allocator):
    result = per_stream_pools.main()
    assert result["on_main"] == result["lent_to_side"] == [64.0] * 41
    assert result["on_side"] == [64.0 * min(1 + uses, 33) for uses in range(41)]
    assert result["emptied_mib"] == 0


def test_a_step_goes_through_its_phases(gpu):
    torch.manual_seed(0)
    phases = {}
    net = memory_timeline.network(4, 6)
    optimizer, before = torch.optim.Adam(net.parameters()), net[0].weight.clone()

    def note(phase: str) -> None:
        moved = not torch.equal(before, net[0].weight)
        phases[phase] = (net[0].weight.grad is not None, moved, len(optimizer.state))

    memory_timeline.step(net, optimizer, 5, note)
    assert len(net) == 8 and tuple(phases) == memory_timeline.PHASES[:-1]
    assert phases["forward"] == (False, False, 0) and phases["backward"] == (True, False, 0)
    assert phases["optimizer"] == (True, True, 4) and phases["zero_grad"] == (False, True, 4)


def test_levels_and_peaks_of_a_step_are_as_predicted(gpu, ledger, monkeypatch):
    monkeypatch.setattr(memory_timeline, "WIDTH", 64)
    monkeypatch.setattr(memory_timeline, "ROWS", 256)
    monkeypatch.setattr(memory_timeline, "OTHERS", [(2, 32, 512), (2, 64, 4)])
    with ledger:
        result = memory_timeline.main()
    weights, activation = 4 * 4 * 64**2, 4 * 256 * 64
    assert result["predicted"] == memory_timeline.predicted(weights, activation, 4)
    assert result["predicted"]["first"][-1] == weights + 9 * activation
    for name, levels in result["predicted"].items():
        assert result["measured"][name] == pytest.approx(levels, abs=64)
    who, most = max(result["line"], key=lambda point: point[1])
    assert (who, most) == ("PowBackward0: aten.mul.Tensor", result["measured"]["second"][-1])
    many_rows, few_rows = result["others"]
    assert many_rows["peaks"] == pytest.approx(many_rows["predicted"], abs=64) and "Pow" in many_rows["by"]
    assert few_rows["peaks"][1] > 1.1 * few_rows["predicted"][1] and "Pow" not in few_rows["by"]
    held = memory_timeline.plot(result, {}).panels[0].marks[0]
    assert held.x[0] == 0 and held.x[-1] == 11 and max(held.y) == most / 2**30


@pytest.mark.parametrize("case", [{}, {"bf16": True, "parts": 2}])
def test_a_dry_run_has_the_peak_of_a_real_one(case, monkeypatch):
    for name, size in {"BLOCKS": 1, "WIDTH": 16, "WORDS": 1024, "TOKENS": 1024}.items():
        monkeypatch.setattr(peak_predicted, name, size)
    work = lambda: peak_predicted.two_steps(device="cpu", **case)  # noqa: E731
    most, by = peak_predicted.predicted(work, "cpu")
    with peak_predicted.Peak("cpu") as real:
        work()
    assert (most, by) == (real.bytes, real.by)


def test_the_convolutional_network_is_a_resnet_50():
    net = convnet_peak.resnet()
    assert sum(parameter.numel() for parameter in net.parameters()) == 25_557_032
    assert len([layer for layer in net.modules() if isinstance(layer, (nn.Conv2d, nn.Linear))]) == 54
    sides = [net[:5](torch.rand(1, 3, 64, 64)).shape[-1], net[:-3](torch.rand(1, 3, 64, 64)).shape[-1]]
    assert sides == [16, 2], "a quarter after the first pool, a 32nd at the end"


@pytest.mark.parametrize("bf16", [False, True])
def test_a_dry_run_of_a_convolutional_network_has_the_peak_of_a_real_one(bf16, monkeypatch):
    monkeypatch.setattr(convnet_peak, "STAGES", ((4, 1, 1), (8, 1, 2)))
    monkeypatch.setattr(convnet_peak, "SIDE", 64)
    work = lambda: convnet_peak.two_steps(bf16, 2, "cpu")  # noqa: E731
    dry, by = peak_predicted.predicted(work, "cpu")
    with peak_predicted.Peak("cpu") as real:
        work()
    assert dry == pytest.approx(real.bytes, rel=1e-3) and by == real.by


def test_peaks_are_of_tensors_of_the_cache_and_of_the_gpu(allocator):
    kept = torch.empty(MIB, dtype=torch.uint8, device="cuda")

    def work() -> None:
        for mib in (2, 3):
            torch.empty(mib * MIB, dtype=torch.uint8, device="cuda")

    peaks = convnet_peak.peaks(work)
    assert peaks["tensors"] == 3 * MIB and peaks["reserved"] == 6 * MIB and len(kept) == MIB


def test_a_borrower_predicts_a_model_of_his_own():
    def work() -> None:
        net = nn.Linear(100, 50, bias=False)
        net(torch.ones(10, 100)).sum().backward()

    most, by = peak_predicted.predicted(work, "cpu")
    weight_and_its_gradient, batch, loss_and_its_gradient = 2 * 50 * 100, 10 * 100, 2
    assert most == 4 * (weight_and_its_gradient + batch + loss_and_its_gradient)
    assert by.startswith("MmBackward0")


def test_what_cannot_be_run_dry_raises_what_its_docstring_says():
    outside = nn.Linear(2, 1)
    for work, error in (
        (lambda: outside(torch.ones(1, 2)), AssertionError),
        (lambda: torch.ones(3).sum().item(), DataDependentOutputException),
        (lambda: torch.ones(3).nonzero(), DynamicOutputShapeException),
    ):
        with pytest.raises(error):
            peak_predicted.predicted(work, "cpu")
        assert error.__name__ in peak_predicted.predicted.__doc__


def test_a_peak_of_work_on_another_kind_of_device_is_nothing():
    work = lambda: torch.ones(2, 4).sum()  # noqa: E731
    assert peak_predicted.predicted(work) == (0, "") and peak_predicted.predicted(work, "cpu")[0] > 0
    assert '(0, "")' in peak_predicted.predicted.__doc__


def test_an_operation_within_a_library_call_counts_once():
    with peak_predicted.Peak("cpu") as peak:
        x = torch.ones(1000)
        y = x[:10]
        z = x.view(10, 100)
    assert peak.bytes == 4000 and y.shape == (10,) and z.shape == (10, 100)
    del x, y
    assert sum(peak.sizes.values()) == 4000, "a view keeps its storage"
    del z
    assert sum(peak.sizes.values()) == 0


def test_dry_and_real_peaks_stand_side_by_side(ledger, monkeypatch):
    seen = []
    monkeypatch.setattr(peak_predicted, "two_steps", lambda **case: seen.append(case))
    monkeypatch.setattr(peak_predicted, "predicted", lambda work: (work(), (3 * MIB, "who"))[1])
    monkeypatch.setattr(peak_predicted, "measured", lambda work: (work(), 2 * MIB)[1])
    rows = peak_predicted.main()["cases"]
    assert [row["case"] for row in rows] == ["fp32", "toy loss", "bf16", "recomputed"]
    assert rows[0] == {"case": "fp32", "predicted": 3 * MIB, "measured": 2 * MIB, "by": "who"}
    assert len(seen) == 9


def test_a_loss_may_keep_the_memory_of_its_scores():
    assert loss_keeps_memory.kept_bytes(torch.ones(3, 4)[0, 0]) == 48
    result = loss_keeps_memory.main()
    kept = result["kept_bytes"]
    assert (kept["mse_loss"], kept["nll_loss"]) == (result["scores_bytes"], 4)


def test_the_peak_of_real_work_is_counted_from_where_it_began(ledger):
    with ledger:
        _held = torch.ones(1000)
        assert peak_predicted.measured(lambda: torch.ones(500).add(1)) == 4000


@pytest.mark.gpu
@pytest.mark.program("memory/allocator_rules")
def test_allocator_follows_its_rules(returned):
    assert returned["measured"] == returned["predicted"]


@pytest.mark.gpu
@pytest.mark.program("memory/allocated_vs_reserved")
def test_reserved_memory_stays_until_the_cache_is_emptied(returned):
    reserved = [row["reserved"] // MIB for row in returned["steps"]]
    assert reserved == [0, 2, 22, 122, 122, 122, 122, 22, 0]


@pytest.mark.gpu
@pytest.mark.program("memory/per_stream_pools")
def test_memory_is_kept_per_stream_on_a_gpu(returned):
    assert (returned["on_side"][1], returned["on_side"][-1]) == (128, 33 * 64)
    assert returned["lent_to_side"][-1] == 64


def test_saved_bytes_count_each_memory_once():
    x, weight = torch.ones(8, 4, requires_grad=True), torch.ones(4, 4, requires_grad=True)
    saved = activations_twice.saved_bytes
    assert saved(lambda: x + 1) == 0
    assert saved(lambda: x.sin()) == x.nbytes
    assert saved(lambda: x.sin() * x.view(4, 8).view(8, 4)) == 2 * x.nbytes, (
        "the sine and x, which is one memory"
    )
    assert saved(lambda: x @ weight) == x.nbytes + weight.nbytes
    assert saved(lambda: x @ weight, apart=[weight]) == x.nbytes


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support")
@pytest.mark.filterwarnings("ignore:Sparse invariant checks")  # of torch 2.11, asked or not
def test_saved_bytes_know_sparse_tensors_meta_and_what_was_dropped():
    saved = kept_for_backward.saved_bytes
    x = torch.ones(8, 4, requires_grad=True)
    assert saved(lambda: x.sin() * x.view(4, 8).view(8, 4)) == 2 * x.nbytes
    assert saved(lambda: x @ torch.ones(4, 4), apart=[x]) == 4 * 4 * 4
    assert saved(lambda: x[:1].sin()) == x.nbytes, "a part keeps the whole"
    for forget in (torch.tanh, torch.sin, lambda y: y.exp().sin()):
        assert saved(lambda: forget(x.clone()).sum() and None) == 0  # noqa: B023
        assert saved(lambda: forget(x).sum() and None) == 0, "x lives on"  # noqa: B023
    assert saved(lambda: x.exp().sum().backward()) == 0
    with torch.no_grad():
        assert saved(lambda: x.tanh()) == 0
    on_meta = torch.ones(8, 4, device="meta", requires_grad=True)
    assert saved(lambda: on_meta.exp().tanh()) == 2 * x.nbytes
    both = saved(lambda: (x.tanh(), on_meta.tanh()))
    assert both == 2 * x.nbytes
    y = torch.ones(4, 3, requires_grad=True)
    compressed = torch.sparse_csr_tensor([0, 1, 2], [0, 1], [1.0, 1.0], (2, 4), check_invariants=True)
    for sparse, indices in ((torch.eye(4)[:2].to_sparse(), 2 * 2 * 8), (compressed, (3 + 2) * 8)):
        matrix = sparse.requires_grad_()
        with_matrix, without = (saved(lambda: matrix @ y, apart) for apart in ([y], [y, matrix]))  # noqa: B023
        assert with_matrix - without == indices + 2 * 4, sparse.layout


def test_of_a_tensor_that_is_split_this_ranks_part_counts(alone):
    split = distribute_tensor(torch.ones(6, 2), DeviceMesh("cpu", [0]), [Shard(0)]).requires_grad_()
    assert kept_for_backward.saved_bytes(lambda: split.sin()) == 6 * 2 * 4


def test_a_count_leaves_nothing_in_memory():
    freed = []

    def forward():
        y = torch.ones(4, requires_grad=True).tanh()
        weakref.finalize(y.untyped_storage(), freed.append, True)
        return y.sum()

    assert kept_for_backward.saved_bytes(forward) == 16
    assert freed == [True]


def test_blocks_that_compute_twice_keep_their_inputs_and_give_the_same(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(activations_twice, "CPU", (16, 2, 4))
    result = json.loads(json.dumps(activations_twice.main()))
    saved, flop = result["saved_bytes"], result["flop"]
    assert result["activation_bytes"] == 4 * 16 * 2 * 4
    assert saved["6"] == 7 * result["activation_bytes"], "six inputs and the result"
    assert saved["0"] - saved["2"] == saved["2"] - saved["4"] == saved["4"] - saved["6"] > 0
    assert flop["to_the_end"] - flop["0"] == flop["forward"] > flop["6"] - flop["0"] > 0
    assert list(result["ms"]) == ["0", "2", "4", "6"] and result["slower"] > 0


@pytest.mark.gpu
@pytest.mark.program("memory/memory_timeline", OTHERS=[])
def test_levels_of_training_on_a_gpu_are_as_predicted(returned):
    assert set(returned["predicted"]) == {"first", "second"}
    for name, expected in returned["predicted"].items():
        assert returned["measured"][name] == pytest.approx(expected, rel=0.01)


@pytest.mark.gpu
@pytest.mark.program("memory/peak_predicted")
def test_peaks_on_a_gpu_are_as_predicted(returned):
    assert len(returned["cases"]) == 4
    for row in returned["cases"]:
        assert row["measured"] == pytest.approx(row["predicted"], rel=0.05), row["case"]


@pytest.mark.gpu
@pytest.mark.program("memory/convnet_peak", STAGES=((64, 1, 1), (128, 2, 2)))
def test_a_convolution_takes_more_than_its_tensors_on_a_gpu(returned):
    assert len(returned["cases"]) == 3
    for row in returned["cases"]:
        assert row["predicted"] <= 1.05 * row["tensors"] <= 1.05 * row["reserved"] <= 1.05 * row["used"]


@pytest.mark.gpu
@pytest.mark.program("memory/snapshot_reading")
def test_snapshots_name_who_holds_memory_on_a_gpu(returned):
    assert sum(returned["at_peak"].values()) == returned["peak_asked"] + returned["asked_before"]
    leak = 3 * 4 * snapshot_reading.ROWS * snapshot_reading.WIDTH
    assert returned["at_peak"]["probabilities"] == leak
    assert leak <= returned["held"]["probabilities"] < leak + 3 * 2 * MIB, "blocks end at full 2 MiB"


@pytest.mark.gpu
@pytest.mark.program("memory/oom_snapshot")
def test_memory_runs_out_twice_and_one_snapshot_is_written_on_a_gpu(returned):
    assert returned["ooms"] == 2 and len(returned["written"]) == 1


SETTINGS = {name: allocator_settings.SETTINGS[name] for name in ("default", "expandable", "collected")}
SETTINGS["collected_without_limit"] = allocator_settings.SETTINGS["collected_without_limit"]


@pytest.mark.gpu
@pytest.mark.program("memory/allocator_settings", SCALES=(1,), SETTINGS=SETTINGS)
def test_expandable_segments_get_further(returned):
    settings = returned["settings"]
    assert settings["expandable"]["refused_mib"] > settings["default"]["refused_mib"]


@pytest.mark.gpu
@pytest.mark.program("memory/empty_cache_myth")
def test_an_emptied_cache_makes_no_room_on_a_gpu(returned):
    assert [row["fits"] for row in returned["out_of_memory"]] == [False, False, True]


def test_orders_have_the_same_longest_text():
    orders = {order: changing_sizes.lengths(order) for order in changing_sizes.ORDERS}
    assert {len(each) for each in orders.values()} == {changing_sizes.STEPS}
    assert {max(each) for each in orders.values()} == {changing_sizes.LONGEST}
    assert orders["growing"] == sorted(orders["growing"]) and orders["longest_first"][0] == max(
        orders["random"]
    )
    assert sorted(orders["random"]) == orders["growing"] and len(set(orders["padded"])) == 4


def test_a_step_tells_its_peak_and_what_is_reserved(monkeypatch, ledger):
    for name, size in {"ROWS": 2, "WIDTH": 16, "LAYERS": 1, "WORDS": 32}.items():
        monkeypatch.setattr(changing_sizes, name, size)
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda: 7)
    with ledger:
        rows = changing_sizes.train([4, 8, 8], "cpu")
    assert rows[0][0] < rows[2][0] and [reserved for _, reserved in rows] == [7, 7, 7]


def test_sizes_are_compared_in_processes_with_each_setting(monkeypatch, capsys):
    asked = []

    def run(command, env, stdout, check):
        asked.append((command[-1], env.get("PYTORCH_ALLOC_CONF")))
        steps = [[MIB, 2 * MIB], [2 * MIB, 3 * MIB]]
        return SimpleNamespace(stdout=json.dumps({"steps": steps, "asked_cuda": 5, "retries": 0}))

    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "of somebody else")
    monkeypatch.setattr(subprocess, "run", run)
    result = changing_sizes.main()
    assert sorted(set(asked), key=str) == sorted(
        (
            (order, setting)
            for order in changing_sizes.ORDERS
            for setting in (None, "expandable_segments:True")
        ),
        key=str,
    )
    assert result["orders"]["random"]["default"]["times"] == 1.5
    assert changing_sizes.plot(result, {}) and capsys.readouterr().out.count("1.50 times") == 10


@pytest.mark.gpu
@pytest.mark.program("memory/changing_sizes", ORDERS=("fixed", "growing"), SETTINGS={"default": {}}, STEPS=24)
def test_more_is_reserved_when_sizes_grow(returned):
    orders = returned["orders"]
    assert orders["growing"]["default"]["times"] > orders["fixed"]["default"]["times"]
    peaks = {name: row["default"]["peak"] for name, row in orders.items()}
    assert peaks["growing"] == pytest.approx(peaks["fixed"], rel=0.05), "the tensors are the same"


def test_an_optimizer_takes_over_the_moments_of_a_checkpoint():
    model, x = torch.nn.Linear(4, 1), torch.ones(1, 4)
    trained = torch.optim.Adam(model.parameters())
    model(x).sum().backward()
    trained.step()
    checkpoint = copy.deepcopy(trained.state_dict())
    resumed = torch.optim.Adam(model.parameters())
    resumed.load_state_dict(checkpoint)
    for number, parameter in enumerate(model.parameters()):
        kept, loaded = resumed.state[parameter]["exp_avg"], checkpoint["state"][number]["exp_avg"]
        assert kept.data_ptr() == loaded.data_ptr()


def test_ranks_are_counted_against_what_was_there_before(two_gpus, monkeypatch):
    meets, started = [], []
    used = iter([[500, 600], [900, 1100]])
    monkeypatch.setattr(rank_contexts, "used_mib", lambda: next(used))
    process = SimpleNamespace(start=lambda: started.append(1), join=lambda: started.append(-1))
    context = SimpleNamespace(
        Barrier=lambda parties: SimpleNamespace(wait=lambda limit: meets.append(parties)),
        Process=lambda target, args: process,
    )
    assert rank_contexts.taken("touch_first", [0, 1], "no file", context) == [400, 500]
    assert meets == [3, 3] and sum(started) == 0


def test_a_rank_meets_the_others_with_its_tensors_in_place(gpu, monkeypatch, tmp_path):
    path, moments = tmp_path / "weights.pt", []
    torch.save(torch.zeros(4), path)
    monkeypatch.setattr(torch, "load", lambda path, **options: moments.append(options) or torch.zeros(4))
    meet = SimpleNamespace(wait=lambda: moments.append("meet"))
    for way in rank_contexts.WAYS:
        rank_contexts.rank(way, 0, str(path), meet)
    assert moments == [{"map_location": "cuda:0"}, *["meet"] * 2, {}, *["meet"] * 2, *["meet"] * 2]


def test_contexts_on_one_gpu_are_told_by_number_of_processes():
    result = {"gpus": 1, "taken_mib": {"1": [600], "2": [1100], "4": [2100]}}
    assert rank_contexts.derive(result) == {"each_mib": 500} and rank_contexts.plot(result, {})
    taken = {"choose_first": [600, 500], "load_as_saved": [1100, 500], "touch_first": [1050, 500]}
    assert rank_contexts.derive({"gpus": 2, "taken_mib": taken}) == {"chosen_times": 1.2, "more_mib": 450}


@pytest.mark.gpu
def test_each_process_takes_a_context_of_its_own():
    mib = [mib[0] for mib in run_alone("memory/rank_contexts")["taken_mib"].values()]
    if torch.cuda.device_count() == 1:
        assert mib[2] > 1.9 * mib[1] > 3 * mib[0] > 3 * 200


def test_who_has_a_file_open_is_named(tmp_path):
    mine = tmp_path / "device0"
    with mine.open("w"):
        assert os.getpid() in orphan_holds.holders(str(tmp_path / "device"))
    assert os.getpid() not in orphan_holds.holders(str(tmp_path / "device"))


def test_a_process_that_ends_while_files_are_looked_at_is_left_out(tmp_path, monkeypatch):
    scandir, ended = os.scandir, f"/proc/{os.getppid()}/fd"

    def scan(path="."):
        if str(path) == ended:
            raise FileNotFoundError(2, "No such file or directory", ended)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", scan)
    with (tmp_path / "device0").open("w"):
        assert os.getpid() in orphan_holds.holders(str(tmp_path / "device"))


def test_memory_is_read_until_it_is_free_again(monkeypatch):
    readings = iter([1500, 1500, 400, 400])
    monkeypatch.setattr(orphan_holds, "used_mib", lambda: next(readings))
    assert orphan_holds.settled_mib(400) == 400
    monkeypatch.setattr(orphan_holds, "used_mib", lambda: 1500)
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    assert orphan_holds.settled_mib(400) == 1500


@pytest.mark.gpu
def test_a_child_holds_memory_after_its_program_is_gone():
    result = run_alone("memory/orphan_holds")
    assert result["seen"] and result["mib"]["parent is gone"] >= result["child_mib"]
    assert result["mib"]["child is gone"] < 64


@pytest.mark.parametrize(("gpus", "first"), [(1, "1 on one GPU"), (2, "choose_first")])
def test_ways_to_touch_the_first_gpu_stand_in_rows(gpus, first, two_gpus, monkeypatch, capsys):
    asked = []

    def taken(way, gpus_of_ranks, path, context):
        asked.append((way, gpus_of_ranks))
        return [600] * gpus

    monkeypatch.setattr(two_gpus, "gpus", gpus)
    monkeypatch.setattr(torch, "save", lambda tensor, path: None)
    monkeypatch.setattr(rank_contexts, "taken", taken)
    result = json.loads(json.dumps(rank_contexts.main()))
    assert asked[-1][1] == ([0] * 4 if gpus == 1 else [0, 1]) and len(asked) == 3
    assert next(iter(result["taken_mib"])) == first and "GPU 0:   600 MiB" in capsys.readouterr().out


#: A program whose child goes on without it.
PARENT = """
import os, subprocess, sys, time
if sys.argv[1] == "parent":
    subprocess.Popen([sys.executable, __file__, "child"])
else:
    print(os.getpid(), flush=True)
time.sleep(600)
"""


def test_an_orphan_is_ended_and_its_memory_counted(monkeypatch, tmp_path, capsys):
    program = tmp_path / "program.py"
    program.write_text(PARENT)
    readings = iter([500, 2000, 2000, 500])
    monkeypatch.setattr(orphan_holds, "__file__", str(program))
    monkeypatch.setattr(orphan_holds, "used_mib", lambda: next(readings))
    monkeypatch.setattr(orphan_holds, "settled_mib", lambda enough: next(readings))
    found = []

    def holders():
        found.extend(
            path for path in Path("/proc").glob("[0-9]*/cmdline") if str(program) in path.read_text()
        )
        return {int(path.parent.name): "python program.py child" for path in found}

    monkeypatch.setattr(orphan_holds, "holders", holders)
    result = orphan_holds.main()
    assert result["mib"] == {"running": 1500, "parent is gone": 1500, "child is gone": 0}
    assert result["seen"] and len(found) == 1 and "1500 MiB" in capsys.readouterr().out


def test_a_kept_output_holds_its_graph_unless_none_is_made(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    for name, size in {"ROWS": 8, "WIDTH": 32, "LAYERS": 2, "BATCHES": 3}.items():
        monkeypatch.setattr(kept_outputs, name, size)
    result = json.loads(json.dumps(kept_outputs.main()))
    ways = result["ways"]
    for name in ("detached", "no_grad", "inference_mode"):
        assert ways[name]["batch_bytes"] == result["output_bytes"] == 4 * 8 * 16, name
    inputs_and_activations = 4 * 8 * 32 * (1 + 2)
    assert ways["with_graph"]["batch_bytes"] >= result["output_bytes"] + inputs_and_activations
    assert ways["no_grad"]["peak_bytes"] < ways["detached"]["peak_bytes"], "it needs none meanwhile, either"


def test_an_output_that_goes_to_the_cpu_takes_its_graph_along():
    net, x = kept_outputs.network(), torch.ones(2, kept_outputs.WIDTH)
    assert kept_outputs.to_cpu_with_graph(net, x).requires_grad
    assert not kept_outputs.to_cpu(net, x).requires_grad and kept_outputs.to_cpu(net, x).is_inference()


@pytest.mark.gpu
@pytest.mark.program("memory/kept_outputs")
def test_on_a_gpu_the_allocator_holds_what_was_counted(returned):
    ways = returned["ways"]
    for name, row in ways.items():
        assert row["allocated_bytes"] == pytest.approx(row["held_bytes"][-1], rel=0.05, abs=MIB), name
    assert ways["to_cpu_with_graph"]["batch_bytes"] > 100 * ways["to_cpu"]["batch_bytes"]


def test_a_run_resumes_with_the_weights_and_moments_of_the_file(tmp_path, monkeypatch, ledger):
    monkeypatch.setattr(resume_checkpoint, "WIDTH", 16)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    path, seen = tmp_path / "checkpoint.pt", []
    resume_checkpoint.save(path, "cpu")
    saved = torch.load(path)

    def train(net, adam, device):
        seen.append([net[0].weight.clone(), *(each["exp_avg"].clone() for each in adam.state.values())])

    monkeypatch.setattr(resume_checkpoint, "train", train)
    for way in resume_checkpoint.WAYS:
        with ledger:
            row = resume_checkpoint.resumed(way, path, "cpu")
        weight, moment, *_ = seen[-1]
        assert torch.equal(weight, saved["net"]["0.weight"]), way
        assert torch.equal(moment, saved["adam"]["state"][0]["exp_avg"]), way
        assert row["load_peak"] >= row["loaded"] > 0 and row["moments_on_gpu"] == 0
    assert resume_checkpoint.LOADS["mapped"]["mmap"]


def test_the_peak_in_the_host_counts_what_was_freed_again():
    peaks: dict[str, int] = {}
    with resume_checkpoint.host_peak(peaks):
        torch.ones(100 * MIB // 4).add_(1).sum().item()
        x = torch.ones(100 * MIB // 4)
        time.sleep(0.05)
        del x
    assert peaks["host_peak"] >= 90 * MIB


def test_each_way_to_resume_stands_in_a_row(monkeypatch, capsys):
    sizes = ["loaded", "load_peak", "step_peak", "host_peak", "moments_on_gpu"]
    monkeypatch.setattr(resume_checkpoint, "WIDTH", 16)
    save = resume_checkpoint.save
    monkeypatch.setattr(resume_checkpoint, "save", lambda path, device: save(path, "cpu"))
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    rows = lambda path, way: dict.fromkeys(sizes, 3 * MIB)  # noqa: E731
    monkeypatch.setattr(resume_checkpoint, "in_process_of_its_own", rows)
    result = json.loads(json.dumps(resume_checkpoint.main()))
    assert list(result["ways"]) == list(resume_checkpoint.WAYS)
    assert result["file_bytes"] >= 3 * result["weight_bytes"] == 3 * 4 * 4 * 16**2
    assert list(result["load"]["ms"]) == ["as_saved", "to_cpu", "mapped"]
    assert capsys.readouterr().out.count("host      3 MiB") == 4
    assert resume_checkpoint.plot(result, {})


@pytest.mark.gpu
@pytest.mark.program("memory/resume_checkpoint", quick=True, WIDTH=2048)
def test_a_checkpoint_that_is_kept_is_on_the_gpu_twice(returned):
    ways, weights = returned["ways"], returned["weight_bytes"]
    assert ways["as_saved"]["loaded"] >= ways["to_cpu"]["loaded"] + 0.9 * weights
    assert ways["as_saved_dropped"]["loaded"] == pytest.approx(ways["to_cpu"]["loaded"], rel=0.05)
    assert ways["mapped"]["host_peak"] < ways["to_cpu"]["host_peak"]


@pytest.fixture
def small_batch(monkeypatch):
    sizes = {"ROWS": 4, "TOKENS": 128, "WIDTH": 16, "LAYERS": 1, "WORDS": 32, "PARTS": (1, 2, 4)}
    for name, size in sizes.items():
        monkeypatch.setattr(accumulate_parts, name, size)


def test_parts_give_the_gradients_of_the_batch_with_a_lower_peak(monkeypatch, small_batch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    result = json.loads(json.dumps(accumulate_parts.main()))
    peaks = [result["parts"][n]["predicted"] for n in ("1", "2", "4")]
    assert peaks[0] > peaks[1] > peaks[2]
    assert [row["rows"] for row in result["parts"].values()] == [4, 2, 1]
    assert set(result["slower_trials"]["1"]) == {1.0} and accumulate_parts.plot(result, {})


def test_parts_that_leave_the_mean_out_are_refused(monkeypatch, small_batch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    right = accumulate_parts.accumulate

    def wrong(net, x, words, parts):
        right(net, x, words, parts)
        for parameter in net.parameters():
            parameter.grad *= parts

    monkeypatch.setattr(accumulate_parts, "accumulate", wrong)
    with pytest.raises(AssertionError, match="not the batch's"):
        accumulate_parts.main()


@pytest.mark.gpu
@pytest.mark.program("memory/accumulate_parts", quick=True, PARTS=(1, 4))
def test_peaks_of_parts_on_a_gpu_are_as_predicted(returned):
    for row in returned["parts"].values():
        assert row["peak"] == pytest.approx(row["predicted"], rel=0.1)


def test_activations_on_the_host_give_the_same_gradients(monkeypatch, capsys):
    for name, size in {"WIDTH": 16, "SEQUENCES": 2, "TOKENS": 4}.items():
        monkeypatch.setattr(activations_on_host, name, size)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    result = json.loads(json.dumps(activations_on_host.main()))
    assert set(result["ms"]) == set(result["rows"]) == {"kept", "twice", "all_on_host", "on_host"}
    assert result["saved_bytes"] > result["weight_bytes"] > 0
    derived = activations_on_host.derive(result)
    assert "peak_of" not in derived and derived["gb_s"]
    for row in result["rows"].values():
        row["peak"] = 2**20
    assert set(activations_on_host.derive(result)["peak_of"].values()) == {1.0}
    assert activations_on_host.plot(result, {}) and capsys.readouterr().out.count(" ms a step\n") == 4


def test_a_way_with_other_gradients_is_refused(monkeypatch):
    for name, size in {"WIDTH": 16, "SEQUENCES": 2, "TOKENS": 4}.items():
        monkeypatch.setattr(activations_on_host, name, size)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    plain = activations_on_host.plain
    monkeypatch.setattr(
        activations_on_host, "WAYS", {"kept": plain, "wrong": lambda *given: 1.1 * plain(*given)}
    )
    with pytest.raises(AssertionError, match="not close"):
        activations_on_host.main()


def test_bytes_count_each_time_a_tensor_is_saved():
    x = torch.ones(8, 4, requires_grad=True)
    assert activations_on_host.bytes_saved(lambda: x + 1) == 0
    assert activations_on_host.bytes_saved(lambda: x.sin() + x.cos()) == 2 * x.nbytes


@pytest.mark.gpu
def test_gradients_through_the_host_are_right():
    weight, x = torch.ones(64, 64, device="cuda"), torch.ones(512, 64, device="cuda")
    weight.requires_grad_()
    bias = torch.ones(64, device="cuda", requires_grad=True)
    with activations_on_host.on_host([weight], least=1024):
        loss = ((x @ weight).sin() * bias).sum()
    loss.backward()
    expected = torch.autograd.grad(((x @ weight).sin() * bias).sum(), [weight, bias])
    torch.testing.assert_close([weight.grad, bias.grad], list(expected))


@pytest.mark.gpu
@pytest.mark.program("memory/activations_on_host", quick=True, SEQUENCES=8)
def test_activations_on_the_host_lower_the_peak(returned):
    peak = {way: row["peak"] for way, row in returned["rows"].items()}
    assert max(peak["twice"], peak["all_on_host"], peak["on_host"]) < 0.8 * peak["kept"]


@pytest.fixture
def few_words(monkeypatch):
    """A vocabulary that a CPU can take; nothing is compiled."""
    sizes = {"TOKENS": 40, "WIDTH": 8, "WORDS": 300, "PARTS": (2, 8), "CHECKED": (20, 8, 50)}
    for name, size in sizes.items():
        monkeypatch.setattr(loss_in_parts, name, size)
    monkeypatch.setattr(torch, "compile", lambda function, **_: function)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


def test_a_loss_in_parts_has_the_gradients_of_the_whole(few_words):
    result = json.loads(json.dumps(loss_in_parts.main()))
    assert list(result["rows"]) == ["whole", "compiled", "twice_2", "once_2", "twice_8", "once_8"]
    derived = loss_in_parts.derive(result)
    assert derived["most_error"] < 0.01 and "peak_of" not in derived, "a CPU has no peaks"
    for row in result["rows"].values():
        row["peak"] = 2**20
    assert set(loss_in_parts.derive(result)["peak_of"].values()) == {1.0}
    assert loss_in_parts.plot(result, {})


@pytest.mark.parametrize("parts", [1, 3, 7, 64])
def test_parts_of_the_loss_may_be_uneven_and_scaled(parts):
    """Five tokens of fifty do not count, and the loss is one of several."""
    given = loss_in_parts.tensors(50, 8, 300, "cpu", torch.float64)
    expected = loss_in_parts.gradients(lambda *x: 3 * loss_in_parts.exact(*x), given)
    assert (given[2] == -100).sum() == 5
    for way in ("twice", "once"):
        part = loss_in_parts.ways((parts,))[f"{way}_{parts}"]
        found = loss_in_parts.gradients(lambda *x: 3 * part(*x), given)  # noqa: B023
        assert loss_in_parts.error(found, expected) < 1e-6, way
        wrong = loss_in_parts.gradients(lambda *x: part(*x), given)  # noqa: B023
        assert loss_in_parts.error(wrong, expected) > 0.1


def test_more_parts_of_the_loss_have_a_lower_peak():
    given, peaks = loss_in_parts.tensors(64, 8, 5000, "cpu", torch.float32), {}
    for name, function in loss_in_parts.ways((2, 8)).items():
        if name != "compiled":
            with peak_predicted.Peak("cpu") as peak:
                loss_in_parts.gradients(function, given)
            peaks[name] = peak.bytes
    for way in ("twice", "once"):
        assert peaks[f"{way}_8"] < 0.6 * peaks[f"{way}_2"] < 0.6 * peaks["whole"]


def test_a_loss_at_once_has_no_second_derivative():
    hidden, weight, targets = loss_in_parts.tensors(8, 4, 9, "cpu", torch.float32)
    loss = loss_in_parts.AtOnce.apply(hidden, weight, targets, 2)
    (slope,) = torch.autograd.grad(loss, hidden, create_graph=True)
    with pytest.raises(RuntimeError, match="does not require grad"):
        slope.sum().backward()


def test_a_loss_that_counts_by_the_part_is_refused(monkeypatch, few_words):
    right = loss_in_parts.loss_of
    monkeypatch.setattr(loss_in_parts, "loss_of", lambda h, w, t, count: right(h, w, t, (t != -100).sum()))
    with pytest.raises(AssertionError, match="twice_2 has other gradients"):
        loss_in_parts.main()


@pytest.mark.skipif(not hasattr(nn, "LinearCrossEntropyOptions"), reason="new in PyTorch 2.13")
def test_pytorchs_own_loss_in_parts_has_the_same_gradients():
    given = loss_in_parts.tensors(50, 8, 300, "cpu", torch.float64)
    expected, options = loss_in_parts.gradients(loss_in_parts.exact, given), nn.LinearCrossEntropyOptions()

    def own(*tensors):
        return nn.functional.linear_cross_entropy(*tensors, options=options)

    assert loss_in_parts.error(loss_in_parts.gradients(own, given), expected) < 1e-6


@pytest.mark.gpu
@pytest.mark.program("memory/loss_in_parts", quick=True, WORDS=32000, PARTS=(2, 8))
def test_peaks_of_a_loss_in_parts_fall_on_a_gpu(returned):
    peak = {name: row["peak"] for name, row in returned["rows"].items()}
    assert peak["once_8"] < peak["once_2"] < peak["whole"] > peak["compiled"]


@pytest.fixture
def host_memory(monkeypatch, gpu):
    """Pinned memory that is rounded up to a power of two."""
    held = []

    def empty(*size, pin_memory=False, **options):
        if pin_memory:
            held.append(1 << (size[0] - 1).bit_length())
        return torch.zeros(1)

    stats = lambda: {"allocated_bytes.current": sum(held)}  # noqa: E731
    monkeypatch.setattr(torch.cuda, "host_memory_stats", stats)
    monkeypatch.setattr(pinned_rounding, "resident_bytes", lambda: 0)
    monkeypatch.setattr(
        pinned_rounding,
        "torch",
        SimpleNamespace(empty=empty, ones=torch.ones, uint8=torch.uint8, cuda=torch.cuda),
    )
    return held


def test_pinned_bytes_are_counted_for_each_size(host_memory):
    found = pinned_rounding.held()
    assert [size // MIB for size in found["asked"]] == list(pinned_rounding.MIB)
    assert [size // MIB for size in found["counted"]] == [1, 4, 8, 64, 64, 128, 256]


def test_memory_is_registered_for_as_long_as_the_block_lasts(monkeypatch):
    calls = []
    cuda = SimpleNamespace(
        cudaHostRegister=lambda *given: calls.append(("register", *given)) or 0,
        cudaHostUnregister=lambda *given: calls.append(("unregister", *given)) or 0,
    )
    monkeypatch.setattr(torch.cuda, "cudart", lambda: cuda)
    monkeypatch.setattr(torch.cuda, "check_error", lambda code: None)
    x = torch.ones(10)[2:]
    with pytest.raises(ZeroDivisionError), pinned_rounding.registered(x) as same:
        assert same is x and calls == [("register", x.untyped_storage().data_ptr(), 40, 0)]
        raise ZeroDivisionError
    assert calls[1:] == [("unregister", x.untyped_storage().data_ptr())]


def test_a_setting_that_is_not_known_is_told_in_words(monkeypatch, capsys):
    row = {"asked": [3 * MIB], "counted": [4 * MIB], "resident": [0]}

    def run(command, env, capture_output, text):
        known = "threshold" not in env.get("PYTORCH_ALLOC_CONF", "")
        words = "Traceback\nRuntimeError: Unrecognized key\n"
        return SimpleNamespace(returncode=0 if known else 1, stdout=json.dumps(row), stderr=words)

    monkeypatch.setattr(subprocess, "run", run)
    copies = {"bytes": 10**6, "ms": {"plain": 1.0}, "ms_trials": {"plain": [1.0]}}
    monkeypatch.setattr(pinned_rounding, "copies", lambda: copies)
    result = pinned_rounding.main()
    assert result["settings"]["threshold"] == {"error": "RuntimeError: Unrecognized key"}
    derived = pinned_rounding.derive(result)
    assert derived["times"]["default"] == [4 / 3] and derived["gb_s"]["plain"] == 1.0
    assert "threshold" not in derived["times"] and pinned_rounding.plot(result, {})
    assert "Unrecognized key" in capsys.readouterr().out


@pytest.mark.gpu
@pytest.mark.program("memory/pinned_rounding", quick=True, SETTINGS={"default": {}})
def test_pinned_memory_is_rounded_up_and_registered_memory_is_not(returned):
    row = returned["settings"]["default"]
    for asked, counted in zip(row["asked"], row["counted"], strict=True):
        assert counted == 1 << (asked - 1).bit_length()
    assert returned["copies"]["is_pinned"] and returned["copies"]["counted"] == 0


def test_copies_from_plain_pinned_and_registered_memory(gpu, monkeypatch):
    entered = []
    monkeypatch.setattr(pinned_rounding, "COPY_MIB", 1)
    monkeypatch.setattr(pinned_rounding, "pinned_bytes", lambda: 7)
    monkeypatch.setattr(
        pinned_rounding, "registered", lambda tensor: entered.append(tensor) or nullcontext(tensor)
    )
    found = pinned_rounding.copies()
    assert list(found["ms"]) == ["plain", "pinned", "registered"] and found["bytes"] == MIB
    assert len(entered) == 1 and found["counted"] == 0


@pytest.mark.parametrize(
    ("kind", "end", "word"),
    [
        ("subprocess.Popen", "Ctrl-C", "ends"),
        ("subprocess.Popen", "kill", "lives on"),
        ("multiprocessing.Process", "kill -9", "lives on"),
        ("multiprocessing.Process", "Ctrl-Z", "lives on"),
    ],
)
def test_a_child_outlives_what_ends_its_parent_alone(kind, end, word, monkeypatch):
    monkeypatch.setattr(children_left, "GRACE_S", 60 if word == "ends" else 1)
    assert children_left.left(kind, end) == word


def test_a_zombie_is_gone():
    child = subprocess.Popen(["true"])
    assert children_left.until(lambda: children_left.gone(child.pid), 60)
    assert child.wait() == 0 and children_left.lives(os.getpid()) and children_left.gone(2**22 + 1)


def test_children_are_told_by_the_way_to_stop(monkeypatch, capsys):
    monkeypatch.setattr(children_left, "left", lambda kind, end: "ends" if end == "Ctrl-C" else "lives on")
    result = json.loads(json.dumps(children_left.main()))
    derived = children_left.derive(result)
    assert derived["left"]["Ctrl-C"] == [] and derived["left"]["kill"] == sorted(children_left.KINDS)
    assert set(derived["plain"]) < set(derived["job"]) < set(children_left.KINDS)
    assert capsys.readouterr().out.count("lives on") == 18


MESSAGE = (
    "CUDA out of memory. Tried to allocate 1024.00 MiB. GPU 0 has a total capacity of 139.80 GiB of which "
    "137.20 GiB is free. Including non-PyTorch memory, this process has 2.05 GiB memory in use. 2.00 GiB "
    "allowed; Of the allocated memory 512.00 MiB is allocated by PyTorch, with 1.00 GiB allocated in private "
    "pools (e.g., CUDA Graphs), and 0 bytes is reserved by PyTorch but unallocated."
)


def test_the_parts_of_a_message_are_read_in_mib():
    told = {"asked": 1024, "allowed": 2048, "allocated": 512, "pools": 1024, "unallocated": 0}
    assert private_pools.parts(MESSAGE) == told and private_pools.WORDS in MESSAGE
    assert set(private_pools.parts("something else").values()) == {0}


@pytest.mark.gpu
def test_memory_of_a_graph_is_named_in_the_message():
    result = run_alone("memory/private_pools")
    assert result["parts"]["pools"] >= 1000 and private_pools.WORDS in result["says"]["beside a graph"]
    assert result["says"]["without a graph"] == result["says"]["the graph is dropped"] == ""
