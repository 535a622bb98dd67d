# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11"]
# [tool.overlap]
# gpus = [1]
# ///
"""Run three chains of kernels in a row and side by side: how long, how late?"""

from functools import partial
from statistics import median

import torch

from snippets.timing.kernel_time import captured
from snippets.timing.lanes import lanes
from snippets.timing.take_turns import recorded, take_turns

LINKS = 40


def chains(launch, streams: list) -> None:
    """Forty launches on each of the streams, between a fork and a join."""
    main = torch.cuda.current_stream()
    for i, stream in enumerate(streams):
        stream.wait_stream(main)
        with torch.cuda.stream(stream):
            for _ in range(LINKS):
                launch(i)
    for stream in streams:
        main.wait_stream(stream)


def on_gpu(events: list[list]) -> dict[str, float]:
    """µs that kernels of a profile last, added up; µs until its last lane starts."""
    kernels = [event for event in events if event[0] != "CPU"]
    starts = {}
    for lane, start, _, _ in kernels:  # sorted by start
        starts.setdefault(lane, start)
    late = max(starts.values()) - min(starts.values())
    return {"kernel_us": sum(us for _, _, us, _ in kernels), "late_us": late}


def main() -> dict:
    x, y = torch.randn(256, 256, device="cuda"), torch.empty(3, 256, 256, device="cuda")
    kinds = {"one_block": lambda i: torch.cuda._sleep(20_000)}
    kinds["mm_256"] = lambda i: torch.mm(x, x, out=y[i])
    streams, results = [torch.cuda.Stream() for _ in y], {"links": LINKS}
    ways = {"in_a_row": streams[:1] * 3, "forked": streams}
    for kind, launch in kinds.items():
        works = {n: captured(partial(chains, launch, way)) for n, way in ways.items()}
        row = recorded(take_turns(works, trials=21, calls=5), "us")
        profiles = {n: [on_gpu(lanes(w)) for _ in range(5)] for n, w in works.items()}
        for key in ("kernel_us", "late_us"):
            trials = {n: [p[key] for p in each] for n, each in profiles.items()}
            row[f"{key}_trials"] = trials
            row[key] = {n: median(each) for n, each in trials.items()}
        results[kind] = row
        for name, us in row["us"].items():
            kernels, late = row["kernel_us"][name], row["late_us"][name]
            told = f"{us:5.0f} µs, kernels {kernels:5.0f} µs, last {late:3.0f} µs late"
            print(f"{kind:<10}{name:<9}{told}")
    return results


if __name__ == "__main__":
    main()
