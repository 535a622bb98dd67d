# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11"]
# [tool.overlap]
# gpus = [1]
# timeout = 180
# ///
"""A chain of pointwise operations on 1 GiB, one kernel each or one kernel for all: the bytes decide."""

import os
import shutil
from collections.abc import Callable
from functools import partial
from statistics import median

import torch

from snippets.timing.benchmark import measure, wait_for

ELEMENTS, LENGTHS = 2**28, (1, 2, 5, 10)  # float32: 1 GiB


def chain(x: torch.Tensor, length: int) -> torch.Tensor:
    """`length` operations on x, each of which reads and writes as many bytes as x has, unless they are fused."""
    for i in range(length):
        x = x * 0.5 if i % 2 else x + 1
    return x


def kernels(work: Callable[[], object]) -> int:
    """How many kernels the GPU runs for one call."""
    with torch.profiler.profile(acc_events=True) as profiler:
        work()
        wait_for()
    return sum(event.device_type.name == "CUDA" and not event.is_user_annotation for event in profiler.events())


def figures(name: str, work: Callable[[], object], moved: int) -> dict:
    """ms of a call, one of ten in a row, and the bandwidth, if it reads and writes so many bytes."""

    def ten() -> None:
        for _ in range(10):
            work()

    trials = [ms / 10 for ms in measure(ten).ms()]
    found = {"ms": median(trials), "ms_trials": trials, "gb_s_trials": [moved / ms / 1e6 for ms in trials]}
    found["gb_s"] = median(found["gb_s_trials"])
    print(f"{name:26}{found['ms']:8.3f} ms{moved / 2**30:6.0f} GiB{found['gb_s']:8,.0f} GB/s")
    return found


def compare(x: torch.Tensor, length: int, fused: Callable) -> dict:
    """One length: the chain as it is written and compiled, after a look at whether both give the same."""
    torch.testing.assert_close(fused(x, length), chain(x, length))
    row, size = {"length": length}, x.numel() * x.element_size()
    for name, way, passes in (("eager", chain, length), ("fused", fused, 1)):
        work = partial(way, x, length)
        row[name] = figures(f"{length:2} operations, {name}", work, 2 * size * passes)
        row[name]["kernels"] = kernels(work)
    return row


def main() -> dict:
    if not (os.environ.get("CC") or shutil.which("gcc") or shutil.which("clang")):
        raise SystemExit("torch.compile uses Triton here, and Triton a C compiler: install gcc, or name one in CC")
    x, y = (torch.rand(ELEMENTS, device="cuda") for _ in range(2))
    copy = figures("copy, for comparison", lambda: y.copy_(x), 2 * 4 * ELEMENTS)
    assert torch.equal(x, y)
    fused = torch.compile(chain, dynamic=False)
    rows = [compare(x, length, fused) for length in LENGTHS]
    return {"bytes": 4 * ELEMENTS, "copy": copy, "rows": rows}


def plot(results: dict, ceilings: dict):
    import matplotlib.pyplot as plt

    figure, ax = plt.subplots()
    lengths = [row["length"] for row in results["rows"]]
    for name, label in (("eager", "one kernel each"), ("fused", "one kernel for all")):
        ax.plot(lengths, [row[name]["ms"] for row in results["rows"]], marker="o", label=label)
    if "hbm_gb_s" in ceilings:
        least = 2 * results["bytes"] / ceilings["hbm_gb_s"] / 1e6
        ax.axhline(least, color="gray", linestyle="--", label="one pass at the ceiling")
    ax.set(xlabel="operations in the chain", ylabel="ms", xticks=lengths, ylim=(0, None))
    ax.legend(loc="lower left", bbox_to_anchor=(0, 1))
    return figure


if __name__ == "__main__":
    main()
