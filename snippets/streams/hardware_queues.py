# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [1]
# ///
"""Two kernels of one block on each of many streams, over 1, 8 and 32 queues."""

import os
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from statistics import median

import torch

from snippets.pictures import Note, sweep
from snippets.timing.kernel_time import captured
from snippets.timing.take_turns import take_turns

STREAMS = (1, 2, 4, 8, 16, 32)
SHORT, LONG = 1_000_000, 16_000_000  # cycles for which a kernel spins
CASES = {"q1": (1, LONG), "q8": (8, LONG), "q32": (32, LONG), "q32_short": (32, SHORT)}


def two_each(streams: list[torch.cuda.Stream], cycles: int) -> None:
    """Give each stream two kernels of one block, one stream after the other."""
    for stream in streams:
        with torch.cuda.stream(stream):
            torch.cuda._sleep(cycles)
            torch.cuda._sleep(cycles)


def forked(streams: list[torch.cuda.Stream], cycles: int) -> None:
    """The same, between a fork and a join, so that it can be captured."""
    main = torch.cuda.current_stream()
    for stream in streams:
        stream.wait_stream(main)
    two_each(streams, cycles)
    for stream in streams:
        main.wait_stream(stream)


def times_as_fast(queues: int, cycles: int) -> dict[str, list[list[float]]]:
    """Trials for each number of streams: how many times as fast as in one stream."""
    os.environ["CUDA_DEVICE_MAX_CONNECTIONS"] = str(queues)  # is read when CUDA starts
    pool, faster = [torch.cuda.Stream() for _ in range(max(STREAMS))], {}
    eager = {n: partial(two_each, pool[:n], cycles) for n in STREAMS}
    graph = {n: captured(partial(forked, pool[:n], cycles)) for n in STREAMS}
    for way, works in {"eager": eager, "graph": graph}.items():
        ms = {n: timing.ms() for n, timing in take_turns(works, 1, 5).items()}
        faster[way] = [
            [n * one / each for one, each in zip(ms[1], ms[n], strict=True)]
            for n in STREAMS
        ]
    return faster


def main() -> dict:
    results = {"streams": list(STREAMS)}
    results |= {key: {} for key in ("eager", "eager_trials", "graph", "graph_trials")}
    for case, (queues, cycles) in CASES.items():
        with ProcessPoolExecutor(1, get_context("fork")) as child:  # CUDA starts anew
            trials = child.submit(times_as_fast, queues, cycles).result()
        for way, each in trials.items():
            results[f"{way}_trials"][case] = each
            medians = results[way][case] = [median(rounds) for rounds in each]
            print(f"{case:<10}{way}", *(f"{n:5.1f}" for n in medians))
    return results


def derive(results: dict) -> dict:
    """Speed with eight queues and with one, as a share of what the formula gives."""
    shares = []
    for queues in (8, 1):
        measured = results["eager"][f"q{queues}"]
        for n, times in zip(results["streams"], measured, strict=True):
            in_turn = (n + queues - 1) // queues + 1
            shares.append(times / (2 * n / in_turn))
    return {"of_formula": shares}


def plot(results: dict, ceilings: dict):
    streams = results["streams"]
    names = {"q1": "1 queue", "q8": "8 queues", "q32": "32 queues"}
    lines = {name: results["eager"][case] for case, name in names.items()}
    lines["32 queues, short kernels"] = results["eager"]["q32_short"]
    lines["1 queue, in a graph"] = results["graph"]["q1"]
    model = {"formula, 8 queues": [2 * n / (-(-n // 8) + 1) for n in streams]}
    model["as many as streams"] = streams
    labels = {"xlabel": "streams", "ylabel": "times as fast as in one stream"}
    picture = sweep(streams, lines, model, xlog=True, ylog=True, **labels)
    picture.panels[0].marks += [
        Note(7.5, 12, "as many as streams", "right"),
        Note(32, 5.5, "formula, 8 queues", "right"),
    ]
    return picture


if __name__ == "__main__":
    main()
