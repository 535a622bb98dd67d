# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11"]
# [tool.overlap]
# gpus = [1]
# timeout = 120
# ///
"""From a Python call to the first compiled one: what each step towards the GPU costs the CPU."""

import os
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from statistics import median
from subprocess import PIPE, Popen

import torch

FIRST_CALL = """import time, torch; input()
start = time.perf_counter()
torch.ones(1, device="cuda").item()
print(1e6 * (time.perf_counter() - start))"""


def each_us(call: Callable, calls: int = 300, before: Callable = torch.cuda.init) -> list[float]:
    """Microseconds per call until the calls have returned, in 15 trials that find an idle GPU."""
    trials = []
    for _ in range(2 + 15):
        before()
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(calls):
            call()
        trials.append(1e6 * (time.perf_counter() - start) / calls)
    return trials[2:]


def first_cuda_call_us(processes: int = 3) -> list[float]:
    """The first use of the GPU, one process after the other; all have imported torch before."""
    program = [sys.executable, "-c", FIRST_CALL]
    children = [Popen(program, stdin=PIPE, stdout=PIPE) for _ in range(processes)]
    return [float(child.communicate(b"go\n")[0]) for child in children]


def first_compiled_call_us(x: torch.Tensor) -> list[float]:
    """`torch.compile` of two operations, until their result is there, with empty caches on disk."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as empty:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = empty
        start = time.perf_counter()
        torch.compile(lambda x: 2 * x + 1)(x).item()
        return [1e6 * (time.perf_counter() - start)]


def ladder() -> dict[str, list[float]]:
    """Trials in microseconds of each rung."""
    rungs = {"first_cuda_call": first_cuda_call_us(), "python_call": each_us(lambda: None)}
    on_cpu, x = torch.zeros(1), torch.zeros(1, device="cuda")
    pinned = torch.empty_like(on_cpu, pin_memory=True)

    def copy_and_wait() -> None:
        pinned.copy_(x, non_blocking=True)
        torch.cuda.synchronize()

    kept, new = [], partial(torch.empty, 64 * 2**20, dtype=torch.uint8, device="cuda")
    rungs["cpu_operation"] = each_us(lambda: on_cpu.add_(1))
    rungs["eager_launch"] = each_us(lambda: x.add_(1))
    with torch.cuda.graph(graph := torch.cuda.CUDAGraph()):
        x.add_(1)
    rungs["graph_replay"] = each_us(graph.replay)
    rungs["idle_synchronize"] = each_us(torch.cuda.synchronize)
    rungs["pinned_copy_and_wait"] = each_us(copy_and_wait)
    rungs["item"] = each_us(x.item)
    rungs["cuda_malloc"] = each_us(lambda: kept.append(new()), 50, lambda: kept.clear() or torch.cuda.empty_cache())
    return rungs | {"first_compiled_call": first_compiled_call_us(x)}


def main() -> dict:
    trials = ladder()
    us = {name: median(times) for name, times in trials.items()}
    print(*(f"{name:<22}{us[name]:14,.2f} µs" for name in sorted(us, key=us.get)), sep="\n")
    return {"us": us, "us_trials": trials}


def plot(results: dict, ceilings: dict):
    import matplotlib.pyplot as plt
    from matplotlib.ticker import EngFormatter

    figure, ax = plt.subplots()
    rungs = sorted(((us / 1e6, name) for name, us in results["us"].items()), reverse=True)
    bars = ax.barh([name.replace("_", " ") for _, name in rungs], [time for time, _ in rungs])
    ax.bar_label(bars, fmt=EngFormatter("s", places=1), padding=3)
    ax.set(xscale="log", xlim=(1e-8, 1e3), xticks=(1e-6, 1e-3, 1))
    ax.xaxis.set_major_formatter(EngFormatter("s"))
    return figure


if __name__ == "__main__":
    main()
