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
    """The nodes that compute, by name, of each graph of one call of `work`.

    A node has the name of the variable that takes its result, else of its function. No
    code is made: each graph runs as `torch.compile` traced it. Earlier graphs are
    forgotten; these stay in `work` until `torch.compiler.reset()`.
    """
    graphs = []

    def keep(module: torch.fx.GraphModule, _: object) -> Callable[..., Any]:
        graphs.append([n.name for n in module.graph.nodes if n.op.startswith("call")])
        return module.forward

    torch.compiler.reset()
    torch.compile(work, backend=keep)(*args)
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
