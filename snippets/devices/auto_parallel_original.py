# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11"]
# [tool.overlap]
# gpus = [2, 4, 8]
# missing = { 8 = "no machine with eight GPUs was available when this was recorded" }
# ///
"""The classic demonstration of automatic parallelism: as it was printed, then waited for."""

import time
from functools import partial
from statistics import median

import torch

from snippets.timing.benchmark import Timing, measure

N, CALLS = 100, 20_000


def run(*tensors: torch.Tensor, calls: int = CALLS) -> None:
    """Square each (n, n) tensor `calls` times on its own device, one tensor after the other; no waiting, results dropped."""
    for x in tensors:
        for _ in range(calls):
            torch.mm(x, x)


def as_printed(first: torch.Tensor, second: torch.Tensor) -> dict[str, float]:
    """Seconds of the article's three lines: cold, one trial each, waiting for the first GPU only."""
    lines = {"first": (first,), "second": (second,), "both": (first, second)}
    return {name: measure(partial(run, *xs), devices=[0], warmup=0, trials=1).trials[0] for name, xs in lines.items()}


def waited_for(xs: list[torch.Tensor], trials: int = 5) -> tuple[list[Timing], Timing]:
    """Times of each tensor alone and of all together, every visible device waited for."""
    run(*xs, calls=100)
    alone = [measure(partial(run, x), warmup=0, trials=trials) for x in xs]
    return alone, measure(partial(run, *xs), warmup=0, trials=trials)


def launch_us(x: torch.Tensor, launches: int = 300, trials: int = 9) -> list[float]:
    """Host microseconds per launch while the GPU is kept busy, so that no product has begun yet."""
    costs = []
    for _ in range(trials):
        torch.cuda._sleep(100_000_000)  # cycles: about 50 ms, far longer than the launches take
        start = time.perf_counter()
        run(x, calls=launches)
        costs.append(1e6 * (time.perf_counter() - start) / launches)
        torch.cuda.synchronize(x.device)
    return costs


def main() -> dict:
    gpus = range(torch.cuda.device_count())
    xs = [torch.randn(N, N, device=f"cuda:{i}") for i in gpus]
    printed = as_printed(*xs[:2])
    for x in xs:
        torch.testing.assert_close(torch.mm(x, x).cpu(), x.cpu() @ x.cpu(), rtol=1e-4, atol=1e-4)
    alone, together = waited_for(xs)
    launch, in_turn_s = launch_us(xs[0]), sum(timing.median for timing in alone)
    us_per_call = 1e6 * together.median / (CALLS * len(xs))
    for name, seconds in printed.items():
        print(f"as printed, {name + ':':<8} {seconds:.4f} s")
    print(f"{len(xs)} GPUs in turn:      {in_turn_s:.4f} s, every GPU waited for")
    print(f"{len(xs)} GPUs together:     {together.median:.4f} s, interquartile range {together.spread:.4f} s")
    print(f"per product:        {us_per_call:.1f} µs; the launch alone: {median(launch):.1f} µs")
    return {
        "calls": CALLS,
        "printed_s": printed,
        "alone_s": [timing.median for timing in alone],
        "alone_s_trials": [timing.trials for timing in alone],
        "in_turn_s": in_turn_s,
        "together_s": together.median,
        "together_spread_s": together.spread,
        "together_s_trials": together.trials,
        "us_per_call": us_per_call,
        "launch_us": median(launch),
        "launch_us_trials": launch,
    }


def plot(results: dict, ceilings: dict):
    """Each GPU's turn, one after the other, above all of them together."""
    import matplotlib.pyplot as plt

    figure, ax = plt.subplots()
    turns, n = results["alone_s"], len(results["alone_s"])
    ax.barh(range(n), turns, left=[sum(turns[:i]) for i in range(n)])
    ax.barh([n], [results["together_s"]])
    ax.axvline(max(turns), color="gray", linestyle="--", label="if the GPUs ran side by side")
    ax.set_yticks(range(n + 1), [*(f"GPU {i} alone" for i in range(n)), "together"])
    ax.invert_yaxis()
    ax.set(xlabel="time (s)")
    ax.legend(loc="lower left", bbox_to_anchor=(0, 1))
    return figure


if __name__ == "__main__":
    main()
