# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [0]
# timeout = 240
# ///
"""Ranks on the same cores, each with a loader of its own: how many images do they load together?"""

import os
import warnings
from contextlib import suppress
from functools import partial
from multiprocessing import get_context
from multiprocessing.connection import Connection
from statistics import median

import torch
from torch.utils.data import DataLoader, Dataset, DistributedSampler

from snippets.pictures import sweep
from snippets.timing.benchmark import Timing
from snippets.timing.take_turns import take_turns
from snippets.transfers.loader_decodes import BATCH, EPOCH, Pictures

RANKS, WORKERS = (1, 2), (0, 1, 2, 4)  # workers of each rank


def loader(data: Dataset, ranks: int, rank: int, workers: int) -> DataLoader:
    """What this rank reads under DDP: its share of the rows, by workers of its own."""
    share = DistributedSampler(data, ranks, rank, shuffle=False)
    kept = workers > 0
    return DataLoader(
        data, BATCH, sampler=share, num_workers=workers, persistent_workers=kept
    )


def serve(rank: int, orders: Connection) -> None:
    """A rank: for each order (ranks, workers) it reads its share, and tells what came.

    It makes no step, so the loader works without a pause. Workers stay for the next
    order. It ends when nobody can give orders any more.
    """
    torch.set_num_threads(1)  # as in a worker: an image is too small to divide
    warnings.filterwarnings("ignore", "This DataLoader will create")  # over cores
    data = Pictures()
    loaders: dict[tuple[int, int], DataLoader] = {}
    with suppress(EOFError):
        while True:
            order = orders.recv()
            if order not in loaders:
                ranks, workers = order
                loaders[order] = loader(data, ranks, rank, workers)
            rows = [len(batch) for batch in loaders[order]]
            orders.send({"iterations": len(rows), "rows": sum(rows)})


def start(rank: int) -> Connection:
    """A process for a rank, and the end of a pipe by which it is given orders."""
    context = get_context("spawn")
    ours, theirs = context.Pipe()
    context.Process(target=serve, args=(rank, theirs)).start()
    theirs.close()  # so that a rank that dies is noticed: recv() raises EOFError
    return ours


def epoch(ranks: list[Connection], workers: int) -> list[dict]:
    """So many ranks read all rows once, at the same time; what each tells."""
    for rank in ranks:
        rank.send((len(ranks), workers))
    return [rank.recv() for rank in ranks]


def measured(ranks: list[Connection]) -> tuple[dict[str, Timing], dict[str, int]]:
    """Epochs of all rows, by numbers of ranks and workers; a rank's iterations in one."""
    works, iterations = {}, {}
    for count in RANKS:
        for workers in WORKERS:
            name = f"ranks_{count}_workers_{workers}"
            works[name] = partial(epoch, ranks[:count], workers)
            told = works[name]()
            assert sum(rank["rows"] for rank in told) == EPOCH, "each row is read once"
            iterations[f"ranks_{count}"] = told[0]["iterations"]
    return take_turns(works, warmup=1, trials=5), iterations


def main() -> dict:
    ranks = [start(rank) for rank in range(max(RANKS))]
    try:
        turns, iterations = measured(ranks)
    finally:
        for rank in ranks:
            rank.close()
    rates = {}
    for name, timing in turns.items():
        rates[name] = [EPOCH / seconds for seconds in timing.trials]
    result: dict = {"batch": BATCH, "rows": EPOCH, "iterations": iterations}
    result["usable_cores"] = len(os.sched_getaffinity(0))
    result["images_per_s"] = {name: median(row) for name, row in rates.items()}
    result["images_per_s_trials"] = rates
    for count in RANKS:
        print(f"{EPOCH} images, {count} rank{'s' * (count > 1)}:", end=" ")
        print(iterations[f"ranks_{count}"], "iterations of each")
        for workers in WORKERS:
            rate = result["images_per_s"][f"ranks_{count}_workers_{workers}"]
            print(f"  {workers} workers each{rate:6.0f} images/s", end=",")
            print(f"{1e3 * count * BATCH / rate:6.0f} ms an iteration")
    return result


def derive(results: dict) -> dict:
    """Milliseconds of an iteration, in which each rank takes a batch; two ceilings.

    A ceiling is what all cores would load, if each was as fast as the one of a rank
    alone: by one worker, or without workers, when no batch is sent to another process.
    """
    rates, cores = results["images_per_s"], results["usable_cores"]
    limits = {"one_worker": cores * rates["ranks_1_workers_1"]}
    limits["no_workers"] = cores * rates["ranks_1_workers_0"]
    iterations = {}
    for name, rate in rates.items():
        ranks = int(name.split("_")[1])
        iterations[name] = 1e3 * ranks * results["batch"] / rate
    return {"limit_images_per_s": limits, "iteration_ms": iterations}


def plot(results: dict, ceilings: dict):
    lines: dict[str, list[float]] = {"one rank": [], "two ranks together": []}
    for count, label in zip(RANKS, lines, strict=True):
        for workers in WORKERS:
            name = f"ranks_{count}_workers_{workers}"
            lines[label].append(results["images_per_s"][name])
    cores, limits = results["usable_cores"], derive(results)["limit_images_per_s"]
    ends = {f"{cores} cores, each like a rank without workers": limits["no_workers"]}
    ends[f"{cores} cores, each like one worker alone"] = limits["one_worker"]
    labels = {"xlabel": "workers of each rank", "ylabel": "images per second"}
    return sweep(WORKERS, lines, ends, **labels)


if __name__ == "__main__":
    main()
