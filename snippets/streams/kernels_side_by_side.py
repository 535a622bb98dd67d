# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [1]
# ///
"""Run three chains of kernels in a row and side by side: how long, how late?"""

from functools import partial
from statistics import median
from typing import Any

import torch

from snippets.streams.when_streams_help import spread
from snippets.timing.kernel_time import captured
from snippets.timing.lanes import lanes
from snippets.timing.take_turns import recorded, take_turns


def chain(launch, i: int) -> None:
    """Forty launches, one after the other, of kernel number i."""
    for _ in range(40):
        launch(i)


def on_gpu(events: list[list[Any]]) -> dict[str, float]:
    """µs that kernels of a profile last, added up; µs until its last lane starts."""
    kernels = [event for event in events if event[0] != "CPU"]
    starts = {}
    for lane, start, _, _ in kernels:  # sorted by start
        starts.setdefault(lane, start)
    late = max(starts.values()) - min(starts.values())
    return {"kernel_us": sum(us for _, _, us, _ in kernels), "late_us": late}


def main() -> dict:
    x, y = torch.randn(256, 256, device="cuda"), torch.empty(3, 256, 256, device="cuda")
    kinds = {"one_block": partial(chain, lambda i: torch.cuda._sleep(20_000))}
    kinds["mm_256"] = partial(chain, lambda i: torch.mm(x, x, out=y[i]))
    streams, results = [torch.cuda.Stream() for _ in y], {}
    ways = {"in_a_row": streams[:1] * 3, "forked": streams}
    for kind, links in kinds.items():
        works = {n: captured(partial(spread, links, 3, way)) for n, way in ways.items()}
        row = results[kind] = recorded(take_turns(works, trials=21, calls=5), "us")
        seen = {n: [on_gpu(lanes(w)) for _ in range(5)] for n, w in works.items()}
        for key in ("kernel_us", "late_us"):
            trials = row[f"{key}_trials"] = {n: [p[key] for p in seen[n]] for n in ways}
            row[key] = {n: median(each) for n, each in trials.items()}
        for n in ways:
            us, late = row["us"][n], row["late_us"][n]
            print(f"{kind:9}  {n:8} {us:6.0f} µs, last chain {late:4.0f} µs late")
    return results


def derive(results: dict) -> dict:
    """What forking gains and costs; kernels that began most together, and least."""
    row = results["mm_256"]
    us, kernel_us = row["us"], row["kernel_us"]
    forked = {
        "three_take": 3 * us["forked"] / us["in_a_row"],
        "kernel_takes": kernel_us["forked"] / kernel_us["in_a_row"],
    }
    if "late_us_trials" not in row:
        return {"forked": forked}
    us = row["kernel_us_trials"]["forked"]
    by_late = sorted(zip(row["late_us_trials"]["forked"], us, strict=True))
    return {
        "forked": forked,
        "most_together_us": by_late[0][1],
        "least_together_us": by_late[-1][1],
        "longest_us": max(us),
        "shortest_us": min(us),
    }


if __name__ == "__main__":
    main()
