# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [1]
# ///
"""Batches for a training step: read when they are asked for, or ahead of it."""

import time
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, IterableDataset

from snippets.timing.benchmark import Timing
from snippets.timing.take_turns import recorded

PATCH, CLASSES = 768, 1000  # bytes of a patch: 16 by 16 pixels of three colours
READ_S = 0.04  # to read a batch, slept: how many cores there are is no matter
WORKERS = 4
STEP_S, LOOP = 0.02, 12  # a step that the example's loop takes, slept; its batches
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


def read_ahead(data: IterableDataset[Any], pin: bool) -> Iterator[Any]:
    """Batches of `data` from workers that read ahead, pinned if asked for.

    Each worker reads all of `data`: let finite data give each a part of its own, by
    `torch.utils.data.get_worker_info`.
    """
    return iter(DataLoader(data, None, num_workers=WORKERS, pin_memory=pin))


def waited_s(batches: Iterator[object], step_s: float) -> float:
    """Mean seconds that a loop waits for a batch, if a step follows each (slept)."""
    waited = 0.0
    for _ in range(LOOP):
        start = time.perf_counter()
        next(batches)
        waited += time.perf_counter() - start
        time.sleep(step_s)
    return waited / LOOP


def main() -> dict:
    data = Photos(128, 128)
    asked, ahead = iter(DataLoader(data, None)), read_ahead(data, pin=True)
    loops = {
        "when_asked": (asked, 0.0),
        "ahead_in_a_row": (ahead, 0.0),
        "ahead_of_steps": (ahead, STEP_S),
    }
    timings = {}
    for name, loop in loops.items():
        waited_s(*loop)  # workers start; what they have read before is used up
        timings[name] = Timing([waited_s(*loop) for _ in range(5)])
    result = recorded(timings)
    for name, ms in result["ms"].items():
        print(f"{name:<15}waits {ms:6.2f} ms for a batch")
    result |= {"workers": WORKERS, "read_ms": 1e3 * READ_S, "step_ms": 1e3 * STEP_S}
    return result | {"is_pinned": next(ahead)[0].is_pinned()}


if __name__ == "__main__":
    main()
