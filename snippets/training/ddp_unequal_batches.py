# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [0]
# launcher = "torchrun"
# ranks = 2
# exclusive = false
# timeout = 120
# take = ["as_many_as_all"]
# ///
"""Rank 0 has three batches, rank 1 two: a hang, three ways out, and their gradients."""

from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from functools import partial
from typing import Any, TypeVar

import torch
import torch.distributed as dist
import torch.distributed.nn  # imported later, by DDP, it keeps gloo's threads alive
from torch import Tensor, nn
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DistributedSampler

from snippets.training.ddp_minimal import join

LIMIT = timedelta(seconds=2)  # how long a rank waits for the other
BATCHES = ([1.0, 1.0, 1.0], [3.0, 3.0])  # of rank 0, and of rank 1
Batch = TypeVar("Batch")


def as_many_as_all(
    batches: Iterable[Batch],
    device: torch.device,
    group: dist.ProcessGroup | None = None,
) -> Iterator[Batch]:
    """This rank's batches, until a rank has no more; the others then drop theirs.

    Every rank of the group loops over it. Each batch costs an all-reduce and a wait.
    Leave the loop on all ranks or on none: where one breaks out of it, or raises, the
    others wait for its timeout.
    """
    for batch in batches:
        have_one = torch.ones(1, device=device)
        dist.all_reduce(have_one, dist.ReduceOp.MIN, group=group)
        if have_one.item() == 0:
            return
        yield batch
    dist.all_reduce(torch.zeros(1, device=device), dist.ReduceOp.MIN, group=group)


def gradient(ddp: nn.Module, number: float) -> float:
    """The gradient after a batch of this number: the number, averaged over ranks."""
    ddp.zero_grad()
    ddp(torch.full((4, 1), number)).mean().backward()
    (parameter,) = ddp.parameters()
    return parameter.grad.item()


def every_batch(ddp: nn.Module, batches: Iterable[float], found: list[float]) -> None:
    for number in batches:
        found.append(gradient(ddp, number))


def then_sum(ddp: Any, batches: list[float], found: list[float]) -> None:
    """As many loops end: after the last batch the ranks add up their losses, here 1."""
    every_batch(ddp, batches, found)
    loss = torch.ones(1)
    dist.all_reduce(loss, group=ddp.process_group)
    found.append(loss.item())


def joined(ddp: Any, batches: list[float], found: list[float], **how: bool) -> None:
    with Join([ddp], **how):
        every_batch(ddp, batches, found)


def shortened(ddp: Any, batches: list[float], found: list[float]) -> None:
    cpu, group = torch.device("cpu"), ddp.process_group
    every_batch(ddp, as_many_as_all(batches, cpu, group), found)


WAYS: dict[str, Callable[[Any, list[float], list[float]], None]] = {
    "as it is": every_batch,
    "as it is, then a sum": then_sum,
    "Join": joined,
    "Join, by those left": partial(joined, divide_by_initial_world_size=False),
    "Join that raises": partial(joined, throw_on_early_termination=True),
    "as many as all": shortened,
}


def train(way: Callable[[Any, list[float], list[float]], None]) -> dict:
    """This rank's gradients, batch by batch, and its error, if it has one."""
    group = dist.new_group(timeout=LIMIT)
    model = nn.Linear(1, 1, bias=False)
    ddp = DistributedDataParallel(model, process_group=group)
    found: list[float] = []
    says = ""
    try:
        way(ddp, BATCHES[dist.get_rank()], found)
    except RuntimeError as error:
        says = str(error).splitlines()[0].rpartition("] ")[2]
    return {"gradients": found, "says": says}


def unequal_rows(ddp: Any) -> dict[str, float]:
    """The gradient if rank 0 has four rows of 1 and rank 1 one row of 6: mean 2."""
    rows: Tensor = torch.ones(4, 1) if dist.get_rank() == 0 else torch.full((1, 1), 6.0)
    (parameter,) = ddp.parameters()
    ddp.zero_grad()
    ddp(rows).mean().backward()
    of_means = parameter.grad.item()
    count = torch.tensor(float(len(rows)))
    dist.all_reduce(count)
    ddp.zero_grad()
    (ddp(rows).sum() * dist.get_world_size() / count).backward()
    return {"mean of means": of_means, "by the count": parameter.grad.item()}


def sampled(rows: int, ranks: int, drop_last: bool) -> list[int]:
    """The rows that a DistributedSampler gives all ranks, in order."""
    parts = [
        DistributedSampler(range(rows), ranks, rank, drop_last=drop_last)
        for rank in range(ranks)
    ]
    return sorted(row for part in parts for row in part)


def main() -> dict:
    join()
    found: dict[str, list[Any]] = {}
    for name, way in WAYS.items():
        ranks: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(ranks, train(way))
        found[name] = ranks
    ddp = DistributedDataParallel(nn.Linear(1, 1, bias=False))
    result = {
        "found": found,
        "unequal_rows": unequal_rows(ddp),
        "sampled": {
            "drop_last=False": sampled(5, 2, drop_last=False),
            "drop_last=True": sampled(5, 2, drop_last=True),
        },
    }
    if dist.get_rank() == 0:
        for name, ranks in found.items():
            for rank, end in enumerate(ranks):
                print(f"{name:<21}rank {rank}: {end['gradients']} {end['says'][:60]}")
        print(f"unequal rows: {result['unequal_rows']}")
        print(f"five rows for two ranks: {result['sampled']}")
    del ddp  # it holds the group
    dist.destroy_process_group()
    return result


def derive(results: dict) -> dict:
    """Where rank 0 times out, what the late sum and Join give, samples and repeats."""
    found = results["found"]
    summed = [rank["gradients"] for rank in found["as it is, then a sum"]]
    joined = [found[case][0] for case in ("Join", "Join, by those left")]
    return {
        "timed_out": [case for case in found if "Timed out" in found[case][0]["says"]],
        "summed": summed,
        "joined": [rank["gradients"] for rank in joined],
        "joined_say": [rank["says"] for rank in joined],
        "samples": {
            how: [len(rows), len(set(rows))] for how, rows in results["sampled"].items()
        },
    }


if __name__ == "__main__":
    main()
