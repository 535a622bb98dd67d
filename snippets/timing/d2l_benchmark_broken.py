# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [0, 1]
# ///
"""Broken on purpose: D2L's `with Benchmark():`, which waits for nobody.

After D2L's sample code; MIT-0 licence, (c) 2019 Amazon.com, Inc. or its affiliates.
"""

import time

import torch


class Benchmark:
    """D2L's timer: one trial of the block, by a clock that can be set."""

    def __init__(self, description: str = "Done"):
        self.description, self.seconds = description, float("nan")

    def __enter__(self) -> "Benchmark":
        self.start = time.time()
        return self

    def __exit__(self, *exc_info) -> None:
        self.seconds = time.time() - self.start
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
