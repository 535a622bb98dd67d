"""Snippets of the chapter on graphs."""

import gc
import json
import os
import shutil
import sys
import time
import warnings
import weakref
from copy import deepcopy
from functools import partial

import pytest
import torch
from conftest import LIMIT_S, TORCH, all_snippets, run_alone
from fake_cuda import Graph
from torch import fx, nn

from snippets.graphs import (
    autocast_captured,
    block_autotuned,
    blocks_compiled,
    capture_beside_threads,
    capture_on_wrong_gpu,
    capture_refused,
    compile_by_depth,
    compile_cold_start,
    compiled_call,
    cuda_graph_capture,
    decode_batches,
    decode_eight_bits,
    decode_sizes,
    decode_step,
    fusion_bytes,
    graph_breaks,
    graph_buckets,
    graph_keeps_nothing,
    graph_memory,
    grouped_query,
    hybridize_now,
    imperative_symbolic,
    language_model,
    network_in_a_file,
    one_row_products,
    padded_batches,
    prefill_and_decode,
    python_loop_as_written,
    python_loop_broken,
    python_loop_fixed,
    replay_draws,
    replay_rate,
    seven_billion,
    seven_billion_low,
    seven_billion_tuned,
    sizes_compiled,
    sizes_recorded,
    small_step_compiled,
    stale_input_broken,
    stale_input_fixed,
    static_cache,
    step_compiled,
    stop_inside,
    train_captured,
    without_python,
    workspace_freed,
)
from snippets.timing import kernel_time
from snippets.timing.benchmark import Timing

LOOPS = [python_loop_broken, python_loop_fixed]
STALE = [stale_input_broken, stale_input_fixed]


def turns(works, **options):
    """Each work is called once; the first takes 1 ms, the second 2 ms, and so on."""
    for work in works.values():
        work()
    return {name: Timing([1e-3 * k] * 3) for k, name in enumerate(works, 1)}


@pytest.mark.parametrize("twin", LOOPS)
def test_both_loops_square_in_place(twin):
    x = torch.tensor([1.0, -2.0, 3.0])
    twin.square_all(x)
    assert x.tolist() == [1.0, 4.0, 9.0]


def test_loop_times_are_per_element_and_checked(monkeypatch):
    monkeypatch.setattr(python_loop_broken, "ELEMENTS", 10)
    for twin in LOOPS:
        monkeypatch.setattr(twin, "measure", lambda work, **options: work() or Timing([1e-4, 3e-4]))
    assert python_loop_broken.us_per_element("cpu") == pytest.approx([10.0, 30.0])
    assert python_loop_fixed.us_of_all("cpu", 10) == pytest.approx([100.0, 300.0])
    for twin in LOOPS:
        monkeypatch.setattr(twin, "square_all", lambda x: x.add_(1))
    with pytest.raises(AssertionError):
        python_loop_broken.us_per_element("cpu")
    with pytest.raises(AssertionError):
        python_loop_fixed.us_of_all("cpu", 10)


def test_a_loop_is_many_operations_and_a_vectorised_square_is_one(gpu):
    x = torch.ones(10, device="cuda")
    assert python_loop_fixed.device_operations(x) == 1
    assert python_loop_broken.device_operations(x) == 2 * 10, "a product and a copy for each element"


def test_each_device_and_size_has_its_times(gpu, monkeypatch):
    trials = {"cpu": [5.0, 1.0, 3.0], "cuda": [50.0, 10.0, 30.0]}
    monkeypatch.setattr(python_loop_broken, "us_per_element", trials.get)
    result = python_loop_broken.main()
    assert (result["cpu_us"], result["gpu_us"]) == (3.0, 30.0)
    monkeypatch.setattr(python_loop_fixed, "us_of_all", lambda device, n: [n * us for us in trials[device]])
    result = python_loop_fixed.main()
    assert (result["cpu_us"], result["gpu_us"]) == (3e4, 3e5)
    assert (result["cpu_million_us"], result["gpu_million_us"]) == (3e6, 3e7)


@pytest.mark.gpu
def test_a_vectorised_square_is_one_operation_and_a_loop_is_many():
    assert python_loop_fixed.device_operations(torch.ones(100, device="cuda")) == 1
    assert python_loop_broken.device_operations(torch.ones(100, device="cuda")) >= 200


def test_imperative_python_sees_every_value():
    result, lines = imperative_symbolic.overheard(imperative_symbolic.fancy_func, 1, 2, 3, 4)
    assert result == 10
    assert lines == ["adding 1 and 2", "adding 3 and 4", "adding 3 and 7"]


def test_additions_of_known_numbers_are_gone():
    assert imperative_symbolic.additions_left(imperative_symbolic.program) == 0
    assert imperative_symbolic.additions_left(lambda a, b: a + b + 1) == 2


def test_tracing_keeps_the_additions_and_loses_the_print():
    traced, lines = imperative_symbolic.overheard(fx.symbolic_trace, imperative_symbolic.fancy_func)
    assert len(lines) == 3 and "Proxy(a)" in lines[0]
    additions = ["add = a + b", "add_1 = c + d", "add_2 = add + add_1"]
    assert imperative_symbolic.additions(traced.graph) == additions
    assert imperative_symbolic.overheard(traced, 5, 6, 7, 8) == (26, [])


def test_graphs_of_any_function_and_arguments():
    a, b = torch.ones(2), torch.ones(2)
    assert graph_breaks.graphs_of(lambda x, y: x * y + 1, a, b) == [["mul", "add"]]

    def named(x: torch.Tensor) -> torch.Tensor:
        doubled = x * 2
        return doubled.sum()

    assert graph_breaks.graphs_of(named, a) == [["mul", "sum"]], "operations, not variables"


def test_power_is_one_product_per_step():
    x = torch.tensor([[0.6, -0.8], [0.8, 0.6]])
    torch.testing.assert_close(cuda_graph_capture.power(x, 4), torch.linalg.matrix_power(x, 5))


def test_sweep_is_per_product(gpu, monkeypatch):
    monkeypatch.setattr(cuda_graph_capture, "PRODUCTS", {8: 40, 16: 20})
    gpu.kernel_s["mm"] = 2e-6
    result = cuda_graph_capture.main()
    assert result["n"] == [8, 16] and result["kernels"] == [["mm"]] * 2
    assert result["eager_us"] == pytest.approx([10, 10], rel=0.1), "launches decide"
    assert result["graph_us"] == pytest.approx([2.25, 2.5], rel=0.1), "a launch for all, and the kernels"


def test_replay_that_computes_nothing_is_not_timed(monkeypatch):
    monkeypatch.setattr(cuda_graph_capture, "captured", lambda work: partial(torch.zeros, 2, 2))
    with pytest.raises(AssertionError, match="not close"):
        cuda_graph_capture.both_ways(torch.eye(2), 3)


@pytest.mark.parametrize(("twin", "stale"), [(stale_input_broken, 50), (stale_input_fixed, 0)])
def test_stale_main_counts_wrong_answers(twin, stale, gpu):
    result = twin.main()
    assert result["stale"] == stale and len(result["losses"]) == result["steps"] == 50
    assert (result["last_true"] > 1.5) == bool(stale) and (result["last_reported"] < 0.3) == bool(stale)


@pytest.mark.parametrize("twin", STALE)
def test_one_step_follows_the_gradient(twin):
    weights = torch.randn(twin.FEATURES, 1, requires_grad=True)
    batch = twin.batches("cpu")[0]
    loss = (batch[:, :-1] @ weights - batch[:, -1:]).square().mean()
    (gradient,) = torch.autograd.grad(loss, weights)
    stepped = weights.detach().clone()
    torch.testing.assert_close(twin.train_step(stepped, batch), loss.detach())
    torch.testing.assert_close(stepped, weights.detach() - twin.RATE / 2 * gradient)


@pytest.mark.gpu
@pytest.mark.parametrize(("twin", "stale"), [(stale_input_broken, 50), (stale_input_fixed, 0)])
def test_replays_are_stale_until_the_batch_is_copied(twin, stale):
    assert twin.main()["stale"] == stale


def test_a_graph_draws_anew_and_python_does_not_on_an_imitation(gpu):
    agree = replay_draws.masks(torch.ones(10_000, device="cuda"))
    assert 4_500 < agree["two_replays"] < 5_500 and agree["seeded_replays"] == agree["seeded_eager"] == 10_000
    assert len(set(replay_draws.python_numbers(3))) == 1, "a replay runs no Python"


def test_only_a_rate_in_a_tensor_can_be_changed_on_an_imitation(gpu):
    moved = replay_rate.main()["moved"]
    assert moved["number"] == pytest.approx(0.5, rel=0.01) and moved["tensor"] == 0


@pytest.mark.gpu
def test_a_graph_draws_anew_and_python_does_not():
    agree = replay_draws.masks(torch.ones(10_000, device="cuda"))
    assert 4_500 < agree["two_replays"] < 5_500 and agree["seeded_replays"] == 10_000
    assert len(set(replay_draws.python_numbers(3))) == 1


@pytest.mark.gpu
def test_only_a_rate_in_a_tensor_can_be_changed():
    moved = replay_rate.main()["moved"]
    assert moved["number"] == pytest.approx(0.5, rel=0.01) and moved["tensor"] == 0


def test_refusal_is_the_first_error_of_the_capture(gpu):
    calls = []

    def refused(x):
        calls.append(x)
        if len(calls) > 1:
            raise RuntimeError("not permitted\nmore")

    assert capture_refused.refusal(refused) == "RuntimeError: not permitted" and len(calls) == 2
    assert capture_refused.refusal(capture_refused.clip) == ""
    assert "not permitted when stream is capturing" in capture_refused.refusal(capture_refused.item)


@pytest.mark.gpu
@pytest.mark.program("graphs/capture_refused")
def test_a_capture_refuses_what_waits(returned):
    errors = returned["errors"]
    assert "captur" in errors["item"] and "capturable" in errors["adam"]
    assert errors["nonzero"] and errors["from_list"] and not errors["clip"]


@pytest.mark.parametrize("case", ["large", "device", "device, second, anew", "stream", "stream, second"])
def test_a_graph_of_another_gpu_is_called_with_two_numbers(case, two_gpus, monkeypatch):
    monkeypatch.setattr(capture_on_wrong_gpu, "LARGE", 4)
    # a function, which can have an attribute, as the class that it stands for
    monkeypatch.setattr(torch.cuda, "graph", partial(torch.cuda.graph))
    monkeypatch.setattr(capture_on_wrong_gpu, "LARGE_GRAPH", partial(capture_on_wrong_gpu.graphed, 4))
    row = capture_on_wrong_gpu.outcome(capture_on_wrong_gpu.CASES[case])
    assert row["found"] == [11.0, 15.0] and row["right"] and row["says"] == row["after"] == ""
    assert capture_on_wrong_gpu.word(row | {"exit": 0}) == "right"


def test_a_graph_that_misses_its_gpu_is_told_from_one_that_fails(two_gpus):
    def empty():
        warnings.warn("The CUDA Graph is empty. Wrong device? (Triggered internally at x.cpp)", stacklevel=1)
        return lambda number: torch.full((2,), 3.0)

    def fails():
        raise RuntimeError("CUDA error: not permitted\nmore")

    def fails_late():
        return lambda number: fails()

    def half_right():
        return lambda number: torch.full((2,), 11.0)

    outcome, word = capture_on_wrong_gpu.outcome, capture_on_wrong_gpu.word
    rows = [outcome(case) | {"exit": 0} for case in (empty, fails, fails_late, half_right)]
    assert rows[0]["warning"] == "The CUDA Graph is empty. Wrong device?" and rows[0]["found"] == [3.0, 3.0]
    assert rows[1]["says"] == "RuntimeError: CUDA error: not permitted" and rows[1]["found"] == []
    assert [*map(word, rows)] == [
        "empty graph",
        "error in the capture",
        "error in the replay",
        "wrong numbers",
    ]


@pytest.mark.skipif(torch.cuda.device_count() > 1, reason="there is a second GPU")
def test_a_process_that_cannot_capture_has_an_exit_code():
    row = capture_on_wrong_gpu.in_a_child("small")
    assert row["exit"] == 1 and "Error" in row["end"]
    assert capture_on_wrong_gpu.word(row) == "exit code 1"


@pytest.mark.gpu(2)
@pytest.mark.program("graphs/capture_on_wrong_gpu")
def test_a_capture_in_a_stream_of_its_gpu_is_right(returned):
    words = returned["cases"]
    for case in ("device", "device, second, anew", "stream", "stream, second"):
        assert words[case]["word"] == "right", case
    assert words["small"]["word"] != "right" != words["large"]["word"]


def test_graphed_step_trains_on_its_warm_up_and_on_each_batch(gpu):
    total = torch.zeros((), device="cuda")

    def step(x, y):
        return total.add_(x + y)

    call = train_captured.graphed(step, *torch.tensor([1.0, 2.0], device="cuda"))
    assert total.item() == 3, "on the batch that warms up, once"
    assert call(torch.tensor(3.0), torch.tensor(4.0)).item() == 3 + 7 and total.item() == 10
    with pytest.raises(ValueError, match="shorter"):
        call(torch.tensor(3.0))
    with pytest.raises(ValueError, match=r"captured for \(\) of torch.float32, not for \(1,\) of"):
        call(torch.ones(1), torch.tensor(4.0))
    with pytest.raises(ValueError, match=r"not for \(\) of torch.int64"):
        call(torch.tensor(9.0), torch.tensor(4))
    assert total.item() == 10 and call(torch.tensor(1.0), torch.tensor(1.0)).item() == 12
    held = torch.tensor(1.0, requires_grad=True)
    assert not call(2 * held, held).requires_grad


def test_training_compares_every_way(gpu, monkeypatch):
    monkeypatch.setattr(torch.cuda, "make_graphed_callables", lambda net, samples: net)
    monkeypatch.setattr(train_captured, "take_turns", turns)
    monkeypatch.setattr(train_captured, "STEPS", 8)
    result = train_captured.main()
    assert list(result["losses"]) == list(train_captured.OPTIONS)
    assert result["losses"]["graph"] == pytest.approx(result["losses"]["eager"], rel=1e-4)
    assert result["losses"]["eager"][-1] < result["losses"]["eager"][0]
    assert max(result["differs_by"].values()) <= 1e-5 and max(result["graph_adds"].values()) <= 1e-5
    assert result["speedup"]["graph"] == pytest.approx(1 / 5)


def test_distance_is_the_largest():
    one, other = nn.Linear(2, 1), nn.Linear(2, 1)
    other.load_state_dict(one.state_dict())
    assert train_captured.distance(one, other) == 0
    with torch.no_grad():
        other.weight[0, 1] += 2
    assert train_captured.distance(one, other) == pytest.approx(2)


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:The AccumulateGrad node's stream")  # make_graphed_callables' own warm-up
def test_graphed_training_is_eager_training():
    result = train_captured.main()
    assert max(result["differs_by"].values()) < 1e-4
    for name in ("callables", "graph"):
        assert result["losses"][name] == pytest.approx(result["losses"]["eager"], rel=1e-3)


@pytest.mark.gpu
def test_graphs_hold_memory_until_their_end():
    held = graph_memory.main()["held_mib"]
    assert held["eager"] == held["after_their_end"] == 0 < held["graphs_in_one_pool"] < held["graphs_apart"]


def test_norm_is_about_one():
    assert graph_memory.norm(torch.tensor([3.0, 1.0, 0.0])) == 5


def test_chain_has_as_many_operations_as_asked():
    values = [fusion_bytes.chain(torch.ones(3), length)[0].item() for length in range(5)]
    assert values == [1.0, 2.0, 1.0, 2.0, 1.0]


def test_fusion_compares_both_chains(gpu, monkeypatch):
    monkeypatch.setattr(fusion_bytes, "ELEMENTS", 1000)
    monkeypatch.setattr(fusion_bytes, "take_turns", turns)
    monkeypatch.setattr(torch, "compile", lambda work, dynamic: lambda x, length: work(x, length))
    result = fusion_bytes.main()
    longest = result["rows"][-1]
    assert longest["ms"] == {"eager": 1.0, "fused": 2.0} and longest["eager_kernels"] == 10
    monkeypatch.setattr(torch, "compile", lambda work, dynamic: lambda x, length: x)
    with pytest.raises(AssertionError, match="not close"):
        fusion_bytes.main()


def test_networks_of_each_depth_are_called_in_each_way(gpu, monkeypatch):
    monkeypatch.setattr(torch, "compile", lambda net, mode=None: net)
    monkeypatch.setattr(compile_by_depth, "take_turns", turns)
    rows = compile_by_depth.main()["rows"]
    assert [row["depth"] for row in rows] == list(compile_by_depth.DEPTHS)
    assert all(row["us"] == rows[0]["us"] for row in rows) and len(rows[0]["us"]) == 4
    assert rows[1]["kernels"]["eager"] == 3 * rows[0]["kernels"]["eager"]
    (panel,) = compile_by_depth.plot({"rows": rows}, {}).panels
    assert panel.marks[-1].y == [1.0] * len(rows), "eager is what all are compared with"
    monkeypatch.setattr(torch, "compile", lambda net, mode=None: lambda x: net(x) + 1)
    with pytest.raises(AssertionError, match="not close"):
        compile_by_depth.main()


@pytest.mark.parametrize("module", [hybridize_now, network_in_a_file, compiled_call])
def test_d2l_network_has_its_layers(module):
    net = module.mlp()
    assert [tuple(p.shape) for p in net.parameters() if p.dim() == 2] == [(256, 512), (128, 256), (2, 128)]
    assert sum(p.numel() for p in net.parameters()) == 164_482


@torch.no_grad()
def test_a_network_as_a_graph_copies_its_input_in(gpu):
    net = nn.Linear(4, 2).cuda()
    x, other = torch.randn(2, 1, 4, device="cuda")
    kept = x.clone()
    call = hybridize_now.as_graph(net, x)
    assert torch.equal(call(other), net(other)) and torch.equal(x, kept), "the caller's tensor is untouched"
    with pytest.raises(ValueError, match="captured for"):
        call(torch.randn(4))


def test_kernels_copies_and_graphs_are_counted_alike():
    names = ["cudaLaunchKernel", "cudaMemcpyAsync", "cudaGraphLaunch", "cuLaunchKernelEx"]
    calls = [["CPU", k, 1, name] for k, name in enumerate([*names, "cudaDeviceSynchronize"])]
    kernels = [["stream 7", 1, 2, "mul"], ["stream 7", 3, 1, "Memcpy DtoD"]]
    assert hybridize_now.handed_over(calls + kernels) == names


def test_hybridize_main_compares_every_way(gpu, monkeypatch):
    monkeypatch.setattr(torch, "compile", lambda net, mode=None: net)
    monkeypatch.setattr(torch.jit, "script", lambda net: net)
    monkeypatch.setattr(hybridize_now, "take_turns", turns)
    result = hybridize_now.main()
    assert list(result["us"]) == ["eager", "script", "compile", "reduce_overhead", "graph"]
    assert result["speedup"]["graph"] == pytest.approx(0.2)
    assert result["launches"]["graph"] < result["launches"]["eager"]
    assert set(result["differs_by"].values()) == {0.0}
    monkeypatch.setattr(hybridize_now, "as_graph", lambda net, x: lambda other: net(other) + 1)
    with pytest.raises(AssertionError, match="not close"):
        hybridize_now.main()


@pytest.mark.parametrize(
    ("then", "values"), [("kept", [1]), ("dropped", []), ("given_away", [0]), ("cache_emptied", [])]
)
def test_what_is_done_to_the_tensor_that_a_graph_reads(then, values, gpu, monkeypatch):
    def fail(graph):
        raise RuntimeError("CUDA error: illegal\nmore")

    monkeypatch.setattr(graph_keeps_nothing, "SIZE", 1)
    case, held = getattr(graph_keeps_nothing, then), [torch.ones(1)]
    case(held)
    assert [x.item() for x in held] == values
    assert graph_keeps_nothing.three_plus_one(case) == "3 + 1 = 4", "this GPU's memory is never given away"
    monkeypatch.setattr(Graph, "replay", fail)
    assert graph_keeps_nothing.three_plus_one(case) == "RuntimeError: CUDA error: illegal"


@pytest.mark.gpu
@pytest.mark.program("graphs/graph_keeps_nothing")
def test_a_graph_reads_what_lies_where_its_tensor_was(returned):
    found = returned["found"]
    assert (found["kept"], found["given_away"]) == ("3 + 1 = 4", "3 + 1 = 1")
    assert "illegal memory access" in found["cache_emptied"]


def weights_in_a_graph(keep: list):
    """A replay that adds 1 to a tensor of threes; who calls this forgets the tensor, unless it is kept."""
    x = torch.full((2**24,), 3.0, device="cuda")
    keep.append(weakref.ref(x))
    return kernel_time.captured(lambda: x + 1)


@pytest.mark.gpu
def test_a_graph_keeps_what_it_reads():
    refs = []
    replay = weights_in_a_graph(refs)
    gc.collect()
    torch.cuda.empty_cache()
    others = [torch.zeros(2**24, device="cuda") for _ in range(4)]
    assert refs[0]() is not None and bool((replay() == 4).all()) and not any(map(torch.any, others))


@pytest.mark.gpu
@torch.no_grad()
def test_captured_network_gives_the_eager_numbers():
    net = hybridize_now.mlp().cuda()
    x, other = torch.randn(2, 1, 512, device="cuda")
    call = hybridize_now.as_graph(net, x)
    torch.testing.assert_close(call(other), net(other), rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_what_the_compiler_made_is_called_with_the_same_inputs(monkeypatch):
    made = []
    monkeypatch.setattr(torch._inductor, "compile", lambda graph, inputs: made.append(graph) or graph.forward)
    net, x = compiled_call.mlp(), torch.randn(1, 512)
    torch.compiler.reset()
    code = compiled_call.what_the_compiler_made(net, x)
    torch.testing.assert_close(code()[0], net(x))
    assert len(made) == 1
    cut = nn.Sequential(net, nn.ReLU())
    cut.register_forward_pre_hook(lambda *_: torch._dynamo.graph_break())
    with pytest.raises(torch._dynamo.exc.Unsupported):
        compiled_call.what_the_compiler_made(cut, x)


@pytest.mark.filterwarnings("ignore:The given buffer is not writable:UserWarning")  # of PyTorch 2.11's loader
@torch.no_grad()
def test_export_comes_back_from_a_file_with_the_same_numbers():
    net = network_in_a_file.mlp()
    x, other = torch.randn(2, 1, 512)
    loaded, size = network_in_a_file.through_a_file(net, x)
    assert torch.equal(loaded(other), net(other)) and 4 * 164_482 < size < 4.2 * 164_482


def test_a_program_is_asked_with_one_thread_and_its_libraries_are_read(tmp_path):
    program = tmp_path / "program"
    program.write_text('#!/bin/sh\necho "1.5 -2 $OMP_NUM_THREADS.$2 3e-05"\n')
    program.chmod(0o755)
    assert without_python.called(program, "net.pt2", 7) == ([1.5, -2, 1.7], 3e-05)
    assert any(name.startswith("libc.so") for name in without_python.libraries(sys.executable))


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="no g++ here")
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_a_network_gives_in_cpp_what_it_gives_in_python(tmp_path):
    net, x = nn.Linear(512, 3).eval(), torch.linspace(-1, 1, 512).view(1, 512)
    program = without_python.built(tmp_path)
    values, seconds = without_python.called(program, without_python.packaged(net, x, tmp_path / "net.pt2"), 5)
    torch.testing.assert_close(torch.tensor([values]), net(x).detach())
    assert seconds > 0 and not [name for name in without_python.libraries(program) if "python" in name]


@pytest.mark.parametrize("look", stop_inside.LOOKS)
def test_eager_code_shows_its_values_and_stops(look):
    row = stop_inside.looked("eager", look)
    seen = {"print": {"values": 2, "stops": 0}, "breakpoint": {"values": 0, "stops": 2}}
    assert row == {"while_made": 0, "unknown": 0, "exit": 0, "error": ""} | seen[look]


def test_what_is_shown_before_the_first_call_and_what_ends_a_program_are_told(monkeypatch):
    program = "print('h is FakeTensor')\nprint('made')\nprint('h is tensor(1)')\nraise KeyError('x')"
    monkeypatch.setattr(stop_inside, "PROGRAM", program)
    row = stop_inside.looked("exported", "print")
    assert (row["while_made"], row["values"], row["exit"]) == (1, 1, 1) and row["error"] == "KeyError: 'x'"


def test_script_is_deprecated_and_says_so():
    said = network_in_a_file.warnings_of(torch.jit.script, network_in_a_file.mlp())
    assert len(said) == 1 and "Warning: `torch.jit.script` is deprecated" in said[0]  # by any class of it
    assert network_in_a_file.warnings_of(int, "1") == []


@pytest.mark.parametrize(
    ("work", "factor", "rest"), [(compile_cold_start.first, 0.5, 1), (compile_cold_start.second, 0.25, 2)]
)
def test_chains_are_ten_operations(work, factor, rest):
    x = torch.randn(3, 3)
    torch.testing.assert_close(work(x), x * factor**5 + rest * sum(factor**k for k in range(5)))


def test_stages_of_compiling_are_timed_one_by_one(gpu, monkeypatch, tmp_path):
    asked = []

    def compile(work, **options):
        asked.append((work.__name__, *options.values()))
        return work

    monkeypatch.setattr(torch, "compile", compile)
    monkeypatch.setattr(compile_cold_start, "N", 4)
    monkeypatch.setattr(compile_cold_start, "COMPILER", ("json",))
    monkeypatch.setattr(compile_cold_start, "take_turns", turns)
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "before")
    found = compile_cold_start.stages(str(tmp_path))
    assert asked == [("first",), ("second", "eager"), ("second",), ("second", "reduce-overhead")]
    assert min(seconds for key, seconds in found.items() if key.endswith("_s")) > 0
    assert list(found["on_gpu"]["ms"]) == ["eager", "compiled", "graphed"]
    monkeypatch.setattr(torch, "compile", lambda work, **options: lambda x: x)
    with pytest.raises(AssertionError, match="not close"):
        compile_cold_start.stages(str(tmp_path))


def test_the_notebooks_loop_gives_what_whole_operations_give():
    loop, whole = torch.ones(2, 3), torch.ones(2, 3)
    python_loop_as_written.as_written(loop)
    python_loop_as_written.at_once(whole)
    assert loop.tolist() == whole.tolist() == [[1.0, 4.0, 9.0], [4.0, 9.0, 16.0]]


def test_the_notebooks_loop_is_timed_and_its_calls_are_counted(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(python_loop_as_written, "N", 3)
    monkeypatch.setattr(python_loop_as_written, "MILLION", 4)
    result = json.loads(json.dumps(python_loop_as_written.main()))
    assert result["calls"] == {"select": 8, "add_": 1, "copy_": 2, "mul_": 1}
    assert (result["elements"], result["million"], len(result["cpu_us_trials"])) == (9, 16, 5)
    assert "gpu_us" not in result


def test_compilations_are_counted_after_each_batch():
    batches = [torch.ones(size, 2) for size in (4, 3, 2, 1)]
    assert sizes_compiled.compilations(lambda x: x * 2, batches) == [1, 2, 2, 3]
    assert sizes_compiled.compilations(lambda x: x * 2, batches, dynamic=False) == [1, 2, 3, 4]
    marked = [sizes_compiled.of_any_size(batch) for batch in batches[:-1]]
    assert sizes_compiled.compilations(lambda x: x * 2, marked) == [1, 1, 1]
    assert sizes_compiled.compilations(lambda x: x * 2, batches[:2]) == [1, 2], (
        "a marked copy marks nothing else"
    )


def test_compilations_are_those_of_any_work_and_leave_nothing_behind(monkeypatch):
    resets = []

    def work(batch):
        return {"sum": batch["x"] + len(batch["names"])}

    batches = [{"x": torch.ones(size), "names": names} for size, names in ((2, "a"), (2, "a"), (3, "a"))]
    reset = torch.compiler.reset
    monkeypatch.setattr(torch.compiler, "reset", lambda: resets.append(1) or reset())
    assert sizes_compiled.compilations(work, batches, mode="max-autotune-no-cudagraphs") == [1, 1, 2]
    assert len(resets) == 2

    def fails(batch):
        raise OSError("no file")

    with pytest.raises(OSError, match="no file"):
        sizes_compiled.compilations(fails, batches)
    assert len(resets) == 4 and sizes_compiled.compilations(work, []) == []


@pytest.mark.parametrize(
    ("rate", "schedule", "graphs"),
    [
        (0.1, torch.optim.lr_scheduler.LambdaLR, 2),
        (torch.tensor(0.1), torch.optim.lr_scheduler.LambdaLR, 1),
        (torch.tensor(0.1), torch.optim.lr_scheduler.OneCycleLR, 2),
    ],
)
@pytest.mark.skipif(TORCH < (2, 13), reason="older releases compile for each rate")
def test_a_compiled_update_is_compiled_for_numbers_that_change(rate, schedule, graphs):
    """Once more for a learning rate that is a number, and for Adam's betas, which a cycle changes."""
    weight = nn.Parameter(torch.ones(3))
    weight.grad = torch.ones(3)
    optimizer = torch.optim.Adam([weight], lr=rate)
    if schedule is torch.optim.lr_scheduler.OneCycleLR:
        scheduler = schedule(optimizer, max_lr=0.1, total_steps=20)
    else:
        scheduler = schedule(optimizer, lambda step: 1 / (step + 1))
    batches = [None] * 12

    def schedules():
        for batch in batches:
            yield batch
            scheduler.step()

    counts = sizes_compiled.compilations(lambda _: optimizer.step(), schedules())
    assert len(counts) == len(batches) and (counts[0], counts[-1]) == (1, graphs)


def test_a_compiled_model_saves_other_names_of_the_same_tensors():
    model = nn.Linear(2, 2)
    saved = torch.compile(model).state_dict()
    assert list(saved) == ["_orig_mod.weight", "_orig_mod.bias"]
    assert saved["_orig_mod.weight"].data_ptr() == model.state_dict()["weight"].data_ptr()
    with pytest.raises(RuntimeError, match=r'Unexpected key\(s\) in state_dict: "_orig_mod\.weight"'):
        model.load_state_dict(saved)
    model.load_state_dict({name.replace("_orig_mod.", ""): tensor for name, tensor in saved.items()})
    model.compile()
    assert list(model.state_dict()) == ["weight", "bias"]


def test_a_new_size_is_refused_only_if_it_needs_another_graph():
    batches = [torch.ones(size, 2) for size in (4, 3)]
    assert sizes_compiled.refuses_a_new_size(torch.sin, batches) is True
    assert sizes_compiled.refuses_a_new_size(torch.sin, [batches[0]] * 2) is False


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning")  # PyTorch's own look at it
def test_a_network_is_handed_over_as_a_whole_or_block_by_block(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    blocks = [blocks_compiled.Block() for _ in range(3)]
    [of_one] = blocks_compiled.handed(blocks[:1], blocks_compiled.whole)
    assert of_one > 5
    assert blocks_compiled.handed(deepcopy(blocks), blocks_compiled.whole) == [3 * of_one]
    assert blocks_compiled.handed(deepcopy(blocks), blocks_compiled.by_block) == [of_one] * 2
    assert blocks_compiled.handed(blocks, blocks_compiled.by_block, train=False) == [of_one]


def smaller(monkeypatch, module, **sizes):
    for name, value in sizes.items():
        monkeypatch.setattr(module, name, value)
    monkeypatch.setattr(module, "take_turns", turns)


def test_the_language_model_looks_back_and_leaves_padding_out():
    result = language_model.main()
    assert result["loss"] == pytest.approx(result["of_chance"], abs=0.5)
    net = language_model.LanguageModel(64, 1, 8, vocabulary=16)
    tokens, targets = (rows % 16 for rows in language_model.successors(2, 4, "cpu"))
    assert torch.equal(targets[:, :-1], tokens[:, 1:])
    padded = torch.cat([tokens, tokens], 1), torch.cat([targets, torch.full_like(targets, -100)], 1)
    torch.testing.assert_close(net(*padded), net(tokens, targets))


def eagerly(monkeypatch):
    """`torch.compile` counts what it is given, and compiles nothing."""
    given = []
    monkeypatch.setattr(torch, "compile", lambda work, **options: given.append(options) or work)
    monkeypatch.setattr(nn.Module, "compile", lambda net, **options: given.append(type(net).__name__))
    return given


@pytest.fixture
def small_steps(monkeypatch):
    """A model so small that a CPU trains it; what would be compiled is noted."""

    def twice(works, **options):
        turns(works)  # the warm-up
        return turns(works)

    given = eagerly(monkeypatch)
    monkeypatch.setattr(torch.compiler, "reset", lambda: None)
    smaller(monkeypatch, step_compiled, WIDTH=64, BLOCKS=2, BATCH=4, TOKENS=8, OTHER_BATCHES=(3, 2))
    monkeypatch.setattr(step_compiled, "take_turns", twice)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "before")
    return given


def test_each_way_of_compiling_a_step_is_checked_and_timed(small_steps, monkeypatch, tmp_path):
    found = step_compiled.process(("by_block", "with_breaks", "whole"), str(tmp_path))
    assert small_steps == [{}, "Block", "Block", "Block", "Block", "LanguageModel"]
    assert list(found["whole"]["ms"]) == ["eager", "compiled"] and found["whole"]["gain"] == 0.5
    assert len(found["whole"]["python"]["ms_trials"]["compiled"]) == 1  # without the warm-up's
    assert [len(found[way]["other_s"]) for way in step_compiled.WAYS] == [0, 2, 0]
    assert len(found["by_block"]["graphs"]) == 3
    wrong = {"whole": lambda net: nn.init.normal_(net.scores.weight)}
    monkeypatch.setattr(step_compiled, "WAYS", wrong)
    with pytest.raises(AssertionError, match="not close"):
        step_compiled.process(("whole",), str(tmp_path))


def test_a_whole_and_its_parts_share_no_cache(small_steps, monkeypatch):
    caches = []

    class Processes:
        def __init__(self, *given, **options):
            assert options["max_tasks_per_child"] == 1

        def __enter__(self):
            return self

        def __exit__(self, *error):
            pass

        def map(self, work, names, folders):
            caches.extend(folders)
            return map(work, names, folders)

    monkeypatch.setattr(step_compiled, "ProcessPoolExecutor", Processes)
    result = step_compiled.main()
    assert caches[0] != caches[1] == caches[2]
    assert set(result["ways"]) == set(step_compiled.WAYS) and len(result["start_s"]) == 3
    assert result["cached"]["gain"] == 0.5


def test_a_step_is_timed_on_the_gpu_alone_too(gpu, monkeypatch):
    works = {"eager": partial(torch.ones, 3), "compiled": partial(torch.ones, 2)}
    monkeypatch.setattr(step_compiled, "gpu_clock", lambda work, **how: work().numel())
    found = step_compiled.timed(works)
    assert len(found["python"]["ms_trials"]["eager"]) == len(found["ms_trials"]["eager"]) == 11
    assert found["gpu"]["gain_trials"] == [1.5] * 7


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning")  # PyTorch's own look at it
def test_a_hook_that_cannot_be_traced_cuts_each_block(monkeypatch):
    monkeypatch.setattr(step_compiled, "by_block", lambda net: None)
    net = language_model.LanguageModel(64, 2, 8)
    step_compiled.with_breaks(net)
    handed = blocks_compiled.Handed()
    torch.compiler.reset()
    for block in net.blocks:
        block.compile(backend=handed)
    tokens, _ = language_model.successors(2, 8, "cpu")
    net(tokens)
    assert len(handed.operations) >= 2


def test_small_steps_are_trained_alike_in_every_way(gpu, monkeypatch):
    given = eagerly(monkeypatch)
    monkeypatch.setattr(torch.compiler, "cudagraph_mark_step_begin", lambda: None)
    smaller(monkeypatch, small_step_compiled, WIDTH=64, BLOCKS=1, BATCH=2, TOKENS=8)
    result = small_step_compiled.main()
    assert given == [{}, {"mode": "reduce-overhead"}, {}]
    assert list(result["losses"]) == ["eager", "compiled", "reduce_overhead", "graph", "compiled_graph"]
    assert all(row == pytest.approx(result["losses"]["eager"]) for row in result["losses"].values())
    assert list(result["gpu"]["ms"]) == ["eager", "graph", "compiled_graph"]


def test_matmuls_of_triton_and_of_cublas_are_told_apart(monkeypatch):
    names = [
        ("stream 7", "triton_tem_fused_addmm_2"),
        ("stream 7", "nvjet_tst_128x256_64x4"),
        ("stream 7", "triton_poi_fused_gelu"),
        ("CPU", "cuLaunchKernel of a gemm"),
    ]
    rows = [[lane, 0, 1, name] for lane, name in names]
    monkeypatch.setattr(block_autotuned, "lanes", lambda work: rows)
    assert block_autotuned.matmuls(print) == {"triton": 1, "cublas": 1}


def test_a_block_is_compiled_in_each_mode_for_each_batch(gpu, monkeypatch, tmp_path):
    given = eagerly(monkeypatch)
    monkeypatch.setattr(torch.compiler, "reset", lambda: None)
    smaller(monkeypatch, block_autotuned, WIDTH=64, TOKENS=8, BATCHES={"many": 2, "few": 1})
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "before")
    with torch._inductor.config.patch(autotune_num_choices_displayed=10):  # monkeypatch hides it from 2.11
        found = block_autotuned.process(str(tmp_path))
    modes = [options.get("mode") for options in given]
    assert modes == [None, None, "max-autotune-no-cudagraphs", None, "max-autotune-no-cudagraphs"]
    assert list(found) == ["many", "few"] and list(found["few"]["us"]) == [
        "eager",
        "compiled",
        "max_autotune",
    ]


def test_autocast_with_its_cache_trains_on_old_weights(gpu, monkeypatch):
    sizes = {"WIDTH": 64, "BLOCKS": 1, "BATCH": 2, "TOKENS": 8, "STEPS": 8, "WORDS": 32}
    smaller(monkeypatch, autocast_captured, **sizes)

    def autocast(cache=True):
        return torch.autocast("cpu", torch.bfloat16, cache_enabled=cache)

    monkeypatch.setattr(autocast_captured, "autocast", autocast)
    monkeypatch.setattr(torch.cuda, "make_graphed_callables", lambda net, samples: net)
    result = autocast_captured.main()
    differs = result["differs_by"]
    assert differs["cache_off"] == differs["whole"] == 0 < 1e-3 < differs["cache_on"]
    assert result["losses"]["cache_on"] == result["losses"]["eager_around"] != result["losses"]["eager"]
    assert list(result["ms"]) == ["cache_off", "callable", "eager", "whole"]


def test_a_refusal_is_the_first_line_of_its_error():
    def refuse():
        raise RuntimeError("no\nmore")

    assert (autocast_captured.refusal(refuse), autocast_captured.refusal(list)) == ("no", "")


def test_errors_beside_a_capture_are_those_of_either_thread(gpu, monkeypatch):
    def capture(graph, capture_error_mode):
        assert capture_error_mode == "global"
        return gpu.capture(graph)

    def fails():
        return lambda: torch.ones(2) + torch.ones(3)

    def breaks():
        raise RuntimeError("CUDA error: invalidated")

    monkeypatch.setattr(torch.cuda, "graph", capture)
    monkeypatch.setattr(capture_beside_threads, "ROWS", 4)
    monkeypatch.setattr(capture_beside_threads, "ACTIONS", (capture_beside_threads.copies, fails))
    assert capture_beside_threads.beside_a_capture((0, "global")) == {
        "thread": "",
        "capture": "",
        "right": True,
    }
    failed = capture_beside_threads.beside_a_capture((1, "global"))
    assert failed["right"] and "The size of tensor" in failed["thread"] and failed["capture"] == ""
    assert capture_beside_threads.error_of(breaks) == "RuntimeError: CUDA error: invalidated"


def test_buckets_pad_what_they_are_given(gpu, monkeypatch):
    sizes = {"WIDTH": 64, "BLOCKS": 1, "BATCH": 2, "LONGEST": 16, "BATCHES": 6, "COUNTS": (1, 4)}
    smaller(monkeypatch, graph_buckets, **sizes)
    result = graph_buckets.main()
    assert result["rows"][0]["padding"] > result["rows"][1]["padding"] > 0
    assert max(result["differs_by"].values()) <= 1e-5
    assert list(result["ms"]) == ["eager", "1", "4"]


def test_bucketed_takes_the_smallest_that_fits(gpu):
    seen = []

    def step(tokens, targets):
        seen.append(tokens.shape[1])
        return torch.where(targets == -100, 0, tokens).sum()

    call = graph_buckets.bucketed(step, [2, 8, 4], lambda size: torch.ones(2, 1, size, dtype=torch.long))
    assert seen == [8, 8, 4, 4, 2, 2]
    for length in (3, 8, 1):
        rows = torch.full((1, length), 5)
        assert call(rows, rows).item() == 5 * length
    with pytest.raises(ValueError, match="9 tokens are more than 8"):
        call(*torch.ones(2, 1, 9, dtype=torch.long))
    with pytest.raises(ValueError, match="3 rows, captured for 1"):
        call(*torch.ones(2, 3, 4, dtype=torch.long))


def test_buckets_leave_what_is_kept_as_it_was_and_refuse_what_does_not_fit(gpu):
    weight, count = torch.ones(3), []

    def step(tokens, targets):
        weight.add_(1)
        count.append(tokens.shape[1])
        return torch.where(targets == -7, 0, tokens).sum() + weight[0]

    def example(size):
        return torch.ones(2, 2, size, dtype=torch.long).unbind()

    call = padded_batches.bucketed(step, [4, 2], example, kept=[weight], token=9, ignored=-7)
    assert count == [4, 4, 2, 2] and weight.tolist() == [1, 1, 1]
    batch = torch.full((2, 3), 5)
    assert call(batch, batch).item() == 6 * 5 + 2 and weight.tolist() == [2, 2, 2]
    refused = {
        "2, 1": (batch, batch[:, :1]),
        "1, 3": (batch[1:], batch[1:]),
        "float32": (batch.float(), batch),
        "5 tokens, captured for 1 to 4": example(5),
        "0 tokens": example(0),
        r"\(2,\)": example(1)[0].unbind(1) * 2,
    }
    for told, (tokens, targets) in refused.items():
        with pytest.raises(ValueError, match=told):
            call(tokens, targets)
    for wrong in (lambda size: example(4), lambda size: (example(size)[0], example(1)[0])):
        with pytest.raises(ValueError, match="tokens and targets are"):
            padded_batches.bucketed(step, [4, 2], wrong)
    with pytest.raises(ValueError, match="no sizes"):
        padded_batches.bucketed(step, [], example)
    assert weight.tolist() == [2, 2, 2]


def test_a_step_that_raises_in_the_warm_up_leaves_what_is_kept_as_it_was(gpu):
    weight, lengths = torch.ones(3), []

    def step(tokens, targets):
        weight.add_(1)
        lengths.append(tokens.shape[1])
        assert lengths != [4, 4, 2]
        return tokens.sum()

    with pytest.raises(AssertionError):
        padded_batches.bucketed(step, [4, 2], lambda size: torch.ones(2, 2, size).unbind(), kept=[weight])
    assert lengths == [4, 4, 2] and weight.tolist() == [1, 1, 1]


def test_padded_batches_train_as_eager_does(gpu, monkeypatch):
    sizes = {"WIDTH": 64, "BLOCKS": 1, "ROWS": 2, "SIZES": (4, 8), "LENGTHS": (8, 3, 1)}
    for name, value in sizes.items():
        monkeypatch.setattr(padded_batches, name, value)
    result = padded_batches.main()
    assert padded_batches.derive(result)["differ_by"] < 1e-4
    assert all(result["refused"].values()) and len(result["refused"]) == 5


def test_padding_is_what_no_text_fills(monkeypatch):
    monkeypatch.setattr(graph_buckets, "LONGEST", 8)
    assert graph_buckets.evenly(2) == [4, 8]
    assert graph_buckets.padded_share([4, 2, 7], [4, 8]) == pytest.approx(3 / 16)


@torch.no_grad()
def test_both_caches_continue_a_text_as_no_cache_does():
    net = language_model.LanguageModel(64, 2, 32)
    prompt = torch.randint(net.token.num_embeddings, (2, 5))
    expected = static_cache.without_cache(net, prompt, 6)
    for cache in (static_cache.Growing(net, prompt), static_cache.Static(net, prompt, 16)):
        assert torch.equal(static_cache.generate(cache, cache.step, 6), expected)


@torch.no_grad()
def test_a_static_step_is_compiled_once():
    net, prompt = language_model.LanguageModel(64, 1, 32), torch.ones(1, 5, dtype=torch.long)
    assert static_cache.graphs_of(static_cache.Static(net, prompt, 16), 3) == [1, 1, 1]
    assert static_cache.graphs_of(static_cache.Growing(net, prompt), 3)[-1] > 1


def small_decoding(monkeypatch, *modules):
    for module in modules:
        smaller(monkeypatch, module, CONTEXT=16, PROMPT=4, STEPS=6)
    monkeypatch.setattr(decode_step, "BLOCKS", 2)

    def turns(works, clock, **options):
        return {name: Timing([clock(work, 1)] * 3) for name, work in works.items()}

    for module in modules:
        monkeypatch.setattr(module, "take_turns", turns)


def test_caches_and_graphs_make_the_same_tokens_on_an_imitation(gpu, monkeypatch):
    small_decoding(monkeypatch, decode_step)
    monkeypatch.setattr(decode_step, "WIDTH", 64)
    result = json.loads(json.dumps(decode_step.uncompiled()))
    assert list(result["us"]) == ["static", "growing", "graph"] == list(result["gpu"])
    assert set(result["agree"].values()) == {7}, "the first and six steps"
    assert result["gpu"]["graph"]["launches"] == 1 < 30 < result["gpu"]["static"]["launches"]
    assert result["us"]["graph"] < result["us"]["static"] and list(result["read"]["us"]) == [
        "static",
        "static_read",
        "graph",
        "graph_read",
    ]
    assert result["bytes"]["cache"] == 2 * 2 * 64 * (4 + 3) * 2 and result["room"] == 2 * 2 * 64 * 16 * 2


@pytest.mark.parametrize("mode", [None, "reduce-overhead"])
def test_a_compiled_step_makes_the_same_tokens_on_an_imitation(mode, gpu, monkeypatch, tmp_path):
    given = eagerly(monkeypatch)
    small_decoding(monkeypatch, decode_step)
    monkeypatch.setattr(decode_step, "WIDTH", 64)
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "before")
    result = decode_step.compiled(str(tmp_path), mode)
    ways = ["compiled", "compiled_graph"] if mode is None else ["reduce_overhead"]
    assert list(result["us"]) == ["static", *ways] and given == [{"mode": mode}]
    assert set(result["agree"].values()) == {7} and result["cudagraph_skips"] == 0


def test_pytorchs_attention_takes_the_place_of_that_by_hand(gpu, monkeypatch):
    small_decoding(monkeypatch, decode_step)
    monkeypatch.setattr(decode_step, "WIDTH", 64)
    result = decode_step.with_pytorchs_attention()
    assert set(result["agree"].values()) == {7} and list(result["us"]) == [
        "static",
        "attention",
        "attention_graph",
    ]


@torch.no_grad()
def test_attention_by_hand_is_pytorchs():
    q = torch.randn(2, 3, 1, 8)
    keys, values = torch.randn(2, 2, 3, 5, 8)
    filled = torch.tensor([True, True, False, True, False])[None, None, None]
    scale = static_cache.HEAD**0.5 / 8**0.5
    found = static_cache.attention(q * scale, keys, values, filled)
    torch.testing.assert_close(found, decode_step.pytorchs(q, keys, values, filled))


@torch.no_grad()
def test_a_step_that_is_told_its_tokens_scores_as_the_whole_text_does():
    net, prompt = language_model.LanguageModel(64, 2, 32), torch.randint(4096, (1, 5))
    text = torch.randint(4096, (1, 6))
    expected = net(torch.cat([prompt, text], 1))[:, 5:]
    for cache in (static_cache.Growing(net, prompt), static_cache.Static(net, prompt, 16)):
        for _ in range(2):  # rewound, and none of its first text is seen
            torch.testing.assert_close(decode_step.forced(cache, cache.step, text), expected)


@torch.no_grad()
def test_a_wrong_way_to_decode_is_not_timed(gpu, monkeypatch):
    small_decoding(monkeypatch, decode_step)
    net, prompt = decode_step.network(64, 1)
    static = static_cache.Static(net, prompt, 16)
    ways = {"static": (static, static.step), "wrong": (static, lambda: static.step() + 1)}
    with pytest.raises(AssertionError, match="not close"):
        decode_step.compared(net, prompt, ways)


def nothing():
    return {"us": {}}


def fails():
    raise RuntimeError("no\nmore")


def test_a_part_that_fails_or_hangs_says_so_and_the_others_remain(monkeypatch):
    assert decode_step.apart(nothing, LIMIT_S) == {"us": {}}
    assert decode_step.apart(fails, LIMIT_S) == {"error": "RuntimeError: no"}
    assert decode_step.apart(partial(time.sleep, LIMIT_S), 0.5) == {"error": "not done after 0.5 s"}
    assert decode_step.apart(partial(os._exit, 1), LIMIT_S) == {"error": "the process died"}


def test_main_prints_what_worked_and_names_what_did_not(gpu, monkeypatch, capsys):
    eagerly(monkeypatch)
    small_decoding(monkeypatch, decode_step)
    monkeypatch.setattr(decode_step, "WIDTH", 64)
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "before")

    def apart(part, limit_s):
        if isinstance(part, partial) and "reduce-overhead" in part.args:
            return {"error": "RuntimeError: no"}
        return part()

    monkeypatch.setattr(decode_step, "apart", apart)
    result = json.loads(json.dumps(decode_step.main()))
    printed = capsys.readouterr().out
    assert printed.count(" µs a token,") == 9 and "reduce_overhead: RuntimeError: no\n" in printed
    (panel,) = decode_step.plot(result, {"hbm_gb_s": 1000}).panels
    rows = {row for mark in panel.marks for row in getattr(mark, "values", ())}
    assert len(rows) == 7 and "compiled, reduce-overhead" not in rows


def test_larger_models_and_more_texts_are_decoded(gpu, monkeypatch):
    small_decoding(monkeypatch, decode_step, decode_sizes)
    smaller_sizes = {"WIDTHS": (64, 128), "WIDTH": 64, "TEXTS": (2,)}
    for name, value in smaller_sizes.items():
        monkeypatch.setattr(decode_sizes, name, value)
    result = json.loads(json.dumps(decode_sizes.main()))
    assert [row["width"] for row in result["widths"]] == [64, 128]
    one, two = result["texts"]
    assert two["bytes"] == {"weights": one["bytes"]["weights"], "cache": 2 * one["bytes"]["cache"]}
    assert one["gpu"]["kernels"] == two["gpu"]["kernels"] > 30


def test_a_graph_is_replayed_before_and_after_another_is_recorded(gpu, monkeypatch):
    given = eagerly(monkeypatch)
    cleared = []
    monkeypatch.setattr(torch._C, "_cuda_clearCublasWorkspaces", lambda: cleared.append(1), raising=False)
    monkeypatch.setattr(workspace_freed, "SHAPES", ((2, 8, 4), (1, 4, 4)))
    monkeypatch.setattr(workspace_freed, "apart", lambda part, limit_s: part())
    result = workspace_freed.main()
    assert all(row["right"] for row in result.values()) and list(result) == [
        "graph_last",
        "graph_first",
        "cleared",
    ]
    assert len(given) == 2 and cleared == [1]

    def refuses():
        raise RuntimeError("CUDA error: no\nmore")

    monkeypatch.setattr(workspace_freed, "captured", lambda work: refuses)
    row = workspace_freed.replay_in_order("cleared")
    assert row["error"] == "CUDA error: no" and not row["right"]


def test_operators_that_only_look_are_not_counted():
    x = torch.ones(2, 3)
    with static_cache.Operators() as operators:
        (x + 1).view(-1)
    assert operators.names == ["aten::add.Tensor"]


#: To begin, `reduce-overhead` captures an empty graph, which warns, and PyTorch means to hide the warning.
#: As an error it is not hidden.


@pytest.mark.gpu
@pytest.mark.program("graphs/autocast_captured", quick=True, STEPS=30)
def test_captured_steps_train_as_eager_ones_unless_autocast_keeps_its_weights(returned):
    differs_by = returned["differs_by"]
    assert max(differs_by[name] for name in ("cache_off", "callable", "whole")) < 1e-3
    assert min(differs_by[name] for name in ("cache_on", "eager_around")) > 3e-3


@pytest.mark.gpu
@pytest.mark.program("graphs/graph_buckets", quick=True, COUNTS=(1, 4))
def test_padded_batches_have_the_losses_of_a_model_without_graphs(returned):
    assert max(returned["differs_by"].values()) < 1e-4
    assert [row["buckets"] for row in returned["rows"]] == [1, 4]


@pytest.mark.gpu
@pytest.mark.program("graphs/small_step_compiled", quick=True, BLOCKS=1)
def test_each_way_to_make_a_small_step_has_the_losses_of_eager(returned):
    expected = returned["losses"].pop("eager")
    assert set(returned["losses"]) == {"compiled", "reduce_overhead", "graph", "compiled_graph"}
    for losses in returned["losses"].values():
        assert losses == pytest.approx(expected, rel=0.02)


@pytest.mark.gpu
@pytest.mark.program("graphs/static_cache", BLOCKS=2)
def test_a_static_cache_is_compiled_once_on_a_gpu(returned):
    assert returned["graphs"]["static"] == [1] * 6 and returned["graphs"]["growing"][-1] == 2


def small_model(snippet, monkeypatch, **sizes):
    """A language model of two narrow blocks in the place of the snippet's."""
    for name, size in ({"WIDTH": 128, "BLOCKS": 2, "STEPS": 4} | sizes).items():
        monkeypatch.setattr(snippet, name, size)


def test_a_prefill_counts_each_pair_of_tokens_half(monkeypatch):
    small_model(prefill_and_decode, monkeypatch, CONTEXT=32)
    net = prefill_and_decode.network("cpu")
    embedded = net.token.weight.numel() + net.place.weight.numel()
    matmuls = 2 * (language_model.parameters(net) - embedded)
    one, two = (prefill_and_decode.prefill_flop(net, tokens) for tokens in (8, 16))
    assert two - 2 * one == (2 * 16**2 - 2 * 2 * 8**2) * 128 * 2
    assert one == 8 * matmuls + 2 * 8**2 * 128 * 2


@torch.no_grad()
def test_a_prefill_fills_the_cache_and_gives_the_first_token(monkeypatch):
    small_model(prefill_and_decode, monkeypatch, CONTEXT=32)
    net = prefill_and_decode.network("cpu")
    prompt = torch.randint(4096, (1, 8))
    assert 0 < prefill_and_decode.checked(net, prompt) < prefill_and_decode.TOLERANCE
    cache = static_cache.Static(net, prompt, 16, decode_step.pytorchs)
    keys = cache.keys_0.clone()
    cache.keys_0.zero_()
    scores = prefill_and_decode.prefill(cache, prompt)
    assert torch.equal(cache.keys_0, keys) and scores.shape == (1, 1, 4096)
    monkeypatch.setattr(prefill_and_decode, "prefill", lambda cache, prompt: scores + 1)
    with pytest.raises(AssertionError):
        prefill_and_decode.checked(net, prompt)


def test_prefill_and_decode_stand_beside_each_other(gpu, monkeypatch, capsys):
    small_model(prefill_and_decode, monkeypatch, CONTEXT=64, PROMPTS=(4, 8))
    monkeypatch.setattr(prefill_and_decode, "checked", lambda net, prompt: 0.01)
    monkeypatch.setattr(prefill_and_decode, "captured", lambda work: work)
    result = json.loads(json.dumps(prefill_and_decode.main()))
    first, second = result["prompts"]
    assert second["bytes"] - first["bytes"] == 2 * 4 * 2 * 2 * 128, "keys and values of four places"
    assert first["prefill_tokens_s"] == pytest.approx(4e3 / first["ms"]["prefill"])
    limits = {"bf16_tflop_s": 1000, "hbm_gb_s": 4000}
    assert prefill_and_decode.plot(result, limits) and capsys.readouterr().out.count("TFLOP/s") == 2


@pytest.mark.gpu
def test_a_long_prompt_is_read_faster_than_text_is_written():
    rows = run_alone("graphs/prefill_and_decode", PROMPTS=(16, 64, 256, 1024), CONTEXT=1056, BLOCKS=4)[
        "prompts"
    ]
    assert rows[3]["prefill_tokens_s"] > 20 * rows[3]["decode_tokens_s"]


def test_a_step_of_more_texts_reads_the_weights_once(gpu, monkeypatch, capsys):
    small_model(decode_batches, monkeypatch, PROMPT=4, TEXTS=(1, 3))
    monkeypatch.setattr(decode_batches, "captured", lambda work: work)
    result = json.loads(json.dumps(decode_batches.main()))
    one, three = result["batches"]
    assert three["bytes"]["weights"] == one["bytes"]["weights"] and three["flop"] == 3 * one["flop"]
    assert three["bytes"]["cache"] == 3 * one["bytes"]["cache"]
    derived = decode_batches.derive(result)
    assert derived["gain"][0] == 1 and derived["cache_share"][1] > derived["cache_share"][0]
    assert decode_batches.plot(result, {"hbm_gb_s": 4000}) and "tokens/s" in capsys.readouterr().out


def test_attentions_that_differ_are_not_timed(gpu, monkeypatch):
    small_model(decode_batches, monkeypatch, PROMPT=4, TEXTS=(1,))
    wrong = lambda q, keys, values, filled: values[:, :, :1] * 100  # noqa: E731
    monkeypatch.setitem(decode_batches.ATTENTIONS, "pytorchs", wrong)
    with pytest.raises(AssertionError):
        decode_batches.main()


@pytest.mark.gpu
def test_more_texts_get_more_tokens_on_a_gpu():
    rates = [row["tokens_s"] for row in run_alone("graphs/decode_batches", TEXTS=(1, 4, 16))["batches"]]
    assert rates == sorted(rates) and rates[2] > 8 * rates[0]


@pytest.mark.parametrize("kept", [1, 2, 8])
def test_heads_that_share_keys_see_what_copies_would_show(kept):
    torch.manual_seed(0)
    q = torch.randn(2, 8, 1, 16)
    keys, values = torch.randn(2, 2, kept, 5, 16)
    exact = grouped_query.repeated(q, keys, values)
    torch.testing.assert_close(grouped_query.grouped(q, keys, values), exact)
    torch.testing.assert_close(grouped_query.pytorchs(q, keys, values), exact)


def test_a_cache_of_fewer_heads_is_smaller(gpu, monkeypatch, capsys):
    for name, size in {"TEXTS": 2, "HEADS": 4, "PLACES": 8, "HEAD": 16, "KEPT": (4, 1)}.items():
        monkeypatch.setattr(grouped_query, name, size)
    result = json.loads(json.dumps(grouped_query.main()))
    four, one = result["rows"]
    assert four["cache_bytes"] == 4 * one["cache_bytes"] == 2 * result["of_a_text_bytes"]
    assert grouped_query.plot(result, {"hbm_gb_s": 4000}) and "heads kept" in capsys.readouterr().out
    monkeypatch.setitem(grouped_query.WAYS, "grouped", lambda q, keys, values: q * 2)
    with pytest.raises(AssertionError, match="grouped is off"):
        grouped_query.main()


@pytest.mark.gpu
def test_fewer_heads_are_read_faster_on_a_gpu():
    rows = run_alone("graphs/grouped_query", KEPT=(32, 8))["rows"]
    assert rows[0]["us"]["grouped"] > 2 * rows[1]["us"]["grouped"]


def test_rows_are_padded_to_a_few_sizes():
    seen = []

    def call(x):
        seen.append(len(x))
        return x + 1

    for rows in sizes_recorded.SIZES:
        found = sizes_recorded.padded(call, torch.ones(rows, 2))
        assert torch.equal(found, torch.full((rows, 2), 2.0))
    assert len(set(seen)) == sizes_recorded.BUCKETS and max(seen) == sizes_recorded.LARGEST
    chosen = sizes_recorded.SETTINGS["chosen_sizes"]["triton.cudagraph_capture_sizes"]
    assert set(chosen) == set(seen), "both cures have graphs of the same sizes"


def test_settings_hold_while_the_network_is_called(monkeypatch, capsys):
    config = torch._inductor.config.triton
    seen = {}

    def looked_at(name, net, batches):
        seen[name] = config.cudagraph_skip_dynamic_graphs, config.cudagraph_capture_sizes
        grown = [{"used": (i + 1) * 2**20, "reserved": 0} for i in range(24)]
        return {"first_s": [1.0, 0.5, 0.002], "grown": grown, "graphs": 24, "us": 5.0, "us_trials": [5.0]}

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(sizes_recorded, "looked_at", looked_at)
    result = json.loads(json.dumps(sizes_recorded.main()))
    assert seen["each_size"] == seen["eager"] == (False, None) and seen["no_graph_if_dynamic"][0]
    assert seen["chosen_sizes"][1] == sizes_recorded.SIZES[5::6] and config.cudagraph_capture_sizes is None
    derived = sizes_recorded.derive(result)
    assert set(derived["mib"].values()) == {24.0} and derived["new_size_ms"] == 2.0
    assert sizes_recorded.plot(result, {}) and capsys.readouterr().out.count("24 graphs") == 5


def test_eager_calls_of_all_sizes_are_timed(gpu, monkeypatch):
    monkeypatch.setattr(sizes_recorded, "WIDTH", 8)
    batches = [torch.ones(rows, 8) for rows in (2, 3)]
    row = sizes_recorded.looked_at("eager", sizes_recorded.network("cpu"), batches)
    assert row["graphs"] == 0 and len(row["grown"]) == len(row["first_s"]) == 2


@pytest.mark.gpu
@pytest.mark.program(
    "graphs/sizes_recorded", quick=True, COUNT=8, LAYERS=4, SIZES=(96, 192, 288, 384, 480, 576, 672, 768)
)
def test_reduce_overhead_records_a_graph_for_each_size_on_a_gpu(returned):
    ways = returned["ways"]
    graphs = {name: row["graphs"] for name, row in ways.items()}
    assert graphs["each_size"] >= len(ways["each_size"]["first_s"]) == 8
    assert graphs["padded"] == graphs["chosen_sizes"] == sizes_recorded.BUCKETS
    assert graphs["no_graph_if_dynamic"] <= 2 and graphs["eager"] == 0


@pytest.mark.parametrize("kind", ["fp8", "int8"])
def test_a_layer_in_eight_bits_is_near_the_layer(kind, monkeypatch):
    monkeypatch.setattr(torch, "compile", lambda function, dynamic: function)
    torch.manual_seed(0)
    layer = nn.Linear(64, 32).bfloat16()
    low = decode_eight_bits.Low(layer, kind)
    x = torch.randn(1, 1, 64).bfloat16()
    with torch.no_grad():
        off = (low(x) - layer(x)).norm() / layer(x).norm()
    assert off < (0.05 if kind == "fp8" else 0.02) and low.low.element_size() == 1
    assert isinstance(decode_eight_bits.lowered(nn.Sequential(layer), kind)[0], decode_eight_bits.Low)


@torch.no_grad()
def test_steps_in_eight_bits_are_compared_with_bf16(monkeypatch):
    monkeypatch.setattr(torch, "compile", lambda function, dynamic: function)
    for name, value in {"WIDTH": 64, "BLOCKS": 1, "PROMPT": 4, "STEPS": 4}.items():
        monkeypatch.setattr(decode_eight_bits, name, value)
    monkeypatch.setattr(decode_eight_bits, "captured", lambda work: work)
    row = json.loads(json.dumps(decode_eight_bits.with_texts(1, ("bf16", "fp8", "int8"), "cpu")))
    assert row["bytes"]["bf16"]["weights"] == 2 * row["bytes"]["int8"]["weights"]
    assert row["error"]["bf16"] == 0 < row["error"]["int8"] < row["error"]["fp8"]
    assert decode_eight_bits.plot({"rows": [row]}, {})


@pytest.mark.gpu
def test_weights_in_eight_bits_make_a_token_shorter():
    row = run_alone("graphs/decode_eight_bits", BLOCKS=2)["rows"][0]
    assert row["gain"]["fp8"] > 1 and row["gain"]["int8"] > 1


SMALL_SEVEN: dict = {"BLOCKS": 2, "WIDTH": 64, "HEADS": 2, "HIDDEN": 176, "VOCABULARY": 100, "CONTEXT": 32}
SMALL_SEVEN |= {"PLACES": 16, "STEPS": 4, "FORCED": 3, "TEXTS": (1, 3), "TRAINED": 1}


@pytest.fixture
def small_seven(monkeypatch):
    """The decoder of `seven_billion` with tiny widths, and no graph."""
    for name, size in SMALL_SEVEN.items():
        monkeypatch.setattr(seven_billion, name, size)
    monkeypatch.setattr(seven_billion, "captured", lambda work: work)


def in_float32(blocks=2):
    torch.manual_seed(0)
    return seven_billion.Decoder(blocks, 64, 2, 176, 100, 32, torch.float32)


def test_the_decoder_has_the_parameters_of_llama_seven_b():
    sizes = (seven_billion.BLOCKS, seven_billion.WIDTH, seven_billion.HEADS, seven_billion.HIDDEN)
    with torch.device("meta"):
        net = seven_billion.Decoder(*sizes, seven_billion.VOCABULARY, seven_billion.CONTEXT)
    assert language_model.parameters(net) == 6_738_415_616
    least = seven_billion.least_bytes(net, 2, 1000)
    assert least == {"weights": 2 * (6_738_415_616 - 32_000 * 4096), "cache": 2 * 2 * 32 * 4096 * 2000}
    room = seven_billion.needed_gib(64) - seven_billion.BESIDE_GIB
    cache = least["cache"] / 2000 * 1024 * 65
    assert room == pytest.approx((2 * language_model.parameters(net) + cache) / 2**30, rel=1e-3)
    assert seven_billion.needed_gib(64) < all_snippets()["graphs/seven_billion"].options["gpu_gib"] < 60


@torch.no_grad()
def test_a_cached_step_of_the_decoder_scores_as_the_whole_text_does():
    net, text = in_float32(), torch.randint(100, (3, 9))
    text[:, 0] = 0
    cache = seven_billion.Decoding(net, 3, 16, 0)
    for _ in range(2):  # rewound, and nothing of its first text is seen
        torch.testing.assert_close(decode_step.forced(cache, cache.step, text), net(text))


@torch.no_grad()
def test_a_block_of_joined_weights_gives_the_tokens_of_the_block():
    net, text = in_float32(), torch.randint(100, (3, 9))
    text[:, 0] = 0
    cache = seven_billion.Decoding(net, 3, 16, 0)
    blocks = [seven_billion_tuned.JoinedBlock(block) for block in net.blocks]
    assert sum(map(language_model.parameters, blocks)) == sum(map(language_model.parameters, net.blocks))
    cache.works = [block.with_cache for block in blocks]
    torch.testing.assert_close(decode_step.forced(cache, cache.step, text), net(text))


@torch.no_grad()
def test_a_layer_in_int8_is_near_its_layer_and_half_as_large():
    layer = nn.Linear(4096, 32, bias=False).bfloat16()
    low = seven_billion_low.InInt8(layer)
    seven_billion_low.checked(layer, low, 0.02)
    assert seven_billion_low.held_bytes(nn.ModuleDict({"scores": layer, "norm": nn.Identity()}), [low]) == (
        2 * 32 * 4096 + 32 * 4096 + 2 * 32
    )
    low.scale[:16] *= 1.5
    with pytest.raises(AssertionError):
        seven_billion_low.checked(layer, low, 0.02)


def test_products_of_one_row_are_those_of_each_weight():
    rows, weights = [torch.randn(1, 6)] * 2, [torch.randn(n, 6) for n in (3, 5)]
    found = one_row_products.products(nn.functional.linear, rows, weights)()
    assert one_row_products.checked(found, rows, weights) < 1e-6
    with pytest.raises(AssertionError):
        one_row_products.checked([found[0], found[1] + found[1].abs().max() / 50], rows, weights)


def test_rotary_scores_depend_on_the_distance_alone():
    q, k = torch.randn(2, 1, 1, 1, 16)
    angles = seven_billion.angles_of(12, 16)

    def score(i, j):
        places = angles[:, i : i + 1], angles[:, j : j + 1]
        return (seven_billion.rotated(q, places[0]) * seven_billion.rotated(k, places[1])).sum()

    torch.testing.assert_close(score(9, 5), score(4, 0), rtol=1e-4, atol=1e-4)
    assert not torch.isclose(score(9, 5), score(9, 4), rtol=1e-3)


@torch.no_grad()
def test_equal_blocks_of_the_decoder_are_compiled_once(monkeypatch):
    graphs, compiles = [], torch.compile
    backend = lambda graph, _: graphs.append(graph) or graph.forward  # noqa: E731
    monkeypatch.setattr(torch, "compile", partial(compiles, backend=backend))
    cache, text = seven_billion.Decoding(in_float32(blocks=10), 1, 16, 4), torch.randint(100, (1, 3))
    compiled = cache.compiled()
    expected = decode_step.forced(cache, cache.step, text)
    torch.testing.assert_close(decode_step.forced(compiled, compiled.step, text), expected)
    assert len(graphs) == 1


def test_scores_of_one_token_that_differ_are_not_timed(small_seven):
    scores = torch.randn(50, 4, 100)
    assert seven_billion.apart(scores * 1.1, scores) == pytest.approx(0.1, rel=1e-3)
    wrong = scores.clone()
    wrong[2, 3] = scores[2, 2]
    with pytest.raises(AssertionError):
        seven_billion.apart(wrong, scores)
    with torch.no_grad():
        net = seven_billion.network("cpu")
        assert 0 <= seven_billion.checked(net) < seven_billion.TOLERANCE
        cache = seven_billion.Decoding(net, 1, 16, 12)
        ways = {"eager": (cache, cache.step), "wrong": (cache, lambda: cache.step() + 1)}
        with pytest.raises(AssertionError):
            seven_billion.compared(ways)


def test_a_training_step_of_the_decoder_counts_its_flop():
    training = seven_billion.Training(in_float32(), 1, 8)
    for _ in range(2):  # gradients are dropped, not added
        training.step()
        first = training.x.grad.clone()
    x = training.x.detach().requires_grad_()
    training.blocks[0](x, training.angles).backward(training.gradient)
    torch.testing.assert_close(first, x.grad)
    assert training.flop() == 3 * (2 * 8 * (4 * 64**2 + 3 * 64 * 176) + 2 * 8**2 * 64)


def test_too_little_memory_is_said_with_what_to_do():
    seven_billion.check_room(60)
    with pytest.raises(RuntimeError, match=r"and 40 are free: end other .* or set TEXTS = \(1, 4, 16\)"):
        seven_billion.check_room(40)
    with pytest.raises(RuntimeError, match="or take a larger GPU"):
        seven_billion.check_room(16)


def test_the_decoder_is_compared_on_an_imitation(gpu, small_seven, monkeypatch, capsys):
    given = eagerly(monkeypatch)
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "before")
    monkeypatch.setenv("TRITON_CACHE_DIR", "before")
    result = json.loads(json.dumps(seven_billion.main()))
    one, three = result["rows"]
    assert list(one["us"]) == ["eager", "graph", "compiled_graph"] == list(one["gpu"])
    assert list(three["us"]) == ["eager", "graph"] and three["bytes"]["weights"] == one["bytes"]["weights"]
    assert one["agree"] == {"eager": 5, "graph": 5, "compiled_graph": 5} and len(given) == 2
    assert result["train"]["gpu"]["launches"] > 10 and result["differs_by"] < seven_billion.TOLERANCE
    derived = seven_billion.derive(result)
    assert derived["tokens_s"]["graph"][1] == pytest.approx(3e6 / three["us"]["graph"])
    assert derived["gb_s"]["eager"] == pytest.approx(sum(one["bytes"].values()) / one["us"]["eager"] / 1e3)
    assert derived["many_gb_s"] == pytest.approx(sum(three["bytes"].values()) / three["us"]["graph"] / 1e3)
    picture, others = seven_billion.plot(result, {"hbm_gb_s": 4000})
    assert len(picture.panels[0].marks) == 3 and list(others) == ["texts"]
    assert capsys.readouterr().out.count("kernels that run for") == 4


@pytest.mark.gpu
def test_a_graph_of_the_decoder_is_faster_than_its_launches():
    result = run_alone("graphs/seven_billion", BLOCKS=4, TEXTS=(1, 4), TRAINED=2)
    one = result["rows"][0]
    assert one["gain"]["graph"] > 1 and one["gain"]["compiled_graph"] > 1
    assert one["gpu"]["graph"]["launches"] == 1 < 80 < one["gpu"]["eager"]["launches"]
