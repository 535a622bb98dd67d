# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy", "pycuda>=2026.1"]
# [tool.overlap]
# gpus = [1]
# timeout = 180
# ///
"""Shared and constant memory, registers, and how many blocks an SM really holds."""

from statistics import median

import numpy as np
import torch

from snippets.machine.pycuda_context import torch_context
from snippets.timing.kernel_time import gpu_clock
from snippets.timing.take_turns import take_turns

SOURCE = """
__constant__ float COEFFICIENTS[4];

template <typename T> __device__ T horner(T x)
{
    T y = 0;
    for (int i = 0; i < 4; i++) y = y * x + (T) COEFFICIENTS[i];
    return y;
}

extern "C" {
__global__ void polynomial_float(float *out, const float *x, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = horner<float>(x[i]);
}
__global__ void polynomial_double(double *out, const double *x, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = horner<double>(x[i]);
}
__global__ void transpose_plain(float *out, const float *x, int n)
{
    int column = blockIdx.x * 32 + threadIdx.x, row = blockIdx.y * 32 + threadIdx.y;
    for (int j = 0; j < 32; j += 8)
        out[(size_t) column * n + row + j] = x[(size_t) (row + j) * n + column];
}
__global__ void transpose_shared(float *out, const float *x, int n)
{
    __shared__ float tile[32][33];  // one more column: no two threads of a warp collide
    int column = blockIdx.x * 32 + threadIdx.x, row = blockIdx.y * 32 + threadIdx.y;
    for (int j = 0; j < 32; j += 8)
        tile[threadIdx.y + j][threadIdx.x] = x[(size_t) (row + j) * n + column];
    __syncthreads();
    column = blockIdx.y * 32 + threadIdx.x;
    row = blockIdx.x * 32 + threadIdx.y;
    for (int j = 0; j < 32; j += 8)
        out[(size_t) (row + j) * n + column] = tile[threadIdx.x][threadIdx.y + j];
}
__global__ void residents(int *active, int *most, long long cycles)
{
    if (threadIdx.x == 0) {
        unsigned sm;
        asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
        atomicMax(&most[sm], atomicAdd(&active[sm], 1) + 1);
        long long begin = clock64();
        while (clock64() - begin < cycles);
        atomicSub(&active[sm], 1);
    }
    __syncthreads();
}
}
"""
KERNELS = [
    "polynomial_float",
    "polynomial_double",
    "transpose_plain",
    "transpose_shared",
    "residents",
]
COEFFICIENTS = [1.0, -2.0, 0.5, 3.0]  # of x³, x², x and 1
N = 2**14  # rows and columns of the transposed matrix: a GiB
THREADS = [32, 64, 128, 256, 512, 1024]


def polynomials_are_right(driver, module, kernels: dict) -> None:
    """Set the constant memory, and compare both instances of the template with NumPy."""
    pointer, _ = module.get_global("COEFFICIENTS")
    driver.memcpy_htod(pointer, np.array(COEFFICIENTS, np.float32))
    for dtype, name in ((torch.float32, "float"), (torch.float64, "double")):
        x = torch.linspace(-2, 2, 1000, dtype=dtype, device="cuda")
        out = torch.empty_like(x)
        kernel = kernels[f"polynomial_{name}"]
        kernel(out, x, np.int32(1000), grid=(4, 1), block=(256, 1, 1))
        expected = np.polyval(COEFFICIENTS, x.double().cpu().numpy())
        np.testing.assert_allclose(out.cpu().numpy(), expected, rtol=1e-4, atol=1e-4)


def transposed(kernels: dict) -> dict[str, list[float]]:
    """GB/s of each way to transpose a matrix, checked first."""
    x = torch.rand(N, N, device="cuda")
    out = torch.empty_like(x)
    shape = {"grid": (N // 32, N // 32), "block": (32, 8, 1)}
    works = {
        "plain": lambda: kernels["transpose_plain"](out, x, np.int32(N), **shape),
        "shared": lambda: kernels["transpose_shared"](out, x, np.int32(N), **shape),
        "PyTorch": lambda: out.copy_(x.T),
    }
    for work in works.values():
        out.zero_()
        work()
        assert torch.equal(out, x.T)
    timings = take_turns(works, trials=9, calls=4, clock=gpu_clock)
    return {
        name: [8 * N * N / s / 1e9 for s in t.trials] for name, t in timings.items()
    }


def blocks_on_an_sm(kernel, threads: int) -> int:
    """The most blocks of so many threads that were on one SM at the same time."""
    active, most = torch.zeros(2, 1024, dtype=torch.int32, device="cuda")
    blocks = 40 * torch.cuda.get_device_properties(0).multi_processor_count
    kernel(active, most, np.int64(100_000), grid=(blocks, 1), block=(threads, 1, 1))
    torch.cuda.synchronize()
    return int(most.max())


def occupancy(kernel) -> list[dict]:
    """Blocks on an SM by pycuda's calculator, and as they were counted on the GPU."""
    from pycuda.tools import DeviceData, OccupancyRecord

    rows = []
    for threads in THREADS:
        record = OccupancyRecord(DeviceData(), threads, registers=kernel.num_regs)
        row = {"threads": threads, "pycuda": record.tb_per_mp}
        row["limited_by"] = record.limited_by
        rows.append(row | {"counted": blocks_on_an_sm(kernel, threads)})
    return rows


def main() -> dict:
    with torch_context() as driver:
        from pycuda.compiler import SourceModule

        module = SourceModule(SOURCE, no_extern_c=True)
        kernels = {name: module.get_function(name) for name in KERNELS}
        uses = {
            name: {
                "registers": kernel.num_regs,
                "shared_bytes": kernel.shared_size_bytes,
                "local_bytes": kernel.local_size_bytes,
                "constant_bytes": kernel.const_size_bytes,
                "threads_at_most": kernel.max_threads_per_block,
            }
            for name, kernel in kernels.items()
        }
        polynomials_are_right(driver, module, kernels)
        trials = transposed(kernels)
        rows = occupancy(kernels["residents"])
    gb_s = {name: median(rates) for name, rates in trials.items()}
    for name, use in uses.items():
        print(
            f"{name:18}{use['registers']:3} registers, {use['shared_bytes']} B shared"
        )
    for name, rate in gb_s.items():
        print(f"transposed, {name:8}{rate:7.0f} GB/s")
    for row in rows:
        both = f"pycuda says {row['pycuda']}, counted {row['counted']}"
        print(f"blocks of {row['threads']:4} threads on an SM: {both}")
    return {"uses": uses, "gb_s": gb_s, "gb_s_trials": trials, "rows": rows}


if __name__ == "__main__":
    main()
