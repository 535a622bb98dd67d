# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [2, 4, 8]
# timeout = 120
# launcher = "torchrun"
# missing = { 8 = "not recorded yet" }
# ///
"""Twenty all-reduces, launched one by one or as one CUDA graph: launch or wire?"""

import os
import time
from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Any

import torch
import torch.distributed as dist

from snippets.collectives.bus_bandwidth import slowest
from snippets.pictures import sizes, sweep
from snippets.timing.take_turns import take_turns

SIZES = [2**k for k in range(10, 25, 2)]  # bytes
CALLS, TRIALS, SPIN_CYCLES = 20, 9, 20_000_000


def meet() -> dist.ProcessGroup:
    """Join the other ranks in gloo, in which nobody spins; a group of NCCL's, too.

    A rank takes the GPU of its local rank, so that several machines will do.
    """
    dist.init_process_group("gloo")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    return dist.new_group(backend="nccl")


def all_reduces(x: torch.Tensor, group: dist.ProcessGroup | None) -> None:
    """CALLS times the sum of x over all ranks, in place, in the current stream."""
    for _ in range(CALLS):
        dist.all_reduce(x, group=group)


def captured(work: Callable[..., Any]) -> torch.cuda.CUDAGraph:
    """The collectives of `work` as a graph; all ranks capture it, and replay it alike.

    `work` runs once before it is captured: a sum in place has then been taken. Let go
    of the graph before you destroy the process group: NCCL waits for that.
    """
    graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        work()  # what NCCL does only once must not be captured
    stream.synchronize()
    # "thread_local": other threads, such as NCCL's watchdog, may go on calling CUDA
    with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
        work()
    return graph


def prove(work: Callable[..., Any], x: torch.Tensor) -> None:
    """Give each rank its number + 1, and compare what `work` leaves in x."""
    ranks = dist.get_world_size()
    x.fill_(dist.get_rank() + 1)
    work()
    expected = ranks * (ranks + 1) // 2 * float(ranks) ** (CALLS - 1)
    torch.testing.assert_close(x, torch.full_like(x, expected), rtol=0, atol=0)
    x.zero_()  # sums of zeros never overflow


def launch_and_gpu(
    work: Callable[..., Any], x: torch.Tensor, group
) -> tuple[float, float]:
    """Seconds of the CPU that launches `work`, and of the GPU that does it afterwards.

    Of the slowest rank each. All GPUs spin until everything is launched; an all-reduce
    of x between the spin and the clock lets them begin together.
    """
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    told = [(False, 0.0, 0.0)] * dist.get_world_size()
    for attempt in range(4):
        dist.barrier()
        torch.cuda._sleep(SPIN_CYCLES * 2**attempt)
        dist.all_reduce(x, group=group)
        start.record()
        began = time.perf_counter()
        work()
        launched = time.perf_counter() - began
        end.record()
        in_time = not start.query()
        end.synchronize()
        dist.all_gather_object(told, (in_time, launched, start.elapsed_time(end) / 1e3))
        if all(row[0] for row in told):
            return max(row[1] for row in told), max(row[2] for row in told)
    raise RuntimeError("a GPU overtook its launches")


def microseconds(rows: list[list[float]]) -> dict[str, list[Any]]:
    """Medians and trials of one call in µs, of the seconds that CALLS of them took."""
    trials = [[1e6 * seconds / CALLS for seconds in row] for row in rows]
    return {"us": [median(row) for row in trials], "us_trials": trials}


def measured(
    ways: dict[str, list[Callable[..., Any]]], xs: list[torch.Tensor], group
) -> dict:
    """By way: µs of a call with one wait after all of them, of its launch, on the GPU.

    Each way has a work for each size.
    """
    works = {(way, i): w for way, row in ways.items() for i, w in enumerate(row)}
    times = take_turns(works, trials=TRIALS, clock=slowest)
    split = {key: [] for key in works}
    for _ in range(TRIALS):
        for (way, i), work in works.items():
            split[way, i].append(launch_and_gpu(work, xs[i], group))
    result = {}
    for way, row in ways.items():
        keys = [(way, i) for i in range(len(row))]
        result[way] = microseconds([times[key].trials for key in keys])
        for place, name in enumerate(("launch", "gpu")):
            seconds = [[trial[place] for trial in split[key]] for key in keys]
            result[way][name] = microseconds(seconds)
    return result


def both(xs: list[torch.Tensor], group) -> dict:
    """Eager first, while no graph exists; then graphs, with eager beside them."""
    eager = [partial(all_reduces, x, group) for x in xs]
    for work, x in zip(eager, xs, strict=True):
        prove(work, x)
    result = measured({"eager": eager}, xs, group)
    graphs = [captured(work).replay for work in eager]
    for work, x in zip(graphs, xs, strict=True):
        prove(work, x)
    return result | measured({"graph": graphs, "eager_beside_graphs": eager}, xs, group)


def main() -> dict:
    group = meet()
    x = torch.zeros(SIZES[-1] // 4, device="cuda")
    result = both([x[: size // 4] for size in SIZES], group)  # its graphs end with it
    if dist.get_rank() == 0:
        for i, size in enumerate(SIZES):
            one, other = result["eager"]["us"][i], result["graph"]["us"][i]
            print(f"{size // 2**10:6,} KiB: {one:6.1f} µs, captured {other:6.1f} µs")
    ranks = dist.get_world_size()
    dist.destroy_process_group()
    return {"ranks": ranks, "calls": CALLS, "bytes": SIZES} | result


def derive(results: dict) -> dict:
    """For each size shares of times; of the smallest, what graphs beside it change."""
    eager, graph = results["eager"], results["graph"]
    pairs = {
        "launch_of_call": (eager["launch"]["us"], eager["us"]),
        "gpu_of_launch": (eager["gpu"]["us"], eager["launch"]["us"]),
        "graph_of_call": (graph["us"], eager["us"]),
    }
    shares = {
        name: [part / whole for part, whole in zip(*both, strict=True)]
        for name, both in pairs.items()
    }
    beside = results["eager_beside_graphs"]
    gpu_us = [beside["gpu"]["us"][0], eager["gpu"]["us"][0]]
    shares["beside_graphs"] = {
        "call": beside["us"][0] / eager["us"][0],
        "gpu_differs": max(gpu_us) / min(gpu_us),
    }
    return shares


def plot(results: dict, ceilings: dict):
    kib = [size // 2**10 for size in results["bytes"]]
    lines = {"launched one by one": results["eager"]["us"]}
    lines["captured in a CUDA graph"] = results["graph"]["us"]
    limits = {}
    if "nvlink_gb_s" in ceilings:
        n, gb_s = results["ranks"], ceilings["nvlink_gb_s"]
        us = [2 * (n - 1) / n * size / gb_s / 1e3 for size in results["bytes"]]
        shown = [each if each >= 0.5 else float("nan") for each in us]
        limits["its bytes at NVLink's rate"] = shown
    labels = {"xlabel": "size of the tensor", "ylabel": "µs for an all-reduce"}
    picture = sweep(kib, lines, limits, xlog=True, ylog=True, **labels)
    panel = picture.panels[0]
    panel.x.ticks = sizes(kib)
    panel.y.low = 0.5
    return picture


if __name__ == "__main__":
    main()
