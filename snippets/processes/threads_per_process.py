# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11"]
# [tool.overlap]
# gpus = [0, 1]
# ///
"""Four processes on one CPU: how many threads should each of them use?"""

from functools import partial
from statistics import median

import torch
import torch.multiprocessing as mp
from torch import nn

from snippets.timing.pictures import bars
from snippets.timing.take_turns import ratios, recorded, take_turns

PROCESSES, STEPS, N = 4, 10, 256
together = None  # in a worker: the barrier that all workers share


def begin(barrier) -> None:
    """In each worker, once."""
    global together
    together = barrier


def train(threads: int, steps: int) -> None:
    """So many training steps of a small network, with so many threads."""
    torch.set_num_threads(threads)
    model, x = (
        nn.Sequential(nn.Linear(N, N), nn.ReLU(), nn.Linear(N, N)),
        torch.ones(N, N),
    )
    for _ in range(steps):
        model(x).square().mean().backward()


def train_together(threads: int) -> None:
    """In a worker: wait for the other workers, then train beside them."""
    together.wait()
    train(threads, STEPS)


def all_train(pool, threads: int) -> None:
    """One job in each worker, all at the same time."""
    pool.map(train_together, [threads] * PROCESSES, chunksize=1)


def main() -> dict:
    context = mp.get_context("forkserver")
    context.set_forkserver_preload(["torch"])
    with context.Pool(PROCESSES, begin, (context.Barrier(PROCESSES),)) as pool:
        default = pool.apply(torch.get_num_threads)
        share = max(1, default // PROCESSES)
        works = {
            "default": partial(all_train, pool, default),
            "share": partial(all_train, pool, share),
            "alone": partial(train, default, PROCESSES * STEPS),
        }
        times = take_turns(works, warmup=1, trials=7)
    slower = ratios(times["default"], times["share"])
    result = recorded(times) | {"processes": PROCESSES}
    result["threads"] = {"default": default, "share": share, "alone": default}
    for name, threads in result["threads"].items():
        count = 1 if name == "alone" else PROCESSES
        print(f"{count} × {threads:2} threads{result['ms'][name]:9.1f} ms")
    return result | {"slower": median(slower), "slower_trials": slower}


def plot(results: dict, ceilings: dict):
    threads, count = results["threads"], results["processes"]
    names = {
        "default": f"{count} processes, {threads['default']} threads each",
        "share": f"{count} processes, {threads['share']} each",
        "alone": f"1 process, {threads['alone']} threads",
    }
    return bars({names[name]: ms for name, ms in results["ms"].items()}, {}, "ms")


if __name__ == "__main__":
    main()
