# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11"]
# [tool.overlap]
# gpus = [0, 1]
# ///
"""What the CPU does at best, all cores together: GB/s of arrays beyond its caches, TFLOP/s of matrix products."""

import torch

from snippets.timing.benchmark import measure

ELEMENTS = 2**26  # of float64: each array has 512 MiB
SIZES = (512, 1024, 2048, 3072)
DTYPES = {"fp32": torch.float32, "fp64": torch.float64}


def memory_trials_gb_s(trials: int = 9) -> dict[str, list[float]]:
    """Bytes read plus bytes written, per second, of a = b and of a = b + 3c."""
    a, b, c = (torch.full((ELEMENTS,), value, dtype=torch.float64) for value in (0, 1, 2))
    work = {"copy": (2, lambda: a.copy_(b)), "triad": (3, lambda: torch.add(b, c, alpha=3, out=a))}
    rates = {}
    for name, (arrays, move) in work.items():
        seconds = measure(move, devices=(), trials=trials).trials
        rates[name] = [arrays * a.nbytes / each / 1e9 for each in seconds]
    assert a[0] == a[-1] == 7, "the triad is wrong"
    return rates


def product_trials_tflop_s(dtype: torch.dtype, n: int, trials: int = 5) -> list[float]:
    """Rate of a product (n, n) in each trial, whose first rows agree with float64."""
    x, y = torch.rand(2, n, n, dtype=dtype)
    out = torch.empty_like(x)
    seconds = measure(lambda: torch.mm(x, y, out=out), devices=(), warmup=1, trials=trials).trials
    torch.testing.assert_close(out[:4].double(), x[:4].double() @ y.double(), rtol=1e-4, atol=0)
    return [2 * n**3 / each / 1e12 for each in seconds]


def main() -> dict:
    result = {"threads": torch.get_num_threads(), "array_bytes": 8 * ELEMENTS}
    for name, trials in memory_trials_gb_s().items():
        print(f"{name:6}{max(trials):8.1f} GB/s at best")
        result |= {f"{name}_gb_s": max(trials), f"{name}_gb_s_trials": trials}
    result["memory_gb_s"] = max(result["copy_gb_s"], result["triad_gb_s"])
    for name, dtype in DTYPES.items():
        sizes = {n: product_trials_tflop_s(dtype, n) for n in SIZES}
        n, trials = max(sizes.items(), key=lambda item: max(item[1]))
        print(f"{name:6}{max(trials):8.3f} TFLOP/s at best, n = {n}")
        result |= {f"{name}_n": n, f"{name}_tflop_s": max(trials), f"{name}_tflop_s_trials": trials}
    return result


if __name__ == "__main__":
    main()
