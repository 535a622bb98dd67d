# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11"]
# [tool.overlap]
# gpus = [1]
# ///
"""TFLOP/s of a matrix product over data type and size, in short bursts after a rest."""

import time
from statistics import median

import torch

SIZES = (1024, 2048, 4096, 8192)
DTYPES = {  # type of the data, precision of float32 products, products in a burst at n = 8192
    "fp32": (torch.float32, "highest", 2),
    "tf32": (torch.float32, "high", 10),
    "bf16": (torch.bfloat16, "highest", 10),
}


def operands(n: int, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Two random matrices (n, n), whose product agrees with float64 in its first rows."""
    x, y = torch.randn(2, n, n, device="cuda", dtype=dtype)
    torch.testing.assert_close((x @ y)[:64].double(), x[:64].double() @ y.double(), rtol=0.02, atol=0.02 * n**0.5)
    return x, y


def burst(x: torch.Tensor, y: torch.Tensor, calls: int) -> float:
    """TFLOP/s of products back to back, timed by the GPU."""
    out = torch.empty_like(x)
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda._sleep(50_000 * calls)  # it spins until all are queued: no launch is timed
    start.record()
    for _ in range(calls):
        torch.mm(x, y, out=out)
    end.record()
    end.synchronize()
    return 2 * x.shape[0] ** 3 * calls / start.elapsed_time(end) / 1e9


def sweep(dtype: torch.dtype, precision: str, products: int) -> dict[str, dict]:
    """Rate at each size, each burst after a rest that cools the GPU; float32 gets its precision back."""
    before, rows = torch.get_float32_matmul_precision(), {}
    torch.set_float32_matmul_precision(precision)
    for n in SIZES:
        x, y = operands(n, dtype)
        calls = min(100, products * (8192 // n) ** 3)
        rates = [time.sleep(0.1) or burst(x, y, calls) for _ in range(9)][2:]  # two warm up
        rows[f"n{n}"] = {"tflop_s": median(rates), "tflop_s_trials": rates}
    torch.set_float32_matmul_precision(before)
    return rows


def main() -> dict:
    rates = {name: sweep(*how) for name, how in DTYPES.items()}
    for name, rows in rates.items():
        print(f"{name:<6}", *(f"{at:>7}{row['tflop_s']:6.1f}" for at, row in rows.items()), "TFLOP/s")
    return {
        "rates": rates,
        "best": {name: max(rows.values(), key=lambda row: row["tflop_s"]) for name, rows in rates.items()},
    }


def plot(results: dict, ceilings: dict):
    import matplotlib.pyplot as plt

    figure, ax = plt.subplots()
    for name in DTYPES:
        rates = [results["rates"][name][f"n{n}"]["tflop_s"] for n in SIZES]
        ax.plot(SIZES, rates, marker="o", label=name)
        ax.text(SIZES[-1], rates[-1], f"  {name}", va="center")
        if peak := ceilings.get(f"{name}_tflop_s"):
            ax.axhline(peak, color="gray", linestyle="--", label=f"{name}, ceiling")
            ax.annotate(f"{name}, ceiling", (SIZES[0], peak), (0, 2), textcoords="offset points", color="gray")
    ax.set(xscale="log", xlabel="n", xticks=SIZES, xticklabels=SIZES, xmargin=0.1)
    ax.set(yscale="log", ylabel="TFLOP/s", yticks=(50, 200, 800), yticklabels=(50, 200, 800))
    ax.minorticks_off()
    return figure


if __name__ == "__main__":
    main()
