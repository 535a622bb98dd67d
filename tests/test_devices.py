"""Chapter `devices`: feeding many GPUs from one process and from several."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from functools import cache, partial
from multiprocessing import active_children
from statistics import median

import matplotlib
import pytest
import torch

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from snippets.devices import auto_parallel_original as original
from snippets.devices import launch_bound_crossover as crossover
from snippets.timing.benchmark import Timing

TWO = ["cpu", "cpu:0"]  # two names of one device, so that each has operands of its own
WAYS = ["one_thread", "threads", "processes", "graphs"]


@pytest.fixture
def events(monkeypatch) -> list:
    """CUDA calls that need no GPU here: what was called, in order."""
    seen = []
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device=None: seen.append(("synchronize", device)))
    monkeypatch.setattr(torch.cuda, "_sleep", lambda cycles: seen.append(("sleep", cycles)))
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: seen.append(("set_device", device)))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    return seen


@pytest.fixture
def products(monkeypatch) -> list:
    """The operand of every torch.mm, in order."""
    seen, mm = [], torch.mm
    monkeypatch.setattr(torch, "mm", lambda x, *args, **kwargs: seen.append(x) or mm(x, *args, **kwargs))
    return seen


def on_cpu(devices: list[str]):
    """crossover.operands with these CPU devices in the place of cuda:0, cuda:1, …"""
    make = crossover.operands.__wrapped__
    return cache(lambda n, device: make(n, devices[int(device[-1])]))


def test_run_finishes_one_tensor_before_the_next(products):
    a, b = torch.rand(2, 2), torch.rand(2, 2)
    original.run(a, b, calls=3)
    assert [x is a for x in products] == [True] * 3 + [False] * 3


def test_as_printed_waits_for_the_first_gpu_only(events, products, monkeypatch):
    monkeypatch.setitem(original.run.__kwdefaults__, "calls", 5)
    seconds = original.as_printed(torch.rand(4, 4), torch.rand(4, 4))
    assert list(seconds) == ["first", "second", "both"] and min(seconds.values()) > 0
    assert set(events) == {("synchronize", 0)}, "the article never waits for the second GPU"
    assert len(products) == 5 + 5 + 10


def test_waited_for_times_each_alone_and_all_together(products, monkeypatch):
    monkeypatch.setitem(original.run.__kwdefaults__, "calls", 500)
    alone, together = original.waited_for([torch.rand(8, 8)] * 3, trials=4)
    assert [len(timing.trials) for timing in (*alone, together)] == [4] * 4
    assert len(products) == 3 * 100 + 4 * 3 * 500 + 4 * 3 * 500
    assert together.median > max(timing.median for timing in alone), "on one CPU three times the work takes longer"


def test_launches_are_timed_behind_a_busy_gpu(events, products):
    costs = original.launch_us(torch.rand(4, 4), launches=20, trials=3)
    assert len(costs) == 3 and min(costs) > 0 and len(products) == 60
    assert [name for name, _ in events] == ["sleep", "synchronize"] * 3
    assert events[0][1] / 2e9 > 0.04, "busy for longer than the launches take, even at 2 GHz"


def test_the_whole_of_the_article_runs_without_a_gpu(events, monkeypatch, capsys):
    randn = torch.randn
    monkeypatch.setattr(torch, "randn", lambda *shape, device: randn(*shape))
    monkeypatch.setitem(original.run.__kwdefaults__, "calls", 50)
    monkeypatch.setattr(original, "CALLS", 50)
    result = original.main()
    assert result["in_turn_s"] == sum(result["alone_s"]) and len(result["alone_s"]) == 2
    assert result["together_s"] == median(result["together_s_trials"])
    assert result["us_per_call"] == pytest.approx(1e6 * result["together_s"] / (2 * 50))
    assert "2 GPUs together:" in capsys.readouterr().out


def test_operands_are_the_same_everywhere_and_made_once():
    x, y = crossover.operands(64, TWO[0])
    assert crossover.operands(64, TWO[0])[0] is x
    assert crossover.operands(64, TWO[1])[0] is not x and torch.equal(crossover.operands(64, TWO[1])[0], x)
    assert (x @ x).var() == pytest.approx(1, abs=0.2) and y.shape == (64, 64)


def test_feed_takes_turns_and_proves_its_results(products):
    crossover.feed(16, TWO, 3)
    first, second = (crossover.operands(16, device) for device in TWO)
    assert [x is first[0] for x in products] == [True, False] * 3
    torch.testing.assert_close(second[1], second[0] @ second[0])
    crossover.feed(16, TWO, 0, check=True)
    assert not first[1].any() and not second[1].any(), "what was checked once cannot pass again"
    with pytest.raises(AssertionError):
        crossover.feed(16, TWO, 0, check=True)


def test_work_is_handed_to_the_worker_of_each_device(products):
    with ThreadPoolExecutor(1) as a, ThreadPoolExecutor(1) as b:
        crossover.hand_out(dict(zip(TWO, (a, b), strict=True)), 16, TWO, 4)
        assert sorted(x is crossover.operands(16, "cpu")[0] for x in products) == [False] * 4 + [True] * 4
        with pytest.raises(AssertionError):
            crossover.hand_out({"cpu": a}, 16, ["cpu"], 0)


def test_work_is_handed_to_a_process_and_its_failure_comes_back():
    with crossover.ProcessPoolExecutor(1, crossover.get_context("spawn")) as process:
        assert crossover.hand_out({"cpu": process}, 16, ["cpu"], 2) is None
        with pytest.raises(AssertionError):
            crossover.hand_out({"cpu": process}, 16, ["cpu"], 0)
    assert not active_children()


def test_each_graph_is_captured_on_a_stream_of_its_own_device(monkeypatch):
    captures = []

    class Graph:
        replays = 0

        def replay(self):
            self.replays += 1

    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    monkeypatch.setattr(torch.cuda, "Stream", lambda device: f"stream of {device}")
    monkeypatch.setattr(torch.cuda, "stream", nullcontext)
    monkeypatch.setattr(torch.cuda, "graph", lambda graph, stream: captures.append((graph, stream)) or nullcontext())
    work = crossover.captured(16, TWO, 2)
    assert [stream for _, stream in captures] == [f"stream of {device}" for device in TWO]
    work(), work()
    assert [graph.replays for graph, _ in captures] == [2, 2]


def timings(one: float, together: float) -> dict:
    """The same two timings for every way and size."""
    rows = {"all": Timing([together, together, 2 * together]), "one": Timing([one] * 3)}
    return {crowd: {way: [timing] * len(crossover.PRODUCTS) for way in WAYS} for crowd, timing in rows.items()}


def test_speed_up_is_work_over_time_and_one_on_one_gpu():
    result = crossover.report(4, timings(0.010, 0.016))
    assert result["speedup"]["graphs"] == pytest.approx([2.5] * 4) and result["visible_gpus"] == 4
    assert result["one_ms"]["threads"] == pytest.approx([10] * 4)
    assert result["all_ms_trials"]["one_thread"][0] == pytest.approx([16, 16, 32])
    assert result["all_spread_ms"]["processes"] == pytest.approx([8] * 4)
    assert crossover.report(1, timings(0.010, 0.016))["speedup"]["graphs"] == [1.0] * 4


def test_the_crossover_runs_without_a_gpu(events, monkeypatch, capsys):
    monkeypatch.setattr(crossover, "operands", on_cpu(TWO))
    monkeypatch.setattr(crossover, "PRODUCTS", {16: 4, 32: 2})
    monkeypatch.setattr(
        crossover, "ProcessPoolExecutor", lambda size, context, *init: ThreadPoolExecutor(size, "", *init)
    )
    monkeypatch.setattr(crossover, "captured", lambda n, devices, count: partial(crossover.feed, n, devices, count))
    result = crossover.main()
    assert result["n"] == [16, 32] and result["products"] == [4, 2] and list(result["speedup"]) == WAYS
    for crowd in ("one", "all"):
        assert [[len(trials) for trials in result[f"{crowd}_ms_trials"][way]] for way in WAYS] == [[7, 7]] * 4
    assert {device for name, device in events if name == "set_device"} == {"cuda:0", "cuda:1"}
    assert len(capsys.readouterr().out.splitlines()) == 4


def test_plots_are_drawn_from_recordings(recorded):
    for result in recorded("devices/auto_parallel_original").values():
        ax = original.plot(result, {}).axes[0]
        bars = [bar for bars in ax.containers for bar in bars.patches]
        assert [bar.get_width() for bar in bars] == [*result["alone_s"], result["together_s"]]
        assert bars[-2].get_x() + bars[-2].get_width() == pytest.approx(result["in_turn_s"])
        assert ax.get_lines()[0].get_xdata()[0] == max(result["alone_s"])
        plt.close(ax.figure)
    for result in recorded("devices/launch_bound_crossover").values():
        ax = crossover.plot(result, {}).axes[0]
        *ways, ceiling = ax.get_lines()
        assert [list(line.get_ydata()) for line in ways] == [result["speedup"][way] for way in result["speedup"]]
        assert list(ceiling.get_ydata()) == [result["visible_gpus"]] * 2 and ceiling.get_color() == "gray"
        assert [tick.get_text() for tick in ax.get_xticklabels()] == [str(n) for n in result["n"]]
        plt.close(ax.figure)


def test_recorded_figures_follow_from_their_trials(recorded):
    for result in recorded("devices/auto_parallel_original").values():
        assert result["alone_s"] == [median(trials) for trials in result["alone_s_trials"]]
        assert result["launch_us"] == median(result["launch_us_trials"]) and result["calls"] == original.CALLS
    for profile, result in recorded("devices/launch_bound_crossover").items():
        assert result["visible_gpus"] == int((profile.partition("-x")[2]) or 1)
        for way in WAYS:
            for one, together, speedup in zip(
                result["one_ms_trials"][way], result["all_ms_trials"][way], result["speedup"][way], strict=True
            ):
                times = result["visible_gpus"] * median(one) / median(together)
                assert speedup == pytest.approx(times if result["visible_gpus"] > 1 else 1)


@pytest.mark.gpu
def test_a_replayed_graph_computes_what_eager_mode_computes():
    last = f"cuda:{torch.cuda.device_count() - 1}"
    work = crossover.captured(128, [last], 3)
    x, y = crossover.operands(128, last)
    assert not y.any(), "capturing itself computes nothing"
    work()
    torch.testing.assert_close(y, x @ x)
    y.zero_()


@pytest.mark.gpu(2)
def test_one_thread_does_not_parallelise_small_products():
    result = original.main()
    assert result["in_turn_s"] / result["together_s"] < 1.3
    assert result["us_per_call"] == pytest.approx(result["launch_us"], rel=0.4)


@pytest.mark.gpu(2)
def test_graphs_do_parallelise_small_products():
    result = crossover.main()
    assert result["speedup"]["graphs"][0] > 0.8 * torch.cuda.device_count() > 1.1 * result["speedup"]["one_thread"][0]
