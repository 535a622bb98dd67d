# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11"]
# [tool.overlap]
# gpus = [1]
# ///
"""A small product in a hurry behind large kernels: which stream lets it through?"""

import time
from functools import partial

import torch

from snippets.timing.take_turns import recorded, take_turns
from snippets.timing.wait_for import wait_for

QUEUED = 6


def fill(crowd) -> None:
    """Queue large kernels, and return when the second one has just begun."""
    crowd()
    first_is_over = torch.cuda.current_stream().record_event()
    for _ in range(QUEUED):
        crowd()
    first_is_over.synchronize()


def latency_s(stream: torch.cuda.Stream, work, crowd) -> float:
    """Seconds from the launch of work on this stream until it is done."""
    wait_for()
    if crowd is not None:
        fill(crowd)
    start = time.perf_counter()
    with torch.cuda.stream(stream):
        work()
    stream.synchronize()
    return time.perf_counter() - start


def main() -> dict:
    numbers, large = (
        torch.zeros(2**30, device="cuda"),
        torch.randn(4096, 4096, device="cuda"),
    )
    room, x = torch.empty_like(large), torch.randn(512, 512, device="cuda")
    product = torch.empty_like(x)
    crowds = {
        "short_blocks": partial(numbers.add_, 1),
        "long_blocks": partial(torch.mm, large, large, out=room),
    }
    side, urgent = torch.cuda.Stream(), torch.cuda.Stream(priority=-1)
    small = partial(torch.mm, x, x, out=product)
    priorities = list(torch.cuda.Stream.priority_range())
    results = {"queued": QUEUED, "priorities": priorities}
    for name, crowd in crowds.items():
        ways = {
            "idle": partial(latency_s, side, small, None),
            "urgent": partial(latency_s, urgent, small, crowd),
            "other": partial(latency_s, side, small, crowd),
            "same": partial(latency_s, torch.cuda.current_stream(), small, crowd),
        }
        timings = take_turns(ways, trials=15, clock=lambda work, calls: work())
        results[name] = recorded(timings, "ms")
        for way, ms in results[name]["ms"].items():
            print(f"{name:<13}{way:<7}{ms:8.3f} ms")
    torch.testing.assert_close(product, x @ x)
    return results


def plot(results: dict, ceilings: dict):
    from snippets.timing.pictures import bars

    rows = {way: {} for way in ("idle", "urgent", "other", "same")}
    for name in ("short_blocks", "long_blocks"):
        for way, row in rows.items():
            row[f"beside {name.replace('_', ' ')}"] = results[name]["ms"][way]
    return bars(rows, {}, "ms", log=True)


if __name__ == "__main__":
    main()
