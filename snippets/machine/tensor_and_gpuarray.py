# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy", "pycuda>=2026.1"]
# [tool.overlap]
# gpus = [1]
# exclusive = false
# take = ["strided_array"]
# ///
"""A tensor as pycuda's array and the reverse: one memory, and who keeps it alive."""

import gc
import weakref
from functools import partial
from typing import Any

import numpy as np
import torch

from snippets.machine.pycuda_context import error_of, torch_context

SHAPE = (256, 1024, 256)  # 256 MiB of float32


def strided_array(x: torch.Tensor) -> Any:
    """The memory of x as a GPUArray, which keeps x alive: nothing is copied.

    `x` is on a GPU, in whose context pycuda works. A type that NumPy does not have, as
    bfloat16, is a TypeError. What reads it must be in order with what writes x.
    """
    from pycuda.gpuarray import GPUArray

    dtype = np.dtype(str(x.dtype).removeprefix("torch."))
    strides = tuple(x.element_size() * step for step in x.stride())
    return GPUArray(
        tuple(x.shape), dtype, gpudata=x.data_ptr(), base=x, strides=strides
    )


def without_owner(x: torch.Tensor):
    """The same, but nothing keeps x alive: a trap."""
    from pycuda.gpuarray import GPUArray

    return GPUArray(tuple(x.shape), np.float32, gpudata=x.data_ptr())


def after_the_tensor(view) -> float:
    """What the array `view(x)` of threes shows when x is gone and others got sevens."""
    x = torch.full(SHAPE, 3.0, device="cuda")
    array = view(x)
    del x
    later = torch.full(SHAPE, 7.0, device="cuda")
    torch.cuda.synchronize()
    value = float(array.get()[0, 0, 0])
    del later
    return value


def of_an_array(driver) -> dict:
    """An array of pycuda's as a tensor: is it the same memory, and is it kept?"""
    from pycuda import gpuarray

    before, free = torch.cuda.memory_allocated(), driver.mem_get_info()[0]
    array = gpuarray.to_gpu(np.full(SHAPE, 3, np.float32))
    outside_mib = (free - driver.mem_get_info()[0]) / 2**20
    tensor, kept = torch.as_tensor(array, device="cuda"), weakref.ref(array)
    row = {"same_memory": tensor.data_ptr() == array.ptr, "outside_mib": outside_mib}
    row["allocated_by_torch"] = torch.cuda.memory_allocated() - before
    row["dlpack"] = error_of(partial(torch.from_dlpack, array))
    del array
    gc.collect()
    row["kept"] = kept() is not None
    other = gpuarray.to_gpu(np.full(SHAPE, 7, np.float32))
    row["value"] = float(tensor[0, 0, 0])
    del tensor, other
    gc.collect()
    row["kept_without_tensor"] = kept() is not None
    return row


def main() -> dict:
    with torch_context() as driver:
        x = torch.arange(6.0, device="cuda").view(2, 3)
        for each in (x, x.T):  # with strides, too
            np.testing.assert_equal(strided_array(each).get(), each.cpu().numpy())
        doubled = strided_array(x) * 2
        np.testing.assert_equal(doubled.get(), (x * 2).cpu().numpy())
        bfloat16 = error_of(lambda: strided_array(x.bfloat16()))
        values = {
            "kept": after_the_tensor(strided_array),
            "lost": after_the_tensor(without_owner),
        }
        array = of_an_array(driver)
        del doubled  # in its context
    print(f"an array that keeps its tensor shows {values['kept']}, as written")
    print(f"one that does not shows {values['lost']}: the memory is another tensor's")
    print(f"a tensor of pycuda's memory: kept {array['kept']}, shows {array['value']}")
    print(f"PyTorch's allocator counts {array['allocated_by_torch']} bytes of it")
    print(f"DLPack: {array['dlpack']}")
    print(f"bfloat16: {bfloat16}")
    return {"values": values, "array": array, "bfloat16": bfloat16}


if __name__ == "__main__":
    main()
