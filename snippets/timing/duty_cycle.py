# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "nvidia-ml-py"]
# [tool.overlap]
# gpus = [1]
# ///
"""Kernels run for a known share of the time: what utilisation does NVML report?"""

import time
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from statistics import median

import torch

from snippets.timing.lanes import lanes
from snippets.timing.power_meter import PowerMeter
from snippets.timing.wait_for import wait_for

LONG_AND_SHORT = (("long", 10_000, (10, 30, 50, 100)), ("short", 20, (10, 30)))
SECONDS = 0.9


def paced(kernel: Callable, period_s: float, periods: int) -> None:
    """Launch the kernel at the beginning of each period, and wait for the last one."""
    start = time.perf_counter()
    for k in range(periods):
        while time.perf_counter() < start + k * period_s:
            pass  # sleep() would wake up too late
        kernel()
    wait_for()


def shares(work: Callable) -> list[float]:
    """Percent of the time from one kernel's start to the next in which it runs."""
    kernels = [(start, us) for lane, start, us, _ in lanes(work) if lane != "CPU"]
    return [100 * us / (later - start) for (start, us), (later, _) in pairwise(kernels)]


def nvml(work: Callable) -> dict[str, list]:
    """Utilisation in percent and power in W that NVML reports late in `work`."""
    with PowerMeter() as meter:
        work()
    if meter.missing:
        raise RuntimeError(f"NVML cannot be asked: {meter.missing}")
    late = slice(2 * len(meter.rows["s"]) // 3, None)
    return {name: meter.rows[name][late] for name in ("busy_percent", "watt")}


def compared(kernel: Callable, period_us: int) -> dict:
    """The share of the time in which a kernel runs, by the profiler and by NVML."""
    run = partial(paced, kernel, period_us / 1e6)
    trials = {"profiled_percent": shares(partial(run, 8))}
    trials |= nvml(partial(run, int(1e6 * SECONDS / period_us)))
    row = {"period_us": period_us} | {name: median(trials[name]) for name in trials}
    return row | {f"{name}_trials": each for name, each in trials.items()}


def main() -> dict:
    mhz = torch.cuda.get_device_properties(0).clock_rate / 1e3
    rows = {}
    for name, period_us, percents in LONG_AND_SHORT:
        for percent in percents:  # one thread counts this many cycles of the clock
            kernel = partial(torch.cuda._sleep, int(percent / 100 * period_us * mhz))
            rows[f"{name}_{percent}"] = compared(kernel, period_us)
    x = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
    rows["product"] = compared(partial(torch.mm, x, x), 1_000)  # it takes longer
    for name, row in rows.items():
        shown = "profiler {profiled_percent:.1f}%, NVML {busy_percent}%, {watt:.0f} W"
        print(f"{name:9}", shown.format(**row))
    return rows


def plot(results: dict, ceilings: dict):
    import matplotlib.pyplot as plt

    figure, ax = plt.subplots()
    for name, period_us, _ in LONG_AND_SHORT:
        rows = [row for key, row in results.items() if key.startswith(name)]
        profiled = [row["profiled_percent"] for row in rows]
        nvml = [row["busy_percent"] for row in rows]
        ax.scatter(profiled, nvml, label=f"a kernel every {period_us:,} µs")
    style = {"color": "gray", "linestyle": "--"}
    ax.plot([0, 100], [0, 100], label="by the definition", **style)
    ax.set(xlabel="a kernel runs, by the profiler, %", ylabel="NVML says, %")
    figure.legend(loc="outside upper left", ncols=2)
    return figure


if __name__ == "__main__":
    main()
