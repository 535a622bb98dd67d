"""What pycuda does not check before a launch (stream, GPU, type, strides), nor tell autograd."""

import torch


def check_launch(queue, *pairs, writes):
    if torch.cuda.current_stream().cuda_stream != getattr(queue, "handle", queue or 0):
        raise ValueError("PyTorch works in another stream than this launch")
    for x, dtype in pairs:
        if x.get_device() != torch.cuda.current_device():
            raise ValueError(f"on {x.device}, not on GPU {torch.cuda.current_device()}")
        if str(x.dtype) != f"torch.{dtype}" or not x.is_contiguous() or x.is_neg():
            raise ValueError(f"no contiguous {dtype}: {x.dtype}, strides {x.stride()}")
        if x.requires_grad and torch.is_grad_enabled():
            raise ValueError("no backward: use an autograd.Function, or no_grad")
    torch.autograd.graph.increment_version(writes)  # backward() refuses the old numbers
