# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [1]
# timeout = 300
# ///
"""Watch a CPU core's pace: does a look before and after a measurement tell whether it is good?"""

import os
import time
from statistics import median
from typing import Any

import torch

from snippets.pictures import Axis, Columns, Panel, Picture

ADDITIONS = 20_000
#: A piece is slow if it takes this many times as long as the fastest twentieth.
SLOW = 1.4


def piece_ms() -> float:
    """Milliseconds of a short loop in Python, which nothing but the core's pace changes."""
    started = time.perf_counter()
    total = 0
    for number in range(ADDITIONS):
        total += number
    return 1e3 * (time.perf_counter() - started)


def watch(seconds: float) -> list[float]:
    """Milliseconds of each piece in a row, on the core where this process is now."""
    core = sorted(os.sched_getaffinity(0))[-1]
    others = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    pieces = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pieces.append(piece_ms())
    os.sched_setaffinity(0, others)
    return pieces


def fast_ms(pieces: list[float]) -> float:
    """Milliseconds of a fast piece: the fastest twentieth take no longer."""
    return sorted(pieces)[len(pieces) // 20]


def stays_ms(pieces: list[float], limit_ms: float) -> list[float]:
    """How long the core stays slow, each time, in ms."""
    stays = []
    stay = 0.0
    for ms in pieces:
        if ms > limit_ms:
            stay += ms
        elif stay:
            stays.append(stay)
            stay = 0.0
    return stays


def launch_us(x: torch.Tensor, seconds: float) -> float:
    """Microseconds of a launch, the median of trials of 200 that take so many seconds in all."""
    trials = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        torch.cuda.synchronize()
        started = time.perf_counter()
        for _ in range(200):
            x.add_(1)
        trials.append((time.perf_counter() - started) / 200)
    return 1e6 * median(trials)


def rounds(
    x: torch.Tensor, count: int, seconds: float, limit_ms: float
) -> dict[str, list[Any]]:
    """Measure launches `count` times, and look at the core's pace before and after each time."""
    looks, launches = [], []
    for _ in range(count):
        before_ms = median(piece_ms() for _ in range(15))
        launches.append(launch_us(x, seconds))
        after_ms = median(piece_ms() for _ in range(15))
        looks.append(max(before_ms, after_ms) > limit_ms)
    return {"slow_look": looks, "us_trials": launches}


def compared(made: dict[str, list[Any]]) -> dict[str, float | int]:
    """Medians of the measurements whose looks were slow, and of the others; 0 where there are none."""
    pairs = list(zip(made["slow_look"], made["us_trials"], strict=True))
    slow = [us for is_slow, us in pairs if is_slow]
    calm = [us for is_slow, us in pairs if not is_slow]
    return {
        "slow": len(slow),
        "calm": len(calm),
        "slow_us": median(slow or [0.0]),
        "calm_us": median(calm or [0.0]),
    }


def main() -> dict:
    x = torch.zeros(1, device="cuda")
    launch_us(x, 0.5)  # the first calls load the kernel
    pieces = watch(10.0)
    fast = fast_ms(pieces)
    limit_ms = SLOW * fast
    slow = [ms for ms in pieces if ms > limit_ms]
    stays = stays_ms(pieces, limit_ms)
    result: dict = {
        "fast_ms": fast,
        "slow_ms": median(slow or [fast]),
        "slow_share": sum(slow) / sum(pieces),
        "stays": len(stays),
        "stay_ms": median(stays or [0.0]),
        "piece_ms_trials": [round(ms, 3) for ms in pieces],
    }
    print(f"pieces: {fast:.2f} ms fast, {result['slow_ms']:.2f} ms slow")
    print(
        f"slow for {result['slow_share']:.0%} of the time, {result['stay_ms']:.0f} ms at a time"
    )
    for name, count, seconds in (("short", 60, 0.02), ("long", 24, 1.0)):
        made = rounds(x, count, seconds, limit_ms)
        result[name] = compared(made) | made
        for look in ("slow", "calm"):
            number, us = result[name][look], result[name][f"{look}_us"]
            print(f"{name}: {number} with a {look} look, launches take {us:.2f} us")
    return result


def plot(results: dict, ceilings: dict):
    pieces = results["piece_ms_trials"]
    edges = [round(0.3 + 0.05 * step, 2) for step in range(29)]
    time_in = [
        sum(ms for ms in pieces if edge <= ms < edge + 0.05) / sum(pieces)
        for edge in edges
    ]
    middles = [edge + 0.025 for edge in edges]
    shares = Columns(middles, [100 * share for share in time_in], width=0.045)
    axes = Axis("ms for the same loop"), Axis("share of the time, %")
    return Picture([Panel([shares], *axes)])


if __name__ == "__main__":
    main()
