"""A stream of pycuda's in which PyTorch works, too; made once for each GPU."""

from functools import cache

import pycuda.driver as driver
import torch


@cache
def shared_stream(index, /):
    with torch_context(index):
        stream = driver.Stream(1)  # non-blocking, as PyTorch's own streams
    return stream, torch.cuda.ExternalStream(stream.handle, device=index)
