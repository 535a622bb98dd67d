# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [1]
# ///
"""Fixed: the side stream waits for the main stream, and then sums what that writes."""

import torch

from snippets.timing.lanes import lanes
from snippets.timing.wait_for import wait_for

RUNS, N = 50, 4096
# products that are launched before the write
QUEUED = {"documented": 0, "amplified": 5}


def write_then_sum(queued: int, busy: torch.Tensor, x: torch.Tensor, side):
    """Write ones into x behind so many products, sum x on the side stream."""
    for _ in range(queued):
        torch.mm(busy, busy)
    x.fill_(1)
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        return x.sum()


def main() -> dict:
    x, busy = torch.zeros(100, 100, device="cuda"), torch.randn(N, N, device="cuda")
    side, results = torch.cuda.Stream(), {"runs": RUNS}
    write_then_sum(1, busy, x, side)  # the first call loads kernels, which takes long
    for form, queued in QUEUED.items():
        sums = []
        for _ in range(RUNS):
            x.zero_()
            wait_for()
            total = write_then_sum(queued, busy, x, side)
            wait_for()
            sums.append(total.item())
        wrong = sum(total != x.numel() for total in sums)
        print(f"{form:<11} {queued} products queued, wrong sums: {wrong:2} of {RUNS}")
        results[form] = {"queued": queued, "wrong": wrong, "sums": sums}
    events = lanes(lambda: write_then_sum(QUEUED["amplified"], busy, x, side))
    return results | {"events": [event for event in events if event[0] != "CPU"]}


def derive(results: dict) -> dict:
    """When the sum began, and when the write was over."""
    if "events" not in results:
        return {}
    events = results["events"]
    sums = [start for _, start, _, call in events if "reduce_kernel" in call]
    ends = [start + us for _, start, us, call in events if "elementwise_kernel" in call]
    return {"sum_begins_us": min(sums), "write_ends_us": max(ends)}


def plot(results: dict, ceilings: dict):
    from snippets.streams.race_broken import plot

    return plot(results, ceilings)


if __name__ == "__main__":
    main()
