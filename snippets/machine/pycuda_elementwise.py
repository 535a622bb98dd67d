# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy", "pycuda>=2026.1"]
# [tool.overlap]
# gpus = [1]
# timeout = 240
# ///
"""pycuda's elementwise and reduction kernels beside PyTorch, eager and compiled."""

from collections.abc import Callable
from statistics import median

import numpy as np
import torch

from snippets.machine.pycuda_context import torch_context
from snippets.machine.tensor_and_gpuarray import strided_array
from snippets.pictures import bars
from snippets.timing.take_turns import take_turns

SIZE = 2**28  # elements: a GiB
TENSORS = {"map": 3, "dot": 2}  # of SIZE elements, which must move at the least


def mixed(x, y):
    """Two products and a sum, of tensors or of pycuda's arrays."""
    return 2 * x + 3 * y


def dot(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return (x * y).sum()


def map_kernel(x: torch.Tensor, y: torch.Tensor) -> Callable[[], torch.Tensor]:
    """`mixed` in one kernel of pycuda's, which loops over its elements."""
    from pycuda.elementwise import ElementwiseKernel

    names = "float *x, float *y, float *z"
    kernel = ElementwiseKernel(names, "z[i] = 2 * x[i] + 3 * y[i]", "mixed")
    z = torch.empty_like(x)
    arrays = [strided_array(each) for each in (x, y, z)]

    def call() -> torch.Tensor:
        kernel(*arrays)
        return z

    return call


def dot_kernel(x: torch.Tensor, y: torch.Tensor) -> Callable[[], torch.Tensor]:
    """`dot` by pycuda's ReductionKernel, two kernels; it allocates for each of them."""
    from pycuda.reduction import ReductionKernel

    names = "const float *x, const float *y"
    how = {"reduce_expr": "a + b", "map_expr": "x[i] * y[i]", "arguments": names}
    kernel = ReductionKernel(np.float32, neutral="0", **how)
    arrays = [strided_array(each) for each in (x, y)]
    out = torch.empty((), device="cuda")

    def call() -> torch.Tensor:
        result = kernel(*arrays)
        return out.copy_(torch.as_tensor(result, device="cuda"))

    return call


def ways(x: torch.Tensor, y: torch.Tensor) -> dict[str, dict]:
    """Each way of `mixed` and `dot`, as a call that gives a tensor."""
    a, b = strided_array(x), strided_array(y)
    compiled = {work: torch.compile(work) for work in (mixed, dot)}
    return {
        "map": {
            "eager": lambda: mixed(x, y),
            "compiled": lambda: compiled[mixed](x, y),
            "kernel": map_kernel(x, y),
            "operators": lambda: torch.as_tensor(mixed(a, b), device="cuda"),
        },
        "dot": {
            "eager": lambda: dot(x, y),
            "torch.dot": lambda: torch.dot(x, y),
            "compiled": lambda: compiled[dot](x, y),
            "kernel": dot_kernel(x, y),
        },
    }


def main() -> dict:
    torch.manual_seed(0)
    x, y = torch.rand(2, SIZE, device="cuda")
    chunks = zip(x.split(2**24), y.split(2**24), strict=True)
    exact = float(sum(dot(a.double(), b.double()) for a, b in chunks))
    result: dict[str, dict] = {"off": {}, "gb_s": {}, "gb_s_trials": {}}
    with torch_context():
        for kind, works in ways(x, y).items():
            expected = mixed(x, y) if kind == "map" else None
            for name, work in works.items():
                if kind == "map":
                    torch.testing.assert_close(work(), expected)
                else:
                    result["off"][name] = abs(float(work()) / exact - 1)
            del expected
            timings = take_turns(works, trials=9, calls=4)
            moved = 4 * SIZE * TENSORS[kind]
            trials = {
                n: [moved / s / 1e9 for s in t.trials] for n, t in timings.items()
            }
            result["gb_s_trials"][kind] = trials
            result["gb_s"][kind] = {n: median(rates) for n, rates in trials.items()}
    for kind, rates in result["gb_s"].items():
        for name, rate in rates.items():
            print(f"{kind}  {name:10}{rate:7.0f} GB/s of the bytes it needs")
    for name, off in result["off"].items():
        print(f"dot by {name:10}off by {off:.1e}")
    return result


def plot(results: dict, ceilings: dict):
    rates = results["gb_s"]["map"] | {
        f"dot, {name}": rate for name, rate in results["gb_s"]["dot"].items()
    }
    if "hbm_gb_s" not in ceilings:
        return bars(rates, {}, "GB/s")
    shares = {name: 100 * rate / ceilings["hbm_gb_s"] for name, rate in rates.items()}
    return bars(shares, {"ceiling": 100}, "% of the memory's ceiling")


if __name__ == "__main__":
    main()
