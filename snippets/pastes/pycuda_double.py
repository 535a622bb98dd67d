"""A kernel from source that pycuda compiles, launched in the stream of PyTorch's work."""

from functools import cache

from pycuda.compiler import SourceModule

SOURCE = """__global__ void twice(float *x, long long n) {
    long long i = blockIdx.x * 256LL + threadIdx.x; if (i < n) x[i] *= 2; }"""
twice = cache(lambda gpu: SourceModule(SOURCE).get_function("twice").prepare("Pq"))


def launch_double(x, stream=None):  # in place, without a gradient
    check_launch(stream, (x, "float32"), writes=x)
    n = x.numel()
    blocks = n // 256 + 1
    launch = twice(x.get_device()).prepared_async_call
    launch((blocks, 1, 1), (256, 1, 1), stream, x.data_ptr(), n)
