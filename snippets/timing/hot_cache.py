# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [1]
# ///
"""The same kernel over the same bytes, in one buffer or in many: cache or memory?"""

from functools import partial
from statistics import median

import torch

from snippets.pictures import DASHES, Rule, sweep
from snippets.timing.kernel_time import captured
from snippets.timing.take_turns import ratios, take_turns

SIZES_MIB = (4, 8, 16, 24, 32, 36, 40, 44, 48, 56, 64, 128, 256)


def repeat_same(pool: torch.Tensor, size: int) -> list[torch.Tensor]:
    """The first buffer of `size` elements, as often as the pool has such buffers."""
    return [pool[:size]] * (len(pool) // size)


def rotate(pool: torch.Tensor, size: int) -> list[torch.Tensor]:
    """Each buffer of `size` elements of the pool once."""
    return list(pool[: len(pool) // size * size].split(size))


def increment(buffers: list[torch.Tensor]) -> None:
    """Read and write each buffer in turn, in place."""
    for buffer in buffers:
        buffer.add_(1)


def compared(pool: torch.Tensor, mib: int) -> dict:
    """GB/s of both ways, and how many times as fast the same buffer is, in turns."""
    size = mib * 2**20 // 4
    ways = {"hot": repeat_same(pool, size), "cold": rotate(pool, size)}
    # one launch for all buffers: single launches would take longer than the kernels
    works = {way: captured(partial(increment, ways[way])) for way in ways}
    timings = take_turns(works)
    moved = 2 * 4 * size * len(ways["cold"])  # each element is read and written
    row = {"mib": mib}
    for way, timing in timings.items():
        rates = [moved / seconds / 1e9 for seconds in timing.trials]
        row |= {f"{way}_gb_s": median(rates), f"{way}_gb_s_trials": rates}
    times = ratios(timings["cold"], timings["hot"])
    return row | {"ratio": median(times), "ratio_trials": times}


def main() -> dict:
    pool = torch.zeros(2**28, device="cuda")  # 1 GiB
    cache = torch.cuda.get_device_properties(0).L2_cache_size // 2**20
    print(f"L2: {cache} MiB\nbuffer       the same       others")
    rows = [compared(pool, mib) for mib in SIZES_MIB]
    for row in rows:
        print("{mib:4} MiB{hot_gb_s:9,.0f} GB/s{cold_gb_s:8,.0f} GB/s".format(**row))
    return {"l2_mib": cache, "rows": rows}


def derive(results: dict) -> dict:
    """Ratios of the two loops, their highest rates, and up to where they differ."""
    rows, cache = results["rows"], results["l2_mib"]
    beyond = [abs(row["ratio"] - 1) for row in rows if row["mib"] > cache]
    return {
        "ratios_within_half": [r["ratio"] for r in rows if r["mib"] <= 0.5 * cache],
        "most_off_beyond": max(beyond),
        "most_hot_gb_s": max(row["hot_gb_s"] for row in rows),
        "most_cold_gb_s": max(row["cold_gb_s"] for row in rows),
        "differ_to_mib": max(row["mib"] for row in rows if row["ratio"] >= 1.1),
    }


def plot(results: dict, ceilings: dict):
    rows = results["rows"]
    labels = {"hot": "the same buffer again", "cold": "another buffer each time"}
    lines = {
        label: [row[f"{way}_gb_s"] / 1e3 for row in rows]
        for way, label in labels.items()
    }
    axes = {"xlabel": "buffer, MiB", "ylabel": "read and written, TB/s"}
    picture = sweep([row["mib"] for row in rows], lines, {}, xlog=True, **axes)
    panel = picture.panels[0]
    panel.x.ticks = {2**power: f"{2**power}" for power in range(2, 9)}
    if "hbm_gb_s" in ceilings:
        panel.marks.append(Rule("y", ceilings["hbm_gb_s"] / 1e3, "memory, ceiling"))
    panel.marks.append(Rule("x", results["l2_mib"], "size of the L2", DASHES[1]))
    return picture


if __name__ == "__main__":
    main()
