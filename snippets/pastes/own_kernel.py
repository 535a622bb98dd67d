"""A kernel from source without pycuda and nvcc, in PyTorch's context and stream."""

from functools import cache

import torch

SOURCE = """
extern "C" __global__ void twice(float *x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] *= 2; }"""
twice = cache(lambda gpu: torch.cuda._compile_kernel(SOURCE, "twice"))


def twice_(x):
    torch._check(x.dtype == torch.float32 and x.is_contiguous() and x.numel() < 2**31)
    with torch.cuda.device(x.device):
        twice(x.device)((-(-x.numel() // 256) or 1, 1, 1), (256, 1, 1), [x, x.numel()])
    return x  # changed in place, which autograd does not see
