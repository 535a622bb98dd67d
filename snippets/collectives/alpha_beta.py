# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [2, 4, 8]
# timeout = 120
# launcher = "torchrun"
# ///
"""Is an all-reduce α + bytes / β? A straight line through its times, and its error."""

from functools import partial
from statistics import median

import numpy
import torch
import torch.distributed as dist

from snippets.collectives.bus_bandwidth import slowest
from snippets.pictures import sizes, sweep
from snippets.timing.take_turns import take_turns

SIZES = [2**k for k in range(14, 31)]


def line(sizes: list[int], seconds: list[float]) -> tuple[float, float]:
    """α in s, β in bytes/s: the α + bytes / β with the least relative errors."""
    per_byte, alpha = numpy.polyfit(sizes, seconds, 1, w=1 / numpy.array(seconds))
    return float(alpha), float(1 / per_byte)


def main() -> dict:
    dist.init_process_group("gloo")  # a rank that waits in NCCL keeps its GPU spinning
    torch.cuda.set_device(dist.get_rank())  # on one node; else LOCAL_RANK
    group, works = dist.new_group(backend="nccl"), {}
    x = torch.zeros(SIZES[-1] // 4, device="cuda")  # sums of zeros never overflow
    for size in SIZES:
        works[size] = partial(dist.all_reduce, x[: size // 4], group=group)
    times = take_turns(works, trials=9, calls=8, clock=slowest)
    dist.destroy_process_group()
    rounds = list(zip(*(times[size].trials for size in SIZES), strict=True))
    alphas, betas = zip(*(line(SIZES, seconds) for seconds in rounds), strict=True)
    alpha, beta = median(alphas), median(betas)
    result = {"bytes": SIZES, "us": [], "us_trials": [], "off": [], "off_trials": []}
    for size, timing in times.items():
        says = alpha + size / beta
        result["us"].append(1e6 * timing.median)
        result["us_trials"].append(timing.us())
        result["off"].append(says / timing.median - 1)
        result["off_trials"].append([says / s - 1 for s in timing.trials])
    if torch.cuda.current_device() == 0:
        print(f"α {1e6 * alpha:.1f} µs, β {beta / 1e9:.1f} GB/s")
        for size, off in zip(SIZES, result["off"], strict=True):
            print(f"{size // 2**10:>9,} KiB: the line is off by {off:+.0%}")
    result |= {"alpha_us": 1e6 * alpha, "alpha_us_trials": [1e6 * a for a in alphas]}
    return result | {"gb_s": beta / 1e9, "gb_s_trials": [b / 1e9 for b in betas]}


def derive(results: dict) -> dict:
    """How far the line is off for large sizes, and where most but for the first."""
    pairs = list(zip(results["bytes"], results["off"], strict=True))
    worst = max(pairs[1:], key=lambda pair: abs(pair[1]))
    large = [abs(off) for size, off in pairs if size >= 2**27]
    return {"off_large": max(large), "worst_bytes": worst[0]}


def plot(results: dict, ceilings: dict):
    alpha, beta = results["alpha_us"], results["gb_s"]
    says = [alpha + size / beta / 1e3 for size in results["bytes"]]
    kib = [size // 2**10 for size in results["bytes"]]
    lines, model = {"measured": results["us"]}, {"the line: α + bytes / β": says}
    labels = {"xlabel": "size of the tensor", "ylabel": "µs for an all-reduce"}
    picture = sweep(kib, lines, model, xlog=True, ylog=True, **labels)
    picture.panels[0].x.ticks = sizes(kib[::4])
    return picture


if __name__ == "__main__":
    main()
