# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11"]
# [tool.overlap]
# gpus = [1]
# ///
"""Capture many launches once, replay them with one call: what that saves, and two ways to get it wrong."""

import subprocess
import sys
from collections.abc import Callable
from statistics import median

import torch

from snippets.timing.benchmark import measure

PRODUCTS = {64: 500, 128: 500, 256: 500, 512: 500, 1024: 200, 2048: 50, 4096: 10}
ITEM_IN_CAPTURE = """import torch
x = torch.ones(1, device="cuda")
with torch.cuda.graph(torch.cuda.CUDAGraph()):
    x.item()"""


def power(x: torch.Tensor, products: int) -> torch.Tensor:
    """The matrix x (n, n) to the power `products` + 1, one kernel launch per product."""
    y = x
    for _ in range(products):
        y = torch.mm(y, x)
    return y


def capture(work: Callable[[], torch.Tensor]) -> tuple[torch.cuda.CUDAGraph, torch.Tensor]:
    """The graph of what `work` launches, and the tensor into which every replay writes its result."""
    work()  # libraries set themselves up in their first call, which must not be captured
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = work()
    return graph, result


def eager_and_replayed(n: int, products: int) -> list[list[float]]:
    """Trials in µs per product, launched one by one and replayed, after proving that both give the same matrix."""
    x = torch.linalg.qr(torch.randn(n, n, device="cuda")).Q  # powers of a rotation neither grow nor vanish
    graph, result = capture(lambda: power(x, products))
    result.zero_()
    graph.replay()
    torch.testing.assert_close(result, power(x, products))
    ways = (lambda: power(x, products)), graph.replay
    return [[1e3 * ms / products for ms in measure(way).ms()] for way in ways]


def stale_input() -> dict[str, float]:
    """A replay reads the captured buffer: it sees a copy into that buffer, not a new tensor under the old name."""
    x = captured = torch.tensor(3.0, device="cuda")
    graph, tenfold = capture(lambda: 10 * x)
    x = torch.tensor(4.0, device="cuda")
    graph.replay()
    new_name = tenfold.item()
    captured.copy_(x)
    graph.replay()
    return {"right": 10 * x.item(), "new_name": new_name, "copied": tenfold.item()}


def death_of(program: str) -> dict:
    """Exit code and first error of a program, in a process of its own, which a failed capture may leave unusable."""
    child = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    return {"exit_code": child.returncode, "error": next((e for e in child.stderr.splitlines() if "Error: " in e), "")}


def main() -> dict:
    trials = list(zip(*(eager_and_replayed(n, products) for n, products in PRODUCTS.items()), strict=True))
    eager_us, graph_us = ([median(of_size) for of_size in way] for way in trials)
    for n, eager, graph in zip(PRODUCTS, eager_us, graph_us, strict=True):
        print(f"mm {n:>4}: eager {eager:8.2f} µs, graph {graph:8.2f} µs, {eager / graph:.2f}× sooner")
    results = {"n": list(PRODUCTS), "eager_us": eager_us, "graph_us": graph_us, "answer": stale_input()}
    results |= {"eager_us_trials": trials[0], "graph_us_trials": trials[1], "item": death_of(ITEM_IN_CAPTURE)}
    print("replay: new tensor, old name {new_name:g}; copied {copied:g}; right {right:g}".format(**results["answer"]))
    print(".item() while capturing: {error}".format(**results["item"]))
    return results


def plot(results: dict, ceilings: dict):
    import matplotlib.pyplot as plt

    figure, ax = plt.subplots()
    sizes, peak = results["n"], ceilings.get("fp32_tflop_s")
    ax.loglog(sizes, results["eager_us"], marker="o", label="launched one by one")
    ax.loglog(sizes, results["graph_us"], marker="o", label="replayed from a graph")
    if peak:
        ax.loglog(sizes, [2e-6 * n**3 / peak for n in sizes], "--", color="gray", label=f"{peak:g} TFLOP/s")
    ax.set(xlabel="n, of a product (n, n) by (n, n), fp32", xticks=sizes, xticklabels=sizes)
    ax.set(ylabel="µs per product", ylim=(1, None), yticks=(1, 10, 100, 1000), yticklabels=(1, 10, 100, 1000))
    ax.minorticks_off()
    ax.legend()
    return figure


if __name__ == "__main__":
    main()
