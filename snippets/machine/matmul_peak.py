# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "nvidia-ml-py"]
# [tool.overlap]
# gpus = [1]
# ///
"""TFLOP/s of a matrix product over data type and size, and of zeros beside random numbers."""

import time
from contextlib import suppress
from statistics import median

import torch

SIZES = (1024, 2048, 4096, 8192)
DTYPES = {  # type of the data, precision of float32 products, products in a burst at n = 8192
    "fp32": (torch.float32, "highest", 2),
    "tf32": (torch.float32, "high", 10),
    "bf16": (torch.bfloat16, "highest", 10),
}
LENGTHS = {"short": 40, "long": 250}  # products in a burst: about 60 ms and 400 ms


def operands(n: int, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Two random matrices (n, n), whose product agrees with float64 in its first rows."""
    x, y = torch.randn(2, n, n, device="cuda", dtype=dtype)
    torch.testing.assert_close((x @ y)[:64].double(), x[:64].double() @ y.double(), rtol=0.02, atol=0.02 * n**0.5)
    return x, y


def burst(x: torch.Tensor, y: torch.Tensor, calls: int) -> tuple[float, int]:
    """TFLOP/s of products back to back, timed by the GPU, and its MHz as they begin (0 without NVML)."""
    out, mhz = torch.empty_like(x), 0
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda._sleep(50_000 * calls)  # it spins until all are queued: no launch is timed
    start.record()
    for _ in range(calls):
        torch.mm(x, y, out=out)
    end.record()
    with suppress(Exception):  # NVML
        mhz = torch.cuda.clock_rate()
    end.synchronize()
    return 2 * x.shape[0] ** 3 * calls / start.elapsed_time(end) / 1e9, mhz


def summary(bursts: list[tuple[float, int]]) -> dict:
    """Medians and trials; the first two bursts warm up."""
    rates, mhz = (list(column) for column in zip(*bursts[2:], strict=True))
    row = {"tflop_s_trials": rates, "mhz_trials": mhz}
    return row | {"tflop_s": median(rates), "mhz": median(mhz)}


def sweep(dtype: torch.dtype, precision: str, products: int) -> dict[str, dict]:
    """Rate at each size, each burst after a rest that cools the GPU; float32 gets its precision back."""
    before, rows = torch.get_float32_matmul_precision(), {}
    torch.set_float32_matmul_precision(precision)
    for n in SIZES:
        x, y = operands(n, dtype)
        calls = min(100, products * (8192 // n) ** 3)
        rows[f"n{n}"] = summary([time.sleep(0.1) or burst(x, y, calls) for _ in range(9)])
    torch.set_float32_matmul_precision(before)
    return rows


def random_and_zeros(calls: int) -> dict[str, dict]:
    """bf16 products of random numbers and of zeros, in turn: each burst meets the clock that the other has left."""
    data = {"random": operands(SIZES[-1], torch.bfloat16)}
    data["zeros"] = [torch.zeros_like(x) for x in data["random"]]
    rounds = [{fill: burst(*data[fill], calls) for fill in data} for _ in range(7)]
    return {fill: summary([one[fill] for one in rounds]) for fill in data}


def main() -> dict:
    rates = {name: sweep(*how) for name, how in DTYPES.items()}
    fill = {length: random_and_zeros(calls) for length, calls in LENGTHS.items()}
    for name, rows in {**rates, **fill}.items():
        print(f"{name:<6}", *(f"{at:>7}{r['tflop_s']:6.1f}" for at, r in rows.items()), "TFLOP/s")
    best = {name: max(rows.values(), key=lambda row: row["tflop_s"]) for name, rows in rates.items()}
    return {"rates": rates, "fill": fill, "best": best}


def plot(results: dict, ceilings: dict):
    import matplotlib.pyplot as plt

    figure, ax = plt.subplots()
    for name in DTYPES:
        rates = [results["rates"][name][f"n{n}"]["tflop_s"] for n in SIZES]
        ax.plot(SIZES, rates, marker="o", label=name)
        ax.text(SIZES[-1], rates[-1], f"  {name}", va="center")
        if peak := ceilings.get(f"{name}_tflop_s"):
            ax.axhline(peak, color="gray", linestyle="--", label=f"{name}, datasheet")
            ax.annotate(f"{name}, datasheet", (SIZES[0], peak), (0, 2), textcoords="offset points", color="gray")
    ax.set(xscale="log", xlabel="n", xticks=SIZES, xticklabels=SIZES, xmargin=0.1)
    ax.set(yscale="log", ylabel="TFLOP/s", yticks=(50, 200, 800), yticklabels=(50, 200, 800))
    ax.minorticks_off()
    return figure


if __name__ == "__main__":
    main()
