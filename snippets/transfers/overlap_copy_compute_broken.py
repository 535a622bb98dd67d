# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [1]
# ///
"""Broken on purpose: matmuls and non-blocking copies in one stream, as D2L has it.

After D2L's sample code; MIT-0 licence, (c) 2019 Amazon.com, Inc. or its affiliates.
"""

from collections.abc import Callable
from functools import partial
from itertools import cycle
from typing import Any

import torch
from torch import Tensor

from snippets.pictures import timelines
from snippets.timing.lanes import lanes
from snippets.timing.take_turns import recorded, take_turns

N, ROUNDS = 4000, 20  # float32 matmuls of N by N; D2L has 50 of them


def products(x: Tensor, rounds: int) -> list[Tensor]:
    return [torch.mm(x, x) for _ in range(rounds)]


def copies(results: list[Tensor], landing: list[Tensor]) -> None:
    for result, host in zip(results, cycle(landing), strict=False):
        host.copy_(result, non_blocking=True)


def together(x: Tensor, landing: list[Tensor], rounds: int) -> None:
    """As D2L does it: all matmuls, then their copies, none of which blocks the CPU."""
    copies(products(x, rounds), landing)


def compared(together: Callable[..., Any]) -> dict:
    """Products, copies and both, in turn; what happens in six rounds of both."""
    x = torch.randn(N, N, device="cuda")
    landing = [torch.zeros(N, N, pin_memory=True) for _ in range(4)]  # used in turn
    together(x, landing, 4)
    torch.cuda.synchronize()
    torch.testing.assert_close(torch.stack(landing)[:, -1].cuda(), (x @ x)[[-1] * 4])
    works = {
        "products": partial(products, x, ROUNDS),
        "copies": partial(copies, products(x, ROUNDS), landing),
        "together": partial(together, x, landing, ROUNDS),
    }
    result = {"rounds": ROUNDS, "bytes": ROUNDS * x.nbytes, "flop": ROUNDS * 2 * N**3}
    result |= recorded(take_turns(works, warmup=1, trials=7))
    print(*(f"{name:<9}{ms:8.1f} ms" for name, ms in result["ms"].items()), sep="\n")
    return result | {"events": lanes(partial(together, x, landing, 6))}


def main() -> dict:
    return compared(together)


def plot(results: dict, ceilings: dict):
    events = []
    for lane, start, us, name in results["events"]:
        if lane != "CPU":
            lane = "copies" if "Memcpy" in name else "GPU"
        elif "Synchronize" in name:
            lane = "CPU waits"
        events.append([lane, start / 1e3, us / 1e3, name])
    return timelines({"six matmuls and their copies, one stream": events}, "ms")


if __name__ == "__main__":
    main()
