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
"""Gradient accumulation with DDP: exchange once, where `no_sync` is right, and wrong."""

from collections.abc import Callable
from copy import deepcopy
from functools import partial
from statistics import median
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.nn.parallel import DistributedDataParallel

from snippets.pictures import bars
from snippets.timing.take_turns import ratios, recorded, take_turns
from snippets.training.ddp_equality import farthest, gradients, of_all_ranks
from snippets.training.dp_vs_ddp import slowest_rank
from snippets.training.models import transformer
from snippets.training.waiting_ranks import meet

MICRO_BATCHES = 4
ROWS, TOKENS, WIDTH = 8, 512, 1024  # rows of a micro-batch on each GPU
CHECK_TOKENS = 16  # one device must hold the whole batch


def mean_square(output: Tensor) -> Tensor:
    """A loss that is a mean over rows, so that equal parts of a batch average."""
    return output.square().mean()


def accumulate(
    ddp, parts: list[Tensor], loss_of: Callable[..., Any] = mean_square
) -> None:
    """Leave the gradients of a large batch, given in equal parts; exchange once.

    `ddp` is a model in DistributedDataParallel, `loss_of(output)` a mean over rows.
    """
    ddp.zero_grad()
    *first, last = parts
    with ddp.no_sync():
        for rows in first:  # the forward pass decides, so it stands in here, too
            (loss_of(ddp(rows)) / len(parts)).backward()
    (loss_of(ddp(last)) / len(parts)).backward()  # this one averages over the ranks


def in_every(ddp, parts: list[Tensor]) -> None:
    """The same gradients, exchanged after each micro-batch."""
    ddp.zero_grad()
    for rows in parts:
        (mean_square(ddp(rows)) / len(parts)).backward()


def only_backward(ddp, parts: list[Tensor]) -> None:
    """`accumulate`, with a mistake: the forward passes stand outside of `no_sync`."""
    ddp.zero_grad()
    *first, last = parts
    for rows in first:
        loss = mean_square(ddp(rows)) / len(parts)
        with ddp.no_sync():
            loss.backward()
    (mean_square(ddp(last)) / len(parts)).backward()


def in_none(ddp, parts: list[Tensor]) -> None:
    """Nothing is exchanged: each rank keeps the gradients of its own rows."""
    with ddp.no_sync():
        in_every(ddp, parts)


def at_once(ddp, parts: list[Tensor]) -> None:
    """One large batch, as long as it fits."""
    ddp.zero_grad()
    mean_square(ddp(torch.cat(parts))).backward()


WAYS = {
    "in_every": in_every,
    "accumulate": accumulate,
    "only_backward": only_backward,
    "in_none": in_none,
    "at_once": at_once,
}


def counted(state: tuple, bucket: dist.GradBucket) -> torch.futures.Future[Tensor]:
    """DDP's all-reduce of a bucket; `state` is its group and a list for its bytes."""
    group, sent = state
    sent.append(bucket.buffer().nbytes)
    return allreduce_hook(group, bucket)


def main() -> dict:
    device, group = meet()
    ranks, rank = group.size(), group.rank()
    torch.manual_seed(0)  # the same model and batch on all ranks
    with device:
        model = transformer(width=WIDTH)
        batch = torch.randn(ranks * MICRO_BATCHES * ROWS, CHECK_TOKENS, WIDTH)
        parts = torch.randn(MICRO_BATCHES, ROWS, TOKENS, WIDTH).unbind()
    expected = gradients(model, batch)  # one device, the whole batch
    own = batch.chunk(ranks)[rank].chunk(MICRO_BATCHES)
    hooked = DistributedDataParallel(deepcopy(model), process_group=group)
    sent, sent_gb, error = [], {}, {}
    hooked.register_comm_hook((group, sent), counted)
    for name, way in WAYS.items():
        sent.clear()
        way(hooked, list(own))
        sent_gb[name] = sum(sent) / 1e9
        found = [parameter.grad for parameter in hooked.parameters()]
        error[name] = of_all_ranks(farthest(found, expected), torch.device("cpu"))
    del hooked
    torch.set_float32_matmul_precision("high")  # TF32
    ddp = DistributedDataParallel(model, process_group=group)
    works = {name: partial(way, ddp, list(parts)) for name, way in WAYS.items()}
    # in its first ten steps DDP waits for the GPU, for its statistics
    times = take_turns(works, warmup=3, trials=11, clock=slowest_rank)
    result = recorded(times) | {"ranks": ranks, "micro_batches": MICRO_BATCHES}
    result |= {"error": error, "exchanged_gb": sent_gb, "peak_gb": {}}
    for name, work in works.items():
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
            work()
            peak = torch.cuda.max_memory_allocated(device)
            result["peak_gb"][name] = peak / 1e9
    result["gain_trials"] = ratios(times["in_every"], times["accumulate"])
    result["gain"] = median(result["gain_trials"])
    if rank == 0:
        for name, ms in result["ms"].items():
            print(
                f"{name:<14}{ms:7.2f} ms, {sent_gb[name]:.2f} GB exchanged,",
                f"error {max(error[name]):.1e}",
            )
    dist.destroy_process_group()
    return result


def derive(results: dict) -> dict:
    """What ways send of one exchange; in which share of rounds that was faster."""
    sent_gb = results["exchanged_gb"]
    derived = {"sent": {way: gb / sent_gb["at_once"] for way, gb in sent_gb.items()}}
    if "gain_trials" in results:
        gains = results["gain_trials"]
        derived["rounds_faster"] = sum(gain > 1 for gain in gains) / len(gains)
    return derived


def plot(results: dict, ceilings: dict):
    names = {"in_every": "exchange in every part"}
    names |= {"only_backward": "only backward in no_sync"}
    names |= {"accumulate": "exchange in the last part"}
    names |= {"in_none": "no exchange, in parts", "at_once": "one large batch"}
    ms = {text: results["ms"][name] for name, text in names.items()}
    return bars(ms, {}, "ms a step")


if __name__ == "__main__":
    main()
