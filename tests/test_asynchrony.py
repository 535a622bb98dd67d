"""The asynchrony chapter: returning is not finishing, and who waits for whom."""

import json
import random
import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from snippets.asynchrony import (
    async_warmup,
    blockers,
    copies_that_wait,
    data_blockers,
    debug_mode_misses,
    dependency_trace,
    error_messages,
    errors_arrive_late,
    generation_blockers,
    index_blockers,
    launch_vs_finish,
    queue_memory,
    run_ahead,
    training_blockers,
    two_cpu_operators,
    under_memcheck,
    wait_each_step,
    waits,
    where_nan_begins,
)

LINES = {
    "blockers": blockers.value_lines,
    "index_blockers": index_blockers.index_lines,
    "copies_that_wait": copies_that_wait.copy_lines,
    "training_blockers": training_blockers.optimizer_lines,
    "data_blockers": data_blockers.data_lines,
    "generation_blockers": generation_blockers.loop_lines,
}


@pytest.fixture
def small_lines(monkeypatch):
    """Lines of small copies, and a scaler of gradients on the CPU."""
    scaler = torch.amp.GradScaler
    monkeypatch.setattr(torch.amp, "GradScaler", lambda device: scaler("cpu"))
    monkeypatch.setattr(copies_that_wait, "KIB", (4, 8))


@pytest.mark.parametrize(
    ("call", "waiting"),
    [
        (lambda gpu: gpu.synchronize(), True),
        (lambda gpu: gpu.launch(1.0), False),
        (lambda gpu: None, False),
        (lambda gpu: gpu.sleep(0.1), False),
        (lambda gpu: (gpu.sleep(0.1), gpu.synchronize()), True),
        (lambda gpu: (gpu.launch(0.05), gpu.synchronize()), True),
    ],
    ids=["waits", "launches", "does nothing", "slow", "slow and waits", "launches and waits"],
)
def test_waits_tells_slow_from_waiting(gpu, call, waiting):
    assert waits.waits(lambda: call(gpu)) is waiting


def test_a_function_is_timed_behind_a_kernel_of_known_length(gpu):
    assert waits.held(gpu.synchronize, busy_ms=7) == pytest.approx((7, 7), rel=0.01)
    held_ms, kernel_ms = waits.held(lambda: gpu.launch(1.0))
    assert held_ms == pytest.approx(0.01, rel=0.01) and kernel_ms == pytest.approx(15, abs=0.1), (
        "its own kernel is not counted"
    )


def test_an_error_of_the_function_reaches_its_caller(gpu):
    empty: dict[str, int] = {}
    with pytest.raises(KeyError):
        waits.waits(lambda: empty["nothing"])


def test_report_sorts_lines_by_what_they_were_held(gpu):
    result = waits.report(
        {"x.item()": gpu.synchronize, "x + 1": gpu.launch, "half": lambda: gpu.sleep(7.5e-3)}
    )
    assert (result["waits"], result["returns"]) == (["x.item()"], ["x + 1"])
    assert result["lines"]["half"]["share"] == pytest.approx(0.5, abs=0.01)
    assert result["lines"]["x.item()"]["blocked_ms"] == pytest.approx(15, abs=0.1)
    assert result["busy_ms"] == pytest.approx(15, abs=0.1)


@pytest.mark.parametrize("name", LINES)
def test_every_line_runs_as_often_as_it_is_asked(gpu, small_lines, name):
    for function in LINES[name]().values():
        for _ in range(8):
            function()


def test_a_copy_survives_only_if_it_left_before_its_source_was_overwritten(late):
    assert copies_that_wait.arrives(torch.ones(1024)), "ordinary memory is read at once"
    assert not copies_that_wait.arrives(torch.ones(1024, pin_memory=True))


def test_safe_sizes_are_those_that_survived(gpu, small_lines, monkeypatch):
    monkeypatch.setattr(copies_that_wait, "arrives", lambda host: host.nbytes == 4096 or host.is_pinned())
    assert copies_that_wait.main()["safe_kib"] == {"ordinary": [4], "pinned": [4, 8]}


def test_lines_of_all_files_have_names_of_their_own(gpu, small_lines):
    names = [line for lines in LINES.values() for line in lines()]
    assert len(names) == len(set(names))


def test_a_scaled_step_changes_the_weights_and_a_clipped_norm_is_one(gpu, small_lines):
    lines: dict[str, Any] = training_blockers.optimizer_lines()
    weights = lines["SGD.step()"].__self__.param_groups[0]["params"]
    before = weights[0].detach().clone()
    lines["scaler.step(SGD), update()"]()
    assert not torch.equal(weights[0], before)
    norm, again = lines["clip_grad_norm_(p, 1)"](), lines["clip_grad_norm_(p, 1)"]()
    assert norm > 1 and again == pytest.approx(1, abs=1e-3)


def test_only_warnings_of_synchronisation_are_counted_and_the_mode_comes_back(monkeypatch):
    modes = []
    monkeypatch.setattr(torch.cuda, "get_sync_debug_mode", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_sync_debug_mode", modes.append)

    def work():
        warnings.warn("called a synchronizing CUDA operation (Triggered internally ...)", stacklevel=1)
        warnings.warn("Synchronization debug mode is a prototype feature", stacklevel=1)

    assert debug_mode_misses.warned(lambda: (work(), work())) == 2
    with pytest.raises(ZeroDivisionError):
        debug_mode_misses.warned(lambda: 1 / 0)
    assert modes == ["warn", 2, "warn", 2]


def test_missed_is_what_waits_without_a_warning(monkeypatch):
    told = {"a": (True, 1), "b": (True, 0), "c": (False, 0), "d": (False, 2)}
    monkeypatch.setattr(debug_mode_misses, "value_lines", lambda: {name: name for name in told})
    for lines in ("index_lines", "copy_lines", "optimizer_lines", "data_lines"):
        monkeypatch.setattr(debug_mode_misses, lines, dict)
    monkeypatch.setattr(debug_mode_misses, "waits", lambda name: told[name][0])
    monkeypatch.setattr(debug_mode_misses, "warned", lambda name: told[name][1])
    result = debug_mode_misses.main()
    assert (result["missed"], result["accused"], result["lines"]) == (["b"], ["d"], 4)


@pytest.mark.parametrize(
    ("loop", "a", "module", "product"),
    [
        (async_warmup.numpy_loop, np.ones((8, 8), np.float32), np, "dot"),
        (async_warmup.torch_loop, torch.ones(8, 8, dtype=torch.float64), torch, "mm"),
    ],
)
def test_the_loops_square_one_matrix_or_fresh_ones_of_its_type(monkeypatch, loop, a, module, product):
    seen = []
    monkeypatch.setattr(module, product, lambda a, b: seen.append((a, b)))
    loop(a, draw=False)
    assert len(seen) == 10 and all(left is a and right is a for left, right in seen)
    loop(a, draw=True)
    drawn = seen[10:]
    assert len(drawn) == 10 and all(left is right and left.dtype == a.dtype for left, right in drawn)
    assert not (drawn[0][0] == drawn[1][0]).all()


def test_waiting_comes_after_returning(gpu):
    gpu.launch(1.0)
    returned, finished = async_warmup.returned_and_finished(lambda: gpu.launch(0.5, cpu_s=0.1))
    assert (returned, finished) == pytest.approx((0.1, 0.6), rel=1e-4), "what came before is not counted"


def test_factors_are_between_medians(monkeypatch):
    monkeypatch.setattr(async_warmup, "N", 48)
    result = async_warmup.main()
    ms = result["ms"]
    assert result["flop"] == 20 * 48**3
    assert result["factors"]["gap"] == ms["numpy_draw"] / ms["torch_draw_returned"]


def test_finishing_is_not_before_returning(gpu):
    gpu.kernel_s["mm"] = 50e-6
    gpu.launch(1.0)
    times = launch_vs_finish.timed(torch.ones(8, 8, device="cuda"))
    assert times == pytest.approx({"enqueue_us": 10, "finish_us": 50.25, "ratio": 5.025}, rel=1e-3)


def test_sizes_are_launched_in_another_order_each_round(monkeypatch):
    order = []

    def timed(n: int) -> dict:
        order.append(n)
        finish_us = max(13, n**3 / 4e8)
        return {"enqueue_us": 12.0, "finish_us": finish_us, "ratio": finish_us / 12}

    monkeypatch.setattr(launch_vs_finish, "checked_matrix", lambda n: n)
    monkeypatch.setattr(launch_vs_finish, "timed", timed)
    random.seed(0)
    result = launch_vs_finish.main()
    sizes = list(launch_vs_finish.SIZES)
    rounds = [order[i : i + len(sizes)] for i in range(0, len(order), len(sizes))]
    assert all(sorted(turn) == sizes for turn in rounds)
    before = [order[i - 1] for i, n in enumerate(order) if n == 128 and i]
    assert max(before.count(n) for n in set(before)) < 12, "no size always follows another"
    row = result["sweep"]["n8192"]
    assert row["ratio"] == row["ratio_trials"][0] == row["finish_us"] / 12
    assert result["launch_us"] == 12 and result["crossover_n"] ** 3 / 4e8 == pytest.approx(12)
    finished, *_ = launch_vs_finish.plot(result, {}).panels[0].marks
    assert list(finished.x) == sizes, "whatever the order in the file"


EVENTS = [
    ["CPU", 0.0, 9.0, "cudaLaunchKernel"],
    ["stream 7", 5.0, 500.0, "spin_kernel(long)"],
    ["CPU", 20.0, 10.0, "cudaLaunchKernel"],
    ["CPU", 40.0, 10.0, "cudaLaunchKernel"],
    ["CPU", 60.0, 10.0, "cudaLaunchKernel"],
    ["CPU", 110.0, 450.0, "cudaStreamSynchronize"],
    ["stream 7", 506.0, 2.0, "elementwise MulFunctor"],
    ["stream 7", 509.0, 2.0, "elementwise AddFunctor"],
    ["stream 7", 515.0, 1.0, "reduce_kernel"],
    ["CPU", 610.0, 20.0, "cudaStreamSynchronize"],
    ["CPU", 640.0, 20.0, "cudaDeviceSynchronize"],
]


def test_both_launches_are_back_before_an_imitated_gpu_begins(gpu):
    result = dependency_trace.main()
    assert result["text"] == "tensor([[3., 3.]])" and result["waits"] == 1
    assert result["cpu"]["add"]["end"] < result["gpu"]["multiply"]["start"] < result["gpu"]["add"]["start"]


def test_trace_main_names_launches_and_kernels_by_their_line(gpu, monkeypatch):
    monkeypatch.setattr(dependency_trace, "traced", lambda x, y: ("tensor([[3., 3.]])", EVENTS))
    result = dependency_trace.main()
    assert result["cpu"]["multiply"] == {"start": 20.0, "end": 30.0}
    assert result["cpu"]["add"] == {"start": 40.0, "end": 50.0}, "the fourth launch is not ours"
    assert result["gpu"]["earlier"]["end"] == 505.0 and result["gpu"]["add"] == {"start": 509.0, "end": 511.0}
    assert result["first_wait"] == {"start": 110.0, "end": 560.0}
    assert (result["waits"], result["gpu_events_for_text"]) == (2, 1)
    (panel,) = dependency_trace.plot(result, {}).panels
    work = ["1. earlier work", "2. x * y", "3. + 2", "4. text of z"]
    lanes = ["CPU", "CPU", *(f"GPU: {each}" for each in work)]
    assert [spans.row for spans in panel.marks] == lanes, "it waits in its own lane"


def test_a_step_waits_or_does_not(gpu):
    x = torch.zeros(2, device="cuda")
    gpu.launch(1.0)
    y = wait_each_step.increment(x, wait=False)
    assert gpu.now < 1
    assert wait_each_step.increment(y, wait=True) is not y and gpu.now >= 1
    assert x.tolist() == [0, 0] and y.tolist() == [1, 1]


def test_the_model_knows_what_runs_beside_the_kernel():
    us = {"gpu": [2.0, 10.0, 50.0], "wait": [14.0, 0.0, 61.0], "ahead": [7.0, 0.0, 0.0]}
    model = wait_each_step.predicted(us)
    assert model == {"ahead": [7.0, 10.0, 50.0], "wait": [14.0, 21.0, 61.0]}, "11 around, 3 beside"


def test_a_wait_in_each_step_costs_what_the_model_says(gpu, monkeypatch):
    monkeypatch.setattr(wait_each_step, "ELEMENTS", (1, 2))
    gpu.kernel_s["add"] = gpu.kernel_s["__add__"] = 50e-6
    result = wait_each_step.main()
    assert result["us"]["ahead"] == pytest.approx([50, 50], rel=0.01), "the kernel is longer than its launch"
    assert result["us"]["wait"] == pytest.approx([60, 60], rel=0.01), "a launch, then a kernel"
    for way in ("wait", "ahead"):
        assert result["model_us"][way] == pytest.approx(result["us"][way], rel=0.01)
    assert result["slowdown_trials"] == pytest.approx([1.2] * 11, rel=0.01)


def test_a_full_queue_blocks_one_launch(gpu, monkeypatch):
    monkeypatch.setattr(run_ahead, "LAUNCHES", 60)
    gpu.room = 41
    result = run_ahead.main()
    queue = result["queue"]
    assert queue["accepted_trials"] == [40] * 5, "the long kernel is the first of 41"
    assert queue["blocked_us"] == pytest.approx(1e5, rel=0.01)
    assert queue["launch_us"] == pytest.approx(10, rel=0.01)
    assert [us > 1000 for us in result["slowest_of_ten_us"]] == [False, False, False, False, True, False]


def test_who_runs_ahead_keeps_dropped_results_and_pinned_places_apart(late, monkeypatch):
    steps = 20
    monkeypatch.setattr(queue_memory, "STEPS", steps)
    result = queue_memory.main()
    assert result["ahead"] == {"dropped": 2, "kept": steps, "pinned": steps}
    waiting = result["waiting"]
    assert (waiting["dropped"], waiting["kept"]) == (2, steps) and waiting["pinned"] < steps / 2


def test_a_hint_is_told_from_an_assertion(monkeypatch):
    def run(command, env, capture_output, text):
        blocking = env["CUDA_LAUNCH_BLOCKING"] == "1"
        facts = {"us_trials": [8.0] * 3, "line": 9, "code": "right.sum().item()", "gpu_usable": False}
        facts["error"] = "device-side assert\nconsider passing CUDA_LAUNCH_BLOCKING=1"
        if blocking:
            facts |= {"us_trials": [16.0] * 3, "code": "wrong = x[index]", "error": "device-side assert"}
        return SimpleNamespace(stdout=json.dumps(facts), stderr="Assertion `index out of bounds` failed.")

    monkeypatch.setattr(errors_arrive_late, "run", run)
    result = errors_arrive_late.main()
    assert result["default"]["hint"] and not result["blocking"]["hint"] and result["slowdown"] == 2
    assert result["default"]["assertion"]


def test_the_blamed_line_is_that_of_the_error(gpu, monkeypatch):
    def step():
        raise RuntimeError("CUDA error")

    monkeypatch.setattr(errors_arrive_late, "step", step)
    facts = errors_arrive_late.crash()
    assert facts["code"] == 'raise RuntimeError("CUDA error")' and facts["error"] == "CUDA error"
    assert facts["gpu_usable"] and len(facts["us_trials"]) == 9


@pytest.mark.gpu
def test_waits_on_a_gpu():
    x, side = torch.ones(1024, device="cuda"), torch.cuda.Stream()

    def elsewhere():
        with torch.cuda.stream(side):
            x[0].item()

    assert waits.waits(lambda: x.sum().item()) and waits.waits(lambda: torch.nonzero(x))
    assert not waits.waits(lambda: x + 1) and not waits.waits(elsewhere)
    assert not waits.waits(lambda: time.sleep(0.03))


@pytest.mark.gpu
def test_ordinary_memory_may_be_overwritten_at_once():
    host = torch.ones(64 * 256)
    pinned = host.pin_memory()
    assert copies_that_wait.arrives(host) and not copies_that_wait.arrives(pinned)


@pytest.mark.gpu
def test_a_large_product_returns_long_before_it_finishes():
    x = launch_vs_finish.checked_matrix(8192)
    launch_vs_finish.timed(x)
    assert launch_vs_finish.timed(x)["ratio"] > 5


@pytest.mark.gpu
def test_both_launches_are_back_before_the_gpu_begins():
    result = dependency_trace.main()
    assert result["text"] == "tensor([[3., 3.]], device='cuda:0')"
    assert result["cpu"]["add"]["end"] < result["gpu"]["multiply"]["start"] < result["gpu"]["add"]["start"]


@pytest.mark.gpu
def test_the_launch_queue_is_finite():
    # a median of rounds: in one, the machine may hold up a launch for longer than the queue does
    assert 500 <= run_ahead.main()["queue"]["accepted"] <= 1400


@pytest.mark.gpu
def test_dropped_results_take_two_places():
    assert queue_memory.results_at_peak(wait=False, keep=False) == 2
    assert queue_memory.results_at_peak(wait=True, keep=True) == queue_memory.STEPS


@pytest.mark.gpu
def test_this_process_survives_the_crash_of_another():
    facts = errors_arrive_late.crashed(blocking=True)
    assert facts["code"] == "wrong = x[index]" and not facts["gpu_usable"]
    assert torch.zeros(1, device="cuda").item() == 0


def test_an_operator_is_called_twice_in_turn_or_in_two_threads():
    callers = []
    both = threading.Barrier(2, timeout=120)

    def operator() -> None:
        callers.append(threading.get_ident())

    def operator_that_meets_the_other() -> None:
        both.wait()  # however late a thread starts
        operator()

    two_cpu_operators.in_turn(operator)
    with ThreadPoolExecutor(2) as pool:
        two_cpu_operators.side_by_side(pool, operator_that_meets_the_other)
    first, second, third, fourth = callers
    assert first == second == threading.get_ident()
    assert len({first, third, fourth}) == 3


def test_busy_cores_are_cpu_time_over_time(monkeypatch):
    now = {"perf_counter": 5.0, "process_time": 1.0}
    clock = SimpleNamespace(**{name: partial(now.get, name) for name in now})
    monkeypatch.setattr(two_cpu_operators, "time", clock)

    def operator(cpu_s: float) -> None:
        now["process_time"] += cpu_s
        now["perf_counter"] += 2.0

    assert two_cpu_operators.busy_cores(partial(operator, 0.0)) == 0
    assert two_cpu_operators.busy_cores(partial(operator, 8.0)) == 4


def test_an_error_is_told_with_the_line_of_the_program(monkeypatch):
    def bad() -> None:
        raise RuntimeError("CUDA error: words\nProcess 17 has 3 GiB memory in use. More")

    monkeypatch.setitem(error_messages.PROGRAMS, "bad", bad)
    monkeypatch.setattr(error_messages, "__file__", __file__)
    monkeypatch.setattr(torch, "zeros", lambda *size, device: torch.ones(1))
    facts = error_messages.failed("bad")
    assert facts["error"] == "CUDA error: words\nMore" and facts["usable"]
    assert facts["line"].startswith('raise RuntimeError("CUDA error') and facts["kind"] == "RuntimeError"

    def lost(*size, device):
        raise RuntimeError("CUDA error: device-side assert triggered")

    monkeypatch.setattr(torch, "zeros", lost)
    assert not error_messages.failed("bad")["usable"]


def test_what_a_kernel_asserted_is_read_without_its_thread():
    words = "Loss.cu:245: nll_loss: block: [0,0,0], thread: [3,0,0] Assertion `t >= 0` failed.\n"
    assert error_messages.assertion(f"{words}{words}") == "t >= 0"
    assert error_messages.assertion("nothing") == ""


def test_programs_that_fill_the_gpu_run_alone_and_last(monkeypatch, capsys):
    order = []

    def alone(name):
        order.append(name)
        usable = name != "trap"
        return {"error": f"{name}\nmore", "kind": "K", "line": "x", "usable": usable, "assertion": "a"}

    monkeypatch.setattr(error_messages, "in_process_of_its_own", alone)
    result = json.loads(json.dumps(error_messages.main()))
    assert set(order) == set(error_messages.PROGRAMS)
    assert order[-2:] == [program.__name__ for program in error_messages.ALONE]
    derived = error_messages.derive(result)
    assert derived["lost"] == ["trap"] and derived["first_line"]["trap"] == "trap"
    assert capsys.readouterr().out.count("every call fails") == 1


def test_all_memory_is_taken_in_smaller_and_smaller_pieces(monkeypatch):
    left = [4096 * 2 + 300]

    def empty(size, **options):
        if size >> 20 > left[0]:
            raise torch.OutOfMemoryError
        left[0] -= size >> 20
        return size >> 20

    monkeypatch.setattr(torch, "empty", empty)
    pieces = error_messages.full()
    assert left == [0] and pieces[:3] == [4096, 4096, 256] and sum(pieces) == 8492


@pytest.mark.gpu
@pytest.mark.program("asynchrony/error_messages", ALONE=())
def test_each_program_fails_on_a_gpu(returned):
    programs = returned["programs"]
    assert all(facts["error"] for facts in programs.values())
    assert "illegal memory access" in programs["address_of_nobody"]["error"]
    assert "n_classes" in programs["label_out_of_range"]["assertion"]
    assert programs["shapes_of_a_product"]["usable"] and not programs["trap"]["usable"]


MEMCHECK = """
========= COMPUTE-SANITIZER
========= Invalid __global__ write of size 4 bytes
=========     at write+0x50
=========     by thread (0,0,0) in block (0,0,0)
=========     Address 0x7f3e0e001000 is out of bounds
=========     and is 1 bytes after the nearest allocation at 0x7f3e0e000000 of size 4,096 bytes
torch.AcceleratorError: CUDA error: unspecified launch failure
"""


def test_what_the_sanitizer_finds_is_read_without_addresses():
    row = under_memcheck.seen(MEMCHECK)
    assert row["finding"] == "Invalid __global__ write of size 4 bytes"
    assert row["place"] == "1 bytes after the nearest allocation of size 4,096 bytes"
    assert row["error"] == "CUDA error: unspecified launch failure"
    assert under_memcheck.seen("") == {"error": "", "finding": "", "place": ""}


def test_each_place_is_judged_with_and_without_the_sanitizer(monkeypatch, capsys):
    asked = []

    def run(command, env, **options):
        caching = "PYTORCH_NO_CUDA_MEMORY_CACHING" not in env
        asked.append((command[0] == under_memcheck.TOOL, caching, command[-1]))
        return SimpleNamespace(stdout=MEMCHECK if asked[-1][0] else "", returncode=1)

    monkeypatch.setattr(under_memcheck.shutil, "which", lambda name: name)
    monkeypatch.setattr(under_memcheck.subprocess, "run", run)
    result = json.loads(json.dumps(under_memcheck.main()))
    assert len(set(asked)) == 6 and result["places"]["one_too_far"]["plain"]["error"] == ""
    assert capsys.readouterr().out.count("Invalid __global__") == 4
    monkeypatch.setattr(under_memcheck.shutil, "which", lambda name: None)
    assert "not installed" in under_memcheck.judged(("one_too_far", "memcheck"))["error"]


@pytest.mark.gpu
@pytest.mark.program("asynchrony/under_memcheck")
def test_the_sanitizer_finds_a_write_that_the_cache_hides(returned):
    places = returned["places"]
    assert "illegal memory access" in places["far_away"]["plain"]["error"]
    assert places["one_too_far"]["plain"]["error"] == ""
    if "installed" not in places["far_away"]["memcheck"]["error"]:
        assert places["one_too_far"]["memcheck_uncached"]["finding"].startswith("Invalid")


def test_only_who_makes_the_first_nan_is_named():
    net = torch.nn.Sequential(torch.nn.Linear(4, 4), where_nan_begins.Log(), torch.nn.Linear(4, 4))
    x = torch.full((2, 4), 1e4)
    torch.nn.init.constant_(net[0].weight, -1.0)
    assert where_nan_begins.first_not_finite(net, x) == "1 (Log)"
    assert where_nan_begins.first_not_finite(net[0], x) == ""
    assert where_nan_begins.first_not_finite(where_nan_begins.Log(), x * 0) == "the model (Log)"
    assert not any(module._forward_hooks for module in net.modules())


def test_a_module_that_gives_no_tensor_is_passed_over():
    lstm = torch.nn.LSTM(3, 3)
    assert where_nan_begins.first_not_finite(lstm, torch.randn(2, 1, 3)) == ""
    assert where_nan_begins.first_not_finite(lstm, torch.full((2, 1, 3), torch.nan)) == "the model (LSTM)"


def test_a_nan_is_told_by_the_two_tools_that_find_it():
    result = json.loads(json.dumps(where_nan_begins.main()))
    derived = where_nan_begins.derive(result)
    assert derived["by_hook"] == derived["loss_is_nan"] and len(derived["loss_is_nan"]) == 3
    assert derived["by_name"] == ["LogBackward0", "SqrtBackward0"] and "sqrt()" in derived["lines"][1]
    assert derived["of_nan_loss"] == ["PowBackward0"]


def test_the_line_of_the_forward_pass_is_the_last_of_this_file():
    file = where_nan_begins.__file__
    words = f'File "{file}", line 3, in a\n    first\n  File "{file}", line 9, in b\n    second\n'
    assert where_nan_begins.forward_line(words) == "second" and where_nan_begins.forward_line("") == ""


def test_the_price_of_the_detection_is_a_ratio(monkeypatch):
    for name, value in {"LAYERS": 1, "WIDTH": 4, "ROWS": 4}.items():
        monkeypatch.setattr(where_nan_begins, name, value)
    price = where_nan_begins.price("cpu")
    assert set(price["ms"]) == {"default", "detected"} and price["slower"] > 0


@pytest.mark.gpu
@pytest.mark.program("asynchrony/where_nan_begins", LAYERS=2)
def test_a_nan_is_found_on_a_gpu_as_on_a_cpu(returned):
    derived = where_nan_begins.derive(returned)
    assert derived["by_hook"] == derived["loss_is_nan"] and returned["price"]["slower"] > 0
