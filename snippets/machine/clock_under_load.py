# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy", "nvidia-ml-py"]
# [tool.overlap]
# gpus = [1]
# ///
"""Watch rate and clock of a GPU that multiplies matrices for nearly half a second."""

import time
from itertools import accumulate, pairwise
from statistics import harmonic_mean, mean, median

import torch

from snippets.pictures import Axis, Line, Panel, Picture, Rule
from snippets.timing.power_meter import REASONS, PowerMeter

N, PARTS, CALLS = 8192, 20, 15  # a burst: 20 parts of 15 products, some 0.45 s
SPIN = 1_000_000  # clocks: 0.5 to 0.7 ms
ROUNDS, REST_S = 4, 0.1


def burst(x: torch.Tensor, parts: int = PARTS) -> dict[str, list[float]]:
    """TFLOP/s of x @ x, and the clock in MHz, of each part of one burst.

    A part ends with a spin of SPIN clocks; how long that takes tells the clock.
    """
    out = torch.empty_like(x)
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(2 * parts + 1)]
    marks[0].record()
    for multiplied, spun in zip(marks[1::2], marks[2::2], strict=True):
        for _ in range(CALLS):
            torch.mm(x, x, out=out)
        multiplied.record()
        torch.cuda._sleep(SPIN)
        spun.record()
    marks[-1].synchronize()
    ms = [start.elapsed_time(end) for start, end in pairwise(marks)]
    flop = 2 * x.shape[0] ** 3 * CALLS
    rates = [flop / 1e9 / each for each in ms[::2]]
    return {"tflop_s": rates, "mhz": [SPIN / 1e3 / each for each in ms[1::2]]}


def averages(parts: dict[str, list[float]], span: slice) -> dict[str, float]:
    """Rate, clock and FLOP per clock over some parts of a burst."""
    rate, mhz = harmonic_mean(parts["tflop_s"][span]), mean(parts["mhz"][span])
    return {"tflop_s": rate, "mhz": mhz, "flop_per_clock": 1e6 * rate / mhz}


def nvml_at_the_end(rows: dict[str, list[float]]) -> dict[str, float]:
    """NVML's last clock, and its power and power limit over the second half."""
    if not rows["s"]:
        return {}
    late = {name: rows[name][len(rows["s"]) // 2 :] for name in ("capped", "watt_now")}
    found = {"nvml_mhz": rows["mhz"][-1], "capped": mean(late["capped"])}
    return found | {"watt": median(late["watt_now"])}


def held_down_by(rows: dict[str, list[int]]) -> dict[str, float]:
    """In what share of the second half the driver gave each reason for its clock."""
    late = rows["reasons"][len(rows["reasons"]) // 2 :]
    if not late:
        return {}
    shares = {}
    for name, bit in REASONS.items():
        shares[name] = mean(bool(mask & bit) for mask in late)
    return shares


def medians(rows: list[dict[str, float]]) -> dict:
    """Medians and trials, by key."""
    trials = {key: [row[key] for row in rows] for key in rows[0]}
    found = {key: median(each) for key, each in trials.items()}
    return found | {f"{key}_trials": each for key, each in trials.items()}


def main() -> dict:
    random = torch.randn(N, N, device="cuda", dtype=torch.bfloat16)
    fills = {"random": random, "zeros": torch.zeros_like(random)}
    seen = {when: {fill: [] for fill in fills} for when in ("first", "long")}
    trace, held_down = {}, {fill: [] for fill in fills}
    burst(random, 1)  # cuBLAS sets itself up
    for _ in range(ROUNDS):
        for fill, x in fills.items():
            time.sleep(REST_S)
            with PowerMeter() as meter:
                parts = burst(x)
            late = averages(parts, slice(PARTS // 2, None))
            seen["first"][fill].append(averages(parts, slice(1)))
            seen["long"][fill].append(late | nvml_at_the_end(meter.rows))
            held_down[fill].append(held_down_by(meter.rows))
            trace[fill] = parts | {"meter": meter.rows}
    result = {"missing": meter.missing, "products": PARTS * CALLS, "trace": trace}
    result["held_down_by"] = {fill: medians(rows) for fill, rows in held_down.items()}
    for when, fills in seen.items():
        result[when] = {fill: medians(rows) for fill, rows in fills.items()}
        for fill, found in result[when].items():
            clock = f"{found['tflop_s']:4.0f} TFLOP/s at {found['mhz']:.0f} MHz"
            print(f"{when:6}{fill:7}{clock}")
    for fill, shares in result["held_down_by"].items():
        named = [f"{n} {shares[n]:.0%}" for n in REASONS if shares.get(n)]
        print(f"{fill}: the driver names", ", ".join(named) or "no reason")
    return result


def derive(results: dict) -> dict:
    """Clock and power with random numbers; how often what held the clock down."""
    names = "thermal_software thermal_hardware hardware_slowdown power_brake"
    names += " applications_clock sync_boost"
    random = results["held_down_by"]["random"]
    long = results["long"]["random"]
    return {
        "held_down_by_others": max(random[name] for name in names.split()),
        "held_down_by_power": random["power_limit"],
        "long_mhz": long["mhz"],
        "long_tflop_s": long["tflop_s"],
        "long_watt": long["watt"],
    }


def plot(results: dict, ceilings: dict):
    keys = {"tflop_s": "TFLOP/s", "mhz": "MHz"}
    limits = {"tflop_s": "bf16_tflop_s", "mhz": "clock_mhz"}
    panels = []
    for key, unit in keys.items():
        marks = []
        for fill, seen in results["trace"].items():
            part_ms = [2e-9 * CALLS * N**3 / rate for rate in seen["tflop_s"]]
            label = {"random": "random numbers"}.get(fill, fill)
            ends = list(accumulate(part_ms))
            marks.append(Line(ends, seen[key], label, dots=False))
        if limits[key] in ceilings:
            marks.append(Rule("y", ceilings[limits[key]], "ceiling"))
        panels.append(Panel(marks, y=Axis(unit, low=0)))
    panels[-1].x.label = "ms of matmuls"
    return Picture(panels)


if __name__ == "__main__":
    main()
