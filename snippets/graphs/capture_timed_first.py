# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [1]
# ///
"""What a CUDA graph saves, over sizes, in a process that was never profiled before."""

from functools import partial
from statistics import median

import torch

from snippets.graphs.cuda_graph_capture import PRODUCTS, both_ways
from snippets.timing.lanes import lanes
from snippets.timing.take_turns import take_turns


def main() -> dict:
    works: dict = {}
    matrices: dict[int, torch.Tensor] = {}
    for n, products in PRODUCTS.items():
        # the powers of Q stay as large as Q; qr gives it column by column
        x = torch.linalg.qr(torch.randn(n, n, device="cuda")).Q.contiguous()
        matrices[n] = x
        for way, work in both_ways(x, products).items():
            works[way, n] = work
    turns: dict = take_turns(works)  # the sizes take turns, too
    results: dict = {"n": list(PRODUCTS)}
    for way in ("eager", "graph"):
        trials = []
        for n, products in PRODUCTS.items():
            trials.append([us / products for us in turns[way, n].us()])
        results[f"{way}_us"] = [median(each) for each in trials]
        results[f"{way}_us_trials"] = trials
    kernels = []  # last: after a profile launches take longer
    for x in matrices.values():
        events = lanes(partial(torch.mm, x, x))
        kernels.append([event[3] for event in events if event[0] != "CPU"])
    rows = zip(PRODUCTS, results["eager_us"], results["graph_us"], strict=True)
    for n, eager, graph in rows:
        print(f"mm {n:>4}: eager {eager:7.2f} µs, graph {graph:7.2f} µs")
    return results | {"kernels": kernels}


def derive(results: dict) -> dict:
    """How many times as fast the graph is; where a matmul runs two kernels."""
    from snippets.graphs.cuda_graph_capture import derive

    return derive(results)


def plot(results: dict, ceilings: dict):
    from snippets.graphs.cuda_graph_capture import plot

    return plot(results, ceilings)


if __name__ == "__main__":
    main()
