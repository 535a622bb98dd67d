# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [0]
# exclusive = false
# timeout = 120
# take = ["own_generator"]
# ///
"""Random numbers in workers: which differ between workers, epochs and runs?"""

import random
from collections.abc import Callable

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

WORKERS, EPOCHS = 2, 3


def own_generator() -> np.random.Generator:
    """A new generator for NumPy, with a seed from PyTorch's generator of this process.

    Call it for each row, in `__getitem__`. Each call gives other numbers, in each
    worker and each epoch, with `persistent_workers` and without workers, too. Threads
    of one process have other numbers, but in no fixed order. Nothing is copied by a
    fork, for nothing is kept: to call it in `__init__` and keep the result gives all
    workers the same numbers.

    A run repeats its numbers if it calls `torch.manual_seed` first, and has as many
    workers. Ranks with one seed draw alike, so give each its own. A call moves
    PyTorch's generator on: without workers, that of the training process.
    """
    seed = torch.randint(2**63 - 1, (), device="cpu")  # whatever the default device is
    return np.random.default_rng(int(seed))


class Draws(Dataset):
    """An item for each worker: a random number."""

    def __init__(self, draw: Callable[["Draws"], float]) -> None:
        self.draw = draw
        self.kept = np.random.default_rng(0)  # made in the parent, copied by each fork

    def __len__(self) -> int:
        return WORKERS

    def __getitem__(self, index: int) -> float:
        return self.draw(self)


DRAWS: dict[str, Callable[[Draws], float]] = {
    "random": lambda data: random.random(),
    "numpy.random": lambda data: np.random.rand(),
    "torch": lambda data: torch.rand(()).item(),
    "a Generator of the Dataset": lambda data: data.kept.random(),
    "own_generator()": lambda data: own_generator().random(),
}


def draws(draw: Callable[[Draws], float], seed: int, workers: int) -> list[list[float]]:
    """The numbers of each epoch, drawn anew after this seed."""
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed)
    forked = {"num_workers": workers, "multiprocessing_context": "fork"}
    loader = DataLoader(Draws(draw), batch_size=None, **forked)
    return [list(loader) for _ in range(EPOCHS)]


def count(draw: Callable[[Draws], float]) -> dict:
    """Different numbers in an epoch, and in all; whether runs give the same ones."""
    epochs = draws(draw, 0, WORKERS)
    return {
        "in_an_epoch": len(set(epochs[0])),
        "in_all": len({number for epoch in epochs for number in epoch}),
        "same_in_two_runs": epochs == draws(draw, 0, WORKERS),
        "same_with_1_worker": epochs == draws(draw, 0, 1),
    }


def main() -> dict:
    counts = {name: count(draw) for name, draw in DRAWS.items()}
    print(f"{WORKERS} workers, {EPOCHS} epochs")
    for name, told in counts.items():
        print(f"{name:<27}{told['in_an_epoch']} of {WORKERS} differ", end=", ")
        print(f"{told['in_all']:2} of {WORKERS * EPOCHS} in all epochs", end=", ")
        print("two runs alike" if told["same_in_two_runs"] else "runs differ", end=", ")
        print("as" if told["same_with_1_worker"] else "not as", "with one worker")
    return {"workers": WORKERS, "epochs": EPOCHS, "counts": counts}


def derive(results: dict) -> dict:
    """What draws another number in each worker and epoch."""
    every, counts = results["workers"] * results["epochs"], results["counts"]
    return {"differ": [n for n, told in counts.items() if told["in_all"] == every]}


if __name__ == "__main__":
    main()
