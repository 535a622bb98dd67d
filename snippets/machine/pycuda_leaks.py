# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy", "pycuda>=2026.1"]
# [tool.overlap]
# gpus = [1]
# timeout = 180
# ///
"""Memory of pycuda's without a pool: when it is given back, and when it is lost."""

import gc
from collections.abc import Callable

import numpy as np
import torch

from snippets.machine.pycuda_capture import in_a_process, said
from snippets.machine.pycuda_context import pycuda_driver, torch_context

MIB = 256
SIZE = MIB * 2**20
REFUSED = 3  # calls that fail


def array_of(elements: int):
    from pycuda import gpuarray

    return gpuarray.empty(elements, np.float32)


def kept(driver) -> list[object]:
    """mem_alloc, and its object is kept."""
    return [driver.mem_alloc(SIZE)]


def dropped(driver) -> list[object]:
    """mem_alloc, and its object is dropped."""
    driver.mem_alloc(SIZE)
    return []


def address(driver) -> list[object]:
    """mem_alloc, and only the address is kept: the memory is gone."""
    return [int(driver.mem_alloc(SIZE))]


def array_kept(driver) -> list[object]:
    """A GPUArray that is kept."""
    return [array_of(SIZE // 4)]


def array_dropped(driver) -> list[object]:
    """A GPUArray that is dropped."""
    array_of(SIZE // 4)
    return []


def slice_kept(driver) -> list[object]:
    """Ten elements of a GPUArray are kept: with them all of it."""
    return [array_of(SIZE // 4)[:10]]


def in_a_cycle(driver) -> list[object]:
    """A GPUArray that something refers to which it refers to: it waits for Python's gc."""
    holder: list[object] = [array_of(SIZE // 4)]
    holder.append(holder)
    return []


CASES: dict[str, Callable[..., list[object]]] = {
    "mem_alloc, kept": kept,
    "mem_alloc, dropped": dropped,
    "mem_alloc, address kept": address,
    "GPUArray, kept": array_kept,
    "GPUArray, dropped": array_dropped,
    "GPUArray, slice kept": slice_kept,
    "GPUArray, in a cycle": in_a_cycle,
}


def free_mib() -> float:
    torch.cuda.synchronize()
    return torch.cuda.mem_get_info()[0] / 2**20


def taken(name: str) -> dict:
    """MiB that are taken after the case, after a collection, and without its objects."""
    torch.ones(1, device="cuda")
    gc.disable()  # a collection comes when it is asked for
    with torch_context() as driver:
        array_of(1)  # imports what is imported at first
        before = free_mib()
        objects = CASES[name](driver)
        after = before - free_mib()
        gc.collect()
        collected = before - free_mib()
        objects.clear()
        cleared = before - free_mib()
    gc.enable()
    return {"mib": after, "collected_mib": collected, "cleared_mib": cleared}


def refused() -> dict:
    """Without a context on pycuda's stack, while PyTorch's is current: what is lost?"""
    torch.ones(1, device="cuda")
    driver = pycuda_driver()
    before = free_mib()
    says = [said(lambda: driver.mem_alloc(SIZE)) for _ in range(REFUSED)]
    gc.collect()
    lost = before - free_mib()
    with torch_context():
        gc.collect()
    return {"calls": REFUSED, "says": says[0], "lost_mib": lost}


def main() -> dict:
    pycuda_driver()  # says so if pycuda is missing
    rows = {name: in_a_process(taken, name) for name in CASES}
    outside = in_a_process(refused)
    for name, row in rows.items():
        if "died" in row:
            print(f"{name:25}{row['died']}")
            continue
        later = (
            f"{row['collected_mib']:4.0f} collected, {row['cleared_mib']:4.0f} at last"
        )
        print(f"{name:25}{row['mib']:4.0f} MiB taken, {later}")
    if "died" in outside:
        print(f"nothing pushed: {outside['died']}")
    else:
        print(f"nothing pushed: {outside['says']}")
        print(f"{REFUSED} calls of {MIB} MiB: {outside['lost_mib']:.0f} MiB lost")
    return {"size_mib": MIB, "rows": rows, "refused": outside}


def derive(results: dict) -> dict:
    """Cases whose memory is free at once, and those that keep some without their objects."""
    rows = {name: row for name, row in results["rows"].items() if "mib" in row}
    return {
        "free_at_once": [name for name in rows if rows[name]["mib"] <= 4],
        "keeps": [name for name in rows if rows[name]["cleared_mib"] > 4],
    }


if __name__ == "__main__":
    main()
