# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "nvidia-ml-py"]
# [tool.overlap]
# gpus = [1]
# ///
"""Read a GPU's clock and power while it multiplies matrices: random numbers beside zeros."""

import time
from collections.abc import Callable
from contextlib import suppress
from statistics import mean, median

import torch

N, LENGTHS = 8192, {"short": 40, "long": 600}  # bf16 products in a burst: about 60 ms and 900 ms
REST_S, LAG_S = 0.5, 0.1  # NVML renews its clock about ten times a second


def nvml_meter() -> Callable[[], tuple]:
    """What reads this GPU's clock in MHz, its power in W, and 1 while its power limit holds the clock down."""
    import pynvml as nvml

    nvml.nvmlInit()
    gpu = nvml.nvmlDeviceGetHandleByUUID(f"GPU-{torch.cuda.get_device_properties(0).uuid}")

    def read() -> tuple[int, float, int]:
        capped = nvml.nvmlDeviceGetCurrentClocksThrottleReasons(gpu) & nvml.nvmlClocksThrottleReasonSwPowerCap
        mhz, watt = nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_SM), nvml.nvmlDeviceGetPowerUsage(gpu) / 1e3
        return mhz, watt, int(capped > 0)

    read()  # a driver may refuse
    return read


def burst(x: torch.Tensor, calls: int, meter: Callable[[], tuple]) -> tuple[float, list[tuple]]:
    """TFLOP/s of x @ x back to back, timed by the GPU, and (seconds, what the meter says) every 10 ms: the CPU is free to ask."""
    out, seen = torch.empty_like(x), []
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda._sleep(50_000 * calls)  # it spins until all are queued: no launch is timed
    start.record()
    for _ in range(calls):
        torch.mm(x, x, out=out)
    end.record()
    began = time.perf_counter()
    while not end.query():
        seen.append((time.perf_counter() - began, *meter()))
        time.sleep(0.01)
    return 2 * x.shape[0] ** 3 * calls / start.elapsed_time(end) / 1e9, seen


def known(rate: float, seen: list[tuple]) -> dict[str, float]:
    """Rate and, of a burst long enough for NVML to speak of it, mean clock and power, share of time at the limit, FLOP per clock."""
    rows = [row[1:] for row in seen if row[0] >= LAG_S and row[1:]]
    if not rows or seen[-1][0] < 3 * LAG_S:
        return {"tflop_s": rate}
    mhz, watt, capped = map(mean, zip(*rows, strict=True))
    return {"tflop_s": rate, "mhz": mhz, "watt": watt, "capped": capped, "flop_per_clock": 1e6 * rate / mhz}


def summary(bursts: list[dict]) -> dict:
    """Medians and trials of bursts, None for what is not known; the first one warms up."""
    row = dict.fromkeys(("tflop_s", "mhz", "watt", "capped", "flop_per_clock"))
    for key in bursts[-1]:
        trials = [one[key] for one in bursts[1:] if key in one]
        row |= {key: median(trials), f"{key}_trials": trials}
    return row


def main() -> dict:
    random = torch.randn(N, N, device="cuda", dtype=torch.bfloat16)
    fills, meter, result = {"random": random, "zeros": torch.zeros_like(random)}, tuple, {}
    with suppress(Exception):  # no pynvml, or it may not be asked
        meter = nvml_meter()
    for length, calls in LENGTHS.items():  # in turn, each after the same rest
        rounds = [{fill: time.sleep(REST_S) or burst(x, calls, meter) for fill, x in fills.items()} for _ in range(6)]
        result[length] = {fill: summary([known(*one[fill]) for one in rounds]) for fill in fills}
        for fill, row in result[length].items():
            clock = f"at {row['mhz']:.0f} MHz, {row['watt']:.0f} W" if row["mhz"] else ""
            print(f"{length:6}{fill:7}{row['tflop_s']:6.0f} TFLOP/s {clock}")
    return result | {"trace": {fill: [row for row in seen if row[1:]] for fill, (_, seen) in rounds[-1].items()}}


def plot(results: dict, ceilings: dict):
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(2, sharex=True)
    for ax, column, unit, limit in zip(axes, (1, 2), ("MHz", "W"), ("clock_mhz", "power_limit_w"), strict=True):
        for fill, rows in results["trace"].items():
            ax.plot([1e3 * row[0] for row in rows], [row[column] for row in rows], label=fill)
        if limit in ceilings:
            ax.axhline(ceilings[limit], color="gray", linestyle="--", label="limit")
        ax.set(ylabel=unit, ylim=(0, None))
    axes[0].legend()
    axes[1].set_xlabel("ms since the first product")
    return figure


if __name__ == "__main__":
    main()
