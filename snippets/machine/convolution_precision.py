# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [1]
# few = { h100-80gb-hbm3 = "one run so far" }
# ///
"""A convolution of float32 computes in TF32 by default: its error and its rate."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from statistics import median

import torch
from torch import Tensor
from torch.nn import functional as F

from snippets.pictures import bars
from snippets.timing.kernel_time import gpu_clock
from snippets.timing.take_turns import take_turns

IMAGES, CHANNELS, SIDE = 64, 256, 56  # a convolution of 3 × 3 pixels
FLOP = 2 * IMAGES * SIDE**2 * CHANNELS**2 * 9
PRECISIONS = ("default", "tf32", "ieee")


@contextmanager
def convolutions_in(precision: str) -> Iterator[None]:
    """Convolutions of float32 in "ieee" or "tf32"; "default" leaves them as they are."""
    settings = torch.backends.cudnn.conv
    before = settings.fp32_precision
    if precision != "default":
        settings.fp32_precision = precision
    try:
        yield
    finally:
        settings.fp32_precision = before


def convolve(x: Tensor, kernel: Tensor, precision: str) -> Tensor:
    with convolutions_in(precision):
        return F.conv2d(x, kernel, padding=1)


def multiply(x: Tensor, kernel: Tensor) -> Tensor:
    """The same sums as one matrix product, of the pixels under the kernel."""
    columns = F.unfold(x, 3, padding=1)
    return kernel.flatten(1) @ columns


def error(found: Tensor, exact: Tensor) -> float:
    """The norm of the difference over that of what is exact."""
    return float((found.double().flatten() - exact.flatten()).norm() / exact.norm())


def works(x: Tensor, kernel: Tensor) -> dict[str, Callable[[], Tensor]]:
    found = {name: partial(convolve, x, kernel, name) for name in PRECISIONS}
    low = x.bfloat16(), kernel.bfloat16()
    return found | {"bf16": partial(convolve, *low, "default")}


def main() -> dict:
    torch.manual_seed(0)
    x = torch.randn(IMAGES, CHANNELS, SIDE, SIDE, device="cuda")
    kernel = torch.randn(CHANNELS, CHANNELS, 3, 3, device="cuda") / 48  # 9 × 256: 48²
    few = slice(0, 4)
    exact = F.conv2d(x[few].double(), kernel.double(), padding=1)
    settings = {
        "convolution": torch.backends.cudnn.conv.fp32_precision,
        "matmul": torch.backends.cuda.matmul.fp32_precision,
    }
    errors = {"matmul": error(multiply(x[few], kernel), exact)}
    ways = works(x, kernel)
    for name, work in ways.items():
        errors[name] = error(work()[few], exact)
    turns = take_turns(ways, 1, 5, 3, rest_s=0.03, clock=gpu_clock)
    rates = {}
    for name, timing in turns.items():
        trials = [FLOP / 1e12 / seconds for seconds in timing.trials]
        rates[name] = {"tflop_s": median(trials), "tflop_s_trials": trials}
    print(f"fp32_precision of convolutions: {settings['convolution']}", end=", ")
    print(f"of matmuls: {settings['matmul']}")
    print(f"{'as a matmul':12}error {errors['matmul']:.1e}")
    for name, rate in rates.items():
        print(f"{name:12}error {errors[name]:.1e}, {rate['tflop_s']:6.1f} TFLOP/s")
    return {"settings": settings, "errors": errors, "rates": rates, "flop": FLOP}


def plot(results: dict, ceilings: dict):
    words = {"ieee": "float32", "default": "float32 by default", "bf16": "bf16"}
    rates = {}
    for name, text in words.items():
        rates[text] = results["rates"][name]["tflop_s"]
    limits = {}
    for name in ("fp32", "tf32", "bf16"):
        if f"{name}_tflop_s" in ceilings:
            limits[f"{name}, ceiling"] = ceilings[f"{name}_tflop_s"]
    return bars(rates, limits, "TFLOP/s")


if __name__ == "__main__":
    main()
