# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [1]
# ///
"""Softmax of three shapes in a profile: who waits, who works, who only looks busy?"""

import math
from collections.abc import Callable
from functools import partial
from statistics import median

import torch

from snippets.pictures import timelines
from snippets.timing.benchmark import measure
from snippets.timing.kernel_shapes import kernels_of
from snippets.timing.lanes import lanes

SHAPES = {"tiny": (16, 128), "one_row": (1, 2**20), "many_rows": (8192, 2**14)}


def repeat(work: Callable[[], object], times: int) -> None:
    for _ in range(times):
        work()


def thread_blocks(work: Callable[[], object]) -> int:
    """Thread blocks of the largest kernel that `work` launches."""
    return max(math.prod(kernel["grid"]) for kernel in kernels_of(work))


def main() -> dict:
    rows = {}
    for name, shape in SHAPES.items():
        work = partial(torch.softmax, torch.randn(shape, device="cuda"), -1)
        call = measure(work, calls=100)
        events = lanes(partial(repeat, work, 12))
        kernels = [us for lane, _, us, _ in events if lane != "CPU"]
        row = {"bytes": 8 * math.prod(shape), "blocks": thread_blocks(work)}
        row |= {"us": 1e6 * call.median, "us_trials": call.us()}
        row |= {"kernel_us": median(kernels), "kernel_us_trials": kernels}
        line = "{:10}{blocks:6,} blocks, kernel {kernel_us:6.1f} of {us:6.1f} µs a call"
        print(line.format(name, **row))
        rows[name] = row | {"events": events}
    return rows


def plot(results: dict, ceilings: dict):
    panels = {}
    for shape in SHAPES:
        events = panels[shape.replace("_", " ")] = []
        for lane, start, us, name in results[shape]["events"]:
            lane = "GPU" if lane != "CPU" else lane
            lane = "CPU waits" if "Synchronize" in name else lane
            events.append([lane, start, us, name])
    return timelines(panels, "µs (profiled: launches take longer)")


if __name__ == "__main__":
    main()
