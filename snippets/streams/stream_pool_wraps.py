# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11"]
# [tool.overlap]
# gpus = [1]
# ///
"""Ask for many streams: from the 33rd on they are old ones, and the GPU has fewer queues still."""

import os
from collections.abc import Callable
from functools import partial
from multiprocessing import get_context
from statistics import median

import torch

from snippets.timing.benchmark import measure

CONNECTIONS = (1, 8, 32)
STREAMS = (1, 2, 4, 8, 16, 32, 64)
KERNELS, CYCLES = 2, 2_000_000  # for each stream: kernels of one block, and how long one spins


def first_twins(asked: int) -> list[int]:
    """For each stream asked for, counted from 1: the first one that has the same handle."""
    handles = [torch.cuda.Stream().cuda_stream for _ in range(asked)]
    return [handles.index(handle) + 1 for handle in handles]


def occupy(streams: list) -> None:
    """Give each stream its kernels, one stream after the other."""
    for stream in streams:
        with torch.cuda.stream(stream):
            for _ in range(KERNELS):
                torch.cuda._sleep(CYCLES)


def sweep(connections: int) -> list[list[float]]:
    """Trials in ms for each number of streams, with so many hardware queues."""
    os.environ["CUDA_DEVICE_MAX_CONNECTIONS"] = str(connections)  # is read when CUDA starts
    streams = [torch.cuda.Stream() for _ in range(max(STREAMS))]
    return [measure(partial(occupy, streams[:n]), warmup=1, trials=5).ms() for n in STREAMS]


def in_child(work: Callable, argument: int):
    """What `work` returns in a forked process, in which CUDA has not started yet."""
    context = get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    child = context.Process(target=lambda: theirs.send(work(argument)))
    child.start()
    theirs.close()  # so that a child that dies ends the waiting
    result = ours.recv()
    child.join()
    return result


def main() -> dict:
    twins = in_child(first_twins, 40)
    results = {"asked": len(twins), "different": len(set(twins)), "first_twins": twins}
    print(f"{len(twins)} streams asked for, {len(set(twins))} different; 33 is {twins[32]} again")
    results |= {"streams": list(STREAMS), "side_by_side": {}, "side_by_side_trials": {}}
    for connections in CONNECTIONS:
        trials = in_child(sweep, connections)
        one = median(trials[0])
        at_once = [[n * one / ms for ms in each] for n, each in zip(STREAMS, trials, strict=True)]
        results["side_by_side_trials"][f"c{connections}"] = at_once
        at_once = results["side_by_side"][f"c{connections}"] = [median(each) for each in at_once]
        print(f"{connections:>2} queues:", *(f"{n:5.1f}" for n in at_once))
    print("streams:  ", *(f"{n:5}" for n in STREAMS))
    return results


def plot(results: dict, ceilings: dict):
    import matplotlib.pyplot as plt

    (figure, ax), streams = plt.subplots(), results["streams"]
    for connections in CONNECTIONS:
        row, name = results["side_by_side"][f"c{connections}"], f"{connections} queues"
        ax.loglog(streams, row, marker="o", label=name.replace("1 queues", "1 queue"))
    most = [min(n, results["different"]) for n in streams]
    ax.loglog(streams, most, color="gray", linestyle="--", label="different streams")
    ax.set(xlabel="streams asked for", ylabel="times as fast as in one stream", ylim=(0.8, 40))
    ax.set_xticks(streams, streams)
    ax.set_yticks(streams[:-1], streams[:-1])
    ax.minorticks_off()
    ax.legend()
    return figure


if __name__ == "__main__":
    main()
