"""A kernel from source that pycuda compiles, launched in the stream of PyTorch's work."""

from functools import cache

import torch
from pycuda.compiler import SourceModule

SOURCE = """__global__ void twice(float *x, long long n) {
    long long i = blockIdx.x * 256LL + threadIdx.x; if (i < n) x[i] *= 2; }"""
twice = cache(lambda gpu: SourceModule(SOURCE).get_function("twice").prepare("Pq"))


def double_(x, stream):  # in place, which autograd does not see
    current = torch.cuda.current_stream(x.device).cuda_stream
    if x.dtype != torch.float32 or not x.is_contiguous() or current != stream.handle:
        raise ValueError("not float32 without gaps, or PyTorch works in another stream")
    launch, n = twice(x.device).prepared_async_call, x.numel()
    launch((-(-n // 256) or 1, 1, 1), (256, 1, 1), stream, x.data_ptr(), n)
