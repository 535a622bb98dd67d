# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11"]
# [tool.overlap]
# gpus = [1]
# ///
"""How long a bf16 product takes to launch and how long to finish, over the size of the matrix."""

import time
from statistics import median

import torch

SIZES = (128, 256, 512, 1024, 2048, 4096, 8192)
CALLS = 10  # products per trial, so that one wait at the end weighs little


def checked_matrix(n: int) -> torch.Tensor:
    """Random bf16 [n, n] on the GPU, whose square agrees with float32 arithmetic in its first rows."""
    x = torch.randn(n, n, device="cuda", dtype=torch.bfloat16)
    torch.testing.assert_close(torch.mm(x, x)[:64].float(), x[:64].float() @ x.float(), rtol=2e-2, atol=0.02 * n**0.5)
    return x


def enqueue_and_finish(x: torch.Tensor) -> tuple[float, float]:
    """Microseconds per product until the calls have returned, and until the GPU has finished."""
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(CALLS):
        torch.mm(x, x)
    enqueued = time.perf_counter()
    torch.cuda.synchronize()
    finished = time.perf_counter()
    return 1e6 * (enqueued - start) / CALLS, 1e6 * (finished - start) / CALLS


def summary(n: int, trials: list[tuple[float, float]]) -> dict:
    """Medians in µs per product, their ratio, and the rate that the finish time means."""
    enqueue_us, finish_us = (list(column) for column in zip(*trials, strict=True))
    row = {"n": n, "enqueue_us": median(enqueue_us), "finish_us": median(finish_us)}
    row |= {"ratio": row["finish_us"] / row["enqueue_us"], "rate_tflop_s": 2 * n**3 / row["finish_us"] / 1e6}
    return row | {"enqueue_us_trials": enqueue_us, "finish_us_trials": finish_us}


def crossover(launch_us: float, rate_tflop_s: float) -> float:
    """The n at which a product at this rate takes as long as its launch."""
    return (launch_us * rate_tflop_s * 1e6 / 2) ** (1 / 3)


def main() -> dict:
    sweep = {}
    print("    n   enqueue    finish   ratio     TFLOP/s")
    xs = {n: checked_matrix(n) for n in SIZES}
    rounds = [{n: enqueue_and_finish(x) for n, x in xs.items()} for _ in range(23)][2:]  # the first two warm up
    for n in SIZES:
        row = sweep[f"n{n}"] = summary(n, [each[n] for each in rounds])
        times = f"{row['enqueue_us']:7.1f} µs{row['finish_us']:7.1f} µs"
        print(f"{n:5}{times}{row['ratio']:7.1f}×{row['rate_tflop_s']:12.1f}")
    launch_us = median(row["enqueue_us"] for row in sweep.values())
    crossover_n = crossover(launch_us, sweep[f"n{SIZES[-1]}"]["rate_tflop_s"])
    print(f"a launch costs {launch_us:.1f} µs: the GPU needs longer than that from about n = {crossover_n:.0f}")
    return {"sweep": sweep, "launch_us": launch_us, "crossover_n": crossover_n}


def plot(results: dict, ceilings: dict):
    import matplotlib.pyplot as plt

    figure, ax = plt.subplots()
    rows = sorted(results["sweep"].values(), key=lambda row: row["n"])
    sizes = [row["n"] for row in rows]
    ax.plot(sizes, [row["finish_us"] for row in rows], marker="o", label="finished")
    ax.plot(sizes, [row["enqueue_us"] for row in rows], marker="o", label="launched (call returned)")
    if "bf16_tflop_s" in ceilings:
        floor = [2 * n**3 / ceilings["bf16_tflop_s"] / 1e6 for n in sizes]
        ax.plot(sizes, floor, color="gray", linestyle="--", label="FLOP / peak")
    ax.set(xscale="log", yscale="log", xlabel="n", ylabel="µs per product", ylim=(results["launch_us"] / 5, None))
    ax.set_xticks([128, 512, 2048, 8192], labels=["128", "512", "2048", "8192"])
    ax.xaxis.set_minor_locator(plt.NullLocator())
    ax.yaxis.set_major_formatter("{x:g}")
    ax.legend()
    return figure


if __name__ == "__main__":
    main()
