# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [1]
# ///
"""Time `empty_cache()` itself, on an idle and on a busy GPU, and what follows."""

import time
from collections.abc import Callable
from statistics import median

import torch

from snippets.pictures import sweep
from snippets.timing.take_turns import ratios, recorded, take_turns

SIZES_MIB = [256, 512, 768, 1024]
ROUNDS, CYCLES = 9, 20_000_000  # the GPU is kept busy for about 10 ms


def tensor(mib: int) -> torch.Tensor:
    """A tensor of so many MiB on the GPU, not filled: no kernel is launched."""
    return torch.empty(mib * 2**20, dtype=torch.uint8, device="cuda")


def blocked_us(call: Callable[[], object]) -> float:
    """Microseconds until the call returns; nobody is waited for."""
    start = time.perf_counter()
    call()
    return 1e6 * (time.perf_counter() - start)


def one_round(mib: int) -> dict[str, float]:
    """µs of an allocation, of the call, of the next allocation, of a call when busy"""
    tensor(mib)  # freed at once: now the cache has it
    torch.cuda.synchronize()
    us = {"cached": blocked_us(lambda: tensor(mib))}
    us["call"] = blocked_us(torch.cuda.empty_cache)
    us["next"] = blocked_us(lambda: tensor(mib))
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    torch.cuda._sleep(CYCLES)
    end.record()
    us["busy_call"] = blocked_us(torch.cuda.empty_cache)
    end.synchronize()
    return us | {"kernel": 1e3 * start.elapsed_time(end)}


def step(x: torch.Tensor) -> None:
    """Ten kernels, each with a new result of the size of `x`."""
    for _ in range(10):
        x = x + 1


def step_and_empty(x: torch.Tensor) -> None:
    step(x)
    torch.cuda.empty_cache()


def main() -> dict:
    names = list(one_round(SIZES_MIB[0]))
    rounds = [[one_round(mib) for _ in range(ROUNDS)] for mib in SIZES_MIB]
    trials = {name: [[us[name] for us in row] for row in rounds] for name in names}
    us = {name: [median(each) for each in rows] for name, rows in trials.items()}
    for i, mib in enumerate(SIZES_MIB):
        print(f"{mib:5} MiB " + ", ".join(f"{n} {us[n][i]:,.1f} µs" for n in names))
    x = torch.zeros(2**26, device="cuda")
    loops = {"plain": lambda: step(x), "emptied": lambda: step_and_empty(x)}
    timings = take_turns(loops, calls=5)
    slower = ratios(timings["emptied"], timings["plain"])
    print(f"a loop that empties at each step takes {median(slower):.2f} times as long")
    results = {"sizes_mib": SIZES_MIB, "us": us, "us_trials": trials}
    results |= {"slower": median(slower), "slower_trials": slower}
    return results | recorded(timings, "ms")


def derive(results: dict) -> dict:
    """A call while the GPU works, as shares of that work."""
    us = results["us"]
    pairs = zip(us["busy_call"], us["kernel"], strict=True)
    return {"busy_call_of_kernel": [call / kernel for call, kernel in pairs]}


def plot(results: dict, ceilings: dict):
    us = results["us"]
    labels = {"empty_cache(), GPU busy": "busy_call", "empty_cache(), GPU idle": "call"}
    labels |= {"next allocation": "next", "allocation from the cache": "cached"}
    series = {label: us[name] for label, name in labels.items()}
    kernel = {"the kernel that keeps it busy": us["kernel"]}
    axes = {"xlabel": "MiB in the cache", "ylabel": "µs"}
    return sweep(results["sizes_mib"], series, kernel, ylog=True, **axes)


if __name__ == "__main__":
    main()
