# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [1]
# timeout = 300
# ///
"""Inductor's kernels that multiply one row by a weight in bf16 and in int8, counted."""

import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from snippets.graphs.seven_billion import HIDDEN, WIDTH
from snippets.graphs.seven_billion_tuned import TUNED
from snippets.timing.kernel_counters import METRICS, counted, once_each

COUNTED = {name: METRICS[name] for name in ("ns", "DRAM", "L2", "SM", "read")}
COUNTED |= {
    "issued": "sm__inst_issued.avg.pct_of_peak_sustained_active",
    "warps": "sm__warps_active.avg.pct_of_peak_sustained_active",
    "instructions": "smsp__inst_executed.sum",
    "blocks": "launch__grid_size",
    "threads": "launch__block_size",
}
SHAPE = 2 * HIDDEN, WIDTH  # gate and up, joined


def of_bf16(x: Tensor, weight: Tensor, scale: Tensor) -> Tensor:
    return F.linear(x, weight)


def of_int8(x: Tensor, weight: Tensor, scale: Tensor) -> Tensor:
    return F.linear(x, weight.to(x.dtype)) * scale


def works() -> dict[str, Callable[[], object]]:
    """One kernel each: a row by the same numbers, as bf16 and as int8."""
    low = torch.randint(-127, 128, SHAPE, dtype=torch.int8, device="cuda")
    x = torch.randn(1, WIDTH, dtype=torch.bfloat16, device="cuda")
    scale = torch.ones(SHAPE[0], dtype=torch.bfloat16, device="cuda")
    each: dict[str, Callable[[], object]] = {}
    results = []
    for product, weight in ((of_bf16, low.bfloat16()), (of_int8, low)):
        call: Any = torch.compile(product, options=TUNED, dynamic=False)
        results.append(call(x, weight, scale))
        each[product.__name__.removeprefix("of_")] = partial(call, x, weight, scale)
    torch.testing.assert_close(*results, rtol=0.02, atol=2.0)
    return each


def main() -> dict:
    rows: dict[str, dict] = {}
    command = [sys.executable, "-m", "snippets.graphs.int8_counters", "child"]
    for row in counted(command, COUNTED.values(), limit_s=240):
        (name,) = row["range"]
        assert name not in rows, f"{name} is more than one kernel"
        rows[name] = {key: row[metric] for key, metric in COUNTED.items()}
        rows[name]["kernel"] = row["kernel"][:80]
    assert set(rows) == {"bf16", "int8"}
    for name, found in rows.items():
        print(
            f"{name}: {found['ns'] / 1e3:.0f} µs, {found['read'] / 2**20:.0f} MiB read,",
            end=" ",
        )
        print(
            f"DRAM {found['DRAM']:.0f}%, issue slots {found['issued']:.0f}%,", end=" "
        )
        print(
            f"warps {found['warps']:.0f}%, {found['instructions'] / 1e6:.1f} M instructions"
        )
    weights = SHAPE[0] * SHAPE[1]
    return {"rows": rows, "weights": weights}


if __name__ == "__main__":
    once_each(works()) if "child" in sys.argv else main()
