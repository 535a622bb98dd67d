"""A kernel from source without pycuda and nvcc, in PyTorch's context and stream."""

from functools import cache

import torch

TORCH_SOURCE = """extern "C" __global__ void twice(float *x, int n) {
    int i = blockIdx.x * 256 + threadIdx.x; if (i < n) x[i] *= 2; }"""
torch_twice = cache(lambda gpu: torch.cuda._compile_kernel(TORCH_SOURCE, "twice"))


def twice_(x):  # in place, without a gradient
    if x.dtype != torch.float32 or not x.is_contiguous() or x.numel() >= 2**31:
        raise ValueError("takes float32 without gaps, fewer than 2**31 elements")
    with torch.cuda.device(x.device):
        torch_twice(x.device)((x.numel() // 256 + 1, 1, 1), (256, 1, 1), [x, x.numel()])
    torch.autograd.graph.increment_version(x)  # backward() refuses the old numbers
    return x
