# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [0]
# exclusive = false
# take = ["distinct"]
# ///
"""Do all calls give the same bits? Of any results: buffers, pairs, NaNs, both zeros."""

import hashlib
import itertools
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

CALLS = 6


def bits(result: object) -> bytes:
    """A digest of the kinds, shapes and bits of all tensors and numbers in a result."""
    digest = hashlib.sha256()
    for leaf in tree_leaves(result):
        if isinstance(leaf, Tensor):
            dense = leaf.detach().resolve_conj().resolve_neg().cpu()
            dense = dense.clone(memory_format=torch.contiguous_format).reshape(-1)
            kind = f"{leaf.dtype} {tuple(leaf.shape)}"
            content = dense.view(torch.uint8).numpy().tobytes()
        elif isinstance(leaf, (np.ndarray, np.generic)) and not leaf.dtype.hasobject:
            kind, content = f"{leaf.dtype} {leaf.shape}", leaf.tobytes()
        elif isinstance(leaf, (bool, int, float, complex, str, bytes, type(None))):
            kind, content = type(leaf).__name__, repr(leaf).encode()
        else:
            raise TypeError(f"a {type(leaf).__name__} has no bits to compare")
        digest.update(f"{kind} {len(content)} ".encode() + content)
    return digest.digest()


def distinct(work: Callable[[], object], calls: int = 20) -> int:
    """How many results, different in a bit, `work()` gives in so many calls.

    A result is a dense tensor on any device, an array, a number, a text, or tuples,
    lists and dicts of these. It is read when its call returns: so a buffer that each
    call overwrites, as that of a CUDA graph, is no trap, and no result is kept. All
    of it goes through the CPU's memory. 0.0 and -0.0 are two results, and NaNs are one
    if their bits are the same. Other dtypes, shapes and numbers of tensors differ, too;
    keys of dicts are not looked at. With 0 calls there are 0.

    `work` starts each time from the same state: random numbers, weights and buffers
    that it changes give other results, and so do inputs. TypeError for what has no
    bits, such as your own objects; sparse and split tensors raise what PyTorch raises:
    give `.to_dense()` or `.full_tensor()`. What `work` raises goes through.
    """
    return len({bits(work()) for _ in range(calls)})


def main() -> dict:
    count, buffer, nan = itertools.count(), torch.zeros(3), float("nan")

    def overwrites() -> Tensor:
        return buffer.fill_(next(count) % 3)

    works: dict[str, Callable[[], object]] = {
        "a constant": lambda: torch.ones(3),
        "NaN": lambda: torch.full((3,), nan),
        "0.0 and -0.0": lambda: torch.zeros(3) * (-1) ** next(count),
        "three in one buffer": overwrites,
        "a pair, one of two": lambda: (torch.ones(3), next(count) % 2),
    }
    counts = {name: distinct(work, CALLS) for name, work in works.items()}
    for name, number in counts.items():
        print(f"{name:20}{number} of {CALLS} calls differ")
    return {"counts": counts, "calls": CALLS}


if __name__ == "__main__":
    main()
