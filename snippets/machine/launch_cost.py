# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [1]
# ///
"""What a kernel launch costs the CPU, and what the same costs as a node of a graph."""

from collections.abc import Callable
from statistics import median

import torch

from snippets.pictures import bars
from snippets.timing.benchmark import wall_clock
from snippets.timing.kernel_time import captured, gpu_clock, repeated
from snippets.timing.take_turns import both_orders, take_turns
from snippets.timing.wait_for import wait_for

CALLS = 500  # fewer than the launch queue holds, so that none waits for room


def launch_clock(work: Callable[[], object], calls: int) -> float:
    """Seconds of the CPU for one of `calls` calls: it stops when they have returned."""
    wait_for()
    return wall_clock(work, calls, devices=[])  # which waits for nobody


def node_clock(replay: Callable[[], object], calls: int) -> float:
    """Seconds of the GPU for one of the CALLS calls in a graph."""
    return gpu_clock(replay, calls, spin_cycles=4_000_000) / CALLS


def main() -> dict:
    x, m = torch.zeros(1, device="cuda"), torch.randn(100, 100, device="cuda")
    works = {
        "bare": lambda: torch.cuda._sleep(0),  # a kernel that needs no tensor
        "add": lambda: x.add_(1),
        "mm": lambda: torch.mm(m, m),
    }
    graphs = {name: captured(repeated(work, CALLS)) for name, work in works.items()}
    x.zero_()
    graphs["add"]()
    torch.testing.assert_close(x, torch.full_like(x, CALLS))
    launch = both_orders(works, trials=15, calls=CALLS, clock=launch_clock)
    node = take_turns(graphs, trials=9, calls=5, clock=node_clock)
    us, trials = {}, {}
    for name in works:
        trials[name] = {"launch": launch[name].us(), "node": node[name].us()}
        us[name] = {kind: median(each) for kind, each in trials[name].items()}
        print("{:5}launch {launch:5.2f} µs, node {node:5.2f}".format(name, **us[name]))
    return {"us": us, "us_trials": trials}


def plot(results: dict, ceilings: dict):
    labels = {"bare": "bare kernel", "add": "x.add_(1)", "mm": "torch.mm(m, m)"}
    kinds = {"launch": "CPU: launch from Python", "node": "GPU: node of a graph"}
    us = {}
    for name, label in labels.items():
        us[label] = {kinds[kind]: each for kind, each in results["us"][name].items()}
    picture = bars(us, {}, "µs")
    for mark, color in zip(picture.panels[0].marks, ("python", "gpu"), strict=True):
        mark.color = color
    return picture


if __name__ == "__main__":
    main()
