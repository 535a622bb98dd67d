# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [0, 1]
# ///
"""Broken on purpose: a notebook's loop over the elements, as it was written.

After Puneet Grover's notebook; MIT licence, (c) 2018 Puneet Grover.
"""

from collections import Counter
from functools import partial
from statistics import median

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from snippets.timing.benchmark import measure

N, MILLION = 100, 1000  # 10,000 elements in the loop, a million at once


def as_written(arr: torch.Tensor) -> None:
    """Add i + j to each element of arr, shape [n, m], and square it."""
    for i in range(arr.shape[0]):
        for j in range(arr.shape[1]):
            arr[i][j] += i + j
            arr[i][j] *= arr[i][j]


def at_once(arr: torch.Tensor) -> None:
    """The same in three operations on the whole tensor."""
    rows, columns = (torch.arange(n, device=arr.device) for n in arr.shape)
    arr += rows[:, None] + columns
    arr *= arr


class Calls(TorchDispatchMode):
    """Counts what PyTorch is asked to do, on any device."""

    def __init__(self):
        super().__init__()
        self.count = Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count[func.overloadpacket.__name__] += 1
        return func(*args, **(kwargs or {}))


def calls_for_one() -> dict[str, int]:
    """How often the loop calls what, for one element."""
    one = torch.zeros(1, 1)
    with Calls() as calls:
        as_written(one)
    return dict(calls.count)


def main() -> dict:
    results = {"elements": N * N, "million": MILLION**2, "calls": calls_for_one()}
    devices = {"cpu": "cpu"}
    if torch.cuda.is_available():
        devices["gpu"] = "cuda"
    for name, device in devices.items():
        loop = torch.zeros(N, N, device=device)
        whole = loop.clone()
        as_written(loop)
        at_once(whole)
        torch.testing.assert_close(loop, whole, rtol=0, atol=0)
        large = torch.zeros(MILLION, MILLION, device=device)
        slow = measure(partial(as_written, loop.zero_()), trials=5)
        fast = measure(partial(at_once, large), trials=15)
        each = [us / (N * N) for us in slow.us()]
        results |= {f"{name}_us": median(each), f"{name}_us_trials": each}
        results[f"{name}_million_us"] = median(fast.us())
        results[f"{name}_million_us_trials"] = fast.us()
        print(f"{name.upper()}: {median(each):.1f} µs for each element in the loop,")
        print(f"     {median(fast.us()):,.0f} µs for a million at once")
    print("for one element:", results["calls"])
    return results


if __name__ == "__main__":
    main()
