# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [0]
# exclusive = false
# timeout = 120
# ///
"""A worker of a DataLoader that uses threads hangs, if it was forked after the parent."""

from functools import partial

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

LIMIT_S = 5
WORKER = {"num_workers": 1, "timeout": LIMIT_S, "multiprocessing_context": "fork"}


def product() -> Tensor:
    """Large enough for several threads of the CPU, if the process has several."""
    x = torch.ones(512, 512)
    return x @ x


class Products(Dataset):
    """A transform that computes, as one of OpenCV's would with threads of its own."""

    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> float:
        return product().sum().item()


def with_threads(threads: int, worker: int) -> None:
    torch.set_num_threads(threads)


CASES = {
    "one thread": {},
    "two threads": {"worker_init_fn": partial(with_threads, 2)},
    "two threads, spawned": {
        "worker_init_fn": partial(with_threads, 2),
        "multiprocessing_context": "spawn",
        "timeout": 60,  # a spawned worker imports torch first
    },
}


def load(options: dict) -> dict:
    """How many items arrive, and which error ends the loop."""
    torch.set_num_threads(2)
    product()  # the parent starts its threads
    items, says = 0, ""
    try:
        for _ in DataLoader(Products(), batch_size=None, **WORKER | options):
            items += 1
    except RuntimeError as error:
        says = str(error)
    return {"items": items, "says": says}


def main() -> dict:
    found = {name: load(options) for name, options in CASES.items()}
    for name, told in found.items():
        print(f"{name:<25}{told['items']} items: {told['says'] or 'no error'}")
    return {"limit_s": LIMIT_S, "found": found}


if __name__ == "__main__":
    main()
