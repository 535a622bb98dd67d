# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [1]
# ///
"""Ask for three scores on one stream: the calls return at once, the work queues up."""

from functools import partial

import torch

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


def plot(results: dict, ceilings: dict):
    import matplotlib.pyplot as plt

    figure, ax = plt.subplots()
    on_gpu = [event for event in results["events"] if event[0] != "CPU"]
    calls = [e for e in results["events"] if e[0] == "CPU" and "Launch" in e[3]]
    first = 0
    titles = {"mlp": "MLP", "cnn": "CNN", "resnet": "ResNet"}
    for color, name in zip(("C1", "C2", "C3"), WIDTHS, strict=True):
        last = first + results["kernels"][name]
        spans = [(start / 1e3, us / 1e3) for _, start, us, _ in on_gpu[first:last]]
        ax.broken_barh(spans, (0.6, 0.8), label=titles[name], color=color)
        middle = (spans[0][0] + sum(spans[-1])) / 2
        ax.text(middle, 1, titles[name], color="white", ha="center", va="center")
        first = last
    spans = [(start / 1e3, us / 1e3) for _, start, us, _ in calls]
    ax.broken_barh(spans, (-0.4, 0.8), color="C0")
    ax.text(sum(spans[-1]) + 0.5, 0, "the CPU has launched all", va="center")
    ax.set_yticks([0, 1], ["CPU", "GPU"])
    ax.set(xlabel="ms (profiled: launches take longer)", ylim=(1.6, -0.6))
    return figure


if __name__ == "__main__":
    main()
