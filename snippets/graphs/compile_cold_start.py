# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11"]
# [tool.overlap]
# gpus = [1]
# timeout = 240
# ///
"""What the first calls of a compiled function cost, after how many calls that is repaid, and what breaks its graph."""

import logging
import math
import multiprocessing
import os
import shutil
import tempfile
from concurrent.futures import ProcessPoolExecutor
from functools import cache

import torch

from snippets.timing.benchmark import measure

SIZES = (4096,) * 4 + (3072,) * 3 + (2048,) * 3  # the n of each call's [n, n]: two changes of shape
WORKS = {
    "plain": lambda x: (x * 2).sum() + 1,
    "print": lambda x: (x := x * 2, print(end=""), x + 1)[-1],
    "item": lambda x: x * x.sum().item(),
    "branch": lambda x: x + 1 if x.sum() > 0 else x - 1,
}


def ten_steps(x: torch.Tensor) -> torch.Tensor:
    """Ten pointwise operations on x [n, n]: eager, each is a kernel that reads and writes all of x."""
    for _ in range(5):
        x = x * 0.5 + 1
    return x


def first_calls(device: str, folder: str, mode: str | None) -> dict:
    """In a fresh process: ms of each call until it has finished, and later medians, compiled and eager."""
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = folder
    inputs = {n: torch.randn(n, n, device=device) for n in SIZES}
    compiled = cache(lambda: torch.compile(ten_steps, mode=mode))  # belongs to the first call, with all that it imports
    calls = [measure(lambda n=n: compiled()(inputs[n]), warmup=0, trials=1).ms()[0] for n in SIZES]
    for x in reversed(inputs.values()):  # the last one is the x of the first call
        torch.testing.assert_close(compiled()(x), ten_steps(x))
    eager, steady = (measure(work, trials=21) for work in (lambda: ten_steps(x), lambda: compiled()(x)))
    found = {"calls_ms": calls, "eager_ms_trials": eager.ms(), "steady_ms_trials": steady.ms()}
    return found | {"eager_ms": 1e3 * eager.median, "steady_ms": 1e3 * steady.median}


def fresh(*args) -> dict:
    """`first_calls` in a process of its own, which has imported torch and nothing more."""
    (context := multiprocessing.get_context("forkserver")).set_forkserver_preload(["torch"])
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        return pool.submit(first_calls, *args).result()


def break_even(calls_ms: list[float], eager_ms: float, steady_ms: float) -> int:
    """The number of calls at which compiling has cost no more time than it saved; 0 if it never saves any."""
    alike = [ms - steady_ms for ms, n in zip(calls_ms, SIZES, strict=True) if n == SIZES[0]]
    return math.ceil(sum(alike) / (eager_ms - steady_ms)) if eager_ms > steady_ms else 0


def graphs(work) -> int:
    """Into how many graphs `torch.compile` cuts this function of a tensor."""
    torch._logging.set_logs(dynamo=logging.ERROR)  # it would warn of the breaks that are made here on purpose
    return torch._dynamo.explain(work)(torch.ones(8)).graph_count


def main() -> dict:
    if not (os.environ.get("CC") or shutil.which("gcc") or shutil.which("clang")):
        raise SystemExit("torch.compile uses Triton here, and Triton a C compiler: install gcc, or name one in CC")
    rows, said = {}, "{0:16}{1} ms; later {steady_ms:.3f}, eager {eager_ms:.3f}; repaid after {break_even:,} calls"
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        for name, mode in (("cold", None), ("cached", None), ("reduce_overhead", "reduce-overhead")):
            row = rows[name] = fresh("cuda", folder, mode)
            row["break_even"] = break_even(row["calls_ms"], row["eager_ms"], row["steady_ms"])
            print(said.format(name, " ".join(f"{ms:,.1f}" for ms in row["calls_ms"][:5]), **row))
    rows |= {"sizes": list(SIZES), "graphs": {name: graphs(work) for name, work in WORKS.items()}}
    print("graphs:", *(f"{name} {count}" for name, count in rows["graphs"].items()))
    return rows


def plot(results: dict, ceilings: dict):
    import matplotlib.pyplot as plt

    calls = range(1, 1 + len(results["sizes"]))
    figure, ax = plt.subplots()
    for name in ("cold", "cached", "reduce_overhead"):
        ax.semilogy(calls, results[name]["calls_ms"], marker="o", label=name.replace("_", " "))
    ax.axhline(results["cold"]["eager_ms"], color="gray", linestyle="--", label="eager")
    ax.set(xlabel="call; 5 and 8 bring a new shape", ylabel="ms until it has finished", xticks=calls)
    ax.yaxis.set_major_formatter("{x:g}")
    ax.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2)
    return figure


if __name__ == "__main__":
    main()
