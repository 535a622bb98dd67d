# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [2, 4, 8]
# timeout = 120
# ///
"""The classic demonstration of automatic parallelism: as printed, then waited for.

After Dive into DL PyTorch, by ShusenTang; Apache License 2.0.
"""

import time
from functools import partial
from statistics import median

import torch

from snippets.pictures import Axis, Bars, Panel, Picture, Rule
from snippets.timing.benchmark import measure
from snippets.timing.take_turns import take_turns
from snippets.timing.wait_for import wait_for

N, CALLS = 100, 20_000


def run(*tensors: torch.Tensor, calls: int = CALLS) -> None:
    """Square each (n, n) tensor so many times on its own GPU, tensor after tensor."""
    for x in tensors:
        for _ in range(calls):
            torch.mm(x, x)


def as_printed(first: torch.Tensor, second: torch.Tensor) -> dict[str, float]:
    """Seconds of the article's three lines: cold, one trial, GPU 0 waited for."""
    lines = {"first": (first,), "second": (second,), "both": (first, second)}
    seconds = {}
    for name, tensors in lines.items():
        work = partial(run, *tensors)
        seconds[name] = measure(work, devices=[0], warmup=0, trials=1).median
    return seconds


def launch_us(x: torch.Tensor, launches: int = 300, trials: int = 9) -> list[float]:
    """Host microseconds of a launch while the GPU is busy, so that none can begin.

    x is on the current GPU.
    """
    costs = []
    for _ in range(trials):
        torch.cuda._sleep(100_000_000)  # cycles: about 50 ms, longer than the launches
        start = time.perf_counter()
        run(x, calls=launches)
        costs.append(1e6 * (time.perf_counter() - start) / launches)
        wait_for()
    return costs


def main() -> dict:
    gpus = range(torch.cuda.device_count())
    xs = [torch.randn(N, N, device=f"cuda:{i}") for i in gpus]
    printed = as_printed(*xs[:2])
    works = {str(i): partial(run, xs[i]) for i in gpus} | {"all": partial(run, *xs)}
    times = take_turns(works, warmup=0, trials=5)
    alone, together = [times[str(i)] for i in gpus], times["all"]
    in_turn = [sum(turn) for turn in zip(*(t.trials for t in alone), strict=True)]
    launch, us_per_call = launch_us(xs[0]), 1e6 * together.median / (CALLS * len(xs))
    for name, seconds in printed.items():
        print(f"as printed, {name + ':':<8} {seconds:.4f} s")
    print(f"{len(xs)} GPUs in turn:      {median(in_turn):.4f} s")
    print(f"{len(xs)} GPUs together:     {together.median:.4f} s")
    print(
        f"a product:          {us_per_call:.1f} µs, its launch {median(launch):.1f} µs"
    )
    return {
        "calls": CALLS,
        "printed_s": printed,
        "alone_s": [timing.median for timing in alone],
        "alone_s_trials": [timing.trials for timing in alone],
        "in_turn_s": median(in_turn),
        "in_turn_s_trials": in_turn,
        "together_s": together.median,
        "together_s_trials": together.trials,
        "us_per_call": us_per_call,
        "launch_us": median(launch),
        "launch_us_trials": launch,
    }


def plot(results: dict, ceilings: dict):
    """Each GPU's turn, one after the other, above all of them together."""
    turns = results["alone_s"]
    lengths = {f"GPU {i} alone": turn for i, turn in enumerate(turns)}
    starts = {row: sum(turns[:i]) for i, row in enumerate(lengths)}
    marks = [
        Bars(lengths, starts=starts, texts={}),
        Bars({"all together": results["together_s"]}, texts={}),
        Rule("x", max(turns), "if the GPUs ran side by side"),
    ]
    return Picture([Panel(marks, Axis("s"))])


if __name__ == "__main__":
    main()
