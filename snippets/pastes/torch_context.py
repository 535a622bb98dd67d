"""A block in which pycuda works in PyTorch's context of a GPU."""

from contextlib import contextmanager
from functools import cache

import pycuda.driver as driver

primary = cache(lambda gpu: driver.Device(gpu).retain_primary_context())


@contextmanager
def torch_context(index):
    driver.init()
    primary(index).push()
    try:
        yield driver
    finally:
        primary(index).pop()
