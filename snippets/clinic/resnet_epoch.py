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
"""An epoch of D2L's ResNet-18: one GPU, DataParallel, and DDP; SGD by hand.

After D2L's sample code; MIT-0 licence, (c) 2019 Amazon.com, Inc. or its affiliates.
"""

from copy import deepcopy
from functools import partial
from statistics import median

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from snippets.clinic.six_faults import slowest_s
from snippets.pictures import bars
from snippets.timing.take_turns import recorded, take_turns

IMAGES, ROWS = 60_000, 256  # images of an epoch, and in a batch for each GPU


class Residual(nn.Module):
    """Two convolutions beside a shortcut."""

    def __init__(self, channels: int, wider: int, stride: int):
        super().__init__()
        first = nn.Conv2d(channels, wider, 3, stride, 1), nn.BatchNorm2d(wider)
        second = nn.Conv2d(wider, wider, 3, 1, 1), nn.BatchNorm2d(wider)
        self.body = nn.Sequential(*first, nn.ReLU(), *second)
        change = nn.Conv2d(channels, wider, 1, stride)
        self.short = change if stride > 1 else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.body(x) + self.short(x))


def resnet() -> nn.Sequential:
    """ResNet-18 for images (batch, 1, 28, 28) and ten classes, as D2L has it."""
    first = nn.Conv2d(1, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU()
    blocks, channels = [Residual(64, 64, 1), Residual(64, 64, 1)], 64
    for wider in (128, 256, 512):
        blocks += [Residual(channels, wider, 2), Residual(wider, wider, 1)]
        channels = wider
    last = nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10)
    return nn.Sequential(*first, *blocks, *last)


def train(model: nn.Module, x: Tensor, labels: Tensor) -> None:
    """One step of plain gradient descent."""
    model.zero_grad()
    nn.functional.cross_entropy(model(x), labels).backward()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter -= 0.1 * parameter.grad


def main() -> dict:
    dist.init_process_group("gloo")  # a rank that waits in NCCL keeps its GPU spinning
    rank, ranks = dist.get_rank(), dist.get_world_size()
    torch.cuda.set_device(rank)  # on one node; else LOCAL_RANK
    model, nccl = resnet().to("cuda"), dist.new_group(backend="nccl")
    x = torch.randn(ranks * ROWS, 1, 28, 28, device="cuda")
    labels = torch.randint(10, (len(x),), device="cuda")
    mine, works = (x[:ROWS], labels[:ROWS]), {"one_gpu": list, "dp": list}  # nothing
    if rank == 0:
        works["one_gpu"] = partial(train, model, *mine)
        works["dp"] = partial(train, nn.DataParallel(model), x, labels)
    ddp = DistributedDataParallel(deepcopy(model), process_group=nccl)
    works["ddp"] = partial(train, ddp, *mine)
    times = take_turns(works, warmup=3, trials=5, calls=4, clock=slowest_s)
    dist.destroy_process_group()
    result = recorded(times) | {"ranks": ranks, "epoch_s": {}, "epoch_s_trials": {}}
    for way, timing in times.items():
        steps = IMAGES / ROWS / (1 if way == "one_gpu" else ranks)
        epochs = [steps * seconds for seconds in timing.trials]
        result["epoch_s"][way], result["epoch_s_trials"][way] = median(epochs), epochs
        if rank == 0:
            print(f"{way:<8}{median(epochs):6.2f} s an epoch of {steps:.0f} steps")
    return result


def plot(results: dict, ceilings: dict):
    ways = {"one_gpu": "one GPU", "dp": "DataParallel", "ddp": "DDP"}
    epochs = {label: results["epoch_s"][way] for way, label in ways.items()}
    ideal = results["epoch_s"]["one_gpu"] / results["ranks"]
    return bars(
        epochs, {f"one GPU, divided by {results['ranks']}": ideal}, "s per epoch"
    )


if __name__ == "__main__":
    main()
