"""The tools that snippets share: whom they wait for, how they take turns, what they draw."""

from asyncio import Future
from types import SimpleNamespace

import pytest
import torch

from snippets.timing import (
    any_device,
    d2l_benchmark,
    d2l_benchmark_broken,
    kernel_time,
    lanes,
    pictures,
    power_meter,
    take_turns,
    wait_for,
)
from snippets.timing.benchmark import Timing, measure


def cuda(monkeypatch, used: list[bool]) -> None:
    """As if CUDA had been used on some of the devices."""
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: len(used))
    monkeypatch.setattr(torch._C, "_cuda_hasPrimaryContext", used.__getitem__, raising=False)


def test_only_cuda_devices_with_a_context_are_waited_for(diary, monkeypatch):
    cuda(monkeypatch, [True, False, True])
    wait_for.wait_for()
    assert diary == ["wait 0", "wait 2"]
    with pytest.raises(TypeError, match="not iterable"):
        wait_for.wait_for(0)


@pytest.mark.parametrize(
    ("accelerator", "count", "waited"),
    [(None, 0, []), ("cuda", 2, []), ("xpu", 2, ["wait 0", "wait 1"]), ("mps", 1, ["wait 0"])],
)
def test_other_accelerators_and_a_cuda_that_nobody_used(diary, monkeypatch, accelerator, count, waited):
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)
    device = torch.device(accelerator) if accelerator else None
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda check_available: device)
    monkeypatch.setattr(torch.accelerator, "device_count", lambda: count)
    wait_for.wait_for()
    assert diary == waited


def test_timing_median_and_interquartile_range():
    timing = Timing([5.0, 1.0, 2.0, 4.0, 3.0])
    assert (timing.median, timing.spread, timing.ms()[0], timing.us()[1]) == (3.0, 2.0, 5000.0, 1e6)
    assert Timing([7.0]).spread == 0.0


def test_measure_waits_before_each_clock_reading(diary):
    timing = measure(lambda: diary.append("work"), devices=iter([1, 0]), warmup=1, trials=2, calls=2)
    waits = ["wait 1", "wait 0"]
    assert diary == ["work"] + 2 * [*waits, "clock", "work", "work", *waits, "clock"]
    assert timing.trials == [0.5, 0.5]


@pytest.mark.parametrize(
    ("devices", "waits"),
    [
        ("cpu", []),
        (torch.device("cpu"), []),
        ("cuda:1", ["wait 1"]),
        (1, ["wait 1"]),
        ((device for device in (torch.device("cuda", 2), "cpu", 0)), ["wait 2", "wait 0"]),
        ("cuda", ["wait 3"]),
        ([], []),
    ],
)
def test_devices_may_be_named_in_any_way(diary, monkeypatch, devices, waits):
    monkeypatch.setattr(torch.accelerator, "current_device_index", lambda: 3)
    monkeypatch.setattr(torch.accelerator, "device_count", lambda: 4)
    timing = any_device.measure(lambda: diary.append("work"), devices, warmup=1, trials=2)
    assert diary == ["work"] + 2 * [*waits, "clock", "work", *waits, "clock"]
    assert timing.trials == [1.0, 1.0]


def test_no_device_named_is_all_that_are_in_use(diary, monkeypatch):
    cuda(monkeypatch, [False, True])
    any_device.measure(lambda: diary.append("work"), warmup=0, trials=1)
    assert diary == ["wait 1", "clock", "work", "wait 1", "clock"]


def test_what_names_no_device_is_refused_before_the_work(diary):
    with pytest.raises(RuntimeError, match="device"):
        any_device.measure(lambda: diary.append("work"), "gpu 0")
    assert diary == []


@pytest.mark.parametrize("devices", [2, "cuda:2", [0, torch.device("cuda", 2)], "cuda"])
def test_a_gpu_that_is_not_there_is_refused_before_the_work(diary, monkeypatch, devices):
    monkeypatch.setattr(torch.accelerator, "current_device_index", lambda: 2)
    monkeypatch.setattr(torch.accelerator, "device_count", lambda: 2)
    with pytest.raises(ValueError, match="there is no GPU 2; PyTorch sees 2"):
        any_device.measure(lambda: diary.append("work"), devices)
    assert diary == []


@pytest.mark.parametrize("counts", [{"trials": 0}, {"calls": 0}, {"trials": -1}])
def test_no_trials_and_no_calls_are_refused_before_the_work(diary, counts):
    with pytest.raises(ValueError, match="at least 1 of each"):
        any_device.measure(lambda: diary.append("work"), "cpu", **counts)
    assert diary == []


async def coroutine():
    raise AssertionError("nobody awaits it")


def generator():
    yield 1


async def asynchronous_generator():
    yield 1


@pytest.mark.parametrize(
    ("work", "kind"),
    [
        (coroutine, "coroutine"),
        (lambda: coroutine(), "coroutine"),
        (generator, "generator"),
        (lambda: (i for i in range(3)), "generator"),
        (asynchronous_generator, "async_generator"),
        (Future, "Future"),
    ],
)
def test_work_that_has_not_run_is_not_timed(diary, work, kind):
    with pytest.raises(TypeError, match=f"returns a {kind}, and nothing has run"):
        any_device.measure(work, "cpu")
    assert diary == []


def test_an_empty_list_waits_for_nobody(diary):
    measure(lambda: diary.append("work"), devices=(), warmup=0, trials=1)
    assert diary == ["clock", "work", "clock"]


def test_the_broken_benchmark_waits_for_nobody(diary):
    with d2l_benchmark_broken.Benchmark("two GPUs") as block:
        pass
    assert diary == [] and block.seconds >= 0


def test_d2l_benchmark_waits_before_and_after_its_block(diary):
    with d2l_benchmark.Benchmark("two GPUs", devices=iter([0, 1])):
        diary.append("work")
    assert diary == ["wait 0", "wait 1", "clock", "work", "wait 0", "wait 1", "clock"]


def test_turns_are_taken_in_both_orders(diary):
    works = {name: lambda name=name: diary.append(name) for name in "ab"}
    timings = take_turns.both_orders(works, trials=2, warmup=0)
    assert [entry for entry in diary if entry in works] == list("ababbaba")
    assert timings["a"].trials == [1.0] * 4


def test_ways_take_turns_and_the_warm_up_is_forgotten(diary):
    works = {name: lambda name=name: diary.append(name) for name in "ab"}
    timings = take_turns.take_turns(works, warmup=1, trials=2, rest_s=0.5)
    assert [entry for entry in diary if entry in works] == ["a", "b"] * 3
    assert diary[:2] == ["rest 0.5", "clock"] and timings == {
        "a": Timing([1.0, 1.0]),
        "b": Timing([1.0, 1.0]),
    }


def test_turns_with_another_clock_and_what_is_recorded_of_them():
    seconds = iter([9.0, 9.0, 2.0, 1.0, 4.0, 1.0, 6.0, 1.0])
    timings = take_turns.take_turns(
        {"slow": print, "fast": print},
        warmup=1,
        trials=3,
        calls=7,
        clock=lambda work, calls: next(seconds) * calls / 7,
    )
    assert take_turns.ratios(timings["slow"], timings["fast"]) == [2.0, 4.0, 6.0]
    expected = {
        "ms": {"slow": 4000.0, "fast": 1000.0},
        "ms_trials": {"slow": [2e3, 4e3, 6e3], "fast": [1e3] * 3},
    }
    assert take_turns.recorded(timings) == expected
    assert take_turns.recorded(timings, "us")["us"]["fast"] == 1e6
    with pytest.raises(ValueError, match="zip"):
        take_turns.ratios(timings["slow"], Timing([1.0]))


def event(name, start, lasts, thread=1, gpu=None, stream=7, note=False):
    kinds = torch.autograd.DeviceType
    span = SimpleNamespace(start=start, elapsed_us=lambda: lasts)
    return SimpleNamespace(
        name=name,
        thread=thread,
        time_range=span,
        is_user_annotation=note,
        device_type=kinds.CPU if gpu is None else kinds.CUDA,
        device_index=gpu or 0,
        device_resource_id=stream,
    )


def test_lanes_of_one_gpu_of_several_and_of_two_threads(monkeypatch):
    one = [
        event("cudaLaunchKernel", 10.0, 2.0),
        event("aten::mm", 10.5, 9.0),
        event("kernel", 13.0, 5.0, gpu=0),
    ]
    monkeypatch.setattr(lanes, "profiled", lambda work: one)
    assert lanes.lanes(print) == [["CPU", 0.0, 2.0, "cudaLaunchKernel"], ["stream 7", 3.0, 5.0, "kernel"]]
    noted = event("my range", 11.0, 4.0, gpu=0, note=True)
    two = [*one, noted, event("cuLaunch", 14.0, 1.0, thread=2), event("x" * 99, 15.0, 1.0, gpu=1, stream=9)]
    monkeypatch.setattr(lanes, "profiled", lambda work: two)
    assert [row[0] for row in lanes.lanes(print)] == ["CPU", "GPU 0, stream 7", "CPU 2", "GPU 1, stream 9"]
    assert len(lanes.lanes(print)[-1][3]) == 60


def test_profiled_sees_the_work_once_in_order_of_time():
    x = torch.ones(64, 64)
    events = lanes.profiled(lambda: x @ x)
    assert [each.name for each in events].count("aten::mm") == 1
    starts = [each.time_range.start for each in events]
    assert starts == sorted(starts)
    assert lanes.lanes(lambda: x @ x) == []


def test_pictures_of_time_sweeps_and_bars():
    rows = [["CPU", 0.0, 1.0, "launch"], ["stream 7", 1.0, 5.0, "kernel"]]
    figure = lanes.draw_lanes({"one": rows, "two": [*rows, ["stream 9", 2.0, 1.0, "kernel"]]})
    assert [len(ax.collections) for ax in figure.axes] == [2, 3]
    assert [label.get_text() for label in figure.axes[1].get_yticklabels()] == ["CPU", "stream 7", "stream 9"]
    figure = pictures.sweep(
        [1, 2, 4], {"a": [1, 2, 3]}, {"most": 4, "model": [1, 2, 4]}, xlabel="n", ylabel="ms"
    )
    lines = {line.get_label(): list(line.get_ydata()) for line in figure.axes[0].get_lines()}
    assert lines == {"a": [1, 2, 3], "most": [4, 4, 4], "model": [1, 2, 4]}
    figure = pictures.bars({"one": 1.0, "two": {"x": 2.0, "y": 3.0}}, {"most": 4.0}, "ms")
    widths = [[bar.get_width() for bar in bars] for bars in figure.axes[0].containers]
    assert widths == [[1.0], [2.0], [3.0]]


def test_the_power_meter_reads_until_it_is_closed_and_keeps_what_it_read(two_gpus, nvml):
    nvml(answers=4)
    with power_meter.PowerMeter(device=1, every_s=0.001) as meter:
        meter._thread.join(10)  # after four answers the GPU is lost
    assert meter.missing == "" and {len(column) for column in meter.rows.values()} == {3}
    assert (meter.rows["mhz"][0], meter.rows["watt"][0], meter.rows["capped"][0]) == (1500, 650.0, 1)
    assert meter.rows["reasons"] == [5, 5, 5] and meter.rows["busy_percent"] == [80, 80, 80]
    assert meter.rows["s"] == sorted(meter.rows["s"])


@pytest.mark.parametrize(("knows", "watt"), [(True, 690.0), (False, 650.0)])
def test_without_the_power_of_the_moment_the_mean_stands_for_it(gpu, nvml, knows, watt):
    nvml(answers=2, knows_power_now=knows)
    with power_meter.PowerMeter(every_s=0.001) as meter:
        meter._thread.join(10)
    assert meter.rows["watt_now"] == [watt] and meter.rows["watt"] == [650.0]


def test_the_power_meter_says_why_it_cannot_read(gpu, nvml):
    nvml(answers=0)
    with power_meter.PowerMeter() as meter:
        pass
    assert meter.missing == "NVMLError: the GPU is lost" and meter.rows["s"] == []


@pytest.mark.gpu
def test_kernel_time_leaves_launches_out_and_a_graph_returns_what_work_returned():
    x = torch.zeros(1024, device="cuda")
    replay = kernel_time.captured(lambda: x.add(1))
    x.fill_(41)
    assert replay() is replay() and replay().eq(42).all()
    alone = min(kernel_time.gpu_clock(lambda: x.add_(1)) for _ in range(5))
    assert 2e-7 < alone < 8e-6
    assert kernel_time.gpu_clock(lambda: x.add_(1), calls=500, spin_cycles=1) < 8e-6, (
        "it spins longer by itself"
    )
    with pytest.raises(RuntimeError, match="work waits for the GPU"):
        kernel_time.gpu_clock(lambda: x.sum().item(), calls=2)


@pytest.mark.gpu
def test_lanes_of_a_real_profile():
    x = torch.ones(256, 256, device="cuda")
    rows = lanes.lanes(lambda: torch.mm(x, x).sum().item())
    assert {row[0] for row in rows} == {"CPU", "stream 7"} and rows[0][1] == 0.0
    assert any("Launch" in row[3] for row in rows) and all(row[2] >= 0 for row in rows)


# the imitated GPU


def test_the_imitated_gpu_is_the_accelerator_of_every_build_of_pytorch(gpu):
    """Newer optimizers ask so whether they are captured; a build for CUDA would ask a driver."""
    assert torch.accelerator.current_accelerator(check_available=True) == torch.device("cuda")
    assert torch.accelerator.is_available() and torch.accelerator.device_count() == 1
    assert torch.accelerator.memory_allocated() == torch.cuda.memory_allocated() == 0
    graph = torch.cuda.CUDAGraph()
    capturing = []

    def ask() -> None:
        capturing.append(torch.accelerator.current_stream().is_capturing())
        capturing.append(torch.cuda.is_current_stream_capturing())

    ask()
    with torch.cuda.graph(graph):
        ask()
    ask()
    assert capturing == [False, False, True, True, False, False]
