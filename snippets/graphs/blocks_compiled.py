# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [0, 1]
# exclusive = false
# ///
"""Compile a network of equal blocks as a whole, or block by block: what is compiled?"""

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn

WIDTH, TOKENS, BLOCKS = 64, 16, (1, 2, 4, 8)


class Handed:
    """A backend that makes no code; it notes the operations of each graph it is given."""

    def __init__(self):
        self.operations: list[int] = []

    def __call__(self, graph: torch.fx.GraphModule, _) -> Callable[[], object]:
        calls = [node for node in graph.graph.nodes if node.op.startswith("call")]
        self.operations.append(len(calls))
        return graph.forward


class Block(nn.Module):
    """A transformer's block as a class of your own."""

    def __init__(self):
        super().__init__()
        self.layer = pytorchs_block()

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x)


class Chain(nn.Module):
    """The blocks one after the other."""

    def __init__(self, blocks: list[nn.Module]):
        super().__init__()
        self.blocks = nn.ModuleList(blocks)

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        return x


def pytorchs_block() -> nn.Module:
    return nn.TransformerEncoderLayer(
        WIDTH, 4, 4 * WIDTH, 0, batch_first=True, norm_first=True
    )


def whole(net: Chain, backend: Callable[[], object]) -> None:
    """Compile the network as one function."""
    net.compile(backend=backend)


def by_block(net: Chain, backend: Callable[[], object]) -> None:
    """Compile each block in place; equal blocks share what is compiled."""
    for block in net.blocks:
        block.compile(backend=backend)


def handed(
    blocks: list[nn.Module], way: Callable[..., Any], train: bool = True
) -> list[int]:
    """Operations of each graph that is handed to the compiler in two steps."""
    torch.compiler.reset()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    net, backend = Chain(blocks).to(device), Handed()
    batch = torch.randn(2, TOKENS, WIDTH, device=device)
    expected = net(batch)
    way(net, backend)
    with torch.set_grad_enabled(train):
        for _ in range(2):
            torch.testing.assert_close(net(batch), expected)
    return backend.operations


def main() -> dict:
    torch.manual_seed(0)
    graphs = {"whole": {}, "by_block": {}, "by_block_untrained": {}}
    for count in BLOCKS:
        key, blocks = str(count), [Block() for _ in range(count)]
        graphs["whole"][key] = handed(deepcopy(blocks), whole)
        graphs["by_block"][key] = handed(deepcopy(blocks), by_block)
        graphs["by_block_untrained"][key] = handed(blocks, by_block, train=False)
    pytorchs = handed([pytorchs_block() for _ in range(2)], by_block)
    for way, rows in graphs.items():
        for key, operations in rows.items():
            print(f"{way:18} {key} blocks: graphs of {operations} operations")
    print(f"PyTorch's own blocks, compiled in place: {len(pytorchs)} graphs")
    return {"operations": graphs, "pytorchs": pytorchs}


def derive(results: dict) -> dict:
    """Whether the whole model compiles block by block, and blocks one of them twice."""
    whole = results["operations"]["whole"]
    (one,) = whole["1"]
    by_block = results["operations"]["by_block"]
    return {
        "grows_by_block": all(whole[str(n)] == [n * one] for n in (1, 2, 4, 8)),
        "one_block_twice": all(by_block[str(n)] == [one, one] for n in (2, 8)),
    }


if __name__ == "__main__":
    main()
