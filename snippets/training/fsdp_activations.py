# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [2]
# timeout = 200
# launcher = "torchrun"
# ///
"""FSDP where activations fill the GPU: compute them twice, or state in the host's memory."""

import gc
import os
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    set_model_state_dict,
)
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import CPUOffloadPolicy
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts

from snippets.pictures import Axis, Bars, Panel, Picture
from snippets.timing.take_turns import recorded, take_turns
from snippets.training.built_in_parts import built_in_parts
from snippets.training.dp_vs_ddp import slowest_rank
from snippets.training.fsdp_options import (
    BF16,
    losses,
    mean_over_ranks,
    memory_gb,
    sharded,
    step,
)
from snippets.training.too_large_for_one import network
from snippets.training.waiting_ranks import meet

LAYERS, WIDTH = 4, 4096
ROWS, TOKENS = 8, 4096  # for each GPU
CHECKED = (1, 128)  # rows for each GPU and their tokens, to compare losses
STEPS, TRIALS = 2, 5  # between two waits; how often
MATMULS = [torch.ops.aten.mm.default, torch.ops.aten.addmm.default]
#: whether blocks are computed twice, and which of their results are kept
WAYS = {"kept": "no", "matmuls": "but matmuls", "twice": "all", "offload": "no"}


def keep_matmuls():
    """For `checkpoint`: results of matmuls are kept, all else is computed again."""
    return create_selective_checkpoint_contexts(MATMULS)  # type: ignore


class Recomputed(nn.Module):
    """A module whose activations are computed again in the backward pass.

    `contexts` says of which operators the results are kept; None: of none.
    """

    def __init__(self, module: nn.Module, contexts=None):
        super().__init__()
        self.module = module
        self.how: dict[str, Any] = {"use_reentrant": False}
        if contexts:
            self.how["context_fn"] = contexts

    def forward(self, x: Tensor) -> Tensor:
        return checkpoint(self.module, x, **self.how)


def blocks(way: str) -> nn.Sequential:
    """The network, its blocks wrapped if they are computed twice."""
    net = network(LAYERS, WIDTH)
    if WAYS[way] == "no":
        return net
    contexts = keep_matmuls if way == "matmuls" else None
    return nn.Sequential(*[Recomputed(block, contexts) for block in net])


def model_of(way: str, mesh: DeviceMesh, device: torch.device, **options) -> nn.Module:
    """The network in parts; with "offload" they and Adam's moments are on the host."""
    if way == "offload":
        device, options = torch.device("cpu"), options | {"offload_policy": offload()}
    split = partial(sharded, mesh=mesh, **options)
    return built_in_parts(partial(blocks, way), split, device)  # type: ignore


def offload() -> CPUOffloadPolicy:
    """Parameters and gradients on the host, in memory that the GPU can copy from."""
    return CPUOffloadPolicy(pin_memory=torch.cuda.is_available())


def checked_losses(way: str, mesh: DeviceMesh, device: torch.device) -> list[float]:
    """Losses in float32 of four steps, from the same parameters in all ways."""
    torch.manual_seed(0)
    with device:
        whole = network(LAYERS, WIDTH).state_dict()
    model = model_of(way, mesh, device)
    names = dict(zip(model.state_dict(), whole.values(), strict=True))
    set_model_state_dict(model, names, options=StateDictOptions(full_state_dict=True))
    torch.manual_seed(1 + dist.get_rank())
    rows = torch.randn(*CHECKED, WIDTH).to(device)
    return mean_over_ranks(losses(model, rows))


def main() -> dict:
    device, group = meet()
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // group.size()))  # Adam's, too
    mesh = DeviceMesh.from_group(group, device.type)
    torch.manual_seed(group.rank())
    rows = torch.randn(ROWS, TOKENS, WIDTH, device=device)
    works, loss, gb = {}, {}, {}
    for way in WAYS:
        loss[way] = checked_losses(way, mesh, device)
        gc.collect()
        before = torch.cuda.memory_allocated()
        model = model_of(way, mesh, device, mp_policy=BF16)
        adam = torch.optim.Adam(model.parameters(), lr=1e-5, fused=True)
        works[way] = partial(step, model, rows, adam)
        gb[way] = memory_gb(works[way], before)
    times = take_turns(works, warmup=1, trials=TRIALS, calls=STEPS, clock=slowest_rank)
    parameters = sum(p.numel() for p in model.parameters())
    result = {"ranks": group.size(), "parameters": parameters, "layers": LAYERS}
    result |= {"tokens": ROWS * TOKENS, "loss": loss, "gb": gb} | recorded(times)
    if group.rank() == 0:
        for way, each in gb.items():
            ms = result["ms"][way]
            print(f"{way:<8}{ms:8.0f} ms, {each['state']:5.1f} GB of state", end=", ")
            print(f"{each['peak']:5.1f} GB at the peak, last loss {loss[way][-1]:.6f}")
    del model, adam, works
    gc.collect()  # FSDP has cycles, and no model may outlive its process group
    dist.destroy_process_group()
    return result


TITLES = {
    "kept": "FSDP",
    "matmuls": "… computes all but\nmatmuls twice",
    "twice": "… computes blocks twice",
    "offload": "FSDP, state on the host",
}


def derive(results: dict) -> dict:
    """How far losses are from those with activations kept, as a share, at most."""
    off = []
    for way in results["loss"].values():
        for mine, kept in zip(way, results["loss"]["kept"], strict=True):
            off.append(abs(mine - kept) / kept)
    return {"losses_differ_by": max(off)}


def plot(results: dict, ceilings: dict):
    panels = []
    for unit in ("GB at the peak", "ms a step"):
        values = {}
        for way, text in TITLES.items():
            of_way = results["gb"][way]["peak"], results["ms"][way]
            values[text] = of_way[0] if unit.startswith("GB") else of_way[1]
        panels.append(Panel([Bars(values, color=1)], Axis(unit)))
    return Picture(panels)


if __name__ == "__main__":
    main()
