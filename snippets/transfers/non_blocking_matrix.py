# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [1]
# ///
"""Pinned, non_blocking, own stream: when does a copy hold you, when is it hidden?"""

import time
from collections.abc import Callable
from functools import partial
from itertools import product
from statistics import median

import torch
from torch import Tensor

from snippets.pictures import Axis, Cells, Panel, Picture
from snippets.timing.benchmark import Timing
from snippets.timing.take_turns import ratios, recorded, take_turns

BYTES = 64 * 2**20
N, PRODUCTS = 4096, 4  # float32, which keeps the GPU's clock steady
ORDERS = ("copy_first", "products_first")
CHOICES = ("pageable", "pinned"), ("blocking", "non_blocking"), ("same", "side")
WAYS = {"cells": "to the GPU", "back": "back"}
CELLS = ["_".join(choice) for choice in product(*CHOICES)]


def copy(to: Tensor, source: Tensor, non_blocking: bool, stream) -> float:
    """Copy in this stream; seconds until the call let you go on."""
    start = time.perf_counter()
    with torch.cuda.stream(stream):
        to.copy_(source, non_blocking=non_blocking)
    return time.perf_counter() - start


def in_order(*works: Callable[[], object]) -> None:
    for work in works:
        work()


def hidden(copying: Timing, multiplying: Timing, both: Timing) -> list[float]:
    """Share of the shorter of the two that disappears behind the longer, round by round."""
    rounds = zip(copying.trials, multiplying.trials, both.trials, strict=True)
    return [(one + other - s) / min(one, other) for one, other, s in rounds]


def cell(copying: Callable[[], object], multiplying: Callable[[], object]) -> dict:
    """The copy, what it holds you, the matmuls, and both in either order, in turn."""
    held = []
    works = {"transfer": lambda: held.append(copying()), "products": multiplying}
    works["copy_first"] = partial(in_order, copying, multiplying)
    works["products_first"] = partial(in_order, multiplying, copying)
    turns = take_turns(works, warmup=1, trials=7)
    copied, multiplied = turns["transfer"], turns["products"]
    trials = {order: hidden(copied, multiplied, turns[order]) for order in ORDERS}
    shares = {order: median(trials[order]) for order in ORDERS}
    turns["held"] = Timing(held[1:])
    of_copy = ratios(turns["held"], copied)
    result = {"hidden": shares, "hidden_trials": trials} | recorded(turns)
    return result | {"held": median(of_copy), "held_trials": of_copy}


def main() -> dict:
    gpu = torch.empty(BYTES, dtype=torch.uint8, device="cuda").random_()
    hosts = {"pageable": gpu.cpu(), "pinned": gpu.cpu().pin_memory()}
    streams = {"same": torch.cuda.current_stream(), "side": torch.cuda.Stream()}
    x = torch.randn(N, N, device="cuda")
    multiplying = partial(in_order, *[partial(torch.mm, x, x)] * PRODUCTS)
    cells = {"cells": {}, "back": {}}
    print("ms: held, copied; hidden: copy first, products first")
    for memory, blocking, stream in product(*CHOICES):
        name, host = f"{memory}_{blocking}_{stream}", hosts[memory]
        for way, (to, source) in {"cells": (gpu, host), "back": (host, gpu)}.items():
            how = blocking == "non_blocking", streams[stream]
            row = cell(partial(copy, to.zero_(), source, *how), multiplying)
            assert torch.equal(to.cpu(), source.cpu()), name
            cells[way][name] = row
            figures = f"{row['ms']['held']:9.2f}{row['ms']['transfer']:8.2f}"
            shares = "".join(f"{share:8.0%}" for share in row["hidden"].values())
            print(f"{WAYS[way]:<11}{name:<27}{figures}{shares}")
    return {"bytes": BYTES} | cells


def derive(results: dict) -> dict:
    """What is hidden, and for how long the CPU is held, by kinds of ways."""
    hidden = {"on_side": [], "on_same": [], "copy_first": [], "copy_first_others": []}
    held = {"pinned": [], "pageable": []}
    for ways in (results["cells"], results["back"]):
        for name, row in ways.items():
            stream = "on_side" if "side" in name else "on_same"
            hidden[stream].append(row["hidden"]["products_first"])
            right = name == "pinned_non_blocking_side"
            order = "copy_first" if right else "copy_first_others"
            hidden[order].append(row["hidden"]["copy_first"])
        for memory, each in held.items():
            each.append(ways[f"{memory}_non_blocking_same"]["held"])
    return {"hidden": hidden, "held": held}


def plot(results: dict, ceilings: dict):
    titles = {
        "copy_first": "copy, then matmuls",
        "products_first": "matmuls, then copy",
    }
    panels = []
    for stream in ("same", "side"):
        for order, title in titles.items():
            names = [name for name in CELLS if name.endswith(stream)]
            rows = [", ".join(name.split("_", 1)).rpartition("_")[0] for name in names]
            shares = [
                [results[way][name]["hidden"][order] for way in WAYS] for name in names
            ]
            within = [[min(max(share, 0), 1) for share in row] for row in shares]
            percent = [[100 * share for share in row] for row in within]
            texts = [[f"{value:.0f}%" for value in row] for row in percent]
            said = f"% of the copy hidden, {stream} stream"
            cells = Cells(["to GPU", "back"], rows, percent, said, texts, within)
            where = "one stream" if stream == "same" else "a side stream"
            title = f"{where}:\n{title}"
            panels.append(Panel([cells], Axis(), title=title))
    return Picture(panels, columns=2)


if __name__ == "__main__":
    main()
