"""The timing chapter: what each way to fool oneself does, and what a clock includes."""

import gzip
import json
import os
import subprocess
import sys
import time
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
import torch
from conftest import ROOT, run_alone
from fake_cuda import Event

from snippets.timing import (
    benchmark,
    clocks_compared,
    core_pace,
    duty_cycle,
    first_trace,
    hot_cache,
    kernel_counters,
    kernel_shapes,
    labels,
    profile_reading,
    short_kernels,
    sm_activity,
    unwaited_broken,
    unwaited_fixed,
    warmup_curve,
    wrong_device_sync_broken,
    wrong_device_sync_fixed,
)
from snippets.timing.benchmark import Timing

TWINS = [wrong_device_sync_broken, wrong_device_sync_fixed]
UNWAITED = [unwaited_broken, unwaited_fixed]


@pytest.mark.parametrize("option", ["with_stack", "record_shapes", "profile_memory"])
def test_an_option_of_the_profiler_makes_its_file_larger(tmp_path, option):
    model = torch.nn.Sequential(*[torch.nn.Linear(8, 8) for _ in range(5)])
    sizes, cpu = [], [torch.profiler.ProfilerActivity.CPU]
    for options in ({}, {option: True}):
        with torch.profiler.profile(activities=cpu, acc_events=True, **options) as profiler:
            for _ in range(5):
                model(torch.ones(2, 8)).sum().backward()
        profiler.export_chrome_trace(str(tmp_path / "trace.json"))
        sizes.append((tmp_path / "trace.json").stat().st_size)
    assert sizes[1] > 1.05 * sizes[0]


def test_the_twins_differ_in_whom_they_wait_for(two_gpus):
    wrong_device_sync_broken.timed(two_gpus.launch)
    assert two_gpus.diary[-2:] == ["wait 0", "wait 1"], "afterwards the queues are emptied"
    assert "wait 1" not in two_gpus.diary[:-1], "while the clock runs, nobody waits for GPU 1"
    two_gpus.diary.clear()
    wrong_device_sync_fixed.timed(two_gpus.launch)
    assert two_gpus.diary[-4:] == ["wait 0", "wait 1"] * 2


@pytest.mark.parametrize("twin", TWINS)
def test_the_twins_count_products_and_flop(twin):
    row = twin.figures(Timing([0.02, 0.01, 0.03]), 10, 40)
    product = 2 * 8192**3
    assert row["longest_flop"] == 40 * product and row["tflop_s"] == pytest.approx(50 * product / 0.02 / 1e12)
    assert (row["ms"], row["ms_trials"]) == (20.0, [20.0, 10.0, 30.0])


@pytest.mark.parametrize("twin", TWINS)
def test_both_gpus_get_the_work_that_each_gets_alone(twin, two_gpus, monkeypatch):
    queued = []
    monkeypatch.setattr(torch, "randn", lambda *shape, device, dtype: device)
    monkeypatch.setattr(twin, "square", lambda x, count: queued.append((x, count)))
    monkeypatch.setattr(twin, "timed", lambda work: Timing([0.01]) if work() is None else None)
    twin.main()
    assert queued == 2 * [("cuda:0", 10), ("cuda:1", 40)]


@pytest.mark.parametrize("twin", TWINS)
def test_the_least_possible_time_is_that_of_the_ceiling(twin):
    flop = {"first": 10e12, "second": 40e12, "both": 40e12}
    results = {actor: {"ms": 5.0, "longest_flop": longest} for actor, longest in flop.items()}
    bars, *limits = twin.plot(results, {"bf16_tflop_s": 1000}).panels[0].marks
    assert bars.values == {"GPU 0": 5.0, "GPU 1": 5.0, "both": 5.0}
    assert [(limit.at, limit.part[0]) for limit in limits] == [
        (10.0, "GPU 0"),
        (40.0, "GPU 1"),
        (40.0, "both"),
    ]


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


@pytest.mark.parametrize(("twin", "ms", "working"), [(unwaited_broken, 0.1, 10), (unwaited_fixed, 10, 0)])
def test_only_the_fixed_twin_waits_for_its_products(twin, ms, working, gpu, monkeypatch):
    monkeypatch.setattr(twin, "SIZES", (4,))
    gpu.kernel_s["mm"] = 1e-3
    (row,) = twin.main()["rows"]
    assert (row["ms"], row["still_at_work"]) == (pytest.approx(ms, rel=0.01), working)
    assert row["flop"] == 20 * 4**3


@pytest.mark.parametrize("twin", UNWAITED)
def test_unwaited_rows_drop_the_warm_up(twin, monkeypatch, gpu):
    monkeypatch.setattr(twin, "SIZES", (4,))
    readings = iter([(99.0, False), (99.0, False), *[(0.5, True)] * 9, (8.0, False)])
    monkeypatch.setattr(twin, "reading", lambda x: next(readings))
    (row,) = twin.main()["rows"]
    assert row["ms_trials"] == [0.5] * 9 + [8.0] and row["still_at_work"] == 9


@pytest.mark.parametrize("twin", UNWAITED)
def test_unwaited_is_drawn_against_the_ceiling(twin):
    rows = [{"n": n, "ms": 0.2, "flop": 1e9 * n} for n in (256, 4096)]
    clock, least, note = twin.plot({"rows": rows}, {"bf16_tflop_s": 500}).panels[0].marks
    assert clock.y == [0.2, 0.2]
    assert least.y[1] == pytest.approx(4.096e12 / 500e12 * 1e3)
    assert (note.x, note.y) == (4096, least.y[1]), "below the line"


@pytest.mark.gpu
def test_unwaited_readings_show_the_launch_and_waited_ones_the_work():
    broken, fixed = unwaited_broken.main()["rows"], unwaited_fixed.main()["rows"]
    assert broken[-1]["ms"] < 0.2 * fixed[-1]["ms"]
    assert broken[-1]["still_at_work"] == 10 and not any(row["still_at_work"] for row in fixed)


@pytest.mark.parametrize(
    ("clock", "us"),
    [
        ("profiler", 50),
        ("gpu_clock", 50),
        ("events", 60),  # the mark before the launch
        ("block", 50),
        ("unwaited", 10),
        ("measure", 60),
    ],
)
def test_what_each_clock_sees_of_a_kernel_of_50_us_and_its_launch_of_10(clock, us, gpu):
    calls = 100
    read: Any = clocks_compared.CLOCKS[clock][0]
    assert 1e6 * read(partial(gpu.launch, 50e-6), calls) == pytest.approx(us, rel=0.03)


def test_both_events_are_made_before_the_time_between_them_begins(gpu, monkeypatch):
    diary, record = [], Event.record
    monkeypatch.setattr(Event, "record", lambda event: diary.append("mark") or record(event))
    clocks_compared.events(lambda: diary.append("work"), 1)
    assert diary == ["mark", "mark", "mark", "work", "mark"]


def test_a_timer_of_pytorch_sees_the_time_that_passes():
    assert 0.001 <= clocks_compared.timer(lambda: time.sleep(0.001), 3) < 1, "in seconds"


def test_clocks_take_turns(monkeypatch):
    turns = []

    def clock(us):
        return lambda work, calls: turns.append(us) or us * work.args[0] / 1e6

    monkeypatch.setattr(torch.cuda, "_sleep", lambda cycles: None)
    monkeypatch.setattr(clocks_compared, "CYCLES", {"small": 1, "large": 10})
    monkeypatch.setattr(clocks_compared, "CALLS", {"small": 5, "large": 1})
    clocks = {"wait": (clock(9), "all"), "launch": (clock(2), "little")}
    monkeypatch.setattr(clocks_compared, "CLOCKS", clocks)
    result = clocks_compared.main()
    assert turns == [9, 2] * 16
    assert result["large"]["us"] == pytest.approx({"wait": 90, "launch": 20})


def test_clocks_are_drawn_as_multiples_of_what_the_kernel_counts():
    size = {"us": {"profiler": 2.0, "unwaited": 8.0, "measure": 20.0}}
    result = dict.fromkeys(clocks_compared.CYCLES, size) | {"cycles": {"small": 1, "middle": 10, "large": 20}}
    *dots, counted = clocks_compared.plot(result, {}).panels[0].marks
    assert counted.at == 1
    drawn = [each.x for each in dots]
    assert drawn == [[20.0, 80.0, 200.0], [2.0, 8.0, 20.0], [1.0, 4.0, 10.0]], "by the long kernel"


def test_what_each_clock_adds_to_a_kernel_is_where_its_line_begins(gpu, monkeypatch):
    monkeypatch.setattr(short_kernels, "profiler", lambda work, calls: 0.5e-6 + 1e-9 * work.args[0] / 2)
    monkeypatch.setattr(short_kernels, "events", lambda work, calls: 9e-6)
    result = short_kernels.main()
    assert result["lines"]["profiler"] == pytest.approx({"adds_us": 0.5, "mhz": 2000})
    assert result["us"]["profiler"][0] == pytest.approx(0.5)
    assert set(result["us"]) == {"profiler", "graph", "gpu_clock", "events"}
    assert result["lines"]["graph"] == pytest.approx({"adds_us": 0, "mhz": 2000}), "the imitation has no gaps"
    counted = short_kernels.plot(result, {}).panels[0].marks[-1]
    assert counted.x == counted.y and counted.y[-1] > 0


@pytest.mark.gpu
def test_clocks_that_wait_see_a_long_kernel_and_the_unwaited_one_does_not():
    us = clocks_compared.main()["large"]["us"]
    assert us["unwaited"] < 0.1 * us["profiler"] and us["measure"] == pytest.approx(us["profiler"], rel=0.1)


def test_first_calls_are_the_first_of_a_fresh_process(monkeypatch):
    monkeypatch.setattr(warmup_curve, "PROCESSES", 1)
    monkeypatch.setattr(warmup_curve, "CALLS", 3)  # a fresh process does not know of this
    (trials,) = warmup_curve.in_fresh_processes("cpu")
    assert len(trials) == 20 and all(min(pieces.values()) > 0 for pieces in trials)
    assert list(trials[0]) == ["allocate", "draw", "multiply"]


def test_warm_up_takes_medians_over_processes(monkeypatch):
    def process(k):
        first, later = [100.0 * k, 20.0 * k, 3.0 * k], [0.1 * k, 0.2 * k, 0.3 * k]
        names = ("allocate", "draw", "multiply")
        return [dict(zip(names, ms, strict=True)) for ms in [first, *[later] * (warmup_curve.CALLS - 1)]]

    monkeypatch.setattr(warmup_curve, "in_fresh_processes", lambda device: [process(k) for k in (1, 2, 30)])
    result = warmup_curve.main()
    assert result["first_ms"] == result["calls_ms"][0] == 246.0 and result["steady_ms"] == pytest.approx(1.2)
    assert result["first_pieces_ms"] == {"allocate": 200.0, "draw": 40.0, "multiply": 6.0}


def test_the_ceiling_of_the_warm_up_curve_is_that_of_its_product():
    results = {"device": "cuda", "flop": 2e9, "calls_ms": [600.0, *[0.2] * 19]}
    calls, least = warmup_curve.plot(results, {"fp32_tflop_s": 50}).panels[0].marks
    assert calls.y == results["calls_ms"] and least.at == pytest.approx(0.04)
    results["device"] = "cpu"
    assert len(warmup_curve.plot(results, {"fp32_tflop_s": 50}).panels[0].marks) == 1


def test_buffers_are_the_same_one_again_or_each_once():
    pool = torch.zeros(12)
    hot_cache.increment(hot_cache.repeat_same(pool, 4))
    assert pool.tolist() == [3.0] * 4 + [0.0] * 8
    pool.zero_()
    hot_cache.increment(hot_cache.rotate(pool, 4))
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
    assert row["hot_gb_s_trials"] == pytest.approx([moved / 1e3, moved / 2e3])
    assert row["ratio_trials"] == [2.0, 3.0] and (row["mib"], row["ratio"]) == (1, 2.5)
    assert pool.tolist() == [4.0] * 2**18 + [1.0] * 2**19


@pytest.mark.gpu
def test_a_small_buffer_is_faster_the_second_time():
    pool = torch.zeros(256 * 2**18, device="cuda")
    assert hot_cache.compared(pool, 8)["ratio"] > 1.2
    least, most = int(pool.min()), int(pool.max())
    assert 0 < least < most == 33 * least, "of 32 buffers the first is counted up in both loops"


def test_blocks_are_those_of_the_largest_kernel(monkeypatch):
    kernels = [
        {"cat": "kernel", "name": "k0", "args": {"grid": [2, 3, 1]}},
        {"cat": "kernel", "name": "k1", "args": {"grid": [1, 1, 1]}},
    ]
    trace = json.dumps({"traceEvents": [*kernels, {"cat": "cpu_op"}, {"ph": "M"}]})

    @contextmanager
    def profile(acc_events):
        assert acc_events
        yield SimpleNamespace(export_chrome_trace=lambda path: Path(path).write_text(trace))

    monkeypatch.setattr(torch.profiler, "profile", profile)
    rows = [{"name": "k0", "grid": [2, 3, 1]}, {"name": "k1", "grid": [1, 1, 1]}]
    assert kernel_shapes.kernels_of(lambda: None) == rows
    calls = []
    assert profile_reading.thread_blocks(lambda: calls.append(1)) == 6 and calls == [1]


def test_a_profile_is_read_for_each_shape(monkeypatch, gpu):
    monkeypatch.setattr(profile_reading, "SHAPES", {"tiny": (4, 8), "one_row": (1, 64)})
    monkeypatch.setattr(profile_reading, "thread_blocks", lambda work: len(work()))
    gpu.kernel_s["softmax"] = 3e-6
    result = profile_reading.main()
    assert (result["tiny"]["bytes"], result["tiny"]["blocks"], result["one_row"]["blocks"]) == (256, 4, 1)
    assert result["tiny"]["kernel_us_trials"] == pytest.approx([3] * 12)
    assert result["tiny"]["us"] == pytest.approx(10, rel=0.01), "launches decide"


@pytest.mark.gpu
def test_one_row_is_one_block():
    x = torch.randn(1, 2**20, device="cuda")
    assert profile_reading.thread_blocks(lambda: x.softmax(-1)) == 1


def test_a_kernel_is_launched_at_the_beginning_of_each_period(gpu):
    starts = []

    def kernel():
        starts.append(gpu.now)
        gpu.launch(0.004)

    period_s = duty_cycle.paced(kernel, 0.005, 5)
    assert [later - start for start, later in pairwise(starts)] == pytest.approx([0.005] * 4, rel=0.01)
    assert period_s == pytest.approx((4 * 0.005 + 0.004) / 5, rel=0.01), "the last one is waited for"


def test_kernels_alone_are_told_apart_by_their_order(gpu):
    kernels = {name: partial(gpu.launch, 1e-6 * us) for name, us in {"a": 2, "b": 30}.items()}
    assert duty_cycle.alone_us(kernels) == {"a": pytest.approx([2] * 7), "b": pytest.approx([30] * 7)}


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
        """It has read."""


def test_only_what_nvml_says_late_counts(gpu, monkeypatch):
    launches = []
    monkeypatch.setattr(duty_cycle, "PowerMeter", Meter)
    monkeypatch.setattr(duty_cycle, "SECONDS", 0.01)
    row = duty_cycle.watched(lambda: launches.append(1), 1000)
    assert len(launches) == 10 and 900 <= row["period_us"] <= 1000
    assert (row["busy_percent"], row["busy_percent_trials"]) == (35.0, [30, 40])
    assert (row["watt"], row["watt_now"]) == (120.0, 140.0)
    monkeypatch.setattr(Meter, "missing", "no such library")
    with pytest.raises(RuntimeError, match="no such library"):
        duty_cycle.watched(lambda: None, 1000)


def test_the_share_is_of_the_period_as_it_turned_out(monkeypatch, gpu):
    row = {"period_us": 40.0, "busy_percent": 22.0, "watt": 120.0, "watt_now": 130.0}
    monkeypatch.setattr(duty_cycle, "alone_us", lambda kernels: {name: [4.0, 5.0, 9.0] for name in kernels})
    monkeypatch.setattr(duty_cycle, "watched", lambda kernel, period_us: dict(row))
    result = duty_cycle.main()
    assert list(result) == [*duty_cycle.KERNELS, "product"] and result["product"] == row
    assert result["short_2us"]["kernel_percent_trials"] == [10.0, 12.5, 22.5]


def test_duty_cycles_are_drawn_beside_the_definition():
    shares = {
        "long_5ms": (50.0, 50),
        "long_10ms": (99.0, 100),
        "short_2us": (14.0, 22),
        "short_6us": (34.0, 42),
    }
    results = {name: {"kernel_percent": runs, "busy_percent": nvml} for name, (runs, nvml) in shares.items()}
    *dots, definition = duty_cycle.plot(results, {}).panels[0].marks
    drawn = [list(zip(each.x, each.y, strict=True)) for each in dots]
    assert drawn == [[(50.0, 50), (99.0, 100)], [(14.0, 22), (34.0, 42)]]
    assert definition.x == definition.y


def event(name: str, category: str, start: float, us: float, lane: str = "1 1") -> dict:
    return {"name": name, "category": category, "lane": lane, "start": start, "us": us}


def test_operators_of_a_label_count_once_and_each_lane_has_its_own():
    events = [
        event("load", "user_annotation", 0, 100),
        event("aten::linear", "cpu_op", 10, 40),
        event("aten::addmm", "cpu_op", 20, 20),
        event("aten::add", "cpu_op", 30, 5, lane="1 2"),
        event("aten::relu", "cpu_op", 50, 10),
        event("forward", "user_annotation", 100, 50),
        event("other", "user_annotation", 100, 50),
    ]
    names = [e["name"] for e in first_trace.outermost(events)]
    assert names == ["aten::linear", "aten::add", "aten::relu"]
    labels = first_trace.of_step(events)
    assert labels["load"] == {"ms": 0.1, "operators": 3, "share": 0.55}
    assert labels["forward"] == {"ms": 0.05, "operators": 0, "share": 0.0}
    assert list(labels) == ["load", "forward"]


def test_the_gpus_work_has_a_row_of_its_own():
    events = [
        event("load", "user_annotation", 50, 10),
        event("load", "gpu_user_annotation", 50, 10, lane="0 7"),
        event("sgemm", "kernel", 55, 5, lane="0 7"),
        event("cudaLaunchKernel", "cuda_runtime", 52, 1),
    ]
    assert first_trace.drawn(events) == [["load", 0, 10], ["GPU", 5, 5]]


@pytest.mark.filterwarnings("ignore:Warning. Profiler clears events:UserWarning")  # of PyTorch 2.11
def test_a_trace_has_the_steps_that_the_schedule_keeps(monkeypatch, tmp_path):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(first_trace, "ROWS", 4)
    result = json.loads(json.dumps(first_trace.main()))
    assert list(result["labels"]) == list(first_trace.LABELS)
    assert {row for row, _, _ in result["bars"]} == {*first_trace.LABELS, "operators"}
    assert result["bytes"] > 1000 and result["traced_steps"] == 2
    path = tmp_path / "trace.json"
    first_trace.traced(first_trace.loop, path, steps=1)
    steps = [e["name"] for e in first_trace.events_of(path) if e["name"].startswith("ProfilerStep")]
    assert steps == ["ProfilerStep#3"]


def test_a_trace_is_read_compressed_and_by_a_text_and_without_categories(tmp_path):
    bar = {"ph": "X", "name": "mm", "cat": "cpu_op", "pid": 1, "tid": 2, "ts": 5, "dur": 3}
    bare = {"ph": "X", "name": "range", "pid": 1, "tid": 2, "ts": 4, "dur": 9}
    trace = json.dumps({"traceEvents": [bar, bare, {"name": "no phase"}, bar | {"cat": "Trace"}]})
    (tmp_path / "trace.json").write_text(trace)
    with gzip.open(tmp_path / "trace.json.gz", "wt") as file:
        file.write(trace)
    for path in (tmp_path / "trace.json", str(tmp_path / "trace.json.gz")):
        rows = [(row["name"], row["category"], row["lane"]) for row in first_trace.events_of(path)]
        assert rows == [("range", "", "1 2"), ("mm", "cpu_op", "1 2")]


@pytest.mark.parametrize("key", ["pid", "tid", "ts", "dur"])
def test_a_bar_of_a_trace_without_a_key_is_an_error_that_names_it(tmp_path, key):
    bar = {"ph": "X", "name": "mm", "cat": "cpu_op", "pid": 1, "tid": 2, "ts": 5, "dur": 3}
    del bar[key]
    (tmp_path / "trace.json").write_text(json.dumps({"traceEvents": [bar]}))
    with pytest.raises(KeyError, match=key):
        first_trace.events_of(tmp_path / "trace.json")
    assert f'"{key}"' in first_trace.events_of.__doc__


def test_a_training_that_ends_before_its_trace_says_so(monkeypatch, tmp_path):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    path = tmp_path / "trace.json.gz"

    for steps in (1, 3):
        with pytest.raises(RuntimeError, match="before step 4"):
            first_trace.traced(lambda profiler: [profiler.step() for _ in range(steps)], path)  # noqa: B023
        assert not path.exists()
    with pytest.raises(FileNotFoundError, match="no folder for the trace"):
        first_trace.traced(pytest.fail, tmp_path / "none" / "trace.json")
    first_trace.traced(lambda profiler: [profiler.step() for _ in range(9)], path, steps=1, skip=5)
    names = {event["name"] for event in first_trace.events_of(path)}
    assert "ProfilerStep#5" in names and not {"ProfilerStep#4", "ProfilerStep#6"} & names
    first_trace.traced(lambda profiler: [profiler.step() for _ in range(5)], str(path))
    assert isinstance(first_trace.events_of(str(path)), list)


def test_a_process_that_traces_is_told_nothing_of_it_by_pytorch():
    """PyTorch reads how much it shall say when a process uses a profiler for the first time."""
    code = "from snippets.timing import first_trace; first_trace.ROWS = 4; first_trace.main()"
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": str(ROOT)}
    environment.pop("KINETO_LOG_LEVEL", None)
    environment["PYTHONWARNINGS"] = "ignore::UserWarning"  # 2.11 warns of cleared events
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert "the trace: " in done.stdout and done.stderr == ""


def test_a_label_names_a_part_for_both_profilers(monkeypatch):
    seen = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda.nvtx, "range_push", seen.append)
    monkeypatch.setattr(torch.cuda.nvtx, "range_pop", lambda: seen.append("end"))
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities) as profiler, labels.label("{outer}"):
        with pytest.raises(ValueError), labels.label("inner"):
            raise ValueError
        torch.ones(1)
    assert seen == ["{outer}", "inner", "end", "end"], "names may have braces, errors leave nothing open"
    assert {"{outer}", "inner"} <= {event.name for event in profiler.events()}


def test_a_label_needs_no_gpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities) as profiler, labels.label("load"):
        pass
    assert [event.name for event in profiler.events()] == ["load"]


def test_labels_are_timed_one_by_one(gpu, monkeypatch):
    monkeypatch.setattr(labels, "CALLS", 3)
    monkeypatch.setattr(torch.cuda.nvtx, "range_push", lambda name: None)
    monkeypatch.setattr(torch.cuda.nvtx, "range_pop", lambda: None)
    result = json.loads(json.dumps(labels.main()))
    assert list(result["us"]) == ["nothing", "nvtx.range", "record_function", "label"]
    assert all(len(trials) == 11 for trials in result["us_trials"].values())


def test_slow_stretches_of_a_core_are_told_from_fast_ones():
    pieces = [1.0] * 30 + [2.0, 2.0] + [1.0] * 20 + [2.0] + [1.0] * 10
    assert core_pace.fast_ms(pieces) == 1.0
    assert core_pace.stays_ms(pieces, limit_ms=1.4) == [4.0, 2.0]
    looked = {"slow_look": [True, False, False], "us_trials": [9.0, 6.0, 7.0]}
    assert core_pace.compared(looked) == {"slow": 1, "calm": 2, "slow_us": 9.0, "calm_us": 6.5}


def test_the_pace_of_a_core_is_watched_on_one_core_and_then_on_all():
    before = os.sched_getaffinity(0)
    pieces = core_pace.watch(0.05)
    assert len(pieces) > 3 and all(ms > 0 for ms in pieces)
    assert os.sched_getaffinity(0) == before


def test_a_cores_pace_is_compared_with_the_launches_between_two_looks(gpu, monkeypatch, capsys):
    pieces = iter([1.0] * 30 + [2.0] * 30)  # calm before the first two launches, slow before the third
    monkeypatch.setattr(core_pace, "watch", lambda seconds: [1.0] * 60 + [2.0] * 20)
    monkeypatch.setattr(core_pace, "piece_ms", lambda: next(pieces, 2.0))
    monkeypatch.setattr(core_pace, "launch_us", lambda x, seconds: 5.0)
    result = json.loads(json.dumps(core_pace.main(), allow_nan=False))
    assert (result["fast_ms"], result["slow_ms"], result["stays"]) == (1.0, 2.0, 0)
    assert result["slow_share"] == 0.4
    assert (result["short"]["calm"], result["short"]["slow"]) == (1, 59)
    assert (result["long"]["calm"], result["long"]["slow"]) == (0, 24)
    assert "slow for 40% of the time" in capsys.readouterr().out


class Gpm:
    """What NVML's performance monitoring answers."""

    NVML_SUCCESS, NVML_GPM_METRICS_GET_VERSION = 0, 1

    def __init__(self, supported: bool = True) -> None:
        self.supported, self.freed = supported, 0

    def nvmlInit(self) -> None:
        """Nothing to begin."""

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:
        return uuid

    def nvmlGpmQueryDeviceSupport(self, handle: str) -> SimpleNamespace:
        return SimpleNamespace(isSupportedDevice=int(self.supported))

    def nvmlGpmSampleAlloc(self) -> SimpleNamespace:
        return SimpleNamespace()

    def nvmlGpmSampleGet(self, handle: str, sample: SimpleNamespace) -> None:
        sample.taken = True

    def c_nvmlGpmMetricsGet_t(self) -> SimpleNamespace:
        return SimpleNamespace(metrics=[SimpleNamespace() for _ in range(9)])

    def nvmlGpmMetricsGet(self, asked: SimpleNamespace) -> None:
        assert asked.sample1.taken and asked.sample2.taken
        for metric in asked.metrics[: asked.numMetrics]:
            metric.value, metric.nvmlReturn = 10.0 * metric.metricId, 3 * (metric.metricId == 10)

    def nvmlGpmSampleFree(self, sample: SimpleNamespace) -> None:
        self.freed += 1


def test_what_the_gpu_does_is_counted_between_two_samples(gpu, monkeypatch):
    nvml = Gpm()
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    with sm_activity.Activity() as activity:
        assert activity.percent == {}
    assert activity.percent == {"graphics": 10, "sm": 20, "occupancy": 30, "tensor": 50}
    assert activity.missing == "" and nvml.freed == 2
    monkeypatch.setitem(sys.modules, "pynvml", Gpm(supported=False))
    with sm_activity.Activity() as activity:
        """Nothing is counted."""
    assert "no performance monitoring" in activity.missing and activity.percent == {}


def test_work_is_repeated_for_so_long(monkeypatch):
    monkeypatch.setattr(sm_activity, "wait_for", lambda: None)
    calls = []
    assert sm_activity.kept_busy(lambda: calls.append(1), 0.01) == len(calls) > 200


def test_activities_stand_beside_utilisation():
    row = {"us": 1000.0, "utilisation": 99.0, "sm": 50.0, "missing": ""}
    works = dict.fromkeys(sm_activity.works("cpu", 8), row)
    result = {"works": works, "copied_bytes": 10**9, "side": 1000}
    derived = sm_activity.derive(result)
    assert (derived["gb_s"], derived["tflop_s"], derived["row"]["sm"]) == (1000.0, 2.0, 50.0)
    assert sm_activity.plot(result, {})


@pytest.mark.gpu
def test_one_thread_leaves_most_sms_idle():
    rows = run_alone("timing/sm_activity", SECONDS=0.3, TIMES=1)["works"]
    if not rows["bf16 matmul"]["missing"]:
        assert rows["one row's softmax"]["sm"] < 10 < 50 < rows["bf16 matmul"]["tensor"]


COLUMNS = ["ID", "Kernel Name", "thread Domain:Push/Pop_Range:PL_Type", "Grid Size"]


def as_ncu(rows: list[list[str]], metrics) -> str:
    """What ncu prints: words of the program, then a table whose second line has units."""
    table = [[*COLUMNS, *metrics], [""] * (len(COLUMNS) + len(list(metrics))), *rows]
    lines = [",".join('"' + cell.replace('"', '""') + '"' for cell in row) for row in table]
    return "\n".join(["==PROF== Connected to process 7", "words, of the program", *lines])


@pytest.fixture
def ncu(tmp_path, monkeypatch):
    """A program in the place of ncu, that prints a text and ends with a code."""

    def put(text: str, code: int = 0) -> Path:
        (tmp_path / "said").write_text(text)
        tool = tmp_path / "ncu"
        tool.write_text(f'#!/bin/sh\necho "$@" > "{tmp_path}/asked"\ncat "{tmp_path}/said"\nexit {code}\n')
        tool.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
        return tmp_path / "asked"

    return put


def test_what_ncu_counts_is_read_by_range_and_kernel(ncu, monkeypatch):
    metrics = ["dram__bytes_read.sum", "sectors"]
    ranged = '7 "<default domain>:outer:none:none" "<default domain>:add:none:none" '
    rows = [["0", "f<int, 4>(T2)", ranged, "(1, 1, 1)", "1,048,576", "16"], ["1", "g", "", "", "0.50", "n/a"]]
    asked = ncu(as_ncu(rows, metrics))
    first, second = kernel_counters.counted(["python", "x.py"], metrics)
    assert first == {"kernel": "f<int, 4>(T2)", "range": ["add"], metrics[0]: 2**20, "sectors": 16}
    assert second["range"] == [] and second[metrics[0]] == 0.5 and second["sectors"] != second["sectors"]
    words = asked.read_text().split()
    assert words[-2:] == ["python", "x.py"] and words[words.index("--metrics") + 1] == ",".join(metrics)
    assert words[words.index("--clock-control") + 1] == "none", "the card's clock is not ours to set"


@pytest.mark.parametrize(
    ("said", "code", "error"),
    [
        (
            "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission",
            1,
            "may not read the GPU's counters",
        ),
        (as_ncu([], ["m"]), 0, "saw 0 kernels, exit 0"),
        (as_ncu([["0", "f", "", "", "1"]], ["m"]), 9, "saw 1 kernels, exit 9"),
    ],
)
def test_ncu_that_counts_nothing_is_an_error_that_says_why(said, code, error, ncu):
    ncu(said, code)
    with pytest.raises(RuntimeError, match=error):
        kernel_counters.counted(["python"], ["m"])


def test_without_ncu_the_error_says_where_it_is(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(RuntimeError, match=r"ncu is not on PATH: it comes with CUDA's toolkit"):
        kernel_counters.counted(["python"], ["m"])


def test_each_counted_work_is_one_kernel_with_a_name(monkeypatch, capsys):
    each = kernel_counters.works(8, 16, "cpu")
    for name, work in each.items():
        assert torch.isfinite(torch.as_tensor(work()).float()).all(), name
    metrics = list(kernel_counters.METRICS.values())
    numbers = dict.fromkeys(metrics, 50.0) | {kernel_counters.METRICS["SM"]: 80.0}
    rows = [{"kernel": name, "range": [name]} | numbers for name in each]
    monkeypatch.setattr(kernel_counters, "N", 8)
    monkeypatch.setattr(kernel_counters, "PICKED", 16)
    on_cpu = kernel_counters.works
    monkeypatch.setattr(kernel_counters, "works", lambda n, picked: on_cpu(n, picked, "cpu"))
    monkeypatch.setattr(kernel_counters, "counted", lambda command, names: rows)
    monkeypatch.setattr(kernel_counters, "gpu_clock", lambda work, calls: 2e-6)
    sms = SimpleNamespace(multi_processor_count=132)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda gpu: sms)
    result = json.loads(json.dumps(kernel_counters.main()))
    assert "80%" in capsys.readouterr().out and list(result["rows"]) == list(each)
    found = kernel_counters.derive(result)
    assert set(found["largest"].values()) == {"SM"} and set(found["share"].values()) == {0.8}
    assert found["moved"]["add"] == 100 / (2 * 4 * 64) and set(found["slower"]) == {50e-3 / 2}
    rows.append(rows[0])
    with pytest.raises(AssertionError, match="add is more than one kernel"):
        kernel_counters.main()


@pytest.mark.gpu
@pytest.mark.program("timing/kernel_counters")
def test_counters_tell_memory_from_arithmetic(returned):
    rows = returned["rows"]
    assert rows["add"]["DRAM"] > 60 > rows["few"]["DRAM"] and rows["matmul"]["SM"] > 60
    assert rows["transposed"]["sectors"] > 2 * rows["add"]["sectors"] or rows["transposed"]["sectors"] == 32
