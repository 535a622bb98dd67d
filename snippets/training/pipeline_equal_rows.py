# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [2]
# timeout = 200
# launcher = "torchrun"
# ///
"""A pipeline whose micro-batches keep their rows: how much of a step is lost?"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import (
    PipelineStage,
    Schedule1F1B,
    ScheduleGPipe,
    ScheduleInterleaved1F1B,
    ScheduleZBVZeroBubble,
)

from snippets.pictures import sweep
from snippets.timing.take_turns import ratios, recorded, take_turns
from snippets.timing.wait_for import wait_for
from snippets.training.ddp_equality import farthest, of_all_ranks
from snippets.training.dp_vs_ddp import slowest_rank
from snippets.training.waiting_ranks import meet

LAYERS, WIDTH, ROWS = 4, 8192, 2048  # layers on each GPU; rows of a micro-batch
CHECKED_ROWS = 64  # of a micro-batch, where gradients are compared
MICRO_BATCHES = [1, 2, 4, 8, 16]
STEPS, TRIALS = 2, 5  # between two waits; how often
SCHEDULES: dict[str, Callable[..., Any]] = {
    "gpipe": ScheduleGPipe,
    "one_f_one_b": Schedule1F1B,
}
TWO_STAGES: dict[str, Callable[..., Any]] = {  # on each GPU
    "interleaved": ScheduleInterleaved1F1B,
    "zero_bubble": ScheduleZBVZeroBubble,
}


def loss(output: torch.Tensor, target: object = None) -> torch.Tensor:
    """The mean over the rows of a micro-batch; there is nothing to compare with."""
    return output.square().mean()


def layer(width: int) -> nn.Module:
    return nn.Sequential(nn.Linear(width, width), nn.ReLU())


def stages_of(name: str, rank: int, ranks: int) -> list[int]:
    """The numbers of this rank's stages; in a zero bubble the last lies by the first."""
    if name in SCHEDULES:
        return [rank]
    second = 2 * ranks - 1 - rank if name == "zero_bubble" else ranks + rank
    return [rank, second]


def layers_of(name: str, number: int) -> range:
    """Numbers of the layers of a stage, of all layers of the model."""
    each = LAYERS if name in SCHEDULES else LAYERS // 2
    return range(number * each, (number + 1) * each)


def scheduled(
    name: str, stages: dict[int, nn.Module], rows: torch.Tensor, m: int, group
) -> Callable[[], None]:
    """A step by a schedule, over m micro-batches; `stages` are this rank's, by number.

    The rank of the first stage has the rows, that of the last one the loss. m divides
    the number of rows.
    """
    total = group.size() * len(stages)
    parts = []
    for number, stage in stages.items():
        parts.append(PipelineStage(stage, number, total, rows.device, group=group))
    kinds = SCHEDULES | TWO_STAGES
    given = parts[0] if name in SCHEDULES else parts
    schedule = kinds[name](given, n_microbatches=m, loss_fn=loss)
    arguments = (rows,) if 0 in stages else ()
    target = {"target": rows} if total - 1 in stages else {}

    def one_step() -> None:
        for stage in stages.values():
            stage.zero_grad()
        schedule.step(*arguments, **target)

    return one_step


def alone(stage: nn.Module, rows: torch.Tensor, m: int, rank: int) -> None:
    """The same work on the same micro-batches, without a word to other ranks."""
    stage.zero_grad()
    for part in rows.chunk(m):
        loss(stage(part.detach().requires_grad_(rank > 0))).backward()


def bubble(ranks: int, m: int, chunks: int = 1) -> float:
    """The share of a step that a GPU waits, if all stages take as long as each other."""
    return (ranks - 1) / (chunks * m + ranks - 1)


def error_of(
    name: str, seed_layers: Callable[[int], nn.Module], rows: torch.Tensor, group
) -> float:
    """How far this rank's gradients are from those of the whole model in one process."""
    rank, ranks, m = group.rank(), group.size(), 2 * group.size()
    whole = nn.Sequential(*[seed_layers(i) for i in range(LAYERS * ranks)])
    loss(whole(rows)).backward()
    stages, expected = {}, []
    for number in stages_of(name, rank, ranks):
        numbers = layers_of(name, number)
        stages[number] = nn.Sequential(*[seed_layers(i) for i in numbers])
        expected += [p.grad for i in numbers for p in whole[i].parameters()]
    scheduled(name, stages, rows, m, group)()
    found = [p.grad for stage in stages.values() for p in stage.parameters()]
    return farthest(found, expected)


def main() -> dict:
    device, group = meet()
    rank, ranks = group.rank(), group.size()

    def seed_layers(number: int) -> nn.Module:
        """Layer `number` of the model, the same each time and on all ranks."""
        torch.manual_seed(number)
        with device:
            return layer(WIDTH)

    torch.manual_seed(100)
    rows = torch.randn(ROWS * max(MICRO_BATCHES), WIDTH, device=device)
    dist.all_reduce(rows[:1].clone(), group=group)  # all ranks connect
    cpu, error, works = torch.device("cpu"), {}, {}
    torch.set_float32_matmul_precision("highest")
    for name in (*SCHEDULES, *TWO_STAGES):
        mine = error_of(name, seed_layers, rows[: 2 * ranks * CHECKED_ROWS], group)
        error[name] = max(of_all_ranks(mine, cpu))
    torch.set_float32_matmul_precision("high")  # TF32
    for name in (*SCHEDULES, *TWO_STAGES):
        stages = {}
        for number in stages_of(name, rank, ranks):
            each = [seed_layers(i) for i in layers_of(name, number)]
            stages[number] = nn.Sequential(*each)
        for m in MICRO_BATCHES:
            if name == "gpipe" or m >= ranks:  # the others need as many
                works[name, m] = scheduled(name, stages, rows[: m * ROWS], m, group)
    stage = nn.Sequential(*[seed_layers(i) for i in layers_of("gpipe", rank)])
    for m in MICRO_BATCHES:
        works["alone", m] = partial(alone, stage, rows[: m * ROWS], m, rank)
    times = {}
    for m in MICRO_BATCHES:  # ways of the same work take turns
        each = {key: work for key, work in works.items() if key[1] == m}
        times |= take_turns(each, 1, TRIALS, calls=STEPS, clock=slowest_rank)  # type: ignore
    wait_for()
    result = {"ranks": ranks, "micro_batches": MICRO_BATCHES, "error": error}
    result |= {"step": {}, "lost": {}, "lost_trials": {}}
    for name in ("alone", *SCHEDULES, *TWO_STAGES):
        of_name = {str(m): times[name, m] for m in MICRO_BATCHES if (name, m) in times}
        result["step"][name] = recorded(of_name)
        if name == "alone":
            continue
        shares = {}
        for m, timing in of_name.items():
            busy = ratios(times["alone", int(m)], timing)
            shares[m] = [1 - share for share in busy]
        result["lost_trials"][name] = shares
        medians = {m: sorted(each)[len(each) // 2] for m, each in shares.items()}
        result["lost"][name] = medians
        if rank == 0:
            print(
                f"{name:<12}", *(f"{m}: {share:5.1%} " for m, share in medians.items())
            )
    if rank == 0:
        formula = (f"{m}: {bubble(ranks, m):5.1%} " for m in MICRO_BATCHES)
        print(f"{'formula':<12}", *formula)
        ms = result["step"]["alone"]["ms"].items()
        print(f"{'alone, ms':<12}", *(f"{m}: {each:.1f} " for m, each in ms))
    dist.destroy_process_group()
    return result


def derive(results: dict) -> dict:
    """What the formula says, and how much more is lost: shares of a step."""
    ranks, formula, more = results["ranks"], {}, {}
    for name, shares in results["lost"].items():
        chunks = 2 if name == "interleaved" else 1
        if name != "zero_bubble":
            formula[name] = {m: bubble(ranks, int(m), chunks) for m in shares}
            more[name] = [shares[m] - formula[name][m] for m in shares]
    return {"formula": formula, "more": more}


def plot(results: dict, ceilings: dict):
    titles = {"gpipe": "GPipe", "one_f_one_b": "1F1B"}
    titles |= {"interleaved": "interleaved 1F1B", "zero_bubble": "zero bubble (ZBV)"}
    x, lines = results["micro_batches"], {}
    for name, text in titles.items():
        lost = results["lost"][name]
        lines[text] = [100 * lost[str(m)] if str(m) in lost else None for m in x]
    formula = [100 * bubble(results["ranks"], m) for m in x]
    labels = {"xlabel": "micro-batches", "ylabel": "% of a step that is lost"}
    limits = {"by the formula, (p−1)/(m+p−1)": formula}
    return sweep(x, lines, limits, xlog=True, **labels)


if __name__ == "__main__":
    main()
