# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [1]
# ///
"""From a Python call to a new large tensor: what each step costs the CPU."""

import time
from statistics import median

import torch

from snippets.pictures import bars
from snippets.timing.take_turns import take_turns
from snippets.timing.wait_for import wait_for

TRIALS, TENSORS = 15, 8


def cuda_malloc_us() -> list[float]:
    """Microseconds of a tensor of 64 MiB for which PyTorch has no room in its cache.

    Each trial is the mean of TENSORS of them; the first trial warms up.
    """
    trials = []
    for _ in range(TRIALS + 1):
        torch.cuda.empty_cache()
        wait_for()
        start = time.perf_counter()
        tensors = [torch.empty(2**24, device="cuda") for _ in range(TENSORS)]
        trials.append(1e6 * (time.perf_counter() - start) / TENSORS)
        del tensors
    return trials[1:]


def main() -> dict:
    on_cpu, x = torch.zeros(1), torch.zeros(1, device="cuda")
    steps = {
        "python_call": lambda: None,
        "cpu_operation": lambda: on_cpu.add_(1),
        "eager_launch": lambda: x.add_(1),
        "idle_synchronize": torch.cuda.synchronize,
        "item": x.item,
    }
    timings = take_turns(steps, trials=TRIALS, calls=300)
    trials = {name: timing.us() for name, timing in timings.items()}
    trials["cuda_malloc"] = cuda_malloc_us()
    us = {name: median(each) for name, each in trials.items()}
    for name in sorted(us, key=us.get):
        print(f"{name:<17}{us[name]:9,.2f} µs")
    return {"us": us, "us_trials": trials}


def plot(results: dict, ceilings: dict):
    labels = {"python_call": "call of a Python function"}
    labels |= {"cpu_operation": "operation on a CPU tensor"}
    labels |= {"idle_synchronize": "synchronize(), GPU idle"}
    labels |= {"eager_launch": "launch of x.add_(1)", "item": ".item(), GPU idle"}
    labels |= {"cuda_malloc": "tensor that needs cudaMalloc"}
    us = sorted(results["us"].items(), key=lambda step: step[1])
    return bars({labels.get(name, name): each for name, each in us}, {}, "µs", log=True)


if __name__ == "__main__":
    main()
