# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [1]
# ///
"""How far the CPU runs ahead: how many launches return behind one long kernel."""

import time
from itertools import pairwise
from statistics import median

import torch

from snippets.pictures import Axis, Line, Note, Panel, Picture

LAUNCHES = 1_500


def launch_us() -> list[float]:
    """Microseconds of each launch while the GPU is busy with an earlier kernel."""
    x = torch.zeros(1, device="cuda")
    torch.cuda.synchronize()
    torch.cuda._sleep(200_000_000)  # cycles, about 100 ms
    marks = [time.perf_counter()]
    for _ in range(LAUNCHES):
        x.add_(1)
        marks.append(time.perf_counter())
    torch.cuda.synchronize()
    return [1e6 * (after - before) for before, after in pairwise(marks)]


def main() -> dict:
    rounds = [launch_us() for _ in range(6)][1:]
    trials = {
        "accepted": [us.index(max(us)) for us in rounds],  # before the one that waits
        "launch_us": [median(us) for us in rounds],
        "blocked_us": [max(us) for us in rounds],
    }
    queue = {name: median(values) for name, values in trials.items()}
    queue |= {f"{name}_trials": values for name, values in trials.items()}
    print(f"{queue['accepted']:,} launches return in {queue['launch_us']:.1f} µs each")
    print(f"the next one takes {queue['blocked_us']:,.0f} µs")
    slowest = [max(rounds[0][i : i + 10]) for i in range(0, LAUNCHES, 10)]
    return {"queue": queue, "slowest_of_ten_us": slowest}


def plot(results: dict, ceilings: dict):
    slowest = results["slowest_of_ten_us"]
    line = Line(range(0, LAUNCHES, 10), slowest, dots=False)
    full = 10 * slowest.index(max(slowest))
    note = Note(full, 5e4, "the queue is full", "right", dx=-8)
    x = Axis("launches made behind a long kernel")
    y = Axis("µs for a launch", log=True, low=1, high=5e5)
    return Picture([Panel([line, note], x, y)])


if __name__ == "__main__":
    main()
