"""Chapter `devices`: feeding many GPUs from one process and from several."""

from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import nullcontext
from multiprocessing import get_context

import matplotlib
import pytest
import torch

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from snippets.devices import auto_parallel_original as original
from snippets.devices import auto_parallel_scaled as scaled
from snippets.devices import launch_bound_crossover as crossover
from snippets.devices import p2p_copy, worker_per_gpu


@pytest.fixture
def two_gpus(monkeypatch) -> list:
    """Two devices that are the CPU; the CUDA calls that were made on them, in order."""
    seen, randn = [], torch.randn
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "_sleep", lambda cycles: seen.append("sleep"))
    monkeypatch.setattr(torch.accelerator, "synchronize", lambda device: seen.append(device))
    monkeypatch.setattr(torch, "randn", lambda *shape, device=None: randn(*shape))
    return seen


@pytest.fixture
def products(monkeypatch) -> list:
    """The operand of every torch.mm, in order."""
    seen, mm = [], torch.mm
    monkeypatch.setattr(torch, "mm", lambda x, *args, **kwargs: seen.append(x) or mm(x, *args, **kwargs))
    return seen


@pytest.mark.parametrize("module", [original, scaled])
def test_run_finishes_one_tensor_before_the_next(products, module):
    a, b = torch.rand(2, 2), torch.rand(2, 2)
    module.run(a, b, calls=3)
    assert [x is a for x in products] == [True] * 3 + [False] * 3


def test_as_printed_waits_for_the_first_gpu_only(two_gpus, products, monkeypatch):
    monkeypatch.setitem(original.run.__kwdefaults__, "calls", 5)
    seconds = original.as_printed(torch.rand(4, 4), torch.rand(4, 4))
    assert list(seconds) == ["first", "second", "both"] and min(seconds.values()) > 0
    assert set(two_gpus) == {0}, "the article never waits for the second GPU"
    assert len(products) == 5 + 5 + 10


def test_launches_are_timed_behind_a_busy_gpu(two_gpus, products):
    costs = original.launch_us(torch.rand(4, 4), launches=20, trials=3)
    assert len(costs) == 3 and min(costs) > 0 and len(products) == 60 and two_gpus == ["sleep"] * 3


def test_the_whole_of_the_article_runs_without_a_gpu(two_gpus, monkeypatch, capsys):
    monkeypatch.setitem(original.run.__kwdefaults__, "calls", 50)
    monkeypatch.setattr(original, "CALLS", 50)
    result = original.main()
    assert result["in_turn_s_trials"] == [sum(turns) for turns in zip(*result["alone_s_trials"], strict=True)]
    assert result["us_per_call"] == pytest.approx(1e6 * result["together_s"] / (2 * 50))
    assert "2 GPUs together:" in capsys.readouterr().out
    bars = [bar for bars in original.plot(result, {}).axes[0].containers for bar in bars.patches]
    assert [bar.get_width() for bar in bars] == [*result["alone_s"], result["together_s"]]
    plt.close("all")


def test_large_products_are_compared_with_taking_turns(two_gpus, monkeypatch):
    monkeypatch.setattr(scaled, "N", 64)
    monkeypatch.setitem(scaled.run.__kwdefaults__, "calls", 50)
    result = scaled.main()
    alone = result["s_trials"]["gpu_0"], result["s_trials"]["gpu_1"]
    expected = [(a + b) / both for a, b, both in zip(*alone, result["s_trials"]["together"], strict=True)]
    assert result["speedup_trials"] == pytest.approx(expected) and len(result["launched_ms_trials"]) == 5
    assert len(scaled.plot(result, {}).axes[0].patches) == 3
    plt.close("all")


def test_feed_takes_turns(products):
    first, second = ((torch.rand(4, 4), torch.zeros(4, 4)) for _ in range(2))
    crossover.feed([first, second], 3)
    assert [x is first[0] for x in products] == [True, False] * 3
    torch.testing.assert_close(second[1], second[0] @ second[0])


class Graph:
    """A graph of the last job, captured unless its stream is of another device."""

    def __init__(self):
        self.calls = []

    def replay(self):
        for job, count in self.calls:
            crossover.feed(job, count)


@pytest.mark.parametrize("empty", [False, True])
def test_a_graph_is_proved_before_it_is_used(monkeypatch, empty):
    feed, capturing = crossover.feed, []

    class Capture:
        def __init__(self, graph, stream):
            assert stream == "stream of cpu"
            self.graph = graph

        def __enter__(self):
            capturing.append(self.graph)

        def __exit__(self, *exc_info):
            capturing.clear()

    def captured_or_run(jobs, count):
        if not capturing:
            feed(jobs, count)
        elif not empty:
            capturing[-1].calls.append((jobs, count))

    monkeypatch.setattr(crossover, "feed", captured_or_run)
    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    monkeypatch.setattr(torch.cuda, "Stream", lambda device: f"stream of {device}")
    monkeypatch.setattr(torch.cuda, "stream", nullcontext)
    monkeypatch.setattr(torch.cuda, "graph", Capture)
    x = torch.rand(4, 4)
    if empty:
        with pytest.raises(AssertionError):
            crossover.graph_of(x, torch.zeros(4, 4), 2)
    else:
        assert len(crossover.graph_of(x, torch.zeros(4, 4), 2).calls) == 1


def test_the_crossover_runs_without_a_gpu(two_gpus, monkeypatch, capsys):
    def graph_of(x, out, products):
        graph = Graph()
        graph.calls.append(([(x, out)], products))
        return graph

    monkeypatch.setattr(crossover, "graph_of", graph_of)
    monkeypatch.setattr(crossover, "PRODUCTS", {16: 4, 32: 2})
    result = crossover.main()
    assert result["n"] == [16, 32] and result["products"] == [4, 2] and result["visible_gpus"] == 2
    for crowd in ("one", "all"):
        trials = result[f"{crowd}_ms_trials"]
        assert {way: [len(each) for each in sizes] for way, sizes in trials.items()} == {
            "one_thread": [7, 7],
            "graphs": [7, 7],
        }
    assert [len(each) for each in result["launch_us_trials"]] == [7, 7]
    one, both = (result[f"{crowd}_ms_trials"]["graphs"][0] for crowd in ("one", "all"))
    ratio = sorted(2 * a / b for a, b in zip(one, both, strict=True))[3]
    assert result["speedup"]["graphs"][0] == pytest.approx(ratio)
    assert len(capsys.readouterr().out.splitlines()) == 2
    *ways, model, ceiling = crossover.plot(result, {}).axes[0].get_lines()
    assert [list(line.get_ydata()) for line in ways] == list(result["speedup"].values())
    assert max(model.get_ydata()) <= 2 and list(ceiling.get_ydata()) == [2, 2]
    plt.close("all")


def test_a_call_goes_to_each_worker_and_the_answers_come_in_order():
    a, b = ThreadPoolExecutor(1), ThreadPoolExecutor(1)
    with a, b:
        assert worker_per_gpu.on_all([a, b], max, 3, 5) == [5, 5]
        with pytest.raises(ZeroDivisionError):
            worker_per_gpu.on_all([a, b], divmod, 1, 0)


def test_each_worker_has_its_own_device(monkeypatch):
    devices = []
    monkeypatch.setattr(torch.cuda, "set_device", devices.append)
    pools = worker_per_gpu.workers(ThreadPoolExecutor, 3)
    for pool in pools:
        pool.submit(int).result()
        pool.shutdown()
    assert devices == [0, 1, 2]


def test_a_process_does_the_job_and_says_how_far_it_is_off():
    with ProcessPoolExecutor(1, get_context("spawn")) as process:
        assert worker_per_gpu.on_all([process], worker_per_gpu.job, 32, 2, "cpu")[0] < 1e-3
    assert worker_per_gpu.job(32, 0, "cpu") > 0.1, "without products the room is empty"


def test_plots_of_workers_and_copies_are_drawn():
    result = {"speedup": {"threads": 1.5, "processes": 1.9}, "visible_gpus": 2}
    assert [bar.get_width() for bar in worker_per_gpu.plot(result, {}).axes[0].patches] == [1.5, 1.9]
    rates = {"gb_s": {"one_way": 380.0, "host": 27.0}}
    assert len(p2p_copy.plot(rates, {}).axes[0].get_lines()) == 0
    assert len(p2p_copy.plot(rates, {"nvlink_gb_s": 450}).axes[0].get_lines()) == 1
    plt.close("all")


@pytest.mark.gpu
def test_a_replayed_graph_computes_what_eager_mode_computes():
    last = f"cuda:{torch.cuda.device_count() - 1}"
    x, out = torch.rand(128, 128, device=last), torch.zeros(128, 128, device=last)
    graph = crossover.graph_of(x, out, 3)
    out.zero_()
    graph.replay()
    torch.testing.assert_close(out, x @ x, rtol=1e-4, atol=1e-4)


@pytest.mark.gpu(2)
def test_a_sent_tensor_arrives_by_every_way():
    x = torch.rand(1000, device=0)
    for streams in ([torch.cuda.default_stream(i) for i in (0, 1)], [torch.cuda.Stream(i) for i in (0, 1)]):
        torch.cuda.synchronize(0)
        y = torch.zeros(1000, device=1)
        torch.cuda.synchronize(1)
        p2p_copy.send(x, y, streams)
        torch.cuda.synchronize(1)
        assert torch.equal(y.cpu(), x.cpu())


@pytest.mark.gpu(2)
def test_one_thread_parallelises_large_products_only():
    small, large = original.main(), scaled.main()
    assert small["in_turn_s"] / small["together_s"] < 1.3
    assert large["speedup"] > 0.9 * torch.cuda.device_count()
