# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [0]
# exclusive = false
# timeout = 120
# ///
"""What a worker has of its own, after it has read a list, an array, a tensor."""

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

ROWS, BATCH = 600_000, 20_000


def own_mib() -> float:
    """MiB that this process shares with no other, its USS."""
    rollup = Path("/proc/self/smaps_rollup").read_text()
    private = re.findall(r"^Private_(?:Clean|Dirty): +(\d+) kB", rollup, re.M)
    return sum(map(int, private)) / 1024


class Names(Dataset):
    """Names of files; to read one is all that is done with it."""

    def __init__(self, names: Sequence[Any]) -> None:
        self.names = names

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, index: int) -> int:
        return len(self.names[index])


def as_list() -> list[str]:
    return [f"images/{number:09}.jpeg" for number in range(ROWS)]


def as_array() -> np.ndarray:
    return np.array(as_list())


def as_tensor() -> torch.Tensor:
    """A row of bytes for each name."""
    return torch.from_numpy(np.array(as_list(), dtype=bytes).view(np.uint8)).view(
        ROWS, -1
    )


def read_all(make: Callable[[], Sequence[Any]]) -> dict[str, float]:
    """What a worker has of its own after its first batch, and after all rows."""
    worker = {"num_workers": 1, "multiprocessing_context": "fork"}
    measure = {"batch_size": BATCH, "collate_fn": lambda batch: own_mib()}
    own = list(DataLoader(Names(make()), **worker, **measure))
    return {"first": own[0], "last": own[-1]}


def main() -> dict:
    mib = {make.__name__: read_all(make) for make in (as_list, as_array, as_tensor)}
    for name, own in mib.items():
        print(f"{name:<10}{own['first']:6.0f} MiB, after all rows {own['last']:6.0f}")
    return {"rows": ROWS, "mib": mib}


if __name__ == "__main__":
    main()
