"""How GPU i copies to GPU j: directly or through the host, how fast, and whether what arrives is right."""

import torch
from torch.utils.benchmark import Timer


def from_to(i, j, size=2**28):
    x = torch.randint(256, (size,), dtype=torch.uint8, device=f"cuda:{i}")
    y = torch.zeros_like(x, device=f"cuda:{j}")
    with torch.cuda.device(i):  # the clock waits for this GPU
        seconds = Timer("y.copy_(x)", globals={"x": x, "y": y}).timeit(20).median
    direct = torch.cuda.can_device_access_peer(i, j)
    right = torch.equal(x.cpu(), y.cpu())
    return {"direct": direct, "right": right, "GB/s": size / seconds / 1e9}
