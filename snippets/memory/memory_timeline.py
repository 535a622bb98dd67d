# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [1]
# ///
"""Predict a training step's memory: the end of each phase, and the peak between."""

import gc
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from snippets.pictures import DASHES, Axis, Line, Note, Panel, Picture, Rule

LAYERS, WIDTH, ROWS = 4, 4096, 16384
OTHERS = [(8, 2048, 16384), (2, 4096, 32768), (4, 4096, 512)]  # the same, by peaks
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


def network(layers: int, width: int) -> nn.Sequential:
    """A chain of square linear layers with a ReLU after each."""
    chain = []
    for _ in range(layers):
        chain += [nn.Linear(width, width, bias=False, device="cuda"), nn.ReLU()]
    return nn.Sequential(*chain)


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


def two_steps(layers: int, width: int, rows: int) -> tuple[list[Any], list[int]]:
    """What `Watch` notes of two steps with Adam, and the peak of each, in bytes."""
    peaks = []
    gc.collect()  # what is left of another network must not go meanwhile
    with Watch() as watch:
        net = network(layers, width)
        watch.note("model")
        optimizer = torch.optim.Adam(net.parameters())
        for _ in range(2):
            torch.cuda.reset_peak_memory_stats()
            step(net, optimizer, rows, watch.note)
            peaks.append(torch.cuda.max_memory_allocated() - watch.start)
    return watch.line, peaks


def forecast(layers: int, width: int, rows: int) -> dict[str, list[int]]:
    """`predicted` for float32: four bytes a number."""
    return predicted(4 * layers * width**2, 4 * rows * width, layers)


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
    two_steps(2, 64, 64)  # libraries take their workspaces
    line, peaks = two_steps(LAYERS, WIDTH, ROWS)
    ends = [held for name, held in line if name in PHASES]
    measured = {"first": [*ends[:5], peaks[0]], "second": [*ends[5:], peaks[1]]}
    levels = forecast(LAYERS, WIDTH, ROWS)
    for name, held in measured.items():
        for phase, is_held, said in zip(PHASES, held, levels[name], strict=True):
            mib = f"{is_held >> 20:6} MiB, predicted {said >> 20:6}"
            print(f"{name:<6} {phase:<9}{mib}")

    others = []
    for layers, width, rows in OTHERS:
        line_of_other, peaks = two_steps(layers, width, rows)
        said = [phases[-1] for phases in forecast(layers, width, rows).values()]
        name, _ = max(line_of_other, key=lambda point: point[1])
        row = {"layers": layers, "width": width, "rows": rows}
        others.append(row | {"peaks": peaks, "predicted": said, "by": name})
        print(f"{layers} layers, {width} wide, {rows} rows:", end=" ")
        print(f"peaks {[peak >> 20 for peak in peaks]} MiB, predicted", end=" ")
        print(f"{[peak >> 20 for peak in said]}; highest after {name}")
    result = {"measured": measured, "predicted": levels, "line": line}
    return result | {"others": others}


def derive(results: dict) -> dict:
    """Most bytes held in the power's backward, and elsewhere; how forecasts differ."""
    power, elsewhere = [], []
    for name, held in results["line"]:
        (power if "PowBackward0" in name else elsewhere).append(held)
    measured, predicted = results["measured"], results["predicted"]
    off = [
        abs(held / said - 1)
        for step in ("first", "second")
        for held, said in zip(measured[step], predicted[step], strict=True)
    ]
    off_others = [
        abs(held / said - 1)
        for row in results["others"][:2]
        for held, said in zip(row["peaks"], row["predicted"], strict=True)
    ]
    grows = [step["second"][5] - step["first"][5] for step in (measured, predicted)]
    peaks = {"peak_in_power": max(power), "peak_elsewhere": max(elsewhere)}
    peaks["second_grows_off"] = grows[0] - grows[1]
    return peaks | {"off": off, "off_others": off_others}


def plot(results: dict, ceilings: dict):
    names, held = zip(*results["line"], strict=True)
    phases = ["model", *PHASES[:-1] * 2]
    places, begin = [0.0], -1
    for phase, end in enumerate(i for i, name in enumerate(names) if name in phases):
        # every phase gets the same width
        steps = range(1, end - begin + 1)
        places += [phase + step / (end - begin) for step in steps]
        begin = end
    places += [places[-1]] * (len(held) + 1 - len(places))
    gib = [each / 2**30 for each in (*held, held[-1])]
    marks = [Line(places, gib, "memory in use", dots=False, step=True)]
    for first, name in ((2, "first"), (7, "second")):
        *levels, peak = [level / 2**30 for level in results["predicted"][name]]
        for end, level in enumerate(levels, first):
            part = end - 0.4, end
            marks.append(Rule("y", level, "predicted end of a phase", part=part))
        part = first + 1, first + 2
        marks.append(Rule("y", peak, "predicted peak", DASHES[1], part))
        marks.append(Note(first + 2, peak, f"{peak:.1f}", dx=3))
    # short enough to stand beside each other
    short = {"backward": "back", "optimizer": "step", "zero_grad": "zero"}
    words = [short.get(phase, phase) for phase in phases]
    ticks = {number + 0.5: word for number, word in enumerate(words)}
    x = Axis("phases of two steps", ticks=ticks)
    return Picture([Panel(marks, x, Axis("GiB", low=0))])


if __name__ == "__main__":
    main()
