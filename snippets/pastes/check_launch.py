"""What pycuda does not check before a launch (stream, GPU, type, strides), nor tell autograd."""

from torch import autograd, cuda, is_grad_enabled


def check_launch(stream, *pairs, writes):
    if cuda.current_stream().cuda_stream != getattr(stream, "handle", stream or 0):
        raise ValueError("PyTorch's current stream is not that of this launch")
    for x, dtype in pairs:
        if x.get_device() != cuda.current_device():
            raise ValueError(f"tensor on {x.device}, not GPU {cuda.current_device()}")
        if str(x.dtype) != f"torch.{dtype}" or not x.is_contiguous():
            raise ValueError(f"not contiguous {dtype}: {x.dtype}, strides {x.stride()}")
        if x.requires_grad and is_grad_enabled():
            raise ValueError("it has no gradient: call it under torch.no_grad()")
    autograd.graph.increment_version(writes)  # backward() refuses the old numbers
