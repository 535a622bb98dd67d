# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [0, 1]
# timeout = 120
# ///
"""What a CPU does at best, with all cores: GB/s of its memory, TFLOP/s of products."""

from functools import partial

import torch

from snippets.timing.benchmark import measure

ELEMENTS = 2**26  # of float64: each array has 512 MiB
SIZES = (512, 1024, 2048, 3072)
DTYPES = {"fp32": torch.float32, "fp64": torch.float64}


def memory_trials_gb_s() -> dict[str, list[float]]:
    """Bytes read plus bytes written, per second, of a = b and of a = b + 3c."""
    a, b, c = (torch.full((ELEMENTS,), i, dtype=torch.float64) for i in range(3))
    copy = measure(partial(a.copy_, b), devices=[], trials=9)
    triad = measure(partial(torch.add, b, c, alpha=3, out=a), devices=[], trials=9)
    assert a[0] == a[-1] == 7, "the triad is wrong"
    gb = a.nbytes / 1e9
    return {
        "copy_gb_s": [2 * gb / seconds for seconds in copy.trials],
        "triad_gb_s": [3 * gb / seconds for seconds in triad.trials],
    }


def product_trials_tflop_s(dtype: torch.dtype, n: int) -> list[float]:
    """Rate of a product (n, n) in each trial, whose first rows agree with float64."""
    x, y, out = torch.rand(3, n, n, dtype=dtype)
    timing = measure(partial(torch.mm, x, y, out=out), devices=[], warmup=1, trials=5)
    right = x[:4].double() @ y.double()
    rtol = max(1e-4, torch.finfo(dtype).eps)
    torch.testing.assert_close(out[:4].double(), right, rtol=rtol, atol=0)
    return [2 * n**3 / 1e12 / seconds for seconds in timing.trials]


def main() -> dict:
    best, trials = {}, memory_trials_gb_s()
    for name, dtype in DTYPES.items():
        sizes = [product_trials_tflop_s(dtype, n) for n in SIZES]
        trials[f"{name}_tflop_s"] = max(sizes, key=max)
    for name, each in trials.items():
        best[name] = max(each)
        print(f"{name:13}{best[name]:9.3f} at best")
    best["memory_gb_s"] = max(best["copy_gb_s"], best["triad_gb_s"])
    return best | {f"{name}_trials": each for name, each in trials.items()}


if __name__ == "__main__":
    main()
