# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [0, 1]
# take = ["take_turns"]
# ///
"""Compare ways of doing the same: let them take turns, and compare round by round."""

import time
from collections.abc import Callable, Mapping
from statistics import median
from typing import Any

import torch

from snippets.timing.benchmark import Timing, measure, wall_clock

PER_SECOND = {"s": 1, "ms": 1e3, "us": 1e6}


def take_turns(
    works: Mapping[str, Callable[[], object]],
    warmup: int = 2,
    trials: int = 11,
    calls: int = 1,
    rest_s: float = 0.0,
    clock: Callable[[Callable[[], object], int], float] = wall_clock,
) -> dict[str, Timing]:
    """Time one trial of each in turn, so that what disturbs one disturbs all alike.

    `clock(work, calls)` gives the mean seconds of one of so many calls; `rest_s` passes
    before each trial. The first `warmup` rounds are not kept. What a work raises ends
    all. Ask for one trial and one call at least: a `Timing` without trials has no
    median (StatisticsError), and no call no mean (ZeroDivisionError). The default clock
    waits for every GPU in use, and for no coroutine or generator: hand over a function
    that does its work before it returns.
    """
    seconds: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(warmup + trials):
        for name, work in works.items():
            time.sleep(rest_s)
            seconds[name].append(clock(work, calls))
    return {name: Timing(each[warmup:]) for name, each in seconds.items()}


def both_orders(
    works: Mapping[str, Callable[[], object]], **how: Any
) -> dict[str, Timing]:
    """Take turns forwards and then backwards: nothing always follows the same other."""
    there = take_turns(works, **how)
    back = take_turns(dict(reversed(works.items())), **how)
    return {name: Timing(there[name].trials + back[name].trials) for name in works}


def ratios(slow: Timing, fast: Timing) -> list[float]:
    """How many times as long `slow` took, round by round."""
    pairs = zip(slow.trials, fast.trials, strict=True)
    return [one / other for one, other in pairs]


def recorded(
    timings: Mapping[str, Timing], unit: str = "ms"
) -> dict[str, dict[str, Any]]:
    """Medians and trials by name, in s, ms or us, under the keys that the book uses."""
    times = PER_SECOND[unit]
    trials = {name: [times * s for s in t.trials] for name, t in timings.items()}
    medians = {name: median(each) for name, each in trials.items()}
    return {unit: medians, f"{unit}_trials": trials}


def main() -> dict:
    device, n = ("cuda", 4096) if torch.cuda.is_available() else ("cpu", 512)
    x = torch.randn(n, n, device=device)

    def product() -> None:
        torch.mm(x, x)

    works = {"a": product, "b": product}  # the same work under two names
    apart = {name: measure(work, trials=21, calls=4) for name, work in works.items()}
    turns = take_turns(works, trials=21, calls=4)
    result = {"apart": recorded(apart), "turns": recorded(turns)}
    for name, timings in {"apart": apart, "turns": turns}.items():
        each = ratios(timings["a"], timings["b"])
        print(f"{name}: a takes {median(each):.4f} times as long as b")
        result[name] |= {"ratio": median(each), "ratio_trials": each}
    return result


if __name__ == "__main__":
    main()
