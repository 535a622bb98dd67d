# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy", "pycuda>=2026.1"]
# [tool.overlap]
# gpus = [1]
# timeout = 180
# ///
"""Broken: `import pycuda.autoinit` makes a second context, and PyTorch goes on in it."""

import multiprocessing
import time
from collections.abc import Callable
from statistics import median
from threading import Thread

import torch

from snippets.machine.pycuda_context import pycuda_driver

ELEMENTS = 10_000_000
TRIALS = 5


def autoinit() -> None:
    """Import it: a context of pycuda's own on the first GPU, which stays current."""
    import pycuda.autoinit  # noqa: F401


def write_late(x: torch.Tensor) -> None:
    """Fill x with threes behind some earlier work; return before it is done."""
    torch.cuda._sleep(1_000_000_000)  # cycles: about half a second
    x.fill_(3)


def beside_a_thread() -> dict:
    """Another thread writes x; PyTorch waits, and reads x here. How long, how wrong?

    All threads have one default stream, so the reading is in order with the writing.
    """
    x = torch.zeros(ELEMENTS, device="cuda")
    assert int((x != 3).sum()) == ELEMENTS  # loads the kernels, which would wait below
    writer = Thread(target=write_late, args=(x,))
    writer.start()
    writer.join()
    start = time.perf_counter()
    torch.cuda.synchronize()
    waited_ms = 1e3 * (time.perf_counter() - start)
    return {"waited_ms": waited_ms, "wrong": int((x != 3).sum())}


def cost(take: Callable[[], None]) -> dict:
    """In a process that uses PyTorch: what `take` costs, and what it does to PyTorch."""
    beside_a_thread()  # warm up
    pycuda_driver()  # its import is not what is measured
    free = torch.cuda.mem_get_info()[0]
    start = time.perf_counter()
    take()
    ms = 1e3 * (time.perf_counter() - start)
    mib = (free - torch.cuda.mem_get_info()[0]) / 2**20
    return {"ms": ms, "mib": mib} | beside_a_thread()


def costs(take: Callable[[], None]) -> dict:
    """Medians of `cost` over fresh processes, one after the other, and the trials."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch"])
    with context.Pool(1, maxtasksperchild=1) as pool:
        rows = [pool.apply(cost, (take,)) for _ in range(TRIALS)]
    trials = {f"{name}_trials": [row[name] for row in rows] for name in rows[0]}
    return {name: median([row[name] for row in rows]) for name in rows[0]} | trials


def main() -> dict:
    result = costs(autoinit) | {"elements": ELEMENTS}
    print(f"pycuda.autoinit: {result['ms']:.0f} ms, {result['mib']:.0f} MiB")
    print(f"then PyTorch waits {result['waited_ms']:.0f} ms for another thread's work")
    print(f"and reads {result['wrong']:,} of {ELEMENTS:,} elements wrong")
    return result


if __name__ == "__main__":
    main()
