"""Bytes a second of a copy, and FLOP a second of a matmul, to divide by their ceilings."""

import torch
from torch.utils.benchmark import Timer


def rates(n=8192, index=0):
    with torch.cuda.device(index):  # the clock waits for this GPU
        x = torch.randn(n, n, dtype=torch.bfloat16, device="cuda")
        big = torch.empty(8, n, n, dtype=torch.bfloat16, device="cuda")
        names = {"x": x, "big": big, "copy": torch.empty_like(big)}
        copying = Timer("copy.copy_(big)", globals=names).timeit(20).median
        multiplying = Timer("x @ x", globals=names).timeit(20).median
        gb_s = 2 * big.nbytes / copying / 1e9  # read and written
        return {"copy, GB/s": gb_s, "bf16, TFLOP/s": 2 * n**3 / multiplying / 1e12}
