"""How many batches a second come out of a loop, with a step or without."""

import time

import torch


def per_second(batches, step=lambda batch: None, most=50):
    batches, steps = iter(batches), 0
    step(next(batches))  # workers have started, kernels are loaded
    torch.cuda.synchronize()  # of the current GPU, no other
    start = time.perf_counter()
    for _, batch in zip(range(most), batches, strict=False):
        step(batch)
        steps += 1
    torch.cuda.synchronize()
    return 1 / ((time.perf_counter() - start) / steps)  # raises for one batch
