"""The timing chapter: its tools, and what each way to fool oneself does."""

import json
import time
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from pathlib import Path
from statistics import median
from types import SimpleNamespace
from typing import ClassVar

import pytest
import torch

from snippets.timing import (
    benchmark,
    clocks_compared,
    duty_cycle,
    hot_cache,
    kernel_shapes,
    profile_reading,
    unwaited_broken,
    unwaited_fixed,
    warmup_curve,
    wrong_device_sync_broken,
    wrong_device_sync_fixed,
)
from snippets.timing.benchmark import Timing

TWINS = [wrong_device_sync_broken, wrong_device_sync_fixed]
UNWAITED = [unwaited_broken, unwaited_fixed]


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
def test_the_twins_count_products_and_flop(twin):
    row = twin.figures(Timing([0.02, 0.01, 0.03]), 10, 40)
    product = 2 * 8192**3
    assert row["longest_flop"] == 40 * product and row["tflop_s"] == pytest.approx(50 * product / 0.02 / 1e12)
    assert (row["ms"], row["ms_trials"]) == (20.0, [20.0, 10.0, 30.0])


@pytest.mark.parametrize("twin", TWINS)
def test_both_gpus_get_the_work_that_each_gets_alone(twin, monkeypatch):
    queued = []
    monkeypatch.setattr(torch, "randn", lambda *shape, device, dtype: device)
    monkeypatch.setattr(twin, "square", lambda x, times: queued.append((x, times)))
    monkeypatch.setattr(twin, "timed", lambda work: Timing([0.01]) if work() is None else None)
    result = twin.main()
    alone = [("cuda:0", 10), ("cuda:1", 40)]
    assert queued == 2 * alone and list(result) == ["first", "second", "both"]
    assert result["both"]["tflop_s"] == pytest.approx(
        result["first"]["tflop_s"] + result["second"]["tflop_s"]
    )


@pytest.mark.parametrize("twin", TWINS)
def test_twin_plot_marks_the_least_possible_time(twin):
    flop = {"first": 10e12, "second": 40e12, "both": 40e12}
    results = {actor: {"ms": 5.0, "longest_flop": longest} for actor, longest in flop.items()}
    axes = twin.plot(results, {"bf16_tflop_s": 1000}).axes[0]
    assert [bar.get_width() for bar in axes.patches] == [5.0, 5.0, 5.0]
    assert [segment[0][0] for segment in axes.collections[0].get_segments()] == [10.0, 40.0, 40.0]
    assert axes.get_xlabel() == "reported time, ms" and axes.yaxis_inverted()
    assert not twin.plot(results, {}).axes[0].collections


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


@pytest.mark.parametrize(
    ("twin", "before_the_last_clock"), [(unwaited_broken, "mm"), (unwaited_fixed, "wait")]
)
def test_unwaited_twins_differ_in_one_wait(twin, before_the_last_clock, monkeypatch):
    diary = []

    def read_clock():
        diary.append("clock")
        return float(len(diary))

    monkeypatch.setattr(torch.cuda, "synchronize", lambda: diary.append("wait"))
    monkeypatch.setattr(
        torch.cuda, "current_stream", lambda: SimpleNamespace(query=lambda: diary[-2] == "wait")
    )
    monkeypatch.setattr(torch, "mm", lambda x, y: diary.append("mm"))
    monkeypatch.setattr(twin, "time", SimpleNamespace(perf_counter=read_clock))
    ms, working = twin.reading(torch.ones(2, 2))
    assert diary[:2] == ["wait", "clock"] and diary.count("mm") == twin.PRODUCTS
    assert diary[-2:] == [before_the_last_clock, "clock"]
    assert working == (before_the_last_clock == "mm") and ms == 1e3 * (len(diary) - 2)


@pytest.mark.parametrize("twin", UNWAITED)
def test_unwaited_rows_drop_the_warm_up(twin, monkeypatch, gpu):
    monkeypatch.setattr(twin, "SIZES", (4, 8))
    readings = iter([(99.0, False), (99.0, False), *[(0.5, True)] * 9, (8.0, False)] * 2)
    monkeypatch.setattr(twin, "reading", lambda x: next(readings))
    first, second = twin.main()["rows"]
    assert (first["n"], first["ms"], first["still_at_work"]) == (4, 0.5, 9) and second["flop"] == 20 * 8**3
    assert first["ms_trials"] == [0.5] * 9 + [8.0] and next(readings, None) is None


@pytest.mark.parametrize("twin", UNWAITED)
def test_unwaited_is_drawn_against_the_ceiling(twin):
    rows = [{"n": n, "ms": 0.2, "flop": 1e9 * n} for n in (256, 4096)]
    clock, least = twin.plot({"rows": rows}, {"bf16_tflop_s": 500}).axes[0].get_lines()
    assert list(clock.get_ydata()) == [0.2, 0.2] and least.get_linestyle() == "--"
    assert least.get_ydata()[1] == pytest.approx(4.096e12 / 500e12 * 1e3)
    assert len(twin.plot({"rows": rows}, {}).axes[0].get_lines()) == 1


@pytest.mark.gpu
def test_unwaited_readings_show_the_launch_and_waited_ones_the_work():
    broken, fixed = unwaited_broken.main()["rows"], unwaited_fixed.main()["rows"]
    assert broken[-1]["ms"] < 0.2 * fixed[-1]["ms"]
    assert broken[-1]["still_at_work"] == 10 and not any(row["still_at_work"] for row in fixed)


def profiler_that_saw(monkeypatch, trace):
    """Replace the profiler by one that writes this trace."""

    @contextmanager
    def profile(**options):
        assert options == {"acc_events": True}
        export = lambda path: Path(path).write_text(json.dumps({"traceEvents": trace}))  # noqa: E731
        yield SimpleNamespace(export_chrome_trace=export)

    monkeypatch.setattr(torch.profiler, "profile", profile)


def test_events_are_read_after_the_second_mark_was_passed(monkeypatch):
    diary = []

    class Event:
        def __init__(self, enable_timing):
            assert enable_timing

        def record(self):
            diary.append("mark")

        def synchronize(self):
            diary.append("wait")

        def elapsed_time(self, end):
            return 5.0

    monkeypatch.setattr(torch.cuda, "Event", Event)
    assert clocks_compared.events(lambda: diary.append("work"), 3) == 0.005
    assert diary == ["mark", "mark", "mark", "work", "mark", "wait"], "both events exist before"


def test_the_profiler_counts_the_kernels_of_one_call(monkeypatch):
    calls = []
    rows = [["CPU", 0.0, 900.0, "launch"], ["stream 7", 1.0, 30.0, "spin"], ["stream 7", 40.0, 10.0, "spin"]]
    monkeypatch.setattr(clocks_compared, "lanes", lambda work: rows if work() is None else None)
    assert clocks_compared.profiler(lambda: calls.append(1), 2) == pytest.approx(20e-6) and len(calls) == 2


@pytest.mark.parametrize("name", ["timer", "block", "measure", "unwaited"])
def test_clocks_of_the_cpu_see_the_time_that_passes(name):
    read, _ = clocks_compared.CLOCKS[name]
    assert 0.001 <= read(lambda: time.sleep(0.001), 3) < 0.05


def test_clocks_take_turns_and_are_listed_from_the_shortest(monkeypatch):
    turns = []

    def clock(us):
        return lambda work, calls: turns.append(us) or us * work.args[0] / 1e6

    monkeypatch.setattr(torch.cuda, "_sleep", lambda cycles: None)
    monkeypatch.setattr(clocks_compared, "CYCLES", {"small": 1, "large": 10})
    monkeypatch.setattr(clocks_compared, "CALLS", {"small": 5, "large": 1})
    monkeypatch.setattr(
        clocks_compared, "CLOCKS", {"wait": (clock(9), "all"), "launch": (clock(2), "little")}
    )
    result = clocks_compared.main()
    assert turns == [9, 2] * 16 and result["cycles"] == {"small": 1, "large": 10}
    assert result["large"]["us"] == pytest.approx({"wait": 90, "launch": 20})
    assert len(result["small"]["us_trials"]["wait"]) == 7


def test_clocks_are_drawn_as_multiples_of_the_kernel():
    size = {"us": {"profiler": 2.0, "unwaited": 8.0, "measure": 20.0}}
    (ax,) = clocks_compared.plot(dict.fromkeys(clocks_compared.CYCLES, size), {}).axes
    assert [dots.get_offsets()[:, 0].tolist() for dots in ax.collections] == [[1.0, 4.0, 10.0]] * 3
    assert ax.get_lines()[0].get_xdata()[0] == 1 and ax.get_xscale() == "log"


@pytest.mark.gpu
def test_clocks_that_wait_see_a_long_kernel_and_the_unwaited_one_does_not():
    us = clocks_compared.main()["large"]["us"]
    assert us["unwaited"] < 0.1 * us["profiler"] and us["measure"] == pytest.approx(us["profiler"], rel=0.1)


def test_each_call_is_timed_in_three_pieces():
    pieces = warmup_curve.call("cpu")
    assert list(pieces) == ["allocate", "draw", "multiply"] and min(pieces.values()) > 0


def test_first_calls_are_the_first_of_a_fresh_process(monkeypatch):
    monkeypatch.setattr(warmup_curve, "PROCESSES", 1)
    monkeypatch.setattr(warmup_curve, "CALLS", 3)  # a fresh process does not know of this
    (trials,) = warmup_curve.in_fresh_processes("cpu")
    assert len(trials) == 20 and all(len(pieces) == 3 and min(pieces.values()) > 0 for pieces in trials)


def test_warm_up_takes_medians_over_processes(monkeypatch):
    def run(k):
        first, later = [100.0 * k, 20.0 * k, 3.0 * k], [0.1 * k, 0.2 * k, 0.3 * k]
        names = ("allocate", "draw", "multiply")
        return [dict(zip(names, ms, strict=True)) for ms in [first, *[later] * (warmup_curve.CALLS - 1)]]

    monkeypatch.setattr(warmup_curve, "in_fresh_processes", lambda device: [run(k) for k in (1, 2, 30)])
    result = warmup_curve.main()
    assert result["first_ms"] == result["calls_ms"][0] == 246.0 and result["steady_ms"] == pytest.approx(1.2)
    assert result["first_pieces_ms"] == {"allocate": 200.0, "draw": 40.0, "multiply": 6.0}
    assert result["first_pieces_ms_trials"]["draw"] == [20.0, 40.0, 600.0] and len(result["calls_ms"]) == 20


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
    hot_cache.increment(same)
    assert pool.tolist() == [3.0] * 4 + [0.0] * 8
    pool.zero_()
    hot_cache.increment(each)
    assert pool.tolist() == [1.0] * 12
    assert len(hot_cache.rotate(pool, 5)) == len(hot_cache.repeat_same(pool, 5)) == 2


def test_bandwidth_counts_reads_and_writes(monkeypatch):
    def turns(works):
        for work in works.values():
            work()
        return {"hot": Timing([1e-6, 2e-6]), "cold": Timing([2e-6, 6e-6])}

    pool = torch.zeros(3 * 2**18)
    monkeypatch.setattr(hot_cache, "captured", lambda work: work)
    monkeypatch.setattr(hot_cache, "take_turns", turns)
    row = hot_cache.compared(pool, 1)
    moved = 2 * 4 * len(pool)
    assert row["hot_gb_s_trials"] == pytest.approx([moved / 1e3, moved / 2e3]) and row["ratio_trials"] == [
        2.0,
        3.0,
    ]
    assert row["mib"] == 1 and row["ratio"] == 2.5
    assert pool.tolist() == [4.0] * 2**18 + [1.0] * 2**19


def test_cache_and_memory_are_two_lines_below_one_ceiling():
    hot, cold = [900, 5200, 4000], [800, 3500, 4000]
    rows = [
        {"mib": m, "hot_gb_s": h, "cold_gb_s": c} for m, h, c in zip([4, 16, 256], hot, cold, strict=True)
    ]
    results = {"l2_mib": 60, "rows": rows}
    first, second, memory, cache = hot_cache.plot(results, {"hbm_gb_s": 4800}).axes[0].get_lines()
    assert list(first.get_ydata()) == [0.9, 5.2, 4.0] and list(second.get_ydata()) == [0.8, 3.5, 4.0]
    assert memory.get_ydata()[0] == 4.8 and memory.get_color() == "gray" and cache.get_xdata()[0] == 60
    assert len(hot_cache.plot(results, {}).axes[0].get_lines()) == 3


@pytest.mark.gpu
def test_a_small_buffer_is_faster_the_second_time():
    pool = torch.zeros(256 * 2**18, device="cuda")
    assert hot_cache.compared(pool, 8)["ratio"] > 1.2
    least, most = int(pool.min()), int(pool.max())
    assert 0 < least < most == 33 * least, "of 32 buffers the first is counted up in both loops"


def test_blocks_are_those_of_the_largest_kernel(monkeypatch):
    calls = []
    kernels = [
        {"cat": "kernel", "name": f"k{i}", "args": {"grid": grid}}
        for i, grid in enumerate(([2, 3, 1], [1, 1, 1]))
    ]
    profiler_that_saw(monkeypatch, [*kernels, {"cat": "cpu_op"}, {"ph": "M"}])
    shown = [{"name": "k0", "grid": [2, 3, 1]}, {"name": "k1", "grid": [1, 1, 1]}]
    assert kernel_shapes.kernels_of(lambda: None) == shown
    assert profile_reading.thread_blocks(lambda: calls.append(1)) == 6 and calls == [1]


def test_profile_reports_each_shape(monkeypatch, gpu):
    events = [
        ["CPU", 0.0, 9.0, "launch"],
        ["stream 7", 5.0, 2.0, "softmax"],
        ["stream 7", 9.0, 4.0, "softmax"],
    ]
    monkeypatch.setattr(profile_reading, "SHAPES", {"tiny": (4, 8), "one_row": (1, 64)})
    monkeypatch.setattr(profile_reading, "thread_blocks", lambda work: len(work()))
    monkeypatch.setattr(profile_reading, "lanes", lambda work: events if work() is None else None)
    result = profile_reading.main()
    assert (result["tiny"]["bytes"], result["tiny"]["blocks"], result["one_row"]["blocks"]) == (256, 4, 1)
    assert (result["tiny"]["kernel_us"], result["tiny"]["kernel_us_trials"]) == (3.0, [2.0, 4.0])
    assert result["tiny"]["us"] == median(result["tiny"]["us_trials"]) > 0
    figure = profile_reading.plot(result | {"many_rows": result["tiny"]}, {})
    assert [ax.get_title() for ax in figure.axes] == ["tiny", "one row"]


@pytest.mark.gpu
def test_one_row_is_one_block():
    x = torch.randn(1, 2**20, device="cuda")
    assert profile_reading.thread_blocks(lambda: x.softmax(-1)) == 1


def test_recorded_profile_has_lanes_for_cpu_and_stream(recorded):
    for profile, result in recorded("timing/profile_reading").items():
        for name in profile_reading.SHAPES:
            kernels = [event[2] for event in result[name]["events"] if event[0] != "CPU"]
            assert result[name]["kernel_us_trials"] == kernels and len(kernels) == 12, (profile, name)


def test_a_kernel_is_launched_at_the_beginning_of_each_period():
    starts = []
    duty_cycle.paced(lambda: starts.append(time.perf_counter()), 0.005, 5)
    gaps = [later - start for start, later in pairwise(starts)]
    assert len(starts) == 5 and 0.015 < sum(gaps) < 0.5


def test_kernels_alone_are_told_apart_by_their_order(monkeypatch):
    launched = []

    def profile(work):
        work()
        rows = [["stream 7", 10.0 * k, float(us), "spin"] for k, us in enumerate(launched)]
        return [["CPU", 0.0, 5.0, "launch"], *rows]

    monkeypatch.setattr(duty_cycle, "lanes", profile)
    kernels = {name: partial(launched.append, us) for name, us in {"a": 2, "b": 30}.items()}
    assert duty_cycle.alone_us(kernels) == {"a": [2.0] * 7, "b": [30.0] * 7}


class Meter:
    """A power meter that has read six times."""

    missing: ClassVar = ""
    rows: ClassVar = {
        "s": [0.1, 0.2, 0.3, 0.4, 0.5, 0.6],
        "busy_percent": [9, 9, 9, 9, 30, 40],
        "watt": [1.0] * 4 + [120.0] * 2,
        "watt_now": [1.0] * 4 + [140.0] * 2,
    }

    def __enter__(self):
        return self

    def __exit__(self, *exc_info):
        pass


def test_only_what_nvml_says_late_counts(monkeypatch):
    launches = []
    monkeypatch.setattr(duty_cycle, "PowerMeter", Meter)
    monkeypatch.setattr(duty_cycle, "SECONDS", 0.01)
    row = duty_cycle.watched(lambda: launches.append(1), 1000)
    assert len(launches) == 10 and 900 <= row["period_us"] < 50_000
    assert (row["busy_percent"], row["busy_percent_trials"]) == (35.0, [30, 40])
    assert (row["watt"], row["watt_trials"]) == (120.0, [120.0, 120.0])
    assert (row["watt_now"], row["watt_now_trials"]) == (140.0, [140.0, 140.0])
    monkeypatch.setattr(Meter, "missing", "no such library")
    with pytest.raises(RuntimeError, match="no such library"):
        duty_cycle.watched(lambda: None, 1000)


def test_the_share_is_of_the_period_as_it_turned_out(monkeypatch, gpu):
    seen = {"period_us": 40.0, "busy_percent": 22.0, "watt": 120.0, "watt_now": 130.0}
    monkeypatch.setattr(duty_cycle, "alone_us", lambda kernels: {name: [4.0, 5.0, 9.0] for name in kernels})
    monkeypatch.setattr(duty_cycle, "watched", lambda kernel, period_us: dict(seen))
    result = duty_cycle.main()
    assert list(result) == [*duty_cycle.KERNELS, "product"] and result["product"] == seen
    assert result["short_2us"]["kernel_percent"] == 12.5
    assert result["short_2us"]["kernel_percent_trials"] == [10.0, 12.5, 22.5]


def test_duty_cycles_are_drawn_beside_the_definition():
    shares = {
        "long_5ms": (50.0, 50),
        "long_10ms": (99.0, 100),
        "short_2us": (14.0, 22),
        "short_6us": (34.0, 42),
    }
    results = {name: {"kernel_percent": runs, "busy_percent": nvml} for name, (runs, nvml) in shares.items()}
    (ax,) = duty_cycle.plot(results, {}).axes
    drawn = [[tuple(dot) for dot in dots.get_offsets().tolist()] for dots in ax.collections]
    assert drawn == [[(50.0, 50), (99.0, 100)], [(14.0, 22), (34.0, 42)]]
    assert list(ax.get_lines()[0].get_xdata()) == [0, 100] and ax.get_lines()[0].get_linestyle() == "--"
