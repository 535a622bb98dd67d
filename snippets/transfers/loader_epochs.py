# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [0]
# timeout = 120
# ///
"""Workers started anew each epoch, and slow batches: what DataLoader's options save."""

import time
from functools import partial

import torch
from torch.utils.data import DataLoader, Dataset

from snippets.pictures import bars
from snippets.timing.take_turns import recorded, take_turns

LOAD_S, SLOW_S, STEP_S = 0.004, 0.1, 0.008  # slept, so cores do not matter
BATCHES, SLOW_EVERY, WORKERS = 64, 16, 2
AHEAD = (1, 2, 4, 8)  # batches that each worker may load ahead


class UnevenBatches(Dataset):
    """Batch i is the number i; one in SLOW_EVERY takes SLOW_S to load."""

    def __len__(self) -> int:
        return BATCHES

    def __getitem__(self, i: int) -> torch.Tensor:
        time.sleep(SLOW_S if i % SLOW_EVERY == SLOW_EVERY - 1 else LOAD_S)
        return torch.tensor(i)


def loader(ahead: int = 2, persistent: bool = True) -> DataLoader:
    return DataLoader(
        UnevenBatches(),
        batch_size=None,
        num_workers=WORKERS,
        prefetch_factor=ahead,
        persistent_workers=persistent,
    )


def until_first_batch(batches: DataLoader, calls: int = 1) -> float:
    """Seconds until an epoch has its first batch; then it runs to its end, untimed."""
    seconds = 0.0
    for _ in range(calls):
        start = time.perf_counter()
        left = iter(batches)
        next(left)
        seconds += time.perf_counter() - start
        for _ in left:
            pass
    return seconds / calls


def epoch(batches: DataLoader) -> None:
    for i, batch in enumerate(batches):
        assert batch == i, "this is not the batch that was loaded"
        time.sleep(STEP_S)


def main() -> dict:
    starts = {"anew": loader(persistent=False), "kept": loader()}
    epochs = {str(n): partial(epoch, loader(n)) for n in AHEAD}
    start = recorded(take_turns(starts, warmup=1, trials=7, clock=until_first_batch))
    whole = recorded(take_turns(epochs, warmup=1, trials=5))
    slow = BATCHES // SLOW_EVERY
    loading = ((BATCHES - slow) * LOAD_S + slow * SLOW_S) / WORKERS
    limit = {"steps_ms": 1e3 * BATCHES * STEP_S, "loading_ms": 1e3 * loading}
    for name, ms in start["ms"].items():
        print(f"first batch, workers {name}: {ms:.1f} ms")
    for n, ms in whole["ms"].items():
        print(
            f"{n} ahead: an epoch in {ms:.0f} ms, {limit['steps_ms']:.0f} of them steps"
        )
    return {"start": start, "epoch": whole, "limit": limit, "workers": WORKERS}


def plot(results: dict, ceilings: dict):
    epochs = {}
    for ahead, ms in results["epoch"]["ms"].items():
        epochs["1 batch ahead" if ahead == "1" else f"{ahead} batches ahead"] = ms
    limits = {"the steps alone": results["limit"]["steps_ms"]}
    return bars(epochs, limits, "ms per epoch")


if __name__ == "__main__":
    main()
