"""The largest of `samples`, half of it, a quarter, ... with which `step` runs."""

import torch


def batch_that_fits(step, samples):
    while samples:
        try:
            step(samples)
            return samples
        except torch.OutOfMemoryError:
            pass  # here the error still holds the step's tensors
        samples //= 2  # and here they are free
    raise RuntimeError("not even one sample fits")
