# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [1]
# ///
"""Fixed: wait for the GPU, then stop the clock."""

import time
from statistics import median

import torch

SIZES, PRODUCTS, TRIALS = (256, 1024, 4096, 8192), 10, 10


def reading(x: torch.Tensor) -> tuple[float, bool]:
    """ms that the clock shows for ten products x @ x; is the GPU still at work then?"""
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(PRODUCTS):
        torch.mm(x, x)
    torch.cuda.synchronize()
    ms = 1e3 * (time.perf_counter() - start)
    return ms, not torch.cuda.current_stream().query()


def readings(n: int) -> dict:
    """The clock for random bf16 matrices [n, n], and the arithmetic it stands for."""
    x = torch.randn(n, n, device="cuda", dtype=torch.bfloat16)
    trials = [reading(x) for _ in range(2 + TRIALS)][2:]  # the first two warm up
    ms = [shown for shown, _ in trials]
    row = {"n": n, "flop": PRODUCTS * 2 * n**3, "ms": median(ms), "ms_trials": ms}
    return row | {"still_at_work": sum(working for _, working in trials)}


def main() -> dict:
    rows = [readings(n) for n in SIZES]
    print("    n      the clock         TFLOP/s   GPU still at work")
    for row in rows:
        tflop_s, working = row["flop"] / row["ms"] / 1e9, row["still_at_work"]
        print(
            f"{row['n']:5}{row['ms']:12.3f} ms{tflop_s:16,.0f}{working:12} of {TRIALS}"
        )
    return {"rows": rows}


def derive(results: dict) -> dict:
    from snippets.timing.unwaited_broken import derive

    return derive(results)


def plot(results: dict, ceilings: dict):
    from snippets.timing.unwaited_broken import plot

    return plot(results, ceilings)


if __name__ == "__main__":
    main()
