# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [1]
# timeout = 180
# ///
"""Load CUDA code when it is first used, or all at once: who pays for it, and when?"""

import multiprocessing
import os
import time
from statistics import median

import torch
from torch.nn.functional import cross_entropy

from snippets.timing.wait_for import wait_for

MODES = ("LAZY", "EAGER")  # PyTorch asks CUDA for the first, unless you say otherwise
ROUNDS, BACKWARDS = 3, 4
SPIN = 30_000_000  # clocks: about 15 ms


def outside_mib() -> float:
    """MiB in use on this GPU that PyTorch's allocator has not taken, by any process."""
    free, total = torch.cuda.mem_get_info()
    return (total - free - torch.cuda.memory_reserved()) / 2**20


def first_uses() -> dict[str, dict[str, float]]:
    """Milliseconds of each first use in this process, and MiB outside PyTorch then."""
    uses = {
        "context": lambda: torch.empty(1, device="cuda"),
        "kernel": lambda: torch.ones(1, device="cuda"),
        "cublas_handle": torch.cuda.current_blas_handle,
        "matmul": lambda: torch.mm(*torch.ones(2, 64, 64, device="cuda")),
    }
    ms, mib = {}, {}
    for name, use in uses.items():
        start = time.perf_counter()
        use()
        wait_for()
        ms[name] = 1e3 * (time.perf_counter() - start)
        mib[name] = outside_mib()
    return {"ms": ms, "mib": mib}


def held_ms() -> list[float]:
    """Milliseconds until each of a few backward passes returns, behind a long kernel.

    The first makes a gradient, each later one adds to it.
    """
    logits = torch.rand(1024, 10, device="cuda", requires_grad=True)
    labels = torch.zeros(1024, dtype=torch.long, device="cuda")
    held = []
    for _ in range(BACKWARDS):
        wait_for()
        torch.cuda._sleep(SPIN)
        start = time.perf_counter()
        cross_entropy(logits, labels).backward()
        held.append(1e3 * (time.perf_counter() - start))
    wait_for()
    return held


def in_this_process(mode: str) -> dict:
    """All of it under one way to load code: CUDA reads the variable when it starts."""
    os.environ["CUDA_MODULE_LOADING"] = mode
    return first_uses() | {"held_ms": held_ms()}


def medians(rows: list[dict[str, float]]) -> tuple[dict, dict]:
    """Medians and trials of rows, by name."""
    trials = {name: [row[name] for row in rows] for name in rows[0]}
    return {name: median(each) for name, each in trials.items()}, trials


def main() -> dict:
    rows = {mode: [] for mode in MODES}
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch"])
    with context.Pool(1, maxtasksperchild=1) as pool:  # each in a process of its own
        for _ in range(ROUNDS):
            for mode in MODES:
                rows[mode].append(pool.apply(in_this_process, [mode]))
    result = {}
    for mode, runs in rows.items():
        ms, ms_trials = medians([run["ms"] for run in runs])
        mib, _ = medians([run["mib"] for run in runs])
        calls = [
            list(call) for call in zip(*[run["held_ms"] for run in runs], strict=True)
        ]
        held = [median(call) for call in calls]
        result[mode] = {"ms": ms, "ms_trials": ms_trials, "mib": mib}
        result[mode] |= {"held_ms": held, "held_ms_trials": calls}
        print(mode)
        for name in ms:
            print(f"  {name:<14}{ms[name]:8.1f} ms, then {mib[name]:6.0f} MiB outside")
        print("  backward held", *(f"{call:6.1f}" for call in held), "ms")
    return result


def derive(results: dict) -> dict:
    """How many times as long each stage takes if all code is loaded at once."""
    eager, lazy = results["EAGER"]["ms"], results["LAZY"]["ms"]
    return {"eager_of_lazy": {stage: eager[stage] / lazy[stage] for stage in lazy}}


if __name__ == "__main__":
    main()
