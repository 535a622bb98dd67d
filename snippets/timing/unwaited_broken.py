# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11"]
# [tool.overlap]
# gpus = [1]
# ///
"""Broken on purpose: stop the clock when the calls have returned. How many of the readings are impossible?"""

import time
from statistics import median

import torch

SIZES, PRODUCTS, TRIALS = (256, 1024, 4096, 6144, 8192), 10, 10
PEAK_TFLOP_S = 989  # bf16, dense, by the datasheet of the H100 and the H200; put in that of your GPU


def checked_matrix(n: int) -> torch.Tensor:
    """Random bf16 [n, n] on the GPU, whose square agrees with float32 arithmetic in its first rows."""
    x = torch.randn(n, n, device="cuda", dtype=torch.bfloat16)
    torch.testing.assert_close(torch.mm(x, x)[:64].float(), x[:64].float() @ x.float(), rtol=2e-2, atol=0.02 * n**0.5)
    return x


def reading(x: torch.Tensor) -> tuple[float, bool]:
    """Milliseconds that the clock shows for the products, and whether the GPU was still at work when it stopped."""
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(PRODUCTS):
        torch.mm(x, x)
    ms = 1e3 * (time.perf_counter() - start)
    return ms, not torch.cuda.current_stream().query()


def row(n: int, readings: list[tuple[float, bool]]) -> dict:
    """Readings in ms beside the least time that the arithmetic needs, and how many cannot be true."""
    ms, busy = zip(*readings, strict=True)
    least = PRODUCTS * 2 * n**3 / PEAK_TFLOP_S / 1e9
    found = {"n": n, "ms": median(ms), "ms_trials": list(ms), "least_ms": least, "still_at_work": sum(busy)}
    return found | {"impossible": sum(one < least for one in ms), "tflop_s": PEAK_TFLOP_S * least / median(ms)}


def main() -> dict:
    rows = []
    print("    n      clock   at least       TFLOP/s   impossible   GPU still at work")
    for n in SIZES:
        x = checked_matrix(n)
        rows.append(row(n, [reading(x) for _ in range(2 + TRIALS)][2:]))  # the first two warm up
        line = "{n:5}{ms:8.3f} ms{least_ms:8.3f} ms{tflop_s:14,.0f}{impossible:7} of {0}{still_at_work:12} of {0}"
        print(line.format(TRIALS, **rows[-1]))
    counts = {key: sum(row[key] for row in rows) for key in ("impossible", "still_at_work")}
    return {"rows": rows, "readings": TRIALS * len(rows)} | counts


def plot(results: dict, ceilings: dict):
    import matplotlib.pyplot as plt

    figure, ax = plt.subplots()
    sizes = [row["n"] for row in results["rows"]]
    ax.loglog(sizes, [row["ms"] for row in results["rows"]], marker="o", label="the clock says")
    peak = ceilings.get("bf16_tflop_s", PEAK_TFLOP_S)
    least = [row["least_ms"] * PEAK_TFLOP_S / peak for row in results["rows"]]
    ax.loglog(sizes, least, color="gray", linestyle="--", label="least possible: FLOP / peak")
    ax.set(xlabel="n", ylabel=f"ms for {PRODUCTS} products", ylim=(1e-2, 1e2))
    ax.set_xticks([256, 1024, 4096], labels=["256", "1024", "4096"])
    ax.xaxis.set_minor_locator(plt.NullLocator())
    ax.yaxis.set_major_formatter("{x:g}")
    ax.legend(loc="upper left")
    return figure


if __name__ == "__main__":
    main()
