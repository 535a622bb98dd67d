# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [1]
# ///
"""Kernels of zero to ten microseconds: what does each clock add to their length?"""

from functools import partial
from statistics import linear_regression

import torch

from snippets.pictures import sweep
from snippets.timing.clocks_compared import events, profiler
from snippets.timing.kernel_time import captured, gpu_clock, repeated
from snippets.timing.take_turns import recorded, take_turns

CYCLES = (0, 500, 1_000, 2_000, 4_000, 6_000, 10_000, 14_000, 20_000)
CALLS, NODES, TRIALS = 20, 100, 7
STRAIGHT = ("profiler", "graph", "gpu_clock")  # events also wait for launches


def clocks_of(cycles: int) -> dict:
    """Functions that give the seconds of one kernel of so many clock cycles."""
    work = partial(torch.cuda._sleep, cycles)  # one thread counts its clock cycles
    graph = captured(repeated(work, NODES))
    return {
        "profiler": lambda: profiler(work, CALLS),
        "graph": lambda: gpu_clock(graph, 2) / NODES,
        "gpu_clock": lambda: gpu_clock(work, CALLS),
        "events": lambda: events(work, 1),
    }


def line(us: list[float]) -> dict[str, float]:
    """The straight line through readings of CYCLES: its start in µs, and its MHz."""
    slope, start = linear_regression(CYCLES, us)
    return {"adds_us": start, "mhz": 1 / slope}


def main() -> dict:
    timings = []
    for cycles in CYCLES:
        reads = clocks_of(cycles)
        turns = take_turns(reads, 1, TRIALS, clock=lambda read, calls: read())
        timings.append(recorded(turns, "us"))
    us, trials = {}, {}
    for name in timings[0]["us"]:
        us[name] = [timing["us"][name] for timing in timings]
        trials[name] = [timing["us_trials"][name] for timing in timings]
    lines = {name: line(us[name]) for name in STRAIGHT}
    print(f"{'cycles':>10}" + "".join(f"{name:>11}" for name in us))
    for i, cycles in enumerate(CYCLES):
        print(f"{cycles:10,}" + "".join(f"{us[name][i]:8.2f} µs" for name in us))
    for name, found in lines.items():
        print(f"{name:10} {found['adds_us']:.2f} µs + cycles / {found['mhz']:.0f} MHz")
    return {"cycles": CYCLES, "us": us, "us_trials": trials, "lines": lines}


def derive(results: dict) -> dict:
    """How far the profiler is from a line through its first time; what clocks add."""
    us, mhz = results["us"]["profiler"], results["lines"]["profiler"]["mhz"]
    cycles = results["cycles"]
    adds = {clock: line["adds_us"] for clock, line in results["lines"].items()}
    return {
        "adds": adds,
        "graph_off": abs(adds["graph"] - adds["profiler"]),
        "off_line_us": [
            abs(each - us[0] - count / mhz)
            for each, count in zip(us, cycles, strict=True)
        ],
    }


def plot(results: dict, ceilings: dict):
    labels = {
        "gpu_clock": "gpu_clock: start to start in a queue",
        "profiler": "profiler",
        "graph": "start to start in a graph",
    }
    lines = {label: results["us"][name] for name, label in labels.items()}
    mhz = results["lines"]["graph"]["mhz"]
    lengths = [cycles / mhz for cycles in results["cycles"]]
    counted = {"what was counted": lengths}
    axes = {"xlabel": "µs that the kernel counts", "ylabel": "reading, µs"}
    picture = sweep(lengths, lines, counted, **axes)
    picture.panels[0].x.ticks = None
    return picture


if __name__ == "__main__":
    main()
