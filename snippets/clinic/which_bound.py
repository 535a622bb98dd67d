# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [1]
# take = ["bound"]
# ///
"""Launch, memory, compute, copy or none of them: what binds an operation? A judge."""

from collections.abc import Callable, Mapping
from functools import partial

import torch

from snippets.timing.benchmark import measure
from snippets.timing.kernel_time import gpu_clock, repeated
from snippets.timing.lanes import lanes

CALLS = 20


def bound(least_s: Mapping[str, float], wall_s: float, gpu_s: float) -> str:
    """What binds a call that takes `wall_s` and keeps the GPU busy for `gpu_s`.

    `least_s`: seconds that it needs at least, for "memory", "compute", "copy". It is
    "launch" if the GPU is idle for more than 30% of the call, which stands for all that
    the CPU does meanwhile, a loader or a wait, too. Else it is the largest of
    `least_s`, if that explains half of the GPU's time; and "none" if it does not: few
    SMs work, or they wait for each other, or they read more than they need. The times
    are not checked: all in seconds, none NaN. ValueError if `least_s` is empty.
    """
    if gpu_s < 0.7 * wall_s:
        return "launch"
    binds = max(least_s, key=least_s.get)  # type: ignore
    return binds if least_s[binds] >= 0.5 * gpu_s else "none"


def gpu_busy_s(work: Callable[[], object]) -> float:
    """Seconds of kernels and copies in a call, from a profile; overlaps count twice."""
    rows = lanes(repeated(work, CALLS))
    return sum(us for lane, _, us, _ in rows if "stream" in lane) / 1e6 / CALLS


def judged(
    works: Mapping[str, tuple[Callable[[], object], Mapping[str, float]]],
) -> dict:
    """What binds each of the works, by name, and the times from which that was judged.

    Each is a call and its `least_s`. All are timed before one is profiled: launches
    are slower after a profile.
    """
    walls, rows = {}, {}
    for name, (work, _) in works.items():
        walls[name] = measure(work, trials=5, calls=CALLS)
    for name, (work, least_s) in works.items():
        wall, gpu_s = walls[name], gpu_busy_s(work)
        binds = bound(least_s, wall.median, gpu_s)
        row = {"wall_us": 1e6 * wall.median, "wall_us_trials": wall.us()}
        row |= {"gpu_us": 1e6 * gpu_s, "bound": binds}
        row["least_us"] = {what: 1e6 * s for what, s in least_s.items()}
        rows[name] = row
        print(f"{name:<20}{row['wall_us']:9.1f} µs,", end=" ")
        print(f"GPU busy {gpu_s / wall.median:4.0%}, bound by {binds}")
    return rows


def measured_ceilings(n: int = 8192) -> dict[str, float]:
    """What this GPU reaches: FLOP/s by data type, bytes/s of memory and copy."""
    x, found = torch.randn(n, n, device="cuda"), {}
    for name, y in {"fp32": x, "bf16": x.bfloat16()}.items():
        found[name] = 2 * n**3 / gpu_clock(partial(torch.mm, y, y), calls=3)
    found["memory"] = 2 * x.nbytes / gpu_clock(x.clone, calls=3)
    send = partial(x.copy_, x.cpu().pin_memory(), non_blocking=True)
    return found | {"copy": x.nbytes / gpu_clock(send, calls=3)}


def main() -> dict:
    best, works = measured_ceilings(), {}
    for name, size in {"1,024 floats": 2**10, "268 million": 2**28}.items():
        x = torch.randn(size, device="cuda")
        works[name] = x.neg, {"memory": 2 * x.nbytes / best["memory"]}
    return {"rows": judged(works)}


if __name__ == "__main__":
    main()
