# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy", "pycuda>=2026.1"]
# [tool.overlap]
# gpus = [1]
# timeout = 120
# ///
"""pycuda in a second thread: what works with nothing pushed, and who can free memory."""

import warnings
from collections.abc import Callable
from threading import Thread
from typing import Any

import numpy as np
import torch

from snippets.machine.pycuda_context import error_of, pycuda_driver, torch_context
from snippets.machine.pycuda_kernel import THREADS, twice_kernel

SIZE = 1000
MIB = 256  # of each allocation
#: Contexts that a thread retained: to give them back is another matter.
KEPT: list[object] = []


def calls(x: torch.Tensor) -> dict[str, Callable[[], object]]:
    """Calls of pycuda's that push nothing themselves."""
    driver, kernel = pycuda_driver(), twice_kernel(0)
    host, grid = np.empty(SIZE, np.float32), (-(-SIZE // THREADS), 1)
    return {
        "Stream": driver.Stream,
        "mem_alloc": lambda: driver.mem_alloc(1024),
        "mem_get_info": driver.mem_get_info,
        "memcpy_dtoh": lambda: driver.memcpy_dtoh(host, x.data_ptr()),
        "launch": lambda: kernel(x, np.int64(SIZE), grid=grid, block=(THREADS, 1, 1)),
    }


def errors(x: torch.Tensor) -> dict[str, str]:
    """What each of them raises in this thread."""
    return {name: error_of(call) for name, call in calls(x).items()}


def after_torch(x: torch.Tensor) -> dict[str, str]:
    """The same in a thread in which PyTorch has worked before."""
    x.clone()
    return errors(x)


def pushed(x: torch.Tensor) -> dict[str, str]:
    """The same in a thread that pushed PyTorch's context."""
    with torch_context():
        return errors(x)


def in_thread(work: Callable[..., Any], *args):
    """What `work` gives in a thread of its own, or raises there."""
    given: dict = {}

    def run() -> None:
        try:
            given["result"] = work(*args)
        except Exception as error:
            given["error"] = error

    thread = Thread(target=run)
    thread.start()
    thread.join()
    if "error" in given:
        raise given["error"]
    return given["result"]


def allocation():
    """Memory of pycuda's, made in PyTorch's context."""
    with torch_context() as driver:
        return driver.mem_alloc(MIB * 2**20)


def freed_inside() -> None:
    with torch_context() as driver:
        memory = driver.mem_alloc(MIB * 2**20)
        del memory


def freed_after() -> None:
    memory = allocation()
    del memory


def freed_with_own_context() -> None:
    """The thread retains PyTorch's context itself, and frees after the pop."""
    driver = pycuda_driver()
    context = driver.Device(0).retain_primary_context()
    KEPT.append(context)
    context.push()
    try:
        memory = driver.mem_alloc(MIB * 2**20)
    finally:
        context.pop()
    del memory


def freed_by_the_first() -> None:
    """A second thread makes it, and this one frees it."""
    memory = in_thread(allocation)
    del memory


def freed_by_the_second() -> None:
    """This thread makes it, and a second one frees it."""
    box = [allocation()]
    in_thread(box.clear)


#: Each way to free, and whether a second thread goes it. The first one retained the context.
WAYS = {
    "inside the block": (freed_inside, True),
    "after the block": (freed_after, True),
    "after the block, in the first thread": (freed_after, False),
    "made in the second, freed in the first": (freed_by_the_first, False),
    "made in the first, freed in the second": (freed_by_the_second, False),
    "after the pop of a context of its own": (freed_with_own_context, True),
}


def left(way: Callable[[], None], in_second: bool) -> dict:
    """MiB of the GPU that are still taken after this way, and what was warned."""
    torch.cuda.synchronize()
    free = torch.cuda.mem_get_info()[0]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if in_second:
            in_thread(way)
        else:
            way()
    mib = (free - torch.cuda.mem_get_info()[0]) / 2**20
    return {"mib": mib, "warned": [str(warning.message) for warning in caught]}


def main() -> dict:
    x = torch.ones(SIZE, device="cuda")
    with torch_context():  # the first thread has pushed while the others try
        says = {
            "nothing pushed": in_thread(errors, x),
            "nothing pushed, after PyTorch": in_thread(after_torch, x),
            "pushed": in_thread(pushed, x),
        }
    memory = {name: left(*way) for name, way in WAYS.items()}
    for where, rows in says.items():
        print(f"a second thread, {where}")
        for name, error in rows.items():
            print(f"    {name:13}{error or 'works'}")
    for name, row in memory.items():
        print(f"freed {name}: {row['mib']:.0f} MiB still taken", *row["warned"])
    return {"size_mib": MIB, "says": says, "memory": memory}


if __name__ == "__main__":
    main()
