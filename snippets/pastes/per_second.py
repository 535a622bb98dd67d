"""How many batches a second come out of a loop, with a step or without."""

import time

import torch


def per_second(batches, step=lambda batch: None, most=50):
    for batch in [next(iter(batches))] * 3:
        step(batch)  # compiles before workers load ahead
    for steps, batch in zip(range(most + 1), batches, strict=False):
        step(batch)
        if steps == 0:  # workers have started
            torch.cuda.synchronize()  # waits for the current GPU only
            start = time.perf_counter()
    torch.cuda.synchronize()
    return 1 / ((time.perf_counter() - start) / steps)  # needs two batches
