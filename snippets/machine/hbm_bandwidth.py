# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [1]
# gpu_gib = 23
# small = "machine/small_copy"
# ///
"""Copy and triad over the bytes that they touch: first the L2 cache, then memory."""

from functools import partial
from statistics import median

import torch

from snippets.pictures import DASHES, Rule, sweep
from snippets.timing.kernel_time import gpu_clock
from snippets.timing.take_turns import take_turns

MIB = [2, 6, 12, 24, 32, 40, 48, 64, 96, 192, 768, 3072, 8192]  # touched by one call


def copy_of(touched: int) -> partial[torch.Tensor]:
    """a = b: reads one tensor and writes one, `touched` bytes in all."""
    a, b = (torch.randn(touched // 8, device="cuda") for _ in range(2))
    return partial(a.copy_, b)


def triad_of(touched: int) -> partial[torch.Tensor]:
    """a = b + 3c: reads two tensors and writes one, `touched` bytes in all."""
    a, b, c = (torch.randn(touched // 12, device="cuda") for _ in range(3))
    return partial(torch.add, b, c, alpha=3, out=a)


def main() -> dict:
    trials = {"copy": [], "triad": []}
    for mib in MIB:
        touched = 2**20 * mib
        works = {"copy": copy_of(touched), "triad": triad_of(touched)}
        timings = take_turns(works, trials=9, clock=gpu_clock, calls=20)
        for name, timing in timings.items():
            trials[name].append([touched / 1e9 / s for s in timing.trials])
    rates = {name: [median(each) for each in rows] for name, rows in trials.items()}
    for mib, copy, triad in zip(MIB, *rates.values(), strict=True):
        print(f"{mib:5} MiB touched: copy {copy:6.0f} GB/s, triad {triad:6.0f} GB/s")
    result = {"mib": MIB, "rates_gb_s": rates, "rates_gb_s_trials": trials}
    for name in rates:
        result[f"{name}_gb_s"] = rates[name][-1]
        result[f"{name}_gb_s_trials"] = trials[name][-1]
    # a rate 1.1 times that of the memory, which is the last one, comes from the cache
    hot = [i for row in rates.values() for i, r in enumerate(row) if r >= 1.1 * row[-1]]
    if hot:
        result |= {"kept_mib": MIB[max(hot)], "lost_mib": MIB[max(hot) + 1]}
    result["l2_mib"] = torch.cuda.get_device_properties(0).L2_cache_size / 2**20
    return result


def plot(results: dict, ceilings: dict):
    limits = {}
    if "hbm_gb_s" in ceilings:
        limits["memory, ceiling"] = ceilings["hbm_gb_s"]
    labels = {"xlabel": "MiB touched by a call", "ylabel": "GB/s read and written"}
    picture = sweep(results["mib"], results["rates_gb_s"], limits, xlog=True, **labels)
    panel = picture.panels[0]
    panel.marks.append(Rule("x", results["l2_mib"], "size of the L2", DASHES[1]))
    panel.x.ticks = {mib: str(mib) for mib in results["mib"][::3]}
    return picture


if __name__ == "__main__":
    main()
