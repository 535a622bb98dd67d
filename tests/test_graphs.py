"""Snippets of the chapter on graphs."""

import contextlib
import math
import os
from statistics import median
from types import SimpleNamespace

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import pytest
import torch
from torch import fx

from snippets.graphs import (
    compile_cold_start,
    cuda_graph_capture,
    fusion_bytes,
    hybridize_now,
    imperative_symbolic,
    python_loop_broken,
    python_loop_fixed,
    stale_input_broken,
    stale_input_fixed,
)
from snippets.timing.benchmark import Timing

LOOPS = [python_loop_broken, python_loop_fixed]
STALE = [stale_input_broken, stale_input_fixed]


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
    assert [trials[0] for trials in result["eager_us_trials"]] == [64.0, 128.0]
    assert [trials[0] for trials in result["graph_us_trials"]] == [32.0, 64.0]
    assert result["item"] == {"exit_code": 1, "error": "RuntimeError: capturing"}
    assert "2.00×" in capsys.readouterr().out


def test_recorded_sweep_is_the_median_of_its_trials(recorded):
    for result in recorded("graphs/cuda_graph_capture").values():
        for way in ("eager", "graph"):
            assert all(len(trials) >= 5 for trials in result[f"{way}_us_trials"])
            assert [median(trials) for trials in result[f"{way}_us_trials"]] == result[f"{way}_us"]
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


@pytest.fixture
def on_this_cpu(monkeypatch):
    """What a snippet puts on the GPU is put on the CPU, and a C compiler seems to be there."""
    for name in ("ones", "rand", "randn", "zeros"):
        make = getattr(torch, name)
        monkeypatch.setattr(torch, name, lambda *shape, make=make, device=None, **more: make(*shape, **more))
    monkeypatch.setattr(torch.nn.Module, "cuda", lambda self: self)
    monkeypatch.setenv("CC", "cc")


def profiler_that_saw(events, monkeypatch):
    """Replace the profiler by one that reports these events."""

    @contextlib.contextmanager
    def profile(**options):
        assert options == {"acc_events": True}
        yield SimpleNamespace(events=lambda: events)

    monkeypatch.setattr(torch.profiler, "profile", profile)


def event(name: str, device: str, annotation: bool = False) -> SimpleNamespace:
    return SimpleNamespace(name=name, device_type=SimpleNamespace(name=device), is_user_annotation=annotation)


SEEN = [event("cudaLaunchKernel", "CPU"), event("mul", "CUDA"), event("copy", "CUDA"), event("region", "CUDA", True)]


@pytest.mark.parametrize("twin", LOOPS)
def test_both_loops_square_in_place(twin):
    x = torch.tensor([1.0, -2.0, 3.0])
    twin.square_all(x)
    assert x.tolist() == [1.0, 4.0, 9.0]


@pytest.mark.parametrize("twin", LOOPS)
def test_loop_times_are_per_element_and_checked(twin, monkeypatch):
    monkeypatch.setattr(twin, "ELEMENTS", 10)
    monkeypatch.setattr(twin, "measure", lambda work, **options: work() or Timing([1e-4, 3e-4]))
    assert twin.us_per_element("cpu") == pytest.approx([10.0, 30.0])
    monkeypatch.setattr(twin, "square_all", lambda x: x.add_(1))
    with pytest.raises(AssertionError, match="not close"):
        twin.us_per_element("cpu")


def test_the_loops_operations_are_counted_on_the_device(monkeypatch, on_this_cpu):
    profiler_that_saw(SEEN[:3], monkeypatch)
    assert [twin.device_operations(1) for twin in LOOPS] == [2, 2]


@pytest.mark.parametrize("twin", LOOPS)
def test_loop_main_asks_both_devices(twin, monkeypatch, capsys):
    trials = {"cpu": [5.0, 1.0, 2.0, 4.0, 3.0], "cuda": [50.0, 10.0, 20.0, 40.0, 30.0]}
    monkeypatch.setattr(twin, "us_per_element", trials.get)
    monkeypatch.setattr(twin, "device_operations", lambda elements: 2 * elements)
    result = twin.main()
    assert (result["cpu_us"], result["gpu_us"], result["operations"]) == (3.0, 30.0, 2 * result["counted"])
    assert result["gpu_us_trials"] == trials["cuda"]
    assert "on the GPU, 10,000 elements:   30.00000 µs each" in capsys.readouterr().out


def test_d2l_network_has_its_layers():
    net = hybridize_now.mlp()
    assert [tuple(p.shape) for p in net.parameters() if p.dim() == 2] == [(256, 512), (128, 256), (2, 128)]
    assert sum(p.numel() for p in net.parameters()) == 164_482


def test_script_is_deprecated_and_says_so():
    net, x = hybridize_now.mlp(), torch.randn(1, 512)
    script, warns = hybridize_now.scripted(net)
    torch.testing.assert_close(script(x), net(x))
    assert len(warns) == 1 and warns[0].startswith("DeprecationWarning: `torch.jit.script` is deprecated")


@torch.no_grad()
def test_export_comes_back_from_a_file_with_the_same_numbers():
    net, x, other = hybridize_now.mlp(), *torch.randn(2, 1, 512)
    loaded, size = hybridize_now.exported(net, x)
    assert torch.equal(loaded(other), net(other))
    assert 4 * 164_482 < size < 5 * 164_482


@contextlib.contextmanager
def fake_graph(graph):
    yield


def replaying(work):
    """A CUDA graph for the CPU: replay computes into the tensor that the capture returned."""
    return SimpleNamespace(replay=work)


def test_captured_network_copies_its_input_in(monkeypatch):
    replays = []
    monkeypatch.setattr(torch.cuda, "CUDAGraph", lambda: SimpleNamespace(replay=lambda: replays.append(1)))
    monkeypatch.setattr(torch.cuda, "graph", fake_graph)
    seen, x = [], torch.ones(1, 4)
    call = hybridize_now.captured(lambda held: seen.append(held) or held, x)
    assert call(torch.full((1, 4), 7.0)).tolist() == [[7.0] * 4] and replays == [1]
    assert len(seen) == 2 and x.tolist() == [[1.0] * 4], "warmed up, captured, and the caller's tensor is untouched"


def test_launches_are_counted_by_name(monkeypatch):
    profiler_that_saw([*SEEN, event("cudaGraphLaunch", "CPU"), event("cudaMemcpyAsync", "CPU")], monkeypatch)
    calls = []
    assert hybridize_now.launches(calls.append, "x") == 2 and calls == ["x"]
    assert 0 < hybridize_now.call_us(calls.append, "y") < 1000 and len(calls) == 1 + 1000


def test_hybridize_main_compares_every_way(monkeypatch, on_this_cpu, capsys):
    monkeypatch.setattr(torch, "compile", lambda net, mode=None: net)
    monkeypatch.setattr(hybridize_now, "captured", lambda net, x: lambda other: net(other) + 5e-6)
    monkeypatch.setattr(hybridize_now, "launches", lambda way, x: 5)
    turns = []
    monkeypatch.setattr(hybridize_now, "call_us", lambda way, x: turns.append(way) or 1.0 + (len(turns) - 1) % 5)
    result = hybridize_now.main()
    assert list(result["us"]) == ["eager", "script", "compile", "reduce_overhead", "graph"]
    assert list(result["us"].values()) == [1, 2, 3, 4, 5] and turns[:5] == turns[-5:], "in turn"
    assert result["speedup"]["graph"] == 0.2 and result["speedup_trials"]["eager"] == [1.0] * 15
    assert 0 < result["differs_by"]["graph"] < 1e-5 and result["differs_by"]["eager"] == 0
    assert result["loaded_equal"] is True and result["parameters"] == 164_482
    monkeypatch.setattr(hybridize_now, "captured", lambda net, x: lambda other: net(other) + 1)
    with pytest.raises(AssertionError, match="not close"):
        hybridize_now.main()


@pytest.mark.parametrize("snippet", [hybridize_now, compile_cold_start, fusion_bytes])
def test_without_a_c_compiler_the_reason_is_clear(snippet, monkeypatch):
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setattr(snippet.shutil, "which", lambda name: None)
    with pytest.raises(SystemExit, match="install gcc"):
        snippet.main()


def test_ten_steps_are_ten_operations():
    x = torch.randn(3, 3)
    torch.testing.assert_close(compile_cold_start.ten_steps(x), x / 32 + sum(0.5**k for k in range(5)))


def test_print_item_and_branch_cut_the_graph():
    assert {name: compile_cold_start.graphs(work) for name, work in compile_cold_start.WORKS.items()} == {
        "plain": 1,
        "print": 2,
        "item": 2,
        "branch": 2,
    }


@pytest.fixture
def few_calls(monkeypatch):
    monkeypatch.setattr(compile_cold_start, "SIZES", (4, 4, 3, 2))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "before")


def test_first_calls_are_counted_from_the_first(few_calls, monkeypatch, tmp_path):
    compiled = []

    def compile(work, mode):
        compiled.append(mode)
        return lambda x: compiled.append(len(x)) or work(x)

    monkeypatch.setattr(torch, "compile", compile)
    found = compile_cold_start.first_calls("cpu", str(tmp_path), "reduce-overhead")
    assert compiled[:5] == ["reduce-overhead", 4, 4, 3, 2] and compiled.count("reduce-overhead") == 1
    assert len(found["calls_ms"]) == 4 and os.environ["TORCHINDUCTOR_CACHE_DIR"] == str(tmp_path)
    assert found["eager_ms"] == pytest.approx(median(found["eager_ms_trials"]))
    assert found["steady_ms"] == pytest.approx(median(found["steady_ms_trials"]))
    assert set(compiled[8:]) == {4}, "the steady calls have the shape of the first"
    monkeypatch.setattr(torch, "compile", lambda work, mode: lambda x: x)
    with pytest.raises(AssertionError, match="not close"):
        compile_cold_start.first_calls("cpu", str(tmp_path), None)


def test_break_even_is_where_the_saved_time_reaches_the_cost(few_calls):
    cost = compile_cold_start.break_even([1000.0, 8.0, 500.0, 500.0], eager_ms=5.0, steady_ms=2.0)
    assert cost == math.ceil((998 + 6) / 3)
    compiled = [1000.0, 8.0, *[2.0] * (cost - 2)]
    assert sum(compiled) <= 5.0 * cost and sum(compiled[:-1]) > 5.0 * (cost - 1)
    assert compile_cold_start.break_even([1000.0, 8.0, 0.0, 0.0], eager_ms=2.0, steady_ms=2.0) == 0


def test_fresh_runs_in_a_process_that_has_only_imported_torch(monkeypatch):
    seen = {}

    class Pool:
        def __init__(self, workers, mp_context):
            seen["method"] = mp_context.get_start_method()

        def __enter__(self):
            return self

        def __exit__(self, *exc_info):
            pass

        def submit(self, work, *args):
            assert work is compile_cold_start.first_calls
            return SimpleNamespace(result=lambda: args)

    monkeypatch.setattr(compile_cold_start, "ProcessPoolExecutor", Pool)
    assert compile_cold_start.fresh("cpu", "folder", None) == ("cpu", "folder", None)
    assert seen["method"] == "forkserver"


def test_cold_start_main_shares_one_cache_folder(few_calls, on_this_cpu, monkeypatch, capsys):
    asked = []

    def fresh(device, folder, mode):
        asked.append((device, folder, mode))
        return {"calls_ms": [100.0, 2.0, 50.0, 50.0], "eager_ms": 3.0, "steady_ms": 1.0}

    monkeypatch.setattr(compile_cold_start, "fresh", fresh)
    monkeypatch.setattr(compile_cold_start, "graphs", lambda work: 1)
    result = compile_cold_start.main()
    assert [mode for _, _, mode in asked] == [None, None, "reduce-overhead"] and len({row[1] for row in asked}) == 1
    assert result["cold"]["break_even"] == 50 and result["graphs"]["item"] == 1 and result["sizes"] == [4, 4, 3, 2]
    assert "repaid after 50 calls" in capsys.readouterr().out


def test_cold_start_is_drawn_on_a_log_axis():
    row = {"calls_ms": [7000.0, 0.3, 900.0], "eager_ms": 0.4}
    results = {"sizes": [4, 4, 3], "cold": row, "cached": row, "reduce_overhead": row}
    (ax,) = compile_cold_start.plot(results, {}).axes
    assert ax.get_yscale() == "log" and len(ax.get_lines()) == 4
    assert list(ax.get_lines()[0].get_ydata()) == row["calls_ms"]
    assert ax.get_lines()[3].get_ydata()[0] == 0.4 and ax.get_lines()[3].get_color() == "gray"
    plt.close("all")


def test_chain_has_as_many_operations_as_asked():
    x = torch.ones(3)
    chains = [fusion_bytes.chain(x, length)[0].item() for length in (0, 1, 2, 3, 4)]
    assert chains == [1.0, 2.0, 1.0, 2.0, 1.0]


def test_kernels_are_counted_without_annotations(monkeypatch):
    profiler_that_saw(SEEN, monkeypatch)
    assert fusion_bytes.kernels(lambda: None) == 2


def test_figures_are_bytes_over_time(capsys, monkeypatch):
    calls = []
    monkeypatch.setattr(fusion_bytes, "measure", lambda work: work() or Timing([1e-2, 2e-2, 4e-2]))
    found = fusion_bytes.figures("a copy", lambda: calls.append(1), 2 * 2**30)
    assert found["ms"] == 2.0 and found["gb_s"] == pytest.approx(2**30 / 1e6) and len(calls) == 10
    assert found["gb_s_trials"] == pytest.approx([2**31 / 1e6, 2**30 / 1e6, 2**29 / 1e6])
    assert "a copy                       2.000 ms     2 GiB   1,074 GB/s" in capsys.readouterr().out


def test_fusion_compares_both_chains(on_this_cpu, monkeypatch):
    monkeypatch.setattr(fusion_bytes, "ELEMENTS", 1000)
    monkeypatch.setattr(fusion_bytes, "measure", lambda work: work() or Timing([1e-3]))
    monkeypatch.setattr(fusion_bytes, "kernels", lambda work: work.args[1])
    monkeypatch.setattr(torch, "compile", lambda work, dynamic: lambda x, length: work(x, length))
    result = fusion_bytes.main()
    assert [row["length"] for row in result["rows"]] == list(fusion_bytes.LENGTHS) and result["bytes"] == 4000
    assert result["rows"][-1]["eager"]["gb_s"] == pytest.approx(10 * result["rows"][-1]["fused"]["gb_s"])
    assert result["rows"][-1]["eager"]["kernels"] == 10
    monkeypatch.setattr(torch, "compile", lambda work, dynamic: lambda x, length: x)
    with pytest.raises(AssertionError, match="not close"):
        fusion_bytes.main()


def test_fusion_is_drawn_beside_one_pass():
    rows = [{"length": k, "eager": {"ms": 0.5 * k}, "fused": {"ms": 0.5}} for k in (1, 10)]
    (ax,) = fusion_bytes.plot({"bytes": 2**30, "rows": rows}, {"hbm_gb_s": 4800}).axes
    eager, fused, floor = ax.get_lines()
    assert list(eager.get_ydata()) == [0.5, 5.0] and list(fused.get_ydata()) == [0.5, 0.5]
    assert floor.get_ydata()[0] == pytest.approx(2**31 / 4.8e9) and floor.get_linestyle() == "--"
    assert len(fusion_bytes.plot({"bytes": 2**30, "rows": rows}, {}).axes[0].get_lines()) == 2
    plt.close("all")


def training(twin):
    """The losses of the loop, with a captured step that a CPU stands for, and the weights at the end."""
    captured, *fresh = twin.batches("cpu")
    weights, loss, held = torch.zeros(twin.FEATURES, 1), torch.zeros(()), captured
    step = lambda: loss.copy_(twin.train_step(weights, held))  # noqa: E731
    return twin.train(step, loss, weights, captured, fresh), weights


def test_one_step_follows_the_gradient():
    weights = torch.randn(stale_input_fixed.FEATURES, 1, requires_grad=True)
    batch = stale_input_fixed.batches("cpu")[0]
    loss = (batch[:, :-1] @ weights - batch[:, -1:]).square().mean()
    (gradient,) = torch.autograd.grad(loss, weights)
    stepped = weights.detach().clone()
    torch.testing.assert_close(stale_input_fixed.train_step(stepped, batch), loss.detach())
    torch.testing.assert_close(stepped, weights.detach() - stale_input_fixed.RATE / 2 * gradient)


def test_a_new_name_trains_on_the_old_batch_for_ever():
    broken, _ = training(stale_input_broken)
    assert all(abs(reported - true) > 1e-3 * true for reported, true in broken)
    assert broken[-1][0] < 0.2 and median(true for _, true in broken[-10:]) > 1.5


def test_a_copy_into_the_captured_batch_trains_on_each():
    fixed, weights = training(stale_input_fixed)
    assert all(reported == pytest.approx(true, rel=1e-5) for reported, true in fixed)
    assert median(true for _, true in fixed[-10:]) < 1.5 and weights.norm() > 0.5


@pytest.mark.parametrize(("twin", "stale"), [(stale_input_broken, 50), (stale_input_fixed, 0)])
def test_stale_main_counts_wrong_answers(twin, stale, monkeypatch, on_this_cpu, capsys):
    batches = twin.batches

    def captured_step(weights, batch):
        loss = torch.zeros(())
        return replaying(lambda: loss.copy_(twin.train_step(weights, batch))), loss

    monkeypatch.setattr(twin, "batches", lambda device: batches("cpu"))
    monkeypatch.setattr(twin, "captured_step", captured_step)
    result = twin.main()
    assert result["stale"] == stale and len(result["losses"]) == result["steps"] == 50
    assert result["last_true"] == median(true for _, true in result["losses"][-10:])
    assert f"stale answers: {stale} of 50 replays" in capsys.readouterr().out


@pytest.mark.parametrize("twin", STALE)
def test_capture_leaves_the_weights_as_they_were(twin, monkeypatch):
    monkeypatch.setattr(torch.cuda, "CUDAGraph", lambda: "graph")
    monkeypatch.setattr(torch.cuda, "graph", fake_graph)
    weights, batch = torch.zeros(twin.FEATURES, 1), twin.batches("cpu")[0]
    graph, loss = twin.captured_step(weights, batch)
    assert graph == "graph" and not weights.any() and loss > 0


@pytest.mark.parametrize("twin", STALE)
def test_losses_are_drawn_over_the_steps(twin):
    results = {"losses": [[2.0, 2.5], [1.0, 2.4]], "noise_variance": 1.0}
    (ax,) = twin.plot(results, {}).axes
    true, reported, floor = ax.get_lines()
    assert list(true.get_ydata()) == [2.5, 2.4] and list(reported.get_ydata()) == [2.0, 1.0]
    assert floor.get_ydata()[0] == 1.0 and floor.get_color() == "gray"
    plt.close("all")


@pytest.mark.gpu
@pytest.mark.parametrize(("twin", "stale"), [(stale_input_broken, 50), (stale_input_fixed, 0)])
def test_replays_are_stale_until_the_batch_is_copied(twin, stale):
    assert twin.main()["stale"] == stale


@pytest.mark.gpu
def test_a_vectorised_square_is_one_operation_and_a_loop_is_many():
    assert python_loop_fixed.device_operations(100) == 1
    assert python_loop_broken.device_operations(100) >= 200


@pytest.mark.gpu
@torch.no_grad()
def test_captured_network_gives_the_eager_numbers():
    net, x, other = hybridize_now.mlp().cuda(), *torch.randn(2, 1, 512, device="cuda")
    call = hybridize_now.captured(net, x)
    torch.testing.assert_close(call(other), net(other), rtol=1e-4, atol=1e-5)
    assert hybridize_now.launches(call, other) == 1


@pytest.mark.parametrize("twin", LOOPS)
def test_recorded_loops_are_medians(recorded, twin):
    for profile, result in recorded(twin.__name__.removeprefix("snippets.").replace(".", "/")).items():
        for device in ("cpu", "gpu"):
            assert result[f"{device}_us"] == median(result[f"{device}_us_trials"]), profile


def test_recorded_network_is_one_network(recorded):
    for profile, result in recorded("graphs/hybridize_now").items():
        assert result["loaded_equal"] and max(result["differs_by"].values()) < 1e-3, profile
        for way, us in result["us"].items():
            assert us == pytest.approx(median(result["us_trials"][way])), (profile, way)
            pairs = zip(result["us_trials"]["eager"], result["us_trials"][way], strict=True)
            assert result["speedup_trials"][way] == pytest.approx([eager / one for eager, one in pairs]), (profile, way)


def test_recorded_break_even_is_computed_from_the_calls(recorded):
    for profile, result in recorded("graphs/compile_cold_start").items():
        assert result["sizes"] == list(compile_cold_start.SIZES), profile
        for name in ("cold", "cached", "reduce_overhead"):
            row = result[name]
            expected = compile_cold_start.break_even(row["calls_ms"], row["eager_ms"], row["steady_ms"])
            assert row["break_even"] == expected, (profile, name)
            assert row["steady_ms"] == pytest.approx(median(row["steady_ms_trials"])), (profile, name)
        assert len(compile_cold_start.plot(result, {}).axes[0].get_lines()) == 4, profile
    plt.close("all")


def test_recorded_bytes_and_times_agree(recorded):
    for profile, result in recorded("graphs/fusion_bytes").items():
        for row in result["rows"]:
            for way, passes in (("eager", row["length"]), ("fused", 1)):
                assert row[way]["ms"] == pytest.approx(median(row[way]["ms_trials"])), (profile, way)
                assert row[way]["gb_s"] == pytest.approx(2 * result["bytes"] * passes / row[way]["ms"] / 1e6), profile
        assert len(fusion_bytes.plot(result, {}).axes[0].get_lines()) == 2, profile
    plt.close("all")


@pytest.mark.parametrize("twin", STALE)
def test_recorded_stale_count_follows_from_the_losses(recorded, twin):
    for profile, result in recorded(twin.__name__.removeprefix("snippets.").replace(".", "/")).items():
        stale = sum(abs(reported - true) > 1e-3 * true for reported, true in result["losses"])
        assert result["stale"] == stale and len(result["losses"]) == result["steps"], profile
        assert list(twin.plot(result, {}).axes[0].get_lines()[0].get_ydata()) == [t for _, t in result["losses"]], (
            profile
        )
    plt.close("all")
