# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [1]
# ///
"""Count the blocks of a kernel, how many fit on the GPU at once, and so its waves."""

from functools import partial
from math import ceil, prod

import torch

from snippets.timing.kernel_shapes import kernels_of


def blocks_per_sm(threads: int, registers: int, shared: int) -> int:
    """How many blocks one SM holds at once, by threads, registers and shared memory.

    `registers` are those of one thread, `shared` is bytes of one block. Blocks of few
    threads can meet a further limit, their number on an SM, which is not asked here.
    """
    gpu, warps = torch.cuda.get_device_properties(), ceil(threads / 32)
    of_warp = 256 * ceil(32 * registers / 256)  # registers are given out in 256s
    return min(
        gpu.max_threads_per_multi_processor // (32 * warps),
        gpu.regs_per_multiprocessor // 4 // of_warp * 4 // warps,  # in four parts
        gpu.shared_memory_per_multiprocessor // (shared + 1024),  # CUDA takes 1 KiB
    )


def main() -> dict:
    numbers, results = torch.zeros(2**30, device="cuda"), {}
    x, y = torch.randn(4096, 4096, device="cuda"), torch.randn(512, 512, device="cuda")
    works = {"sum": partial(numbers.add_, 1), "large_product": partial(torch.mm, x, x)}
    works["small_product"] = partial(torch.mm, y, y)
    sms = torch.cuda.get_device_properties().multi_processor_count
    for name, work in works.items():
        work()  # what happens only once is none of its kernels
        results[name] = []
        for told in kernels_of(work):
            blocks, threads = prod(told["grid"]), prod(told["block"])
            registers, shared = told["registers per thread"], told["shared memory"]
            row = {"blocks": blocks, "threads": threads}
            row["per_sm"] = blocks_per_sm(threads, registers, shared)
            row["waves"] = ceil(blocks / (sms * row["per_sm"]))
            results[name].append(row | {"registers": registers, "shared": shared})
            print(f"{name:<14}", *(f"{value:,} {key}" for key, value in row.items()))
    return results


def derive(results: dict) -> dict:
    """Which share of all time a product waits, by waves: urgent, other, of short blocks."""
    small, waves = len(results["small_product"]), results["large_product"][0]["waves"]
    shares = [small / waves, (waves - 1) / waves, small / len(results["sum"])]
    return {"predicted_waits": shares}


if __name__ == "__main__":
    main()
