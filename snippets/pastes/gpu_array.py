"""A tensor as pycuda's array, which keeps it, and an array as a tensor: nothing is copied."""

import torch
from pycuda.gpuarray import GPUArray


def as_array(x):
    right = x.is_cuda and x.is_contiguous()
    torch._check(right, lambda: "not contiguous, or not on a GPU")
    dtype = str(x.dtype).removeprefix("torch.")
    memory = {"gpudata": x.data_ptr(), "base": x}  # kept
    return GPUArray(x.shape, dtype, **memory)


def as_tensor(array, index=0):  # the GPU of the array
    return torch.as_tensor(array, device=f"cuda:{index}")
