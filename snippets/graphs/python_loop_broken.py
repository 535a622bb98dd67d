# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [1]
# ///
"""Broken on purpose: a Python loop over the elements of a GPU tensor."""

from functools import partial
from statistics import median

import torch

from snippets.timing.benchmark import measure
from snippets.timing.lanes import lanes

ELEMENTS, COUNTED = 10_000, 100


def square_all(x: torch.Tensor) -> None:
    """Replace each element of x, shape [n], by its square."""
    for i in range(len(x)):
        x[i] = x[i] * x[i]


def device_operations(x: torch.Tensor) -> int:
    """How many kernels and copies the GPU runs to square all elements of x."""
    events = lanes(partial(square_all, x))
    return sum(lane.startswith("stream") for lane, *_ in events)


def us_per_element(device: str) -> list[float]:
    """Trials in µs, after a look at whether the squares are right."""
    x = torch.arange(5.0, device=device)
    square_all(x)
    assert x.tolist() == [0, 1, 4, 9, 16]
    ones = torch.ones(ELEMENTS, device=device)  # which stay ones: alike in every trial
    timing = measure(partial(square_all, ones), warmup=1, trials=5)
    return [us / ELEMENTS for us in timing.us()]


def main() -> dict:
    operations = device_operations(torch.ones(COUNTED, device="cuda"))
    results = {"elements": ELEMENTS, "counted": COUNTED, "operations": operations}
    for name, device in {"cpu": "cpu", "gpu": "cuda"}.items():
        trials = us_per_element(device)
        results |= {f"{name}_us": median(trials), f"{name}_us_trials": trials}
        print(f"{name.upper()}, {ELEMENTS:,} elements: {median(trials):10.5f} µs each")
    print(f"to square {COUNTED} the GPU ran {operations} kernels and copies")
    return results


if __name__ == "__main__":
    main()
