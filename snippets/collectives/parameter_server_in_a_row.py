# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [2, 4, 8]
# timeout = 120
# launcher = "torchrun"
# missing = { 8 = "not recorded yet" }
# ///
"""Add up 160 MB of gradients over all GPUs, eight times before each wait."""

import os
from functools import partial

import torch
import torch.distributed as dist

from snippets.collectives.bus_bandwidth import slowest
from snippets.collectives.captured_all_reduces import meet
from snippets.collectives.collectives_zoo import all_gather, reduce_scatter
from snippets.collectives.parameter_server import BYTES, in_parts, via_cpu, via_gpu0
from snippets.pictures import bars
from snippets.timing.take_turns import recorded, take_turns

IN_A_ROW = 8


def sharded(x: torch.Tensor, group) -> None:
    """NCCL adds up one part of x on each rank, then gives all parts to each.

    x has one dimension, of a length that the ranks divide.
    """
    part = x.new_empty(len(x) // dist.get_world_size())
    reduce_scatter(part, x, group=group)
    all_gather(x, part, group=group)


def proved(works: dict, x: torch.Tensor) -> None:
    """Give each rank its number + 1; each work must leave the sum on every rank."""
    ranks = dist.get_world_size()
    for name, work in works.items():
        x.fill_(dist.get_rank() + 1)
        work()
        assert x.eq(ranks * (ranks + 1) // 2).all(), name
    x.zero_()  # sums of zeros never overflow


def on_the_cpu(like: torch.Tensor, gpus: int) -> partial[None]:
    """`via_cpu` for so many GPUs of this machine, proved; this process does it alone."""
    torch.set_num_threads(os.cpu_count() // 2)  # torchrun leaves it one
    xs = [torch.full_like(like, i + 1, device=i) for i in range(gpus)]
    rooms = [torch.empty(len(like), pin_memory=True) for _ in xs]
    work = partial(via_cpu, xs, rooms)
    work()
    for x in xs:
        assert x.eq(gpus * (gpus + 1) // 2).all(), "cpu"
        x.zero_()
    return work


def main() -> dict:
    group = meet()
    rank, ranks = dist.get_rank(), dist.get_world_size()
    x = torch.empty(BYTES // 4, device="cuda")
    ways = {"gpu0": via_gpu0, "parts": in_parts, "sharded": sharded}
    ways["nccl"] = dist.all_reduce
    works = {name: partial(way, x, group=group) for name, way in ways.items()}
    proved(works, x)
    works["cpu"] = lambda: None
    if rank == 0:
        works["cpu"] = on_the_cpu(x, int(os.environ["LOCAL_WORLD_SIZE"]))
    times = take_turns(works, trials=9, calls=IN_A_ROW, rest_s=0.01, clock=slowest)
    dist.destroy_process_group()
    if rank == 0:
        for name, timing in times.items():
            print(f"{name:<8} {1e3 * timing.median:7.2f} ms")
    return recorded(times) | {"ranks": ranks, "bytes": BYTES, "calls": IN_A_ROW}


def plot(results: dict, ceilings: dict):
    n, size, limits = results["ranks"], results["bytes"], {}
    names = {"cpu": "via the CPU", "gpu0": "via GPU 0"}
    names["parts"] = "in parts, added up by PyTorch"
    names["sharded"] = "reduce-scatter, all-gather"
    names["nccl"] = "NCCL's all-reduce"
    if {"nvlink_gb_s", "pcie_gb_s"} <= ceilings.keys():
        whole_ms = size / ceilings["nvlink_gb_s"] / 1e6
        limits = dict.fromkeys(names, 2 * (n - 1) / n * whole_ms)
        limits["gpu0"] = 2 * (n - 1) * whole_ms
        limits["cpu"] = 2 * size / ceilings["pcie_gb_s"] / 1e6
    groups = {}
    for name, label in names.items():
        groups[label] = {"measured": results["ms"][name]}
        if limits:
            groups[label]["the links alone"] = limits[name]
    return bars(groups, {}, "ms")


if __name__ == "__main__":
    main()
