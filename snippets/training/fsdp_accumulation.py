# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [2]
# timeout = 200
# launcher = "torchrun"
# ///
"""FSDP and gradient accumulation: exchange gradients in each part, or in the last."""

import gc
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh

from snippets.pictures import Axis, Bars, Panel, Picture
from snippets.timing.take_turns import recorded, take_turns
from snippets.training.dp_vs_ddp import slowest_rank
from snippets.training.fsdp_options import BF16, memory_gb, sharded
from snippets.training.too_large_for_one import network
from snippets.training.waiting_ranks import meet

LAYERS, WIDTH, PARTS = 8, 2048, 8
ROWS, TOKENS = 1, 1024  # of a part, on each GPU
CHECKED = (1, 64)
STEPS, TRIALS = 3, 7
#: whether gradients are exchanged in every part, and parameters freed after it
WAYS = {"every": (True, True), "last": (False, True), "last_kept": (False, False)}


def accumulated(model: Any, parts: list[Tensor], every: bool, free: bool) -> Tensor:
    """The mean loss of the parts of a batch; the model is split by `fully_shard`.

    The loss is a mean of squares, over parts with equally many rows, of which there is
    one at least: to train, put your own mean in that line.

    every: each part's gradients are exchanged, not only the sum of them at the end;
    free: parameters are split again after each part's backward pass.
    """
    total = torch.zeros((), device=parts[0].device)
    for i, rows in enumerate(parts):
        last = i == len(parts) - 1
        model.set_requires_gradient_sync(every or last)
        model.set_reshard_after_backward(free or last)
        model.set_is_last_backward(every or last)
        loss = model(rows).float().square().mean() / len(parts)
        loss.backward()
        total += loss.detach()
    return total


def train(model: nn.Module, parts: list[Tensor], optimizer, how) -> Tensor:
    """One update from all parts; their mean loss."""
    optimizer.zero_grad()
    loss = accumulated(model, parts, *how)
    optimizer.step()
    return loss


def new_model(mesh: DeviceMesh, device: torch.device, **options) -> nn.Module:
    torch.manual_seed(0)
    with device:
        whole = network(LAYERS, WIDTH)
    return sharded(whole, mesh, **options)


def main() -> dict:
    device, group = meet()
    mesh = DeviceMesh.from_group(group, device.type)
    torch.manual_seed(1 + group.rank())
    checked = list(torch.randn(PARTS, *CHECKED, WIDTH, device=device))
    rows = list(torch.randn(PARTS, ROWS, TOKENS, WIDTH, device=device))
    works, loss, gb = {}, {}, {}
    for name, how in WAYS.items():
        model = new_model(mesh, device)
        sgd = torch.optim.SGD(model.parameters(), lr=0.1)
        loss[name] = [train(model, checked, sgd, how).item() for _ in range(4)]
        del model, sgd
        gc.collect()
        before = torch.cuda.memory_allocated()
        model = new_model(mesh, device, mp_policy=BF16)
        adam = torch.optim.Adam(model.parameters(), lr=1e-5, fused=True)
        works[name] = partial(train, model, rows, adam, how)
        gb[name] = memory_gb(works[name], before)
    times = take_turns(works, warmup=1, trials=TRIALS, calls=STEPS, clock=slowest_rank)
    result = {"ranks": group.size(), "loss": loss, "gb": gb, "parts": PARTS}
    result |= {"parameters": sum(p.numel() for p in model.parameters())}
    result |= recorded(times)
    if group.rank() == 0:
        for name, each in gb.items():
            ms, last = result["ms"][name], loss[name][-1]
            print(f"{name:<10}{ms:8.1f} ms {each['peak']:6.2f} GB, loss {last:.6f}")
    del model, adam, works
    gc.collect()  # FSDP has cycles, and no model may outlive its process group
    dist.destroy_process_group()
    return result


def derive(results: dict) -> dict:
    """GB of whole gradients beyond a rank's share; how far losses differ, as a share."""
    loss, off = results["loss"], []
    for way in loss.values():
        pairs = zip(way, loss["every"], strict=True)
        off += [abs(mine - every) / every for mine, every in pairs]
    added = 4e-9 * results["parameters"] * (1 - 1 / results["ranks"])
    return {"added_gb": added, "losses_differ_by": max(off)}


TITLES = {
    "every": "gradients in every part",
    "last": "… in the last part only",
    "last_kept": "… and parameters kept",
}


def plot(results: dict, ceilings: dict):
    ms = {text: results["ms"][name] for name, text in TITLES.items()}
    gb = {text: results["gb"][name]["peak"] for name, text in TITLES.items()}
    panels = [Panel([Bars(gb, color=1)], Axis("GB at the peak"))]
    return Picture([*panels, Panel([Bars(ms, color=1)], Axis("ms a step"))])


if __name__ == "__main__":
    main()
