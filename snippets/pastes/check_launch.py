"""What pycuda does not check before a launch (stream, GPU, type, strides), nor tell autograd."""

from torch import autograd, cuda


def check_launch(stream, *pairs, writes):
    if cuda.current_stream().cuda_stream != getattr(stream, "handle", stream or 0):
        raise ValueError("PyTorch's current stream is not that of this launch")
    for x, dtype in pairs:
        if x.get_device() != cuda.current_device():
            raise ValueError(f"tensor on {x.device}, not GPU {cuda.current_device()}")
        if str(x.dtype) != f"torch.{dtype}":
            raise ValueError(f"a tensor is {x.dtype}; the kernel takes {dtype}")
        if not x.is_contiguous():
            raise ValueError(f"strides {x.stride()}; call .contiguous()")
    autograd.graph.increment_version(writes)  # backward() refuses the old numbers
