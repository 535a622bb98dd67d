# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [1]
# ///
"""D2L's increments, with a wait in each step or one at the end, over their size."""

from functools import partial
from statistics import median

import torch

from snippets.pictures import stacked
from snippets.timing.kernel_time import gpu_clock
from snippets.timing.take_turns import ratios, take_turns

ELEMENTS = (1, 2**20, 2**22, 2**24, 2**25)  # of a float32 tensor


def increment(x: torch.Tensor, wait: bool) -> torch.Tensor:
    """One step of the loop: y = x + 1; with `wait`, the CPU waits for it."""
    y = x + 1
    if wait:
        torch.cuda.synchronize()
    return y


def predicted(us: dict[str, list[float]]) -> dict[str, list[float]]:
    """A step in µs from the GPU's time t2 alone; the constants are of the end sizes.

    Without waits: the longer of launch and kernel. With waits: what comes before and
    after the kernel, and the longer of the kernel and what the CPU does beside it.
    """
    around = us["wait"][-1] - us["gpu"][-1]
    beside = us["wait"][0] - around
    ahead = [max(us["ahead"][0], t2) for t2 in us["gpu"]]
    return {"ahead": ahead, "wait": [around + max(beside, t2) for t2 in us["gpu"]]}


def main() -> dict:
    xs = {n: torch.randn(n, device="cuda") for n in ELEMENTS}
    works = {f"wait {n}": partial(increment, x, wait=True) for n, x in xs.items()}
    works |= {f"ahead {n}": partial(increment, x, wait=False) for n, x in xs.items()}
    times = take_turns(works, trials=11, calls=500)
    works = {f"gpu {n}": partial(increment, x, wait=False) for n, x in xs.items()}
    times |= take_turns(works, trials=11, calls=100, clock=gpu_clock)
    trials = {}
    for way in ("gpu", "wait", "ahead"):
        trials[way] = [times[f"{way} {n}"].us() for n in ELEMENTS]
    us = {way: [median(each) for each in rows] for way, rows in trials.items()}
    for n, *row in zip(ELEMENTS, *us.values(), strict=True):
        print("{:>10,}: GPU {:5.1f} µs, waiting {:6.1f}, not {:6.1f}".format(n, *row))
    slower = ratios(times["wait 1"], times["ahead 1"])
    result = {"elements": ELEMENTS, "us": us, "us_trials": trials}
    return result | {"model_us": predicted(us), "slowdown_trials": slower}


def derive(results: dict) -> dict:
    """By size: waiting beside running ahead, this beside the GPU, and the model."""
    us, model = results["us"], results["model_us"]
    ahead, wait, gpu = us["ahead"], us["wait"], us["gpu"]
    pairs = {
        "wait_of_ahead": (wait, ahead),
        "ahead_of_gpu": (ahead, gpu),
        "model_of_ahead": (model["ahead"], ahead),
        "model_of_wait": (model["wait"], wait),
    }
    ratios = {n: [a / b for a, b in zip(*p, strict=True)] for n, p in pairs.items()}
    off = {
        name: [abs(ratio - 1) for ratio in ratios[name]]
        for name in ("ahead_of_gpu", "model_of_ahead", "model_of_wait")
    }
    adds = [whole - part for whole, part in zip(wait, gpu, strict=True)]
    return {"wait_of_ahead": ratios["wait_of_ahead"], "off": off, "wait_adds_us": adds}


def plot(results: dict, ceilings: dict):
    us = results["us"]
    names = [f"{4 * n >> 20} MiB" if n > 1 else "1 number" for n in results["elements"]]
    ahead = dict(zip(names, us["ahead"], strict=True))
    more = [max(0.0, w - a) for w, a in zip(us["wait"], us["ahead"], strict=True)]
    parts = {"without a wait": ahead}
    parts["more, if Python waits"] = dict(zip(names, more, strict=True))
    picture = stacked(parts, "µs for a step")
    loop, wait = picture.panels[0].marks[:2]
    loop.color = "muted"  # of Python or of the GPU: the slower one
    wait.color = "gpu"  # for which Python waits
    return picture


if __name__ == "__main__":
    main()
