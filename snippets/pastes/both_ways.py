"""A page-locked array through a kernel, chunk by chunk, so that copies both ways run at once."""

import pycuda.driver as driver


def both_ways(host, back, there, result, work, streams, chunks=16):
    if host.ndim != 1 or (host.shape, host.dtype) != (back.shape, back.dtype):
        raise ValueError("host and back must be two rows of one length and type")
    size = max(1, -(-host.size // chunks))  # the last chunk may be shorter
    for start, stream in zip(range(0, host.size, size), streams * chunks, strict=False):
        part = slice(start, start + size)
        x, out = (int(buffer) + start * host.itemsize for buffer in (there, result))
        driver.memcpy_htod_async(x, host[part], stream)
        work(out, x, host[part].size, stream)
        driver.memcpy_dtoh_async(back[part], out, stream)
    driver.Context.synchronize()  # now back has the numbers
