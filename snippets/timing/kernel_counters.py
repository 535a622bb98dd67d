# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [1]
# timeout = 240
# take = ["counted"]
# ///
"""What limits a kernel: shares of the GPU's peaks, counted by Nsight Compute (ncu)."""

import csv
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch

from snippets.pictures import Cells, Panel, Picture
from snippets.timing.kernel_time import gpu_clock
from snippets.timing.take_turns import recorded, take_turns

OF_PEAK = "__throughput.avg.pct_of_peak_sustained_elapsed"
PEAKS = {"DRAM": "dram", "L2": "lts", "L1": "l1tex", "SM": "sm"}
A_LOAD = "l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_ld.ratio"
METRICS = {name: unit + OF_PEAK for name, unit in PEAKS.items()} | {
    "ns": "gpu__time_duration.sum",
    "read": "dram__bytes_read.sum",
    "written": "dram__bytes_write.sum",
    "sectors": A_LOAD,
    "blocks": "launch__grid_size",
}
N = 8192
PICKED = 2**24  # elements


def counted(
    command: Sequence[str], metrics: Iterable[str], limit_s: float = 120
) -> list[dict[str, Any]]:
    """Run a program under ncu; for each kernel its name, its NVTX range and its metrics.

    Counted is what runs between `torch.cuda.profiler.start()` and `stop()`. The clock is
    left as it is, and caches are emptied before each kernel, which is run several times.
    Units are bytes, nanoseconds and per cent. RuntimeError without ncu, without the right
    to read counters, or if no kernel was seen; TimeoutExpired after `limit_s` seconds.
    """
    if not shutil.which("ncu"):
        needs = "it comes with CUDA's toolkit, in its folder bin"
        raise RuntimeError(f"ncu is not on PATH: {needs}")
    how = "--clock-control none --profile-from-start off --nvtx --target-processes all"
    how += " --csv --page raw --print-units base --print-fp --metrics"
    child = subprocess.run(
        ["ncu", *how.split(), ",".join(metrics), *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=limit_s,
    )
    if "ERR_NVGPUCTRPERM" in child.stdout:
        where = "https://developer.nvidia.com/ERR_NVGPUCTRPERM"
        raise RuntimeError(f"this user may not read the GPU's counters: see {where}")
    rows = in_table(child.stdout, metrics)
    if child.returncode or not rows:
        end = child.stdout[-2000:]
        raise RuntimeError(
            f"ncu saw {len(rows)} kernels, exit {child.returncode}: {end}"
        )
    return rows


def in_table(output: str, metrics: Iterable[str]) -> list[dict[str, Any]]:
    """The rows of ncu's table: a kernel, the innermost of its ranges, and numbers."""
    lines = [line for line in output.splitlines() if line.startswith('"')]
    rows = []
    for row in list(csv.DictReader(lines))[1:]:  # the first has units
        ranges = [text for key, text in row.items() if "Push/Pop_Range" in key]
        found = re.findall(r">:([^:]+):", ranges[0]) if ranges else []
        numbers = {name: number(row[name]) for name in metrics}
        rows.append({"kernel": row["Kernel Name"], "range": found[-1:]} | numbers)
    return rows


def number(text: str) -> float:
    """A number of the table, as "1,048,576"; nan where the GPU has no such counter."""
    try:
        return float(text.replace(",", ""))
    except ValueError:
        return float("nan")


def works(n: int, picked: int, device: str = "cuda") -> dict[str, Callable[[], object]]:
    """One kernel each: n x n numbers, or `picked` of them."""
    x = torch.rand(n, n, device=device)
    y = torch.empty_like(x)
    a, b = torch.randn(2, n, n, device=device).bfloat16()
    few, flat = torch.rand(1024, device=device), x.view(-1)
    in_order = torch.arange(picked, device=device)
    anywhere = torch.randint(flat.numel(), (picked,), device=device)
    return {
        "add": lambda: torch.add(x, 1, out=y),
        "fill": lambda: y.fill_(1),
        "largest": lambda: x.amax(1),
        "softmax": lambda: x.softmax(1),
        "transposed": lambda: y.copy_(x.T),
        "take_in_order": lambda: flat[in_order],
        "take_anywhere": lambda: flat[anywhere],
        "lgamma": lambda: torch.lgamma(x, out=y),
        "matmul": lambda: torch.mm(a, b),
        "one_row": lambda: torch.mm(a[:1], b),
        "few": lambda: few.add_(1),
    }


def once_each(each: Mapping[str, Callable[[], object]]) -> None:
    """What ncu is to count: each work once, in a range of its own, after one unseen."""
    for work in each.values():
        work()
    torch.cuda.synchronize()
    torch.cuda.profiler.start()
    for name, work in each.items():
        with torch.cuda.nvtx.range(name):
            work()
    torch.cuda.synchronize()
    torch.cuda.profiler.stop()


def main() -> dict:
    each = works(N, PICKED)
    alone = recorded(take_turns(each, clock=gpu_clock, calls=5), "us")
    rows = {}
    for row in counted([sys.executable, __file__, "child"], METRICS.values()):
        (name,) = row["range"]
        assert name not in rows, f"{name} is more than one kernel"
        rows[name] = {key: row[metric] for key, metric in METRICS.items()}
        rows[name]["kernel"] = row["kernel"][:80]
    assert list(rows) == list(each)
    print(f"{'':15}{'us':>7}{'alone':>7}" + "".join(f"{peak:>7}" for peak in PEAKS))
    for name, row in rows.items():
        shares = "".join(f"{row[peak]:6.0f}%" for peak in PEAKS)
        print(f"{name:15}{row['ns'] / 1e3:7.0f}{alone['us'][name]:7.0f}{shares}")
    sizes = {"n": N, "picked": PICKED}
    sms = torch.cuda.get_device_properties(0).multi_processor_count
    return sizes | {"SMs": sms, "rows": rows, "alone": alone}


def derive(results: dict) -> dict:
    """Each kernel's largest share, and what it is a share of; bytes asked for and moved."""
    rows, n, picked = results["rows"], results["n"], results["picked"]
    square = 4 * n * n
    asked = {"add": 2, "fill": 1, "largest": 1, "softmax": 2, "transposed": 2}
    asked = {name: count * square for name, count in asked.items()}
    asked |= {"take_in_order": 16 * picked, "take_anywhere": 16 * picked}
    largest = {name: max(PEAKS, key=row.__getitem__) for name, row in rows.items()}
    return {
        "largest": largest,
        "share": {name: rows[name][peak] / 100 for name, peak in largest.items()},
        "moved": {
            name: (rows[name]["read"] + rows[name]["written"]) / count
            for name, count in asked.items()
        },
        "slower": sorted(
            row["ns"] / 1e3 / results["alone"]["us"][name] for name, row in rows.items()
        ),
    }


def plot(results: dict, ceilings: dict):
    rows = results["rows"]
    values = [[row[peak] for peak in PEAKS] for row in rows.values()]
    texts = [[f"{value:.0f}%" for value in row] for row in values]
    shades = [[value / 100 for value in row] for row in values]
    names = [name.replace("_", " ") for name in rows]
    look = {"texts": texts, "shades": shades}
    cells = Cells(list(PEAKS), names, values, "% of the peak", **look)
    return Picture([Panel([cells])])


if __name__ == "__main__":
    if sys.argv[1:]:
        once_each(works(N, PICKED))
    else:
        main()
