# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [0, 1]
# take = ["Benchmark"]
# ///
"""D2L's `with Benchmark():` as it should be: every device is waited for, twice.

After D2L's sample code; MIT-0 licence, (c) 2019 Amazon.com, Inc. or its affiliates.
"""

import time
from collections.abc import Iterable

import torch

from snippets.timing.wait_for import wait_for


class Benchmark:
    """Drop-in for `d2l.Benchmark`: times the block, prints `description: 0.1234 sec`.

    `devices`: whom to wait for, by number; all that are in use by default. `seconds`
    is what the block took, NaN before it ends.
    """

    def __init__(self, description: str = "Done", devices: Iterable[int] | None = None):
        self.description, self.seconds = description, float("nan")
        self.devices = None if devices is None else list(devices)

    def __enter__(self) -> "Benchmark":
        wait_for(self.devices)
        self.start = time.perf_counter()
        return self

    def __exit__(self, *exc_info: object) -> None:
        wait_for(self.devices)
        self.seconds = time.perf_counter() - self.start
        print(f"{self.description}: {self.seconds:.4f} sec")


def main() -> dict:
    device, n = ("cuda", 4096) if torch.cuda.is_available() else ("cpu", 512)
    x = torch.randn(n, n, device=device)
    with Benchmark("the first product") as first:
        torch.mm(x, x)
    with Benchmark("ten products") as ten:
        for _ in range(10):
            torch.mm(x, x)
    return {"n": n, "device": device, "first_s": first.seconds, "ten_s": ten.seconds}


if __name__ == "__main__":
    main()
