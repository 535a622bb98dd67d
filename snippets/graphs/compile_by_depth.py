# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [1]
# timeout = 180
# ///
"""Networks of one to thirty layers: from how many on does `torch.compile` gain?"""

from functools import partial

import torch
from torch import nn

from snippets.pictures import sweep
from snippets.timing.kernel_time import captured
from snippets.timing.lanes import lanes
from snippets.timing.take_turns import recorded, take_turns

DEPTHS, WIDTH = (1, 3, 10, 30), 256


def network(depth: int) -> nn.Module:
    """`depth` times a linear layer and a ReLU."""
    torch.manual_seed(0)
    layers = [(nn.Linear(WIDTH, WIDTH), nn.ReLU()) for _ in range(depth)]
    return nn.Sequential(*[part for layer in layers for part in layer])


def ways_to_call(net: nn.Module, x: torch.Tensor) -> dict:
    """Functions without arguments that give net(x)."""
    return {
        "eager": partial(net, x),
        "compile": partial(torch.compile(net), x),
        "reduce_overhead": partial(torch.compile(net, mode="reduce-overhead"), x),
        "graph": captured(partial(net, x)),
    }


@torch.no_grad()
def compared(depth: int) -> dict:
    """µs of a call in each way, and its kernels; AssertionError if results differ."""
    torch._dynamo.reset()  # code compiled for another depth must not be asked first
    net, x = network(depth).cuda(), torch.randn(1, WIDTH, device="cuda")
    works = ways_to_call(net, x)
    for work in works.values():
        torch.testing.assert_close(work(), net(x), rtol=1e-4, atol=1e-5)
    row = {"depth": depth} | recorded(take_turns(works, trials=31, calls=20), "us")
    kernels = {}
    for name, work in works.items():
        kernels[name] = sum(lane.startswith("stream") for lane, *_ in lanes(work))
    return row | {"kernels": kernels}


def main() -> dict:
    rows = [compared(depth) for depth in DEPTHS]
    for row in rows:
        for name, us in row["us"].items():
            each = f"{us:7.1f} µs, {row['kernels'][name]} kernels"
            print(f"{row['depth']:2} layers, {name:16}{each}")
    return {"rows": rows}


def derive(results: dict) -> dict:
    """What depths gain, and whether as many kernels are launched."""
    rows = results["rows"]
    kernels = [row["kernels"] for row in rows]
    one, ten, thirty = (row["us"] for row in rows if row["depth"] in (1, 10, 30))
    return {
        "one_layer_takes": min(one["compile"], one["reduce_overhead"]) / one["eager"],
        "faster": {
            "ten": ten["eager"] / ten["reduce_overhead"],
            "thirty": thirty["eager"] / thirty["reduce_overhead"],
            "thirty_compiled": thirty["eager"] / thirty["compile"],
        },
        "as_many_kernels": all(each["compile"] == each["eager"] for each in kernels),
    }


def plot(results: dict, ceilings: dict):
    rows = results["rows"]
    labels = {
        "graph": "a graph, by hand",
        "reduce_overhead": 'mode="reduce-overhead"',
        "compile": "torch.compile",
    }
    series = {}
    for name, label in labels.items():
        series[label] = [row["us"]["eager"] / row["us"][name] for row in rows]
    depths = [row["depth"] for row in rows]
    titles = {"xlabel": "small layers", "ylabel": "times as fast as eager mode"}
    picture = sweep(depths, series, {"eager mode": 1.0}, True, True, **titles)
    for line, color in zip(picture.panels[0].marks, (2, 6, 3), strict=False):
        line.color = color  # a graph is orange, as in the other pictures
    return picture


if __name__ == "__main__":
    main()
