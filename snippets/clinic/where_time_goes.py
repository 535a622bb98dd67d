# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [1]
# ///
"""Where does a step's time go? Kernels, copies, all-reduces, a CPU that waits."""

from typing import Any

import torch

from snippets.pictures import timelines
from snippets.timing.lanes import lanes

#: what runs in a lane, by a part of its name; else "compute" or "calls"
GPU = {"nccl": "all-reduce", "HtoD": "copies", "DtoH": "copies"}
CPU = {"Synchronize": "CPU waits", "Memcpy": "CPU copies", "LaunchKernel": "launches"}


def kind(row: list[Any]) -> str:
    """What a row of `lanes` is: a word of GPU or CPU, "compute" or "calls"."""
    lane, _, _, name = row
    parts, other = (CPU, "calls") if lane.startswith("CPU") else (GPU, "compute")
    return next((parts[part] for part in parts if part in name), other)


def union_us(rows: list[list[Any]]) -> float:
    """Microseconds in which at least one of these rows of `lanes` runs."""
    total = end = 0.0
    for _, start, us, _ in sorted(rows, key=lambda row: row[1]):
        total += max(0.0, start + us - max(start, end))
        end = max(end, start + us)
    return total


def account(rows: list[list[Any]]) -> dict[str, float]:
    """Milliseconds in which each kind runs; "exposed": all-reduces beside no kernel.

    The waits at the end of a profile count, too: leave them out before, as `account_of`
    of the file `account_of` does.
    Each kernel of NCCL counts as an all-reduce, a gather or a broadcast, too. Of several
    GPUs give the rows of one; copies on or between GPUs count as compute.
    """
    names = ("compute", "calls", *GPU.values(), *CPU.values())
    kinds = {name: [row for row in rows if kind(row) == name] for name in names}
    both = union_us(kinds["compute"] + kinds["all-reduce"]) / 1e3
    ms = {name: union_us(each) / 1e3 for name, each in kinds.items()}
    ms["exposed"], ms["kernel count"] = both - ms["compute"], len(kinds["compute"])
    as_keys = str.maketrans("- ", "__")
    return {name.translate(as_keys): value for name, value in ms.items()}


def without_closing_waits(rows: list[list[Any]]) -> list[list[Any]]:
    """Rows of `lanes` without the last two waits, which no work asked for.

    `lanes` waits for the GPU when the work has returned, and the profiler when it ends.
    Only for rows of `lanes` of one GPU: with several in use it waits once for each, and
    other profiles have no such waits.
    """
    waits = [row for row in rows if kind(row) == "CPU waits"]
    return [row for row in rows if row not in waits[-2:]]


def joined(rows: list[list[Any]], gap_us: float = 3.0) -> list[list[Any]]:
    """Fewer rows for a picture: neighbours of a kind with small gaps between."""
    found, last = [], {}
    for row in sorted(rows, key=lambda row: row[1]):
        (_, start, us, _), lane = row, kind(row)
        lane, most = ("CPU", 50.0) if lane in ("launches", "calls") else (lane, gap_us)
        if lane not in last or start > sum(last[lane][1:]) + most:
            last[lane] = [lane, start, us]
            found.append(last[lane])
        _, begin, length = last[lane]
        last[lane][2] = max(length, start + us - begin)
    return [[lane, round(start, 1), round(us, 1), lane] for lane, start, us in found]


def main() -> dict:
    pageable = torch.randn(4096, 4096)

    def work() -> None:
        x = pageable.to("cuda")
        for row in x[:400]:
            row.mul_(2)
        (x @ x).sum().item()

    rows = without_closing_waits(lanes(work))
    result = {"account": account(rows), "events": joined(rows)}
    for name, value in result["account"].items():
        print(f"{name:<13}{value:9.2f}")
    return result


def plot(results: dict, ceilings: dict):
    rows = [
        [lane, start / 1e3, us / 1e3, name]
        for lane, start, us, name in results["events"]
    ]
    return timelines({"copy, 400 small kernels, a matmul, item": rows}, "ms")


if __name__ == "__main__":
    main()
