# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "nvidia-ml-py"]
# [tool.overlap]
# gpus = [1]
# ///
"""Watch rate, clock and power of a GPU that multiplies matrices for half a second."""

import time
from itertools import accumulate, pairwise
from statistics import harmonic_mean, mean, median

import torch

from snippets.timing.power_meter import PowerMeter

N, PARTS, CALLS = 8192, 20, 20  # a burst: 20 parts of 20 products, about 0.6 s
ROUNDS, REST_S = 4, 0.2


def part_rates(x: torch.Tensor, parts: int = PARTS, calls: int = CALLS) -> list[float]:
    """TFLOP/s of x @ x in each part of one burst, by the GPU's own clock."""
    out = torch.empty_like(x)
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(parts + 1)]
    marks[0].record()
    for mark in marks[1:]:
        for _ in range(calls):
            torch.mm(x, x, out=out)
        mark.record()
    marks[-1].synchronize()
    flop = 2 * x.shape[0] ** 3 * calls
    return [flop / 1e9 / start.elapsed_time(end) for start, end in pairwise(marks)]


def second_half(rates: list[float], rows: dict[str, list]) -> dict[str, float]:
    """Rate, mean clock, mean power, share of time at the power limit, FLOP per clock.

    `rows` are those of a PowerMeter; where it read nothing, only the rate is given.
    """
    found = {"tflop_s": harmonic_mean(rates[len(rates) // 2 :])}
    late = [i for i, s in enumerate(rows["s"]) if s >= rows["s"][-1] / 2]
    if late:
        for key in ("mhz", "watt", "capped"):
            found[key] = mean(rows[key][i] for i in late)
        found["flop_per_clock"] = 1e6 * found["tflop_s"] / found["mhz"]
    return found


def medians(rows: list[dict[str, float]]) -> dict:
    """Medians and trials, by key, of what all rows know."""
    keys = [key for key in rows[0] if all(key in row for row in rows)]
    trials = {key: [row[key] for row in rows] for key in keys}
    found = {key: median(each) for key, each in trials.items()}
    return found | {f"{key}_trials": each for key, each in trials.items()}


def main() -> dict:
    random = torch.randn(N, N, device="cuda", dtype=torch.bfloat16)
    fills = {"random": random, "zeros": torch.zeros_like(random)}
    seen = {fill: [] for fill in fills}
    part_rates(random, 1)  # cuBLAS sets itself up
    for _ in range(ROUNDS):
        for fill, x in fills.items():
            time.sleep(REST_S)
            with PowerMeter() as meter:
                rates = part_rates(x)
            seen[fill].append((rates, meter.rows))
    result = {"missing": meter.missing, "long": {}, "trace": {}}
    for fill, bursts in seen.items():
        long = medians([second_half(*burst) for burst in bursts])
        clock = f" at {long['mhz']:.0f} MHz" if "mhz" in long else ""
        print(f"{fill:7}{long['tflop_s']:6.0f} TFLOP/s{clock} in the second half")
        result["long"][fill] = long
        result["trace"][fill] = dict(zip(("tflop_s", "meter"), bursts[-1], strict=True))
    return result


def plot(results: dict, ceilings: dict):
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(3, sharex=True)
    for fill, seen in results["trace"].items():
        part_ms = [2e-9 * CALLS * N**3 / rate for rate in seen["tflop_s"]]
        axes[0].plot(list(accumulate(part_ms)), seen["tflop_s"], label=fill)
        at = [1e3 * s for s in seen["meter"]["s"]]
        axes[1].plot(at, seen["meter"]["mhz"], label=fill)
        axes[2].plot(at, seen["meter"]["watt"], label=fill)
    limits = ("bf16_tflop_s", "clock_mhz", "power_limit_w")
    for ax, limit, unit in zip(axes, limits, ("TFLOP/s", "MHz", "W"), strict=True):
        if limit in ceilings:
            ax.axhline(ceilings[limit], color="gray", linestyle="--", label="limit")
        ax.set(ylabel=unit, ylim=(0, None))
    axes[0].legend(ncols=3)
    axes[2].set_xlabel("ms since the first product")
    return figure


if __name__ == "__main__":
    main()
