"""What pycuda does not check before a launch (stream, GPU, type, strides), nor tell autograd."""

import torch


def check_launch(queue, *pairs, writes):
    if torch.cuda.current_stream().cuda_stream != getattr(queue, "handle", queue or 0):
        raise ValueError("PyTorch works in another stream, or this is not pycuda's")
    for x, dtype in pairs:
        if x.get_device() != torch.cuda.current_device():
            raise ValueError(f"on {x.device}, not on GPU {torch.cuda.current_device()}")
        if str(x.dtype) != f"torch.{dtype}" or not x.is_contiguous():
            raise ValueError(f"no contiguous {dtype}: {x.dtype}, strides {x.stride()}")
        if x.is_conj() or x.is_neg() or (x.requires_grad and torch.is_grad_enabled()):
            raise ValueError("resolve views; for a gradient use an autograd.Function")
    torch.autograd.graph.increment_version(writes)  # backward() refuses the old numbers
