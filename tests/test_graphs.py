"""Snippets of the chapter on graphs."""

import contextlib
from statistics import median
from types import SimpleNamespace

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import pytest
import torch
from torch import fx

from snippets.graphs import cuda_graph_capture, imperative_symbolic
from snippets.timing.benchmark import Timing


def test_imperative_python_sees_every_value():
    result, lines = imperative_symbolic.overheard(imperative_symbolic.fancy_func, 1, 2, 3, 4)
    assert result == 10
    assert lines == ["adding 1 and 2", "adding 3 and 4", "adding 3 and 7"]


@pytest.mark.parametrize(
    ("text", "result", "additions"),
    [("result = (1 + 2) + (3 + 4)", 10, 0), ("x = 1\nresult = x + 2", 3, 1), ("x = 1\nresult = x + x + x", 3, 2)],
)
def test_program_is_run_and_its_additions_counted(text, result, additions):
    assert imperative_symbolic.run_program(text) == (result, additions)


def test_tracing_keeps_the_additions_and_loses_the_print():
    traced, tracing_lines = imperative_symbolic.overheard(fx.symbolic_trace, imperative_symbolic.fancy_func)
    assert len(tracing_lines) == 3 and "Proxy(a)" in tracing_lines[0]
    assert imperative_symbolic.additions(traced.graph) == ["add = a + b", "add_1 = c + d", "add_2 = add + add_1"]
    assert imperative_symbolic.overheard(traced, 5, 6, 7, 8) == (26, [])


def test_every_form_gives_ten_and_knows_something_else():
    (result, lines) = imperative_symbolic.overheard(imperative_symbolic.main)
    assert "  add_2 = add + add_1" in lines
    sizes = {name: [len(graph) for graph in seen["graphs"]] for name, seen in result["compiled"].items()}
    assert set(sizes["print_inside"]) == {1}, "every addition has a print before it, so no graph can hold two"
    assert (sizes["no_print"], sizes["one_tensor"], sizes["no_tensor"]) == ([3], [2], [])
    assert "7" in result["compiled"]["one_tensor"]["graphs"][0][1], "3 + 4 is folded"
    assert {name: seen["lines"] for name, seen in result["compiled"].items() if seen["lines"]} == {"print_inside": 3}
    forms = [result["imperative"], result["program"], result["fx"], *result["compiled"].values()]
    assert [form["result"] for form in forms] == [10] * 7


def test_recorded_forms_are_what_this_torch_gives(recorded):
    result, _ = imperative_symbolic.overheard(imperative_symbolic.main)
    for then in recorded("graphs/imperative_symbolic").values():
        assert [then[form] for form in ("imperative", "program", "fx", "fx_graph")] == [
            result[form] for form in ("imperative", "program", "fx", "fx_graph")
        ]
        assert {name: len(seen["graphs"]) for name, seen in then["compiled"].items()} == {
            name: len(seen["graphs"]) for name, seen in result["compiled"].items()
        }


def test_power_is_one_product_per_step():
    x = torch.tensor([[0.6, -0.8], [0.8, 0.6]])
    torch.testing.assert_close(cuda_graph_capture.power(x, 4), torch.linalg.matrix_power(x, 5))
    assert cuda_graph_capture.power(x, 0) is x


@pytest.mark.parametrize(
    ("program", "death"),
    [
        ("raise ValueError('spoilt')", {"exit_code": 1, "error": "ValueError: spoilt"}),
        ("print('Error: only said')", {"exit_code": 0, "error": ""}),
    ],
)
def test_death_of_a_program_is_reported_by_its_parent(program, death):
    assert cuda_graph_capture.death_of(program) == death


def test_capture_warms_up_before_it_records(monkeypatch):
    calls, recording = [], []

    @contextlib.contextmanager
    def fake_graph(graph):
        recording.append(graph)
        yield
        recording.clear()

    monkeypatch.setattr(torch.cuda, "CUDAGraph", lambda: "graph")
    monkeypatch.setattr(torch.cuda, "graph", fake_graph)
    graph, result = cuda_graph_capture.capture(lambda: calls.append(list(recording)) or len(calls))
    assert (graph, result, calls) == ("graph", 2, [[], ["graph"]])


@pytest.fixture
def fake_capture(monkeypatch):
    """A CPU stands for the GPU, and a replay runs the work again, unless it is told to be lazy."""
    lazy = []

    def capture(work):
        result = work().clone()
        return SimpleNamespace(replay=lambda: lazy or result.copy_(work())), result

    randn = torch.randn
    monkeypatch.setattr(torch, "randn", lambda *shape, device: randn(*shape))
    monkeypatch.setattr(cuda_graph_capture, "capture", capture)
    return lazy


def test_both_ways_are_timed_per_product(fake_capture, monkeypatch):
    monkeypatch.setattr(cuda_graph_capture, "measure", lambda way: Timing([2e-3, 4e-3]))
    assert cuda_graph_capture.eager_and_replayed(8, 4) == [[500.0, 1000.0], [500.0, 1000.0]]


def test_replay_that_computes_nothing_is_not_timed(fake_capture):
    fake_capture.append("does nothing")
    with pytest.raises(AssertionError, match="not close"):
        cuda_graph_capture.eager_and_replayed(8, 4)


def test_main_reports_the_median_of_each_way(monkeypatch, capsys):
    monkeypatch.setattr(cuda_graph_capture, "PRODUCTS", {64: 5, 128: 5})
    monkeypatch.setattr(cuda_graph_capture, "eager_and_replayed", lambda n, _: [[n + 0.0, 9e9, 1.0], [n / 2, 0.0, 9e9]])
    monkeypatch.setattr(cuda_graph_capture, "stale_input", lambda: {"right": 40.0, "new_name": 30.0, "copied": 40.0})
    monkeypatch.setattr(cuda_graph_capture, "ITEM_IN_CAPTURE", "raise RuntimeError('capturing')")
    result = cuda_graph_capture.main()
    assert (result["n"], result["eager_us"], result["graph_us"]) == ([64, 128], [64.0, 128.0], [32.0, 64.0])
    assert result["item"] == {"exit_code": 1, "error": "RuntimeError: capturing"}
    assert "2.00×" in capsys.readouterr().out


def test_recorded_sweep_is_the_median_of_its_trials(recorded):
    for result in recorded("graphs/cuda_graph_capture").values():
        pairs = result["eager_and_graph_us_trials"]
        assert all(len(trials) >= 5 for pair in pairs for trials in pair)
        assert [median(eager) for eager, _ in pairs] == result["eager_us"]
        assert [median(graph) for _, graph in pairs] == result["graph_us"]
        assert result["n"] == list(cuda_graph_capture.PRODUCTS)


@pytest.mark.parametrize("ceilings", [{"fp32_tflop_s": 50}, {}])
def test_sweep_is_drawn_beside_its_ceiling(ceilings):
    results = {"n": [64, 1024, 4096], "eager_us": [12.0, 46.0, 2750.0], "graph_us": [4.0, 45.0, 2749.0]}
    (ax,) = cuda_graph_capture.plot(results, ceilings).axes
    lines = {line.get_label(): line for line in ax.get_lines()}
    assert list(lines["launched one by one"].get_ydata()) == results["eager_us"]
    assert list(lines["replayed from a graph"].get_ydata()) == results["graph_us"]
    assert ("50 TFLOP/s" in lines) == bool(ceilings)
    if ceilings:
        assert lines["50 TFLOP/s"].get_ydata()[2] == pytest.approx(2 * 4096**3 / 50e12 * 1e6)
        assert lines["50 TFLOP/s"].get_color() == "gray"
    plt.close("all")


@pytest.mark.gpu
def test_replay_gives_the_eager_result():
    eager, graph = cuda_graph_capture.eager_and_replayed(64, 20)
    assert min(eager) > 0 and min(graph) > 0


@pytest.mark.gpu
def test_replay_reads_the_captured_buffer():
    assert cuda_graph_capture.stale_input() == {"right": 40.0, "new_name": 30.0, "copied": 40.0}


@pytest.mark.gpu
def test_item_in_a_capture_is_refused():
    death = cuda_graph_capture.death_of(cuda_graph_capture.ITEM_IN_CAPTURE)
    assert death["exit_code"] != 0 and "captur" in death["error"]
