# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [0, 2]
# launcher = "torchrun"
# ranks = 2
# exclusive = false
# missing = { 0 = "not recorded yet" }
# timeout = 120
# ///
"""A model becomes `channels_last` before or after DDP wraps it: are its gradients right?"""

import warnings
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.nn  # imported later, by DDP, it keeps gloo's threads alive
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from snippets.training.ddp_equality import farthest, gradients, of_all_ranks
from snippets.training.ddp_minimal import join

STEPS, ROWS = 4, 8  # rows for each rank
#: when the memory format is chosen, and options of DDP
WAYS: dict[str, tuple[str, dict[str, Any]]] = {
    "before": ("before", {}),
    "after": ("after", {}),
    "before, view": ("before", {"gradient_as_bucket_view": True}),
    "after, view": ("after", {"gradient_as_bucket_view": True}),
    "before, search": ("before", {"find_unused_parameters": True}),
    "after, search": ("after", {"find_unused_parameters": True}),
    "after, search, view": (
        "after",
        {"find_unused_parameters": True, "gradient_as_bucket_view": True},
    ),
    "after, static": ("after", {"static_graph": True}),
}


def network() -> nn.Sequential:
    """Three convolutions; in the last, of 1 × 1, both formats are the same in memory."""
    torch.manual_seed(0)
    first, second = nn.Conv2d(3, 16, 3), nn.Conv2d(16, 16, 3)
    return nn.Sequential(first, nn.ReLU(), second, nn.ReLU(), nn.Conv2d(16, 4, 1))


def wrapped(model: nn.Module, when: str, **ddp: Any) -> nn.Module:
    """The model in DDP, `channels_last` from before it was wrapped, or since then."""
    if when == "before":
        model.to(memory_format=torch.channels_last)
    ddp_model = DistributedDataParallel(model, **ddp)
    model.to(memory_format=torch.channels_last)
    return ddp_model


def in_order(tensors: list[Tensor]) -> list[Tensor]:
    """The numbers of each tensor by size: are they the right ones, wherever they are?"""
    return [tensor.flatten().sort().values for tensor in tensors]


def looked_at(
    ddp: nn.Module, rows: Tensor, expected: list[Tensor]
) -> dict[str, list[Any]]:
    """For each step, how far gradients are off, and whether DDP warned of strides."""
    row: dict[str, list[Any]] = {
        "off": [],
        "off_in_order": [],
        "by_layer": [],
        "warned": [],
    }
    for _ in range(STEPS):
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            found = gradients(ddp, rows)
        off = farthest(found, expected)
        layers = [farthest([f], [e]) for f, e in zip(found, expected, strict=True)]
        row["off"].append(max(of_all_ranks(off, rows.device)))
        off = farthest(in_order(found), in_order(expected))
        row["off_in_order"].append(max(of_all_ranks(off, rows.device)))
        row["by_layer"].append(layers)
        row["warned"].append(any("Grad strides" in str(w.message) for w in told))
    return row


def main() -> dict:
    device = join()
    torch.set_warn_always(True)  # else this warning comes once in a process
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.deterministic = True
    ranks = dist.get_world_size()
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(ranks * ROWS, 3, 12, 12, generator=generator)
    rows = rows.to(device, memory_format=torch.channels_last)
    alone = network().to(device, memory_format=torch.channels_last)
    expected = gradients(alone, rows)  # one process, all rows
    names = [name for name, _ in alone.named_parameters()]
    mine, ways = rows.chunk(ranks)[dist.get_rank()], {}
    for way, (when, options) in WAYS.items():
        model = network().to(device)
        ddp = wrapped(model, when, **options)
        ways[way] = looked_at(ddp, mine, expected)
        del ddp  # it holds the group, whose end must not wait for main() to end
        if dist.get_rank() == 0:
            off = "".join(f"{share:10.1e}" for share in ways[way]["off"])
            warned = "warned" if any(ways[way]["warned"]) else "no warning"
            print(f"{way:20}{off}   {warned}")
    torch.set_warn_always(False)
    dist.destroy_process_group()
    return {"ranks": ranks, "ways": ways, "parameters": names}


def derive(results: dict) -> dict:
    """By way: how far its steps are off, which of them are wrong, and whether DDP warns."""
    ways = results["ways"]
    off = {way: row["off"] for way, row in ways.items()}
    warned = {way: any(row["warned"]) for way, row in ways.items()}
    wrong = {
        way: [step for step, share in enumerate(shares, 1) if share > 1e-3]
        for way, shares in off.items()
    }
    words = {way: " and ".join(map(str, steps)) for way, steps in wrong.items()}
    for way, steps in wrong.items():
        if not steps:
            words[way] = "none"
        if len(steps) == len(off[way]):
            words[way] = "all"
    return {
        "first": {way: shares[0] for way, shares in off.items()},
        "last": {way: shares[-1] for way, shares in off.items()},
        "numbers": {way: row["off_in_order"][0] for way, row in ways.items()},
        "warned": warned,
        "says": {way: "yes" if told else "no" for way, told in warned.items()},
        "wrong_steps": wrong,
        "steps": words,
    }


if __name__ == "__main__":
    main()
