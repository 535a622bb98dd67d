# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy", "pycuda>=2026.1"]
# [tool.overlap]
# gpus = [1]
# timeout = 120
# ///
"""What memory costs by pycuda: driver, pools, page-locked and managed memory."""

import time

import numpy as np
import torch

from snippets.machine.kernel_from_source import SOURCE, by_pycuda
from snippets.machine.pycuda_context import torch_context
from snippets.timing.take_turns import recorded, take_turns

SIZES = {"small": 2**20, "large": 2**28}  # bytes
MANAGED = 2**24  # elements of managed memory: 64 MiB, far less than is free


def ways(driver, size: int) -> dict:
    """Take so many bytes, and give them back, in each way."""
    from pycuda.tools import DeviceMemoryPool, PageLockedMemoryPool

    device, host = DeviceMemoryPool(), PageLockedMemoryPool()
    shape = (size,)
    return {
        "mem_alloc": lambda: driver.mem_alloc(size).free(),
        "pool": lambda: device.allocate(size).free(),
        "torch.empty": lambda: torch.empty(size, dtype=torch.uint8, device="cuda"),
        "pagelocked": lambda: driver.pagelocked_empty(shape, np.uint8).base.free(),
        "pagelocked_pool": lambda: host.allocate(shape, np.uint8).base.free(),
    }


def managed(driver) -> dict:
    """One array that CPU and GPU both use by its address: who waits for its pages?"""
    flags = driver.mem_attach_flags.GLOBAL
    x, out = (
        driver.managed_empty(MANAGED, np.float32, mem_flags=flags) for _ in range(2)
    )
    kernel = by_pycuda(SOURCE)
    shape = {"grid": (-(-MANAGED // 256), 1), "block": (256, 1, 1)}
    x[:] = np.arange(MANAGED)  # by the CPU
    out[:] = 0

    def on_the_gpu() -> None:
        kernel(out, x, np.int32(MANAGED), **shape)
        driver.Context.synchronize()  # the CPU must not read before

    ms = {}
    steps = {
        "gpu_first": on_the_gpu,
        "gpu_again": on_the_gpu,
        "cpu_first": lambda: out.sum(dtype=np.float64),
        "cpu_again": lambda: out.sum(dtype=np.float64),
    }
    for name, step in steps.items():
        start = time.perf_counter()
        step()
        ms[name] = 1e3 * (time.perf_counter() - start)
    np.testing.assert_equal(np.asarray(out), 2 * np.arange(MANAGED, dtype=np.float32))
    return {"mib": 4 * MANAGED / 2**20, "ms": ms}


def main() -> dict:
    result: dict[str, dict] = {}
    with torch_context() as driver:
        for name, size in SIZES.items():
            timings = take_turns(ways(driver, size), trials=15, calls=5)
            result[name] = {"bytes": size} | recorded(timings, "us")
        managed(driver)  # loads the kernel
        result["managed"] = managed(driver)
    for name in SIZES:
        for way, us in result[name]["us"].items():
            print(f"{result[name]['bytes'] / 2**20:4.0f} MiB by {way:16}{us:10.1f} µs")
    for step, ms in result["managed"]["ms"].items():
        print(f"managed, {step}: {ms:.2f} ms for {result['managed']['mib']:.0f} MiB")
    return result


if __name__ == "__main__":
    main()
