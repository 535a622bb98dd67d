# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy", "pycuda>=2026.1"]
# [tool.overlap]
# gpus = [1]
# exclusive = false
# ///
"""Two contexts on one GPU: does a kernel of one reach the memory of the other?"""

import numpy as np
import torch

from snippets.machine.kernel_from_source import SOURCE, by_pycuda
from snippets.machine.pycuda_context import pycuda_driver

SIZE = 1_000_000


def main() -> dict:
    driver = pycuda_driver()
    of_torch = torch.ones(SIZE, device="cuda")
    torch.cuda.synchronize()
    own = driver.Device(0).make_context()  # a second one, which is current from here on
    from pycuda import gpuarray

    of_pycuda = gpuarray.to_gpu(np.ones(SIZE, np.float32))
    shape = {"grid": (-(-SIZE // 256), 1), "block": (256, 1, 1)}
    by_pycuda(SOURCE)(of_torch, of_torch, np.int32(SIZE), **shape)
    driver.Context.synchronize()
    own.pop()  # PyTorch's context is current again
    seen = torch.as_tensor(of_pycuda, device="cuda")  # the same memory, not a copy
    seen.mul_(2)
    doubled = {
        "of_torch": int((of_torch == 2).sum()),
        "of_pycuda": int((seen == 2).sum()),
    }
    same = seen.data_ptr() == of_pycuda.ptr
    print(f"pycuda's kernel doubled {doubled['of_torch']:,} elements of PyTorch's")
    print(f"PyTorch's kernel doubled {doubled['of_pycuda']:,} elements of pycuda's")
    return {"elements": SIZE, "doubled": doubled, "same_memory": same}


if __name__ == "__main__":
    main()
