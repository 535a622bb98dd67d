# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11"]
# [tool.overlap]
# gpus = [1]
# ///
"""Softmax of three shapes in a profile and in NVML (nvidia-ml-py): who waits, who works, who only looks busy."""

import json
import math
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from statistics import median

import torch

from snippets.timing.benchmark import measure, wait_for

SHAPES = {"tiny": (16, 128), "one_row": (1, 2**20), "many_rows": (8192, 2**14)}
PROFILED, QUEUED, SECONDS = 12, 100, 1.6
PROBES = {
    "utilisation_percent": torch.cuda.utilization,
    "power_mw": torch.cuda.power_draw,
}


def softmax(x: torch.Tensor, times: int) -> None:
    for _ in range(times):
        x.softmax(-1)


def trace(x: torch.Tensor) -> list[dict]:
    """The launches by the CPU and the kernels on the GPU, as the profiler writes them down, in order of time."""
    with torch.profiler.profile(acc_events=True) as profiler:
        softmax(x, PROFILED)
        wait_for()
    with tempfile.TemporaryDirectory() as folder:
        profiler.export_chrome_trace(path := f"{folder}/trace.json")
        events = json.loads(Path(path).read_text())["traceEvents"]
    wanted = (
        e
        for e in events
        if e.get("cat") == "kernel" or ("dur" in e and "Launch" in e["name"])
    )
    return sorted(wanted, key=lambda event: event["ts"])


def read(events: list[dict]) -> dict:
    """Thread blocks of a kernel, share of the time in which one runs, µs from one to the next, and all as lanes."""
    kernels = [e for e in events if e["cat"] == "kernel"]
    gaps = [
        later["ts"] - kernel["ts"] - kernel["dur"]
        for kernel, later in pairwise(kernels)
    ]
    whole = kernels[-1]["ts"] + kernels[-1]["dur"] - kernels[0]["ts"]
    lanes = [f"stream {e['args']['stream']}" if e in kernels else "CPU" for e in events]
    spans = [
        [lane, e["ts"] - events[0]["ts"], e["dur"], e["name"]]
        for lane, e in zip(lanes, events, strict=True)
    ]
    blocks, idle = (
        max(math.prod(kernel["args"]["grid"]) for kernel in kernels),
        sum(gaps) / whole,
    )
    return {
        "blocks": blocks,
        "busy_percent": 100 * (1 - idle),
        "gap_us": median(gaps),
        "events": spans,
    }


def answers(probe) -> bool:
    try:
        return probe() is not None
    except Exception as error:
        print(f"{probe.__name__} is missing: {type(error).__name__}: {error}")
        return False


def watch(x: torch.Tensor, probes: dict) -> dict[str, list]:
    """What the probes say, ten times a second, once the GPU has done nothing but softmax for a second."""
    seen, start = {name: [] for name in probes}, time.perf_counter()
    while probes and (now := time.perf_counter() - start) < SECONDS:
        softmax(x, QUEUED)
        if now >= 1 + 0.1 * max(
            map(len, seen.values())
        ):  # the queue is full: the GPU works while NVML is asked
            seen = {name: [*seen[name], probe()] for name, probe in probes.items()}
        wait_for()
    return seen


def main() -> dict:
    rows, probes = {}, {name: probe for name, probe in PROBES.items() if answers(probe)}
    trace(
        torch.zeros(1, device="cuda")
    )  # the first profile of a process also starts the profiler
    for name, shape in SHAPES.items():
        x = torch.randn(shape, device="cuda")
        torch.testing.assert_close(
            x.softmax(-1)[0].double(), x[0].double().softmax(-1), rtol=1e-4, atol=0
        )
        timing = measure(lambda: softmax(x, QUEUED))  # noqa: B023
        rates = [8 * x.numel() * QUEUED / seconds / 1e9 for seconds in timing.trials]
        row = rows[name] = (
            {"gb_s": median(rates), "gb_s_trials": rates}
            | read(trace(x))
            | watch(x, probes)
        )
        print(
            "{0:9}{blocks:6,} blocks, running{busy_percent:4.0f} %,{gb_s:9.2f} GB/s".format(
                name, **row
            ),
            end="",
        )
        print(*(f", {key} {median(row[key]):,.0f}" for key in probes), sep="")
    return rows


def plot(results: dict, ceilings: dict):
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(3, layout="constrained")
    for ax, name in zip(axes, SHAPES, strict=True):
        events = results[name]["events"][
            2:
        ]  # the first launch also starts the profiler
        for row, lane in enumerate(lanes := sorted({e[0] for e in events})):
            ax.broken_barh(
                [(e[1] - events[0][1], e[2]) for e in events if e[0] == lane],
                (row - 0.4, 0.8),
                label=lane,
            )
        ax.set(
            title=name.replace("_", " "),
            xlabel="µs",
            yticks=(0, 1),
            yticklabels=lanes,
            ylim=(2, -1),
        )
    return figure


if __name__ == "__main__":
    main()
