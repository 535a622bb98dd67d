"""Snippets of the chapter on streams: their functions, taken home, and their stories, told without a GPU."""

import contextlib
import json
import os
import subprocess
import sys
import weakref
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import matplotlib
import matplotlib.pyplot as plt
import pytest
import torch
from torch.overrides import TorchFunctionMode

from snippets.streams import (
    event_never_recorded,
    events_as_edges,
    freed_too_early_broken,
    freed_too_early_fixed,
    hardware_queues,
    kernel_waves,
    kernels_side_by_side,
    one_stream_is_serial,
    race_broken,
    race_fixed,
    race_under_sanitizer,
    record_stream_or_join,
    stream_pool_wraps,
    stream_priority,
    three_streams_cka,
    when_streams_help,
)
from snippets.timing.take_turns import take_turns

matplotlib.use("Agg")
ROOT = Path(__file__).resolve().parent.parent


class FakeEvent:
    """A mark in a stream; one that was never recorded is done."""

    def __init__(self):
        self.stream, self.done = None, True

    def query(self) -> bool:
        return self.done

    def record(self, stream: "FakeStream") -> None:
        self.stream, self.done = stream, False
        stream.queue.append(("mark", self))


class FakeStream:
    """A queue of work that is put off until somebody waits for it."""

    def __init__(self, handle: int):
        self.cuda_stream, self.queue = handle, []

    def record_event(self) -> FakeEvent:
        event = FakeEvent()
        event.record(self)
        return event

    def wait_event(self, event: FakeEvent) -> None:
        if not event.done:  # what is done, or was never recorded, holds nobody back, also if it is recorded later
            self.queue.append(("wait", event))

    def wait_stream(self, other: "FakeStream") -> None:
        self.wait_event(other.record_event())

    def synchronize(self, until: FakeEvent | None = None) -> None:
        while self.queue and not (until and until.done):
            kind, what = self.queue.pop(0)
            if kind == "do":
                what()
            elif kind == "mark":
                what.done = True
            elif not what.done:
                what.stream.synchronize(what)


class FakeGpu(TorchFunctionMode):
    """A GPU that is as unfair as CUDA allows: one side's streams run only when the other's can do no more.

    It knows streams, events, and an allocator that hands out freed memory by stream, as PyTorch's does.
    """

    def __init__(self, first: str):
        super().__init__()
        self.first, self.streams, self.blocks, self.peak = first, [FakeStream(0)], [], 0
        self.current = self.streams[0]

    def new_stream(self, priority: int = 0) -> FakeStream:
        self.streams.append(FakeStream(1 + (len(self.streams) - 1) % 32))
        return self.streams[-1]

    @contextlib.contextmanager
    def on(self, stream: FakeStream):
        before, self.current = self.current, stream
        yield
        self.current = before

    def synchronize(self, device: int | None = None) -> None:
        for stream in self.streams if self.first == "main" else reversed(self.streams):
            stream.synchronize()

    def empty_cache(self) -> None:
        self.synchronize()
        self.blocks = [block for block in self.blocks if not block.free]

    def reserved(self) -> int:
        return sum(block.memory.numel() for block in self.blocks)

    def allocate(self, like: torch.Tensor) -> torch.Tensor:
        """A tensor in a free block of the current stream, or in a new block, until Python drops it."""
        for block in self.blocks:
            mine = block.free and block.stream is self.current and block.memory.numel() == like.nbytes
            if mine and all(event.done for event in block.events):
                break
        else:
            memory = torch.full((like.nbytes,), 7, dtype=torch.uint8)
            self.blocks.append(block := SimpleNamespace(stream=self.current, memory=memory))
        block.free, block.users, block.events = False, [], []
        self.peak = max(self.peak, self.reserved())
        tensor = block.memory.view(like.dtype).view(like.shape)
        tensor.block = block
        weakref.finalize(tensor, self.release, block)
        return tensor

    def release(self, block: SimpleNamespace) -> None:
        block.free, block.events = True, [stream.record_event() for stream in block.users]

    def later(self, target: torch.Tensor, compute) -> torch.Tensor:
        """Put off to write into the target what `compute` gives then; the queue does not keep the target alive."""
        alias = target.detach()

        def work() -> None:
            with torch._C.DisableTorchFunction():
                alias.copy_(compute())

        self.current.queue.append(("do", work))
        return target

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs, name = dict(kwargs or {}), func.__name__
        on_gpu = kwargs.pop("device", None) == "cuda"
        with torch._C.DisableTorchFunction():
            if name in ("item", "tolist", "equal"):
                for stream in self.streams[:0:-1] if self.first == "side" else ():
                    stream.synchronize()
                self.current.synchronize()
            if name in ("full", "ones", "zeros") and on_gpu:
                value = func(*args, **kwargs)
                return self.later(self.allocate(value), lambda: value)
            elif name in ("fill_", "zero_"):
                value = torch.full_like(args[0], args[1] if args[1:] else 0)
                return self.later(args[0], lambda: value)
            elif name in ("add", "any", "mm", "ne", "sum"):
                out = kwargs.pop("out", None)
                given = [each.detach() if isinstance(each, torch.Tensor) else each for each in args]
                out = self.allocate(func(*given, **kwargs)) if out is None else out
                return self.later(out, lambda: func(*given, **kwargs))
            else:
                return func(*args, **kwargs)


@pytest.fixture
def fake_gpu(monkeypatch):
    """`fake_gpu(first)` puts a fake GPU in the place of CUDA, whose main or side streams run first."""
    with contextlib.ExitStack() as stack:

        def install(first: str = "side") -> FakeGpu:
            gpu = FakeGpu(first)
            fakes = {
                "Stream": gpu.new_stream,
                "Event": FakeEvent,
                "current_stream": lambda: gpu.current,
                "stream": gpu.on,
                "synchronize": gpu.synchronize,
                "is_initialized": lambda: True,
                "device_count": lambda: 1,
                "_sleep": lambda cycles: None,
                "empty_cache": gpu.empty_cache,
                "max_memory_reserved": lambda: gpu.peak,
                "reset_peak_memory_stats": lambda: setattr(gpu, "peak", gpu.reserved()),
            }
            for name, fake in fakes.items():
                monkeypatch.setattr(torch.cuda, name, fake)
            monkeypatch.setattr(torch.accelerator, "synchronize", gpu.synchronize)
            monkeypatch.setattr(torch._C, "_cuda_hasPrimaryContext", lambda device: True, raising=False)
            monkeypatch.setattr(torch.Tensor, "record_stream", lambda x, stream: x.block.users.append(stream))
            return stack.enter_context(gpu)

        yield install


class SmallOnCpu(TorchFunctionMode):
    """Tensors that are meant for the GPU are made on the CPU, and no side is longer than 16."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if kwargs.get("device") == "cuda":
            kwargs["device"] = "cpu"
            args = [small(each) for each in args]
        return func(*args, **kwargs)


def small(shape):
    """A side, or a shape, of at most 16; anything else as it is."""
    if isinstance(shape, tuple):
        return tuple(map(small, shape))
    return min(shape, 16) if isinstance(shape, int) else shape


@pytest.fixture
def no_gpu(monkeypatch):
    """Streams without a GPU: all is done at once, graphs run the work again, every profile sees the same."""
    stream = SimpleNamespace(wait_stream=lambda other: None, wait_event=lambda event: None, synchronize=lambda: None)
    event = SimpleNamespace(synchronize=lambda: None, query=lambda: True, record=lambda stream: None)
    stream.record_event = lambda: event
    fakes = {
        "current_stream": lambda: stream,
        "Event": lambda: event,
        "stream": lambda stream: contextlib.nullcontext(),
        "_sleep": lambda cycles: None,
        "empty_cache": lambda: None,
        "reset_peak_memory_stats": lambda: None,
        "max_memory_reserved": lambda: 2**20,
    }
    for name, fake in fakes.items():
        monkeypatch.setattr(torch.cuda, name, fake)
    new_stream = SimpleNamespace(priority_range=lambda: (0, -3))
    handles = iter(range(10**6))

    class Stream:
        priority_range = staticmethod(new_stream.priority_range)

        def __new__(cls, priority=0):
            return SimpleNamespace(**vars(stream), cuda_stream=next(handles) % 32)

    monkeypatch.setattr(torch.cuda, "Stream", Stream)
    monkeypatch.setattr(torch.Tensor, "record_stream", lambda x, stream: None)
    monkeypatch.setattr(torch.nn.Module, "cuda", lambda self: self)
    rows = [["CPU", 0.0, 5.0, "cudaLaunchKernel"], ["stream 13", 6.0, 3.0, "void at::native::reduce_kernel<512"]]
    rows += [["stream 7", start, us, "spin_kernel"] for start, us in ((7.0, 2.0), (9.0, 4.0), (9.5, 8.0), (20.0, 2.0))]
    rows += [["stream 7", 30.0, 1.0, "void at::native::vectorized_elementwise_kernel<4"]]
    for module in STORIES:
        for name, fake in {"lanes": lambda work: [work(), rows][1], "captured": lambda work: [work(), work][1]}.items():
            monkeypatch.setattr(module, name, fake, raising=False)
        for name in ("take_turns", "measure"):
            if hasattr(module, name):
                monkeypatch.setattr(module, name, quick(getattr(module, name)))
    with SmallOnCpu():
        yield


def quick(timed):
    """The same with at most three trials of one call."""

    def few(*args, **kwargs):
        return timed(*args[:1], **kwargs | {"trials": 3, "calls": 1, "warmup": 0})

    return few


TRACED = [
    {
        "grid": [64, 16, 1],
        "block": [256, 1, 1],
        "registers per thread": 122,
        "shared memory": 49152,
    }
]
H200 = SimpleNamespace(
    multi_processor_count=132,
    max_threads_per_multi_processor=2048,
    regs_per_multiprocessor=65536,
    shared_memory_per_multiprocessor=233472,
)
STORIES = [
    event_never_recorded,
    events_as_edges,
    freed_too_early_broken,
    freed_too_early_fixed,
    hardware_queues,
    kernel_waves,
    kernels_side_by_side,
    one_stream_is_serial,
    race_broken,
    race_fixed,
    record_stream_or_join,
    stream_pool_wraps,
    stream_priority,
    three_streams_cka,
    when_streams_help,
]


@pytest.mark.parametrize("module", STORIES, ids=lambda module: module.__name__.rpartition(".")[2])
def test_each_story_can_be_told_recorded_and_drawn(module, no_gpu, monkeypatch, capsys):
    monkeypatch.setattr(kernel_waves, "kernels_of", lambda work: TRACED)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda: H200)
    child = SimpleNamespace(submit=lambda work, *args: SimpleNamespace(result=lambda: work(*args)))
    monkeypatch.setattr(hardware_queues, "ProcessPoolExecutor", lambda *args: contextlib.nullcontext(child))
    monkeypatch.setenv("CUDA_DEVICE_MAX_CONNECTIONS", "8")
    monkeypatch.setattr(when_streams_help, "LAUNCHES", {128: 8})
    result = json.loads(json.dumps(module.main(), allow_nan=False, sort_keys=True))
    assert result and capsys.readouterr().out
    if hasattr(module, "plot"):
        assert module.plot(result, {}).axes
        plt.close("all")


def test_each_model_maps_images_to_features():
    models = three_streams_cka.three_models().values()
    assert [tuple(model(torch.rand(8, 3, 16, 16)).shape) for model in models] == [(8, 256)] * 3


def test_residual_adds_its_input():
    block = three_streams_cka.Residual(torch.nn.ReLU())
    torch.testing.assert_close(block(torch.tensor([-1.0, 2.0])), torch.tensor([-1.0, 4.0]))


def test_similarity_is_linear_cka():
    torch.manual_seed(0)
    x, y = torch.rand(2, 20, 5)
    rotation = torch.linalg.qr(torch.randn(5, 5)).Q
    a, b = ((z - z.mean(0)).double() for z in (x, y))
    expected = torch.trace(a @ a.T @ b @ b.T) / ((a @ a.T).norm() * (b @ b.T).norm())
    of_a_model = partial(three_streams_cka.similarity, torch.nn.Identity())
    for similarity in (one_stream_is_serial.similarity, of_a_model):
        torch.testing.assert_close(similarity(x, y).double(), expected, rtol=1e-4, atol=0)
        alike = similarity(x, 3 * x @ rotation + 1)
        torch.testing.assert_close(alike, torch.tensor(1.0), rtol=1e-4, atol=0)


@pytest.mark.parametrize("first", ["main", "side"])
def test_results_of_branches_may_be_used_at_once(first, fake_gpu):
    gpu = fake_gpu(first)
    x = torch.ones(3, device="cuda")
    streams = [gpu.new_stream() for _ in range(2)]
    results = three_streams_cka.fork_join([partial(torch.add, x, 1), partial(torch.add, x, 2)], streams)
    both = torch.add(*results)
    users = [result.block.users for result in results]
    del results
    spoiled = [torch.full((3,), -1.0, device="cuda") for _ in streams]
    assert both.tolist() == [5.0] * 3 and users == [[gpu.current]] * 2 and len(spoiled) == 2


def test_as_many_streams_as_branches(fake_gpu):
    gpu = fake_gpu()
    with pytest.raises(ValueError, match="shorter"):
        three_streams_cka.fork_join([lambda: torch.ones(1, device="cuda")] * 2, [gpu.new_stream()])


@pytest.mark.parametrize("first", ["main", "side"])
def test_launches_are_dealt_out_between_a_fork_and_a_join(first, fake_gpu):
    gpu = fake_gpu(first)
    streams, launched = [gpu.new_stream() for _ in range(3)], []
    x = torch.ones(1, device="cuda")
    seen = [torch.zeros(1, device="cuda") for _ in streams]

    def launch(i: int) -> None:
        launched.append((i, gpu.current))
        torch.add(x, 0, out=seen[i])

    when_streams_help.spread(launch, 7, streams)
    assert launched == [(i % 3, streams[i % 3]) for i in range(7)]
    assert [each.item() for each in seen] == [1.0, 1.0, 1.0]  # item() waits for the main stream alone
    launched.clear()
    when_streams_help.spread(partial(kernels_side_by_side.chain, launch), 3, streams)
    assert launched == [(i, streams[i]) for i in range(3) for _ in range(40)]
    assert [each.item() for each in seen] == [1.0, 1.0, 1.0]


def test_products_fill_eight_places_and_a_wrong_one_is_noticed():
    with SmallOnCpu():
        launch, check = when_streams_help.product(6, torch.float32)
        with pytest.raises(AssertionError, match="not close"):
            check()
        for _ in range(2):
            for i in range(8):
                launch(i)
            check()
        with pytest.raises(AssertionError, match="not close"):
            check()


def test_speedup_is_over_the_first_of_the_same_round(monkeypatch):
    clock = iter([8.0, 4.0, 9.0, 3.0, 6.0, 3.0])
    monkeypatch.setattr(
        when_streams_help,
        "take_turns",
        lambda works, warmup, trials, rest_s: take_turns(works, 0, 3, rest_s=rest_s, clock=lambda work, n: next(clock)),
    )
    row = when_streams_help.compared([print, print], 0.0)
    assert row == {"speedup": [1.0, 2.0], "speedup_trials": [[1.0] * 3, [2.0, 3.0, 2.0]]}


def test_kernel_time_and_lateness_leave_out_the_cpu():
    rows = [["CPU", 0, 90.0, "launch"], ["stream 7", 5, 3.0, "mm"], ["stream 13", 7, 4.0, "mm"]]
    rows.append(["stream 7", 9, 1.0, "mm"])
    assert kernels_side_by_side.on_gpu(rows) == {"kernel_us": 8.0, "late_us": 2}


@pytest.mark.parametrize(("twin", "wrong"), [(race_broken, 50), (race_fixed, 0)])
def test_only_the_broken_twin_can_sum_before_the_write(twin, wrong, fake_gpu, monkeypatch, capsys):
    fake_gpu("side")
    monkeypatch.setattr(twin, "N", 2)
    monkeypatch.setattr(twin, "lanes", lambda work: [["CPU", 0, 1, "launch"], ["stream 7", 1, 1, "mm"]])
    result = twin.main()
    assert (result["documented"]["wrong"], result["amplified"]["wrong"]) == (wrong, wrong)
    assert result["documented"]["queued"] == 0 and result["events"] == [["stream 7", 1, 1, "mm"]]
    assert f"amplified   5 products queued, wrong sums: {wrong:2} of 50" in capsys.readouterr().out


def test_a_friendly_gpu_hides_the_race(fake_gpu, monkeypatch):
    fake_gpu("main")
    monkeypatch.setattr(race_broken, "N", 2)
    monkeypatch.setattr(race_broken, "lanes", lambda work: [])
    assert race_broken.main()["amplified"]["wrong"] == 0


def test_write_and_sum_are_drawn_in_their_lanes():
    names = {"write x": "void at::native::vectorized_elementwise_kernel<4", "sum x": "void at::native::reduce_kernel<5"}
    events = [["stream 7", start, 2700.0, "void cutlass::Kernel2<cut"] for start in (0.0, 2750.0)]
    events += [["stream 7", 5500.0, 1.5, names["write x"]], ["stream 13", 90.0, 3.0, names["sum x"]]]
    ax, near = race_broken.plot({"events": events}, {}).axes
    assert [bars.get_paths()[0].get_extents().x1 for bars in ax.collections] == [2.7, 5.45]
    drawn = {line.get_label(): line.get_xydata().tolist() for line in ax.get_lines()}
    assert drawn == {"write x": [[5.5, 0.0]], "sum x": [[0.09, 1.0]]}
    assert [bars.get_paths()[0].get_extents().x0 for bars in near.collections] == [-5500.0, -2750.0, 0.0, -5410.0]
    plt.close("all")


def twins(name: str) -> list[list[str]]:
    paths = [ROOT / f"snippets/streams/{name}_{twin}.py" for twin in ("broken", "fixed")]
    texts = [path.read_text() for path in paths]
    return [text[text.index("import torch") :].splitlines() for text in texts]


def test_twins_differ_in_the_lesson_only():
    broken, fixed = twins("race")
    fork = "    side.wait_stream(torch.cuda.current_stream())"
    assert fork in fixed and [line for line in fixed if line != fork] == broken
    texts = ["\n".join(lines) for lines in twins("freed_too_early")]
    broken, fixed = (text[text.index("\ndef step") :] for text in texts)
    assert broken == fixed, "what differs is the policies above it"


@pytest.mark.parametrize(("program", "first"), [("no_fork", "side"), ("no_join", "main"), ("freed_too_early", "main")])
def test_an_unfair_gpu_breaks_the_wrong_programs(program, first, fake_gpu):
    fake_gpu(first)
    assert race_under_sanitizer.summed(program) != 10_000


@pytest.mark.parametrize("first", ["main", "side"])
def test_fork_and_join_is_right_on_any_gpu(first, fake_gpu):
    fake_gpu(first)
    assert race_under_sanitizer.summed() == 10_000


def test_sanitizer_reports_are_counted(monkeypatch, capsys):
    report = """==========
CSAN detected a possible data race on tensor with data pointer 139719969079296
Access by stream 94646435460352 during kernel:
aten::sum(Tensor self, *, ScalarType? dtype=None) -> Tensor
reading from argument(s) self
With stack trace:
  File "x.py", line 9
Previous access by stream 0 during kernel:
aten::ones(SymInt[] size) -> Tensor
writing to the output
torch.cuda._sanitizer.CUDASanitizerErrors: detected 1 errors"""
    asked = []

    def run(command, env, capture_output, text):
        asked.append((command[1:], env["TORCH_CUDA_SANITIZER"]))
        failed = command[-1] == "no_fork"
        return SimpleNamespace(returncode=int(failed), stderr=report if failed else "")

    monkeypatch.setattr(subprocess, "run", run)
    programs = race_under_sanitizer.main()["programs"]
    assert {name: (v["races"], v["exit_code"]) for name, v in programs.items()} == {
        **{"no_fork": (1, 1), "no_join": (0, 0), "fork_and_join": (0, 0), "freed_too_early": (0, 0)}
    }
    assert ([race_under_sanitizer.__file__, "no_join"], "1") in asked and len(asked) == 4
    assert "no_fork          races reported: 1, exit code 1" in capsys.readouterr().out


@pytest.mark.parametrize("edge", events_as_edges.EDGES)
@pytest.mark.parametrize("first", ["main", "side"])
def test_edges_hold(edge, first, fake_gpu):
    gpu = fake_gpu(first)
    values = {name: torch.zeros(3, device="cuda") for name in "abcd"} | {"x": torch.ones(3, device="cuda")}
    streams = gpu.current, gpu.new_stream(), gpu.new_stream()
    events_as_edges.diamond(events_as_edges.EDGES[edge], *streams, values)
    gpu.synchronize()
    assert values["d"].tolist() == [8.0] * 3


def test_only_an_event_that_was_recorded_is_waited_for(fake_gpu, capsys):
    fake_gpu("side")
    result = event_never_recorded.main()
    assert result["unrecorded_is_done"] is True
    assert (result["recorded"]["wrong"], result["unrecorded"]["wrong"]) == (0, 10)


@pytest.mark.parametrize("first", ["main", "side"])
def test_a_dropped_tensor_is_overwritten_before_it_is_read(first, fake_gpu, monkeypatch):
    fake_gpu(first)
    for twin in (freed_too_early_broken, freed_too_early_fixed):
        monkeypatch.setattr(twin, "FLOATS", 2**18)  # 1 MiB
    broken = freed_too_early_broken.main()["policies"]["just_drop"]["corrupted"]
    assert broken == (50 if first == "main" else 0)
    fixed = freed_too_early_fixed.main()["policies"]
    assert fixed == {name: {"corrupted": 0} for name in ("record_stream", "keep", "join")}


@pytest.mark.parametrize(
    ("name", "least", "most"), [("record_stream", 20, 22), ("keep", 20, 21), ("join", 1, 2), ("join_late", 2, 3)]
)
def test_policies_take_the_memory_that_they_need(name, least, most, fake_gpu, monkeypatch):
    gpu = fake_gpu("main")
    monkeypatch.setattr(record_stream_or_join, "FLOATS", 2**18)  # 1 MiB
    record_stream_or_join.run(record_stream_or_join.HELD[name], gpu.new_stream())
    assert least <= gpu.peak / 2**20 <= most


def test_streams_come_round_again(fake_gpu):
    gpu = fake_gpu()
    streams = [gpu.new_stream() for _ in range(40)]
    assert stream_pool_wraps.first_twins(streams) == [*range(1, 33), *range(1, 9)]


@pytest.mark.parametrize("first", ["main", "side"])
def test_streams_are_occupied_one_after_the_other(first, fake_gpu, monkeypatch):
    gpu, spun = fake_gpu(first), []
    monkeypatch.setattr(torch.cuda, "_sleep", lambda cycles: spun.append((gpu.current, cycles)))
    one, other = gpu.new_stream(), gpu.new_stream()
    for work in (hardware_queues.two_each, hardware_queues.forked):
        work([one, other], 5)
        assert spun == [(one, 5), (one, 5), (other, 5), (other, 5)]
        spun.clear()


def test_the_number_of_queues_is_set_before_cuda_starts(fake_gpu, monkeypatch):
    gpu, asked = fake_gpu(), []

    def new_stream():
        asked.append(os.environ["CUDA_DEVICE_MAX_CONNECTIONS"])
        return gpu.new_stream()

    monkeypatch.setenv("CUDA_DEVICE_MAX_CONNECTIONS", "2")
    monkeypatch.setattr(torch.cuda, "Stream", new_stream)
    monkeypatch.setattr(hardware_queues, "captured", lambda work: work)
    trials = hardware_queues.times_as_fast(8, 5)
    assert set(asked) == {"8"} and len(asked) == 32
    assert {way: [len(each) for each in rows] for way, rows in trials.items()} == {"eager": [5] * 6, "graph": [5] * 6}
    assert trials["eager"][0] == [1.0] * 5


class Diary:
    """A stream that writes down what happens."""

    def __init__(self, diary: list, name: str):
        self.diary, self.name = diary, name

    def record_event(self):
        place = len(self.diary)
        return SimpleNamespace(synchronize=lambda: self.diary.append(f"wait for {place} on {self.name}"))

    def synchronize(self) -> None:
        self.diary.append(f"wait for {self.name}")


def test_latency_is_from_the_launch_to_the_result_while_large_kernels_wait(monkeypatch):
    diary, clock = [], iter([1.0, 1.25])
    monkeypatch.setattr(stream_priority, "QUEUED", 3)
    monkeypatch.setattr(stream_priority, "wait_for", lambda: diary.append("idle"))
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: Diary(diary, "main"))
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: contextlib.nullcontext(diary.append(stream.name)))
    monkeypatch.setattr(stream_priority, "time", SimpleNamespace(perf_counter=lambda: next(clock)))
    urgent = Diary(diary, "urgent")
    assert stream_priority.latency_s(urgent, partial(diary.append, "small"), partial(diary.append, "large")) == 0.25
    assert diary == ["idle", *["large"] * 4, "wait for 2 on main", "urgent", "small", "wait for urgent"]


@pytest.mark.parametrize(
    ("threads", "registers", "shared", "fit"),
    [
        (128, 16, 0, 16),  # threads decide
        (256, 122, 0, 2),  # registers decide: 128 of each thread are given out
        (256, 122, 49152, 2),
        (256, 32, 100_000, 2),  # shared memory decides
        (256, 255, 0, 1),
        (100, 16, 0, 16),  # a block takes whole warps
        (96, 33, 0, 16),  # a quarter of the registers for each quarter of an SM
    ],
)
def test_blocks_on_one_sm(threads, registers, shared, fit, monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda: H200)
    assert kernel_waves.blocks_per_sm(threads, registers, shared) == fit


def run_alone(name: str) -> dict:
    """What main() of a snippet of this chapter returns in a fresh process."""
    program = f"import json; from snippets.streams import {name} as m; print(json.dumps(m.main()))"
    child = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    return json.loads(child.stdout.splitlines()[-1])


@pytest.mark.gpu
def test_three_streams_give_the_scores_of_one():
    x, noise = torch.rand(2, 64, 3, 16, 16, device="cuda")
    models = three_streams_cka.three_models().values()
    branches = [partial(three_streams_cka.similarity, model.cuda(), x, x + noise) for model in models]
    streams = [torch.cuda.Stream() for _ in branches]
    serial = torch.stack([branch() for branch in branches])
    again = three_streams_cka.captured(lambda: torch.stack(three_streams_cka.fork_join(branches, streams)))
    again().zero_()
    torch.testing.assert_close(again(), serial, rtol=1e-4, atol=0)
    for _ in range(20):
        forked = torch.stack(three_streams_cka.fork_join(branches, streams))
        torch.testing.assert_close(forked, serial, rtol=1e-4, atol=0)


@pytest.mark.gpu
def test_races_on_a_gpu():
    assert race_broken.main()["amplified"]["wrong"] >= 45
    assert race_fixed.main()["amplified"]["wrong"] == 0
    assert freed_too_early_broken.main()["policies"]["just_drop"]["corrupted"] >= 45
    assert not any(policy["corrupted"] for policy in freed_too_early_fixed.main()["policies"].values())
    assert event_never_recorded.main()["recorded"]["wrong"] == 0


@pytest.mark.gpu
def test_the_sanitizer_judges_the_order():
    races = {name: verdict["races"] for name, verdict in race_under_sanitizer.main()["programs"].items()}
    assert races["no_fork"] >= 1 and races["no_join"] >= 1 and races["fork_and_join"] == 0


@pytest.mark.gpu
def test_the_pool_of_a_gpu_has_32_streams():
    result = run_alone("stream_pool_wraps")
    assert result["first_twins"][32] == 1 and result["different"] == 32


@pytest.mark.gpu
def test_spread_products_are_right_in_a_graph():
    launch, check = when_streams_help.product(128, torch.float32)
    streams = [torch.cuda.Stream() for _ in range(8)]
    replay = when_streams_help.captured(partial(when_streams_help.spread, launch, 40, streams))
    check()
    replay()
    check()


@pytest.mark.gpu
def test_priority_lets_a_small_kernel_through():
    x, numbers = torch.randn(512, 512, device="cuda"), torch.zeros(2**30, device="cuda")
    streams = {"urgent": torch.cuda.Stream(priority=-1), "same": torch.cuda.current_stream()}
    work, crowd = partial(torch.mm, x, x), partial(numbers.add_, 1)
    ways = {name: partial(stream_priority.latency_s, stream, work, crowd) for name, stream in streams.items()}
    timings = take_turns(ways, trials=5, clock=lambda work, calls: work())
    assert timings["urgent"].median < 0.5 * timings["same"].median


@pytest.mark.gpu
def test_a_kernel_of_one_block_is_one_wave():
    (kernel,) = kernel_waves.kernels_of(partial(torch.cuda._sleep, 1000))
    assert kernel["grid"] == [1, 1, 1] and kernel_waves.blocks_per_sm(1, 16, 0) >= 16
