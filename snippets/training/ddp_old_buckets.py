# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [2, 4, 8]
# timeout = 120
# launcher = "torchrun"
# [tool.overlap.missing]
# 8 = "not recorded yet"
# ///
"""Who holds DDP's fourth model? Steps at once and after a pause, with and without."""

import gc
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from snippets.pictures import Axis, Columns, Note, Panel, Picture
from snippets.timing.wait_for import wait_for
from snippets.training.dp_vs_ddp import mlp, step
from snippets.training.waiting_ranks import meet

LAYERS, WIDTH, ROWS = 24, 4096, 128  # few rows: parameters and gradients decide
PAUSES_S = [1, 0, 0, 0, 0, 1, 0, 0]  # before each step


def peaks(ddp: torch.nn.Module, rows: torch.Tensor) -> list[float]:
    """Gigabytes at the peak of each step; a pause of a second stands before two."""
    gc.collect()  # DDP has cycles, and no peak must hold an earlier model
    optimizer, most = torch.optim.SGD(ddp.parameters(), lr=1e-3), []
    for pause_s in PAUSES_S:
        time.sleep(pause_s)
        torch.cuda.reset_peak_memory_stats()
        step(ddp, rows, optimizer)
        wait_for()
        most.append(torch.cuda.max_memory_allocated() / 1e9)
    return most


def main() -> dict:
    device, nccl = meet()
    rows, peak_gb = torch.randn(ROWS, WIDTH, device=device), {}
    for name, search in {"new_buckets": False, "same_buckets": True}.items():
        model = mlp(LAYERS, WIDTH)
        # what the search looks for; DDP that searches keeps its first buckets
        model.unused = torch.nn.Parameter(torch.zeros(1, device=device), search)
        model_gb = sum(p.nbytes for p in model.parameters()) / 1e9
        options = {"process_group": nccl, "find_unused_parameters": search}
        peak_gb[name] = peaks(DistributedDataParallel(model, **options), rows)
        print(f"rank {nccl.rank()} {name}, GB:", *(f"{x:.2f}" for x in peak_gb[name]))
    dist.destroy_process_group()
    return {"model_gb": model_gb, "peak_gb": peak_gb}


def plot(results: dict, ceilings: dict):
    peaks = [gb / results["model_gb"] for gb in results["peak_gb"]["new_buckets"]]
    steps = range(1, len(peaks) + 1)
    old = [step for step, peak in zip(steps, peaks, strict=True) if peak > 3.5]
    colors = [2 if step in old else 1 for step in steps]
    texts = [f"{peak:.1f}" for peak in peaks]
    marks = [Columns(steps, peaks, texts=texts, colors=colors)]
    if old:
        middle = sum(old) / len(old)
        marks.append(Note(middle, 4.5, "with old buckets", "center", dy=-4, color=2))
    x = Axis("step", ticks={step: f"{step}" for step in steps})
    y = Axis("peak, as a multiple of the model", low=0, high=5)
    return Picture([Panel(marks, x, y)])


if __name__ == "__main__":
    main()
