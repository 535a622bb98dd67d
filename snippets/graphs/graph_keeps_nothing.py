# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [1]
# exclusive = false
# ///
"""A graph knows addresses: what does it read when the tensor behind one is gone?"""

from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from textwrap import shorten

import torch

SIZE = 2**24  # float32: 64 MiB


def kept(held: list[torch.Tensor]) -> None:
    """Nothing happens to the tensor that the graph reads."""


def dropped(held: list[torch.Tensor]) -> None:
    held.clear()


def given_away(held: list[torch.Tensor]) -> None:
    held.clear()
    held.append(torch.zeros(SIZE, device="cuda"))  # it gets the memory


def cache_emptied(held: list[torch.Tensor]) -> None:
    held.clear()
    torch.cuda.empty_cache()


def three_plus_one(then: Callable[[list[torch.Tensor]], None]) -> str:
    """What a captured addition gives after `then`, or the first line of the error."""
    held = [torch.full((SIZE,), 3.0, device="cuda")]
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = held[0] + 1
    then(held)
    try:
        graph.replay()
        return f"3 + 1 = {result[0].item():g}"
    except RuntimeError as error:
        return f"{type(error).__name__}: {error}".splitlines()[0]


def main() -> dict:
    found = {}
    for then in (kept, dropped, given_away, cache_emptied):
        with ProcessPoolExecutor(1) as child:  # the last one breaks its CUDA
            said = found[then.__name__] = child.submit(three_plus_one, then).result()
        print(f"{then.__name__:<15}{shorten(said, 70, placeholder=' …')}")
    return {"found": found}


if __name__ == "__main__":
    main()
