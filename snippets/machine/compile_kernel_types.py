# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [1]
# exclusive = false
# ///
"""What a kernel of `torch.cuda._compile_kernel` reads if its parameters have other types."""

import torch

SOURCE = """
extern "C" __global__ void told(double *out, TYPE x) { out[0] = (double) x; }
"""
TWICE = """
extern "C" __global__ void twice(float *x, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] *= 2;
}
"""
ONE = (1, 1, 1)
#: The type that the kernel declares, and the number that Python passes.
CASES = [
    ("int", 3),
    ("int", -1),
    ("int", 2**31),
    ("long long", 3),
    ("long long", -1),
    ("double", 0.5),
    ("float", 0.5),
    ("float", 0.1),
    ("double", 3),
    ("int", 0.5),
]
ELEMENTS = 10_000_000


def read(kind: str, number: float) -> float | str:
    """What a kernel with a parameter of this type reads, or what the call raises."""
    out = torch.zeros(1, dtype=torch.float64, device="cuda")
    kernel = torch.cuda._compile_kernel(SOURCE.replace("TYPE", kind), "told")
    try:
        kernel(ONE, ONE, [out, number])
    except Exception as error:
        return f"{type(error).__name__}: {error}".splitlines()[0]
    return float(out)


def wrong_elements() -> int:
    """PyTorch fills late in a stream of its own, the kernel doubles: how many are wrong?"""
    x = torch.zeros(ELEMENTS, device="cuda")
    kernel = torch.cuda._compile_kernel(TWICE, "twice")
    with torch.cuda.stream(torch.cuda.Stream()):
        torch.cuda._sleep(100_000_000)  # cycles: some 50 ms of earlier work
        x.fill_(3)
        kernel((-(-ELEMENTS // 256), 1, 1), (256, 1, 1), [x, ELEMENTS])
        return int((x != 6).sum())


def main() -> dict:
    rows = [
        {"kernel": kind, "given": number, "read": read(kind, number)}
        for kind, number in CASES
    ]
    wrong = wrong_elements()
    for row in rows:
        print(f"{row['given']!s:>10} for {row['kernel']:10} is read as {row['read']}")
    print(f"in PyTorch's own stream: {wrong:,} of {ELEMENTS:,} elements wrong")
    return {"rows": rows, "wrong": wrong, "elements": ELEMENTS}


if __name__ == "__main__":
    main()
