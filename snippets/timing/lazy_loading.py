# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11"]
# [tool.overlap]
# gpus = [1]
# timeout = 180
# ///
"""Take the first product of a process apart: kernels loaded late, or all at once."""

import os
import time
from functools import partial
from multiprocessing import get_context
from statistics import median

import torch

N, PROCESSES = 1000, 3


def pieces(loading: str) -> dict[str, float]:
    """ms of each step up to the second product, waited for, in a new process.

    `loading`: LAZY, as PyTorch has it, or EAGER.
    """
    os.environ["CUDA_MODULE_LOADING"] = loading  # read when CUDA starts
    ms = {}

    def timed(name, work):
        start = time.perf_counter()
        result = work()
        torch.cuda.synchronize()
        ms[name] = 1e3 * (time.perf_counter() - start)
        return result

    timed("context", partial(torch.empty, 1, device="cuda"))
    x = timed("draw", partial(torch.randn, N, N, device="cuda"))
    timed("handle", torch.cuda.current_blas_handle)  # with its workspace
    timed("product", partial(torch.mm, x, x))
    timed("second", partial(torch.mm, x, x))
    return ms


def main() -> dict:
    context = get_context("forkserver")
    context.set_forkserver_preload(["torch"])
    found = {}
    with context.Pool(1, maxtasksperchild=1) as pool:  # a new process for each task
        for loading in ("LAZY", "EAGER"):
            runs = pool.map(pieces, [loading] * PROCESSES, chunksize=1)
            trials = {name: [run[name] for run in runs] for name in runs[0]}
            ms = {name: median(each) for name, each in trials.items()}
            found[loading.lower()] = {"ms": ms, "ms_trials": trials}
            shown = ", ".join(f"{name} {each:.2f}" for name, each in ms.items())
            print(f"{loading:6}{shown} ms")
    return found


if __name__ == "__main__":
    main()
