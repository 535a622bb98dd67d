# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11"]
# [tool.overlap]
# gpus = [1]
# ///
"""Broken on purpose: a Python loop over the elements of a GPU tensor, and what each element costs."""

import torch

from snippets.timing.benchmark import measure, wait_for

ELEMENTS, COUNTED = 10_000, 100


def square_all(x: torch.Tensor) -> None:
    """Replace each element of x, shape [n], by its square."""
    for i in range(len(x)):
        x[i] = x[i] * x[i]


def device_operations(elements: int) -> int:
    """How many kernels and copies the GPU runs to square so many elements."""
    x = torch.ones(elements, device="cuda")
    with torch.profiler.profile(acc_events=True) as profiler:
        square_all(x)
        wait_for()
    return sum(event.device_type.name == "CUDA" for event in profiler.events())


def us_per_element(device: str) -> list[float]:
    """Trials in µs, after a look at whether the squares are right."""
    x = torch.arange(COUNTED, device=device, dtype=torch.float32)
    square_all(x)
    torch.testing.assert_close(x.cpu(), torch.arange(COUNTED, dtype=torch.float32) ** 2)
    ones = torch.ones(ELEMENTS, device=device)  # their squares are ones: every trial does the same work
    return [1e3 * ms / ELEMENTS for ms in measure(lambda: square_all(ones), warmup=1, trials=5).ms()]


def main() -> dict:
    results = {"elements": ELEMENTS, "counted": COUNTED, "operations": device_operations(COUNTED)}
    for name, device in (("cpu", "cpu"), ("gpu", "cuda")):
        trials = results[f"{name}_us_trials"] = us_per_element(device)
        results[f"{name}_us"] = sorted(trials)[2]  # the median
        print(f"on the {name.upper()}, {ELEMENTS:,} elements: {results[f'{name}_us']:10.5f} µs each")
    print(f"to square {COUNTED} elements the GPU ran {results['operations']} kernels and copies")
    return results


if __name__ == "__main__":
    main()
