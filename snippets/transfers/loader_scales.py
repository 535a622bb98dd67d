# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [1]
# timeout = 240
# ///
"""A loader that decodes pictures, in long epochs: images a second over its workers."""

import os
import warnings
from functools import partial
from statistics import median

import torch
from torch.utils.data import DataLoader

from snippets.pictures import sweep
from snippets.timing.take_turns import take_turns
from snippets.transfers.loader_decodes import BATCH, Pictures, epoch

WORKERS = (0, 1, 2, 4, 8, 16)
BATCHES = 24  # of an epoch, for each worker: so each way loads for about as long


class Many(Pictures):
    """As many images as asked for, from the same files."""

    def __init__(self, images: int):
        super().__init__()
        self.images = images

    def __len__(self) -> int:
        return self.images


def main() -> dict:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # as in a worker: an image is too small to divide
    images = {count: BATCH * BATCHES * max(1, count) for count in WORKERS}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "This DataLoader will create")  # over cores
        works = {}
        for count in WORKERS:
            how = {"num_workers": count, "persistent_workers": count > 0}
            works[str(count)] = partial(
                epoch, DataLoader(Many(images[count]), BATCH, **how)
            )
        turns = take_turns(works, warmup=1, trials=4)
    torch.set_num_threads(threads)
    rates = [[images[count] / s for s in turns[str(count)].trials] for count in WORKERS]
    result: dict = {"batch": BATCH, "workers": list(WORKERS), "cores": os.cpu_count()}
    result |= {"images_per_s": [median(row) for row in rates]}
    result["images_per_s_trials"] = rates
    for count, rate in zip(WORKERS, result["images_per_s"], strict=True):
        print(f"{count:2} workers {rate:7,.0f} images/s")
    return result


def derive(results: dict) -> dict:
    """How many times as fast as without workers; and a worker's part of one core's rate."""
    none, *rates = results["images_per_s"]
    counts = results["workers"][1:]
    return {
        "gain": {str(n): rate / none for n, rate in zip(counts, rates, strict=True)},
        "each": {
            str(n): rate / none / n for n, rate in zip(counts, rates, strict=True)
        },
    }


def plot(results: dict, ceilings: dict):
    none, *rates = results["images_per_s"]
    workers = results["workers"][1:]
    limits = {"perfect scaling": [none * n for n in workers]}
    labels = {"xlabel": "workers", "ylabel": "images per second"}
    return sweep(workers, {"with workers": rates}, limits, True, True, **labels)


if __name__ == "__main__":
    main()
