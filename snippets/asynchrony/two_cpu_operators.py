# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [0]
# ///
"""Run an operator of the CPU twice, side by side: is that faster than in turn?"""

import time
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import partial
from statistics import median

import torch

from snippets.timing.take_turns import ratios, recorded, take_turns

N, ELEMENTS, TRIALS = 1024, 5_000_000, 15


def in_turn(operator: Callable[[], object]) -> None:
    """Call it twice, one after the other."""
    operator()
    operator()


def side_by_side(pool: Executor, operator: Callable[[], object]) -> None:
    """Call it in two Python threads at once: PyTorch gives up the lock inside."""
    for job in [pool.submit(operator) for _ in range(2)]:
        job.result()


def busy_cores(operator: Callable[[], object]) -> float:
    """How many cores one call keeps busy: CPU time over time."""
    cpu, start = time.process_time(), time.perf_counter()
    operator()
    return (time.process_time() - cpu) / (time.perf_counter() - start)


def main() -> dict:
    a, values = torch.randn(N, N), torch.randn(ELEMENTS)
    operators = {
        "matmul": partial(torch.mm, a, a),
        "cumsum": partial(torch.cumsum, values, 0),
    }
    results = {"threads": torch.get_num_threads()}
    for key in ("busy_cores", "busy_cores_trials", "speedup", "speedup_trials"):
        results[key] = {}
    with ThreadPoolExecutor(2) as pool:
        for name, operator in operators.items():
            works = {
                "in turn": partial(in_turn, operator),
                "side by side": partial(side_by_side, pool, operator),
            }
            times = take_turns(works, trials=TRIALS)
            faster = ratios(times["in turn"], times["side by side"])
            cores = [busy_cores(operator) for _ in range(TRIALS)]
            results["busy_cores"][name] = median(cores)
            results["busy_cores_trials"][name] = cores
            results["speedup"][name] = median(faster)
            results["speedup_trials"][name] = faster
            results[name] = recorded(times)
            print(f"{name:8} keeps {median(cores):.2f} cores busy;", end=" ")
            print(f"two side by side: {median(faster):.2f} times as fast as in turn")
    return results


if __name__ == "__main__":
    main()
