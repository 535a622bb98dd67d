# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [1]
# ///
"""Fixed: matmuls in one stream, copies in another, each behind its own matmul."""

from itertools import cycle

import torch
from torch import Tensor

from snippets.pictures import timelines
from snippets.transfers.overlap_copy_compute_broken import compared


def together(x: Tensor, landing: list[Tensor], rounds: int) -> None:
    """Each copy in a second stream, behind its own matmul and not behind all."""
    multiplying, copying = torch.cuda.current_stream(), torch.cuda.Stream()
    for _, host in zip(range(rounds), cycle(landing), strict=False):
        result = torch.mm(x, x)
        copying.wait_stream(multiplying)  # what is copied must have been computed
        with torch.cuda.stream(copying):
            host.copy_(result, non_blocking=True)
        result.record_stream(copying)  # no other matmul gets its memory before
    multiplying.wait_stream(copying)


def main() -> dict:
    return compared(together)


def derive(results: dict) -> dict:
    """What two streams take by the rule: the longer work, and one round of the shorter."""
    work = [results["ms"]["products"], results["ms"]["copies"]]
    return {"longer_ms": max(work) + min(work) / results["rounds"]}


def plot(results: dict, ceilings: dict):
    events = []
    for lane, start, us, name in results["events"]:
        if lane != "CPU":
            lane = "copies" if "Memcpy" in name else "GPU"
        elif "Synchronize" in name:
            lane = "CPU waits"
        events.append([lane, start / 1e3, us / 1e3, name])
    return timelines({"six matmuls and their copies, two streams": events}, "ms")


if __name__ == "__main__":
    main()
