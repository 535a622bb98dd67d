# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11"]
# [tool.overlap]
# gpus = [1]
# ///
"""Predict a training step's memory: the end of each phase, and the peak between."""

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

LAYERS, WIDTH, ROWS = 4, 4096, 16384
PHASES = ("batch", "forward", "backward", "optimizer", "zero_grad", "peak")


class Watch(TorchDispatchMode):
    """[Name, bytes held after it] of each operation, counted from the start."""

    def __init__(self):
        super().__init__()
        self.start, self.line = torch.cuda.memory_allocated(), []

    def note(self, name: str) -> None:
        self.line.append([name, torch.cuda.memory_allocated() - self.start])

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **kwargs)
        node = torch._C._current_autograd_node()
        self.note(f"{node.name() if node else 'forward'}: {func}")
        return result


def network(width: int) -> nn.Sequential:
    """A chain of square linear layers with a ReLU after each."""
    layers = []
    for _ in range(LAYERS):
        layers += [nn.Linear(width, width, bias=False, device="cuda"), nn.ReLU()]
    return nn.Sequential(*layers)


def step(net: nn.Sequential, optimizer, rows: int, note) -> None:
    """One training step; calls `note` with its name at the end of each phase."""
    batch = torch.randn(rows, net[0].in_features, device="cuda")
    note("batch")
    loss = net(batch).square().mean()
    note("forward")
    loss.backward()
    note("backward")
    optimizer.step()
    note("optimizer")
    optimizer.zero_grad()
    note("zero_grad")


def predicted(weights: int, activation: int, layers: int) -> dict[str, list[int]]:
    """Bytes after each phase of two steps with Adam, and last each step's peak."""
    found = {}
    for name, moments in {"first": 0, "second": 2 * weights}.items():
        before, after = weights + moments + activation, 3 * weights + activation
        kept = before + layers * activation
        peak = kept + 4 * activation  # what this loss needs to go back
        found[name] = [before, kept, before + weights, after + weights, after, peak]
    return found


def main() -> dict:
    tiny, peaks = network(64), []  # with it, libraries take their workspaces
    step(tiny, torch.optim.Adam(tiny.parameters()), 64, Watch().note)
    with Watch() as watch:
        net = network(WIDTH)
        watch.note("model")
        optimizer = torch.optim.Adam(net.parameters())
        for _ in range(2):
            torch.cuda.reset_peak_memory_stats()
            step(net, optimizer, ROWS, watch.note)
            peaks.append(torch.cuda.max_memory_allocated() - watch.start)
    ends = [held for name, held in watch.line if name in PHASES]
    measured = {"first": [*ends[:5], peaks[0]], "second": [*ends[5:], peaks[1]]}
    forecast = predicted(4 * LAYERS * WIDTH**2, 4 * ROWS * WIDTH, LAYERS)
    for name, levels in measured.items():
        for phase, held, said in zip(PHASES, levels, forecast[name], strict=True):
            print(f"{name:<6} {phase:<9}{held >> 20:6} MiB, predicted {said >> 20:6}")
    return {"measured": measured, "predicted": forecast, "line": watch.line}


def plot(results: dict, ceilings: dict):
    import matplotlib.pyplot as plt
    import numpy as np

    figure, ax = plt.subplots(layout="constrained")
    names, held = zip(*results["line"], strict=True)
    phases = ["model", *PHASES[:-1] * 2]
    marks = [i for i, name in enumerate(names) if name in phases]
    ends = range(1, len(phases) + 1)  # every phase gets the same width
    places = np.interp(range(-1, len(held)), [-1, *marks], [0, *ends])
    ax.step(places, [0, *(each / 2**30 for each in held)], where="pre", label="held")
    steps = [results["predicted"][name] for name in ("first", "second")]
    levels = [level / 2**30 for step in steps for level in step[:-1]]
    look = {"color": "gray", "linestyle": "--"}
    starts = [end - 0.4 for end in ends[1:]]
    ax.hlines(levels, starts, ends[1:], label="predicted end of a phase", **look)
    peaks = [step[-1] / 2**30 for step in steps]
    look = {"color": "gray", "linestyle": ":"}
    ax.hlines(peaks, [3, 8], [4, 9], label="predicted peak", **look)
    ax.set_xticks([end - 0.5 for end in ends], phases, rotation=90)
    ax.set(ylabel="GiB", ylim=(0, None))
    figure.legend(loc="outside upper left", ncols=3)
    return figure


if __name__ == "__main__":
    main()
