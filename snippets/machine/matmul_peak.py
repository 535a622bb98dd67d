# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [1]
# gpu_gib = 4
# small = "machine/small_matmul"
# ///
"""TFLOP/s of a matrix product over data type and size, in short bursts after a rest."""

from collections.abc import Callable
from statistics import median

import torch

from snippets.pictures import Note, sweep
from snippets.timing.kernel_time import gpu_clock
from snippets.timing.take_turns import take_turns

CALLS = {1024: 100, 2048: 50, 4096: 20, 8192: 3}  # products in a burst, by n
TYPES = {"fp32": torch.float32, "tf32": torch.float32, "bf16": torch.bfloat16}


def product(n: int, dtype: torch.dtype, precision="ieee") -> Callable[[], None]:
    """Multiplies two random matrices (n, n); it has been compared with float64.

    `precision`: "ieee", or "tf32", with which products of float32 use TF32.
    """
    x, y, out = torch.randn(3, n, n, device="cuda", dtype=dtype)

    def multiply() -> None:
        settings = torch.backends.cuda.matmul  # of the whole process
        before, settings.fp32_precision = settings.fp32_precision, precision
        try:
            torch.mm(x, y, out=out)
        finally:
            settings.fp32_precision = before

    multiply()
    right = x[:64].double() @ y.double()
    torch.testing.assert_close(out[:64].double(), right, rtol=0.02, atol=0.02 * n**0.5)
    return multiply


def main() -> dict:
    rates = {name: {} for name in TYPES}
    for n, calls in CALLS.items():
        works = {name: product(n, dtype) for name, dtype in TYPES.items()}
        works["tf32"] = product(n, torch.float32, precision="tf32")
        timings = take_turns(works, 1, 5, calls, rest_s=0.03, clock=gpu_clock)
        for name, timing in timings.items():
            trials = [2 * n**3 / 1e12 / seconds for seconds in timing.trials]
            rates[name][f"n{n}"] = {"tflop_s": median(trials), "tflop_s_trials": trials}
    best = {}
    print("TFLOP/s", *(f"{f'n={n}':>9}" for n in CALLS))
    for name, rows in rates.items():
        print(f"{name:7}", *(f"{row['tflop_s']:9.1f}" for row in rows.values()))
        best[name] = max(rows.values(), key=lambda row: row["tflop_s"])
    return {"rates": rates, "best": best}


def plot(results: dict, ceilings: dict):
    n, rates, limits = list(CALLS), {}, {}
    names = {"bf16": "bf16", "fp32": "float32", "tf32": "TF32"}
    for key, rows in results["rates"].items():
        rates[names[key]] = [row["tflop_s"] for row in rows.values()]
        if f"{key}_tflop_s" in ceilings:
            limits[f"{names[key]}, ceiling"] = ceilings[f"{key}_tflop_s"]
    labels = {"xlabel": "n of a matmul, n × n", "ylabel": "TFLOP/s"}
    picture = sweep(n, rates, limits, xlog=True, ylog=True, **labels)
    panel = picture.panels[0]
    for label, limit in limits.items():
        panel.marks.append(Note(n[-1], limit, label, "right", dy=-8))
    for color, (label, (_, rate, *_)) in enumerate(rates.items(), 1):
        dy = -9 if label == "bf16" else 11
        panel.marks.append(Note(n[1], rate, label, dy=dy, color=color))
    panel.y.high = 1.4 * max(*limits.values(), *(max(row) for row in rates.values()))
    return picture


if __name__ == "__main__":
    main()
