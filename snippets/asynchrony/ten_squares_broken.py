# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [0, 1]
# ///
"""Broken on purpose: D2L's ten squares, of two types, drawn while timed, not waited for.

After D2L's sample code; MIT-0 licence, (c) 2019 Amazon.com, Inc. or its affiliates.
"""

import numpy
import torch

from snippets.timing.d2l_benchmark_broken import Benchmark


def main() -> dict:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    a = torch.randn(1000, 1000, device=device)
    torch.mm(a, a)  # the first call is slow

    with Benchmark("numpy") as by_numpy:
        for _ in range(10):
            a = numpy.random.normal(size=(1000, 1000))
            numpy.dot(a, a)

    with Benchmark("torch") as by_torch:
        for _ in range(10):
            a = torch.randn(1000, 1000, device=device)
            torch.mm(a, a)

    print(f"numpy takes {by_numpy.seconds / by_torch.seconds:.1f} times as long")
    return {"device": device, "numpy_s": by_numpy.seconds, "torch_s": by_torch.seconds}


if __name__ == "__main__":
    main()
