"""A kernel from source that pycuda compiles, launched in the stream of PyTorch's work."""

from functools import cache

from pycuda.compiler import SourceModule
from torch.cuda import current_stream

SOURCE = """__global__ void twice(float *x, long long n) {
    long long i = blockIdx.x * 256LL + threadIdx.x; if (i < n) x[i] *= 2; }"""
twice = cache(lambda gpu: SourceModule(SOURCE).get_function("twice").prepare("Pq"))


def double_(x, stream=None):  # in place, which autograd does not see
    same = current_stream(x.device).cuda_stream == getattr(stream, "handle", 0)
    if str(x.dtype) != "torch.float32" or not x.is_contiguous() or not same:
        raise ValueError("not float32 without gaps, or PyTorch works in another stream")
    launch, n = twice(x.device).prepared_async_call, x.numel()
    launch((-(-n // 256) or 1, 1, 1), (256, 1, 1), stream, x.data_ptr(), n)
