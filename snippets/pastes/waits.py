"""Whether a line waits for what the GPU was given before it: ten times as much work."""

import time

import torch


def waits(line, hz=2e9):  # about the GPU's clock
    line()  # the first call may load kernels
    torch.cuda.synchronize()
    begin = time.perf_counter()
    line()
    torch.cuda.synchronize()
    torch.cuda._sleep(int(hz * (0.01 + 10 * (time.perf_counter() - begin))))
    busy = torch.cuda.current_stream().record_event()  # other streams are not asked
    line()
    return busy.query()  # whether the GPU is done
