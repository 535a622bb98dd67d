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
"""A pipeline of GPUs: how much of a step each waits, by the number of micro-batches."""

from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

from snippets.pictures import sweep
from snippets.timing.take_turns import take_turns
from snippets.training.ddp_equality import farthest, gradients, of_all_ranks
from snippets.training.dp_vs_ddp import mlp, slowest_rank
from snippets.training.waiting_ranks import meet

LAYERS, WIDTH, ROWS = 8, 8192, 4096  # layers on each GPU
MICRO_BATCHES = [1, 2, 4, 8, 16]


def loss(output: torch.Tensor, target: object = None) -> torch.Tensor:
    """The mean over the rows of a micro-batch; there is nothing to compare with."""
    return output.square().mean()


def pipeline(stage: nn.Module, rows: torch.Tensor, m: int, group) -> Callable[..., Any]:
    """A step over m micro-batches; the first rank has the rows, the last the loss.

    m divides the number of rows.
    """
    rank, ranks = group.rank(), group.size()
    part = PipelineStage(stage, rank, ranks, rows.device, group=group)
    schedule = ScheduleGPipe(part, n_microbatches=m, loss_fn=loss)
    given = (rows,) if rank == 0 else ()

    def one_step() -> None:
        stage.zero_grad()
        schedule.step(*given, target=rows)

    return one_step


def alone(stage: nn.Module, rows: torch.Tensor, m: int, rank: int) -> None:
    """The same work on the same micro-batches, without a word to other ranks."""
    stage.zero_grad()
    parts = [part.detach().requires_grad_(rank > 0) for part in rows.chunk(m)]
    losses = [loss(stage(part)) for part in parts]
    for each in losses:
        each.backward()


def main() -> dict:
    device, group = meet()
    rank, ranks = group.rank(), group.size()
    torch.manual_seed(0)  # the same model and rows on all ranks
    with device:
        model, rows = mlp(LAYERS * ranks, WIDTH), torch.randn(ROWS, WIDTH)
    dist.all_reduce(rows[:1].clone(), group=group)  # all ranks connect
    stage = model[rank * LAYERS : (rank + 1) * LAYERS]
    gradients(model, rows[:256])  # one GPU, all layers
    expected = [parameter.grad for parameter in stage.parameters()]
    pipeline(stage, rows[:256], 4, group)()
    found = [parameter.grad for parameter in stage.parameters()]
    error = of_all_ranks(farthest(found, expected), torch.device("cpu"))
    torch.set_float32_matmul_precision("high")  # TF32
    works = {}
    for m in MICRO_BATCHES:
        works["alone", m] = partial(alone, stage, rows, m, rank)
        works["pipeline", m] = pipeline(stage, rows, m, group)
    times = take_turns(works, trials=7, clock=slowest_rank)
    result = {"ranks": ranks, "error": error, "micro_batches": MICRO_BATCHES}
    for way in ("alone", "pipeline"):
        trials = [times[way, m].ms() for m in MICRO_BATCHES]
        result |= {f"{way}_ms": list(map(median, trials)), f"{way}_ms_trials": trials}
        if rank == 0:
            print(way, *(f"{ms:.1f}" for ms in result[f"{way}_ms"]), "ms")
    dist.destroy_process_group()
    return result


def derive(results: dict) -> dict:
    """How much longer GPUs wait than the formula says, as shares of a step."""
    more, stages = [], results["ranks"] - 1
    rows = zip(
        results["alone_ms"],
        results["pipeline_ms"],
        results["micro_batches"],
        strict=True,
    )
    for alone, whole, count in rows:
        more.append(1 - alone / whole - stages / (count + stages))
    return {"waits_more": more, "off_formula": [abs(share) for share in more]}


def plot(results: dict, ceilings: dict):
    pairs = zip(results["alone_ms"], results["pipeline_ms"], strict=True)
    lines = {"measured": [100 * (1 - busy / whole) for busy, whole in pairs]}
    others = results["ranks"] - 1
    formula = [100 * others / (m + others) for m in results["micro_batches"]]
    labels = {"xlabel": "micro-batches", "ylabel": "% of a step in which a GPU waits"}
    limits = {"by the formula, (p−1)/(m+p−1)": formula}
    return sweep(results["micro_batches"], lines, limits, xlog=True, **labels)


if __name__ == "__main__":
    main()
