"""Snippets of the chapter on streams."""

import contextlib
from functools import partial
from types import SimpleNamespace

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import pytest
import torch

from snippets.streams import three_streams_cka
from snippets.timing.benchmark import Timing

TIMELINES = {
    "serial": [["CPU", 0.0, 4.0, "cudaLaunchKernel"], ["stream   7", 6.0, 3.0, "mm"]],
    "forked": [["CPU", 0.0, 4.0, "cudaLaunchKernel"], ["stream  13", 6.0, 3.0, "mm"], ["stream   7", 9.5, 1.0, "cat"]],
    "forked_graph": [["CPU", 0.0, 9.0, "cudaGraphLaunch"], ["stream   7", 9.0, 3.0, "mm"]],
}


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
    monkeypatch.setattr(torch.profiler, "profile", lambda: profiler)
    assert three_streams_cka.timeline(lambda: work.append(1)) == [
        ["CPU", 0.0, 4.0, "cudaLaunchKernel"],
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
    monkeypatch.setattr(three_streams_cka, "measure", lambda work, trials: Timing([1e-3 * i for i in range(trials)]))
    monkeypatch.setattr(three_streams_cka, "fork_join", lambda branches, _: torch.stack([b() for b in branches]))
    result = three_streams_cka.main()
    assert result["timelines"] == {name: [] for name in three_streams_cka.SHOWN}
    assert set(result["ms"].values()) == {10.0} and len(result["ms"]) == len(result["ms_trials"]) == 10
    assert all(0 < score < 1 for score in result["scores"]["forked_graph"])
    assert "forked_graph  10.000 ms" in capsys.readouterr().out
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
