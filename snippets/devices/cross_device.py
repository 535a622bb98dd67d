# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [2, 4, 8]
# exclusive = false
# ///
"""Operands on two GPUs: what runs, on which of them, and what is an error."""

from collections.abc import Callable

import torch
from torch import Tensor, nn


def mixed(a: Tensor, b: Tensor) -> dict[str, Callable[[], Tensor]]:
    """Calls on a and b, which are square and on two GPUs; the current one is a's."""
    index, layer = torch.zeros(1, dtype=torch.long), nn.Linear(len(a), 2).to(a.device)
    return {
        "a + b": lambda: a + b,
        "a + b.sum()": lambda: a + b.sum(),
        "a + torch.tensor(1.0)": lambda: a + torch.tensor(1.0),
        "torch.cat([a, b])": lambda: torch.cat([a, b]),
        "layer of a's GPU (b)": lambda: layer(b),
        "a[index on the CPU]": lambda: a[index],
        "a[index on b's GPU]": lambda: a[index.to(b.device)],
        "a[0] = b[0]": lambda: assigned(a, b),
        "a.copy_(b)": lambda: a.clone().copy_(b),
        "b @ b": lambda: b @ b,
        "torch.empty_like(b)": lambda: torch.empty_like(b),
        "torch.empty(1, device='cuda')": lambda: torch.empty(1, device="cuda"),
        "torch.empty(1, device='cuda:99')": lambda: torch.empty(1, device="cuda:99"),
    }


def assigned(a: Tensor, b: Tensor) -> Tensor:
    """A copy of a whose first row is b's."""
    a = a.clone()
    a[0] = b[0]
    return a


def outcome(call: Callable[[], Tensor]) -> str:
    """The device of the result, or the first line of the error."""
    try:
        return str(call().device)
    except Exception as error:
        return f"{type(error).__name__}: {str(error).splitlines()[0]}"


def main() -> dict:
    a, b = (torch.randn(4, 4, device=f"cuda:{i}") for i in (0, 1))
    rows = {call: outcome(function) for call, function in mixed(a, b).items()}
    for call, what in rows.items():
        print(f"{call:<34}{what}")
    copied = torch.equal(assigned(a, b)[0].cpu(), b[0].cpu())
    print("a[0] = b[0] copied the row:", copied)
    return {"rows": rows, "copied": copied}


def derive(results: dict) -> dict:
    """Which calls are refused for their devices, or give a result on GPU 0."""
    rows = sorted(results["rows"].items())
    refused = [call for call, what in rows if "same device" in what]
    on_first = [call for call, what in rows if what == "cuda:0"]
    mixed = {
        "a + b",
        "a + b.sum()",
        "a[index on b's GPU]",
        "layer of a's GPU (b)",
        "torch.cat([a, b])",
    }
    allowed = {
        "a + torch.tensor(1.0)",
        "a.copy_(b)",
        "a[0] = b[0]",
        "a[index on the CPU]",
    }
    others = mixed.symmetric_difference(refused) | allowed.difference(on_first)
    return {"refused": refused, "on_first": on_first, "otherwise": sorted(others)}


if __name__ == "__main__":
    main()
