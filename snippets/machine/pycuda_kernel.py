# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy", "pycuda>=2026.1"]
# [tool.overlap]
# gpus = [1]
# timeout = 120
# ///
"""Fixed: a kernel from source, with as many blocks as it takes, doubles a tensor."""

from functools import cache

import numpy as np
import torch

from snippets.machine.pycuda_context import torch_context

SOURCE = """
__global__ void twice(float *a, long long n)
{
    long long i = blockIdx.x * (long long) blockDim.x + threadIdx.x;
    if (i < n) a[i] *= 2;  // the last block has more threads than elements
}
"""
THREADS = 256  # of a block


@cache
def twice_kernel(index: int):
    """The kernel, compiled by nvcc and loaded into PyTorch's context on this GPU."""
    from pycuda.compiler import SourceModule

    with torch_context(index):
        return SourceModule(SOURCE).get_function("twice")


def launch(x: torch.Tensor, stream=None) -> None:
    """Double x in a stream of pycuda's; without one, in CUDA's default stream."""
    n = x.numel()
    grid = (-(-n // THREADS), 1)  # blocks, rounded up
    kernel = twice_kernel(x.device.index)
    with torch_context(x.device.index):
        # pycuda passes x as its pointer; of a number it must know the size in bytes
        kernel(x, np.int64(n), grid=grid, block=(THREADS, 1, 1), stream=stream)


def double_(x: torch.Tensor, stream=None) -> None:
    """Double x in place, in order with what PyTorch does to it before and after.

    `x`: float32, contiguous, on a GPU. `stream`: pycuda's, if PyTorch works in it.
    """
    handle = stream.handle if stream else 0
    if torch.cuda.current_stream(x.device).cuda_stream != handle:
        raise RuntimeError("PyTorch works in another stream: nothing orders the two")
    if x.dtype != torch.float32 or not x.is_contiguous():
        raise ValueError("the kernel takes float32, one element after the other")
    if x.numel():
        launch(x, stream)


def main() -> dict:
    x = torch.rand(10_000, 10_000, device="cuda")
    expected = x * 2
    before = x.clone()
    double_(x)
    torch.testing.assert_close(x, expected)
    doubled = int((x == 2 * before).sum())
    print(f"{doubled:,} of {x.numel():,} elements doubled, as PyTorch does")
    return {"elements": x.numel(), "doubled": doubled}


if __name__ == "__main__":
    main()
