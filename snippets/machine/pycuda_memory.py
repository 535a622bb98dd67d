# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy", "pycuda>=2026.1"]
# [tool.overlap]
# gpus = [1]
# timeout = 120
# ///
"""What `InOut` does: 10⁸ numbers go to the GPU and come back for one short kernel."""

from statistics import median

import numpy as np

from snippets.machine.pycuda_context import pycuda_driver, torch_context
from snippets.machine.pycuda_kernel import THREADS, twice_kernel
from snippets.timing.take_turns import recorded, take_turns

SIZE = 10**8


def by_handler(host: np.ndarray) -> None:
    """Double all numbers: pycuda allocates, copies there and back, and waits."""
    argument = pycuda_driver().InOut(host)
    grid = (-(-host.size // THREADS), 1)
    size = np.int64(host.size)
    twice_kernel(0)(argument, size, grid=grid, block=(THREADS, 1, 1))


def by_hand(host: np.ndarray) -> float:
    """The same in its steps; milliseconds of the kernel alone, by pycuda's events."""
    driver = pycuda_driver()
    on_gpu = driver.mem_alloc(host.nbytes)
    driver.memcpy_htod(on_gpu, host)
    start, end = driver.Event(), driver.Event()
    grid = (-(-host.size // THREADS), 1)
    start.record()
    twice_kernel(0)(on_gpu, np.int64(host.size), grid=grid, block=(THREADS, 1, 1))
    end.record()
    driver.memcpy_dtoh(host, on_gpu)
    on_gpu.free()
    return end.time_since(start)


def main() -> dict:
    with torch_context() as driver:
        kernel_ms = []
        pageable = np.ones(SIZE, np.float32)
        pinned = driver.pagelocked_empty(SIZE, np.float32)
        pinned[:] = 1
        works = {
            "InOut": lambda: by_handler(pageable),
            "by_hand": lambda: kernel_ms.append(by_hand(pageable)),
            "InOut_pinned": lambda: by_handler(pinned),
        }
        timings = take_turns(works, warmup=1, trials=9)
        assert (pageable == 2.0**20).all() and (pinned == 2.0**10).all()
        pinned.base.free()
    result = {"bytes": 4 * SIZE} | recorded(timings)
    kernel_ms = kernel_ms[1:]  # the first was a warm-up
    result |= {"kernel_ms": median(kernel_ms), "kernel_ms_trials": kernel_ms}
    for name, ms in result["ms"].items():
        print(f"{name:13}{ms:8.2f} ms for {8 * SIZE / 1e6:,.0f} MB of copies")
    print(f"the kernel   {result['kernel_ms']:8.2f} ms")
    return result


if __name__ == "__main__":
    main()
