# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [1]
# exclusive = false
# ///
"""Random numbers in a graph: PyTorch draws them anew, Python drew them once."""

import random
from functools import partial

import torch

from snippets.timing.kernel_time import captured


def masks(x: torch.Tensor) -> dict[str, int]:
    """Elements of x where dropout agrees: two replays, seeded alike, seeded eager."""
    dropout = partial(torch.nn.functional.dropout, x, 0.5)
    replay = captured(dropout)
    one, two = replay().clone(), replay().clone()
    seeded = []
    for work in (replay, replay, dropout):
        torch.manual_seed(1)
        seeded.append(work().clone())
    first, again, eager = seeded
    pairs = {"two_replays": (one, two), "seeded_replays": (first, again)}
    pairs["seeded_eager"] = (first, eager)
    return {name: int((a == b).sum()) for name, (a, b) in pairs.items()}


def python_numbers(replays: int) -> list[float]:
    """What replays give that add a random number which Python drew."""
    x = torch.zeros(1, device="cuda")
    replay = captured(lambda: x + random.random())
    return [replay().item() for _ in range(replays)]


def main() -> dict:
    x = torch.ones(10_000, device="cuda")
    agree, drawn = masks(x), python_numbers(3)
    for name, count in agree.items():
        print(f"dropout, {name.replace('_', ' '):15}{count:6,} of {x.numel():,} agree")
    print("random.random(), three replays:", *(f"{number:.3f}" for number in drawn))
    return {"elements": x.numel(), "agree": agree, "python": drawn}


if __name__ == "__main__":
    main()
