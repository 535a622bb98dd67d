# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy", "pycuda>=2026.1"]
# [tool.overlap]
# gpus = [1]
# timeout = 120
# ///
"""One element a thread, or four: how much of the memory's rate a plain kernel gets."""

from collections.abc import Callable
from statistics import median

import numpy as np
import torch

from snippets.machine.kernel_from_source import SOURCE, by_pycuda
from snippets.machine.pycuda_context import torch_context
from snippets.pictures import bars
from snippets.timing.kernel_time import gpu_clock
from snippets.timing.take_turns import take_turns

FOUR = """
extern "C" __global__ void twice(float4 *out, const float4 *a, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float4 v = a[i];  // 16 bytes at once
    out[i] = make_float4(2 * v.x, 2 * v.y, 2 * v.z, 2 * v.w);
}
"""
SIZE = 2**28  # elements: a GiB to read, one to write


def kernel(
    source: str, out: torch.Tensor, a: torch.Tensor, elements: int
) -> Callable[[], object]:
    """A launch of the kernel on all of a, so many `elements` for each thread."""
    twice, n = by_pycuda(source), a.numel() // elements
    shape = {"grid": (-(-n // 256), 1), "block": (256, 1, 1)}
    return lambda: twice(out, a, np.int32(n), **shape)


def main() -> dict:
    a = torch.rand(SIZE, device="cuda")
    out = torch.empty_like(a)
    with torch_context():
        works = {
            "PyTorch": lambda: torch.mul(a, 2, out=out),
            "one": kernel(SOURCE, out, a, 1),
            "four": kernel(FOUR, out, a, 4),
        }
        for work in works.values():
            out.zero_()
            work()
            torch.testing.assert_close(out, a * 2)
        timings = take_turns(works, trials=15, calls=5, clock=gpu_clock)
    rates = {
        name: [8 * SIZE / s / 1e9 for s in t.trials] for name, t in timings.items()
    }
    gb_s = {name: median(values) for name, values in rates.items()}
    for name, rate in gb_s.items():
        print(f"{name:8}{rate:7.0f} GB/s")
    return {"gb_s": gb_s, "gb_s_trials": rates}


def plot(results: dict, ceilings: dict):
    words = {
        "PyTorch": "torch.mul",
        "one": "one float per thread",
        "four": "four floats per thread",
    }
    rates = {words[name]: rate for name, rate in results["gb_s"].items()}
    if "hbm_gb_s" not in ceilings:
        return bars(rates, {}, "GB/s")
    shares = {label: 100 * rate / ceilings["hbm_gb_s"] for label, rate in rates.items()}
    return bars(shares, {"ceiling": 100}, "% of the memory's ceiling")


if __name__ == "__main__":
    main()
