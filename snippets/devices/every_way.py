# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [2, 4, 8]
# timeout = 120
# ///
"""The same small products on every GPU, fed in five ways, beside one GPU fed so."""

from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial
from multiprocessing import get_context
from statistics import median

import torch

from snippets.devices.launch_bound_crossover import feed, graph_of, replay
from snippets.devices.worker_per_gpu import job, on_all, workers
from snippets.pictures import bars
from snippets.timing.take_turns import ratios, recorded, take_turns
from snippets.timing.wait_for import wait_for

N, PRODUCTS = 100, 4000
WAYS = ("loop", "threads", "processes", "graphs", "batch")


def operands(gpus: int, *shape: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """For each GPU random matrices, and room for their squares."""
    xs = [torch.randn(shape, device=i) / shape[-1] ** 0.5 for i in range(gpus)]
    return [(x, torch.zeros_like(x)) for x in xs]


def batch(stacks: list[tuple[torch.Tensor, torch.Tensor]]) -> None:
    """All products of a GPU as one batch of matrices: a single launch for each GPU."""
    for x, out in stacks:
        torch.bmm(x, x, out=out)


def prove(work, jobs: list[tuple[torch.Tensor, torch.Tensor]]) -> None:
    """Run it on emptied rooms, and compare the squares with those of float64.

    A job is two stacks of matrices; the last thousand of each are compared.
    """
    for _, out in jobs:
        out.zero_()
    wait_for()
    work()
    for x, out in jobs:
        x, out = x[-1000:].double(), out[-1000:].double()
        torch.testing.assert_close(out, x @ x, rtol=1e-4, atol=1e-4)


def compared(works: dict, gpus: int) -> dict:
    """One GPU and all of them by each way, in turns."""
    times, result, speedup = take_turns(works, warmup=1, trials=5), {}, {}
    for crowd in ("one", "all"):
        timings = {way: times[crowd, way] for way in WAYS}
        result |= {f"{crowd}_{key}": ms for key, ms in recorded(timings).items()}
    for way in WAYS:
        rounds = ratios(times["one", way], times["all", way])
        speedup[way] = [gpus * ratio for ratio in rounds]
        ms, factor = result["all_ms"][way], median(speedup[way])
        print(f"{way:<10}{ms:8.2f} ms, {factor:.2f} times one GPU's work in that time")
    result["speedup"] = {way: median(each) for way, each in speedup.items()}
    return result | {"speedup_trials": speedup}


def main() -> dict:
    gpus, works = torch.cuda.device_count(), {}
    spawn = {"mp_context": get_context("spawn")}
    pools = {"threads": workers(ThreadPoolExecutor, gpus)}
    pools["processes"] = workers(ProcessPoolExecutor, gpus, **spawn)
    jobs, stacks = operands(gpus, N, N), operands(gpus, PRODUCTS, N, N)
    graphs = [graph_of(*each, PRODUCTS) for each in jobs]
    for crowd, n in {"one": 1, "all": gpus}.items():
        works[crowd, "loop"] = partial(feed, jobs[:n], PRODUCTS)
        for kind, each in pools.items():
            works[crowd, kind] = partial(on_all, each[:n], job, N, PRODUCTS)
        works[crowd, "graphs"] = partial(replay, graphs[:n])
        works[crowd, "batch"] = partial(batch, stacks[:n])
    for way in ("loop", "graphs", "batch"):
        prove(works["all", way], stacks if way == "batch" else jobs)
    error = max(works["all", "threads"]() + works["all", "processes"]())
    result = compared(works, gpus)
    for pool in pools["threads"] + pools["processes"]:
        pool.shutdown()
    return {"visible_gpus": gpus, "products": PRODUCTS, "largest_error": error} | result


def plot(results: dict, ceilings: dict):
    one, every = results["one_ms"], results["all_ms"]
    series = {"one GPU": one, "every GPU, the same work on each": every}
    ways = {"loop": "one thread, a loop", "threads": "a thread for each GPU"}
    ways |= {"processes": "a process for each GPU", "graphs": "one thread, CUDA graphs"}
    ways["batch"] = "one thread, batches"
    groups = {
        text: {name: ms[way] for name, ms in series.items()}
        for way, text in ways.items()
    }
    return bars(groups, {}, "ms")


if __name__ == "__main__":
    main()
