# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [1]
# exclusive = false
# ///
"""A graph keeps the memory of its intermediates: three graphs apart, or in one pool."""

import torch

GRAPHS, MIB = 3, 2**20


def norm(x: torch.Tensor) -> torch.Tensor:
    """Two intermediates as large as x, then one number."""
    shifted = x - 1
    squares = shifted * shifted
    return squares.sum()


def reserved_mib() -> int:
    """MiB that the allocator holds and cannot give back."""
    torch.cuda.empty_cache()
    return torch.cuda.memory_reserved() // MIB


def capture(x: torch.Tensor, pool=None) -> tuple[torch.cuda.CUDAGraph, torch.Tensor]:
    """A graph of `norm(x)`, its intermediates in `pool`, and its result."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=pool):
        result = norm(x)
    return graph, result


def held_by_graphs(x: torch.Tensor, shared: bool) -> int:
    """MiB that GRAPHS graphs hold between replays; their answers are looked at."""
    before = reserved_mib()
    pool = torch.cuda.graph_pool_handle() if shared else None
    captures = [capture(x, pool) for _ in range(GRAPHS)]
    for graph, result in captures:  # in the order of capture, as one pool demands
        graph.replay()
        torch.testing.assert_close(result, norm(x))
    return reserved_mib() - before


def main() -> dict:
    x = torch.rand(64 * MIB // 4, device="cuda")
    before = reserved_mib()
    norm(x)
    held = {"eager": reserved_mib() - before}
    held["graphs_apart"] = held_by_graphs(x, shared=False)
    held["after_their_end"] = reserved_mib() - before
    held["graphs_in_one_pool"] = held_by_graphs(x, shared=True)
    for name, mib in held.items():
        print(f"{name.replace('_', ' '):20}{mib:5} MiB held")
    return {"graphs": GRAPHS, "x_mib": x.nbytes // MIB, "held_mib": held}


def derive(results: dict) -> dict:
    """What graphs hold: in one pool beside a tensor, and each in its own beside that."""
    held = results["held_mib"]
    return {
        "pool_of_tensor": held["graphs_in_one_pool"] / results["x_mib"],
        "apart_of_pool": held["graphs_apart"] / held["graphs_in_one_pool"],
    }


if __name__ == "__main__":
    main()
