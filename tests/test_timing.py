"""The timing chapter: what the Benchmark does, and what waiting for the wrong device does."""

import json
import time
from statistics import median
from types import SimpleNamespace

import matplotlib
import pytest
import torch

from snippets.timing import benchmark, wrong_device_sync_broken, wrong_device_sync_fixed
from snippets.timing.benchmark import Benchmark, Timing, measure

matplotlib.use("Agg")
TWINS = [wrong_device_sync_broken, wrong_device_sync_fixed]


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
