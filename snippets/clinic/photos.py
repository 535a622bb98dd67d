# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11"]
# [tool.overlap]
# gpus = [1]
# ///
"""Batches for a training step: read when they are asked for, or ahead of it."""

import time
from collections.abc import Iterator
from functools import partial

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, IterableDataset

from snippets.timing.take_turns import recorded, take_turns

PATCH, CLASSES = 768, 1000  # bytes of a patch: 16 by 16 pixels of three colours
READ_S = 0.04  # to read a batch, slept: how many cores there are is no matter
WORKERS = 4
known_loss = nn.CrossEntropyLoss(ignore_index=-1)


class Photos(IterableDataset):
    """Batches without end: uint8 (images, patches, PATCH), labels; -1 is unknown."""

    def __init__(self, images: int, patches: int):
        self.pixels = torch.randint(256, (images, patches, PATCH), dtype=torch.uint8)
        self.labels = torch.arange(images) % CLASSES - 1

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        while True:
            time.sleep(READ_S)
            yield self.pixels.clone(), self.labels.clone()


def read_ahead(data: IterableDataset, pin: bool) -> Iterator:
    """Batches of `data` from workers that read ahead, pinned if asked for.

    Each worker reads all of `data`: let finite data give each a part of its own, by
    `torch.utils.data.get_worker_info`.
    """
    return iter(DataLoader(data, None, num_workers=WORKERS, pin_memory=pin))


def main() -> dict:
    data = Photos(128, 128)
    asked, ahead = iter(DataLoader(data, None)), read_ahead(data, pin=True)
    works = {"when_asked": partial(next, asked), "ahead": partial(next, ahead)}
    result = recorded(take_turns(works, calls=8))
    for name, ms in result["ms"].items():
        print(f"{name:<11}{ms:6.2f} ms a batch")
    return result | {"is_pinned": next(ahead)[0].is_pinned()}


if __name__ == "__main__":
    main()
