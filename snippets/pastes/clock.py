"""Seconds of one call of `work`, until the GPU has its result."""

import time

import torch


def seconds(work, calls=20):
    for _ in range(3):
        work()
    torch.cuda.synchronize()  # waits for the current GPU only
    start = time.perf_counter()
    for _ in range(calls):
        work()
    torch.cuda.synchronize()
    return (time.perf_counter() - start) / calls
