"""Whether a line waits for what the GPU was given before it: ten times as much work."""

import time

import torch


def waits(line):
    line()  # the first call may load kernels
    torch.cuda.synchronize()
    begin = time.perf_counter()
    line()
    torch.cuda.synchronize()
    torch.cuda._sleep(int(2e7 + 2e10 * (time.perf_counter() - begin)))
    busy = torch.cuda.current_stream().record_event()  # no other is asked
    line()
    return busy.query()
