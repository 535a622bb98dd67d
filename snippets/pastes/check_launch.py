"""What pycuda does not check before a launch: the stream, the GPU, the type, the strides."""

from torch.cuda import current_device, current_stream


def check_launch(stream, *tensors, dtype="float32"):
    if current_stream().cuda_stream != getattr(stream, "handle", 0):
        raise ValueError("PyTorch's current stream is not that of this launch")
    for x in tensors:
        if x.get_device() != current_device():
            raise ValueError(f"a tensor is on {x.device}, not GPU {current_device()}")
        if str(x.dtype) != f"torch.{dtype}":
            raise ValueError(f"a tensor is {x.dtype}; the kernel takes {dtype}")
        if not x.is_contiguous():
            raise ValueError(f"strides {x.stride()}; call .contiguous()")
