# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy", "pycuda>=2026.1"]
# [tool.overlap]
# gpus = [1]
# timeout = 180
# ///
"""A kernel from source, by pycuda and by PyTorch itself: compiled and launched."""

from collections.abc import Callable
from itertools import count
from tempfile import TemporaryDirectory

import numpy as np
import torch

from snippets.machine.launch_cost import CALLS, launch_clock
from snippets.machine.pycuda_context import torch_context
from snippets.timing.benchmark import wall_clock
from snippets.timing.take_turns import both_orders, recorded, take_turns

SOURCE = """
extern "C" __global__ void twice(float *out, const float *a, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = 2 * a[i];
}
"""


def by_pycuda(source: str, folder: str | bool = False):
    """Its kernel `twice` through nvcc; what is compiled is kept in `folder`, if any."""
    from pycuda.compiler import SourceModule

    built = SourceModule(source, no_extern_c=True, cache_dir=folder)
    return built.get_function("twice")


def by_torch(source: str):
    """The same through NVRTC, which comes with PyTorch; the function is private."""
    return torch.cuda._compile_kernel(source, "twice")


def launches(a: torch.Tensor, out: torch.Tensor) -> dict[str, Callable[[], object]]:
    """Ways to write 2 * a into `out`: PyTorch's own, and one kernel launched thrice."""
    n, blocks, block = a.numel(), (-(-a.numel() // 256), 1, 1), (256, 1, 1)
    pycuda, prepared = by_pycuda(SOURCE), by_pycuda(SOURCE).prepare("PPi")
    compiled, pointers = by_torch(SOURCE), (out.data_ptr(), a.data_ptr())
    return {
        "torch": lambda: torch.mul(a, 2, out=out),
        "compile_kernel": lambda: compiled(blocks, block, [out, a, n]),
        "pycuda": lambda: pycuda(out, a, np.int32(n), grid=blocks, block=block),
        "prepared": lambda: prepared.prepared_call(blocks, block, *pointers, n),
    }


def compile_ms() -> dict:
    """Milliseconds until a kernel can be launched: of the first, and of later ones."""
    number = count()  # no source is compiled twice, except to find it kept
    with TemporaryDirectory() as folder:
        works = {
            "nvcc": lambda: by_pycuda(f"{SOURCE}// {next(number)}"),
            "kept": lambda: by_pycuda(SOURCE, folder),
            "nvrtc": lambda: by_torch(f"{SOURCE}// {next(number)}"),
        }
        first = {name: 1e3 * wall_clock(work) for name, work in works.items()}
        return {"first_ms": first} | recorded(take_turns(works, warmup=0, trials=7))


def main() -> dict:
    a, out = torch.rand(2, 1024, device="cuda")
    with torch_context():
        built = compile_ms()
        works = launches(a, out)
        for work in works.values():
            out.zero_()
            work()
            torch.testing.assert_close(out, a * 2)
        timings = both_orders(works, trials=15, calls=CALLS, clock=launch_clock)
    result = {"built": built, "launch": recorded(timings, "us")}
    for name, ms in built["ms"].items():
        print(f"{name:15} {ms:7.2f} ms, the first {built['first_ms'][name]:7.2f} ms")
    for name, us in result["launch"]["us"].items():
        print(f"{name:15} launched in {us:5.2f} µs")
    return result


if __name__ == "__main__":
    main()
