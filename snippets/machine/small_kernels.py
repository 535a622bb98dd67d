# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [1]
# ///
"""Small kernels: their names, how long each runs, and how soon the next can start."""

from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Any

import torch

from snippets.pictures import bars
from snippets.timing.kernel_time import gpu_clock, repeated
from snippets.timing.lanes import lanes
from snippets.timing.take_turns import take_turns

SIZES = (64, 100, 128, 256)  # n of the products (n, n)
CALLS = 20


def kernels_of(work: Callable[[], object]) -> list[list[Any]]:
    """Rows of `lanes`, but not the CPU's: each kernel of CALLS calls of `work`."""
    rows = lanes(repeated(work, CALLS))
    return [row for row in rows if not row[0].startswith("CPU")]


def main() -> dict:
    x = torch.zeros(1, device="cuda")
    works = {"bare": partial(torch.cuda._sleep, 0), "add": partial(x.add_, 1)}
    for n in SIZES:
        m = torch.randn(n, n, device="cuda")
        works[f"mm{n}"] = partial(torch.mm, m, m, out=torch.empty_like(m))
    spacing = take_turns(works, calls=50, clock=gpu_clock)
    us, trials, kernels, kernels_a_call = {}, {}, {}, {}
    for name, work in works.items():
        rows = kernels_of(work)
        kernels[name] = list(dict.fromkeys(row[3] for row in rows))
        durations = [row[2] for row in rows]
        kernels_a_call[name] = each = len(rows) // CALLS  # a product may be two kernels
        runs = [sum(durations[i : i + each]) for i in range(0, len(rows), each)]
        trials[name] = {"spacing": spacing[name].us(), "runs": runs}
        us[name] = {kind: median(each) for kind, each in trials[name].items()}
        names = ", ".join(kernels[name])
        print(f"{name:6} runs {us[name]['runs']:5.2f} µs, {each} a call: {names}")
    result = {"us": us, "us_trials": trials, "kernels": kernels}
    return result | {"kernels_a_call": kernels_a_call}


def plot(results: dict, ceilings: dict):
    labels = {"runs": "the kernel runs", "spacing": "from its start to the next start"}
    names = {"bare": "bare kernel", "add": "x.add_(1)"}
    names |= {f"mm{n}": f"matmul {n} × {n}" for n in SIZES}
    rows = {}
    for name, text in names.items():
        us = results["us"][name]
        rows[text] = {label: us[kind] for kind, label in labels.items()}
    return bars(rows, {}, "µs")


if __name__ == "__main__":
    main()
