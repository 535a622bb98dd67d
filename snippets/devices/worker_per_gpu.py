# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [2, 4, 8]
# ///
"""One worker for each GPU, a thread or a process, launches small products for it."""

from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial
from multiprocessing import get_context
from statistics import median
from typing import Any

import torch

from snippets.pictures import bars
from snippets.timing.take_turns import ratios, recorded, take_turns

N, PRODUCTS = 128, 2000


def workers(kind: type[Executor], gpus: int, **options) -> list[Executor]:
    """A pool of one thread or process for each GPU, whose current device it is."""
    start = torch.cuda.set_device
    return [kind(1, initializer=start, initargs=(i,), **options) for i in range(gpus)]


def on_all(pools: list[Executor], function, *args) -> list[Any]:
    """One call in each worker, all at the same time; what they returned, in order."""
    answers = [pool.submit(function, *args) for pool in pools]
    return [answer.result() for answer in answers]


def job(n: int, products: int, device: str = "cuda") -> float:
    """Square an (n, n) matrix so many times on this worker's GPU; the largest error."""
    x = torch.randn(n, n, device=device) / n**0.5
    out = torch.zeros_like(x)
    for _ in range(products):
        torch.mm(x, x, out=out)
    return float((out - x @ x).abs().max())


def main() -> dict:
    gpus = torch.cuda.device_count()
    spawn = get_context("spawn")  # a fork of a process with CUDA cannot use it
    threads = workers(ThreadPoolExecutor, gpus)
    processes = workers(ProcessPoolExecutor, gpus, mp_context=spawn)
    works = {
        "loop": partial(job, N, PRODUCTS),
        "threads": partial(on_all, threads, job, N, PRODUCTS),
        "processes": partial(on_all, processes, job, N, PRODUCTS),
    }
    errors = [works["loop"](), *works["threads"](), *works["processes"]()]
    times, speedup = take_turns(works, trials=9), {}
    for way in ("threads", "processes"):
        speedup[way] = [gpus * r for r in ratios(times["loop"], times[way])]
        print(f"{way:<9} {median(speedup[way]):.2f}× one GPU fed by a loop")
    for pool in threads + processes:
        pool.shutdown()
    return recorded(times) | {
        "visible_gpus": gpus,
        "n": N,
        "products": PRODUCTS,
        "largest_error": max(errors),
        "speedup": {way: median(each) for way, each in speedup.items()},
        "speedup_trials": speedup,
    }


def plot(results: dict, ceilings: dict):
    ceiling = {"number of GPUs": results["visible_gpus"]}
    return bars(results["speedup"], ceiling, "times as fast as one GPU fed by a loop")


if __name__ == "__main__":
    main()
