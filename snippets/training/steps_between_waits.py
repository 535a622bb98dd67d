# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [2]
# timeout = 240
# launcher = "torchrun"
# ///
"""Scaling, timed with a wait after each step, and with a wait after many of them."""

from copy import deepcopy
from functools import partial
from statistics import median
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from snippets.pictures import bars
from snippets.timing.take_turns import ratios, recorded, take_turns
from snippets.training.dp_vs_ddp import slowest_rank, step
from snippets.training.fsdp_account import account, profiled_in_a_row
from snippets.training.waiting_ranks import meet

LAYERS, WIDTH, ROWS = 12, 4096, 8192
STEPS = {"one": 1, "many": 20}  # between two waits
TRIALS, PROFILES = 7, 3


def mlp(layers: int, width: int) -> nn.Sequential:
    """Linear layers (width, width), each with a ReLU."""
    each = [nn.Sequential(nn.Linear(width, width), nn.ReLU()) for _ in range(layers)]
    return nn.Sequential(*each)


def main() -> dict:
    device, group = meet()
    ranks, rank = group.size(), group.rank()
    torch.set_float32_matmul_precision("high")  # TF32
    with device:
        model, rows = mlp(LAYERS, WIDTH), torch.randn(ROWS, WIDTH)
    ddp = DistributedDataParallel(
        deepcopy(model), process_group=group, gradient_as_bucket_view=True
    )
    part = rows[: ROWS // ranks]
    cases = {
        "one_gpu": (model, rows),
        "one_gpu_part": (model, part),
        "weak": (ddp, rows),  # as many rows on each GPU
        "strong": (ddp, part),  # as many rows in all
    }
    works = {}
    for name, (net, x) in cases.items():
        sgd = torch.optim.SGD(net.parameters(), lr=1e-3)
        works[name] = partial(step, net, x, sgd)
    ideal = {"weak": ranks, "strong": 1}  # times the rows of one GPU
    result: dict[str, Any] = {"ranks": ranks, "speedup": {}, "speedup_trials": {}}
    for name, steps in STEPS.items():
        # in its first ten steps DDP waits for the GPU, for its statistics
        warmup = max(1, 12 // steps)
        times = take_turns(works, warmup, TRIALS, calls=steps, clock=slowest_rank)
        result[name] = recorded(times)
        gains = {}
        for way, by in ideal.items():
            gains[way] = [by * r for r in ratios(times["one_gpu"], times[way])]
        result["speedup_trials"][name] = gains
        result["speedup"][name] = {way: median(each) for way, each in gains.items()}
    result["profiled"] = {}
    for name, work in works.items():
        trials = profiled_in_a_row(work, STEPS["many"], PROFILES)
        result["profiled"][name] = account(trials, STEPS["many"])
    if rank == 0:
        for name, each in result["profiled"].items():
            one, many = (result[steps]["ms"][name] for steps in STEPS)
            print(f"{name:<13} one step {one:6.2f} ms, of many {many:6.2f}", end=" ")
            print(*(f"{part} {each['ms'][part]:.2f}" for part in ("span", "idle")))
        for steps, gains in result["speedup"].items():
            print(steps, *(f"{way} {gain:.3f}×" for way, gain in gains.items()))
    dist.destroy_process_group()
    return result


def plot(results: dict, ceilings: dict):
    names = {"weak": "weak scaling", "strong": "strong scaling"}
    titles = {"one": "a wait after each step", "many": "a wait after many steps"}
    groups = {}
    for way, text in names.items():
        gains = {t: results["speedup"][steps][way] for steps, t in titles.items()}
        groups[text] = gains
    return bars(groups, {"number of GPUs": results["ranks"]}, "speed, times one GPU")


if __name__ == "__main__":
    main()
