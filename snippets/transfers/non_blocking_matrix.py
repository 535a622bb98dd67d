# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11"]
# [tool.overlap]
# gpus = [1]
# ///
"""Pinned, non_blocking, a stream of its own: when does a copy hold you, when does it overlap?"""

import time
from functools import partial
from itertools import product
from statistics import median

import torch

from snippets.timing.benchmark import measure

BYTES = 128 * 2**20
N, PRODUCTS = 4096, 8  # the work to overlap with: float32 products of N by N, which keep the GPU's clock steady
ORDERS = ("copy_first", "products_first")
CHOICES = ("pageable", "pinned"), ("blocking", "non_blocking"), ("same", "side")
CELLS = ["_".join(choice) for choice in product(*CHOICES)]  # pageable_blocking_same and so on


def copy(gpu: torch.Tensor, host: torch.Tensor, non_blocking: bool, stream) -> float:
    """Copy host to GPU in this stream; ms until the call let you go on."""
    start = time.perf_counter()
    with torch.cuda.stream(stream):
        gpu.copy_(host, non_blocking=non_blocking)
    return 1e3 * (time.perf_counter() - start)


def multiply(x: torch.Tensor) -> None:
    for _ in range(PRODUCTS):
        torch.mm(x, x)


def cell(copying, multiplying) -> dict[str, list[float]]:
    """ms of each trial: the copy, held by it and done, the products, and both in either order."""
    trials = {name: [] for name in ("held", "transfer", "products", *ORDERS)}
    for _ in range(8):
        for name, run in {
            "transfer": lambda: trials["held"].append(copying()),
            "products": multiplying,
            "copy_first": lambda: (copying(), multiplying()),
            "products_first": lambda: (multiplying(), copying()),
        }.items():
            trials[name] += measure(run, warmup=0, trials=1).ms()
    return {name: ms[1:] for name, ms in trials.items()}  # the first round warms up


def summary(trials: dict[str, list[float]]) -> dict:
    """Medians in ms, and the share of the shorter leg that either order hides."""
    legs = list(zip(trials["transfer"], trials["products"], strict=True))
    hidden = {at: [(sum(leg) - ms) / min(leg) for leg, ms in zip(legs, trials[at], strict=True)] for at in ORDERS}
    ms, shares = ({name: median(values) for name, values in each.items()} for each in (trials, hidden))
    held = [held / ms for held, ms in zip(trials["held"], trials["transfer"], strict=True)]
    found = {"ms": ms, "hidden": shares, "ms_trials": trials, "hidden_trials": hidden}
    return found | {"held_share": median(held), "held_share_trials": held}


def main() -> dict:
    gpu = torch.empty(BYTES, dtype=torch.uint8, device="cuda").random_()
    x = torch.randn(N, N, device="cuda")
    pageable = gpu.cpu()
    hosts = {"pageable": pageable, "pinned": pageable.pin_memory()}
    streams = {"same": torch.cuda.current_stream(), "side": torch.cuda.Stream()}
    cells = {}
    print(f"{'':<28}held  copied, ms  hidden: copy first, products first")
    for name in CELLS:
        host, stream = hosts[name.split("_")[0]], streams[name.split("_")[-1]]
        copying = partial(copy, gpu.zero_(), host, "non_blocking" in name, stream)
        row = cells[name] = summary(cell(copying, partial(multiply, x)))
        assert torch.equal(gpu.cpu(), host), name
        shares = "".join(f"{row['hidden'][order]:14.0%}" for order in ORDERS)
        print(f"{name:<25}{row['ms']['held']:7.2f}{row['ms']['transfer']:8.2f}{shares}")
    return {"bytes": BYTES, "cells": cells}


def plot(results: dict, ceilings: dict):
    import matplotlib.pyplot as plt

    rows = [name.removesuffix("_same").replace("_", "\n", 1) for name in CELLS[::2]]
    figure, axes = plt.subplots(1, 2, sharey=True)
    for ax, order in zip(axes, ORDERS, strict=True):
        shares = [results["cells"][name]["hidden"][order] for name in CELLS]
        ax.pcolormesh([shares[i : i + 2] for i in range(0, 8, 2)], vmin=0, vmax=1)
        for i, share in enumerate(shares):
            ink = "white" if share < 0.5 else "black"
            ax.text(i % 2 + 0.5, i // 2 + 0.5, f"{share:.0%}", color=ink, ha="center", va="center")
        ax.set(title=order.replace("_", " "), xlabel="stream")
        ax.set_xticks([0.5, 1.5], labels=["same", "side"])
        ax.set_yticks([0.5, 1.5, 2.5, 3.5], labels=rows)
        ax.grid(False)
    axes[0].invert_yaxis()
    return figure


if __name__ == "__main__":
    main()
