# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [1]
# ///
"""Many launches, or one replay of all of them: what a CUDA graph saves, over sizes."""

from collections.abc import Callable
from functools import partial
from statistics import median

import torch

from snippets.pictures import sweep
from snippets.timing.kernel_time import captured
from snippets.timing.lanes import lanes
from snippets.timing.take_turns import take_turns

PRODUCTS = {64: 500, 128: 500, 256: 500, 512: 500, 1024: 200, 2048: 50, 4096: 10}


def power(x: torch.Tensor, products: int) -> torch.Tensor:
    """The matrix x (n, n) to the power `products` + 1, one launch for each product."""
    y = x
    for _ in range(products):
        y = torch.mm(y, x)
    return y


def both_ways(x: torch.Tensor, products: int) -> dict[str, Callable[[], object]]:
    """Launch so many products one by one, or replay them: both give the same."""
    eager = partial(power, x, products)
    replay = captured(eager)
    replay().zero_()
    torch.testing.assert_close(replay(), eager())
    return {"eager": eager, "graph": replay}


def main() -> dict:
    works, kernels = {}, []
    for n, products in PRODUCTS.items():
        # the powers of Q stay as large as Q; qr gives it column by column
        x = torch.linalg.qr(torch.randn(n, n, device="cuda")).Q.contiguous()
        for way, work in both_ways(x, products).items():
            works[way, n] = work
        events = lanes(partial(torch.mm, x, x))
        kernels.append([event[3] for event in events if event[0] != "CPU"])

    turns = take_turns(works)  # the sizes take turns, too
    results = {"n": list(PRODUCTS), "kernels": kernels}
    for way in ("eager", "graph"):
        trials = []
        for n, products in PRODUCTS.items():
            trials.append([us / products for us in turns[way, n].us()])
        results[f"{way}_us"] = [median(each) for each in trials]
        results[f"{way}_us_trials"] = trials
    rows = zip(PRODUCTS, results["eager_us"], results["graph_us"], strict=True)
    for n, eager, graph in rows:
        print(f"mm {n:>4}: eager {eager:7.2f} µs, graph {graph:7.2f} µs")
    return results


def derive(results: dict) -> dict:
    """How many times as fast the graph is; where a matmul runs two kernels."""
    pairs = list(zip(results["eager_us"], results["graph_us"], strict=True))
    names = zip(results["n"], results["kernels"], strict=True)
    return {
        "two_kernels_at": [n for n, kernels in names if len(kernels) == 2],
        "graph_gain": [eager / graph for eager, graph in pairs],
        "off_one": [abs(eager / graph - 1) for eager, graph in pairs],
    }


def plot(results: dict, ceilings: dict):
    n = results["n"]
    series = {"launched by Python": results["eager_us"]}
    series["replayed as a graph"] = results["graph_us"]
    limits = {}
    if "fp32_tflop_s" in ceilings:
        peak = ceilings["fp32_tflop_s"]
        limits[f"arithmetic at {peak:.0f} TFLOP/s"] = [
            2e-6 * size**3 / peak for size in n
        ]
    names = {"xlabel": "n of a float32 matmul, n × n"}
    names["ylabel"] = "µs per matmul"
    picture = sweep(n, series, limits, xlog=True, ylog=True, **names)
    picture.panels[0].y.low = 1
    return picture


if __name__ == "__main__":
    main()
