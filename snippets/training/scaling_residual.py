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
"""Strong and weak scaling of DDP, and what each step spends its time on."""

from copy import deepcopy
from functools import partial
from statistics import median
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from snippets.pictures import Axis, Bars, Panel, Picture, Rule
from snippets.timing.take_turns import ratios, recorded, take_turns
from snippets.training.ddp_timeline import account, timelines_of
from snippets.training.dp_vs_ddp import mlp, slowest_rank, step
from snippets.training.waiting_ranks import meet

LAYERS, WIDTH, ROWS = 12, 4096, 8192


def parts(events: list[list[Any]]) -> dict[str, float]:
    """Milliseconds of a step in which the GPU does this; together they are the step.

    Exposed: an all-reduce beside which nothing else runs. Idle: nothing runs at all.
    """
    ms = account(events)
    updates = (e[2] for e in events if "stream" in e[0] and "multi_tensor" in e[3])
    optimizer, exposed = sum(updates) / 1e3, ms["all_reduce"] - ms["hidden"]
    return {
        "passes": ms["others"] - optimizer,
        "optimizer": optimizer,
        "exposed": exposed,
        "idle": ms["step"] - ms["others"] - exposed,
    }


def main() -> dict:
    device, nccl = meet()
    ranks, rank = nccl.size(), nccl.rank()
    torch.set_float32_matmul_precision("high")  # TF32
    with device:
        model, rows = mlp(LAYERS, WIDTH), torch.randn(ROWS, WIDTH)
    ddp = DistributedDataParallel(deepcopy(model), process_group=nccl)
    cases = {
        "one_gpu": (model, rows),
        "one_gpu_part": (model, rows[: ROWS // ranks]),
        "weak": (ddp, rows),  # as many rows on each GPU
        "strong": (ddp, rows[: ROWS // ranks]),  # as many rows in all
    }
    works, inside = {}, {}
    for name, (net, x) in cases.items():
        sgd = torch.optim.SGD(net.parameters(), lr=1e-3)
        works[name] = partial(step, net, x, sgd)
        inside[name] = [parts(events) for events in timelines_of(net, x, trials=9)]
    times = take_turns(works, trials=15, clock=slowest_rank)
    ideal = {"weak": ranks, "strong": 1}  # times the rows of one GPU
    speedup = {
        name: [by * r for r in ratios(times["one_gpu"], times[name])]
        for name, by in ideal.items()
    }
    result = {"ranks": ranks, "step": recorded(times), "ms": {}, "ms_trials": {}}
    for name, trials in inside.items():
        each = {part: [trial[part] for trial in trials] for part in trials[0]}
        result["ms_trials"][name] = each
        result["ms"][name] = {part: median(ms) for part, ms in each.items()}
        if rank == 0:
            text = (f"{part} {ms:.2f}" for part, ms in result["ms"][name].items())
            print(f"{name:<13} {1e3 * times[name].median:6.2f} ms:", *text)
    dist.destroy_process_group()
    result["speedup"] = {name: median(each) for name, each in speedup.items()}
    return result | {"speedup_trials": speedup}


def plot(results: dict, ceilings: dict):
    ranks = results["ranks"]
    trials = results["step"]["ms_trials"]
    part = f"{ROWS // ranks:,}"
    speeds = {
        f"one GPU, {ROWS:,} rows": 1.0,
        f"weak: {ranks} GPUs, {ROWS:,} rows each": results["speedup"]["weak"],
        f"strong: {ranks} GPUs, {part} rows each": results["speedup"]["strong"],
    }
    alone = [
        one / part
        for one, part in zip(trials["one_gpu"], trials["one_gpu_part"], strict=True)
    ]
    no_exchange = f"{ranks} times one GPU, {part} rows"
    x = Axis("times the speed of one GPU", low=0.0)
    marks = [
        Bars(speeds, "measured", starts=dict.fromkeys(speeds, 0.0)),
        Bars(
            {no_exchange: median(alone)},
            "no exchange",
            {no_exchange: 0.0},
            color="muted",
        ),
        Rule("x", ranks, "perfect scaling"),
    ]
    return Picture([Panel(marks, x)])


if __name__ == "__main__":
    main()
