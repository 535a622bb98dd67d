# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [2, 4, 8]
# timeout = 180
# launcher = "torchrun"
# [tool.overlap.missing]
# 8 = "not recorded yet"
# ///
"""Three schedules of a pipeline: what their GPUs wait, and what they hold in memory."""

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
)

from snippets.pictures import DASHES, Axis, Line, Panel, Picture
from snippets.timing.take_turns import ratios, recorded, take_turns
from snippets.timing.wait_for import wait_for
from snippets.training.ddp_equality import farthest, of_all_ranks
from snippets.training.dp_vs_ddp import slowest_rank
from snippets.training.models import transformer
from snippets.training.waiting_ranks import meet

LAYERS, WIDTH, TOKENS = 8, 1536, 1024  # layers on each GPU
ROWS = 2  # in a micro-batch
CHECKED_TOKENS = 64
MICRO_BATCHES = [4, 8, 16]
SCHEDULES: dict[str, Callable[..., Any]] = {
    "gpipe": ScheduleGPipe,
    "one_f_one_b": Schedule1F1B,
}
SCHEDULES |= {"interleaved": ScheduleInterleaved1F1B}
CHUNKS = {"gpipe": 1, "one_f_one_b": 1, "interleaved": 2}  # stages on each GPU


def loss(output: torch.Tensor, target: object = None) -> torch.Tensor:
    """The mean over the rows of a micro-batch; there is nothing to compare with."""
    return output.square().mean()


def chunks_of(
    model: nn.Sequential, rank: int, ranks: int, chunks: int
) -> list[nn.Sequential]:
    """This rank's stages: with two, one of the model's first half, one of its second.

    ranks times chunks divides the number of layers.
    """
    each = len(model) // (ranks * chunks)
    numbers = [rank + ranks * chunk for chunk in range(chunks)]
    return [model[number * each : (number + 1) * each] for number in numbers]


def scheduled(
    name: str, stages: list[nn.Module], rows: torch.Tensor, micro_batches: int, group
) -> Callable[[], None]:
    """A step by a schedule; the first rank has the rows, the last one the loss.

    The number of micro-batches divides that of the rows.
    """
    rank, ranks = group.rank(), group.size()
    parts = []
    for i, stage in enumerate(stages):
        number, total = rank + ranks * i, ranks * len(stages)
        parts.append(PipelineStage(stage, number, total, rows.device, group=group))
    given = parts if name == "interleaved" else parts[0]
    schedule = SCHEDULES[name](given, n_microbatches=micro_batches, loss_fn=loss)

    def one_step() -> None:
        for stage in stages:
            stage.zero_grad()
        if rank == 0:
            schedule.step(rows)
        elif rank == ranks - 1:
            schedule.step(target=rows)
        else:
            schedule.step()

    return one_step


def alone(model: nn.Module, rows: torch.Tensor, micro_batches: int, rank: int) -> None:
    """The same work on the same micro-batches, without a word to other ranks."""
    model.zero_grad()
    for part in rows.chunk(micro_batches):
        loss(model(part.detach().requires_grad_(rank > 0))).backward()


def bubble(ranks: int, micro_batches: int, chunks: int) -> float:
    """The share of a step that a GPU waits, if all stages take as long as each other."""
    return (ranks - 1) / (chunks * micro_batches + ranks - 1)


def error_of(name: str, model: nn.Sequential, rows: torch.Tensor, group) -> float:
    """How far this rank's gradients are from those of the whole model in one process."""
    rank, ranks = group.rank(), group.size()
    model.zero_grad()
    loss(model(rows)).backward()
    stages = chunks_of(model, rank, ranks, CHUNKS[name])
    expected = [p.grad.clone() for stage in stages for p in stage.parameters()]
    scheduled(name, stages, rows, len(rows), group)()
    found = [p.grad for stage in stages for p in stage.parameters()]
    return farthest(found, expected)


def peak_gb(work: Callable[[], None], before: int) -> float:
    """Gigabytes of tensors at most in a step, its second, above what there was before."""
    work()
    wait_for()
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
    work()
    wait_for()
    return max(0, torch.cuda.max_memory_allocated() - before) / 1e9


def main() -> dict:
    device, group = meet()
    rank, ranks = group.rank(), group.size()
    micro_batches = [m for m in MICRO_BATCHES if m >= ranks]
    torch.manual_seed(0)  # the same model and rows on all ranks
    with device:
        model = transformer(LAYERS * ranks, WIDTH)
        checked = torch.randn(2 * ranks, CHECKED_TOKENS, WIDTH)
        rows = torch.randn(ROWS * max(micro_batches), TOKENS, WIDTH)
    dist.all_reduce(rows[:1].clone(), group=group)  # all ranks connect
    cpu, error = torch.device("cpu"), {}
    model.double()  # in float32 rounding turns single ReLUs on or off
    for name in SCHEDULES:
        error[name] = of_all_ranks(error_of(name, model, checked.double(), group), cpu)
    model.float().zero_grad()
    stages = {n: chunks_of(model, rank, ranks, k) for n, k in CHUNKS.items()}
    kept = {id(p) for each in stages.values() for s in each for p in s.parameters()}
    for parameter in model.parameters():
        if id(parameter) not in kept:
            parameter.data = torch.empty(0, device=device)  # other ranks have these
    torch.set_float32_matmul_precision("high")  # TF32
    works, peaks, mine = {}, {}, stages["gpipe"][0]
    for name in SCHEDULES:
        peaks[name] = []
        for m in micro_batches:
            model.zero_grad()
            before = torch.cuda.memory_allocated()
            works[name, m] = scheduled(name, stages[name], rows[: ROWS * m], m, group)
            each = peak_gb(works[name, m], before)
            peaks[name].append(of_all_ranks(each, cpu))
    for m in micro_batches:
        works["alone", m] = partial(alone, mine, rows[: ROWS * m], m, rank)
    model.zero_grad()
    times = take_turns(works, warmup=1, trials=7, clock=slowest_rank)
    result = {"ranks": ranks, "micro_batches": micro_batches, "error": error}
    result |= {"peak_gb": peaks, "formula": {}, "waiting": {}, "waiting_trials": {}}
    for name in ("alone", *SCHEDULES):
        result[name] = recorded({str(m): times[name, m] for m in micro_batches})
    for name in SCHEDULES:
        each = [ratios(times["alone", m], times[name, m]) for m in micro_batches]
        shares = [[1 - ratio for ratio in ratios_of_m] for ratios_of_m in each]
        result["waiting_trials"][name] = shares
        result["waiting"][name] = [sorted(s)[len(s) // 2] for s in shares]
        formula = [bubble(ranks, m, CHUNKS[name]) for m in micro_batches]
        result["formula"][name] = formula
        if rank == 0:
            for i, m in enumerate(micro_batches):
                ms, waits = result[name]["ms"][str(m)], result["waiting"][name][i]
                gb = " ".join(f"{each:.1f}" for each in peaks[name][i])
                text = f"waits {waits:5.1%}, by the formula {formula[i]:5.1%}"
                print(f"{name:<12} m = {m:<3}{ms:7.1f} ms  {text}  peaks {gb} GB")
    dist.destroy_process_group()
    return result


def derive(results: dict) -> dict:
    """Waiting beside the formula; memory by micro-batches; interleaved beside 1F1B."""
    waiting, formula = results["waiting"], results["formula"]
    peaks = {name: results["peak_gb"][name] for name in ("gpipe", "one_f_one_b")}
    return {
        "first_rank_grows": {name: gb[-1][0] / gb[0][0] for name, gb in peaks.items()},
        "interleaved_takes": {
            m: ms / results["one_f_one_b"]["ms"][m]
            for m, ms in results["interleaved"]["ms"].items()
        },
        "of_gpipe": max(peaks["one_f_one_b"][-1]) / max(peaks["gpipe"][-1]),
        "off_formula": [
            abs(share - said)
            for name in ("gpipe", "one_f_one_b")
            for share, said in zip(waiting[name], formula[name], strict=True)
        ],
    }


def plot(results: dict, ceilings: dict):
    titles = {
        "gpipe": "GPipe",
        "one_f_one_b": "1F1B",
        "interleaved": "interleaved 1F1B",
    }
    x = results["micro_batches"]
    lost, peaks = [], []
    for name, title in titles.items():
        shares = [100 * share for share in results["waiting"][name]]
        lost.append(Line(x, shares, title))
        peak = [max(ranks) for ranks in results["peak_gb"][name]]
        peaks.append(Line(x, peak, title))
    formulas = {
        "one_f_one_b": "formula, GPipe and 1F1B",
        "interleaved": "formula, interleaved",
    }
    for (name, title), dash in zip(formulas.items(), DASHES, strict=False):
        shares = [100 * share for share in results["formula"][name]]
        lost.append(Line(x, shares, title, dots=False, dash=dash, color="ceiling"))
    panels = []
    for title, lines in {"lost, % of a step": lost, "peak, GB": peaks}.items():
        axis = Axis("micro-batches", ticks={m: f"{m}" for m in x})
        panels.append(Panel(lines, axis, Axis(title, low=0)))
    return Picture(panels, columns=2)


if __name__ == "__main__":
    main()
