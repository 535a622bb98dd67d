# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [2, 4, 8]
# timeout = 120
# missing = { 8 = "not recorded yet" }
# ///
"""A worker for each GPU, all at once, beside each of these same workers alone."""

from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial
from multiprocessing import get_context
from statistics import median
from typing import Any

import torch

from snippets.devices.worker_per_gpu import N, job, on_all, workers
from snippets.pictures import bars
from snippets.timing.benchmark import Timing
from snippets.timing.take_turns import recorded, take_turns

MATMULS = 5000


def turns(pools: list[Executor], function, *args) -> list[Any]:
    """One call in each worker, one after the other; what they returned, in order."""
    return [pool.submit(function, *args).result() for pool in pools]


def both(one: Timing, other: Timing) -> list[float]:
    """Seconds of both trials of each round."""
    return [sum(pair) for pair in zip(one.trials, other.trials, strict=True)]


def main() -> dict:
    gpus = torch.cuda.device_count()
    spawn = {"mp_context": get_context("spawn")}
    pools = {"threads": workers(ThreadPoolExecutor, gpus)}
    pools["processes"] = workers(ProcessPoolExecutor, gpus, **spawn)
    works = {}
    for kind, some in pools.items():
        # there and back, so that a pace that drifts weighs on both alike
        works[f"{kind}_in_turn"] = partial(turns, some, job, N, MATMULS)
        works[kind] = partial(on_all, some, job, N, MATMULS)
        works[f"{kind}_again"] = works[kind]
        works[f"{kind}_in_turn_again"] = works[f"{kind}_in_turn"]
    errors = [error for work in works.values() for error in work()]
    assert max(errors) <= 1e-3, errors
    times = take_turns(works, warmup=1, trials=9)
    for kind in pools:
        for pool in pools[kind]:
            pool.shutdown()
    result = recorded(times) | {"visible_gpus": gpus, "n": N, "products": MATMULS}
    result |= {"largest_error": max(errors), "speedup": {}, "speedup_trials": {}}
    for kind in pools:
        in_turn = both(times[f"{kind}_in_turn"], times[f"{kind}_in_turn_again"])
        together = both(times[kind], times[f"{kind}_again"])
        speedups = [one / other for one, other in zip(in_turn, together, strict=True)]
        result["speedup_trials"][kind] = speedups
        result["speedup"][kind] = median(speedups)
        print(f"{kind:<9} {median(speedups):.2f}× the same workers in turn")
    return result


def plot(results: dict, ceilings: dict):
    ceiling = {"number of GPUs": results["visible_gpus"]}
    label = "times as fast as the same workers one after the other"
    return bars(results["speedup"], ceiling, label)


if __name__ == "__main__":
    main()
