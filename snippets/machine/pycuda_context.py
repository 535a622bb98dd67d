# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy", "pycuda>=2026.1"]
# [tool.overlap]
# gpus = [1]
# exclusive = false
# ///
"""pycuda in PyTorch's own context: a block in which it works, and what fails outside."""

from collections.abc import Callable
from contextlib import contextmanager
from functools import cache

import numpy as np
import torch


def pycuda_driver():
    """pycuda's module `driver`, initialised; an ImportError says what is missing."""
    try:
        import pycuda.driver as driver
    except ImportError as error:
        needs = "pip install pycuda (the CUDA toolkit compiles it) and NVIDIA's driver"
        raise ImportError(f"no pycuda ({error}). It needs: {needs}") from error
    driver.init()
    return driver


@cache
def primary_context(index: int = 0):
    """The context that PyTorch uses on the GPU `index`, for pycuda; kept until the end.

    If it were given back, pycuda would leave it current: PyTorch would go on there.
    """
    return pycuda_driver().Device(index).retain_primary_context()


@contextmanager
def torch_context(index: int = 0):
    """Inside, pycuda works in PyTorch's context of the GPU `index`; gives its driver."""
    context = primary_context(index)
    context.push()
    try:
        yield pycuda_driver()
    finally:
        context.pop()  # what is not popped aborts the process at its end


def error_of(call: Callable[[], object]) -> str:
    """What a call raises, or nothing."""
    try:
        call()
    except Exception as error:
        return str(error)
    return ""


def main() -> dict:
    driver = pycuda_driver()
    calls = {"mem_get_info": driver.mem_get_info, "Stream": driver.Stream}
    errors = {"no_context": {name: error_of(call) for name, call in calls.items()}}
    x = torch.arange(4.0, device="cuda")  # PyTorch's context is current from here on
    errors["outside"] = {name: error_of(call) for name, call in calls.items()}
    host = np.empty(4, np.float32)
    with torch_context():
        errors["inside"] = {name: error_of(call) for name, call in calls.items()}
        driver.memcpy_dtoh(host, x.data_ptr())
    np.testing.assert_equal(host, x.cpu().numpy())
    for where, rows in errors.items():
        for name, error in rows.items():
            print(f"{where.replace('_', ' '):11}{name}(): {error or 'works'}")
    return {"errors": errors, "read": host.tolist()}


if __name__ == "__main__":
    main()
