# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11"]
# [tool.overlap]
# gpus = [1]
# ///
"""TFLOP/s of a matrix product over data type and size, in short bursts after a rest."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import median

import torch

from snippets.timing.kernel_time import gpu_clock
from snippets.timing.pictures import sweep
from snippets.timing.take_turns import take_turns

CALLS = {1024: 100, 2048: 50, 4096: 20, 8192: 3}  # products in a burst, by n
WAYS = {
    "fp32": (torch.float32, "highest"),
    "tf32": (torch.float32, "high"),
    "bf16": (torch.bfloat16, "highest"),
}
REST_S = 0.03


@contextmanager
def float32_products(precision: str) -> Iterator[None]:
    """Meanwhile products of float32 are "highest", or "high": TF32 is allowed."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(precision)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def product(n: int, dtype: torch.dtype, precision: str) -> Callable[[], None]:
    """Multiplies two random matrices (n, n); it has been compared with float64."""
    x, y, out = torch.randn(3, n, n, device="cuda", dtype=dtype)

    def multiply() -> None:
        with float32_products(precision):
            torch.mm(x, y, out=out)

    multiply()
    right = x[:64].double() @ y.double()
    torch.testing.assert_close(out[:64].double(), right, rtol=0.02, atol=0.02 * n**0.5)
    return multiply


def main() -> dict:
    rates = {name: {} for name in WAYS}
    for n, calls in CALLS.items():
        works = {name: product(n, *how) for name, how in WAYS.items()}
        timings = take_turns(works, 1, 5, calls, REST_S, gpu_clock)
        for name, timing in timings.items():
            trials = [2 * n**3 / 1e12 / seconds for seconds in timing.trials]
            rates[name][f"n{n}"] = {"tflop_s": median(trials), "tflop_s_trials": trials}
    best = {}
    for name, rows in rates.items():
        print(
            name, *(f"{n} {row['tflop_s']:5.1f}" for n, row in rows.items()), "TFLOP/s"
        )
        best[name] = max(rows.values(), key=lambda row: row["tflop_s"])
    return {"rates": rates, "best": best}


def plot(results: dict, ceilings: dict):
    n, rates, limits = list(CALLS), {}, {}
    for name, rows in results["rates"].items():
        rates[name] = [row["tflop_s"] for row in rows.values()]
        if f"{name}_tflop_s" in ceilings:
            limits[f"{name}, ceiling"] = ceilings[f"{name}_tflop_s"]
    labels = {"xlabel": "n", "ylabel": "TFLOP/s"}
    figure = sweep(n, rates, limits, xlog=True, ylog=True, **labels)
    for label, limit in limits.items():
        figure.axes[0].text(n[-1], 1.05 * limit, label, ha="right", va="bottom")
    figure.axes[0].margins(y=0.12)
    return figure


if __name__ == "__main__":
    main()
