# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy", "pycuda>=2026.1"]
# [tool.overlap]
# gpus = [1]
# timeout = 120
# ///
"""A dot product by pycuda's ReductionKernel: is it its allocations that make it slow?"""

import numpy as np
import torch

from snippets.machine.pycuda_context import torch_context
from snippets.machine.tensor_and_gpuarray import strided_array
from snippets.timing.kernel_time import gpu_clock
from snippets.timing.take_turns import recorded, take_turns

UNWAITED = ("with both", "torch.dot")  # the others free memory, and that waits
SIZES = {"large": 2**28, "small": 2**16}  # elements of each of the two tensors


def ways(x: torch.Tensor, y: torch.Tensor, pool) -> dict:
    """Ways to a dot product, each as a call that gives a tensor of one element."""
    from pycuda.gpuarray import GPUArray
    from pycuda.reduction import ReductionKernel

    how = {"reduce_expr": "a + b", "map_expr": "x[i] * y[i]"}
    how |= {"arguments": "const float *x, const float *y"}
    kernel = ReductionKernel(np.float32, neutral="0", **how)
    a, b = strided_array(x), strided_array(y)
    result = torch.zeros((), device="cuda")
    out = GPUArray((), np.float32, gpudata=result.data_ptr(), base=result)
    return {
        "as it is": lambda: kernel(a, b),
        "with out": lambda: kernel(a, b, out=out),
        "with a pool": lambda: kernel(a, b, allocator=pool.allocate),
        "with both": lambda: kernel(a, b, out=out, allocator=pool.allocate),
        "torch.dot": lambda: torch.dot(x, y),
    }


def main() -> dict:
    torch.manual_seed(0)
    result: dict = {"sizes": SIZES, "wall": {}, "gpu": {}}
    with torch_context():
        from pycuda.tools import DeviceMemoryPool

        pool = DeviceMemoryPool()
        for size, n in SIZES.items():
            x, y = torch.rand(2, n, device="cuda")
            works = ways(x, y, pool)
            for work in works.values():
                value = float(torch.as_tensor(work(), device="cuda"))
                assert abs(value / (n / 4) - 1) < 0.05
            wall = take_turns(works, trials=11, calls=10)
            queued = {name: works[name] for name in UNWAITED}
            gpu = take_turns(queued, trials=11, calls=10, clock=gpu_clock)
            result["wall"][size] = recorded(wall, "us")
            result["gpu"][size] = recorded(gpu, "us")
            del x, y, works
        pool.free_held()
    for size, n in SIZES.items():
        print(f"a dot product of {n:,} elements")
        for name, us in result["wall"][size]["us"].items():
            print(f"    {name:12}{us:9.1f} µs")
        for name, us in result["gpu"][size]["us"].items():
            print(f"    {name:12}{us:9.1f} µs by the GPU's clock")
    return result


if __name__ == "__main__":
    main()
