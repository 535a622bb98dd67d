"""A stream of pycuda's in which PyTorch works, too; made once for each GPU."""

from functools import cache

import pycuda.driver as driver
import torch


@cache
def one_stream(index=0):
    driver.init()
    context = driver.Device(index).retain_primary_context()
    context.push()
    stream = driver.Stream(1)  # non-blocking, as PyTorch's own streams
    context.pop()
    return stream, torch.cuda.ExternalStream(stream.handle, device=index)
