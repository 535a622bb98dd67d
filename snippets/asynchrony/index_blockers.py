# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [1]
# ///
"""Which sizes and indices wait for the GPU, and which other form does not?"""

from collections.abc import Callable
from operator import setitem

import torch
from torch import repeat_interleave

from snippets.asynchrony.waits import report


def index_lines() -> dict[str, Callable[[], object]]:
    """Lines by their text; `v` and `w` are 1,024 numbers, `k` is 3, `n` is all 2."""
    v, w = torch.rand(2, 1024, device="cuda")
    mask, k = v > 0.5, torch.tensor(3, device="cuda")
    n = torch.full((1024,), 2, device="cuda")
    return {
        "torch.nonzero(v)": lambda: torch.nonzero(v),
        "torch.unique(v)": lambda: torch.unique(v),
        "v[mask]": lambda: v[mask],
        "torch.where(mask, v, w)": lambda: torch.where(mask, v, w),
        "v[mask] = 1.0": lambda: setitem(v, mask, 1.0),
        "repeat_interleave(v, n)": lambda: repeat_interleave(v, n),
        "repeat_interleave(v, n, output_size=2048)": lambda: repeat_interleave(
            v, n, output_size=2048
        ),
        "v[k]": lambda: v[k],
        "v.index_select(0, k)": lambda: v.index_select(0, k),
        "v[0] = 1.0": lambda: setitem(v, 0, 1.0),
        "v[:1] = 1.0": lambda: setitem(v, slice(1), 1.0),
    }


def main() -> dict:
    return report(index_lines())


def derive(results: dict) -> dict:
    """The lines that do not wait as these do, or do not return at once as those do."""
    waiting = {
        "torch.nonzero(v)",
        "torch.unique(v)",
        "v[mask]",
        "repeat_interleave(v, n)",
        "v[k]",
        "v[0] = 1.0",
    }
    returning = {
        "torch.where(mask, v, w)",
        "v[mask] = 1.0",
        "repeat_interleave(v, n, output_size=2048)",
        "v.index_select(0, k)",
        "v[:1] = 1.0",
    }
    others = waiting.symmetric_difference(results["waits"])
    others |= returning.symmetric_difference(results["returns"])
    return {"otherwise": sorted(others)}


if __name__ == "__main__":
    main()
