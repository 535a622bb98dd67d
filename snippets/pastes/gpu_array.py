"""A tensor as pycuda's array, which keeps it, and an array as a tensor: nothing is copied."""

import torch
from pycuda.gpuarray import GPUArray


def as_array(x):
    if x.get_device() != torch.cuda.current_device():
        raise ValueError(f"on {x.device}, not on GPU {torch.cuda.current_device()}")
    if not x.is_contiguous() or x.is_conj() or x.is_neg():
        raise ValueError("not contiguous, or a conjugate or negative view")
    if x.requires_grad and torch.is_grad_enabled():
        raise ValueError("an array has no gradient: use x.detach(), if you need none")
    return GPUArray(x.shape, str(x.dtype)[6:], gpudata=x.data_ptr(), base=x)  # keeps x


def as_tensor(array):  # on another GPU it would be a copy
    return torch.as_tensor(array, device=f"cuda:{torch.cuda.current_device()}")
