# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [2, 4, 8]
# timeout = 120
# launcher = "torchrun"
# ///
"""Add up 160 MB of gradients over all GPUs: via GPU 0, the CPU, in parts, by NCCL."""

import os
from functools import partial

import torch
import torch.distributed as dist

from snippets.collectives.bus_bandwidth import slowest
from snippets.collectives.collectives_zoo import all_gather
from snippets.pictures import bars
from snippets.timing.take_turns import recorded, take_turns
from snippets.timing.wait_for import wait_for

BYTES = 160_000_000


def via_gpu0(x: torch.Tensor, group) -> None:
    """Rank 0 gets all gradients whole, adds them up, and sends the sum to each.

    x has one dimension, and is of floats.
    """
    ranks, root = dist.get_world_size(), dist.get_rank() == 0
    rooms = x.new_empty(ranks, len(x)) if root else None
    dist.gather(x, list(rooms) if root else None, dst=0, group=group)
    dist.scatter(x, [rooms.sum(0)] * ranks if root else None, src=0, group=group)


def in_parts(x: torch.Tensor, group) -> None:
    """Each rank gets one part of all gradients, adds it up, and sends it to each.

    x has one dimension, of a length that the ranks divide, and is of floats.
    """
    parts = torch.empty_like(x)
    dist.all_to_all_single(parts, x, group=group)
    all_gather(x, parts.view(dist.get_world_size(), -1).sum(0), group=group)


def add_up(rooms: list[torch.Tensor]) -> None:
    """The sum of all, into the first of them."""
    for room in rooms[1:]:
        rooms[0] += room


def via_cpu(xs: list[torch.Tensor], rooms: list[torch.Tensor]) -> None:
    """One process adds up xs, one on each GPU, in pinned rooms; xs become the sum."""
    for room, x in zip(rooms, xs, strict=True):
        room.copy_(x, non_blocking=True)
    wait_for()
    add_up(rooms)
    for x in xs:
        x.copy_(rooms[0], non_blocking=True)
    wait_for()


def main() -> dict:
    dist.init_process_group("gloo")  # a rank that waits in NCCL keeps its GPU spinning
    rank, ranks = dist.get_rank(), dist.get_world_size()
    torch.cuda.set_device(rank)  # on one node; else LOCAL_RANK
    group, works = dist.new_group(backend="nccl"), {}
    x = torch.empty(BYTES // 4, device="cuda")
    ways = {"gpu0": via_gpu0, "parts": in_parts, "nccl": dist.all_reduce}
    for name, way in ways.items():
        works[name] = partial(way, x, group=group)
        x.fill_(rank + 1)
        works[name]()
        assert x.eq(ranks * (ranks + 1) / 2).all(), name
    works |= {"cpu": lambda: None, "cpu_sum": lambda: None}
    if rank == 0:
        torch.set_num_threads(os.cpu_count() // 2)  # torchrun leaves it one
        xs = [torch.full_like(x, i + 1.0, device=i) for i in range(ranks)]
        rooms = [torch.empty(len(x), pin_memory=True) for _ in xs]
        works |= {"cpu": partial(via_cpu, xs, rooms), "cpu_sum": partial(add_up, rooms)}
        works["cpu"]()
        assert all(each.eq(ranks * (ranks + 1) / 2).all() for each in xs)
        for each in xs:
            each.zero_()
    x.zero_()  # sums of zeros never overflow
    times = take_turns(works, trials=9, rest_s=0.01, clock=slowest)
    dist.destroy_process_group()
    for name, timing in times.items() if rank == 0 else ():
        print(f"{name:<8} {1e3 * timing.median:7.2f} ms")
    return recorded(times) | {"ranks": ranks, "bytes": BYTES}


def plot(results: dict, ceilings: dict):
    n, size = results["ranks"], results["bytes"]
    names = {
        "cpu": "via the CPU",
        "gpu0": "via GPU 0",
        "parts": "in parts, on all GPUs",
    }
    names["nccl"] = "NCCL's all-reduce"
    limits = {}
    if {"nvlink_gb_s", "pcie_gb_s"} <= ceilings.keys():
        whole_ms = size / ceilings["nvlink_gb_s"] / 1e6
        limits = {"gpu0": 2 * (n - 1) * whole_ms, "parts": 2 * (n - 1) / n * whole_ms}
        limits |= {
            "nccl": limits["parts"],
            "cpu": 2 * size / ceilings["pcie_gb_s"] / 1e6,
        }
    groups = {}
    for name, label in names.items():
        groups[label] = {"measured": results["ms"][name]}
        if name in limits:
            groups[label]["the links alone"] = limits[name]
    return bars(groups, {}, "ms")


if __name__ == "__main__":
    main()
