"""The asynchrony chapter: returning is not finishing, and what the famous gap is made of."""

import json
import warnings
from math import prod
from statistics import median
from types import SimpleNamespace

import matplotlib
import numpy as np
import pytest
import torch

from snippets.asynchrony import (
    async_warmup,
    blockers,
    dependency_trace,
    errors_arrive_late,
    launch_vs_finish,
    run_ahead,
)

matplotlib.use("Agg")
MS = {row: 2.0**i for i, row in enumerate(reversed(async_warmup.ROWS))}
H200 = {"fp32_tflop_s": 67, "bf16_tflop_s": 989}


class Gpu:
    """Two clocks in seconds: what the CPU reads, and when the GPU will have done all it was given."""

    def __init__(self):
        self.now = self.done = 0.0
        self.queued = []

    def launch(self, gpu_s: float = 0.0, cpu_s: float = 10e-6, room: int = 10**9) -> None:
        """A kernel; with `room` for so many in the queue, the CPU waits for the first of them to end."""
        self.now += cpu_s
        self.queued = [end for end in self.queued if end > self.now]
        if len(self.queued) >= room:
            self.now = self.queued[0]
        self.done = max(self.done, self.now) + gpu_s
        self.queued.append(self.done)

    def wait(self, device=None) -> None:
        self.now = max(self.now, self.done)

    def event(self, enable_timing: bool = False) -> SimpleNamespace:
        event = SimpleNamespace(at=0.0, synchronize=self.wait)
        event.record = lambda: setattr(event, "at", max(self.now, self.done))
        event.elapsed_time = lambda end: 1e3 * (end.at - event.at)
        return event


@pytest.fixture
def gpu(monkeypatch) -> Gpu:
    """A GPU whose kernels take the time they are told to take; tensors are on the CPU."""
    gpu = Gpu()

    def anywhere(make):
        return lambda *args, device=None, **options: make(*args, **options)

    for name in ("empty", "zeros", "ones", "rand", "randn", "full", "tensor"):
        monkeypatch.setattr(torch, name, anywhere(getattr(torch, name)))
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda self: self)
    monkeypatch.setattr(torch.cuda, "Event", gpu.event)
    monkeypatch.setattr(torch.cuda, "Stream", lambda: "side")
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: "main")
    monkeypatch.setattr(torch.cuda, "_sleep", lambda cycles: gpu.launch(cycles / 2e9))
    monkeypatch.setattr(torch.cuda, "synchronize", gpu.wait)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(run_ahead.time, "perf_counter", lambda: gpu.now)
    return gpu


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(async_warmup, "N", 64)


@pytest.fixture
def no_waiting(monkeypatch):
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device=None: None)


def test_the_four_causes_multiply_to_the_gap():
    factors = async_warmup.split(MS)
    assert factors["gap"] == MS["numpy_draw"] / MS["torch_draw_returned"]
    assert prod(factors[cause] for cause in ("random_numbers", "data_type", "device", "waiting")) == factors["gap"]
    assert factors["waiting"] == MS["torch_finished"] / MS["torch_returned"]
    assert factors["data_type"] == MS["numpy_f64"] / MS["numpy_f32"]


def test_square_calls_the_product_in_every_round():
    calls = []
    async_warmup.square(lambda a, b: calls.append((a, b)), "x")
    assert calls == [("x", "x")] * 10


@pytest.mark.parametrize(
    ("loop", "module", "product"),
    [(async_warmup.numpy_loop, np, "dot"), (lambda: async_warmup.torch_loop("cpu"), torch, "mm")],
)
def test_the_loops_square_fresh_matrices(small, monkeypatch, loop, module, product):
    seen = []
    monkeypatch.setattr(module, product, lambda a, b: seen.append((a, b)))
    loop()
    assert len(seen) == 10 and all(a is b and a.shape == (64, 64) for a, b in seen)
    assert str(seen[0][0].dtype).endswith("float64" if module is np else "float32")
    assert not (seen[0][0] == seen[1][0]).all()


def test_waiting_comes_after_returning(monkeypatch):
    """Two warm-ups are dropped, and only the second reading of a trial includes the wait."""
    diary, ticks = [], iter(range(1000))
    monkeypatch.setattr(async_warmup.time, "perf_counter", lambda: diary.append("clock") or float(next(ticks)))
    monkeypatch.setattr(async_warmup, "wait_for", lambda: diary.append("wait"))
    returned, finished = async_warmup.returned_and_finished(lambda: diary.append("work"), trials=3)
    monkeypatch.undo()
    assert diary == ["wait", "clock", "work", "clock", "wait", "clock"] * 5
    assert (returned, finished) == ([1000.0] * 3, [2000.0] * 3)


def test_warmup_main_on_this_machine(small, capsys):
    result = async_warmup.main()
    told = capsys.readouterr().out
    assert result["device"] == ("cuda" if torch.cuda.is_available() else "cpu")
    assert ("nothing to wait for" in told) == (result["device"] == "cpu")
    assert set(result["ms"]) == set(async_warmup.ROWS) == set(result["ms_trials"])
    assert all(result["ms"][row] == median(result["ms_trials"][row]) for row in async_warmup.ROWS)
    for returned, finished in zip(
        *(result["ms_trials"][f"torch_{end}"] for end in ("returned", "finished")), strict=True
    ):
        assert returned <= finished
    assert result["factors"] == async_warmup.split(result["ms"]) and result["flop"] == 20 * 64**3
    waiting, ms = result["factors_trials"]["waiting"], result["ms_trials"]
    assert waiting[0] == ms["torch_finished"][0] / ms["torch_returned"][0] and min(waiting) >= 1
    json.dumps(result, allow_nan=False)


def test_warmup_plot_marks_the_least_possible_time():
    import matplotlib.pyplot as plt

    results = {"ms": MS, "flop": 2e10}
    axes = async_warmup.plot(results, H200).axes[0]
    assert [bar.get_width() for bar in axes.patches] == [MS[row] for row in async_warmup.ROWS]
    assert axes.collections[0].get_segments()[0][0][0] == pytest.approx(2e10 / 67e12 * 1e3)
    assert axes.get_xscale() == "log" and "ms" in axes.get_xlabel()
    assert not async_warmup.plot(results, {}).axes[0].collections
    plt.close("all")


def test_summary_of_one_size():
    row = launch_vs_finish.summary(1000, [(10.0, 40.0), (12.0, 60.0), (11.0, 44.0)])
    assert (row["n"], row["enqueue_us"], row["finish_us"], row["ratio"]) == (1000, 11.0, 44.0, 4.0)
    assert row["rate_tflop_s"] == pytest.approx(2e9 / 44e-6 / 1e12)
    assert row["enqueue_us_trials"] == [10.0, 12.0, 11.0] and row["finish_us_trials"] == [40.0, 60.0, 44.0]


def test_at_the_crossover_a_product_takes_as_long_as_its_launch():
    n = launch_vs_finish.crossover(launch_us=12.0, rate_tflop_s=750.0)
    assert 2 * n**3 / 750e12 == pytest.approx(12e-6)


def test_finishing_is_not_before_returning(no_waiting):
    enqueued, finished = launch_vs_finish.enqueue_and_finish(torch.ones(8, 8))
    assert 0 < enqueued <= finished < 1e6


def test_launch_main_without_a_gpu(no_waiting, monkeypatch, capsys):
    monkeypatch.setattr(launch_vs_finish, "SIZES", (16, 64))
    monkeypatch.setattr(launch_vs_finish, "checked_matrix", lambda n: torch.ones(n, n))
    result = launch_vs_finish.main()
    assert [row["n"] for row in result["sweep"].values()] == [16, 64]
    assert len(result["sweep"]["n64"]["finish_us_trials"]) == 21
    assert result["launch_us"] == median(row["enqueue_us"] for row in result["sweep"].values())
    assert f"from about n = {result['crossover_n']:.0f}" in capsys.readouterr().out
    json.dumps(result, allow_nan=False)


def test_launch_plot_has_two_curves_and_the_peak():
    import matplotlib.pyplot as plt

    rows = [{"n": n, "enqueue_us": 12.0, "finish_us": max(13.0, n**3 / 4e8)} for n in launch_vs_finish.SIZES]
    results = {"sweep": {f"n{row['n']}": row for row in sorted(rows, key=lambda row: str(row["n"]))}, "launch_us": 12.0}
    axes = launch_vs_finish.plot(results, H200).axes[0]
    finished, launched, peak = axes.lines
    assert list(finished.get_xdata()) == list(launch_vs_finish.SIZES), "sorted by size, whatever the order in the file"
    assert set(launched.get_ydata()) == {12.0} and launched.get_label().startswith("launched")
    assert peak.get_ydata()[-1] == pytest.approx(2 * 8192**3 / 989e12 * 1e6) and peak.get_color() == "gray"
    assert len(launch_vs_finish.plot(results, {}).axes[0].lines) == 2
    plt.close("all")


@pytest.mark.gpu
def test_a_large_product_returns_long_before_it_finishes():
    x = launch_vs_finish.checked_matrix(8192)
    launch_vs_finish.enqueue_and_finish(x)
    enqueued, finished = launch_vs_finish.enqueue_and_finish(x)
    assert finished > 5 * enqueued


def test_recorded_warmups_follow_from_their_trials(recorded):
    import matplotlib.pyplot as plt

    for profile, result in recorded("asynchrony/async_warmup").items():
        assert result["ms"] == pytest.approx({row: median(result["ms_trials"][row]) for row in async_warmup.ROWS})
        assert result["factors"] == pytest.approx(async_warmup.split(result["ms"])), profile
        assert result["device"] == ("cpu" if profile == "cpu" else "cuda")
        assert len(async_warmup.plot(result, {}).axes[0].patches) == len(async_warmup.ROWS)
    plt.close("all")


def test_recorded_launches_follow_from_their_trials(recorded):
    import matplotlib.pyplot as plt

    for profile, result in recorded("asynchrony/launch_vs_finish").items():
        for row in result["sweep"].values():
            assert row["enqueue_us"] == pytest.approx(median(row["enqueue_us_trials"])), profile
            assert row["ratio"] == pytest.approx(median(row["finish_us_trials"]) / row["enqueue_us"]), profile
        finished = launch_vs_finish.plot(result, {}).axes[0].lines[0]
        assert finished.get_ydata()[-1] == result["sweep"]["n8192"]["finish_us"], profile
    plt.close("all")


def seen(device: str, start: float, end: float, name: str) -> SimpleNamespace:
    """An event as the profiler reports it."""
    span = SimpleNamespace(start=start, end=end, elapsed_us=lambda: end - start)
    return SimpleNamespace(device_type=SimpleNamespace(name=device), time_range=span, name=name)


EVENTS = [
    seen("CPU", 100.0, 110.0, "aten::mul"),
    seen("CPU", 100.0, 120.0, "x * y"),
    seen("CUDA", 90.0, 590.0, "spin_kernel(long)"),
    seen("CUDA", 591.0, 593.0, "x * y"),  # the profiler repeats the step on the GPU
    seen("CUDA", 591.0, 593.0, "vectorized_elementwise_kernel MulFunctor"),
    seen("CPU", 120.0, 140.0, "+ 2"),
    seen("CUDA", 594.0, 596.0, "vectorized_elementwise_kernel AddFunctor"),
    seen("CPU", 140.0, 900.0, "str(z)"),
    seen("CPU", 200.0, 650.0, "cudaStreamSynchronize"),
    seen("CUDA", 600.0, 601.0, "reduce_kernel"),
    seen("CPU", 700.0, 720.0, "cudaStreamSynchronize"),
    seen("CUDA", 705.0, 706.0, "Memcpy DtoH"),
    seen("CPU", 990.0, 999.0, "cudaDeviceSynchronize"),
]
ROWS = [
    ["GPU", 0.0, 500.0, "earlier work"],
    ["CPU", 10.0, 20.0, "x * y"],
    ["CPU", 30.0, 20.0, "+ 2"],
    ["CPU", 50.0, 760.0, "str(z)"],
    ["CPU waits", 110.0, 450.0, "cudaStreamSynchronize"],
    ["GPU", 501.0, 2.0, "x * y"],
    ["GPU", 504.0, 2.0, "+ 2"],
    ["GPU", 510.0, 1.0, "for str"],
    ["CPU waits", 610.0, 20.0, "cudaStreamSynchronize"],
    ["GPU", 615.0, 1.0, "for str"],
]


def test_the_timeline_has_steps_waits_and_kernels():
    assert dependency_trace.timeline(EVENTS) == ROWS
    assert dependency_trace.span(ROWS, "GPU", "+ 2") == {"start": 504.0, "end": 506.0}
    with pytest.raises(StopIteration):
        dependency_trace.span(ROWS, "GPU", "nothing")


def test_the_traced_value_is_that_of_the_article(monkeypatch):
    busy = []
    monkeypatch.setattr(torch.cuda, "_sleep", busy.append)
    text, events = dependency_trace.traced(torch.ones(1, 2), torch.ones(1, 2))
    assert text == "tensor([[3., 3.]])" and busy == [4_000_000]
    lanes = [(dependency_trace.lane(event), event.name) for event in events]
    assert [lane for lane in lanes if lane[0]] == [("CPU", "x * y"), ("CPU", "+ 2"), ("CPU", "str(z)")]


def test_trace_main_and_its_picture(gpu, monkeypatch, capsys):
    import matplotlib.pyplot as plt

    calls = []
    monkeypatch.setattr(dependency_trace, "traced", lambda x, y: calls.append(x) or ("tensor([[3., 3.]])", EVENTS))
    result = dependency_trace.main()
    assert len(calls) == 2 and calls[0].tolist() == [[1.0, 1.0]]
    assert result["cpu"]["add"] == {"start": 30.0, "end": 50.0} and result["gpu"]["earlier"]["end"] == 500.0
    assert result["first_wait"] == {"start": 110.0, "end": 560.0}
    assert (result["waits"], result["gpu_events_for_text"]) == (2, 2)
    told = capsys.readouterr().out.splitlines()
    assert told[0] == "CPU multiply     10.0 to     30.0 µs" and told[-1].endswith("2 waits, the first of them 450 µs")
    axes = dependency_trace.plot(json.loads(json.dumps(result)), {}).axes[0]
    labels = [label.get_text() for label in axes.get_yticklabels()]
    assert labels == ["CPU: x * y", "CPU: + 2", "CPU: str(z)", "CPU waits", "GPU"] and axes.yaxis_inverted()
    assert [len(bars.get_paths()) for bars in axes.collections] == [1, 1, 1, 2, 5]
    plt.close("all")


def test_increments_wait_in_each_step_or_never(monkeypatch):
    waits = []
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: waits.append(1))
    assert run_ahead.increments(torch.zeros(2), 3, wait=False).tolist() == [1, 1] and not waits
    assert run_ahead.increments(torch.zeros(2), 3, wait=True).tolist() == [1, 1] and len(waits) == 3


def test_steps_are_timed_with_and_without_waits(gpu, monkeypatch):
    monkeypatch.setattr(run_ahead, "STEPS", 100)
    monkeypatch.setattr(torch.Tensor, "__add__", lambda self, one: gpu.launch(gpu_s=3e-6, cpu_s=7e-6))
    assert run_ahead.step_us(torch.zeros(1), wait=True) == pytest.approx(10)
    assert run_ahead.step_us(torch.zeros(1), wait=False) == pytest.approx(7.03), "one wait in a hundred steps"
    large = torch.zeros(1).expand(2**22 + 1)
    assert run_ahead.step_us(large, wait=False) == pytest.approx(7.3), "ten steps"
    assert run_ahead.gpu_us(torch.zeros(1)) == pytest.approx(3)


def test_the_model_takes_the_longer_of_launch_and_kernel():
    model = run_ahead.model(wait=[20.0, 0.0], ahead=[7.0, 0.0], gpu=[2.0, 50.0])
    assert (model["t1"], model["t3"]) == (7.0, 11.0)
    assert model["ahead"] == [7.0, 50.0] and model["wait"] == [20.0, 68.0]


def test_a_full_queue_blocks_one_launch(gpu, monkeypatch):
    monkeypatch.setattr(run_ahead, "LAUNCHES", 60)
    monkeypatch.setattr(torch.Tensor, "add_", lambda self, one: gpu.launch(1e-6, 5e-6, room=41))
    times = run_ahead.queue_us()
    assert len(times) == 60 and times[0] == pytest.approx(5)
    row = run_ahead.knee([times, times, times])
    assert row["accepted"] == 40 and list(row["accepted_trials"]) == [40] * 3, "the long kernel is the first of 41"
    assert row["blocked_us"] == pytest.approx(1e5, rel=0.01) and row["launch_us"] == pytest.approx(5)
    assert [us > 1000 for us in row["of_ten_us"]] == [False, False, False, False, True, False]


def test_run_ahead_main_on_a_small_scale(gpu, monkeypatch, capsys):
    import matplotlib.pyplot as plt

    monkeypatch.setattr(run_ahead, "ELEMENTS", (1, 1000))
    monkeypatch.setattr(run_ahead, "LAUNCHES", 30)
    monkeypatch.setattr(run_ahead, "step_us", lambda x, wait: 20.0 + x.numel() if wait else 7.0)
    monkeypatch.setattr(run_ahead, "gpu_us", lambda x: 2.0)
    monkeypatch.setattr(run_ahead, "queue_us", lambda: [5.0] * 21 + [9e4] + [5.0] * 8)
    result = run_ahead.main()
    assert result["us"] == {"wait": [21.0, 1020.0], "ahead": [7.0, 7.0], "gpu": [2.0, 2.0]}
    assert result["model_us"] == run_ahead.model(**result["us"])
    assert result["us_trials"]["wait"] == [[21.0] * 7, [1020.0] * 7], "size by size, seven rounds"
    assert result["slowdown_trials"] == [3.0] * 7, "waiting over running ahead, on one number"
    assert result["queue"]["accepted"] == 21 and len(result["queue"]["accepted_trials"]) == 5
    told = capsys.readouterr().out.splitlines()
    assert told[1].startswith("     1,000 numbers: GPU   2.0 µs a step, waiting 1020.0 µs")
    assert told[-1] == "queued: 21 at 5.0 µs, then 90,000 µs"
    line = run_ahead.plot(json.loads(json.dumps(result)), {}).axes[0].lines[0]
    assert list(line.get_ydata()) == [5.0, 5.0, 9e4] and list(line.get_xdata()) == [0, 10, 20]
    plt.close("all")


def test_a_line_that_waits_is_blocked_for_as_long_as_the_kernel(gpu):
    names = {"event": gpu.event(), "torch": torch, "gpu": gpu}
    ms, busy = blockers.blocked("event.synchronize()", names)
    assert ms == pytest.approx(busy, rel=0.01) and busy == pytest.approx(30, rel=0.01)
    ms, busy = blockers.blocked("gpu.launch(1.0)", names)
    assert ms == pytest.approx(0.01) and busy == pytest.approx(30, rel=0.01), "the line's own kernel is not counted"


def test_only_warnings_of_synchronisation_are_counted(monkeypatch):
    modes = []
    monkeypatch.setattr(torch.cuda, "set_sync_debug_mode", modes.append)

    def work():
        warnings.warn("called a synchronizing CUDA operation (Triggered internally ...)", stacklevel=1)
        warnings.warn("Synchronization debug mode is a prototype feature", stacklevel=1)

    assert blockers.warned("work(), work()", {"work": work}) == 2
    assert modes == ["warn", "default"]


def test_the_median_of_five_trials_decides(monkeypatch):
    trials = iter([(0.0, 99.0), (5.0, 30.0), (30.0, 30.0), (31.0, 30.0), (32.0, 30.0), (29.0, 30.0)])
    monkeypatch.setattr(blockers, "blocked", lambda code, names: next(trials))
    monkeypatch.setattr(blockers, "warned", lambda code, names: 1)
    row = blockers.measured("v + w", {})
    assert (row["share"], row["blocked_ms"], row["warnings"]) == (1.0, 30.0, 1)
    assert row["blocked_ms_trials"] == [5.0, 30.0, 31.0, 32.0, 29.0], "the first one warms up"
    assert row["busy_ms_trials"] == [30.0] * 5 and row["share_trials"][0] == pytest.approx(1 / 6)


def test_every_line_can_be_compiled_and_finds_its_actors(gpu):
    names = blockers.actors()
    lines = [line.strip() for row in blockers.LINES.splitlines() for line in row.split("|") if line.strip()]
    assert len(lines) == len(set(lines)) == 37
    for line in lines:
        assert set(compile(line, line, "exec").co_names) & set("vwskmn") <= set(names), line
    exec("v[mask]; v[k]; torch.equal(v, w); torch.repeat_interleave(v, n, output_size=2048)", names)
    names["host"].copy_(names["big"])
    assert names["host"].nbytes == names["big"].nbytes == names["pinned"].nbytes == 16 * 2**20
    exec("(parameter * v).sum().backward()", names)
    assert names["parameter"].grad is not None


def test_blockers_main_sorts_lines_by_verdict(gpu, monkeypatch, capsys):
    rows = {"v + w": (0.001, 0), "s.item()": (1.01, 2), "event.synchronize()": (1.0, 0), "m.sum()": (0.05, 1)}
    monkeypatch.setattr(blockers, "LINES", "v + w | s.item() |\n\nevent.synchronize() | m.sum() | n * 2")
    rows["n * 2"] = (0.4, 0)

    def measured(line, names):
        share, count = rows[line]
        return {"share": share, "blocked_ms": 30 * share, "warnings": count, "busy_ms_trials": [30.0]}

    monkeypatch.setattr(blockers, "measured", measured)
    result = blockers.main()
    assert result["waits"] == ["s.item()", "event.synchronize()"] and result["returns"] == ["v + w", "m.sum()"]
    assert (result["missed"], result["accused"]) == (["event.synchronize()"], ["m.sum()"])
    assert result["busy_ms"] == 30.0 and result["lines"]["n * 2"]["share"] == 0.4
    told = capsys.readouterr().out
    assert told.endswith("2 wait, 2 do not; no warning for 1 that wait\n") and "30.30 ms, warnings: 2" in told


def test_the_crashing_program_has_its_fault_where_it_says():
    fault = errors_arrive_late.CRASH.splitlines().index("    wrong = x[index]") + 1
    assert errors_arrive_late.source(fault) == "wrong = x[index]"
    assert errors_arrive_late.source(fault + 2) == "return right.sum().item()"
    compile(errors_arrive_late.CRASH, "crash", "exec")


FACTS = """
import json, os, sys
blocking = os.environ["CUDA_LAUNCH_BLOCKING"] == "1"
while input() == "measure":
    print(16.0 if blocking else 8.0, flush=True)
error = ["AcceleratorError: CUDA error: device-side assert triggered"]
error += [] if blocking else ["For debugging consider passing CUDA_LAUNCH_BLOCKING=1"]
print("IndexKernel.cu: Assertion `index out of bounds` failed.", file=sys.stderr)
# wrong = here
print(json.dumps({"line": 9 + blocking, "error": error}))
sys.exit(3)
"""


def test_children_report_which_line_was_blamed(monkeypatch, capsys):
    monkeypatch.setattr(errors_arrive_late, "CRASH", FACTS)
    result = errors_arrive_late.main()
    assert result["fault"] == {"line": 9, "code": "# wrong = here"}
    assert result["default"]["line"] == 9 and result["default"]["hint"] and result["default"]["assertion"]
    assert result["blocking"]["line"] == 10 and not result["blocking"]["hint"]
    assert (result["blocking"]["us"], result["default"]["us"], result["slowdown"]) == (16.0, 8.0, 2.0)
    assert result["blocking"]["code"].startswith("print(json") and result["blocking"]["exit_code"] == 3
    told = capsys.readouterr().out.splitlines()
    assert told[0] == "the fault     line 9: # wrong = here" and told[1] == "default  blames line 9: # wrong = here"
    assert told[-1].endswith("device-side assert triggered; 16.0 µs per launch")


@pytest.mark.gpu
def test_item_waits_and_an_addition_does_not():
    names = blockers.actors()
    for line, least, most in (("s.item()", 0.9, 1.2), ("v + w", 0.0, 0.1)):
        assert least <= blockers.measured(line, names)["share"] <= most, line


@pytest.mark.gpu
def test_print_waits_for_the_sum():
    x = torch.ones(1, 2, device="cuda")
    dependency_trace.traced(x, x)
    text, events = dependency_trace.traced(x, x)
    rows = dependency_trace.timeline(events)
    assert text == "tensor([[3., 3.]], device='cuda:0')"
    assert dependency_trace.span(rows, "CPU", "+ 2")["end"] < dependency_trace.span(rows, "GPU", "x * y")["start"]


@pytest.mark.gpu
def test_the_launch_queue_is_finite():
    assert 500 <= run_ahead.knee([run_ahead.queue_us()])["accepted"] <= 1400


@pytest.mark.gpu
def test_this_process_survives_the_crash_of_another():
    facts = errors_arrive_late.report(errors_arrive_late.crash(blocking=True), [1.0])
    assert facts["code"] == "wrong = x[index]" and not facts["gpu_usable"]
    assert torch.zeros(1, device="cuda").item() == 0


def test_recorded_traces_keep_the_order_of_the_queue(recorded):
    import matplotlib.pyplot as plt

    for profile, result in recorded("asynchrony/dependency_trace").items():
        assert result["waits"] == sum(lane == "CPU waits" for lane, *_ in result["events"]), profile
        kernels = [name for lane, *_, name in result["events"] if lane == "GPU"]
        assert kernels[:3] == ["earlier work", "x * y", "+ 2"] and len(result["events"]) <= 400
        assert result["gpu_events_for_text"] == len(kernels) - 3
        bars = dependency_trace.plot(result, {}).axes[0].collections
        assert sum(len(lane.get_paths()) for lane in bars) == len(result["events"])
    plt.close("all")


def test_recorded_blockers_follow_from_their_trials(recorded):
    for profile, result in recorded("asynchrony/blockers").items():
        for line, row in result["lines"].items():
            assert row["share"] == pytest.approx(median(row["share_trials"])), (profile, line)
            pairs = zip(row["blocked_ms_trials"], row["busy_ms_trials"], strict=True)
            assert row["share_trials"] == pytest.approx([ms / busy for ms, busy in pairs]), (profile, line)
        assert len(result["lines"]) == 37 and set(result["missed"]) <= set(result["waits"])


def test_recorded_increments_follow_from_their_trials(recorded):
    import matplotlib.pyplot as plt

    for profile, result in recorded("asynchrony/run_ahead").items():
        us = {name: [median(trials) for trials in rows] for name, rows in result["us_trials"].items()}
        assert result["us"] == {name: pytest.approx(row) for name, row in us.items()}, profile
        model = run_ahead.model(**result["us"])
        assert model["t1"] == result["model_us"]["t1"] and model["ahead"] == result["model_us"]["ahead"]
        queue, line = result["queue"], run_ahead.plot(result, {}).axes[0].lines[0]
        slowest = list(line.get_ydata()).index(max(line.get_ydata()))
        assert line.get_xdata()[slowest] <= queue["accepted_trials"][0] < line.get_xdata()[slowest] + 10, profile
    plt.close("all")


def test_recorded_crashes_blame_lines_of_the_program(recorded):
    for profile, result in recorded("asynchrony/errors_arrive_late").items():
        assert result["fault"]["code"] == "wrong = x[index]" == errors_arrive_late.source(result["fault"]["line"])
        for mode in ("default", "blocking"):
            facts = result[mode]
            assert facts["code"] == errors_arrive_late.source(facts["line"]), (profile, mode)
            assert facts["us"] == pytest.approx(median(facts["us_trials"]))
