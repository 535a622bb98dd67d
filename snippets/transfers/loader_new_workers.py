# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [0]
# exclusive = false
# timeout = 120
# ///
"""New workers in each epoch: how many start, and what a cache in the Dataset saves."""

from typing import Any

import torch.multiprocessing as mp
from torch.utils.data import DataLoader, Dataset

EPOCHS, WORKERS, FILES = 3, 2, 16
FORK = mp.get_context("fork")


class Cached(Dataset):
    """It reads a file once, and keeps it: in the process that has read it."""

    def __init__(self) -> None:
        self.cache: dict[int, int] = {}
        self.reads = FORK.Value("i", 0)  # of all processes together

    def __len__(self) -> int:
        return FILES

    def __getitem__(self, index: int) -> int:
        if index not in self.cache:
            with self.reads.get_lock():
                self.reads.value += 1
            self.cache[index] = index
        return self.cache[index]


def count(workers: int, **options: Any) -> dict[str, int]:
    """Workers that start, and files that are read, in all epochs together."""
    starts = FORK.Value("i", 0)

    def started(worker: int) -> None:
        with starts.get_lock():
            starts.value += 1

    data = Cached()
    if workers:
        options |= {"worker_init_fn": started, "multiprocessing_context": FORK}
    loader = DataLoader(data, batch_size=2, num_workers=workers, **options)
    for _ in range(EPOCHS):
        for _ in loader:
            pass
    return {"starts": starts.value, "reads": data.reads.value}


def main() -> dict:
    counts = {
        "no workers": count(0),
        "workers": count(WORKERS),
        "persistent workers": count(WORKERS, persistent_workers=True),
    }
    for name, told in counts.items():
        print(f"{name:<19}{told['starts']} starts, {told['reads']:2} files read")
    return {"epochs": EPOCHS, "workers": WORKERS, "files": FILES, "counts": counts}


def derive(results: dict) -> dict:
    """Starts and reads of no workers, workers, and workers that stay."""
    names = ("no workers", "workers", "persistent workers")
    counts = [results["counts"][name] for name in names]
    return {key: [told[key] for told in counts] for key in ("starts", "reads")}


if __name__ == "__main__":
    main()
