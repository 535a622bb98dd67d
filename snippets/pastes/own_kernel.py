"""A kernel from source without pycuda and nvcc, in PyTorch's context and stream."""

from functools import cache

import torch

TORCH_SOURCE = """extern "C" __global__ void twice(float *x, int n) {
    int i = blockIdx.x * 256 + threadIdx.x; if (i < n) x[i] *= 2; }"""
torch_twice = cache(lambda gpu: torch.cuda._compile_kernel(TORCH_SOURCE, "twice"))


def twice_(x):  # in place, without a gradient
    if x.numel() >= 2**31:
        raise ValueError("takes fewer than 2**31 elements")
    with torch.cuda.device(x.device):
        check_launch(torch.cuda.current_stream().cuda_stream, (x, "float32"), writes=x)
        torch_twice(x.device)((x.numel() // 256 + 1, 1, 1), (256, 1, 1), [x, x.numel()])
    return x
