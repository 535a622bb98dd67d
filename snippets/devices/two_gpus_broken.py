# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [0, 2]
# ///
"""Broken on purpose: time a loop on one GPU, on another, and on both; cold, waiting for one.

Without two GPUs both tensors are on one device, where nothing can run side by side.

After Dive into DL PyTorch, by ShusenTang; Apache License 2.0.
"""

import torch

from snippets.timing.d2l_benchmark_broken import Benchmark
from snippets.timing.wait_for import wait_for

CALLS = 20_000


def two_devices() -> list[str]:
    """The first two GPUs, or the one device that there is, twice."""
    if torch.cuda.device_count() >= 2:
        return ["cuda:0", "cuda:1"]
    return ["cuda:0", "cuda:0"] if torch.cuda.is_available() else ["cpu", "cpu"]


def run(x: torch.Tensor) -> None:
    for _ in range(CALLS):
        torch.mm(x, x)


def main() -> dict:
    torch.set_num_threads(1)  # a CPU's threads only disturb so small a product
    first, second = (torch.randn(100, 100, device=name) for name in two_devices())
    current = [0] if torch.cuda.is_available() else []  # torch.cuda.synchronize()

    with Benchmark("first device") as on_first:
        run(first)
        wait_for(current)
    with Benchmark("second device") as on_second:
        run(second)
        wait_for(current)
    with Benchmark("both devices") as on_both:
        run(first)
        run(second)
        wait_for(current)

    seconds = [timer.seconds for timer in (on_first, on_second, on_both)]
    return dict(zip(("first_s", "second_s", "both_s"), seconds, strict=True))


if __name__ == "__main__":
    main()
