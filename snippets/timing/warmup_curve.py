# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11"]
# [tool.overlap]
# gpus = [0, 1]
# ///
"""The first twenty calls in a process that has never used the GPU: what the first one pays for."""

import multiprocessing
import time
from concurrent.futures import ProcessPoolExecutor
from itertools import pairwise
from statistics import median

import torch

from snippets.timing.benchmark import wait_for

N, CALLS, PROCESSES = 1000, 20, 5
PIECES = ("allocate", "draw", "multiply")


def call(device: str) -> list[float]:
    """Allocate one number, draw a matrix [n, n], square it: ms of each piece, waited for."""
    marks = [time.perf_counter()]
    torch.empty(
        1, device=device
    )  # the first time: the CUDA context and the allocator's first segment
    wait_for()
    marks.append(time.perf_counter())
    x = torch.randn(
        N, N, device=device
    )  # the first time: the generator's kernels are loaded
    wait_for()
    marks.append(time.perf_counter())
    torch.mm(
        x, x
    )  # the first time: cuBLAS makes its handle, takes its workspace, and loads a kernel
    wait_for()
    marks.append(time.perf_counter())
    return [1e3 * (end - start) for start, end in pairwise(marks)]


def first_calls(device: str) -> list[list[float]]:
    """The pieces of each call, from the first one of this process on."""
    return [call(device) for _ in range(CALLS)]


def in_fresh_processes(device: str) -> list[list[list[float]]]:
    """`first_calls` in several processes, one after the other, that have imported torch and nothing more."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch"])
    trials = []
    for _ in range(PROCESSES):
        with ProcessPoolExecutor(1, mp_context=context) as pool:
            trials.append(pool.submit(first_calls, device).result())
    return trials


def summary(trials: list[list[list[float]]]) -> dict:
    """Medians over the processes: of each call, of the pieces of the first, and of the later half of the calls."""
    each = [
        [sum(pieces) for pieces in same] for same in zip(*trials, strict=True)
    ]  # call by call, of each process
    calls, steady = (
        [median(ms) for ms in each],
        [median(ms) for ms in zip(*each[CALLS // 2 :], strict=True)],
    )
    pieces = [
        [median(ms) for ms in zip(*same, strict=True)]
        for same in zip(*trials, strict=True)
    ]
    later = [median(ms) for ms in zip(*pieces[CALLS // 2 :], strict=True)]
    found = {"calls_ms": calls, "first_ms": calls[0], "steady_ms": median(steady)}
    found |= {
        "calls_ms_trials": each,
        "first_ms_trials": each[0],
        "steady_ms_trials": steady,
    }
    return found | {
        "first_pieces_ms": dict(zip(PIECES, pieces[0], strict=True)),
        "steady_pieces_ms": dict(zip(PIECES, later, strict=True)),
    }


def main() -> dict:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    trials = in_fresh_processes(device)
    results = (
        {"device": device, "n": N, "flop": 2 * N**3}
        | summary(trials)
        | {"pieces_ms_trials": trials}
    )
    print(f"{'':14}first call  calls {CALLS // 2 + 1} to {CALLS}")
    for piece in PIECES:
        print(
            f"{piece:10}{results['first_pieces_ms'][piece]:11.3f} ms{results['steady_pieces_ms'][piece]:11.3f} ms"
        )
    print(
        f"{'together':10}{results['first_ms']:11.3f} ms{results['steady_ms']:11.3f} ms"
    )
    return results


def plot(results: dict, ceilings: dict):
    import matplotlib.pyplot as plt

    figure, ax = plt.subplots()
    calls = range(1, len(results["calls_ms"]) + 1)
    ax.semilogy(calls, results["calls_ms"], marker="o", label="one call, finished")
    if results["device"] == "cuda" and "fp32_tflop_s" in ceilings:
        least = results["flop"] / ceilings["fp32_tflop_s"] / 1e9
        ax.axhline(
            least, color="gray", linestyle="--", label="FLOP / peak of the product"
        )
    ax.set(xlabel="call", ylabel="ms", xticks=(1, 5, 10, 15, 20))
    ax.yaxis.set_major_formatter("{x:g}")
    ax.legend()
    return figure


if __name__ == "__main__":
    main()
