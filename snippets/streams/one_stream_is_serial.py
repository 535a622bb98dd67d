# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [1]
# ///
"""Ask for three scores on one stream: the calls return at once, the work queues up."""

from functools import partial
from typing import Any

import torch

from snippets.pictures import Axis, Note, Panel, Picture, Spans
from snippets.timing.benchmark import measure
from snippets.timing.lanes import lanes
from snippets.timing.take_turns import recorded, take_turns

ROWS = 8192
WIDTHS = {"mlp": 2048, "cnn": 3072, "resnet": 4096}  # features of a row, by model


def similarity(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Linear CKA, 0 to 1, of features (rows, width): one number, left on the device."""
    a, b = a - a.mean(0), b - b.mean(0)
    return (a.T @ b).square().sum() / ((a.T @ a).norm() * (b.T @ b).norm())


def main() -> dict:
    features = {n: torch.randn(2, ROWS, w, device="cuda") for n, w in WIDTHS.items()}
    calls = {name: partial(similarity, a, a + b) for name, (a, b) in features.items()}

    def three() -> list[torch.Tensor]:
        return [call() for call in calls.values()]

    timings = take_turns(calls | {"three": three}, trials=7)
    timings["three_returned"] = measure(three, devices=[])  # waits for nobody
    results = recorded(timings, "ms")
    for name, ms in results["ms"].items():
        print(f"{name:<15}{ms:8.3f} ms")
    flop = 6 * ROWS * sum(width**2 for width in WIDTHS.values())  # three products each
    results["tflop_s"] = flop / timings["three"].median / 1e12
    trials = timings["three"].trials
    results["tflop_s_trials"] = [flop / seconds / 1e12 for seconds in trials]
    results["kernels"] = {
        name: sum(event[0] != "CPU" for event in lanes(call))
        for name, call in calls.items()
    }
    return results | {"scores": torch.stack(three()).tolist(), "events": lanes(three)}


def derive(results: dict) -> dict:
    """How long kernels ran, and how long it was from the first to the end of the last."""
    if "events" not in results:
        return {}
    kernels = [(start, us) for lane, start, us, _ in results["events"] if lane != "CPU"]
    span = max(start + us for start, us in kernels) - min(start for start, _ in kernels)
    return {"kernels_us": sum(us for _, us in kernels), "span_us": span}


def plot(results: dict, ceilings: dict):
    def ms(events: list[list[Any]]) -> list[tuple[float, float]]:
        return [(start / 1e3, us / 1e3) for _, start, us, _ in events]

    on_gpu = [event for event in results["events"] if event[0] != "CPU"]
    calls = [e for e in results["events"] if e[0] == "CPU" and "Launch" in e[3]]
    launched = sum(ms(calls)[-1])
    marks = [
        Spans("CPU", ms(calls), "CPU", names=[e[3] for e in calls]),
        Note(launched, "CPU", "the CPU has launched all", dx=6),
    ]
    titles = {"mlp": "MLP", "cnn": "CNN", "resnet": "ResNet"}
    blues = {"mlp": ("gpu", False), "cnn": ("gpu", True), "resnet": (6, False)}
    first = 0
    for name in WIDTHS:
        last = first + results["kernels"][name]
        kernels = on_gpu[first:last]
        spans, names = ms(kernels), [event[3] for event in kernels]
        marks.append(Spans("GPU", spans, titles[name], *blues[name], names=names))
        first = last
    return Picture([Panel(marks, Axis("ms (profiled: launches take longer)"))])


if __name__ == "__main__":
    main()
