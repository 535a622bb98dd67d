# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [0, 1]
# ///
"""Fixed: ten squares of one matrix, in one type, warm, and waited for.

After D2L's sample code; MIT-0 licence, (c) 2019 Amazon.com, Inc. or its affiliates.
"""

import numpy
import torch

from snippets.timing.d2l_benchmark import Benchmark


def main() -> dict:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    a = numpy.random.normal(size=(1000, 1000)).astype(numpy.float32)
    x = torch.from_numpy(a).to(device)
    square = torch.from_numpy(numpy.dot(a, a))  # the first calls are slow
    torch.testing.assert_close(torch.mm(x, x).cpu(), square, rtol=1e-3, atol=1e-2)

    with Benchmark("numpy") as by_numpy:
        for _ in range(10):
            numpy.dot(a, a)

    with Benchmark("torch") as by_torch:
        for _ in range(10):
            torch.mm(x, x)

    print(f"numpy takes {by_numpy.seconds / by_torch.seconds:.1f} times as long")
    return {"device": device, "numpy_s": by_numpy.seconds, "torch_s": by_torch.seconds}


if __name__ == "__main__":
    main()
