# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [1]
# exclusive = false
# timeout = 180
# ///
"""A graph by hand, then `reduce-overhead`: does the graph find cuBLAS's workspace?"""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

from snippets.graphs.decode_step import apart
from snippets.timing.kernel_time import captured

# few outputs of long rows: cuBLAS splits such sums, and its parts wait in a workspace
SHAPES = ((8, 8192, 512), (1, 4096, 4096), (64, 16384, 64))  # rows, inner, columns


def pairs() -> list[tuple[Tensor, Tensor]]:
    """Factors of the products, the same each time."""
    torch.manual_seed(0)
    found = []
    for rows, inner, columns in SHAPES:
        sizes = (rows, inner), (inner, columns)
        one, other = (torch.randn(size, device="cuda") for size in sizes)
        found.append((one.bfloat16(), other.bfloat16()))
    return found


def products(factors: list[tuple[Tensor, Tensor]]) -> list[Tensor]:
    return [one @ other for one, other in factors]


def record_another() -> None:
    """Compile with `reduce-overhead`, which records graphs of its own at first calls."""
    net = torch.compile(nn.Linear(256, 256, device="cuda"), mode="reduce-overhead")
    x = torch.randn(8, 256, device="cuda")
    for _ in range(3):
        net(x)


def clear() -> None:
    """Free cuBLAS's workspaces, as `reduce-overhead` does before and after it records."""
    torch._C._cuda_clearCublasWorkspaces()


def is_right(replay: Callable[[], list[Tensor]], expected: list[Tensor]) -> bool:
    """Whether a replay gives what is expected, where zeros were before."""
    for row in replay():
        row.zero_()
    found = replay()
    torch.cuda.synchronize()
    right = True
    for row, exact in zip(found, expected, strict=True):
        right = right and torch.allclose(
            row, exact, rtol=0.02, atol=2.0
        )  # of about 100
    return right


@torch.no_grad()
def replay_in_order(order: str) -> dict:
    """Whether a graph of products, captured first or last, still gives them."""
    factors = pairs()
    expected = products(factors)
    if order == "graph_last":
        record_another()
    replay = captured(partial(products, factors))
    held = torch.cuda.memory_allocated()
    if order == "graph_first":
        record_another()
    if order == "cleared":
        clear()
    freed = held - torch.cuda.memory_allocated()
    torch.cuda.empty_cache()  # gives back to the driver what is free
    row = {"freed_mib": freed / 2**20, "right": False, "error": ""}
    try:
        row["right"] = is_right(replay, expected)
    except RuntimeError as error:
        row["error"] = str(error).splitlines()[0]
    return row


def main() -> dict:
    result = {}
    for order in ("graph_last", "graph_first", "cleared"):
        result[order] = row = apart(partial(replay_in_order, order), 60)
        print(f"{order:12}right: {row.get('right')!s:6}{row['error']}")
    return result


def derive(results: dict) -> dict:
    """Where a replay read memory that was given back."""
    return {
        "illegal": [
            order
            for order in ("graph_first", "cleared", "graph_last")
            if not results[order]["right"]
            and "illegal memory access" in results[order]["error"]
        ]
    }


if __name__ == "__main__":
    main()
