# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [1]
# ///
"""Batches take long to load: how many DataLoader workers hide it, and who pins them?"""

import time

import torch
from torch.utils.data import DataLoader, Dataset

from snippets.pictures import bars
from snippets.timing.benchmark import Timing, measure
from snippets.timing.take_turns import recorded

LOAD_S, SHAPE = 0.012, (256, 1024)  # float32: 1 MiB
BATCHES, WINDOW = 96, 8  # time is taken over windows of eight steps
WORKERS, N = (0, 1, 2, 4, 8), 8192  # bf16 matmuls of N by N are the work
SETTLED = 60  # steps, a quarter of a second: then the GPU's clock has settled


class SlowBatches(Dataset):
    """Batch i is full of i. Reading it takes LOAD_S, slept, so cores do not matter."""

    def __len__(self) -> int:
        return BATCHES

    def __getitem__(self, i: int) -> torch.Tensor:
        time.sleep(LOAD_S)
        return torch.full(SHAPE, float(i))


def loader(workers: int, pin: bool) -> DataLoader:
    return DataLoader(
        SlowBatches(), batch_size=None, num_workers=workers, pin_memory=pin
    )


def step(batch: torch.Tensor, x: torch.Tensor) -> float:
    """Send a batch, multiply a little, log one number: for that the CPU waits."""
    on_gpu = batch.to("cuda", non_blocking=True)
    for _ in range(3):
        torch.mm(x, x)
    return on_gpu.sum().item()


def epoch(batches: DataLoader, x: torch.Tensor) -> dict[str, Timing]:
    """A step and its wait for the batch, by windows; workers start in the first."""
    stamps = [time.perf_counter()]
    for i, batch in enumerate(batches):
        stamps.append(time.perf_counter())
        assert step(batch, x) == i * batch.numel(), (
            "this is not the batch that was loaded"
        )
        stamps.append(time.perf_counter())
    waits = [
        came - asked for asked, came in zip(stamps[::2], stamps[1::2], strict=False)
    ]
    starts = range(WINDOW, BATCHES, WINDOW)
    steps = [(stamps[2 * (i + WINDOW)] - stamps[2 * i]) / WINDOW for i in starts]
    mean_waits = [sum(waits[i : i + WINDOW]) / WINDOW for i in starts]
    return {"step": Timing(steps), "wait": Timing(mean_waits)}


def main() -> dict:
    x = torch.randn(N, N, device="cuda", dtype=torch.bfloat16)
    batch = torch.ones(SHAPE).pin_memory()
    rested = measure(lambda: step(batch, x))
    settled = measure(lambda: step(batch, x), warmup=SETTLED)
    load = measure(lambda: SlowBatches()[0])
    alone = recorded({"load": load, "rested_step": rested, "step": settled})
    epochs = {str(workers): epoch(loader(workers, True), x) for workers in WORKERS}
    result = {"workers": list(WORKERS)}
    result |= {f"alone_{key}": value for key, value in alone.items()}
    for name in ("step", "wait"):
        times = recorded({workers: each[name] for workers, each in epochs.items()})
        result |= {f"{name}_{key}": value for key, value in times.items()}
    print(*(f"{name} alone{ms:7.2f} ms" for name, ms in alone["ms"].items()), sep="\n")
    for workers, ms in result["step_ms"].items():
        print(
            f"workers {workers}{ms:9.2f} ms, waiting {result['wait_ms'][workers]:6.2f}"
        )
    pinned = [next(iter(loader(0, pin))).is_pinned() for pin in (True, False)]
    return result | {"is_pinned": {"asked": pinned[0], "not_asked": pinned[1]}}


def derive(results: dict) -> dict:
    """Steps with workers, by the longer of the step and its share of the loading."""
    step_ms, rested = results["step_ms"], results["alone_ms"]["rested_step"]
    counts = [2, 4, 8]
    return {
        "of_longest": [step_ms[str(n)] / max(step_ms["1"] / n, rested) for n in counts]
    }


def plot(results: dict, ceilings: dict):
    steps = {}
    for workers, ms in results["step_ms"].items():
        steps["1 worker" if workers == "1" else f"{workers} workers"] = ms
    # of a GPU that never rests, which more workers come to
    limits = {"a step alone": results["alone_ms"]["step"]}
    picture = bars(steps, limits, "ms per iteration")
    picture.panels[0].marks[0].color = "muted"  # of workers or of the GPU: the slower
    return picture


if __name__ == "__main__":
    main()
