"""A tensor as pycuda's array, which keeps it, and an array as a tensor: nothing is copied."""

import torch
from pycuda.gpuarray import GPUArray


def as_array(x):
    dtype = str(x.dtype).removeprefix("torch.")
    steps = tuple(x.element_size() * step for step in x.stride())
    memory = {"gpudata": x.data_ptr(), "base": x}  # kept
    return GPUArray(x.shape, dtype, strides=steps, **memory)


def as_tensor(array):
    return torch.as_tensor(array, device="cuda")
