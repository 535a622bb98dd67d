# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [2, 4, 8]
# timeout = 120
# launcher = "torchrun"
# ///
"""Five collectives from 16 KiB to 1 GiB, by the bytes that the busiest link carries."""

from collections.abc import Callable
from functools import partial
from statistics import median

import torch
import torch.distributed as dist

from snippets.collectives.collectives_zoo import all_gather, reduce_scatter
from snippets.pictures import over_sizes
from snippets.timing.benchmark import wall_clock
from snippets.timing.take_turns import take_turns

SIZES = [2**k for k in range(14, 31, 2)]


def slowest(work: Callable[[], object], calls: int) -> float:
    """Seconds of one call in the slowest rank; all begin together."""
    each = [0.0] * dist.get_world_size()
    dist.barrier()
    dist.all_gather_object(each, wall_clock(work, calls))
    return max(each)


def five(x: torch.Tensor, y: torch.Tensor, group) -> dict[str, tuple]:
    """Five collectives by name: what leaves a rank, the call, where it writes, and what.

    First are the bytes that leave the busiest rank for each byte of x. Last is what the
    call writes if each rank fills x with its number + 1. x and y have one dimension, of
    a length that the ranks divide; all ranks are in `group`.
    """
    g, rank, n = {"group": group}, dist.get_rank(), dist.get_world_size()
    mine, ours = x.chunk(n)[rank], y.chunk(n)[rank]
    part, total = (n - 1) / n, n * (n + 1) // 2
    ramp = torch.arange(1, n + 1, device=x.device).repeat_interleave(len(x) // n)
    return {
        "all_reduce": (2 * part, partial(dist.all_reduce, x, **g), x, total),
        "all_gather": (part, partial(all_gather, y, mine, **g), y, ramp),
        "reduce_scatter": (part, partial(reduce_scatter, ours, x, **g), ours, total),
        "broadcast": (1.0, partial(dist.broadcast, x, 0, **g), x, 1),
        "all_to_all": (part, partial(dist.all_to_all_single, y, x, **g), y, ramp),
    }


def main() -> dict:
    dist.init_process_group("gloo")  # a rank that waits in NCCL keeps its GPU spinning
    torch.cuda.set_device(dist.get_rank())  # on one node; else LOCAL_RANK
    group, trials = dist.new_group(backend="nccl"), {}
    buffers = torch.empty(2, SIZES[-1] // 4, dtype=torch.int32, device="cuda")
    for size in SIZES:
        x, y = buffers[:, : size // 4]
        factors, works = {}, {}
        for name, (factor, work, written, expected) in five(x, y, group).items():
            x.fill_(dist.get_rank() + 1)
            work()
            assert written.eq(expected).all(), name
            factors[name], works[name] = factor, work
        calls = 20 if size < 2**24 else 4
        for name, timing in take_turns(works, 2, 9, calls, clock=slowest).items():
            rates = [factors[name] * size / s / 1e9 for s in timing.trials]
            trials.setdefault(name, []).append(rates)
    gb_s = {name: [median(each) for each in rows] for name, rows in trials.items()}
    for name, rates in gb_s.items() if dist.get_rank() == 0 else ():
        print(f"{name:<15}", *(f"{rate:7.2f}" for rate in rates), "GB/s")
    dist.destroy_process_group()
    return {"bytes": SIZES, "gb_s": gb_s, "gb_s_trials": trials}


def derive(results: dict) -> dict:
    """The highest rate but the all-reduce's; its rates beside a broadcast's."""
    others = [
        max(rates) for name, rates in results["gb_s"].items() if name != "all_reduce"
    ]
    pairs = list(
        zip(results["gb_s"]["all_reduce"], results["gb_s"]["broadcast"], strict=True)
    )
    return {
        "most_gb_s_of_others": max(others),
        "of_broadcast": [pairs[size][0] / pairs[size][1] for size in (0, 2)],
    }


def plot(results: dict, ceilings: dict):
    lines = {name.replace("_", "-"): rates for name, rates in results["gb_s"].items()}
    limits = {}
    if "nvlink_gb_s" in ceilings:
        limits["NVLink, one way"] = ceilings["nvlink_gb_s"]
    kib = [size // 2**10 for size in results["bytes"]]
    labels = {"xlabel": "size of the tensor", "ylabel": "bus bandwidth, GB/s"}
    alone = over_sizes(kib, {"all-reduce": lines["all-reduce"]}, limits, **labels)
    picture = over_sizes(kib, lines, limits, **labels)
    dashes = iter(("1 2", "6 2 1 2", "2 4", "9 3"))
    for line in picture.panels[0].marks:
        if line.name == "all-reduce":
            line.color = 1
        elif line.name in lines:
            line.color, line.dots, line.dash = "muted", False, next(dashes)
    return picture, {"all_reduce": alone}


if __name__ == "__main__":
    main()
