# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [1]
# timeout = 120
# ///
"""What do forks and joins cost: from Python with nothing between, and in a graph?"""

from functools import partial
from statistics import median
from typing import Any

import torch

from snippets.streams.three_streams_cka import fork_join
from snippets.streams.when_streams_help import product, spread
from snippets.timing.kernel_time import captured
from snippets.timing.take_turns import ratios, recorded, take_turns

N, LAUNCHES = 128, (400, 1600, 6400)  # fp32 matmuls, dealt out to the streams
ONE_AND_EIGHT = (1, 8)


def empty_branches() -> dict:
    """Microseconds of `fork_join` with three branches that launch nothing."""
    x = torch.zeros(1, device="cuda")
    streams = [torch.cuda.Stream() for _ in range(3)]
    branches = [lambda: x] * 3
    works = {"forked": partial(fork_join, branches, streams)}
    works["one_after_the_other"] = lambda: [branch() for branch in branches]
    return recorded(take_turns(works, trials=21, calls=20), "us")


def gains() -> dict[str, list[Any]]:
    """How many times as fast eight streams are in a graph, by the number of matmuls."""
    launch, check = product(N, torch.float32)
    streams = [torch.cuda.Stream() for _ in range(max(ONE_AND_EIGHT))]
    found = {"gain": [], "gain_trials": [], "one_us": [], "eight_us": []}
    for launches in LAUNCHES:
        works = {}
        for count in ONE_AND_EIGHT:
            works[count] = captured(partial(spread, launch, launches, streams[:count]))
        check()  # of what the warm-up has launched
        timings = take_turns(works, trials=7)
        check()
        one, eight = (timings[count] for count in ONE_AND_EIGHT)
        each = ratios(one, eight)
        found["gain"].append(median(each))
        found["gain_trials"].append(each)
        found["one_us"].append(1e6 * one.median)
        found["eight_us"].append(1e6 * eight.median)
        print(f"{launches:5} matmuls of {N}: 8 streams {found['gain'][-1]:.2f} times")
    return found


def main() -> dict:
    empty = empty_branches()
    for way, us in empty["us"].items():
        print(f"three empty branches, {way.replace('_', ' '):<20}{us:6.1f} µs")
    return {"empty": empty, "launches": list(LAUNCHES)} | gains()


if __name__ == "__main__":
    main()
