# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11"]
# [tool.overlap]
# gpus = [1]
# ///
"""How far the CPU runs ahead: increments waited for or not, and a launch queue that is full."""

import time
from itertools import pairwise
from statistics import median

import torch

from snippets.timing.benchmark import measure

STEPS, LAUNCHES = 10_000, 1_500
ELEMENTS = (1, 2**20, 2**22, 2**24, 2**25)  # of a float32 tensor


def increments(x: torch.Tensor, steps: int, wait: bool) -> torch.Tensor:
    """x + 1, computed `steps` times; with `wait`, the CPU waits for each."""
    for _ in range(steps):
        y = x + 1
        if wait:
            torch.cuda.synchronize()
    return y


def step_us(x: torch.Tensor, wait: bool) -> float:
    """Microseconds per step, all finished; fewer steps for large tensors."""
    steps = STEPS if x.numel() <= 2**22 else STEPS // 10
    return 1e3 * measure(lambda: increments(x, steps, wait), warmup=0, trials=1).ms()[0] / steps


def gpu_us(x: torch.Tensor, calls: int = 500) -> float:
    """Microseconds of the GPU per step: it spins until all are queued, then runs them all."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda._sleep(50_000 * calls)  # cycles
    start.record()
    increments(x, calls, wait=False)
    end.record()
    end.synchronize()
    return 1e3 * start.elapsed_time(end) / calls


def model(wait: list[float], ahead: list[float], gpu: list[float]) -> dict:
    """A launch takes t1, the GPU t2, coming back t3: t1 and t3 from the first size, for all."""
    t1, t3 = ahead[0], wait[0] - ahead[0] - gpu[0]
    steps = {"wait": [t1 + t2 + t3 for t2 in gpu], "ahead": [max(t1, t2) for t2 in gpu]}
    return steps | {"t1": t1, "t3": t3}


def queue_us() -> list[float]:
    """Microseconds that each launch takes while the GPU is busy with an earlier kernel."""
    x, marks = torch.zeros(1, device="cuda"), []
    torch.cuda._sleep(200_000_000)  # cycles, about 100 ms
    for _ in range(LAUNCHES + 1):
        marks.append(time.perf_counter())
        x.add_(1)
    torch.cuda.synchronize()
    return [1e6 * (after - before) for before, after in pairwise(marks)]


def knee(trials: list[list[float]]) -> dict:
    """Launches accepted before the one that took longest, and what such a launch takes."""
    kinds = {"accepted": [us.index(max(us)) for us in trials], "launch_us": [median(us) for us in trials]}
    kinds["blocked_us"] = [max(us) for us in trials]
    row = {f"{kind}_trials": values for kind, values in kinds.items()} | {kind: median(kinds[kind]) for kind in kinds}
    return row | {"of_ten_us": [max(trials[0][i : i + 10]) for i in range(0, LAUNCHES, 10)]}


def main() -> dict:
    xs = [torch.randn(n, device="cuda") for n in ELEMENTS]
    assert all(torch.equal(increments(x, 2, wait=False), x + 1) for x in xs)
    kinds = {"wait": lambda x: step_us(x, True), "ahead": lambda x: step_us(x, False), "gpu": gpu_us}
    rounds = [[[us(x) for us in kinds.values()] for x in xs] for _ in range(8)][1:]  # all take turns
    trials = {name: [[each[i][k] for each in rounds] for i in range(len(xs))] for k, name in enumerate(kinds)}
    us = {name: [median(row) for row in rows] for name, rows in trials.items()}
    row = "{:>10,} numbers: GPU {:5.1f} µs a step, waiting {:5.1f} µs, running ahead {:5.1f} µs"
    for n, *times in zip(ELEMENTS, us["gpu"], us["wait"], us["ahead"], strict=True):
        print(row.format(n, *times))
    queue = knee([queue_us() for _ in range(6)][1:])
    print("queued: {accepted} at {launch_us:.1f} µs, then {blocked_us:,.0f} µs".format(**queue))
    result = {"us": us, "us_trials": trials, "model_us": model(**us), "queue": queue}
    return result | {"elements": ELEMENTS, "steps": STEPS, "slowdown_trials": [us[0][0] / us[0][1] for us in rounds]}


def plot(results: dict, ceilings: dict):
    import matplotlib.pyplot as plt

    figure, ax = plt.subplots()
    ax.plot(range(0, LAUNCHES, 10), results["queue"]["of_ten_us"], label="slowest of ten")
    ax.set(yscale="log", ylim=(1, 5e5), xlabel="launches behind a long kernel", ylabel="µs")
    ax.yaxis.set_major_formatter("{x:,.0f}")
    return figure


if __name__ == "__main__":
    main()
