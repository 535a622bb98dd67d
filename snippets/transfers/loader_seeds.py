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
    """A generator for NumPy that differs between workers and epochs, not between runs.

    Call it once in each process that draws, and keep what it gives: all calls in one
    process give the same numbers, so one call for each row gives all rows the same.
    In `__getitem__` write `self.own = self.own or own_generator()`, `self.own` being
    None at first, and draw nothing from this dataset in the parent: workers would
    start with a copy of its generator. A call per epoch gives new numbers only where
    workers are new: not with `persistent_workers` or `num_workers=0`, where a kept one
    goes on. Ranks with the same seed draw alike: seed each differently. Runs are alike
    if `torch.manual_seed` has been called before the epochs.
    """
    return np.random.default_rng(torch.initial_seed())


class Draws(Dataset):
    """An item for each worker: a random number."""

    def __init__(self, draw: Callable[["Draws"], float]) -> None:
        self.draw = draw
        self.kept = np.random.default_rng(0)  # made in the parent, copied by each fork
        self.own: np.random.Generator | None = None

    def __len__(self) -> int:
        return WORKERS

    def __getitem__(self, index: int) -> float:
        return self.draw(self)


def from_own(data: Draws) -> float:
    data.own = data.own or own_generator()
    return data.own.random()


DRAWS: dict[str, Callable[[Draws], float]] = {
    "random": lambda data: random.random(),
    "numpy.random": lambda data: np.random.rand(),
    "torch": lambda data: torch.rand(()).item(),
    "a Generator of the Dataset": lambda data: data.kept.random(),
    "own_generator()": from_own,
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
