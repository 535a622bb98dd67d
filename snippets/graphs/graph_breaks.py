# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [0]
# exclusive = false
# take = ["graphs_of"]
# ///
"""Into which graphs `torch.compile` cuts a function, and what it folds beforehand."""

import logging
from collections.abc import Callable
from typing import Any

import torch


def prints(x):
    doubled = x * 2
    print("doubled")
    return doubled + 1


def item(x):
    return x * x.sum().item()


def branch(x):
    if x.sum() > 0:
        return x + 1
    return x - 1


def four(a, b, c, d):
    return (a + b) + (c + d)


def graphs_of(work: Callable[..., object], *args: Any) -> list[list[str]]:
    """The operations of each graph that `torch.compile` makes of one call of `work`.

    No code is made: each graph runs as it was traced. All that this process has
    compiled is forgotten, before and after.
    """
    graphs = []

    def keep(module: torch.fx.GraphModule, _: object) -> Callable[..., Any]:
        nodes = [node for node in module.graph.nodes if node.op.startswith("call")]
        graphs.append([getattr(n.target, "__name__", str(n.target)) for n in nodes])
        return module.forward

    torch.compiler.reset()
    try:
        torch.compile(work, backend=keep)(*args)
    finally:
        torch.compiler.reset()
    return graphs


def main() -> dict:
    torch._logging.set_logs(dynamo=logging.ERROR)  # breaks are made here on purpose
    x, numbers, tensors = torch.ones(8), (1, 2, 3, 4), torch.arange(1, 5)
    found = {work.__name__: graphs_of(work, x) for work in (prints, item, branch)}
    known = {"four_tensors": tensors, "one_tensor": [tensors[0], *numbers[1:]]}
    for name, operands in (known | {"no_tensor": numbers}).items():
        found[name] = graphs_of(four, *operands)
    for name, graphs in found.items():
        print(f"{name:13}{len(graphs)} graphs:", *(", ".join(each) for each in graphs))
    return found


def derive(results: dict) -> dict:
    """The number of operations in each graph of the counts of tensors."""
    names = ("four_tensors", "one_tensor", "no_tensor")
    return {
        "operations": {name: [len(graph) for graph in results[name]] for name in names}
    }


if __name__ == "__main__":
    main()
