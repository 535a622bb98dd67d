"""Snippets of the chapter on streams."""

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

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import pytest
import torch
from torch.overrides import TorchFunctionMode

from snippets.streams import (
    events_as_edges,
    freed_too_early_broken,
    freed_too_early_fixed,
    one_stream_is_serial,
    race_broken,
    race_fixed,
    race_under_sanitizer,
    stream_pool_wraps,
    stream_priority,
    three_streams_cka,
    when_streams_help,
)
from snippets.timing.benchmark import Timing

ROOT = Path(__file__).resolve().parent.parent
TIMELINES = {
    "serial": [["CPU", 0.0, 4.0, "cudaLaunchKernel"], ["stream   7", 6.0, 3.0, "mm"]],
    "forked": [["CPU", 0.0, 4.0, "cudaLaunchKernel"], ["stream  13", 6.0, 3.0, "mm"], ["stream   7", 9.5, 1.0, "cat"]],
    "forked_graph": [["CPU", 0.0, 9.0, "cudaGraphLaunch"], ["stream   7", 9.0, 3.0, "mm"]],
}


class FakeEvent:
    """A mark in a stream; one that was never recorded is done."""

    def __init__(self):
        self.stream, self.done = None, True

    def query(self) -> bool:
        return self.done


class FakeStream:
    """A queue of work that is put off until somebody waits for it."""

    def __init__(self, handle: int):
        self.cuda_stream, self.queue = handle, []

    def record_event(self) -> FakeEvent:
        event = FakeEvent()
        event.stream, event.done = self, False
        self.queue.append(("mark", event))
        return event

    def wait_event(self, event: FakeEvent) -> None:
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
            monkeypatch.setattr(torch.Tensor, "record_stream", lambda x, stream: x.block.users.append(stream))
            return stack.enter_context(gpu)

        yield install


def profiled(kind: str, stream: int, start: float, end: float, name: str) -> SimpleNamespace:
    """An event as the profiler gives it."""
    span = SimpleNamespace(start=start, end=end, elapsed_us=lambda: end - start)
    device = SimpleNamespace(name=kind)
    return SimpleNamespace(device_type=device, device_resource_id=stream, time_range=span, name=name)


@pytest.fixture
def fake_profiler(monkeypatch):
    """`fake_profiler(events)` makes every profile see these events."""

    def install(events: list) -> None:
        profiler = contextlib.nullcontext(SimpleNamespace(events=lambda: events))
        monkeypatch.setattr(torch.profiler, "profile", lambda acc_events: profiler)

    return install


def lanes(ax) -> list[str]:
    return [label.get_text() for label in ax.get_yticklabels()]


@pytest.fixture
def images():
    torch.manual_seed(0)
    return torch.rand(8, 3, 16, 16)


def test_each_model_maps_images_to_features(images):
    models = three_streams_cka.three_models()
    assert [tuple(model(images).shape) for model in models] == [(8, 256)] * 3
    assert not any(parameter.requires_grad for model in models for parameter in model.parameters())


def test_residual_adds_its_input():
    block = three_streams_cka.Residual(torch.nn.ReLU())
    torch.testing.assert_close(block(torch.tensor([-1.0, 2.0])), torch.tensor([-1.0, 4.0]))


def test_similarity_is_linear_cka():
    torch.manual_seed(0)
    x, y = torch.rand(2, 20, 5)
    rotation = torch.linalg.qr(torch.randn(5, 5)).Q
    identity = torch.nn.Identity()
    a, b = ((z - z.mean(0)).double() for z in (x, y))
    expected = torch.trace(a @ a.T @ b @ b.T) / ((a @ a.T).norm() * (b @ b.T).norm())
    torch.testing.assert_close(three_streams_cka.similarity(identity, x, y).double(), expected, rtol=1e-4, atol=0)
    alike = three_streams_cka.similarity(identity, x, 3 * x @ rotation + 1)
    torch.testing.assert_close(alike, torch.tensor(1.0), rtol=1e-4, atol=0)


class Score(torch.Tensor):
    def record_stream(self, stream):
        stream.log.append(f"score {int(self)} is used on {stream.name}")


def test_fork_and_join_are_explicit(monkeypatch):
    log = []

    def stream(name: str) -> SimpleNamespace:
        def wait_stream(other):
            log.append(f"{name} waits for {other.name}")

        return SimpleNamespace(name=name, log=log, wait_stream=wait_stream)

    @contextlib.contextmanager
    def current(stream):
        log.append(f"on {stream.name}:")
        yield

    def branch(number: int) -> torch.Tensor:
        log.append(f"branch {number}")
        return torch.tensor(float(number)).as_subclass(Score)

    monkeypatch.setattr(torch.cuda, "current_stream", lambda: stream("main"))
    monkeypatch.setattr(torch.cuda, "stream", current)
    scores = three_streams_cka.fork_join([partial(branch, 1), partial(branch, 2)], [stream("one"), stream("two")])
    assert scores.tolist() == [1.0, 2.0]
    assert log == [
        *("one waits for main", "on one:", "branch 1"),
        *("two waits for main", "on two:", "branch 2"),
        *("main waits for one", "score 1 is used on main"),
        *("main waits for two", "score 2 is used on main"),
    ]


def test_captured_work_is_replayed_and_not_run_again(monkeypatch):
    replays, runs = [], []
    monkeypatch.setattr(torch.cuda, "CUDAGraph", lambda: SimpleNamespace(replay=lambda: replays.append(1)))
    monkeypatch.setattr(torch.cuda, "graph", lambda graph: contextlib.nullcontext())
    again = three_streams_cka.captured(lambda: runs.append(1) or f"result {len(runs)}")
    assert (again(), again()) == ("result 2", "result 2")
    assert (len(runs), len(replays)) == (2, 2)


def test_timeline_has_a_lane_per_stream(monkeypatch):
    def event(device: str, stream: int, start: float, end: float, name: str) -> SimpleNamespace:
        span = SimpleNamespace(start=start, end=end, elapsed_us=lambda: end - start)
        device_type = SimpleNamespace(name=device)
        return SimpleNamespace(device_type=device_type, device_resource_id=stream, time_range=span, name=name)

    events = [
        event("CPU", 1, 99.0, 120.0, "aten::mm"),
        event("CPU", 1, 100.0, 104.04, "cudaLaunchKernel"),
        event("CUDA", 7, 106.0, 109.0, "void kernel" + "x" * 99),
        event("CUDA", 13, 107.0, 108.0, "Memset"),
    ]
    work = []
    profiler = contextlib.nullcontext(SimpleNamespace(events=lambda: events))
    monkeypatch.setattr(torch.profiler, "profile", lambda **options: profiler)
    assert three_streams_cka.timeline(lambda: work.append(1)) == [
        ["CPU", 0.0, pytest.approx(4.04), "cudaLaunchKernel"],
        ["stream   7", 6.0, 3.0, "void kernel" + "x" * 29],
        ["stream  13", 7.0, 1.0, "Memset"],
    ]
    assert work == [1]


def test_timelines_are_drawn_lane_by_lane():
    axes = three_streams_cka.plot({"timelines": TIMELINES}, {}).axes
    assert [ax.get_title() for ax in axes] == ["serial", "forked", "forked in a graph"]
    labels = [[label.get_text() for label in ax.get_yticklabels()] for ax in axes]
    assert labels == [["CPU", "stream   7"], ["CPU", "stream   7", "stream  13"], ["CPU", "stream   7"]]
    cpu, main, side = axes[1].collections
    assert [bars.get_paths()[0].get_extents().x0 for bars in (cpu, main, side)] == [0.0, 9.5, 6.0]
    assert axes[1].yaxis_inverted(), "the CPU lane is on top"
    plt.close("all")


def test_main_compares_and_times_every_form(monkeypatch, capsys):
    rand = torch.rand
    monkeypatch.setattr(torch, "rand", lambda *shape, device: rand(*shape))
    monkeypatch.setattr(torch.nn.Module, "cuda", lambda self: self)
    monkeypatch.setattr(torch.cuda, "Stream", lambda: "stream")
    monkeypatch.setattr(three_streams_cka, "captured", lambda work: work)
    monkeypatch.setattr(three_streams_cka, "timeline", lambda work: [])
    clock = iter(range(10**6))
    monkeypatch.setattr(three_streams_cka, "measure", lambda work, warmup, trials: Timing([1e-2 * next(clock)]))
    monkeypatch.setattr(three_streams_cka, "fork_join", lambda branches, _: torch.stack([b() for b in branches]))
    result = three_streams_cka.main()
    assert result["timelines"] == {name: [] for name in three_streams_cka.SHOWN}
    assert result["ms_trials"]["mlp"] == pytest.approx([10.0 * turn for turn in range(2, 23)]), "ten runs, in turn"
    assert result["ms"]["mlp"] == pytest.approx(120) and len(result["ms"]) == len(result["ms_trials"]) == 10
    assert result["speedup_trials"]["mlp"][0] == pytest.approx(23 / 20)
    assert all(0 < score < 1 for score in result["scores"]["forked_graph"])
    assert "forked_graph 129.000 ms" in capsys.readouterr().out
    monkeypatch.setattr(three_streams_cka, "fork_join", lambda branches, _: torch.zeros(3))
    with pytest.raises(AssertionError, match="not close"):
        three_streams_cka.main()


def test_recorded_medians_and_timelines(recorded):
    for result in recorded("streams/three_streams_cka").values():
        assert {name: sorted(trials)[10] for name, trials in result["ms_trials"].items()} == result["ms"]
        assert all(len(trials) == 21 for trials in result["ms_trials"].values())
        for events in result["timelines"].values():
            assert 2 <= len(events) <= 400
            assert {"CPU"} < {lane for lane, *_ in events}
        assert len({lane for lane, *_ in result["timelines"]["serial"]}) == 2
        assert len({lane for lane, *_ in result["timelines"]["forked"]}) == 5
        figure = three_streams_cka.plot(result, {})
        assert sum(len(bars.get_paths()) for bars in figure.axes[0].collections) == len(result["timelines"]["serial"])
        plt.close("all")


@pytest.mark.gpu
def test_three_streams_give_the_scores_of_one():
    x, noise = torch.rand(2, 64, 3, 16, 16, device="cuda")
    branches = [
        partial(three_streams_cka.similarity, model.cuda(), x, x + noise) for model in three_streams_cka.three_models()
    ]
    streams = [torch.cuda.Stream() for _ in branches]
    serial = torch.stack([branch() for branch in branches])
    forked = partial(three_streams_cka.fork_join, branches, streams)
    for _ in range(20):
        torch.testing.assert_close(forked(), serial, rtol=1e-4, atol=0)
    again = three_streams_cka.captured(forked)
    again().zero_()
    torch.testing.assert_close(again(), serial, rtol=1e-4, atol=0)


def test_three_scores_of_alike_features_are_one():
    torch.manual_seed(0)
    a, b = torch.rand(2, 30, 4)
    alike = one_stream_is_serial.similarity(a, 3 * a + 1)
    torch.testing.assert_close(alike, torch.tensor(1.0), rtol=1e-4, atol=0)
    identity = torch.nn.Identity()
    expected = three_streams_cka.similarity(identity, a, b)
    torch.testing.assert_close(one_stream_is_serial.similarity(a, b), expected, rtol=1e-5, atol=0)


def test_timeline_of_one_stream_begins_with_the_first_launch(fake_profiler):
    work = []
    fake_profiler(
        [
            profiled("CUDA", 7, 106.04, 109.0, "void kernel" + "x" * 99),
            profiled("CPU", 1, 100.0, 104.0, "cudaLaunchKernel"),
            profiled("CPU", 1, 90.0, 120.0, "aten::mm"),
        ]
    )
    assert one_stream_is_serial.timeline(lambda: work.append(1)) == [
        ["stream   7", 6.0, 3.0, "void kernel" + "x" * 29],
        ["CPU", 0.0, 4.0, "cudaLaunchKernel"],
    ]
    assert work == [1]


class OnCpu(TorchFunctionMode):
    """Tensors that are meant for the GPU are made on the CPU."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if kwargs.get("device") == "cuda":
            kwargs["device"] = "cpu"
        return func(*args, **kwargs)


def test_three_calls_are_timed_alone_together_and_unwaited(monkeypatch, capsys):
    def measured(work, devices=None) -> Timing:
        work()
        return Timing([2e-3 if devices is None else 1e-3] * 3)

    monkeypatch.setattr(one_stream_is_serial, "ROWS", 20)
    monkeypatch.setattr(one_stream_is_serial, "WIDTHS", {"mlp": 2, "cnn": 3, "resnet": 4})
    monkeypatch.setattr(one_stream_is_serial, "measure", measured)
    monkeypatch.setattr(one_stream_is_serial, "timeline", lambda work: [["CPU", 0, 1, "l"], ["stream", 1, 1, "k"]])
    with OnCpu():
        result = one_stream_is_serial.main()
    assert set(result["ms"]) == {"mlp", "cnn", "resnet", "three", "three_returned"}
    assert (result["ms"]["three"], result["ms"]["three_returned"]) == (2.0, 1.0)
    assert result["tflop_s"] == pytest.approx(3 * 2 * 20 * (4 + 9 + 16) / 2e-3 / 1e12)
    assert result["kernels"] == {"mlp": 1, "cnn": 1, "resnet": 1}
    assert all(0 < score < 1 for score in result["scores"])
    assert "three_returned    1.000 ms" in capsys.readouterr().out


def test_kernels_of_one_stream_are_drawn_call_by_call():
    kernels = [["stream   7", start, 900.0, "mm"] for start in (50.0, 1000.0, 2000.0, 3000.0)]
    counts = {"cnn": 1, "mlp": 2, "resnet": 1}  # as recorded: keys in alphabetical order
    figure = one_stream_is_serial.plot({"events": [["CPU", 0.0, 40.0, "l"], *kernels], "kernels": counts}, {})
    (ax,) = figure.axes
    drawn = {bars.get_label(): [path.get_extents().x0 for path in bars.get_paths()] for bars in ax.collections}
    assert drawn == {"mlp": [0.05, 1.0], "cnn": [2.0], "resnet": [3.0], "launch": [0.0]}
    assert lanes(ax) == ["CPU", "stream   7"] and ax.yaxis_inverted()
    plt.close("all")


def test_products_fill_eight_places_and_a_wrong_one_is_noticed():
    with OnCpu():
        launch, check = when_streams_help.product(6)
        with pytest.raises(AssertionError, match="not close"):
            check()
        for i in range(8):
            launch(i)
        check()
        with pytest.raises(AssertionError, match="not close"):
            check()


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


@pytest.fixture
def no_graphs(monkeypatch):
    """A replay that does nothing; gives the list of replays."""
    replays = []
    monkeypatch.setattr(torch.cuda, "CUDAGraph", lambda: SimpleNamespace(replay=lambda: replays.append(1)))
    monkeypatch.setattr(torch.cuda, "graph", lambda graph: contextlib.nullcontext())
    return replays


def test_trials_take_turns(monkeypatch):
    runs, rests = [], []

    def measured(work, warmup, trials) -> Timing:
        work()
        return Timing([1e-3 * len(runs)])

    monkeypatch.setattr(when_streams_help, "measure", measured)
    monkeypatch.setattr(when_streams_help.time, "sleep", lambda seconds: rests.append(seconds))
    trials = when_streams_help.trials_ms([partial(runs.append, "a"), partial(runs.append, "b")], 0.5)
    assert runs == ["a", "b"] * 12 and rests == [0.5] * 24
    assert trials == [pytest.approx(range(3, 25, 2)), pytest.approx(range(4, 25, 2))]


def test_speedup_is_over_one_stream(no_graphs, monkeypatch, capsys):
    checks, launched = [], []
    ms = [[8.0, 9.0, 1.0], [4.0, 4.0, 4.0], [2.0, 2.0, 2.0], [1.0, 1.0, 1.0]]

    def trials_ms(works, rest_s) -> list[list[float]]:
        for work in works:
            work()
        return ms

    def product(n, dtype=torch.float32):
        return launched.append, lambda: checks.append(n)

    monkeypatch.setattr(when_streams_help, "trials_ms", trials_ms)
    monkeypatch.setattr(when_streams_help, "spread", lambda launch, launches, streams: launch(len(streams)))
    monkeypatch.setattr(when_streams_help, "PRODUCTS", {4: 8})
    monkeypatch.setattr(when_streams_help, "product", product)
    monkeypatch.setattr(torch.cuda, "_sleep", lambda cycles: None)
    monkeypatch.setattr(torch.cuda, "Stream", lambda: "stream")
    result = when_streams_help.main()
    assert result["kernels"] == ["one_block", "mm_4", "bf16_mm_8192"] and checks == [4] * 3 + [8192] * 3
    ratios = [[1.0, 1.0, 1.0], [2.0, 2.25, 0.25], [4.0, 4.5, 0.5], [8.0, 9.0, 1.0]]
    expected = {"speedup": [1.0, 2.0, 4.0, 8.0], "speedup_trials": ratios, "ms_trials": ms}
    assert result["graph"]["mm_4"] == expected, "each is over the one stream of its own round"
    assert len(no_graphs) == 3 * 4, "the graphs were replayed, not their work"
    assert launched == [1, 1, 2, 2, 4, 4, 8, 8, 1, 2, 4, 8] * 2
    assert "mm_4          on 8 streams: eager  8.00×, graph  8.00×" in capsys.readouterr().out


def test_speedups_are_written_into_the_cells():
    rows = {"mm_128": {"speedup": [1.0, 1.9, 3.6, 7.0]}, "mm_1024": {"speedup": [1.0, 1.1, 1.2, 1.2]}}
    result = {"streams": [1, 2, 4, 8], "kernels": ["mm_128", "mm_1024"], "eager": rows, "graph": rows}
    eager, graph = when_streams_help.plot(result, {}).axes
    assert [text.get_text() for text in graph.texts] == ["1.0", "1.9", "3.6", "7.0", "1.0", "1.1", "1.2", "1.2"]
    assert graph.texts[3].get_position() == (3, 0)
    eager.figure.canvas.draw()
    assert lanes(eager) == ["mm 128", "mm 1024"] and eager.yaxis_inverted()
    assert (eager.get_title(), graph.get_title()) == ("eager", "graph")
    plt.close("all")


@pytest.fixture
def small_race(monkeypatch):
    for twin in (race_broken, race_fixed):
        monkeypatch.setattr(twin, "N", 2)


@pytest.mark.parametrize(("twin", "wrong"), [(race_broken, 50), (race_fixed, 0)])
def test_only_the_broken_twin_can_sum_before_the_write(twin, wrong, fake_gpu, small_race):
    gpu = fake_gpu("side")
    for queued in (0, 5):
        sums = twin.sums(queued, gpu.new_stream())
        assert len(sums) == 50
        assert sum(total != 10_000 for total in sums) == wrong


@pytest.mark.parametrize("twin", [race_broken, race_fixed])
def test_a_friendly_gpu_hides_the_race(twin, fake_gpu, small_race):
    gpu = fake_gpu("main")
    assert twin.sums(0, gpu.new_stream()) == [10_000.0] * 50


def twins(name: str) -> list[list[str]]:
    paths = [ROOT / f"snippets/streams/{name}_{twin}.py" for twin in ("broken", "fixed")]
    return [path.read_text().splitlines()[7:] for path in paths]  # after the line that says what it is


def test_twins_differ_in_the_lesson_only():
    broken, fixed = twins("race")
    fork = "    side.wait_stream(torch.cuda.current_stream())"
    assert fork in fixed and [line for line in fixed if line != fork] == broken
    texts = ["\n".join(lines) for lines in twins("freed_too_early")]
    broken, fixed = (text[text.index("\ndef step") :] for text in texts)
    assert broken == fixed, "what differs is the policies above it"


@pytest.mark.parametrize("twin", [race_broken, race_fixed])
def test_kernels_of_the_race_are_named_by_their_role(twin, fake_gpu, fake_profiler, small_race):
    gpu = fake_gpu()
    fake_profiler(
        [
            profiled("CPU", 1, 90.0, 91.0, "cudaLaunchKernel"),
            profiled("CUDA", 7, 100.0, 150.0, "void cutlass::Kernel2<cutlass_80_simt_sgemm>"),
            profiled(
                "CUDA",
                7,
                150.5,
                152.0,
                "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>>",
            ),
            profiled("CUDA", 13, 99.0, 101.0, "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float>>"),
        ]
    )
    assert twin.timeline(1, gpu.new_stream()) == [
        ["stream   7", 1.0, 50.0, "product"],
        ["stream   7", 51.5, 1.5, "write x"],
        ["stream  13", 0.0, 2.0, "sum x"],
    ]


@pytest.mark.parametrize(("twin", "wrong"), [(race_broken, 50), (race_fixed, 0)])
def test_wrong_sums_are_counted(twin, wrong, fake_gpu, small_race, monkeypatch, capsys):
    fake_gpu()
    monkeypatch.setattr(twin, "timeline", lambda queued, side: [queued])
    result = twin.main()
    assert (result["documented"]["wrong"], result["amplified"]["wrong"]) == (wrong, wrong)
    assert result["documented"]["queued"] == 0 and result["events"] == [5]
    assert f"amplified   5 products queued, wrong sums: {wrong:2} of 50" in capsys.readouterr().out


@pytest.mark.parametrize("twin", [race_broken, race_fixed])
def test_write_and_sum_are_drawn_in_their_lanes(twin):
    products = [["stream   7", start, 2700.0, "product"] for start in (0.0, 2750.0)]
    short = [["stream   7", 5500.0, 1.5, "write x"], ["stream  13", 90.0, 3.0, "sum x"]]
    (ax,) = twin.plot({"events": products + short}, {}).axes
    (bars,), (write, total) = ax.collections, ax.get_lines()
    assert [path.get_extents().x1 for path in bars.get_paths()] == [2.7, 5.45]
    assert (write.get_xydata().tolist(), total.get_xydata().tolist()) == ([[5.5, 0.0]], [[0.09, 1.0]])
    plt.close("all")


@pytest.mark.parametrize(("program", "first"), [("no_fork", "side"), ("no_join", "main"), ("freed_too_early", "main")])
def test_an_unfair_gpu_breaks_the_wrong_programs(program, first, fake_gpu):
    fake_gpu(first)
    assert race_under_sanitizer.PROGRAMS[program]() != 10_000


@pytest.mark.parametrize("first", ["main", "side"])
def test_fork_and_join_is_right_on_any_gpu(first, fake_gpu):
    fake_gpu(first)
    assert race_under_sanitizer.fork_and_join() == 10_000


def test_sanitizer_reports_are_counted_and_shortened(monkeypatch, capsys):
    report = """==========
CSAN detected a possible data race on tensor with data pointer 139719969079296
Access by stream 94646435460352 during kernel:
aten::sum(Tensor self, *, ScalarType? dtype=None) -> Tensor
reading from argument(s) self
With stack trace:
  File "x.py", line 9
Previous access by stream 0 during kernel:
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
    assert programs["no_fork"]["report"] == [
        "Access by stream … during kernel:",
        "aten::sum(Tensor self, *, ScalarType? dtype=None) -> Tensor",
        "reading from argument(s) self",
        "Previous access by stream 0 during kernel:",
    ]
    assert programs["no_fork"]["last"].endswith("detected 1 errors")
    assert ([race_under_sanitizer.__file__, "no_join"], "1") in asked and len(asked) == 4
    assert "no_fork          races reported: 1, exit code 1" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("edge", "wrong"), [("event", 0), ("wait_stream", 0), ("synchronize", 0), ("unrecorded_event", 10), ("nothing", 10)]
)
@pytest.mark.parametrize("first", ["main", "side"])
def test_edges_hold_or_do_not(edge, wrong, first, fake_gpu):
    gpu = fake_gpu(first)
    values = {name: torch.ones(3, device="cuda") for name in "xabcd"}
    streams = gpu.current, gpu.new_stream(), gpu.new_stream()
    work = partial(events_as_edges.diamond, events_as_edges.EDGES[edge], *streams, values)
    assert sum(not events_as_edges.is_right(work, values) for _ in range(10)) == wrong


def test_nodes_and_launches_have_lanes(fake_profiler):
    fake_profiler(
        [
            profiled("CUDA", 7, 110.0, 1110.0, "at::cuda::(anonymous namespace)::spin_kernel(long)"),
            profiled("CPU", 1, 100.0, 104.0, "cudaLaunchKernel"),
            profiled("CUDA", 7, 1111.0, 1112.0, "void at::native::vectorized_elementwise_kernel"),
        ]
    )
    assert events_as_edges.timeline(lambda: None) == [
        ["stream   7", 10.0, 1000.0, "at::cuda::(anonymous namespace)::spin_kernel(long)"],
        ["CPU", 0.0, 4.0, "cudaLaunchKernel"],
    ]


def test_critical_path_is_that_of_the_longer_branch(fake_gpu, monkeypatch, capsys):
    cost = {"a": 1e-3, "b": 2e-3, "c": 4e-3, "d": 1e-3}
    fake_gpu()

    def measured(work, devices=None, warmup=2, trials=7) -> Timing:
        work()
        if devices is None:
            torch.cuda.synchronize()
        return Timing([cost.get(work.args[0], 8e-3)] * trials)

    monkeypatch.setattr(events_as_edges, "measure", measured)
    monkeypatch.setattr(events_as_edges, "timeline", lambda work: [["CPU", 0, 1, "launch"]])
    result = events_as_edges.main()
    assert result["critical_ms"] == 6.0 and result["unrecorded_is_done"] is True
    assert result["wrong"] == {
        **{"chain": 0, "event": 0, "wait_stream": 0, "synchronize": 0, "unrecorded_event": 10, "nothing": 10}
    }
    assert {"chain", "event", "event_returned", "a", "d"} < set(result["ms"])
    assert "nothing             8.00 ms, wrong in 10 of 10 runs" in capsys.readouterr().out


def test_the_critical_path_is_drawn_into_each_timeline():
    event = [["CPU", 0.0, 9.0, "l"], ["stream   7", 20.0, 1000.0, "k"], ["stream  13", 1030.0, 2000.0, "k"]]
    timelines = {"event": event, "chain": event[:2], "synchronize": event}
    axes = events_as_edges.plot({"timelines": timelines, "critical_ms": 6.0}, {}).axes
    assert [ax.get_title() for ax in axes] == ["chain", "event", "synchronize"]
    assert [lanes(ax) for ax in axes[:2]] == [["CPU", "stream   7"], ["CPU", "stream   7", "stream  13"]]
    assert [ax.get_lines()[0].get_xdata()[0] for ax in axes] == [6.0] * 3
    assert axes[1].collections[2].get_paths()[0].get_extents().x0 == 1.03
    plt.close("all")


@pytest.fixture
def small_tensors(monkeypatch):
    for twin in (freed_too_early_broken, freed_too_early_fixed):
        monkeypatch.setattr(twin, "FLOATS", 2**18)  # 1 MiB


def test_a_dropped_tensor_is_overwritten_before_it_is_read(fake_gpu, small_tensors, capsys):
    fake_gpu("main")
    result = freed_too_early_broken.main()
    policy = result["policies"]["just_drop"]
    assert policy["corrupted"] == 50 and policy["changed"] == [True] * 50
    assert "just_drop      50 of 50 reads corrupted" in capsys.readouterr().out


def test_three_policies_keep_what_is_read_at_different_prices(fake_gpu, small_tensors):
    fake_gpu("main")
    result = freed_too_early_fixed.main()
    assert {name: policy["corrupted"] for name, policy in result["policies"].items()} == {
        **{"record_stream": 0, "keep_all": 0, "join_first": 0}
    }
    peaks = {name: policy["peak_mib"] for name, policy in result["policies"].items()}
    assert peaks["record_stream"] >= 50 and peaks["keep_all"] >= 50
    assert 1 <= peaks["join_first"] <= 2


def test_streams_come_round_again(fake_gpu):
    fake_gpu()
    assert stream_pool_wraps.first_twins(40) == [*range(1, 33), *range(1, 9)]


def test_streams_are_occupied_one_after_the_other(fake_gpu, monkeypatch):
    gpu, spun = fake_gpu(), []
    monkeypatch.setattr(torch.cuda, "_sleep", lambda cycles: spun.append(gpu.current))
    one, other = gpu.new_stream(), gpu.new_stream()
    stream_pool_wraps.occupy([one, other])
    assert spun == [one, one, other, other]


def test_the_number_of_queues_is_set_before_cuda_starts(fake_gpu, monkeypatch):
    gpu, asked = fake_gpu(), []

    def new_stream():
        asked.append(os.environ["CUDA_DEVICE_MAX_CONNECTIONS"])
        return gpu.new_stream()

    monkeypatch.setenv("CUDA_DEVICE_MAX_CONNECTIONS", "2")
    monkeypatch.setattr(torch.cuda, "Stream", new_stream)
    trials = stream_pool_wraps.sweep(8)
    assert set(asked) == {"8"} and len(asked) == 64
    assert [len(each) for each in trials] == [5] * 7


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_child_works_in_a_process_of_its_own():
    pid, argument = stream_pool_wraps.in_child(lambda argument: [os.getpid(), argument], 3)
    assert pid != os.getpid() and argument == 3


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_child_that_dies_is_not_waited_for():
    with pytest.raises(EOFError):
        stream_pool_wraps.in_child(os._exit, 1)


def test_kernels_side_by_side_are_work_over_time(fake_gpu, monkeypatch, capsys):
    fake_gpu()
    trials = [[2.0, 2.0, 9.0], [2.0, 2.0, 9.0], *[[4.0] * 3] * 5]
    monkeypatch.setattr(stream_pool_wraps, "sweep", lambda connections: trials)
    monkeypatch.setattr(stream_pool_wraps, "in_child", lambda work, argument: work(argument))
    result = stream_pool_wraps.main()
    assert (result["asked"], result["different"]) == (40, 32)
    assert result["side_by_side"]["c8"] == [1, 2, 2, 4, 8, 16, 32]
    assert set(result["side_by_side_trials"]) == {"c1", "c8", "c32"}
    assert "40 streams asked for, 32 different; 33 is 1 again" in capsys.readouterr().out


def test_streams_are_drawn_under_what_is_possible():
    rows = {"c1": [1.0, 1.3], "c8": [1.0, 8.0], "c32": [1.0, 29.0]}
    (ax,) = stream_pool_wraps.plot({"streams": [1, 64], "different": 32, "side_by_side": rows}, {}).axes
    drawn = {line.get_label(): line.get_ydata().tolist() for line in ax.get_lines()}
    assert drawn == {"1 queue": [1, 1.3], "8 queues": [1, 8], "32 queues": [1, 29], "different streams": [1, 32]}
    plt.close("all")


class Diary:
    """A stream that writes down what happens."""

    def __init__(self, diary: list, name: str):
        self.diary, self.name = diary, name

    def record_event(self):
        place = len(self.diary)
        return SimpleNamespace(synchronize=lambda: self.diary.append(f"wait for {place} on {self.name}"))


def test_the_first_large_kernel_is_over_and_the_others_stand_ahead(monkeypatch):
    diary = []
    monkeypatch.setattr(stream_priority, "QUEUED", 3)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: Diary(diary, "main"))
    stream_priority.fill(lambda: diary.append("large"))
    assert diary == ["large"] * 4 + ["wait for 1 on main"]


def test_latency_is_from_launch_to_result(monkeypatch):
    diary, clock = [], iter([1.0, 1.25])
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: contextlib.nullcontext(diary.append(stream.name)))
    monkeypatch.setattr(stream_priority.time, "perf_counter", lambda: next(clock))
    x, product = torch.full((2, 2), 2.0), torch.zeros(2, 2)
    assert stream_priority.latency_ms(Diary(diary, "urgent"), x, product) == 250.0
    assert diary == ["urgent", "wait for 1 on urgent"] and product.tolist() == [[8.0] * 2] * 2


@pytest.mark.parametrize("way", stream_priority.WAYS)
def test_only_the_idle_gpu_is_not_filled_and_a_wrong_product_is_found(monkeypatch, way):
    filled = []
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(stream_priority, "fill", filled.append)
    monkeypatch.setattr(stream_priority, "latency_ms", lambda stream, x, product: product.fill_(8) is not None and 0.5)
    assert stream_priority.trial(way, "stream", "crowd", torch.full((2, 2), 2.0)) == 0.5
    assert filled == ([] if way == "idle" else ["crowd"])
    with pytest.raises(AssertionError, match="not close"):
        stream_priority.trial(way, "stream", "crowd", torch.full((2, 2), 3.0))


def test_priority_main_lets_all_ways_take_turns(monkeypatch, capsys):
    turns, randn = [], torch.randn
    monkeypatch.setattr(torch, "randn", lambda *shape, device: randn(*shape))
    streams = {0: "plain", -1: "urgent stream"}
    stream = SimpleNamespace(priority_range=lambda: (0, -3))
    monkeypatch.setattr(torch.cuda, "Stream", lambda priority=0: streams[priority])
    torch.cuda.Stream.priority_range = stream.priority_range
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: "main")
    monkeypatch.setattr(stream_priority, "crowds", lambda: {"short_blocks": "sum", "long_blocks": "product"})
    monkeypatch.setattr(stream_priority, "trial", lambda *args: turns.append(args[:3]) or float(len(turns)))
    result = stream_priority.main()
    assert turns[:4] == [
        ("idle", "plain", "sum"),
        ("urgent", "urgent stream", "sum"),
        ("other", "plain", "sum"),
        ("same", "main", "sum"),
    ]
    assert turns[4:8] == turns[:4] and turns[-1] == ("same", "main", "product") and len(turns) == 2 * 17 * 4
    assert result["short_blocks"]["ms_trials"]["idle"] == [float(1 + 4 * turn) for turn in range(2, 17)]
    assert result["short_blocks"]["ms"]["idle"] == 37.0 and result["priorities"] == [0, -3]
    assert "beside kernels of long blocks" in capsys.readouterr().out
    (ax,) = stream_priority.plot(result, {}).axes
    widths = [[bar.get_width() for bar in bars] for bars in ax.containers]
    assert widths == [
        [result[name]["ms"][way] for way in stream_priority.WAYS] for name in ("short_blocks", "long_blocks")
    ]
    plt.close("all")


@pytest.mark.gpu
def test_priority_lets_a_small_kernel_through():
    x, crowd = torch.randn(512, 512, device="cuda"), stream_priority.crowds()["short_blocks"]
    streams = {"urgent": torch.cuda.Stream(priority=-1), "same": torch.cuda.current_stream()}
    rounds = [{way: stream_priority.trial(way, stream, crowd, x) for way, stream in streams.items()} for _ in range(5)]
    assert sorted(one["urgent"] / one["same"] for one in rounds)[2] < 0.5


def test_recorded_latencies_are_medians(recorded):
    for result in recorded("streams/stream_priority").values():
        for name in ("short_blocks", "long_blocks"):
            for way, trials in result[name]["ms_trials"].items():
                assert result[name]["ms"][way] == sorted(trials)[len(trials) // 2]


@pytest.mark.parametrize("twin", ["broken", "fixed"])
def test_recorded_races_are_counted_from_their_sums(twin, recorded):
    snippet = {"broken": race_broken, "fixed": race_fixed}[twin]
    for result in recorded(f"streams/race_{twin}").values():
        for form in ("documented", "amplified"):
            assert len(result[form]["sums"]) == result["runs"] == 50
            assert result[form]["wrong"] == sum(total != result["right"] for total in result[form]["sums"])
        assert {name for *_, name in result["events"]} == {"product", "write x", "sum x"}
        assert len(snippet.plot(result, {}).axes[0].get_lines()) == 2
        plt.close("all")


def test_recorded_speedups_follow_from_the_trials(recorded):
    for result in recorded("streams/when_streams_help").values():
        assert sorted(result["kernels"]) == sorted(result["eager"]) == sorted(result["graph"])
        for row in (*result["eager"].values(), *result["graph"].values()):
            ms = row["ms_trials"]
            ratios = [[one / other for one, other in zip(ms[0], each, strict=True)] for each in ms]
            assert [pytest.approx(each) for each in ratios] == row["speedup_trials"]
            assert row["speedup"] == pytest.approx([sorted(each)[len(each) // 2] for each in ratios])
        assert len(when_streams_help.plot(result, {}).axes[0].texts) == len(result["kernels"]) * len(result["streams"])
        plt.close("all")


def test_recorded_timelines_of_one_stream_and_of_a_diamond(recorded):
    for result in recorded("streams/one_stream_is_serial").values():
        on_gpu = [event for event in result["events"] if event[0] != "CPU"]
        assert len(on_gpu) == sum(result["kernels"].values()) and len(result["events"]) <= 400
        for name, trials in result["ms_trials"].items():
            assert result["ms"][name] == pytest.approx(sorted(trials)[3])
        assert len(one_stream_is_serial.plot(result, {}).axes[0].collections) == 4
        plt.close("all")
    for result in recorded("streams/events_as_edges").values():
        spins = {name: sum("spin" in e[3] for e in events) for name, events in result["timelines"].items()}
        assert spins == {"chain": 4, "event": 4, "synchronize": 4}
        assert len(events_as_edges.plot(result, {}).axes) == 3
        plt.close("all")


def test_recorded_policies_and_pools(recorded):
    for twin in ("broken", "fixed"):
        for result in recorded(f"streams/freed_too_early_{twin}").values():
            for policy in result["policies"].values():
                assert policy["corrupted"] == sum(policy["changed"])
                assert len(policy["changed"]) == result["steps"]
    for result in recorded("streams/stream_pool_wraps").values():
        assert result["different"] == len(set(result["first_twins"]))
        for connections, trials in result["side_by_side_trials"].items():
            assert result["side_by_side"][connections] == pytest.approx([sorted(each)[2] for each in trials])
            assert trials[0][2] > 0 and result["side_by_side"][connections][0] == pytest.approx(1)
        stream_pool_wraps.plot(result, {})
        plt.close("all")


def test_recorded_verdicts_of_the_sanitizer_have_no_addresses(recorded):
    for result in recorded("streams/race_under_sanitizer").values():
        assert set(result["programs"]) == set(race_under_sanitizer.PROGRAMS)
        rows = [row for verdict in result["programs"].values() for row in verdict["report"]]
        assert rows and not any(word.isdigit() and len(word) > 3 for row in rows for word in row.split())


def run_alone(name: str) -> dict:
    """What main() of a snippet of this chapter returns in a fresh process."""
    program = f"import json; from snippets.streams import {name} as m; print(json.dumps(m.main()))"
    child = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    return json.loads(child.stdout.splitlines()[-1])


@pytest.mark.gpu
def test_races_on_a_gpu():
    side = torch.cuda.Stream()
    assert sum(total != 10_000 for total in race_broken.sums(5, side)) >= 45
    assert race_fixed.sums(5, side) == [10_000.0] * 50
    assert freed_too_early_broken.tried(freed_too_early_broken.just_drop)["corrupted"] >= 45
    for let_go in freed_too_early_fixed.POLICIES.values():
        assert freed_too_early_fixed.tried(let_go)["corrupted"] == 0


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
    launch, check = when_streams_help.product(128)
    streams = [torch.cuda.Stream() for _ in range(8)]
    replay = when_streams_help.captured(partial(when_streams_help.spread, launch, 40, streams))
    check()
    replay()
    check()
