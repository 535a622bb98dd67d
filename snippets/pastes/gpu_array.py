"""A tensor as pycuda's array, which keeps it, and an array as a tensor: nothing is copied."""

import torch
from pycuda.gpuarray import GPUArray


def as_array(x):
    right = x.is_cuda and x.is_contiguous() and not (x.is_conj() or x.is_neg())
    reason = "not contiguous, a conjugate or negative view, or not on a GPU"
    torch._check(right, lambda: reason)
    dtype = str(x.dtype).removeprefix("torch.")
    return GPUArray(x.shape, dtype, gpudata=x.data_ptr(), base=x)  # keeps x


def as_tensor(array, index=0):  # the GPU of the array
    return torch.as_tensor(array, device=f"cuda:{index}")
