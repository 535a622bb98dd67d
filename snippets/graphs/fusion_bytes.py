# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [1]
# timeout = 180
# ///
"""Pointwise operations on 1 GiB, one kernel each or one for all: the bytes decide."""

from functools import partial

import torch

from snippets.pictures import sweep
from snippets.timing.kernel_time import gpu_clock
from snippets.timing.lanes import lanes
from snippets.timing.take_turns import recorded, take_turns

ELEMENTS, LENGTHS = 2**28, (1, 2, 5, 10)  # float32: 1 GiB


def chain(x: torch.Tensor, length: int) -> torch.Tensor:
    """`length` operations on x, each of which reads and writes x, unless fused."""
    for i in range(length):
        x = x * 0.5 if i % 2 else x + 1
    return x


def compare(ways: dict, x: torch.Tensor, length: int) -> dict:
    """ms and kernels of the chain in each way, if both give the same numbers."""
    works = {name: partial(way, x, length) for name, way in ways.items()}
    torch.testing.assert_close(works["fused"](), works["eager"]())
    row = {"length": length} | recorded(take_turns(works, calls=5, clock=gpu_clock))
    for name, work in works.items():
        events = lanes(work)
        row[f"{name}_kernels"] = sum(lane.startswith("stream") for lane, *_ in events)
    return row


def main() -> dict:
    x, y = (torch.rand(ELEMENTS, device="cuda") for _ in range(2))
    copy = take_turns({"copy": partial(y.copy_, x)}, calls=5, clock=gpu_clock)
    ways = {"eager": chain, "fused": torch.compile(chain, dynamic=False)}
    rows = [compare(ways, x, length) for length in LENGTHS]
    for row in rows:
        for name, ms in row["ms"].items():
            kernels = row[f"{name}_kernels"]
            print(f"{row['length']:2} operations, {name}: {ms:7.3f} ms,", end=" ")
            print(f"{kernels} kernels, {8e-6 * ELEMENTS * kernels / ms:,.0f} GB/s")
    return {"bytes": 4 * ELEMENTS, "copy": recorded(copy), "rows": rows}


def plot(results: dict, ceilings: dict):
    rows = results["rows"]
    labels = {"eager": "one kernel each", "fused": "one kernel for all"}
    series = {label: [r["ms"][name] for r in rows] for name, label in labels.items()}
    limits = {}
    if "hbm_gb_s" in ceilings:
        one_pass = 2e-6 * results["bytes"] / ceilings["hbm_gb_s"]
        limits["one pass at the ceiling"] = one_pass
    lengths = [row["length"] for row in rows]
    xlabel = "operations in the chain"
    return sweep(lengths, series, limits, xlabel=xlabel, ylabel="ms")


if __name__ == "__main__":
    main()
