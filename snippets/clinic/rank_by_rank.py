# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [2, 4, 8]
# timeout = 120
# launcher = "torchrun"
# take = ["own_parts", "by_rank", "latest"]
# take_on_cpu = ["own_parts"]
# [tool.overlap.missing]
# 4 = "not recorded yet"
# 8 = "not recorded yet"
# ///
"""Find the straggler by what each rank says of itself, then cure it."""

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice, pairwise
from statistics import median
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from snippets.clinic.patient import SIZES, Classifier
from snippets.clinic.photos import CLASSES, PATCH
from snippets.pictures import stacked
from snippets.timing.benchmark import wall_clock
from snippets.timing.take_turns import ratios, recorded, take_turns
from snippets.timing.wait_for import wait_for

PATCHES = SIZES[1]
ROWS, MOST, CHECK_ROWS = 128, 192, 8  # an equal share, the largest share, and to check
READ_S = 0.05  # the slow loader's pause, which is our choice
STEPS = 7
Batch = TypeVar("Batch")
PARTS = ("loader", "passes", "all_reduce")


def anywhere(here: bool, device: torch.device, group: dist.ProcessGroup | None) -> bool:
    """Whether something is so on any rank."""
    flag = torch.tensor(float(here), device=device)
    dist.all_reduce(flag, dist.ReduceOp.MAX, group)
    return flag.item() > 0


def average(model: nn.Module, group: dist.ProcessGroup | None) -> None:
    """Average gradients over ranks by one all-reduce.

    It copies them into one tensor, so it holds as much again as all gradients. Frozen
    parameters are left out; where another has no gradient, it counts as zeros.
    """
    trained = [each for each in model.parameters() if each.requires_grad]
    for parameter in trained:
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
    gradients = [each.grad for each in trained if each.grad is not None]
    flat = torch.cat([gradient.flatten() for gradient in gradients])
    dist.all_reduce(flat.div_(dist.get_world_size(group)), group=group)
    parts = flat.split([gradient.numel() for gradient in gradients])
    for gradient, part in zip(gradients, parts, strict=True):
        gradient.copy_(part.view_as(gradient))


def own_parts(
    ddp: DistributedDataParallel,
    batches: Iterator[Batch],
    loss_of: Callable[[nn.Module, Batch], Tensor],
    group: dist.ProcessGroup | None = None,
) -> dict[str, float]:
    """Milliseconds of this rank's own parts of a step; it leaves averaged gradients.

    `batches` is an iterator, as `iter(loader)`: of a list each call takes the first
    batch. `loss_of(ddp, batch)` gives the loss, of which ranks are averaged: with padding
    the sum, times the ranks, divided by the labels of all ranks. "loader" is what `next(batches)` takes,
    "passes" are forward and backward under `no_sync`, "all_reduce" is the exchange
    with all waits for ranks that come later. It waits for the GPU after each part, so
    the step as a whole is slower than without: do this seldom. The exchange copies all
    gradients into one tensor: memory for a further model at the peak. A parameter that
    the loss does not use gets a gradient of zeros. If a rank has no batch left, all get
    StopIteration before their passes; the batches that others took are not used. Catch
    it around the call: within a generator it would become a RuntimeError. Gradients
    must be dense.
    `group` is that of the model; by default all ranks.
    """
    wait_for()
    clock = [time.perf_counter()]
    taken = list(islice(batches, 1))
    clock.append(time.perf_counter())
    if anywhere(not taken, next(ddp.parameters()).device, group):
        raise StopIteration("a rank has no batch left")
    clock.append(time.perf_counter())
    ddp.zero_grad()
    with ddp.no_sync():
        loss_of(ddp, taken[0]).backward()
    wait_for()
    clock.append(time.perf_counter())
    average(ddp, group)
    wait_for()
    clock.append(time.perf_counter())
    loader, met, passes, exchange = (1e3 * (b - a) for a, b in pairwise(clock))
    return dict(zip(PARTS, (loader, passes, met + exchange), strict=True))


def by_rank(
    steps: Sequence[Mapping[str, float]], group: dist.ProcessGroup | None = None
) -> dict[str, list[float]]:
    """Of each part the median of this rank's steps, gathered: [rank 0's, rank 1's …]

    `steps` are what `own_parts` gives, some for each rank of the group (default: all).
    ValueError on a rank without steps; the others then wait for it.
    """
    if not steps:
        raise ValueError("there is no step to take the median of")
    mine = {part: median(step[part] for step in steps) for part in PARTS}
    every: list[Any] = [None] * dist.get_world_size(group)
    dist.all_gather_object(every, mine, group)
    return {part: [each[part] for each in every] for part in PARTS}


def latest(ms: Mapping[str, Sequence[float]]) -> dict[str, Any]:
    """The rank that needs longest before the exchange, and what sets it apart.

    `ms` is what `by_rank` gives: milliseconds of each rank, for "loader" and "passes".
    "late_ms" is how much longer it needs than the fastest rank: with a few per cent of
    a step there is no straggler. "part" is where it is furthest above the least.
    """
    own = [sum(pair) for pair in zip(ms["loader"], ms["passes"], strict=True)]
    rank = own.index(max(own))
    above = {part: ms[part][rank] - min(ms[part]) for part in ("loader", "passes")}
    part = max(above, key=above.__getitem__)
    return {"rank": rank, "part": part, "late_ms": max(own) - min(own)}


def shares(rows: int, ranks: int, last: int) -> list[int]:
    """Rows of each rank: so many on the last, the rest as evenly as can be."""
    rest = torch.arange(rows - last).tensor_split(ranks - 1)
    return [len(part) for part in rest] + [last]


def read(batch: tuple, pause_s: float) -> Iterator[tuple]:
    """The same batch again and again, after a pause that stands for a slow disk."""
    while True:
        time.sleep(pause_s)
        yield batch


def loss_of_share(model: nn.Module, batch: tuple, rows: int, autocast: bool) -> Tensor:
    """This rank's part of the mean over all `rows` of all ranks, times the ranks.

    So DDP's average is the gradient of that mean, however the rows are shared.
    """
    pixels, labels = batch
    with torch.autocast(pixels.device.type, torch.bfloat16, enabled=autocast):
        scores = model(pixels)
        total = nn.functional.cross_entropy(scores, labels, reduction="sum")
    return total * dist.get_world_size() / rows


def images(rows: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Random images of so many rows in patches, and their labels."""
    pixels = torch.randn(rows, PATCHES, PATCH, device=device)
    return pixels, torch.randint(CLASSES, (rows,), device=device)


def check(model: nn.Module, ddp, group, device: torch.device) -> None:
    """Whether unequal shares leave the gradients of one device with all rows."""
    ranks = group.size()
    rows = CHECK_ROWS * ranks
    torch.manual_seed(0)  # the same batch on all ranks
    pixels, labels = images(rows, device)
    loss_of_share(model, (pixels, labels), rows * ranks, False).backward()
    expected = [parameter.grad.clone() for parameter in model.parameters()]
    own_rows = shares(rows, ranks, CHECK_ROWS * MOST // ROWS)
    own = tuple(part.split(own_rows)[group.rank()] for part in (pixels, labels))
    loss_of = partial(loss_of_share, rows=rows, autocast=False)
    own_parts(ddp, read(own, 0.0), loss_of, group)
    by_hand = [parameter.grad.clone() for parameter in ddp.parameters()]
    ddp.zero_grad()
    loss_of(ddp, own).backward()
    by_ddp = [parameter.grad for parameter in ddp.parameters()]
    for e, a, b in zip(expected, by_hand, by_ddp, strict=True):
        most = 1e-3 * float(e.abs().max())
        torch.testing.assert_close(a, e, rtol=0, atol=most)
        torch.testing.assert_close(b, e, rtol=0, atol=most)


def slowest_s(work: Callable[[], object], calls: int) -> float:
    """Seconds of one call in the rank that takes longest; all begin together."""
    dist.barrier()
    seconds = torch.tensor(wall_clock(work, calls), dtype=torch.float64)
    dist.all_reduce(seconds, dist.ReduceOp.MAX)
    return seconds.item()


def step(ddp, optimizer, batches: Iterator[Any], loss_of: Callable[..., Any]) -> None:
    """One usual step of training."""
    batch = next(batches)
    optimizer.zero_grad()
    loss_of(ddp, batch).backward()
    optimizer.step()


def meet() -> tuple[torch.device, dist.ProcessGroup]:
    """This rank's device and a group to exchange tensors there; ranks wait in gloo."""
    dist.init_process_group("gloo")
    if not torch.cuda.is_available():
        return torch.device("cpu"), dist.group.WORLD
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    return device, dist.new_group(backend="nccl")


def main() -> dict:
    device, group = meet()
    ranks, rank = group.size(), group.rank()
    torch.manual_seed(0)  # the same model on all ranks
    model = Classifier(*SIZES[1:]).to(device)
    ddp = DistributedDataParallel(
        model, process_group=group, gradient_as_bucket_view=True
    )
    check(model, ddp, group, device)
    rows = ROWS * ranks
    uneven, even = shares(rows, ranks, MOST)[rank], ROWS
    pause_s = READ_S if rank == ranks - 1 else 0.0
    sources = {
        "more_rows": read(images(uneven, device), 0.0),
        "slow_loader": read(images(even, device), pause_s),
        "cured": read(images(even, device), 0.0),
    }
    loss_of = partial(loss_of_share, rows=rows, autocast=True)
    optimizer = torch.optim.AdamW(ddp.parameters(), lr=1e-4, fused=True)
    works = {
        n: partial(step, ddp, optimizer, each, loss_of) for n, each in sources.items()
    }
    # in its first ten steps DDP waits for the GPU, for its statistics
    times = take_turns(works, warmup=2, trials=9, calls=3, clock=slowest_s)
    result = recorded(times) | {"ranks": ranks, "rows": shares(rows, ranks, MOST)}
    result |= {"read_ms": 1e3 * READ_S, "by_rank_ms": {}, "latest": {}}
    result["gain"] = {n: median(ratios(t, times["cured"])) for n, t in times.items()}
    for name, batches in sources.items():
        steps = [own_parts(ddp, batches, loss_of, group) for _ in range(2 + STEPS)]
        ms = by_rank(steps[2:])
        result["by_rank_ms"][name], result["latest"][name] = ms, latest(ms)
        if rank == 0:
            print(f"{name}: {result['ms'][name]:.1f} ms a step")
            for part, each in ms.items():
                least, most = each.index(min(each)), each.index(max(each))
                print(
                    f"  {part:<11}least {each[least]:6.1f} ms, rank {least};",
                    f"most {each[most]:6.1f} ms, rank {most}",
                )
            text = "  rank {rank} comes last, {late_ms:.1f} ms after the first: {part}"
            print(text.format(**latest(ms)))
    dist.destroy_process_group()
    return result


def derive(results: dict) -> dict:
    """The last rank's all-reduce in shares of the first's; who is named as latest."""
    shares = {}
    for name, parts in results["by_rank_ms"].items():
        first, *_, last = parts["all_reduce"]
        shares[name] = last / first
    latest = results["latest"]
    return {
        "last_waits": max(shares["more_rows"], shares["slow_loader"]),
        "named": {name: [row["rank"], row["part"]] for name, row in latest.items()},
        "cured_late": latest["cured"]["late_ms"] / results["ms"]["cured"],
    }


def plot(results: dict, ceilings: dict):
    titles = {"more_rows": "more rows", "slow_loader": "slow loader"}
    titles["cured"] = "no fault"
    names = {"loader": "loader", "passes": "forward, backward"}
    names |= {"all_reduce": "all-reduce and wait"}
    parts = {name: {} for name in names.values()}
    colors = ("data", "gpu", "peer")
    for case, title in titles.items():
        for rank in (0, results["ranks"] - 1):
            for part, name in names.items():
                ms = results["by_rank_ms"][case][part][rank]
                parts[name][f"{title}, rank {rank}"] = ms
    picture = stacked(parts, "ms")
    for mark, color in zip(picture.panels[0].marks, colors, strict=True):
        mark.color = color
    return picture


if __name__ == "__main__":
    main()
