# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [2, 4, 8]
# ///
"""The same loop with large products: one thread keeps every GPU busy.

After D2L's sample code; MIT-0 licence, (c) 2019 Amazon.com, Inc. or its affiliates.
"""

import time
from functools import partial
from statistics import median

import torch

from snippets.pictures import Axis, Bars, Panel, Picture, Rule
from snippets.timing.take_turns import recorded, take_turns
from snippets.timing.wait_for import wait_for

N, CALLS = 4000, 50


def run(*tensors: torch.Tensor, calls: int = CALLS) -> None:
    """Square each (n, n) tensor so many times on its own GPU, tensor after tensor."""
    for x in tensors:
        for _ in range(calls):
            torch.mm(x, x)


def handed_out(work) -> float:
    """Seconds until the call returns, whether or not the GPUs have finished."""
    start = time.perf_counter()
    work()
    seconds = time.perf_counter() - start
    wait_for()
    return seconds


def main() -> dict:
    gpus = range(torch.cuda.device_count())
    xs = [torch.randn(N, N, device=f"cuda:{i}") for i in gpus]
    ways = {f"gpu_{i}": partial(run, xs[i]) for i in gpus}
    ways["together"] = partial(run, *xs)
    times = take_turns(ways, warmup=1, trials=5)
    rounds = zip(*(times[f"gpu_{i}"].trials for i in gpus), strict=True)
    in_turn = [sum(turns) for turns in rounds]
    speedup = [a / b for a, b in zip(in_turn, times["together"].trials, strict=True)]
    launched = [1e3 * handed_out(ways["together"]) for _ in range(5)]
    for name, timing in times.items():
        print(f"{name:<8} {timing.median:.4f} s")
    print(f"{median(speedup):.2f}× taking turns; launched in {median(launched):.1f} ms")
    return recorded(times, "s") | {
        "n": N,
        "calls": CALLS,
        "speedup": median(speedup),
        "speedup_trials": speedup,
        "launched_ms": median(launched),
        "launched_ms_trials": launched,
    }


def plot(results: dict, ceilings: dict):
    """Each GPU's turn, one after the other, above all of them together."""
    *turns, together = results["s"].values()
    lengths = {f"GPU {i} alone": turn for i, turn in enumerate(turns)}
    starts = {row: sum(turns[:i]) for i, row in enumerate(lengths)}
    marks = [
        Bars(lengths, starts=starts, texts={}),
        Bars({"all together": together}, texts={}),
        Rule("x", max(turns), "if the GPUs ran side by side"),
    ]
    return Picture([Panel(marks, Axis("s"))])


if __name__ == "__main__":
    main()
