# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy", "nvidia-ml-py"]
# [tool.overlap]
# gpus = [1]
# timeout = 120
# ///
"""Train a transformer for some fifteen seconds: do clock and matmuls stay fast?"""

import time
from itertools import pairwise
from statistics import median
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile, schedule
from torch.utils.flop_counter import FlopCounterMode

from snippets.pictures import Axis, Line, Panel, Picture, Rule
from snippets.timing.power_meter import PowerMeter
from snippets.training.precisions import batches, kind_of, network, training_step

STEPS, WARMUP, PROFILED = 500, 5, 3  # steps, those of the profiler's start, and traced
AHEAD, LATE = 10, 150  # steps that the CPU is ahead; the last ones, before the profile


def flop_of(step, batch) -> int:
    """FLOP of the matmuls in one step, attention's not counted."""
    with FlopCounterMode(display=False) as counter:
        step(*batch)
    counts = counter.get_flop_counts()["Global"]
    return sum(flop for name, flop in counts.items() if "mm" in str(name))


def matmuls_ms(events) -> float:
    """Milliseconds a step in which matmul kernels ran, of PROFILED steps."""
    on_gpu = torch.autograd.DeviceType.CUDA  # type: ignore
    kernels = [event for event in events if event.device_type == on_gpu]
    matmuls = [event for event in kernels if kind_of(event.name) == "matmuls"]
    return sum(event.self_device_time_total for event in matmuls) / 1e3 / PROFILED


def trained(step, data: list[Any]) -> tuple[list[float], float, dict]:
    """ms of each step until the profile, ms of its matmuls, and what the meter saw.

    The GPU does not rest before the traced steps: the profiler starts WARMUP steps
    earlier, and only for the first and the last traced step is the GPU waited for.
    """
    plan = schedule(wait=STEPS, warmup=WARMUP, active=PROFILED, repeat=1)
    kinds = [ProfilerActivity.CUDA]
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(STEPS + 1)]
    found: list[float] = []

    def read(profiler) -> None:
        found.append(matmuls_ms(profiler.events()))

    with (
        PowerMeter(every_s=0.1) as meter,
        profile(
            activities=kinds, schedule=plan, on_trace_ready=read, acc_events=True
        ) as profiler,
    ):
        for number in range(STEPS + WARMUP + PROFILED):
            if number <= STEPS:
                marks[number].record()
            if AHEAD <= number <= STEPS:
                marks[number - AHEAD].synchronize()
            step(*data[number % len(data)])
            if number + 1 in (STEPS + WARMUP, STEPS + WARMUP + PROFILED):
                torch.cuda.synchronize()  # all kernels of a traced step are in the trace
            profiler.step()
    ms = [start.elapsed_time(end) for start, end in pairwise(marks)]
    return ms, found[0], meter.rows


def main() -> dict:
    step, data = training_step(network().cuda(), "bf16"), batches(4, "cuda")
    flop = flop_of(step, data[0])
    step(*data[0])
    torch.cuda.synchronize()
    time.sleep(1)  # the GPU rests
    ms, in_matmuls_ms, rows = trained(step, data)
    late = slice(-round(len(rows["s"]) * LATE / STEPS), None)
    result = {
        "seconds": sum(ms) / 1e3,
        "first_ms": median(ms[WARMUP : 2 * WARMUP + 1]),
        "late_ms": median(ms[-LATE:]),
        "late_ms_trials": ms[-LATE:],
        "matmuls_ms": in_matmuls_ms,
        "matmul_flop": flop,
        "matmul_tflop_s": flop / in_matmuls_ms / 1e9,
        "meter": rows,
    }
    print(f"{result['seconds']:.1f} s of steps: {result['first_ms']:.2f} ms at first,")
    print(f"{result['late_ms']:.2f} ms in the last {LATE} of {STEPS};")
    print(f"in matmuls {in_matmuls_ms:.2f} ms, {result['matmul_tflop_s']:.0f} TFLOP/s")
    if rows["s"]:
        result |= {"mhz": median(rows["mhz"][late]), "watt": median(rows["watt"][late])}
        print(f"{result['mhz']:.0f} MHz by the driver, {result['watt']:.0f} W")
    return result


def derive(results: dict) -> dict:
    """How long late steps take, in shares of the first ones."""
    return {"slower": results["late_ms"] / results["first_ms"]}


def plot(results: dict, ceilings: dict):
    meter = results["meter"]
    panels = []
    for column, unit, limit, name in (
        ("mhz", "MHz", "clock_mhz", "highest clock"),
        ("watt_now", "W", "power_limit_w", "power limit"),
    ):
        marks = [Line(meter["s"], meter[column], dots=False)]
        if limit in ceilings:
            marks.append(Rule("y", ceilings[limit], name))
        y = Axis(unit, low=0, high=1.15 * max(meter[column]))
        panels.append(Panel(marks, y=y))
    panels[-1].x = Axis("s of training")
    return Picture(panels)


if __name__ == "__main__":
    main()
