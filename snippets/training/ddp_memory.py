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
"""Peak memory of a training step: one GPU, DataParallel, DDP, DDP with bucket views."""

import gc

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from snippets.pictures import bars
from snippets.timing.wait_for import wait_for

LAYERS, WIDTH, ROWS = 24, 4096, 128  # few rows: parameters and gradients decide


def mlp() -> nn.Sequential:
    """Linear layers (WIDTH, WIDTH), each with a ReLU, on this rank's GPU."""
    each = [nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU()) for _ in range(LAYERS)]
    return nn.Sequential(*each).to("cuda")


def peaks_gb(model: nn.Module, rows: int, gpus: list[int]) -> list[float]:
    """Peak of each GPU, in 10⁹ bytes, in two steps of training after two others."""
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for i in range(4):
        if i == 2:
            wait_for()
            for gpu in gpus:
                torch.cuda.reset_peak_memory_stats(gpu)
        optimizer.zero_grad()
        x = torch.randn(rows, WIDTH, device="cuda")
        model(x).square().mean().backward()
        optimizer.step()
    return [torch.cuda.max_memory_allocated(gpu) / 1e9 for gpu in gpus]


def of_all_ranks(number: float) -> list[float]:
    """This number of every rank, in the order of the ranks."""
    numbers = [None] * dist.get_world_size()
    dist.all_gather_object(numbers, number)
    return numbers


def main() -> dict:
    dist.init_process_group("gloo")  # a rank that waits in NCCL keeps its GPU spinning
    rank, ranks = dist.get_rank(), dist.get_world_size()
    torch.cuda.set_device(rank)  # on one node; else LOCAL_RANK
    nccl, peak = dist.new_group(backend="nccl"), {}
    model_gb = sum(p.nbytes for p in mlp().parameters()) / 1e9
    peak["one_gpu"] = peaks_gb(mlp(), ROWS, [rank])[:1]
    if rank == 0:
        gpus = list(range(ranks))
        peak["dp"] = peaks_gb(nn.DataParallel(mlp(), gpus), ROWS * ranks, gpus)
    dist.barrier()
    for name, view in {"ddp": False, "ddp_view": True}.items():
        model = DistributedDataParallel(
            mlp(), process_group=nccl, gradient_as_bucket_view=view
        )
        peak[name] = of_all_ranks(peaks_gb(model, ROWS, [rank])[0])
        del model
        gc.collect()  # DDP has cycles, and the next peak must not hold this model
    dist.destroy_process_group()
    if rank == 0:
        for name, each in peak.items():
            print(f"{name:<9}", *(f"{gb / model_gb:.2f}" for gb in each), "× the model")
    return {"ranks": ranks, "model_gb": model_gb, "peak_gb": peak}


def derive(results: dict) -> dict:
    """What views of buckets save, and what is left, in sizes of the model."""
    peak_gb, model_gb = results["peak_gb"], results["model_gb"]
    if "ddp_view" not in peak_gb:
        return {}
    view = peak_gb["ddp_view"]
    return {
        "models": {
            "view_saves": (max(peak_gb["ddp"]) - max(view)) / model_gb,
            "least_with_view": min(view) / model_gb,
            "most_with_view": max(view) / model_gb,
        }
    }


def plot(results: dict, ceilings: dict):
    titles = {"one_gpu": "one GPU", "dp": "DataParallel"}
    titles |= {"ddp": "DDP, with old buckets"}
    titles |= {"ddp_view": "… and bucket views"}
    groups = {}
    for name, title in titles.items():
        peaks, model_gb = results["peak_gb"][name], results["model_gb"]
        groups[title] = {f"GPU {i}": gb / model_gb for i, gb in enumerate(peaks)}
    return bars(groups, {}, "peak, as a multiple of the model")


if __name__ == "__main__":
    main()
