"""The timing chapter: what the Benchmark does, and what waiting for the wrong device does."""

import json
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from types import ModuleType, SimpleNamespace

import matplotlib
import pytest
import torch

from snippets.timing import (
    benchmark,
    clocks_compared,
    hot_cache,
    profile_reading,
    unwaited_broken,
    unwaited_fixed,
    warmup_curve,
    wrong_device_sync_broken,
    wrong_device_sync_fixed,
)
from snippets.timing.benchmark import Benchmark, Timing, measure

matplotlib.use("Agg")
TWINS = [wrong_device_sync_broken, wrong_device_sync_fixed]
UNWAITED = [unwaited_broken, unwaited_fixed]


@pytest.fixture
def diary(monkeypatch):
    """What the benchmark did, in order; its clock advances by one second at each reading."""
    events = []

    def read_clock():
        events.append("clock")
        return float(events.count("clock"))

    monkeypatch.setattr(benchmark, "time", SimpleNamespace(perf_counter=read_clock))
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: events.append(f"wait {device}"))
    return events


def test_timing_median_and_interquartile_range():
    timing = Timing([5.0, 1.0, 2.0, 4.0, 3.0])
    assert (timing.median, timing.spread, timing.ms()) == (3.0, 2.0, [5000.0, 1000.0, 2000.0, 4000.0, 3000.0])
    assert Timing([7.0]).spread == 0.0


def test_measure_waits_before_each_clock_reading(diary):
    timing = measure(lambda: diary.append("work"), devices=iter([1, 0]), warmup=1, trials=2)
    waits = ["wait 1", "wait 0"]
    assert diary == ["work"] + 2 * [*waits, "clock", "work", *waits, "clock"]
    assert timing.trials == [1.0, 1.0]


def test_an_empty_list_waits_for_nobody(diary):
    measure(lambda: diary.append("work"), devices=(), warmup=0, trials=1)
    assert diary == ["clock", "work", "clock"]


def test_by_default_every_visible_device_is_waited_for(diary, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    benchmark.wait_for()
    assert diary == ["wait 0", "wait 1", "wait 2"]
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)
    benchmark.wait_for()
    assert len(diary) == 3, "a process that has not used CUDA is not made to"


def test_benchmark_waits_on_both_sides_and_prints_ms(diary, capsys):
    with Benchmark("two GPUs", devices=iter([0, 1])) as timed:
        diary.append("work")
    assert diary == ["wait 0", "wait 1", "clock", "work", "wait 0", "wait 1", "clock"]
    assert timed.seconds == 1.0 and capsys.readouterr().out == "two GPUs: 1000.000 ms\n"


def test_measure_sees_the_time_that_passes():
    timing = measure(lambda: time.sleep(0.01), warmup=0, trials=3)
    assert len(timing.trials) == 3 and 0.009 < timing.median < 0.5


def test_benchmark_main_on_this_machine(capsys):
    result = benchmark.main()
    assert result["median_ms"] == pytest.approx(median(result["ms_trials"]))
    assert result["tflop_s"] == pytest.approx(20 * result["n"] ** 3 / result["median_ms"] / 1e9)
    assert len(result["ms_trials"]) == len(result["unwaited_ms_trials"]) == 15
    assert f"{result['unwaited_ms']:.3f} ms" in capsys.readouterr().out
    json.dumps(result, allow_nan=False)


def test_perf_counter_cannot_be_set_back_and_time_can():
    assert time.get_clock_info("perf_counter").monotonic and not time.get_clock_info("perf_counter").adjustable
    assert time.get_clock_info("time").adjustable and not time.get_clock_info("time").monotonic


def test_the_twins_differ_in_whom_they_wait_for(diary, monkeypatch):
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    wrong_device_sync_broken.timed(lambda: diary.append("work"))
    last_clock = len(diary) - diary[::-1].index("clock")
    assert "wait 1" not in diary[:last_clock], "while the clock runs, nobody waits for GPU 1"
    assert diary[last_clock:] == ["wait 0", "wait 1"], "afterwards the queues are emptied"
    diary.clear()
    wrong_device_sync_fixed.timed(lambda: diary.append("work"))
    assert diary[-4:] == ["work", "wait 0", "wait 1", "clock"]


@pytest.mark.parametrize("twin", TWINS)
def test_square_repeats_the_same_product(twin):
    x = torch.randn(8, 8)
    torch.testing.assert_close(twin.square(x, 3), x @ x)


@pytest.mark.parametrize("twin", TWINS)
def test_twin_main_counts_products_and_flop(twin, monkeypatch, capsys):
    queued = []
    monkeypatch.setattr(twin, "checked_matrix", lambda device: device)
    monkeypatch.setattr(twin, "square", lambda x, times: queued.append((x, times)))
    monkeypatch.setattr(twin, "timed", lambda work: (work() and None) or Timing([0.02, 0.01, 0.03]))
    result = twin.main()
    assert queued == [(0, 10), (1, 40), (0, 10), (1, 40)]
    product = 2 * 8192**3
    assert [result[actor]["longest_flop"] / product for actor in ("first", "second", "both")] == [10, 40, 40]
    assert result["both"]["tflop_s"] == pytest.approx(50 * product / 0.02 / 1e12)
    assert result["second"]["ms"] == 20.0 and result["second"]["ms_trials"] == [20.0, 10.0, 30.0]
    assert "both   50 products   20.000 ms" in capsys.readouterr().out


@pytest.mark.parametrize("twin", TWINS)
def test_twin_plot_marks_the_least_possible_time(twin):
    import matplotlib.pyplot as plt

    flop = {"first": 10e12, "second": 40e12, "both": 40e12}
    results = {actor: {"ms": 5.0, "longest_flop": longest} for actor, longest in flop.items()}
    axes = twin.plot(results, {"bf16_tflop_s": 1000}).axes[0]
    assert [bar.get_width() for bar in axes.patches] == [5.0, 5.0, 5.0]
    assert [segment[0][0] for segment in axes.collections[0].get_segments()] == [10.0, 40.0, 40.0]
    assert axes.get_xlabel() == "reported time, ms" and axes.yaxis_inverted()
    assert not twin.plot(results, {}).axes[0].collections
    plt.close("all")


@pytest.mark.gpu
def test_wait_for_leaves_no_work_behind():
    x = torch.randn(4096, 4096, device="cuda")
    for _ in range(20):
        torch.mm(x, x)
    done = torch.cuda.Event()
    done.record()
    assert not done.query(), "the launches return before the work is done"
    benchmark.wait_for()
    assert done.query()


@pytest.mark.gpu(2)
def test_the_current_device_says_nothing_of_the_other():
    broken, fixed = wrong_device_sync_broken.main(), wrong_device_sync_fixed.main()
    assert broken["second"]["ms"] < 0.5 * fixed["second"]["ms"]
    assert broken["both"]["ms"] < 0.6 * fixed["second"]["ms"] <= fixed["both"]["ms"]


def test_recorded_medians_are_those_of_the_trials(recorded):
    for profile, result in recorded("timing/benchmark").items():
        assert result["median_ms"] == pytest.approx(median(result["ms_trials"])), profile
        assert result["unwaited_ms"] == pytest.approx(median(result["unwaited_ms_trials"])), profile
        assert result["tflop_s"] == pytest.approx(20 * result["n"] ** 3 / result["median_ms"] / 1e9), profile


@pytest.mark.parametrize("twin", TWINS)
def test_recorded_twins_follow_from_their_trials(recorded, twin):
    import matplotlib.pyplot as plt

    for profile, result in recorded(twin.__name__.removeprefix("snippets.").replace(".", "/")).items():
        for actor in ("first", "second", "both"):
            assert result[actor]["ms"] == pytest.approx(median(result[actor]["ms_trials"])), (profile, actor)
        widths = [bar.get_width() for bar in twin.plot(result, {}).axes[0].patches]
        assert widths == [result[actor]["ms"] for actor in ("first", "second", "both")], profile
    plt.close("all")


@pytest.fixture
def on_this_cpu(monkeypatch):
    """What a snippet puts on the GPU is put on the CPU."""
    for name in ("randn", "zeros"):
        make = getattr(torch, name)
        monkeypatch.setattr(torch, name, lambda *shape, make=make, device, **more: make(*shape, **more))


@pytest.fixture(autouse=True)
def no_figure_stays_open():
    import matplotlib.pyplot as plt

    yield
    plt.close("all")


def profiler_that_saw(events, monkeypatch, trace=()):
    """Replace the profiler by one that reports these events and writes this trace."""

    @contextmanager
    def profile(**options):
        assert options == {"acc_events": True}
        export = lambda path: Path(path).write_text(json.dumps({"traceEvents": list(trace)}))  # noqa: E731
        yield SimpleNamespace(events=lambda: events, export_chrome_trace=export)

    monkeypatch.setattr(torch.profiler, "profile", profile)


def event(device: str, us: float) -> SimpleNamespace:
    return SimpleNamespace(device_type=SimpleNamespace(name=device), time_range=SimpleNamespace(elapsed_us=lambda: us))


def test_host_clock_waits_before_and_only_on_demand_after(monkeypatch):
    diary = []
    monkeypatch.setattr(clocks_compared, "TRIALS", 2)
    monkeypatch.setattr(clocks_compared, "wait_for", lambda: diary.append("wait"))
    now = lambda: diary.append("clock") or float(len(diary))  # noqa: E731
    assert clocks_compared.host_clock(lambda: diary.append("work"), now) == [2000.0, 2000.0]
    assert diary == 2 * ["wait", "clock", "work", "clock"]
    diary.clear()
    clocks_compared.host_clock(lambda: diary.append("work"), now, lambda: diary.append("wait"))
    assert diary == 2 * ["wait", "clock", "work", "wait", "clock"]


def test_cuda_events_are_read_after_the_second_mark_was_passed(monkeypatch):
    diary = []

    class Event:
        def __init__(self, enable_timing):
            assert enable_timing

        def record(self):
            diary.append("mark")

        def synchronize(self):
            diary.append("wait")

        def elapsed_time(self, end):
            return float(diary.count("wait"))

    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(clocks_compared, "TRIALS", 2)
    assert clocks_compared.cuda_events(lambda: diary.append("work")) == [1.0, 2.0]
    assert diary == 2 * ["mark", "work", "mark", "wait"]


def test_profiler_adds_up_the_kernels_of_each_call(monkeypatch):
    calls = []
    events = [event("CPU", 500.0), *(event("CUDA", us) for us in (1000.0, 10.0, 2000.0, 20.0))]
    profiler_that_saw(events, monkeypatch)
    monkeypatch.setattr(clocks_compared, "TRIALS", 2)
    assert clocks_compared.profiler(lambda: calls.append(1)) == [1.01, 2.02] and len(calls) == 2


def test_library_timers_see_the_time_that_passes(monkeypatch):
    clock, _ = clocks_compared.CLOCKS["timer"]
    assert 0.9 < median(clock(lambda: time.sleep(0.001))) < 20
    assert 0.9 < median(clocks_compared.CLOCKS["measure"][0](lambda: time.sleep(0.001))) < 20
    testing = ModuleType("triton.testing")
    testing.do_bench = lambda work, return_mode: [1, 2, 3] if return_mode == "all" else None
    monkeypatch.setitem(sys.modules, "triton", ModuleType("triton"))
    monkeypatch.setitem(sys.modules, "triton.testing", testing)
    assert clocks_compared.CLOCKS["do_bench"][0](None) == [1.0, 2.0, 3.0]


def test_clocks_main_names_what_is_missing(monkeypatch, on_this_cpu, capsys):
    def absent(work):
        raise ImportError("no such package")

    calls = []
    clocks = {"events": (lambda work: [3.0, float(len(work())), 2.0], "marks"), "do_bench": (absent, "marks")}
    monkeypatch.setattr(clocks_compared, "N", 64)
    monkeypatch.setattr(clocks_compared, "CLOCKS", clocks)
    monkeypatch.setattr(clocks_compared, "measure", lambda work, trials: calls.append(work().shape))
    result = clocks_compared.main()
    assert calls == [(64, 64)], "warmed up once"
    assert result["ms"] == {"events": 3.0} and result["ms_trials"]["events"] == [3.0, 64.0, 2.0]
    assert result["flop"] == 2 * 64**3
    assert "do_bench       missing, no such package" in capsys.readouterr().out


def test_clocks_are_drawn_beside_the_least_possible_time():
    results = {"flop": 2 * 10**12, "ms": {"profiler": 2.6, "time": 0.02, "measure": 2.7}}  # sorted in a recording
    (ax,) = clocks_compared.plot(results, {"fp32_tflop_s": 1000}).axes
    assert [bar.get_width() for bar in ax.patches] == [0.02, 2.7, 2.6]
    (line,) = ax.get_lines()
    assert line.get_xdata()[0] == pytest.approx(2.0) and line.get_color() == "gray"
    assert not clocks_compared.plot(results, {}).axes[0].get_lines()


@pytest.mark.parametrize("twin", UNWAITED)
def test_unwaited_row_counts_what_cannot_be_true(twin):
    least = 10 * 2 * 4096**3 / (twin.PEAK_TFLOP_S * 1e12) * 1e3
    row = twin.row(4096, [(least / 2, True), (least * 2, True), (least / 4, False)])
    assert row["least_ms"] == pytest.approx(least) and row["ms"] == least / 2
    assert (row["impossible"], row["still_at_work"]) == (2, 2)
    assert row["tflop_s"] == pytest.approx(2 * twin.PEAK_TFLOP_S)


@pytest.mark.parametrize(("twin", "before_the_last_clock"), [(unwaited_broken, "mm"), (unwaited_fixed, "wait")])
def test_unwaited_twins_differ_in_one_wait(twin, before_the_last_clock, monkeypatch):
    diary = []
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: diary.append("wait"))
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: SimpleNamespace(query=lambda: diary[-2] == "wait"))
    monkeypatch.setattr(torch, "mm", lambda x, y: diary.append("mm"))
    monkeypatch.setattr(twin, "time", SimpleNamespace(perf_counter=lambda: diary.append("clock") or float(len(diary))))
    ms, busy = twin.reading(torch.ones(2, 2))
    assert diary[:2] == ["wait", "clock"] and diary.count("mm") == twin.PRODUCTS
    assert diary[-2:] == [before_the_last_clock, "clock"]
    assert busy == (before_the_last_clock == "mm") and ms == 1e3 * (len(diary) - 2)


@pytest.mark.parametrize("twin", UNWAITED)
def test_unwaited_main_drops_the_warm_up(twin, monkeypatch, capsys):
    readings = iter([(99.0, False), (99.0, False), *[(1e-9, True)] * 9, (1e9, False)] * len(twin.SIZES))
    monkeypatch.setattr(twin, "checked_matrix", lambda n: n)
    monkeypatch.setattr(twin, "reading", lambda x: next(readings))
    result = twin.main()
    assert (result["readings"], result["impossible"], result["still_at_work"]) == (50, 45, 45)
    assert [row["n"] for row in result["rows"]] == list(twin.SIZES) and next(readings, None) is None
    assert "9 of 10" in capsys.readouterr().out


@pytest.mark.parametrize("twin", UNWAITED)
@pytest.mark.parametrize("peak", [None, 494.5])
def test_unwaited_is_drawn_against_the_ceiling(twin, peak):
    rows = [{"n": n, "ms": 0.2, "least_ms": 0.001 * n} for n in (256, 4096)]
    (ax,) = twin.plot({"rows": rows}, {"bf16_tflop_s": peak} if peak else {}).axes
    clock, least = ax.get_lines()
    assert list(clock.get_ydata()) == [0.2, 0.2] and least.get_linestyle() == "--"
    assert least.get_ydata()[1] == pytest.approx(4.096 * (989 / peak if peak else 1))


@pytest.mark.gpu
def test_unwaited_readings_are_impossible_and_waited_ones_are_not():
    broken, fixed = unwaited_broken.main(), unwaited_fixed.main()
    assert broken["impossible"] >= 25 and broken["still_at_work"] >= 25
    assert (fixed["impossible"], fixed["still_at_work"]) == (0, 0)


def test_each_call_is_timed_in_three_pieces():
    pieces = warmup_curve.call("cpu")
    assert len(pieces) == 3 and min(pieces) > 0


def test_first_calls_are_the_first_of_a_fresh_process(monkeypatch):
    monkeypatch.setattr(warmup_curve, "PROCESSES", 1)
    monkeypatch.setattr(warmup_curve, "CALLS", 3)  # a fresh process does not know of this
    (trials,) = warmup_curve.in_fresh_processes("cpu")
    assert len(trials) == 20 and all(len(pieces) == 3 and min(pieces) > 0 for pieces in trials)


def warm_up_trials(first: list[float], later: list[float]) -> list[list[float]]:
    return [first, *[later] * (warmup_curve.CALLS - 1)]


def test_warm_up_summary_takes_medians_over_processes(monkeypatch, capsys):
    trials = [warm_up_trials([100.0 * k, 20.0 * k, 3.0 * k], [0.1 * k, 0.2 * k, 0.3 * k]) for k in (1, 2, 30)]
    found = warmup_curve.summary(trials)
    assert found["first_ms"] == found["calls_ms"][0] == 246.0 and found["steady_ms"] == pytest.approx(1.2)
    assert found["first_pieces_ms"] == {"allocate": 200.0, "draw": 40.0, "multiply": 6.0}
    assert found["steady_pieces_ms"]["multiply"] == 0.6 and len(found["calls_ms"]) == 20
    monkeypatch.setattr(warmup_curve, "in_fresh_processes", lambda device: trials)
    result = warmup_curve.main()
    assert result["pieces_ms_trials"] == trials and result["first_ms"] == 246.0
    assert "together      246.000 ms      1.200 ms" in capsys.readouterr().out


@pytest.mark.parametrize(("device", "lines"), [("cuda", 2), ("cpu", 1)])
def test_warm_up_curve_is_drawn_on_a_log_axis(device, lines):
    results = {"device": device, "flop": 2e9, "calls_ms": [600.0, *[0.2] * 19]}
    (ax,) = warmup_curve.plot(results, {"fp32_tflop_s": 50}).axes
    assert ax.get_yscale() == "log" and list(ax.get_lines()[0].get_ydata()) == results["calls_ms"]
    assert len(ax.get_lines()) == lines
    if lines == 2:
        assert ax.get_lines()[1].get_ydata()[0] == pytest.approx(0.04)


def test_buffers_are_the_same_one_again_or_each_once():
    pool = torch.zeros(12)
    same, each = hot_cache.repeat_same(pool, 4), hot_cache.rotate(pool, 4)
    assert [len(buffer) for buffer in same] == [len(buffer) for buffer in each] == [4, 4, 4]
    hot_cache.increments(same)
    assert pool.tolist() == [3.0] * 4 + [0.0] * 8
    pool.zero_()
    hot_cache.increments(each)
    assert pool.tolist() == [1.0] * 12
    assert len(hot_cache.rotate(pool, 5)) == len(hot_cache.repeat_same(pool, 5)) == 2


def test_bandwidth_counts_reads_and_writes_of_a_replay_that_was_checked(monkeypatch):
    pool = torch.zeros(1000)
    monkeypatch.setattr(hot_cache, "captured", lambda work: work() or work)
    monkeypatch.setattr(hot_cache, "measure", lambda replay, trials: Timing([1e-6, 2e-6]))
    assert hot_cache.bandwidth(hot_cache.rotate(pool, 100), pool) == pytest.approx([8.0, 4.0])
    monkeypatch.setattr(hot_cache, "captured", lambda work: lambda: None)
    with pytest.raises(AssertionError):
        hot_cache.bandwidth(hot_cache.repeat_same(pool, 100), pool)


def test_capture_of_the_chain_warms_up_first(monkeypatch):
    calls, recording = [], []

    @contextmanager
    def graph(which):
        recording.append(which)
        yield
        recording.clear()

    monkeypatch.setattr(torch.cuda, "CUDAGraph", lambda: SimpleNamespace(replay="replay"))
    monkeypatch.setattr(torch.cuda, "graph", graph)
    assert hot_cache.captured(lambda: calls.append(bool(recording))) == "replay" and calls == [False, True]


def test_hot_cache_main_measures_each_size_both_ways(monkeypatch, on_this_cpu, capsys):
    properties = SimpleNamespace(L2_cache_size=60 * 2**20)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
    monkeypatch.setattr(hot_cache, "POOL_MIB", 4)
    monkeypatch.setattr(hot_cache, "SIZES_MIB", (1, 2))
    hot = lambda buffers: buffers[0].data_ptr() == buffers[-1].data_ptr()  # noqa: E731
    monkeypatch.setattr(hot_cache, "bandwidth", lambda b, pool: [9.0, 1.0, 100.0 * len(b) + hot(b)])
    result = hot_cache.main()
    assert result["hot_gb_s_trials"] == [[9.0, 1.0, 401.0], [9.0, 1.0, 201.0]] and result["hot_gb_s"] == [9.0, 9.0]
    assert result["cold_gb_s_trials"] == [[9.0, 1.0, 400.0], [9.0, 1.0, 200.0]]
    assert result["l2_mib"] == 60 and "   2 MiB" in capsys.readouterr().out


def test_cache_and_memory_are_two_lines_below_one_ceiling():
    results = {"l2_mib": 60, "buffer_mib": [1, 16, 256], "hot_gb_s": [900, 5200, 4000], "cold_gb_s": [800, 3500, 4000]}
    (ax,) = hot_cache.plot(results, {"hbm_gb_s": 4800}).axes
    hot, cold, memory, cache = ax.get_lines()
    assert list(hot.get_ydata()) == [0.9, 5.2, 4.0] and list(cold.get_ydata()) == [0.8, 3.5, 4.0]
    assert memory.get_ydata()[0] == 4.8 and memory.get_color() == "gray" and cache.get_xdata()[0] == 60
    assert len(hot_cache.plot(results, {}).axes[0].get_lines()) == 3


TRACE = [
    {"cat": "kernel", "ts": 110.0, "dur": 30.0, "name": "second", "args": {"stream": 7, "grid": [2, 3, 1]}},
    {"cat": "cuda_runtime", "ph": "X", "ts": 70.0, "dur": 9.0, "name": "cudaLaunchKernel", "args": {}},
    {"cat": "cuda_runtime", "ph": "X", "ts": 50.0, "dur": 9.0, "name": "cudaLaunchKernel", "args": {}},
    {"cat": "kernel", "ts": 60.0, "dur": 10.0, "name": "first", "args": {"stream": 7, "grid": [1, 1, 1]}},
    {"cat": "cpu_op", "ph": "X", "ts": 49.0, "dur": 12.0, "name": "aten::softmax"},
    {"ph": "M", "name": "process_name"},
    {"cat": "ac2g", "ph": "s", "ts": 51.0, "name": "ac2g"},
]


def test_trace_keeps_launches_and_kernels_in_order_of_time(monkeypatch):
    profiler_that_saw([], monkeypatch, TRACE)
    events = profile_reading.trace(torch.ones(2, 3))
    assert [event["ts"] for event in events] == [50.0, 60.0, 70.0, 110.0]


def test_a_trace_is_read_as_lanes_gaps_and_share():
    events = sorted((event for event in TRACE if event.get("cat") in ("kernel", "cuda_runtime")), key=lambda e: e["ts"])
    found = profile_reading.read(events)
    assert found["blocks"] == 6 and found["gap_us"] == 40.0
    assert found["busy_percent"] == pytest.approx(100 * 40 / 80)
    assert found["events"][1] == ["stream 7", 10.0, 10.0, "first"]
    assert [event[0] for event in found["events"]] == ["CPU", "stream 7", "CPU", "stream 7"]


def test_a_probe_without_an_answer_says_so(capsys):
    def utilization():
        raise ModuleNotFoundError("nvidia-ml-py does not seem to be installed")

    assert profile_reading.answers(lambda: 0) and not profile_reading.answers(utilization)
    expected = "utilization is missing: ModuleNotFoundError: nvidia-ml-py does not seem to be installed\n"
    assert capsys.readouterr().out == expected


def test_probes_are_asked_only_after_a_second_of_work(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(profile_reading, "time", SimpleNamespace(perf_counter=lambda: now[0]))
    monkeypatch.setattr(profile_reading, "softmax", lambda x, times: now.__setitem__(0, now[0] + 0.05))
    seen = profile_reading.watch(None, {"asked": lambda: now[0]})
    assert min(seen["asked"]) > 1.0 and 4 <= len(seen["asked"]) <= 7
    assert profile_reading.watch(None, {}) == {}


def test_profile_main_reports_each_shape(monkeypatch, on_this_cpu, capsys):
    monkeypatch.setattr(profile_reading, "SHAPES", {"tiny": (4, 8), "one_row": (1, 64)})
    monkeypatch.setattr(profile_reading, "PROBES", {"utilisation_percent": lambda: 97})
    monkeypatch.setattr(profile_reading, "QUEUED", 2)
    monkeypatch.setattr(profile_reading, "trace", lambda x: x)
    monkeypatch.setattr(profile_reading, "read", lambda x: {"blocks": len(x), "busy_percent": 50.0, "events": []})
    monkeypatch.setattr(profile_reading, "watch", lambda x, probes: {name: [probe()] for name, probe in probes.items()})
    monkeypatch.setattr(profile_reading, "measure", lambda work: work() or Timing([1e-6, 2e-6, 1e-7]))
    result = profile_reading.main()
    assert result["tiny"]["gb_s"] == pytest.approx(8 * 32 * 2 / 1e-6 / 1e9) and result["one_row"]["blocks"] == 1
    assert result["tiny"]["gb_s_trials"] == pytest.approx([0.512, 0.256, 5.12])
    assert result["tiny"]["utilisation_percent"] == [97]
    assert "one_row       1 blocks, running  50 %,     1.02 GB/s, utilisation_percent 97" in capsys.readouterr().out


def test_profile_is_drawn_as_lanes_with_the_cpu_on_top():
    first = [["CPU", 0.0, 900.0, "cudaLaunchKernel"], ["stream 7", 901.0, 2.0, "softmax"]]
    later = [["CPU", 920.0, 9.0, "cudaLaunchKernel"], ["stream 7", 930.0, 2.0, "softmax"]]
    row = {"events": first + later}
    figure = profile_reading.plot({"tiny": row, "one_row": row, "many_rows": row}, {})
    assert [ax.get_title() for ax in figure.axes] == ["tiny", "one row", "many rows"]
    for ax in figure.axes:
        assert [label.get_text() for label in ax.get_yticklabels()] == ["CPU", "stream 7"] and ax.yaxis_inverted()
        assert [lane.get_label() for lane in ax.collections] == ["CPU", "stream 7"]
        assert ax.collections[1].get_paths()[0].get_extents().x0 == 10.0


@pytest.mark.gpu
def test_one_row_is_one_block_and_keeps_the_gpu_busy():
    read = profile_reading.read(profile_reading.trace(torch.randn(1, 2**20, device="cuda")))
    assert read["blocks"] == 1 and read["busy_percent"] > 90
    assert {event[0] for event in read["events"]} > {"CPU"}


def test_recorded_clocks_are_medians(recorded):
    for profile, result in recorded("timing/clocks_compared").items():
        assert result["ms"] == {name: median(trials) for name, trials in result["ms_trials"].items()}, profile
        assert set(result["ms"]) <= set(clocks_compared.CLOCKS) and "events" in result["ms"], profile
        assert len(clocks_compared.plot(result, {}).axes[0].patches) == len(result["ms"]), profile


@pytest.mark.parametrize("twin", UNWAITED)
def test_recorded_counts_follow_from_the_readings(recorded, twin):
    for profile, result in recorded(twin.__name__.removeprefix("snippets.").replace(".", "/")).items():
        for row in result["rows"]:
            assert row["impossible"] == sum(ms < row["least_ms"] for ms in row["ms_trials"]), profile
            assert row["ms"] == median(row["ms_trials"]), profile
        assert result["impossible"] == sum(row["impossible"] for row in result["rows"]), profile
        assert twin.plot(result, {}).axes[0].get_lines()[0].get_ydata()[0] == result["rows"][0]["ms"], profile


def test_recorded_warm_up_follows_from_its_trials(recorded):
    for profile, result in recorded("timing/warmup_curve").items():
        assert len(result["pieces_ms_trials"]) == warmup_curve.PROCESSES, profile
        found = warmup_curve.summary(result["pieces_ms_trials"])
        assert found == {key: result[key] for key in found}, profile
        assert len(warmup_curve.plot(result, {}).axes[0].get_lines()[0].get_ydata()) == warmup_curve.CALLS, profile


def test_recorded_bandwidths_are_medians(recorded):
    for profile, result in recorded("timing/hot_cache").items():
        for way in ("hot", "cold"):
            assert result[f"{way}_gb_s"] == [median(trials) for trials in result[f"{way}_gb_s_trials"]], profile
        assert len(hot_cache.plot(result, {}).axes[0].get_lines()) == 3, profile


def test_recorded_profile_has_lanes_for_cpu_and_stream(recorded):
    for profile, result in recorded("timing/profile_reading").items():
        for name in profile_reading.SHAPES:
            events = result[name]["events"]
            kernels = [event for event in events if event[0] != "CPU"]
            assert len(kernels) >= profile_reading.PROFILED and len(events) <= 400, (profile, name)
            whole = kernels[-1][1] + kernels[-1][2] - kernels[0][1]
            busy = 100 * sum(event[2] for event in kernels) / whole
            assert result[name]["busy_percent"] == pytest.approx(busy, abs=0.1), (profile, name)
        assert len(profile_reading.plot(result, {}).axes) == 3, profile
