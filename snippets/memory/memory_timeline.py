# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11"]
# [tool.overlap]
# gpus = [1]
# ///
"""Predict what a training step holds after each phase, and compare with what the allocator saw."""

import gc
from collections.abc import Iterator

import torch
from torch import nn

LAYERS, WIDTH, ROWS = 4, 4096, 16384
PHASES = ("batch", "forward", "backward", "optimizer", "zero_grad")


def network(width: int) -> nn.Sequential:
    """A chain of square linear layers with a ReLU after each."""
    pairs = [(nn.Linear(width, width, bias=False, device="cuda"), nn.ReLU()) for _ in range(LAYERS)]
    return nn.Sequential(*[layer for pair in pairs for layer in pair])


def step(net: nn.Sequential, optimizer, rows: int) -> Iterator[str]:
    """One training step; says after each phase which one it was."""
    batch = torch.randn(rows, net[0].in_features, device="cuda")
    yield "batch"
    loss = net(batch).square().mean()
    yield "forward"
    loss.backward()
    yield "backward"
    optimizer.step()
    yield "optimizer"
    optimizer.zero_grad()
    yield "zero_grad"


def predicted() -> dict[str, list[int]]:
    """Bytes after each phase of two steps: fp32, Adam, one activation per layer."""
    weights, batch = 4 * LAYERS * WIDTH**2, 4 * ROWS * WIDTH
    found = {}
    for name, moments in {"first": 0, "second": 2 * weights}.items():
        before, after = weights + moments + batch, 3 * weights + batch
        found[name] = [before, before + LAYERS * batch, before + weights, after + weights, after]
    return found


def history() -> list[int]:
    """Bytes held, from 0, after each allocation and each free since recording began."""
    signs, held = {"alloc": 1, "free_requested": -1}, [0]
    for event in torch.cuda.memory._snapshot()["device_traces"][0]:
        if event["action"] in signs:
            held.append(held[-1] + signs[event["action"]] * event["size"])
    return held


def main() -> dict:
    tiny = network(64)
    list(step(tiny, torch.optim.Adam(tiny.parameters()), 64))  # libraries take their workspaces
    del tiny
    gc.collect()
    torch.cuda.memory._record_memory_history(context=None)  # every event, without stack traces
    base = torch.cuda.memory_allocated()
    net, measured, peaks = network(WIDTH), {}, {}
    model, marks = torch.cuda.memory_allocated() - base, [0, len(history()) - 1]
    optimizer = torch.optim.Adam(net.parameters())
    for name, forecast in predicted().items():
        torch.cuda.reset_peak_memory_stats()
        measured[name] = []
        for phase, expected in zip(step(net, optimizer, ROWS), forecast, strict=True):
            measured[name].append(torch.cuda.memory_allocated() - base)
            marks.append(len(history()) - 1)
            gib = measured[name][-1] / 2**30, expected / 2**30
            print("{} step, {:<10}{:6.3f} GiB, predicted {:6.3f}".format(name, phase, *gib))
        peaks[name] = torch.cuda.max_memory_allocated() - base
    results = {"model": model, "measured": measured, "predicted": predicted(), "peak": peaks}
    return results | {"workspaces": base, "history": history(), "marks": marks}


def plot(results: dict, ceilings: dict):
    import matplotlib.pyplot as plt
    import numpy as np

    figure, ax = plt.subplots()
    ends = range(len(results["marks"]))  # every phase gets the same width
    held = [each / 2**30 for each in results["history"][: results["marks"][-1] + 1]]
    places = np.interp(range(len(held)), results["marks"], ends)
    ax.step(places, held, where="pre", label="held")
    forecast = [results["model"], *results["predicted"]["first"], *results["predicted"]["second"]]
    levels = [each / 2**30 for each in forecast]
    ax.hlines(levels, ends[:-1], ends[1:], color="gray", linestyle="--", label="predicted")
    ax.set_xticks([end - 0.5 for end in ends[1:]], ["model", *PHASES * 2], rotation=90)
    ax.set(ylabel="GiB", ylim=(0, None))
    ax.legend(loc="upper left")
    return figure


if __name__ == "__main__":
    main()
