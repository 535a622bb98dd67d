# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [0, 2]
# ///
"""Fixed: warm, waiting for all devices, in a loop that alternates between them.

After Dive into DL PyTorch, by ShusenTang; Apache License 2.0.
"""

import torch

from snippets.devices.two_gpus_broken import two_devices
from snippets.timing.d2l_benchmark import Benchmark

CALLS = 20_000


def run(*tensors: torch.Tensor) -> None:
    for _ in range(CALLS):
        for x in tensors:
            torch.mm(x, x)


def main() -> dict:
    torch.set_num_threads(1)  # a CPU's threads only disturb so small a product
    first, second = (torch.randn(100, 100, device=name) for name in two_devices())
    run(first, second)  # the first calls are slow

    with Benchmark("first device") as on_first:
        run(first)
    with Benchmark("second device") as on_second:
        run(second)
    with Benchmark("both devices") as on_both:
        run(first, second)

    seconds = [timer.seconds for timer in (on_first, on_second, on_both)]
    speedup = (seconds[0] + seconds[1]) / seconds[2]
    print(f"both, against one after the other: {speedup:.2f} times as fast")
    return dict(zip(("first_s", "second_s", "both_s"), seconds, strict=True))


if __name__ == "__main__":
    main()
