# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11"]
# [tool.overlap]
# gpus = [1]
# ///
"""What a kernel launch costs the CPU, what the kernel costs the GPU, what a graph node costs."""

import time
from collections.abc import Callable
from statistics import median

import torch

from snippets.timing.benchmark import measure

CALLS, TRIALS = 500, 15  # fewer calls than the launch queue holds, so that none waits for room
ROUNDS = 10  # of such calls in a trial of the CPU, which other programs disturb
LABELS = {"bare": "bare kernel", "add": "x.add_(1)", "mm": "torch.mm(m, m)"}
KINDS = {"launch": "eager launch, CPU", "kernel": "kernel, GPU", "node": "graph node"}


def repeat(launch: Callable[[], object]) -> None:
    for _ in range(CALLS):
        launch()


def enqueue_us(launch: Callable[[], object]) -> float:
    """Microseconds of the CPU per launch: the clock stops when the calls have returned."""
    seconds = 0.0
    for _ in range(ROUNDS):
        torch.cuda.synchronize()
        start = time.perf_counter()
        repeat(launch)
        seconds += time.perf_counter() - start
    return 1e6 * seconds / (ROUNDS * CALLS)


def kernel_us(launch: Callable[[], object]) -> float:
    """Microseconds of the GPU per kernel: it spins until all are queued, then runs them all."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda._sleep(50_000 * CALLS)  # cycles
    start.record()
    repeat(launch)
    end.record()
    end.synchronize()
    return 1e3 * start.elapsed_time(end) / CALLS


def captured(launch: Callable[[], object]) -> torch.cuda.CUDAGraph:
    """A graph of CALLS nodes."""
    repeat(launch)  # libraries set themselves up before a capture
    with torch.cuda.graph(graph := torch.cuda.CUDAGraph()):
        repeat(launch)
    return graph


def costs_us(launch: Callable[[], object], graph: torch.cuda.CUDAGraph) -> dict[str, float]:
    """Microseconds of a launch, of its kernel, and of its node in the graph."""
    node = 1e3 * measure(graph.replay, warmup=0, trials=1).ms()[0] / CALLS
    return {"launch": enqueue_us(launch), "kernel": kernel_us(launch), "node": node}


def main() -> dict:
    x, m = torch.zeros(1, device="cuda"), torch.randn(100, 100, device="cuda")
    launches = {"bare": lambda: torch.cuda._sleep(0)}  # a kernel that needs no tensor
    launches |= {"add": lambda: x.add_(1), "mm": lambda: torch.mm(m, m)}
    graphs = {name: captured(launch) for name, launch in launches.items()}
    x.zero_()
    graphs["add"].replay()
    torch.testing.assert_close(x, torch.full_like(x, CALLS))
    rounds = [{name: costs_us(launches[name], graphs[name]) for name in LABELS} for _ in range(2 + TRIALS)][2:]
    trials = {name: {kind: [each[name][kind] for each in rounds] for kind in KINDS} for name in LABELS}
    us = {name: {kind: median(row[kind]) for kind in KINDS} for name, row in trials.items()}
    for name, row in us.items():
        texts = (f"{label} {row[kind]:5.2f} µs" for kind, label in KINDS.items())
        print(f"{LABELS[name]:<15}", ", ".join(texts))
    return {"us": us, "us_trials": trials}


def plot(results: dict, ceilings: dict):
    import matplotlib.pyplot as plt

    figure, ax = plt.subplots()
    for i, (kind, label) in enumerate(KINDS.items()):
        us = [results["us"][name][kind] for name in LABELS]
        bars = ax.barh([row + 0.27 * i for row in range(len(us))], us, height=0.25, label=label)
        ax.bar_label(bars, fmt="%.1f", padding=3)
    ax.set(xlabel="µs", yticks=[0.27, 1.27, 2.27], yticklabels=LABELS.values(), xmargin=0.2)
    ax.invert_yaxis()
    figure.legend(loc="outside upper left", ncols=2)
    return figure


if __name__ == "__main__":
    main()
