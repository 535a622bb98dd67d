# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy", "pycuda>=2026.1"]
# [tool.overlap]
# gpus = [1]
# timeout = 60
# ///
"""Memory of pycuda's that only the graph still holds: backward() drops it in its thread."""

import gc
import warnings
from collections.abc import Callable

import torch

from snippets.machine.pycuda_context import torch_context
from snippets.machine.pycuda_leaks import MIB, SIZE, array_of, free_mib

ROUNDS = 3


def shared(array) -> torch.Tensor:
    """A tensor over the array's memory, which is pycuda's."""
    return torch.as_tensor(array, device="cuda")


def cloned(array) -> torch.Tensor:
    """A copy, whose memory is PyTorch's."""
    return torch.as_tensor(array, device="cuda").clone()


def held_by_the_graph(as_tensor: Callable[..., object]) -> torch.Tensor:
    """A sum whose graph alone still holds the array's memory, or its copy."""
    w = torch.ones(SIZE // 4, device="cuda", requires_grad=True)
    with torch_context():
        x = as_tensor(array_of(SIZE // 4))
        total = (w * x).sum()  # the gradient of w is x, so the graph keeps x
        del x
    return total


def after(as_tensor: Callable[..., object]) -> dict:
    """MiB that stay taken after backward(), and what pycuda warned of."""
    held_by_the_graph(as_tensor).backward()  # compiles and loads what is needed
    torch.cuda.empty_cache()
    before = free_mib()
    with warnings.catch_warnings(record=True, action="always") as caught:
        for _ in range(ROUNDS):
            held_by_the_graph(as_tensor).backward()
        gc.collect()
    torch.cuda.empty_cache()
    warned = sorted({str(each.message) for each in caught})
    return {"lost_mib": before - free_mib(), "warned": warned}


def main() -> dict:
    rows = {each.__name__: after(each) for each in (cloned, shared)}
    for name, row in rows.items():
        print(f"{name:7}{ROUNDS} × {MIB} MiB: {row['lost_mib']:.0f} MiB lost")
        for text in row["warned"]:
            print(f"       {text}")
    return {"rounds": ROUNDS, "size_mib": MIB, "rows": rows}


if __name__ == "__main__":
    main()
