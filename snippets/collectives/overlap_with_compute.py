# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [2, 4, 8]
# timeout = 120
# launcher = "torchrun"
# ///
"""All-reduces beside matrix products: what is hidden, and what each costs the other."""

from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Any

import torch
import torch.distributed as dist

from snippets.collectives.bus_bandwidth import slowest
from snippets.pictures import timelines
from snippets.timing.lanes import lanes
from snippets.timing.take_turns import recorded, take_turns

PRODUCTS, CALLS = 10, 4  # about as long, so that most is to be gained


def products(a: torch.Tensor, out: torch.Tensor) -> None:
    """PRODUCTS times a @ a, in the current stream."""
    for _ in range(PRODUCTS):
        torch.mm(a, a, out=out)


def exchange(x: torch.Tensor, group, meanwhile: Callable[[], object]) -> None:
    """CALLS times the mean of x over all ranks, in a stream of NCCL's own.

    Meanwhile there is work in the current stream, which waits for NCCL last.
    """
    options = {"op": dist.ReduceOp.AVG, "group": group, "async_op": True}
    works = [dist.all_reduce(x, **options) for _ in range(CALLS)]
    meanwhile()
    for work in works:
        work.wait()


def busy(events: list[list[Any]]) -> dict[str, float]:
    """Milliseconds in which the GPU runs all-reduces, and products."""
    ms = {"all_reduce": 0.0, "products": 0.0}
    for _, _, us, name in (event for event in events if "stream" in event[0]):
        ms["all_reduce" if "nccl" in name.lower() else "products"] += us / 1e3
    return ms


def main() -> dict:
    dist.init_process_group("gloo")  # a rank that waits in NCCL keeps its GPU spinning
    rank, ranks = dist.get_rank(), dist.get_world_size()
    torch.cuda.set_device(rank)  # on one node; else LOCAL_RANK
    group, timelines = dist.new_group(backend="nccl"), {}
    x = torch.full((2**28,), rank + 1.0, device="cuda")  # 1 GiB
    a = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
    out = torch.zeros_like(a)
    compute, send = partial(products, a, out), partial(exchange, x, group)
    works = {"all_reduce": partial(send, int), "products": compute}
    works["in_turn"] = lambda: (works["all_reduce"](), compute())
    works["together"] = partial(send, compute)
    works["together"]()
    assert x.eq((ranks + 1) / 2).all()
    torch.testing.assert_close(out, a @ a)
    times = take_turns(works, trials=9, rest_s=0.03, clock=slowest)
    result = recorded(times) | {"busy_ms": {}, "busy_ms_trials": {}}
    for way in ("in_turn", "together"):
        profiles = [lanes(partial(slowest, works[way], 1)) for _ in range(5)]
        timelines[way], each = profiles[-1], [busy(events) for events in profiles]
        trials = {part: [ms[part] for ms in each] for part in each[0]}
        result["busy_ms_trials"][way] = trials
        result["busy_ms"][way] = {part: median(ms) for part, ms in trials.items()}
    dist.destroy_process_group()
    for name, timing in times.items() if rank == 0 else ():
        print(f"{name:<11} {1e3 * timing.median:6.2f} ms")
    return result | {"ranks": ranks, "timelines": timelines}


def plot(results: dict, ceilings: dict):
    titles = {"in_turn": "one after the other", "together": "together"}
    panels = {title: [] for title in titles.values()}
    for name, title in titles.items():
        for lane, start, us, call in results["timelines"][name]:
            if "stream" in lane:
                lane = "all-reduces" if "nccl" in call.lower() else "matmuls"
            elif "Synchronize" in call:
                lane = "CPU waits"
            panels[title].append([lane, start / 1e3, us / 1e3, call])
    picture = timelines(panels, "ms")
    picture.opens = 1  # "together"
    return picture


if __name__ == "__main__":
    main()
