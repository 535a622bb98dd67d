# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy", "matplotlib"]
# [tool.overlap]
# gpus = [0, 1]
# ///
"""Two pictures for measurements: a sweep and bars, each beside its ceilings."""

from itertools import cycle
from typing import Any

import torch

from snippets.pictures import sweep as declared
from snippets.timing.benchmark import measure

DASHES = ("--", ":", "-.")  # a kind of line for each ceiling


def sweep(x: list[Any], series: dict, ceilings: dict, xlog=False, ylog=False, **labels):
    """A figure of lines {label: y} over x, and ceilings {label: one number, or y}.

    `labels`: xlabel and ylabel.
    """
    import matplotlib.pyplot as plt

    figure, ax = plt.subplots()
    for label, y in series.items():
        ax.plot(x, y, marker="o", label=label)
    for (label, limit), dash in zip(ceilings.items(), cycle(DASHES), strict=False):
        over_x = limit if hasattr(limit, "__len__") else [limit] * len(x)
        ax.plot(x, over_x, label=label, color="gray", linestyle=dash)
    ax.set(xscale="log" if xlog else "linear", yscale="log" if ylog else "linear")
    ax.set(ylim=(None if ylog else 0, None), **labels)
    ax.set_xticks(x, [f"{value:,}" for value in x])
    ax.minorticks_off()
    figure.legend(loc="outside upper left", ncols=2)
    return figure


def bars(values: dict, ceilings: dict, unit: str, log=False):
    """A figure of a bar, or a group of bars {series: value}, for each label.

    Ceilings are {label: number}.
    """
    import matplotlib.pyplot as plt

    figure, ax = plt.subplots()
    groups = [v if isinstance(v, dict) else {unit: v} for v in values.values()]
    names = list(dict.fromkeys(name for group in groups for name in group))
    thick = 0.8 / len(names)
    for i, name in enumerate(names):
        rows = [row for row, group in enumerate(groups) if name in group]
        places = [row + (i + 0.5) * thick - 0.4 for row in rows]
        drawn = ax.barh(places, [groups[row][name] for row in rows], thick, label=name)
        ax.bar_label(drawn, fmt="%.3g", padding=3)
    for (label, limit), dash in zip(ceilings.items(), cycle(DASHES), strict=False):
        ax.axvline(limit, label=label, color="gray", linestyle=dash)
    ax.set_yticks(range(len(groups)), list(values))
    ax.set(xlabel=unit, xscale="log" if log else "linear", xmargin=0.15)
    ax.invert_yaxis()
    if ceilings or len(names) > 1:
        figure.legend(loc="outside upper left", ncols=2)
    return figure


def main() -> dict:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    sizes = [256, 512, 1024, 2048]
    trials = {}
    for n in sizes:
        x = torch.randn(n, n, device=device)
        trials[n] = measure(lambda x=x: torch.mm(x, x)).ms()
    ms = [min(each) for each in trials.values()]
    for n, each in zip(sizes, ms, strict=True):
        print(f"n = {n:4}{each:9.3f} ms")
    return {"n": sizes, "ms": ms, "ms_trials": list(trials.values())}


def plot(results: dict, ceilings: dict):
    n, ms = results["n"], results["ms"]
    cubic = [ms[-1] * (each / n[-1]) ** 3 for each in n]
    lines, models = {"one matmul": ms}, {"as n³": cubic}
    return declared(n, lines, models, xlog=True, ylog=True, xlabel="n", ylabel="ms")


if __name__ == "__main__":
    main()
