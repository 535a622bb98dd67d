# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11"]
# [tool.overlap]
# gpus = [1]
# ///
"""How long a bf16 product takes to launch and how long to finish, over its size."""

import random
import time
from statistics import median

import torch

from snippets.timing.pictures import sweep

SIZES = (128, 256, 512, 1024, 2048, 4096, 8192)
CALLS = 40  # products per trial, so that the wait at the end weighs little


def checked_matrix(n: int) -> torch.Tensor:
    """Random bf16 [n, n] on the GPU whose square agrees with float32 in 64 rows."""
    x = torch.randn(n, n, device="cuda", dtype=torch.bfloat16)
    rows, exact = torch.mm(x, x)[:64].float(), x[:64].float() @ x.float()
    torch.testing.assert_close(rows, exact, rtol=2e-2, atol=0.02 * n**0.5)
    return x


def enqueue_and_finish(x: torch.Tensor) -> tuple[float, float]:
    """Microseconds per product until the calls are back, and until all are finished."""
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(CALLS):
        torch.mm(x, x)
    enqueued = time.perf_counter()
    torch.cuda.synchronize()
    finished = time.perf_counter()
    return 1e6 * (enqueued - start) / CALLS, 1e6 * (finished - start) / CALLS


def row(n: int, trials: list[tuple[float, float]]) -> dict:
    """Medians in µs per product, finish / launch by trial, rate of the finished."""
    enqueue_us, finish_us = (list(column) for column in zip(*trials, strict=True))
    enqueue, finish = median(enqueue_us), median(finish_us)
    times = {"n": n, "enqueue_us": enqueue, "finish_us": finish}
    times |= {"enqueue_us_trials": enqueue_us, "finish_us_trials": finish_us}
    ratios = [finished / enqueued for enqueued, finished in trials]
    times |= {"ratio": median(ratios), "ratio_trials": ratios}
    rate = 2 * n**3 / finish / 1e6
    print(f"{n:5}{enqueue:8.1f} µs{finish:8.1f} µs{rate:8.1f} TFLOP/s")
    return times | {"rate_tflop_s": rate}


def main() -> dict:
    xs = {n: checked_matrix(n) for n in SIZES}
    trials = {n: [] for n in SIZES}
    chance = random.Random(0)
    for _ in range(25):
        for n in chance.sample(SIZES, len(SIZES)):  # no size always follows another
            trials[n].append(enqueue_and_finish(xs[n]))
    print("    n    launch     finish")
    sweep_rows = {f"n{n}": row(n, each[2:]) for n, each in trials.items()}
    launch_us = median(each["enqueue_us"] for each in sweep_rows.values())
    rate = sweep_rows[f"n{SIZES[-1]}"]["rate_tflop_s"]
    crossover_n = (launch_us * rate * 1e6 / 2) ** (1 / 3)
    print(f"from n = {crossover_n:.0f} the GPU needs longer than a launch")
    return {"sweep": sweep_rows, "launch_us": launch_us, "crossover_n": crossover_n}


def plot(results: dict, ceilings: dict):
    rows = sorted(results["sweep"].values(), key=lambda each: each["n"])
    sizes = [each["n"] for each in rows]
    series = {
        "finished": [each["finish_us"] for each in rows],
        "launched": [each["enqueue_us"] for each in rows],
    }
    floor = {}
    if "bf16_tflop_s" in ceilings:
        peak = ceilings["bf16_tflop_s"]
        floor = {"FLOP / peak": [2 * n**3 / peak / 1e6 for n in sizes]}
    labels = {"xlabel": "n", "ylabel": "µs per product"}
    figure = sweep(sizes, series, floor, xlog=True, ylog=True, **labels)
    figure.axes[0].set_ylim(bottom=results["launch_us"] / 5)
    return figure


if __name__ == "__main__":
    main()
