# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11"]
# [tool.overlap]
# gpus = [1]
# ///
"""Batches that take long to load: how many DataLoader workers hide it, and who pins the memory?"""

import time
from itertools import pairwise
from statistics import median

import torch
from torch.utils.data import DataLoader, Dataset

from snippets.timing.benchmark import measure

LOAD_S, SHAPE = 0.012, (256, 1024)  # float32: 1 MiB
BATCHES, WINDOW = 48, 8  # time is taken over windows of eight steps
WORKERS = (0, 1, 2, 4, 8)
PINNING = {"without_pin_memory": False, "with_pin_memory": True}


class SlowBatches(Dataset):
    """Batch number i is full of i. Reading it takes LOAD_S, slept, so cores do not matter."""

    def __len__(self) -> int:
        return BATCHES

    def __getitem__(self, i: int) -> torch.Tensor:
        time.sleep(LOAD_S)
        return torch.full(SHAPE, float(i))


def loader(workers: int, pin: bool) -> DataLoader:
    return DataLoader(SlowBatches(), batch_size=None, num_workers=workers, pin_memory=pin)


def step(batch: torch.Tensor, x: torch.Tensor) -> float:
    """Send a batch, multiply a little, log one number: for that the CPU waits."""
    on_gpu = batch.to("cuda", non_blocking=True)
    for _ in range(3):
        torch.mm(x, x)
    return on_gpu.sum().item()


def epoch(batches: DataLoader, x: torch.Tensor) -> list[float]:
    """ms per step in each window but the first, in which the workers start."""
    stamps = []
    for i, batch in enumerate(batches):
        assert step(batch, x) == i * batch.numel(), "this is not the batch that was loaded"
        stamps.append(1e3 * time.perf_counter())
    return [(end - start) / WINDOW for start, end in pairwise(stamps[WINDOW - 1 :: WINDOW])]


def expected(load_ms: float, step_ms: float, workers: int) -> float:
    """ms per step: the sum without workers, with them the longer of step and shared load."""
    return max(load_ms / workers, step_ms) if workers else load_ms + step_ms


def main() -> dict:
    x = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
    batch = torch.ones(SHAPE).pin_memory()
    alone = {"load": measure(lambda: SlowBatches()[0]), "step": measure(lambda: step(batch, x))}
    alone_ms = {name: 1e3 * timing.median for name, timing in alone.items()}
    print(*(f"{name} alone {alone_ms[name]:6.2f} ms" for name in alone_ms), sep="\n")
    trials = {str(count): epoch(loader(count, True), x) for count in WORKERS}
    ms = {count: median(trials[count]) for count in trials}
    best = {count: expected(alone_ms["load"], alone_ms["step"], int(count)) for count in ms}
    for count in ms:
        print(f"{count} workers{ms[count]:8.2f} ms per step, expected {best[count]:.2f}")
    pinned = {name: next(iter(loader(0, pin))).is_pinned() for name, pin in PINNING.items()}
    result = {"workers": list(WORKERS), "step_ms": ms, "step_ms_trials": trials}
    result |= {"alone_ms": alone_ms, "alone_ms_trials": {name: alone[name].ms() for name in alone}}
    return result | {"expected_ms": best, "is_pinned": pinned}


def plot(results: dict, ceilings: dict):
    import matplotlib.pyplot as plt

    figure, ax = plt.subplots()
    counts = [str(count) for count in results["workers"]]
    ax.bar_label(ax.bar(counts, [results["step_ms"][count] for count in counts]), fmt="%.1f")
    ax.axhline(results["alone_ms"]["step"], color="gray", linestyle="--", label="the step alone")
    ax.set(xlabel="DataLoader workers; dashed: the step alone", ylabel="ms per step")
    return figure


if __name__ == "__main__":
    main()
