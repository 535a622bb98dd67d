# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [1]
# timeout = 600
# ///
"""Products of one row with a decoder's weights: what lets them read at the bandwidth?"""

import os
from collections.abc import Callable, Sequence
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from snippets.graphs.seven_billion import HIDDEN, WIDTH
from snippets.pictures import bars, sweep
from snippets.timing.kernel_time import captured, gpu_clock
from snippets.timing.take_turns import recorded, take_turns

OUTPUTS = 1024, 2048, 4096, 8192, 16_384, 32_768  # of a weight with WIDTH inputs
READ = 2**30  # bytes of the weights that one replay reads: many times any L2 cache
BLOCKS = 8
# a block's weights, as (outputs, inputs) of each layer, and those that read one input
# joined to one
APART = {name: (WIDTH, WIDTH) for name in ("q", "k", "v", "out")}
APART |= {"gate": (HIDDEN, WIDTH), "up": (HIDDEN, WIDTH), "down": (WIDTH, HIDDEN)}
JOINED = {"qkv": ("q", "k", "v"), "out": ("out",), "gate_up": ("gate", "up")}
JOINED |= {"down": ("down",)}
Product = Callable[[Tensor, Tensor], Tensor]


def tuned() -> Product:
    """`linear`, compiled so that Inductor may write the product of one row itself."""
    options: Any = {"coordinate_descent_tuning": True}
    return torch.compile(F.linear, options=options, dynamic=False)


def products(
    product: Product, rows: Sequence[Tensor], weights: Sequence[Tensor]
) -> Any:
    """A function that makes all products, which are independent of each other."""

    def work() -> list[Tensor]:
        return [product(row, weight) for row, weight in zip(rows, weights, strict=True)]

    return work


def weight(outputs: int, inputs: int) -> Tensor:
    """Random weights in bf16 that keep the length of a row."""
    shape = outputs, inputs
    return torch.randn(shape, dtype=torch.bfloat16, device="cuda") / inputs**0.5


def row(inputs: int) -> Tensor:
    return torch.randn(1, inputs, dtype=torch.bfloat16, device="cuda")


def checked(found: Sequence[Tensor], rows: Any, weights: Any) -> float:
    """The largest error beside float64, by the largest result; AssertionError if > 1%."""
    worst = 0.0
    for y, x, w in zip(found, rows, weights, strict=True):
        expected = F.linear(x.double(), w.double())
        error = (y.double() - expected).abs().max() / expected.abs().max()
        worst = max(worst, float(error))
    assert worst < 0.01, worst
    return worst


def timed(ways: dict[str, Callable[[], Any]], count: int) -> dict:
    """µs of one of the `count` products in each way, as a replay of a graph."""

    def clock(replay: Callable[[], object], calls: int) -> float:
        return gpu_clock(replay, calls, 4_000_000) / count

    return recorded(take_turns(ways, trials=9, calls=5, clock=clock), "us")


def by_size(outputs: int, compiled: Product) -> dict:
    """One product of that many outputs, by cuBLAS and by Inductor's kernel."""
    count = READ // (2 * outputs * WIDTH)
    weights = [weight(outputs, WIDTH) for _ in range(count)]
    rows = [row(WIDTH)] * count
    ways = {"cublas": F.linear, "tuned": compiled}
    graphs = {}
    found: dict = {"outputs": outputs, "count": count, "error": {}}
    for name, product in ways.items():
        graphs[name] = captured(products(product, rows, weights))
        found["error"][name] = checked(graphs[name]()[:2], rows[:2], weights[:2])
    found |= timed(graphs, count) | {"bytes": 2 * outputs * WIDTH}
    us = ", ".join(f"{name} {us:6.1f} µs" for name, us in found["us"].items())
    print(f"{outputs:6,} × {WIDTH:,}: {us}")
    return found


def of_blocks(compiled: Product) -> dict:
    """All products of BLOCKS blocks, apart and joined, by cuBLAS and by Inductor."""
    inputs = {size: row(size) for size in (WIDTH, HIDDEN)}
    apart, joined = [], []
    for _ in range(BLOCKS):
        layers = {name: weight(*shape) for name, shape in APART.items()}
        apart += list(layers.values())
        joined += [torch.cat([layers[n] for n in names]) for names in JOINED.values()]
    graphs = {}
    for way, weights in {"apart": apart, "joined": joined}.items():
        rows = [inputs[w.shape[1]] for w in weights]
        for name, product in {"cublas": F.linear, "tuned": compiled}.items():
            graph = graphs[f"{way}_{name}"] = captured(products(product, rows, weights))
            count = len(weights) // BLOCKS
            checked(graph()[:count], rows[:count], weights[:count])
    found = timed(graphs, BLOCKS)
    found["bytes"] = 2 * sum(w.numel() for w in apart) // BLOCKS
    for name, us in found["us"].items():
        print(f"products of a block, {name:13}{us:6.1f} µs")
    return found


@torch.no_grad()
def main() -> dict:
    torch.manual_seed(0)
    with TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = folder
        os.environ["TRITON_CACHE_DIR"] = os.path.join(folder, "triton")
        with torch._dynamo.config.patch(recompile_limit=32):
            compiled = tuned()
            sizes = [by_size(outputs, compiled) for outputs in OUTPUTS]
            block = of_blocks(compiled)
    return {"inputs": WIDTH, "sizes": sizes, "block": block}


def derive(results: dict) -> dict:
    """GB/s of the weights, for each size and of a block: {way: rate}."""
    sizes, block = results["sizes"], results["block"]
    rates = {}
    for way in ("cublas", "tuned"):
        rates[way] = [row["bytes"] / row["us"][way] / 1e3 for row in sizes]
    of_block = {way: block["bytes"] / us / 1e3 for way, us in block["us"].items()}
    return {"gb_s": rates, "block_gb_s": of_block}


def plot(results: dict, ceilings: dict):
    rates = derive(results)
    mib = [round(row["bytes"] / 2**20) for row in results["sizes"]]
    series = {"cuBLAS": rates["gb_s"]["cublas"]}
    series["Inductor, tuned"] = rates["gb_s"]["tuned"]
    limit = {}
    if "hbm_gb_s" in ceilings:
        limit = {"memory's bandwidth": ceilings["hbm_gb_s"]}
    labels = {"xlabel": "MiB of a weight", "ylabel": "GB/s read"}
    picture = sweep(mib, series, limit, xlog=True, **labels)
    rows = {}
    for way, label in {"apart": "seven layers", "joined": "joined to four"}.items():
        kinds = {"cublas": "cuBLAS", "tuned": "Inductor, tuned"}
        rows[label] = {
            text: rates["block_gb_s"][f"{way}_{kind}"] for kind, text in kinds.items()
        }
    return picture, {"block": bars(rows, limit, "GB/s read")}


if __name__ == "__main__":
    main()
