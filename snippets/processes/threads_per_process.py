# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [0, 1]
# timeout = 180
# ///
"""Four processes on one CPU: how many threads should each of them use?"""

from functools import partial
from statistics import median

import torch
import torch.multiprocessing as mp
from torch import nn

from snippets.pictures import bars
from snippets.timing.take_turns import ratios, recorded, take_turns

PROCESSES, STEPS, N = 4, 10, 256


def train(threads: int, steps: int) -> None:
    """So many training steps of a small network, with so many threads."""
    torch.set_num_threads(threads)
    model = nn.Sequential(nn.Linear(N, N), nn.ReLU(), nn.Linear(N, N))
    x = torch.ones(N, N)
    for _ in range(steps):
        model(x).square().mean().backward()


def all_train(pool, threads: int) -> None:
    """One job for each worker, all at the same time."""
    pool.starmap(train, [(threads, STEPS)] * PROCESSES, chunksize=1)


def main() -> dict:
    context = mp.get_context("forkserver")
    context.set_forkserver_preload(["torch"])
    with context.Pool(PROCESSES) as pool:
        default = pool.apply(torch.get_num_threads)
        share = max(1, default // PROCESSES)
        ways = {"default": default, "share": share}
        works = {name: partial(all_train, pool, n) for name, n in ways.items()}
        works["alone"] = partial(train, default, PROCESSES * STEPS)
        times = take_turns(works, warmup=1, trials=7)
    slower = ratios(times["default"], times["share"])
    result = recorded(times) | {"processes": PROCESSES}
    result["threads"] = ways | {"alone": default}
    for name, threads in result["threads"].items():
        count = 1 if name == "alone" else PROCESSES
        print(f"{count} × {threads:2} threads{result['ms'][name]:9.1f} ms")
    return result | {"slower": median(slower), "slower_trials": slower}


def plot(results: dict, ceilings: dict):
    threads, count = results["threads"], results["processes"]
    names = {
        "default": f"{count} processes, {threads['default']} threads each",
        "share": f"{count} processes, {threads['share']} threads each",
        "alone": f"1 process, {threads['alone']} threads",
    }
    return bars({text: results["ms"][name] for name, text in names.items()}, {}, "ms")


if __name__ == "__main__":
    main()
