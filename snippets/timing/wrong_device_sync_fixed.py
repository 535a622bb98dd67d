# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [2]
# ///
"""Fixed: time work on two GPUs, and wait for every device that has work."""

from functools import partial
from statistics import median

import torch

from snippets.timing.benchmark import Timing, measure

N = 8192
PRODUCTS = {"first": 10, "second": 40}  # how often GPU 0 and GPU 1 square their matrix


def square(x: torch.Tensor, times: int) -> None:
    """Queue `times` products x @ x on the device of x, shape [n, n]."""
    for _ in range(times):
        torch.mm(x, x)


def timed(work) -> Timing:
    """Wait for each of the two GPUs."""
    return measure(work, devices=[0, 1])


def figures(timing: Timing, *products: int) -> dict:
    """Time in ms, rate of all products, FLOP of the GPU that has most to do."""
    flop = [2 * N**3 * times for times in products]
    rates = [sum(flop) / seconds / 1e12 for seconds in timing.trials]
    row = {"ms": 1e3 * timing.median, "ms_trials": timing.ms()}
    row |= {"tflop_s": median(rates), "tflop_s_trials": rates}
    return row | {"longest_flop": max(flop)}


def main() -> dict:
    works = {}
    for device, (name, times) in enumerate(PRODUCTS.items()):
        x = torch.randn(N, N, device=f"cuda:{device}", dtype=torch.bfloat16)
        works[name] = partial(square, x, times)

    def both() -> None:
        for work in works.values():
            work()

    rows = {name: figures(timed(works[name]), PRODUCTS[name]) for name in works}
    rows["both"] = figures(timed(both), *PRODUCTS.values())
    for name, row in rows.items():
        print(f"{name:7}{row['ms']:8.3f} ms{row['tflop_s']:10,.0f} TFLOP/s")
    return rows


def plot(results: dict, ceilings: dict):
    from snippets.timing.wrong_device_sync_broken import plot

    return plot(results, ceilings)


if __name__ == "__main__":
    main()
