# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [1]
# timeout = 600
# gpu_gib = 48
# ///
"""A token of the 7B decoder with weights in eight bits: int8 and FP8."""

import os
from collections.abc import Callable
from functools import partial
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from snippets.graphs.decode_eight_bits import E4M3, by_fp8
from snippets.graphs.decode_step import forced, on_gpu
from snippets.graphs.seven_billion import (
    FORCED,
    PLACES,
    STEPS,
    WIDTH,
    Decoding,
    least_bytes,
    network,
    per_token,
)
from snippets.graphs.seven_billion_tuned import TUNED, JoinedBlock, compiled
from snippets.graphs.static_cache import generate
from snippets.pictures import Axis, Bars, Panel, Picture, limits
from snippets.timing.kernel_time import captured
from snippets.timing.take_turns import ratios, recorded, take_turns

#: Of one layer, by the bits that are left: 8 and their scales, or 3 behind the point.
LAYER_ERRORS = {"bf16": 0.0, "int8": 0.02, "fp8": 0.06}


class InInt8(nn.Module):
    """A linear layer without bias whose weight is in int8, with a scale for each output.

    Compiled for one row, its matmul reads the weight as it is. In eager mode it would
    write all of the weight in the type of `x` first.
    """

    def __init__(self, layer: nn.Linear):
        super().__init__()
        weight = layer.weight.detach()
        scale = (weight.abs().amax(1, keepdim=True).float() / 127).clamp(min=1e-12)
        self.register_buffer("weight", (weight / scale).round().to(torch.int8))
        self.register_buffer("scale", scale[:, 0].to(weight.dtype))

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight.to(x.dtype)) * self.scale


class InFP8(nn.Module):
    """A linear layer without bias in FP8: one scale for the weight, and one for the rows."""

    def __init__(self, layer: nn.Linear):
        super().__init__()
        weight = layer.weight.detach()
        largest = weight.abs().amax().float()
        scale = (largest / torch.finfo(E4M3).max).clamp(min=1e-12)
        self.register_buffer("weight", (weight / scale).to(E4M3))
        self.register_buffer("scale", scale)

    def forward(self, x: Tensor) -> Tensor:
        rows = by_fp8(x.flatten(0, 1), self.weight, self.scale)
        return rows.unflatten(0, x.shape[:2])


def lowered(block: JoinedBlock, kind: Callable[[nn.Linear], nn.Module]) -> JoinedBlock:
    """The block with all four weights in eight bits."""
    for name in ("qkv", "gate_up", "out", "down"):
        setattr(block, name, kind(getattr(block, name)))
    return block


def checked(layer: nn.Module, low: nn.Module, most: float) -> None:
    """AssertionError if a layer's outputs differ by more than so much of their length."""
    x = layer.get_parameter("weight")[:1, :WIDTH]
    expected = layer(x[None])
    error = (low(x[None]) - expected).norm() / expected.norm()
    torch.testing.assert_close(error.item(), 0.0, rtol=0, atol=most)


def held_bytes(net: nn.Module, blocks: Any) -> int:
    """Bytes of the weights and scales that a token reads: of blocks, and the last layer."""
    parts = [net.get_submodule("scores"), net.get_submodule("norm"), *blocks]
    tensors = [t for part in parts for t in [*part.parameters(), *part.buffers()]]
    return sum(t.numel() * t.element_size() for t in tensors)


@torch.no_grad()
def main() -> dict:
    net = network("cuda")
    plain = Decoding(net, 1, PLACES, PLACES - STEPS)
    blocks = {"bf16": [JoinedBlock(block) for block in net.blocks]}
    blocks["int8"] = [lowered(JoinedBlock(block), InInt8) for block in net.blocks]
    blocks["fp8"] = [lowered(JoinedBlock(block), InFP8) for block in net.blocks]
    ways: dict[str, tuple[Any, Callable[[], Tensor]]] = {}
    with TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = folder
        os.environ["TRITON_CACHE_DIR"] = os.path.join(folder, "triton")
        for name, parts in blocks.items():
            torch._dynamo.reset()  # code of the other weights must not be asked first
            cache = compiled(plain, parts, TUNED)
            ways[name] = cache, captured(cache.step)
    text = torch.randint(net.token.num_embeddings, (1, FORCED), device="cuda")
    whole: Any = plain
    expected = forced(whole, captured(plain.step), text).float()
    row: dict = {"differs_by": {}, "gain": {}, "gain_trials": {}, "bytes": {}}
    cache_bytes = least_bytes(net, 1, PLACES - STEPS // 2)["cache"]
    for name, way in ways.items():
        checked(blocks["bf16"][0].qkv, blocks[name][0].qkv, LAYER_ERRORS[name])
        scores = forced(*way, text).float()
        off = (scores - expected).norm(dim=-1) / expected.norm(dim=-1)
        row["differs_by"][name] = float(off.max())
        row["bytes"][name] = held_bytes(net, blocks[name]) + cache_bytes
    works = {name: partial(generate, *way, STEPS + 1) for name, way in ways.items()}
    turns = take_turns(works, warmup=1, trials=9, clock=per_token)
    row |= recorded(turns, "us")
    for name in ways:
        faster = ratios(turns["bf16"], turns[name])
        row["gain"][name], row["gain_trials"][name] = median(faster), faster
    # last, since launches are slower after a profile
    row["gpu"] = {name: on_gpu(*way) for name, way in ways.items()}
    for name, us in row["us"].items():
        print(
            f"{name}: {us:,.0f} µs a token, reads {row['bytes'][name] / 1e9:.2f} GB,",
            end=" ",
        )
        print(f"scores differ by {row['differs_by'][name]:.3f}")
    return row


def derive(results: dict) -> dict:
    """GB/s of weights and cache, by the type of the weights."""
    us = results["us"]
    return {"gb_s": {name: results["bytes"][name] / us[name] / 1e3 for name in us}}


def plot(results: dict, ceilings: dict):
    names = {"bf16": "bf16", "fp8": "FP8", "int8": "int8"}
    ms = {label: results["us"][name] / 1e3 for name, label in names.items()}
    limit = {}
    if "hbm_gb_s" in ceilings:
        rate = ceilings["hbm_gb_s"] * 1e6
        for label, name in {"bf16": "bf16", "eight bits": "int8"}.items():
            limit[f"{label}, read at full bandwidth"] = results["bytes"][name] / rate
    marks = [Bars(ms, "one sequence"), *limits(limit)]
    return Picture([Panel(marks, Axis("ms per token"))])


if __name__ == "__main__":
    main()
