# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy", "nvidia-ml-py"]
# [tool.overlap]
# gpus = [1]
# ///
"""Kernels run for a known share of the time: what utilisation does NVML report?"""

import time
from collections.abc import Callable
from functools import partial
from statistics import fmean, median

import torch

from snippets.pictures import DASHES, Axis, Dots, Line, Panel, Picture
from snippets.timing.lanes import lanes
from snippets.timing.power_meter import PowerMeter
from snippets.timing.wait_for import wait_for

LONG = {"long_5ms": (5_000, 10_000), "long_10ms": (10_000, 10_000)}
SHORT = {"short_2us": (2, 20), "short_6us": (6, 20)}
KERNELS = LONG | SHORT  # µs that one thread counts cycles, µs from one to the next
SECONDS, TIMES = 0.6, 7


def paced(kernel: Callable[[], object], period_s: float, periods: int) -> float:
    """Launch the kernel at the beginning of each period, and wait for the last one.

    Returns the seconds from one kernel to the next, as they turned out.
    """
    start = time.perf_counter()
    for k in range(periods):
        while time.perf_counter() < start + k * period_s:
            pass  # sleep() would wake up too late
        kernel()
    wait_for()
    return (time.perf_counter() - start) / periods


def alone_us(kernels: dict[str, Callable[[], object]]) -> dict[str, list[float]]:
    """µs for which each kernel runs, `TIMES` times, by the profiler. It slows launches
    but not kernels, so nothing is paced here."""

    def each_in_turn() -> None:
        for kernel in kernels.values():
            for _ in range(TIMES):
                kernel()

    us = [us for lane, _, us, _ in lanes(each_in_turn) if lane != "CPU"]
    return {name: us[k * TIMES : (k + 1) * TIMES] for k, name in enumerate(kernels)}


def watched(kernel: Callable[[], object], period_us: float) -> dict:
    """Utilisation and power that NVML reports in the last third of a paced run.

    "watt" is a mean over one second, longer than the run; "watt_now" is not.
    """
    periods = int(1e6 * SECONDS / period_us)
    with PowerMeter() as meter:
        row = {"period_us": 1e6 * paced(kernel, period_us / 1e6, periods)}
    if meter.missing:
        raise RuntimeError(f"NVML cannot be asked: {meter.missing}")
    for name in ("busy_percent", "watt", "watt_now"):
        late = meter.rows[name][2 * len(meter.rows[name]) // 3 :]
        row |= {name: fmean(late), f"{name}_trials": late}
    return row


def main() -> dict:
    mhz = torch.cuda.get_device_properties(0).clock_rate / 1e3
    spin = torch.cuda._sleep
    kernels = {name: partial(spin, int(us * mhz)) for name, (us, _) in KERNELS.items()}
    alone, rows = alone_us(kernels), {}
    nvml = "NVML says {busy_percent:5.1f}%, {watt_now:.0f} W"
    for name, kernel in kernels.items():
        row = watched(kernel, KERNELS[name][1])
        shares = [100 * us / row["period_us"] for us in alone[name]]
        row |= {"kernel_percent": median(shares), "kernel_percent_trials": shares}
        print(f"{name:10}runs {median(shares):5.1f}% of the time,", nvml.format(**row))
        rows[name] = row
    x = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
    rows["product"] = watched(partial(torch.mm, x, x), 500)  # it takes longer
    print("products back to back,     ", nvml.format(**rows["product"]))
    return rows


def derive(results: dict) -> dict:
    """The busy share of the driver beside that of kernels, long ones and short ones."""
    long = [results["long_5ms"], results["long_10ms"]]
    short = [results["short_2us"], results["short_6us"]]
    return {
        "off_long": [abs(row["busy_percent"] - row["kernel_percent"]) for row in long],
        "of_short": [row["busy_percent"] / row["kernel_percent"] for row in short],
    }


def plot(results: dict, ceilings: dict):
    marks = []
    for kernels in (LONG, SHORT):
        runs = [results[name]["kernel_percent"] for name in kernels]
        nvml = [results[name]["busy_percent"] for name in kernels]
        _, period_us = next(iter(kernels.values()))
        every = f"{period_us} µs"
        if period_us >= 1000:
            every = f"{period_us / 1e3:.0f} ms"
        marks.append(Dots(runs, nvml, f"a kernel every {every}"))
    style = {"dots": False, "dash": DASHES[0], "color": "ceiling"}
    marks.append(Line([0, 100], [0, 100], "the definition", **style))
    x = Axis("share of time in which a kernel runs, %")
    return Picture([Panel(marks, x, Axis("utilisation by NVML, %"))])


if __name__ == "__main__":
    main()
