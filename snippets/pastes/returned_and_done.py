"""Seconds until Python returns from a step, and until the GPU is done with it."""

import time

import torch


def returned_and_done(step):
    for _ in range(3):
        step()
    torch.cuda.synchronize()  # waits for the current GPU only
    start = time.perf_counter()
    step()
    returned = time.perf_counter() - start
    torch.cuda.synchronize()
    return returned, time.perf_counter() - start
