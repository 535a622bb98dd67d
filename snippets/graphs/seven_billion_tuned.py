# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [1]
# timeout = 600
# gpu_gib = 48
# ///
"""A token of the 7B decoder with joined weights and tuned products: how near the floor?"""

import os
from collections.abc import Callable, Sequence
from copy import copy
from functools import partial
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from snippets.graphs.decode_step import forced, on_gpu, pytorchs
from snippets.graphs.seven_billion import (
    FORCED,
    PLACES,
    STEPS,
    Block,
    Decoder,
    Decoding,
    apart,
    least_bytes,
    network,
    per_token,
    rotated,
)
from snippets.graphs.static_cache import generate
from snippets.pictures import Axis, Bars, Panel, Picture, limits
from snippets.timing.kernel_time import captured
from snippets.timing.take_turns import ratios, recorded, take_turns

#: Inductor writes products of one row itself, and tries more sizes of their blocks.
TUNED: dict[str, Any] = {"coordinate_descent_tuning": True}


class JoinedBlock(nn.Module):
    """A block whose layers that read the same rows have one weight."""

    def __init__(self, block: Block):
        super().__init__()
        self.heads = block.heads
        self.before_attention, self.before_mlp = (
            block.before_attention,
            block.before_mlp,
        )
        self.qkv = joined(block.q, block.k, block.v)
        self.gate_up = joined(block.gate, block.up)
        self.out, self.down = block.out, block.down

    def with_cache(self, x: Tensor, angles: Tensor, cache: Sequence[Tensor]) -> Tensor:
        """As `Block.with_cache`: a token of each text."""
        keys, values, place, mask = cache
        texts, tokens, width = x.shape
        rows = self.qkv(self.before_attention(x))
        q, k, v = (
            part.view(texts, tokens, self.heads, -1).transpose(1, 2)
            for part in rows.chunk(3, -1)
        )
        keys.index_copy_(2, place, rotated(k, angles))
        values.index_copy_(2, place, v)
        seen = pytorchs(rotated(q, angles), keys, values, mask)
        x = x + self.out(seen.transpose(1, 2).reshape(texts, tokens, width))
        gate, up = self.gate_up(self.before_mlp(x)).chunk(2, -1)
        return x + self.down(F.silu(gate) * up)


def joined(*layers: nn.Linear) -> nn.Linear:
    """One layer with the outputs of all, one behind the other."""
    weight = torch.cat([layer.weight for layer in layers])
    outputs, inputs = weight.shape
    layer = nn.Linear(inputs, outputs, bias=False, device="meta")
    layer.weight = nn.Parameter(weight)
    return layer


def compiled(decoding: Decoding, blocks: Any = None, options: Any = None) -> Decoding:
    """The same texts and cache with compiled blocks, perhaps others, and other options."""
    other = copy(decoding)
    blocks = decoding.net.blocks if blocks is None else blocks
    works = [block.with_cache for block in blocks]
    other.works = [torch.compile(work, options=options) for work in works]
    return other


def all_ways(net: Decoder) -> dict[str, tuple[Any, Callable[[], Tensor]]]:
    """A cache and its step, as one graph, in each way."""
    plain = Decoding(net, 1, PLACES, PLACES - STEPS)
    blocks = [JoinedBlock(block) for block in net.blocks]
    ways = {
        "graph": plain,
        "compiled": compiled(plain),
        "joined": compiled(plain, blocks),
        "tuned": compiled(plain, None, TUNED),
        "joined_tuned": compiled(plain, blocks, TUNED),
    }
    steps = {}
    for name, way in ways.items():
        torch._dynamo.reset()  # code compiled for another way must not be asked first
        steps[name] = way, captured(way.step)
    return steps


@torch.no_grad()
def main() -> dict:
    net = network("cuda")
    with TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = folder
        os.environ["TRITON_CACHE_DIR"] = os.path.join(folder, "triton")
        ways = all_ways(net)
    text = torch.randint(net.token.num_embeddings, (1, FORCED), device="cuda")
    expected = forced(*ways["graph"], text)
    row: dict = {"differs_by": {}, "gain": {}, "gain_trials": {}}
    for name, way in ways.items():
        row["differs_by"][name] = apart(forced(*way, text), expected)
    works = {name: partial(generate, *way, STEPS + 1) for name, way in ways.items()}
    turns = take_turns(works, warmup=1, trials=9, clock=per_token)
    row |= recorded(turns, "us")
    for name in ways:
        faster = ratios(turns["graph"], turns[name])
        row["gain"][name], row["gain_trials"][name] = median(faster), faster
    row["bytes"] = least_bytes(net, 1, PLACES - STEPS // 2)
    # last, since launches are slower after a profile
    row["gpu"] = {name: on_gpu(*way) for name, way in ways.items()}
    for name, us in row["us"].items():
        print(f"{name:13}{us:7,.0f} µs a token,", end=" ")
        print(f"scores differ by {row['differs_by'][name]:.3f}")
    return row | {"peak_gib": torch.cuda.max_memory_allocated() / 2**30}


def derive(results: dict) -> dict:
    """GB/s of weights and cache, in each way."""
    bytes_ = sum(results["bytes"].values())
    return {"gb_s": {way: bytes_ / us / 1e3 for way, us in results["us"].items()}}


def plot(results: dict, ceilings: dict):
    names = {"graph": "one graph", "compiled": "compiled", "joined": "joined weights"}
    names |= {"tuned": "tuned matmuls", "joined_tuned": "both"}
    ms = {label: results["us"][way] / 1e3 for way, label in names.items()}
    limit = {}
    if "hbm_gb_s" in ceilings:
        least = sum(results["bytes"].values()) / ceilings["hbm_gb_s"] / 1e6
        limit = {"at the memory's bandwidth": least}
    marks = [Bars(ms, "one sequence"), *limits(limit)]
    return Picture([Panel(marks, Axis("ms per token"))])


if __name__ == "__main__":
    main()
