# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [1]
# timeout = 120
# ///
"""Kernels that read, write, and do both, counted: DRAM, and the L2's inner link."""

import sys
from collections.abc import Callable

import torch

from snippets.pictures import bars
from snippets.timing.kernel_counters import counted, once_each

ELEMENTS = 2**28  # of float32: 1 GiB
BYTES = {"write": 1, "read": 1, "read_two": 2, "read_write": 2, "triad": 3}
OF_PEAK = ".avg.pct_of_peak_sustained_elapsed"
METRICS = {
    "ns": "gpu__time_duration.sum",
    "read": "dram__bytes_read.sum",
    "written": "dram__bytes_write.sum",
    "dram": f"dram__cycles_active{OF_PEAK}",
    "fabric": f"lts__ltcfabric2ltc_cycles_active{OF_PEAK}",
    "sectors": "lts__t_sectors.sum",
    "crossed": "lts__t_sectors_srcunit_ltcfabric.sum",
}


def works(elements: int, device: str = "cuda") -> dict[str, Callable[[], object]]:
    """Kernels for tensors of so many float32, under the names of BYTES."""
    a, b, out = (torch.rand(elements, device=device) for _ in range(3))
    return {
        "write": lambda: out.fill_(1),
        "read": lambda: a.sum(),
        "read_two": lambda: torch.dot(a, b),
        "read_write": lambda: torch.add(a, 1, out=out),
        "triad": lambda: torch.add(a, b, alpha=3, out=out),
    }


def main() -> dict:
    rows: dict[str, dict] = {}
    for row in counted([sys.executable, __file__, "child"], METRICS.values()):
        (name,) = row["range"]
        found = {key: row[metric] for key, metric in METRICS.items()}
        if name not in rows or found["ns"] > rows[name]["ns"]:
            rows[name] = found  # of `dot`, whose second kernel adds a few sums
    assert set(rows) == set(BYTES)
    for name, row in rows.items():
        rate = 4 * ELEMENTS * BYTES[name] / row["ns"]
        print(
            f"{name:10}{rate:7,.0f} GB/s; DRAM is active for {row['dram']:.0f}%, "
            f"the L2's inner link for {row['fabric']:.0f}% of the time"
        )
    return {"bytes": 4 * ELEMENTS, "rows": rows}


def derive(results: dict) -> dict:
    """GB/s asked for; what part of it crossed the L2's middle; bytes moved for each."""
    rows = results["rows"]
    rate = {n: results["bytes"] * BYTES[n] / row["ns"] for n, row in rows.items()}
    crossed = {
        n: row["crossed"] / (row["sectors"] - row["crossed"]) for n, row in rows.items()
    }
    moved = [
        (row["read"] + row["written"]) / results["bytes"] / BYTES[name]
        for name, row in rows.items()
    ]
    ends = {"least": min(crossed.values()), "most": max(crossed.values())}
    return {"gb_s": rate, "crossed": crossed | ends, "moved": max(moved)}


def plot(results: dict, ceilings: dict):
    labels = {"write": "write", "read": "read", "read_two": "read two"}
    labels |= {"read_write": "read, write", "triad": "read two, write"}
    limits = {"peak": ceilings["hbm_gb_s"]} if "hbm_gb_s" in ceilings else {}
    rates = derive(results)["gb_s"]
    return bars({text: rates[name] for name, text in labels.items()}, limits, "GB/s")


if __name__ == "__main__":
    if sys.argv[1:]:
        once_each(works(ELEMENTS))
    else:
        main()
