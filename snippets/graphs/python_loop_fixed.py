# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [1]
# ///
"""Fixed: one operation on the whole GPU tensor."""

from functools import partial
from statistics import median

import torch

from snippets.timing.benchmark import measure
from snippets.timing.lanes import lanes

ELEMENTS, MILLION, COUNTED = 10_000, 1_000_000, 100


def square_all(x: torch.Tensor) -> None:
    """Replace each element of x, shape [n], by its square."""
    x.mul_(x)


def device_operations(x: torch.Tensor) -> int:
    """How many kernels and copies the GPU runs to square all elements of x."""
    events = lanes(partial(square_all, x))
    return sum(lane.startswith("stream") for lane, *_ in events)


def us_of_all(device: str, elements: int) -> list[float]:
    """Trials in µs, after a look at whether the squares are right."""
    x = torch.arange(5.0, device=device)
    square_all(x)
    assert x.tolist() == [0, 1, 4, 9, 16]
    ones = torch.ones(elements, device=device)  # which stay ones: alike in every trial
    return measure(partial(square_all, ones), trials=15).us()


def main() -> dict:
    operations = device_operations(torch.ones(COUNTED, device="cuda"))
    results = {"elements": ELEMENTS, "counted": COUNTED, "operations": operations}
    for name, device in {"cpu": "cpu", "gpu": "cuda"}.items():
        for size, elements in {"": ELEMENTS, "_million": MILLION}.items():
            trials, key = us_of_all(device, elements), f"{name}{size}_us"
            results |= {key: median(trials), f"{key}_trials": trials}
            print(f"{name.upper()}, {elements:9,} elements:{median(trials):9.2f} µs")
    print(f"to square {COUNTED} the GPU ran {operations} kernels and copies")
    return results


if __name__ == "__main__":
    main()
