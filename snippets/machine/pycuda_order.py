# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy", "pycuda>=2026.1"]
# [tool.overlap]
# gpus = [1]
# exclusive = false
# timeout = 120
# ///
"""Which calls of pycuda's are in order with a stream in which PyTorch still writes."""

from collections.abc import Callable

import numpy as np
import torch

from snippets.machine.pycuda_context import torch_context

SIZE = 2**16
CYCLES = 200_000_000  # a tenth of a second: PyTorch's write comes after it
FLAGS = {"Stream(1)": 1, "Stream()": 0}  # 1: it has no order with the default stream
SOURCE = """__global__ void copied(float *out, const float *x, long long n) {
    long long i = blockIdx.x * 256LL + threadIdx.x; if (i < n) out[i] = x[i]; }"""


class Program:
    """Ones in `x`, a kernel, and a stream of pycuda's in which PyTorch writes twos."""

    def __init__(self, driver, flag: int) -> None:
        from pycuda.compiler import SourceModule
        from pycuda.gpuarray import GPUArray

        self.driver, self.stream = driver, driver.Stream(flag)
        self.shared = torch.cuda.ExternalStream(self.stream.handle)
        self.x = torch.ones(SIZE, device="cuda")
        self.a = GPUArray(SIZE, np.float32, gpudata=self.x.data_ptr(), base=self.x)
        self.host = driver.pagelocked_empty(SIZE, np.float32)
        self.kernel = SourceModule(SOURCE).get_function("copied")

    def copied_down(self) -> np.ndarray:
        self.driver.memcpy_dtoh(self.host, self.x.data_ptr())
        return self.host

    def copied_down_async(self) -> np.ndarray:
        self.driver.memcpy_dtoh_async(self.host, self.x.data_ptr(), self.stream)
        return self.host

    def filled(self) -> np.ndarray:
        """Tens, written behind the twos if the call is in order."""
        self.a.fill(10)
        return self.a

    def by_out(self) -> np.ndarray:
        n, size = np.int64(SIZE), {"block": (256, 1, 1), "grid": (SIZE // 256, 1)}
        out = self.driver.Out(self.host)
        self.kernel(out, self.x, n, **size, stream=self.stream)
        return self.host


def exp_of(p: Program, **where):
    from pycuda import cumath

    return cumath.exp(p.a, **where)


def sum_of(p: Program, **where):
    from pycuda import gpuarray

    return gpuarray.sum(p.a, **where)


#: each call, and the first number of its result if it reads twos
CALLS: dict[str, tuple[Callable[..., object], float]] = {
    "2 * a": (lambda p: 2 * p.a, 4),
    "a + a": (lambda p: p.a + p.a, 4),
    "a.get()": (lambda p: p.a.get(), 2),
    "a.fill(10)": (Program.filled, 10),
    "memcpy_dtoh": (Program.copied_down, 2),
    "sum(a)": (sum_of, 2 * SIZE),
    "exp(a)": (exp_of, float(np.exp(np.float32(2)))),
    "Out, stream=": (Program.by_out, 2),
    "mul_add, stream=": (lambda p: p.a.mul_add(2, p.a, 3, stream=p.stream), 10),
    "sum(a, stream=)": (lambda p: sum_of(p, stream=p.stream), 2 * SIZE),
    "exp(a, stream=)": (
        lambda p: exp_of(p, stream=p.stream),
        float(np.exp(np.float32(2))),
    ),
    "a.get_async(stream)": (lambda p: p.a.get_async(p.stream), 2),
    "memcpy_dtoh_async": (Program.copied_down_async, 2),
}


def in_order(program: Program, call: Callable[..., object], right: float) -> bool:
    """Whether the call reads, or writes, behind the twos that PyTorch writes before it."""
    call(program)  # compiles
    torch.cuda.synchronize()
    program.x.fill_(1)
    torch.cuda.synchronize()
    with torch.cuda.stream(program.shared):
        torch.cuda._sleep(CYCLES)
        program.x.fill_(2)
    result = call(program)
    torch.cuda.synchronize()
    numbers = result if isinstance(result, np.ndarray) else result.get()
    return bool(np.isclose(numbers.flat[0], right))


def main() -> dict:
    with torch_context() as driver:
        rows = {}
        for kind, flag in FLAGS.items():
            p = Program(driver, flag)
            rows[kind] = {name: in_order(p, *case) for name, case in CALLS.items()}
            del p  # inside its context
    print(f"{'in order with':22}" + "".join(f"{kind:12}" for kind in FLAGS))
    for name in CALLS:
        said = ["yes" if rows[kind][name] else "no" for kind in FLAGS]
        print(f"{name:22}" + "".join(f"{each:12}" for each in said))
    return {"rows": rows}


def derive(results: dict) -> dict:
    """The calls that do not wait for what was written before them, for each stream."""
    rows = results["rows"]
    return {
        "early": {
            kind: sorted(n for n in rows[kind] if not rows[kind][n]) for kind in rows
        }
    }


if __name__ == "__main__":
    main()
