# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [1]
# few = { h100-80gb-hbm3 = "one run so far" }
# ///
"""Fewer heads for keys and values than for queries: bytes of the cache, and time."""

from collections.abc import Callable
from functools import partial
from statistics import median

import torch
from torch import Tensor
from torch.nn import functional as F

from snippets.pictures import bars
from snippets.timing.kernel_time import gpu_clock
from snippets.timing.take_turns import recorded, take_turns

TEXTS, HEADS, PLACES, HEAD = 16, 32, 8192, 128
KEPT = (32, 8, 4, 1)  # heads of keys and values


def grouped(q: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """Attention of one token, in which heads of queries share keys and values.

    q is (texts, heads, 1, width), keys and values (texts, kept, places, width); `heads`
    is a multiple of `kept`. All queries of one kept head are rows of one matrix: keys
    and values are read once, and not repeated.
    """
    texts, heads, _, width = q.shape
    rows = q.view(texts, keys.shape[1], heads // keys.shape[1], width)
    scores = rows @ keys.transpose(2, 3) / width**0.5
    return (scores.softmax(-1) @ values).view(q.shape)


def repeated(q: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """The same with keys and values copied for each head."""
    times = q.shape[1] // keys.shape[1]
    keys, values = (x.repeat_interleave(times, 1) for x in (keys, values))
    return F.scaled_dot_product_attention(q, keys, values)


def pytorchs(q: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, keys, values, enable_gqa=True)


WAYS = {"grouped": grouped, "pytorchs": pytorchs, "repeated": repeated}


def tensors(kept: int, device: str) -> tuple[Tensor, Tensor, Tensor]:
    """Queries of one token for each text, and the cache."""
    torch.manual_seed(0)
    with torch.device(device):
        q = torch.randn(TEXTS, HEADS, 1, HEAD)
        keys, values = torch.randn(2, TEXTS, kept, PLACES, HEAD)
    return q.bfloat16(), keys.bfloat16(), values.bfloat16()


def differs_by(found: Tensor, exact: Tensor) -> float:
    """The norm of the difference over that of what is exact."""
    return float((found.float() - exact).norm() / exact.norm())


def main() -> dict:
    rows = []
    for kept in KEPT:
        given = tensors(kept, "cuda")
        few = [x[:1].float() for x in given]
        exact = repeated(*few)
        off, works = {}, {}
        for name, way in WAYS.items():
            off[name] = differs_by(way(*given)[:1], exact)
            assert off[name] < 0.02, f"{name} is off by {off[name]}"
            work: Callable[[], object] = partial(way, *given)
            works[name] = work
        turns = take_turns(works, 1, 7, 10, clock=gpu_clock)
        row = {"kept": kept, "cache_bytes": sum(x.nbytes for x in given[1:])}
        row |= recorded(turns, "us") | {"differs_by": off}
        row["gb_s"] = {}
        for name, timing in turns.items():
            row["gb_s"][name] = row["cache_bytes"] / median(timing.trials) / 1e9
        rows.append(row)
        times = (f"{name} {us:7.0f} µs" for name, us in row["us"].items())
        print(f"{kept:3} heads kept: {row['cache_bytes'] / 2**20:6,.0f} MiB,", *times)
    result = {"rows": rows, "heads": HEADS, "texts": TEXTS, "places": PLACES}
    return result | {"of_a_text_bytes": rows[0]["cache_bytes"] // TEXTS}


def plot(results: dict, ceilings: dict):
    words = {
        "grouped": "as rows of a matrix",
        "pytorchs": "enable_gqa=True",
        "repeated": "repeated first",
    }
    groups = {}
    for row in results["rows"]:
        name = f"{row['kept']} heads kept"
        groups[name] = {text: row["us"][way] for way, text in words.items()}
        if "hbm_gb_s" in ceilings:
            least = row["cache_bytes"] / ceilings["hbm_gb_s"] / 1e3
            groups[name]["to read it once"] = least
    picture = bars(groups, {}, "µs", log=True)
    if "hbm_gb_s" in ceilings:
        picture.panels[0].marks[-1].color = "ceiling"
    return picture


if __name__ == "__main__":
    main()
