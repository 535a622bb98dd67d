# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy", "pycuda>=2026.1"]
# [tool.overlap]
# gpus = [1]
# exclusive = false
# ///
"""How many blocks an SM holds: the least of four numbers, the driver, and cuda.core."""

import ctypes

import torch

from snippets.machine.pycuda_context import pycuda_driver

SOURCE = """
extern "C" __global__ void small(float *x, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] *= 2;
}
extern "C" __global__ void shared(float *x, int n)
{
    __shared__ float tile[5000];  // 20,000 bytes
    for (int i = threadIdx.x; i < 5000; i += blockDim.x) tile[i] = x[i];
    __syncthreads();
    for (int i = threadIdx.x; i < 5000; i += blockDim.x) x[i] = tile[4999 - i] * n;
}
extern "C" __global__ void odd(float *x, int n)
{
    __shared__ float tile[3177];  // with the reserved bytes no multiple of 128
    for (int i = threadIdx.x; i < 3177; i += blockDim.x) tile[i] = x[i];
    __syncthreads();
    for (int i = threadIdx.x; i < 3177; i += blockDim.x) x[i] = tile[3176 - i] * n;
}
extern "C" __global__ void __launch_bounds__(512, 3) bounded(float *x, int n)
{
    float v[90];
    #pragma unroll
    for (int i = 0; i < 90; i++) v[i] = x[i * n + threadIdx.x];
    for (int k = 0; k < n; k++) {
        #pragma unroll
        for (int i = 0; i < 90; i++) v[i] = v[i] * v[(i + 1) % 90] + k;
    }
    #pragma unroll
    for (int i = 0; i < 90; i++) x[i * n + threadIdx.x] = v[i];
}
extern "C" __global__ void registers(float *x, int n)
{
    float v[90];
    #pragma unroll
    for (int i = 0; i < 90; i++) v[i] = x[i * n + threadIdx.x];
    for (int k = 0; k < n; k++) {
        #pragma unroll
        for (int i = 0; i < 90; i++) v[i] = v[i] * v[(i + 1) % 90] + k;
    }
    #pragma unroll
    for (int i = 0; i < 90; i++) x[i * n + threadIdx.x] = v[i];
}
"""
KERNELS = ["small", "shared", "odd", "bounded", "registers"]
THREADS = [64, 96, 256, 512]
#: Their numbers in the driver's header.
SHARED_SIZE_BYTES, NUM_REGS = 1, 4
LIMITS = [
    "MAX_BLOCKS_PER_MULTIPROCESSOR",
    "MAX_THREADS_PER_MULTIPROCESSOR",
    "MAX_REGISTERS_PER_MULTIPROCESSOR",
    "MAX_SHARED_MEMORY_PER_MULTIPROCESSOR",
    "RESERVED_SHARED_MEMORY_PER_BLOCK",
]


def limits(index: int = 0) -> dict[str, int]:
    """What an SM of this GPU has, by pycuda's attributes."""
    driver = pycuda_driver()
    gpu = driver.Device(index)
    return {
        name: gpu.get_attribute(getattr(driver.device_attribute, name))
        for name in LIMITS
    }


def blocks_at_most(
    of: dict[str, int], threads: int, registers: int, shared: int
) -> int:
    """The least of four numbers; registers are of a thread, shared bytes of a block.

    Both are given in units, so the true number can be smaller.
    """
    return min(
        of["MAX_BLOCKS_PER_MULTIPROCESSOR"],
        of["MAX_THREADS_PER_MULTIPROCESSOR"] // threads,
        of["MAX_REGISTERS_PER_MULTIPROCESSOR"] // (threads * registers),
        of["MAX_SHARED_MEMORY_PER_MULTIPROCESSOR"]
        // (shared + of["RESERVED_SHARED_MEMORY_PER_BLOCK"]),
    )


def asked(call, *args) -> int:
    """The int that a function of the driver writes to its first argument."""
    value = ctypes.c_int()
    error = call(ctypes.byref(value), *args)
    if error:
        raise RuntimeError(f"{call.__name__}: error {error}")
    return value.value


def by_the_driver(name: str) -> list[dict]:
    """Registers and shared memory of a kernel, and its blocks on an SM, by the driver."""
    libcuda = ctypes.CDLL("libcuda.so.1")
    function = torch.cuda._compile_kernel(SOURCE, name).func
    attribute, occupancy = (
        libcuda.cuFuncGetAttribute,
        libcuda.cuOccupancyMaxActiveBlocksPerMultiprocessor,
    )
    uses = {
        "registers": asked(attribute, NUM_REGS, function),
        "shared_bytes": asked(attribute, SHARED_SIZE_BYTES, function),
    }
    none = ctypes.c_size_t(0)  # shared memory at the launch
    return [
        uses | {"threads": threads, "driver": asked(occupancy, function, threads, none)}
        for threads in THREADS
    ]


def by_cuda_core(name: str) -> list[int] | None:
    """The same by NVIDIA's cuda.core; None if it is not there."""
    try:
        from cuda.core import Device, Program, ProgramOptions
    except ImportError:
        return None
    Device(0).set_current()
    major, minor = torch.cuda.get_device_capability()
    options = ProgramOptions(std="c++17", arch=f"sm_{major}{minor}")
    code = Program(SOURCE, code_type="c++", options=options).compile("cubin")
    occupancy = code.get_kernel(name).occupancy
    return [
        occupancy.max_active_blocks_per_multiprocessor(threads, 0)
        for threads in THREADS
    ]


def main() -> dict:
    torch.ones(1, device="cuda")
    of, rows = limits(), []
    for name in KERNELS:
        by_core = by_cuda_core(name) or [None] * len(THREADS)
        for row, core in zip(by_the_driver(name), by_core, strict=True):
            use = row["threads"], row["registers"], row["shared_bytes"]
            row |= {"formula": blocks_at_most(of, *use), "cuda_core": core}
            rows.append({"kernel": name} | row)
    for row in rows:
        use = f"{row['registers']:3} registers, {row['shared_bytes']:5} B shared"
        says = "formula {formula}, driver {driver}, cuda.core {cuda_core}".format(**row)
        print(f"{row['kernel']:10}{row['threads']:4} threads, {use}: {says}")
    return {"limits": of, "rows": rows}


def derive(results: dict) -> dict:
    """In how many rows the formula is the driver's number, and in which it is smaller.

    `above` is the most by which it is larger, of all and of the kernel `small`.
    """
    rows = results["rows"]
    above = {
        key: max(row["formula"] - row["driver"] for row in rows if row["kernel"] in of)
        for key, of in (("most", KERNELS), ("small", ["small"]))
    }
    return {
        "above": above,
        "core_differs": [row for row in rows if row["cuda_core"] != row["driver"]],
        "same": sum(row["formula"] == row["driver"] for row in rows),
        "smaller": [row for row in rows if row["formula"] < row["driver"]],
    }


if __name__ == "__main__":
    main()
