"""Seconds that the kernels of `work` take, without their launches."""

import torch


def kernel_seconds(work, calls=20):
    work()
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda._sleep(20_000_000)  # about 10 ms: time to queue all calls
    start.record()
    for _ in range(calls):
        work()
    end.record()
    torch._check(not start.query(), lambda: "the GPU overtook the launches")
    end.synchronize()
    return start.elapsed_time(end) / 1e3 / calls
