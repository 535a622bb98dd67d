# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [2, 4, 8]
# timeout = 300
# missing = { 8 = "not recorded yet" }
# ///
"""More launches than a queue holds, all for one GPU first: the next GPU comes late."""

import time
from functools import partial
from statistics import median

import torch

from snippets.pictures import bars
from snippets.timing.take_turns import recorded, take_turns
from snippets.timing.wait_for import wait_for

CALLS, FEWER, BLOCK = 5_000, 2_000, 500
#: Rows by GPU count: a kernel takes longer than a launch for each GPU
SIDES = {2: 1024, 4: 1280, 8: 1536}


def in_blocks(
    jobs: list[tuple[torch.Tensor, torch.Tensor]], block: int, calls: int
) -> None:
    """Launch `block` matmuls for each GPU in turn until each has `calls`.

    A job is x and the room for x @ x. A block of 1 alternates between the GPUs; one of
    `calls` launches all that a GPU has to do, then all for the next.
    """
    for begin in range(0, calls, block):
        for x, out in jobs:
            for _ in range(begin, min(begin + block, calls)):
                torch.mm(x, x, out=out)


def accepted(job: tuple, launches: int = 1_500) -> int:
    """How many matmuls a busy GPU takes into its queue before a launch must wait.

    The job is on the current GPU.
    """
    torch.cuda._sleep(400_000_000)  # cycles: about 200 ms, longer than the launches
    longest, at = 0.0, 0
    for i in range(launches):
        start = time.perf_counter()
        in_blocks([job], 1, 1)
        seconds = time.perf_counter() - start
        if seconds > longest:
            longest, at = seconds, i
    wait_for()
    return at


def predicted(gpus: int, calls: int, queue: int) -> float:
    """Speed-up over taking turns, if each GPU but the first begins when all but `queue`

    matmuls of the one before it are done, and kernels outlast their launches.
    """
    late = max(0, calls - queue)
    return gpus * calls / ((gpus - 1) * late + calls)


def prove(work, jobs: list[tuple[torch.Tensor, torch.Tensor]]) -> None:
    """Empty the rooms, run it, and compare the squares with those of float64."""
    for _, out in jobs:
        out.zero_()
    wait_for()
    work()
    for x, out in jobs:
        expected = x.double() @ x.double()
        torch.testing.assert_close(out.double(), expected, rtol=1e-3, atol=1e-3)


def main() -> dict:
    gpus = torch.cuda.device_count()
    n = SIDES.get(gpus, 1536)
    xs = [torch.randn(n, n, device=f"cuda:{i}") / n**0.5 for i in range(gpus)]
    jobs = [(x, torch.zeros_like(x)) for x in xs]
    orders = {"one_gpu_first": (CALLS, CALLS), "blocks": (BLOCK, CALLS)}
    orders |= {"alternating": (1, CALLS), "fewer_one_gpu_first": (FEWER, FEWER)}
    works = {}
    for calls in (CALLS, FEWER):
        for i in range(gpus):
            works[calls, i] = partial(in_blocks, [jobs[i]], calls, calls)
    for name, how in orders.items():
        works[name] = partial(in_blocks, jobs, *how)
        prove(works[name], jobs)
    queue = [accepted(jobs[0]) for _ in range(5)]
    times = take_turns(works, warmup=0, trials=5)
    result = recorded({name: times[name] for name in orders})
    result |= {"visible_gpus": gpus, "n": n, "calls": CALLS, "fewer": FEWER}
    result |= {"block": BLOCK, "accepted": median(queue), "accepted_trials": queue}
    for key in ("predicted", "speedup", "speedup_trials"):
        result[key] = {}
    for name, (block, calls) in orders.items():
        alone = zip(*(times[calls, i].trials for i in range(gpus)), strict=True)
        pairs = zip(alone, times[name].trials, strict=True)
        speedups = [sum(each) / together for each, together in pairs]
        result["speedup_trials"][name] = speedups
        result["speedup"][name] = median(speedups)
        if block == calls:
            result["predicted"][name] = predicted(gpus, calls, result["accepted"])
        says = result["predicted"].get(name, gpus)
        print(f"{name:20} {median(speedups):.3f}× taking turns, predicted {says:.3f}")
    return result


def derive(results: dict) -> dict:
    """How far the gain of one GPU first is from what was predicted."""
    gains = results["predicted"].items()
    return {
        "off": {way: abs(results["speedup"][way] / gain - 1) for way, gain in gains}
    }


def plot(results: dict, ceilings: dict):
    calls, fewer = results["calls"], results["fewer"]
    names = {"one_gpu_first": f"all {calls:,} for one GPU first"}
    names["fewer_one_gpu_first"] = f"all {fewer:,} for one GPU first"
    names["blocks"] = f"{calls:,} in blocks of {results['block']}"
    names["alternating"] = f"{calls:,}, alternating"
    groups = {}
    for name, label in names.items():
        groups[label] = {"measured": results["speedup"][name]}
        if name in results["predicted"]:
            groups[label]["by the formula"] = results["predicted"][name]
    limits = {"number of GPUs": results["visible_gpus"]}
    return bars(groups, limits, "times as fast as taking turns")


if __name__ == "__main__":
    main()
