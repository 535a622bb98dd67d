# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy", "pycuda>=2026.1"]
# [tool.overlap]
# gpus = [1]
# timeout = 120
# ///
"""Broken: one block of 4 × 4 threads doubles 16 of 10⁸ elements, and nothing fails.

After Puneet Grover's notebook; MIT licence, (c) 2018 Puneet Grover.
"""

import torch

from snippets.machine.pycuda_context import torch_context

SOURCE = """
__global__ void NAME(float *a)
{
    int idx = threadIdx.x + threadIdx.y * blockDim.x;
    a[idx] *= 2;
}
"""


def compiled(name: str):
    """The kernel under this name."""
    from pycuda.compiler import SourceModule

    return SourceModule(SOURCE.replace("NAME", name)).get_function(name)


def complaint(name: str) -> str:
    """What the compiler says against the kernel under this name, or nothing."""
    try:
        compiled(name)
    except Exception as error:
        return next(line for line in str(error).splitlines() if "error:" in line)
    return ""


def main() -> dict:
    a = torch.randint(1, 9, (10_000, 10_000), device="cuda").float()
    before = a.clone()
    with torch_context():
        refused = complaint("double")  # its name as it was printed
        compiled("twice")(a, block=(4, 4, 1))  # no grid: one block
    torch.cuda.synchronize()  # an error would be raised here at the latest
    doubled = int((a == 2 * before).sum())
    print(f"`double`: {refused}")
    print(f"`twice`: no error, {doubled} of {a.numel():,} elements doubled")
    return {"elements": a.numel(), "doubled": doubled, "refused": refused}


if __name__ == "__main__":
    main()
