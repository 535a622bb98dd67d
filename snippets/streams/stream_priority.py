# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [1]
# ///
"""A small product in a hurry behind large kernels: which stream lets it through?"""

import time
from functools import partial

import torch

from snippets.pictures import bars
from snippets.timing.take_turns import recorded, take_turns
from snippets.timing.wait_for import wait_for

QUEUED = 6


def latency_s(stream: torch.cuda.Stream, work, crowd) -> float:
    """Seconds until `work`, launched as the second of seven crowds begins, is done."""
    wait_for()
    crowd()
    first_is_over = torch.cuda.current_stream().record_event()
    for _ in range(QUEUED):
        crowd()
    first_is_over.synchronize()
    start = time.perf_counter()
    with torch.cuda.stream(stream):
        work()
    stream.synchronize()
    return time.perf_counter() - start


def main() -> dict:
    numbers, x = torch.zeros(2**30, device="cuda"), torch.randn(512, 512, device="cuda")
    large, small = torch.randn(4096, 4096, device="cuda"), partial(torch.mm, x, x)
    crowds = {"idle": lambda: None, "short_blocks": partial(numbers.add_, 1)}
    crowds["long_blocks"] = partial(torch.mm, large, large)
    streams = {"urgent": torch.cuda.Stream(priority=-1), "other": torch.cuda.Stream()}
    streams["same"] = torch.cuda.current_stream()
    results = {"queued": QUEUED, "priorities": list(torch.cuda.Stream.priority_range())}
    for name, crowd in crowds.items():
        ways = {way: partial(latency_s, s, small, crowd) for way, s in streams.items()}
        timings = take_turns(ways, trials=15, clock=lambda work, calls: work())
        results[name] = recorded(timings, "ms")
        for way, ms in results[name]["ms"].items():
            print(f"{name:<13}{way:<7}{ms:8.3f} ms")
    return results


def derive(results: dict) -> dict:
    """How long products wait, in kernels that are queued: urgent, other, of short blocks."""
    long, short = results["long_blocks"]["ms"], results["short_blocks"]["ms"]
    waits = ((long, "urgent"), (long, "other"), (short, "other"))
    queued = results["queued"]
    return {"waits": [queued * ms[name] / ms["same"] for ms, name in waits]}


def plot(results: dict, ceilings: dict):
    crowds = {"idle": "idle GPU", "short_blocks": "beside\nshort blocks"}
    crowds["long_blocks"] = "beside\nlong blocks"
    ways = {"same": "the same stream", "other": "another stream"}
    ways["urgent"] = "a stream of high priority"
    rows = {}
    for crowd, name in crowds.items():
        ms = results[crowd]["ms"]
        rows[name] = {title: ms[way] for way, title in ways.items()}
    return bars(rows, {}, "ms until the small matmul is done", log=True)


if __name__ == "__main__":
    main()
