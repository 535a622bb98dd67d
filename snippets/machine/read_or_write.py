# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [1]
# ///
"""Kernels that only read, only write, or do both: what does the memory give each?"""

from functools import partial
from statistics import median

import torch

from snippets.timing.kernel_time import gpu_clock
from snippets.timing.pictures import bars
from snippets.timing.take_turns import take_turns

TOUCHED = 2**31  # bytes that each call reads and writes in all


def works() -> dict[str, partial]:
    """Calls that touch TOUCHED bytes each, by what they do."""
    whole = torch.randn(TOUCHED // 4, device="cuda")
    written = torch.empty_like(whole)
    a, b = (torch.randn(TOUCHED // 8, device="cuda") for _ in range(2))
    x, y, z = (torch.randn(TOUCHED // 12, device="cuda") for _ in range(3))
    return {
        "read: amax": partial(torch.amax, whole),
        "read: sum": partial(torch.sum, whole),
        "write: fill_": partial(written.fill_, 1.0),
        "write: zero_": partial(written.zero_),
        "half and half: copy_": partial(a.copy_, b),
        "two reads, one write: add": partial(torch.add, y, z, alpha=3, out=x),
    }


def main() -> dict:
    timings = take_turns(works(), trials=11, clock=gpu_clock, calls=5)
    trials, gb_s = {}, {}
    for name, timing in timings.items():
        trials[name] = [TOUCHED / 1e9 / seconds for seconds in timing.trials]
        gb_s[name] = median(trials[name])
        print(f"{name:<26}{gb_s[name]:6.0f} GB/s")
    return {"gb_s": gb_s, "gb_s_trials": trials}


def plot(results: dict, ceilings: dict):
    limits = {}
    if "hbm_gb_s" in ceilings:
        limits["memory, ceiling"] = ceilings["hbm_gb_s"]
    return bars(results["gb_s"], limits, "GB/s read and written")


if __name__ == "__main__":
    main()
