# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11"]
# [tool.overlap]
# gpus = [2]
# ///
"""Broken on purpose: time work on two GPUs, but wait for the current one only, as the article did."""

import torch

from snippets.timing.benchmark import Timing, measure, wait_for

N = 8192
PRODUCTS = (10, 40)  # how often GPU 0 and GPU 1 square their matrix: GPU 1 has four times the work


def square(x: torch.Tensor, times: int) -> torch.Tensor:
    """Queue `times` products x @ x on the device of x, shape [n, n]; return the last one."""
    for _ in range(times):
        product = torch.mm(x, x)
    return product


def checked_matrix(device: int) -> torch.Tensor:
    """Random bf16 [n, n] on this GPU, whose square agrees with float32 arithmetic in its first rows."""
    x = torch.randn(N, N, device=f"cuda:{device}", dtype=torch.bfloat16)
    torch.testing.assert_close(square(x, 1)[:64].float(), x[:64].float() @ x.float(), rtol=2e-2, atol=2.0)
    return x


def timed(work) -> Timing:
    """Wait for the current device only, which is what `torch.cuda.synchronize()` does."""
    timing = measure(work, devices=[torch.cuda.current_device()])
    wait_for([0, 1])  # after the clock has stopped: no leftover runs into the next measurement
    return timing


def figures(actor: str, products: tuple[int, int], timing: Timing) -> dict:
    """Median and trials in ms, the rate that follows from them, and the FLOP of the GPU that has more to do."""
    flop = [2 * N**3 * times for times in products]
    rate = sum(flop) / timing.median / 1e12
    print(f"{actor:6} {sum(products):2} products  {1e3 * timing.median:7.3f} ms  {rate:10,.0f} TFLOP/s")
    return {"ms": 1e3 * timing.median, "ms_trials": timing.ms(), "tflop_s": rate, "longest_flop": max(flop)}


def main() -> dict:
    first, second = checked_matrix(0), checked_matrix(1)
    few, many = PRODUCTS
    return {
        "first": figures("GPU 0", (few, 0), timed(lambda: square(first, few))),
        "second": figures("GPU 1", (0, many), timed(lambda: square(second, many))),
        "both": figures("both", PRODUCTS, timed(lambda: (square(first, few), square(second, many)))),
    }


def plot(results: dict, ceilings: dict):
    import matplotlib.pyplot as plt

    figure, ax = plt.subplots()
    rows = [results[actor] for actor in ("first", "second", "both")]
    bars = ax.barh(["GPU 0", "GPU 1", "both"], [row["ms"] for row in rows])
    ax.bar_label(bars, fmt="%.1f", padding=3)
    if "bf16_tflop_s" in ceilings:
        least = [row["longest_flop"] / ceilings["bf16_tflop_s"] / 1e9 for row in rows]
        below, above = [-0.4, 0.6, 1.6], [0.4, 1.4, 2.4]
        ax.vlines(least, below, above, color="gray", linestyle="--", label="least possible: FLOP / peak")
        ax.legend()
    ax.margins(x=0.15)
    ax.invert_yaxis()
    ax.set_xlabel("reported time, ms")
    return figure


if __name__ == "__main__":
    main()
