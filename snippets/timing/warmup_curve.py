# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [0, 1]
# ///
"""The first twenty calls in a process that has never used the GPU."""

import time
from itertools import pairwise
from multiprocessing import get_context
from statistics import median

import torch

from snippets.pictures import Axis, Line, Panel, Picture, Rule
from snippets.timing.wait_for import wait_for

N, CALLS, PROCESSES = 1000, 20, 5


def call(device: str) -> dict[str, float]:
    """Allocate one number, draw a matrix [n, n], square it: ms of each, waited for."""
    marks = [time.perf_counter()]

    def mark() -> None:
        wait_for()
        marks.append(time.perf_counter())

    torch.empty(1, device=device)  # in a new process this makes the CUDA context
    mark()
    x = torch.randn(N, N, device=device)
    mark()
    torch.mm(x, x)
    mark()
    ms = [1e3 * (end - start) for start, end in pairwise(marks)]
    return dict(zip(("allocate", "draw", "multiply"), ms, strict=True))


def first_calls(device: str) -> list[dict[str, float]]:
    """The pieces of each call, from the first one of this process on."""
    return [call(device) for _ in range(CALLS)]


def in_fresh_processes(device: str) -> list[list[dict[str, float]]]:
    """`first_calls` of processes that have imported torch, and no more, one by one."""
    context = get_context("forkserver")
    context.set_forkserver_preload(["torch"])
    with context.Pool(1, maxtasksperchild=1) as pool:
        return pool.map(first_calls, [device] * PROCESSES, chunksize=1)


def main() -> dict:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    trials = in_fresh_processes(device)
    first = {name: [ms[0][name] for ms in trials] for name in trials[0][0]}
    calls = [[sum(ms[k].values()) for ms in trials] for k in range(CALLS)]
    each = [median(ms) for ms in calls]
    steady = [median(ms) for ms in zip(*calls[CALLS // 2 :], strict=True)]
    pieces = {name: median(ms) for name, ms in first.items()}
    for name, ms in pieces.items():
        print(f"{name:12}{ms:9.3f} ms the first time")
    print(
        f"together    {each[0]:9.3f} ms, then {each[1]:.3f}, later {median(steady):.3f}"
    )
    result = {"device": device, "n": N, "flop": 2 * N**3}
    result |= {"first_pieces_ms": pieces, "first_pieces_ms_trials": first}
    result |= {"calls_ms": each, "calls_ms_trials": calls}
    result |= {"first_ms": each[0], "first_ms_trials": calls[0]}
    return result | {"steady_ms": median(steady), "steady_ms_trials": steady}


def plot(results: dict, ceilings: dict):
    ms = results["calls_ms"]
    marks = [Line(range(1, len(ms) + 1), ms, "one call, until it is done")]
    if results["device"] == "cuda" and "fp32_tflop_s" in ceilings:
        least = results["flop"] / ceilings["fp32_tflop_s"] / 1e9
        marks.append(Rule("y", least, "least possible: FLOP / peak"))
    x = Axis("number of the call", ticks={n: f"{n}" for n in (1, 5, 10, 15, 20)})
    return Picture([Panel(marks, x, Axis("ms for the call", log=True))])


if __name__ == "__main__":
    main()
