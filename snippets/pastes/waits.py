"""Whether a line waits for what the GPU was given before it."""

import torch


def waits(line):
    line()  # the first call may load kernels
    torch.cuda.synchronize()
    torch.cuda._sleep(20_000_000)  # about 10 ms
    busy = torch.cuda.current_stream().record_event()
    line()
    waited = busy.query()
    torch.cuda.synchronize()
    return waited
