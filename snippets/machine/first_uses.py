# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [1]
# ///
"""What each process pays once on its way to the first batch."""

import multiprocessing
import time
from statistics import median

import torch

from snippets.pictures import bars
from snippets.timing.wait_for import wait_for


def first_uses_ms() -> dict[str, float]:
    """Milliseconds of each first use of the GPU in this process, waited for."""
    uses = {
        "first_cuda_call": lambda: torch.empty(1, device="cuda"),  # makes the context
        "first_kernel": lambda: torch.ones(1, device="cuda"),
        "cublas_handle": torch.cuda.current_blas_handle,
        "first_product": lambda: torch.mm(*torch.ones(2, 64, 64, device="cuda")),
        "new_tensor": lambda: torch.empty(2**24, device="cuda"),  # 64 MiB: cudaMalloc
    }
    found = {}
    for name, use in uses.items():
        start = time.perf_counter()
        use()
        wait_for()
        found[name] = 1e3 * (time.perf_counter() - start)
    return found


def in_fresh_processes() -> list[dict[str, float]]:
    """`first_uses_ms`, one process after the other; each has imported torch before."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch"])
    with context.Pool(1, maxtasksperchild=1) as pool:
        return [pool.apply(first_uses_ms) for _ in range(5)]


def medians(rows: list[dict[str, float]]) -> dict[str, dict]:
    """Medians and trials of rows of milliseconds, by name."""
    trials = {name: [row[name] for row in rows] for name in rows[0]}
    ms = {name: median(each) for name, each in trials.items()}
    return {"ms": ms, "ms_trials": trials}


def main() -> dict:
    alone = medians(in_fresh_processes())
    torch.cuda.is_available()  # from now on this process uses the driver
    beside = medians(in_fresh_processes())
    print("in a process that is   alone    beside one that uses CUDA's driver")
    for name, ms in alone["ms"].items():
        print(f"{name:16}{ms:12.3f} ms{beside['ms'][name]:12.3f} ms")
    return alone | {"beside": beside}


def plot(results: dict, ceilings: dict):
    labels = {"first_cuda_call": "first CUDA call", "first_product": "first matmul"}
    labels |= {"first_kernel": "first kernel", "cublas_handle": "handle of cuBLAS"}
    labels |= {"new_tensor": "first large tensor"}
    ms = sorted(results["ms"].items(), key=lambda use: -use[1])
    return bars({labels.get(name, name): each for name, each in ms}, {}, "ms", log=True)


if __name__ == "__main__":
    main()
