# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11"]
# [tool.overlap]
# gpus = [1]
# ///
"""Many launches, or one replay of all of them: what a CUDA graph saves, over sizes."""

from functools import partial

import torch

from snippets.timing.benchmark import Timing
from snippets.timing.kernel_time import captured
from snippets.timing.lanes import lanes
from snippets.timing.pictures import sweep
from snippets.timing.take_turns import recorded, take_turns

PRODUCTS = {64: 500, 128: 500, 256: 500, 512: 500, 1024: 200, 2048: 50, 4096: 10}


def power(x: torch.Tensor, products: int) -> torch.Tensor:
    """The matrix x (n, n) to the power `products` + 1, one launch for each product."""
    y = x
    for _ in range(products):
        y = torch.mm(y, x)
    return y


def both_ways(x: torch.Tensor, products: int) -> dict[str, Timing]:
    """Seconds per product, launched one by one and replayed, if both give the same."""
    eager = partial(power, x, products)
    replay = captured(eager)
    replay().zero_()
    torch.testing.assert_close(replay(), eager())
    turns = take_turns({"eager": eager, "graph": replay})
    return {way: Timing([s / products for s in t.trials]) for way, t in turns.items()}


def main() -> dict:
    results = {"n": list(PRODUCTS), "eager_us": [], "eager_us_trials": []}
    results |= {"graph_us": [], "graph_us_trials": [], "kernels": []}
    for n, products in PRODUCTS.items():
        x = torch.linalg.qr(torch.randn(n, n, device="cuda")).Q  # powers stay as large
        found = recorded(both_ways(x, products), "us")
        for way in ("eager", "graph"):
            results[f"{way}_us"].append(found["us"][way])
            results[f"{way}_us_trials"].append(found["us_trials"][way])
        events = lanes(partial(torch.mm, x, x))
        results["kernels"].append([e[3] for e in events if e[0].startswith("stream")])
        print(f"mm {n:>4}:", *(f"{way} {us:.2f} µs" for way, us in found["us"].items()))
    return results


def plot(results: dict, ceilings: dict):
    n = results["n"]
    series = {"launched one by one": results["eager_us"]}
    series["replayed from a graph"] = results["graph_us"]
    limits = {}
    if "fp32_tflop_s" in ceilings:
        peak = ceilings["fp32_tflop_s"]
        limits[f"{peak:g} TFLOP/s"] = [2e-6 * size**3 / peak for size in n]
    names = {"xlabel": "n, of a product (n, n) by (n, n), fp32"}
    names["ylabel"] = "µs per product"
    figure = sweep(n, series, limits, xlog=True, ylog=True, **names)
    figure.axes[0].set_ylim(1, None)
    return figure


if __name__ == "__main__":
    main()
