# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy", "nvidia-ml-py"]
# [tool.overlap]
# gpus = [1]
# timeout = 120
# ///
"""Multiply matrices with more and more zeros: does power alone decide the clock?"""

import time
from statistics import median

import torch

from snippets.pictures import DASHES, Axis, Line, Note, Panel, Picture, Rule
from snippets.timing.power_meter import PowerMeter

SHARES = (0.0, 0.3, 0.6, 0.8, 0.9, 0.97, 1.0)  # of zeros, the rest random
N, PART, PARTS = 8192, 100, 4  # bf16 matmuls: some 0.6 s
ROUNDS, REST_S = 2, 0.3


def settled(x: torch.Tensor) -> dict[str, float]:
    """Rate, clock, power and the share of time at the power limit, of the last part.

    Where the driver cannot be asked, only the rate.
    """
    y = torch.empty_like(x)
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
    torch.cuda.synchronize()
    time.sleep(REST_S)
    with PowerMeter(every_s=0.01) as meter:
        for part in range(PARTS):
            if part == PARTS - 1:
                marks[0].record()
            for _ in range(PART):
                torch.mm(x, x, out=y)
        marks[1].record()
        torch.cuda.synchronize()
    last_s = marks[0].elapsed_time(marks[1]) / 1e3
    row = {"tflop_s": 2 * N**3 * PART / last_s / 1e12}
    rows = meter.rows
    if rows["s"]:
        late = [i for i, s in enumerate(rows["s"]) if s >= rows["s"][-1] - last_s]
        for name, column in (
            ("mhz", "mhz"),
            ("watt", "watt_now"),
            ("capped", "capped"),
        ):
            row[name] = median(rows[column][i] for i in late)
    return row


def main() -> dict:
    torch.manual_seed(0)
    random = torch.randn(N, N, device="cuda", dtype=torch.bfloat16)
    place = torch.rand(N, N, device="cuda")
    fills = {share: torch.where(place < share, 0, random) for share in SHARES}
    torch.mm(random, random)  # cuBLAS sets itself up
    bursts = {share: [] for share in SHARES}
    for _ in range(ROUNDS):
        for share, found in bursts.items():
            found.append(settled(fills[share]))
    result = {"zeros": SHARES}
    for key in bursts[SHARES[0]][0]:
        trials = [[each[key] for each in bursts[share]] for share in SHARES]
        result |= {key: [median(each) for each in trials], f"{key}_trials": trials}
    for i, share in enumerate(SHARES):
        row = f"{share:5.0%} zeros {result['tflop_s'][i]:5.0f} TFLOP/s"
        if "mhz" in result:
            row += f" {result['mhz'][i]:6,.0f} MHz {result['watt'][i]:5.0f} W"
        print(row)
    return result


def derive(results: dict) -> dict:
    """FLOP per clock of the whole GPU by share of zeros; whether zeros raise the clock."""
    rates = zip(results["tflop_s"], results["mhz"], strict=True)
    per_clock = [1e6 * tflop_s / mhz for tflop_s, mhz in rates]
    mhz = results["mhz"]
    return {
        "flop_per_clock": per_clock,
        "most_of_least": max(per_clock) / min(per_clock),
        "rises": mhz[0] <= 0.95 * mhz[3] <= 0.99 * mhz[-1],
    }


def plot(results: dict, ceilings: dict):
    marks = [Line(results["watt"], results["mhz"], "bf16 matmuls")]
    rows = zip(results["zeros"], results["watt"], results["mhz"], strict=True)
    for share, watt, mhz in rows:
        if share in (0.0, 0.8, 1.0):  # more would not fit beside each other
            text, place = f"{share:.0%} zeros", (watt, -8)
            if share == 0.0:  # right of all dots: the line comes from above
                place = (max(results["watt"]), 2)
            marks.append(Note(place[0], mhz, text, dx=6, dy=place[1]))
    if "clock_mhz" in ceilings:
        marks.append(Rule("y", ceilings["clock_mhz"], "highest clock"))
    if "power_limit_w" in ceilings:
        limit = ceilings["power_limit_w"]
        marks.append(Rule("x", limit, "power limit", DASHES[1]))
    low, high = min(results["watt"]), max(results["watt"])
    x = Axis("W", high=high + 0.3 * (high - low))  # behind the last dot is its text
    return Picture([Panel(marks, x, Axis("MHz, by the driver"))])


if __name__ == "__main__":
    main()
