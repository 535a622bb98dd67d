# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [0, 1]
# ///
"""Ten times "draw a 1000 by 1000 matrix and square it", in numpy and in PyTorch: the gap, split into four causes."""

import time
from collections.abc import Callable
from statistics import median

import numpy as np
import torch

from snippets.timing.benchmark import wait_for

N, ROUNDS = 1000, 10
NUMPY_ROWS = ["numpy_draw", "numpy_f64", "numpy_f32"]
ROWS = [*NUMPY_ROWS, "torch_finished", "torch_returned", "torch_draw_finished", "torch_draw_returned"]


def numpy_loop() -> None:
    for _ in range(ROUNDS):
        a = np.random.normal(size=(N, N))
        np.dot(a, a)


def torch_loop(device: str) -> None:
    for _ in range(ROUNDS):
        a = torch.randn((N, N), device=device)
        torch.mm(a, a)


def square(product: Callable, a) -> None:
    for _ in range(ROUNDS):
        product(a, a)


def returned_and_finished(work: Callable[[], None], trials: int) -> tuple[list[float], list[float]]:
    """Milliseconds until the calls returned and until the devices had finished, in each trial after two warm-ups."""
    returned, finished = [], []
    for _ in range(2 + trials):
        wait_for()
        start = time.perf_counter()
        work()
        returned.append(1e3 * (time.perf_counter() - start))
        wait_for()
        finished.append(1e3 * (time.perf_counter() - start))
    return returned[2:], finished[2:]


def split(ms: dict[str, float]) -> dict[str, float]:
    """The whole gap and its four factors, whose product it is."""
    numpy_draws, torch_draws = ms["numpy_draw"] / ms["numpy_f64"], ms["torch_draw_returned"] / ms["torch_returned"]
    return {
        "gap": ms["numpy_draw"] / ms["torch_draw_returned"],
        "random_numbers": numpy_draws / torch_draws,
        "data_type": ms["numpy_f64"] / ms["numpy_f32"],
        "device": ms["numpy_f32"] / ms["torch_finished"],
        "waiting": ms["torch_finished"] / ms["torch_returned"],
    }


def main() -> dict:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    f64 = np.random.normal(size=(N, N))
    f32, x = f64.astype(np.float32), torch.from_numpy(f64).float().to(device)
    torch.testing.assert_close(torch.mm(x, x).double().cpu(), torch.from_numpy(f64 @ f64), rtol=1e-3, atol=1e-2)
    works = [numpy_loop, lambda: square(np.dot, f64), lambda: square(np.dot, f32)]
    trials = {row: returned_and_finished(work, 5)[1] for row, work in zip(NUMPY_ROWS, works, strict=True)}
    trials["torch_returned"], trials["torch_finished"] = returned_and_finished(lambda: square(torch.mm, x), 41)
    trials["torch_draw_returned"], trials["torch_draw_finished"] = returned_and_finished(lambda: torch_loop(device), 41)
    ms = {row: median(trials[row]) for row in ROWS}
    print(*(f"{row.replace('_', ' '):24}{ms[row]:9.3f} ms" for row in ROWS), sep="\n")
    print(*(f"{cause.replace('_', ' ')} {factor:,.1f}×" for cause, factor in split(ms).items()), sep=", ")
    print(f"torch ran on: {device}" + (", where there is nothing to wait for" if device == "cpu" else ""))
    pairs = zip(trials["torch_finished"], trials["torch_returned"], strict=True)  # both of one trial
    result = {"device": device, "ms": ms, "ms_trials": trials, "factors": split(ms), "flop": ROUNDS * 2 * N**3}
    return result | {"factors_trials": {"waiting": [finished / returned for finished, returned in pairs]}}


def plot(results: dict, ceilings: dict):
    import matplotlib.pyplot as plt

    figure, ax = plt.subplots()
    bars = ax.barh([row.replace("_", " ") for row in ROWS], [results["ms"][row] for row in ROWS])
    ax.bar_label(bars, fmt="%.3g", padding=3)
    if "fp32_tflop_s" in ceilings:
        least = results["flop"] / ceilings["fp32_tflop_s"] / 1e9
        ax.vlines(least, -0.5, 6.5, color="gray", linestyle="--", label="FLOP / peak")
        ax.text(least, 1.02, "FLOP / peak", color="gray", ha="center", transform=ax.get_xaxis_transform())
    ax.set(xscale="log", xlabel="ms for ten rounds", xmargin=0.2)
    ax.xaxis.set_major_formatter("{x:g}")
    ax.invert_yaxis()
    return figure


if __name__ == "__main__":
    main()
