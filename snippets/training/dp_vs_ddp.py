# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [2, 4, 8]
# timeout = 120
# launcher = "torchrun"
# ///
"""A training step on one GPU, with DataParallel and with DistributedDataParallel."""

from copy import deepcopy
from functools import partial
from statistics import median

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from snippets.pictures import bars
from snippets.timing.benchmark import wall_clock
from snippets.timing.take_turns import ratios, recorded, take_turns

#: layers, their width, and rows for each GPU
MODELS = {"wide": (6, 8192, 4096), "deep": (100, 512, 256)}


def mlp(layers: int, width: int) -> nn.Sequential:
    """Linear layers (width, width), each with a ReLU, on this rank's GPU."""
    each = [nn.Sequential(nn.Linear(width, width), nn.ReLU()) for _ in range(layers)]
    return nn.Sequential(*each).to("cuda")


def step(model: nn.Module, rows: torch.Tensor, optimizer: torch.optim.Optimizer):
    """One step of training on rows (batch, width)."""
    optimizer.zero_grad()
    model(rows).square().mean().backward()
    optimizer.step()


def slowest_rank(work, calls: int) -> float:
    """Seconds of one call in the slowest rank; all begin together."""
    dist.barrier()
    seconds = torch.tensor(wall_clock(work, calls), dtype=torch.float64)
    dist.all_reduce(seconds, dist.ReduceOp.MAX)
    return seconds.item()


def steps_of(layers: int, width: int, rows: int, nccl) -> dict:
    """This rank's part of each way to train; only rank 0 has one in the first two."""
    ranks, model = dist.get_world_size(), mlp(layers, width)
    ddp = DistributedDataParallel(deepcopy(model), process_group=nccl)
    batch = torch.randn(rows * ranks, width, device="cuda")
    part = batch[:rows]
    sgd = partial(torch.optim.SGD, lr=1e-3)
    works = {"one_gpu": lambda: None, "dp": lambda: None}
    if dist.get_rank() == 0:
        dp = nn.DataParallel(model, list(range(ranks)))
        works["one_gpu"] = partial(step, model, part, sgd(model.parameters()))
        works["dp"] = partial(step, dp, batch, sgd(model.parameters()))
    return works | {"ddp": partial(step, ddp, part, sgd(ddp.parameters()))}


def main() -> dict:
    dist.init_process_group("gloo")  # a rank that waits in NCCL keeps its GPU spinning
    ranks, rank = dist.get_world_size(), dist.get_rank()
    torch.cuda.set_device(rank)  # on one node; else LOCAL_RANK
    torch.set_float32_matmul_precision("high")  # TF32
    nccl, results = dist.new_group(backend="nccl"), {"ranks": ranks}
    for name, (layers, width, rows) in MODELS.items():
        works = steps_of(layers, width, rows, nccl)
        times = take_turns(works, trials=7, calls=2, clock=slowest_rank)
        results[name] = recorded(times) | {"speedup": {}, "speedup_trials": {}}
        for way in ("dp", "ddp"):
            each = [ranks * r for r in ratios(times["one_gpu"], times[way])]
            results[name]["speedup_trials"][way] = each
            results[name]["speedup"][way] = median(each)
        if rank == 0:
            print(name, *(f"{w} {x:.2f}×" for w, x in results[name]["speedup"].items()))
    rows = MODELS["wide"][2]
    for way, ms in results["wide"]["ms"].items():
        gpus = 1 if way == "one_gpu" else ranks
        results[f"{way}_samples_s"] = 1e3 * gpus * rows / ms
    dist.destroy_process_group()
    return results


def plot(results: dict, ceilings: dict):
    names = {"dp": "DataParallel", "ddp": "DDP"}
    titles = {"wide": "six wide\nlayers", "deep": "a hundred\nsmall layers"}
    speedups = {}
    for model, title in titles.items():
        row = results[model]["speedup"]
        speedups[title] = {text: row[name] for name, text in names.items()}
    limits = {"number of GPUs": results["ranks"], "one GPU": 1}
    picture = bars(speedups, limits, "speed, times one GPU")
    for mark, color in zip(picture.panels[0].marks, ("ceiling", 1), strict=False):
        mark.color = color
        mark.texts = {title: f"{x:.2f}" for title, x in mark.values.items()}
    return picture


if __name__ == "__main__":
    main()
