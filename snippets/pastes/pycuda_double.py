"""A kernel from source that pycuda compiles, launched in the stream of PyTorch's work."""

from functools import cache

from pycuda.compiler import SourceModule
from torch.cuda import current_device, current_stream

SOURCE = """__global__ void twice(float *x, long long n) {
    long long i = blockIdx.x * 256LL + threadIdx.x; if (i < n) x[i] *= 2; }"""
twice = cache(lambda gpu: SourceModule(SOURCE).get_function("twice").prepare("Pq"))


def launch_double(x, stream=None):  # in place, which autograd does not see
    so = current_device(), current_stream().cuda_stream, str(x.dtype), x.is_contiguous()
    if so != (x.get_device(), getattr(stream, "handle", 0), "torch.float32", True):
        raise ValueError(f"GPU, stream, type, contiguous: {so}; x is on {x.device}")
    launch, n = twice(x.device).prepared_async_call, x.numel()
    launch((-(-n // 256) or 1, 1, 1), (256, 1, 1), stream, x.data_ptr(), n)
