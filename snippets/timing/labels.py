# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [1]
# take = ["label"]
# take_on_cpu = ["label"]
# ///
"""Name the parts of a loop for both profilers, and time the names when nobody looks."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch.profiler import record_function

from snippets.timing.take_turns import recorded, take_turns

CALLS = 1000


@contextmanager
def label(name: str) -> Iterator[None]:
    """Name what runs inside, for `torch.profiler` and for Nsight Systems.

    Labels may stand in one another. Without CUDA it is for `torch.profiler` alone.
    In a function that `torch.compile` compiles Dynamo leaves the name out of the
    profiler's trace, with a warning: put the label around its call.
    """
    on_gpu = torch.cuda.is_available()
    if on_gpu:
        torch.cuda.nvtx.range_push(name)
    try:
        with record_function(name):
            yield
    finally:
        if on_gpu:
            torch.cuda.nvtx.range_pop()


def repeated(context: Callable[..., Any]) -> Callable[..., Any]:
    """Work that enters and leaves a context `CALLS` times, with nothing inside."""

    def work() -> None:
        for _ in range(CALLS):
            with context("a part"):
                pass

    return work


def main() -> dict:
    contexts = {"nothing": nullcontext, "nvtx.range": torch.cuda.nvtx.range}
    contexts |= {"record_function": record_function, "label": label}
    works = {name: repeated(context) for name, context in contexts.items()}
    times = recorded(take_turns(works), "us")
    each = {name: us / CALLS for name, us in times["us"].items()}
    trials = {}
    for name, row in times["us_trials"].items():
        trials[name] = [us / CALLS for us in row]
    for name, us in each.items():
        print(f"{name:<16}{us:7.2f} µs")
    return {"us": each, "us_trials": trials}


if __name__ == "__main__":
    main()
