# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [2, 4, 8]
# timeout = 180
# launcher = "torchrun"
# [tool.overlap.missing]
# 8 = "not recorded yet"
# ///
"""Switches of FSDP: what each does to the time of a step, and to the peak of memory."""

import time
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn.parallel import DistributedDataParallel

from snippets.pictures import Axis, Bars, Panel, Picture
from snippets.timing.take_turns import recorded, take_turns
from snippets.timing.wait_for import wait_for
from snippets.training.dp_vs_ddp import slowest_rank
from snippets.training.models import transformer
from snippets.training.waiting_ranks import meet

LAYERS, WIDTH, TOKENS = 12, 1536, 1024
FEW, MANY = 2, 8  # rows of so many tokens, for each GPU
CHECKED = (1, 128)  # rows for each GPU and their tokens, to compare losses
MAX_NORM = 0.5  # of the gradients, where they are clipped
BF16 = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
#: what is switched on, beside the default
FSDP = {
    "fsdp": {},
    "kept": {"reshard_after_forward": False},
    "groups_of_two": {"blocks": 2},
    "groups_of_four": {"blocks": 4},
    "prefetch": {"ahead": 2},
    "clipped": {},
    "bf16": {"mp_policy": BF16},
    "together": {"mp_policy": BF16, "blocks": 4, "reshard_after_forward": False},
}


def sharded(
    model: nn.Sequential,
    mesh: DeviceMesh,
    blocks: int = 1,
    ahead: int = 0,
    **options: Any,
) -> nn.Module:
    """Shard a model, so many of its blocks in a group, and gather a group at a time.

    `model` is a Sequential of blocks; of another model shard the blocks where they are.
    ahead: how many blocks each block asks for before it begins. The options are those
    of `fully_shard`; a `mp_policy` in bf16 that names no `reduce_dtype` also sums
    gradients in bf16.
    """
    layers = list(model)
    for start in range(0, len(layers), blocks):
        fully_shard(layers[start : start + blocks], mesh=mesh, **options)
    fully_shard(model, mesh=mesh, **options)
    for i, layer in enumerate(layers):
        if ahead > 0:
            layer.set_modules_to_forward_prefetch(layers[i + 1 : i + 1 + ahead])  # type: ignore
    return model


def step(
    model: nn.Module,
    rows: torch.Tensor,
    optimizer: torch.optim.Optimizer,
    clip: bool = False,
    autocast: bool = False,
) -> torch.Tensor:
    """One step of training on rows (batch, tokens, width); returns the loss of it."""
    optimizer.zero_grad()
    with torch.autocast(rows.device.type, torch.bfloat16, enabled=autocast):
        output = model(rows)
    loss = output.float().square().mean()
    loss.backward()
    if clip:
        nn.utils.clip_grad_norm_(model.parameters(), MAX_NORM)
    optimizer.step()
    return loss.detach()


def losses(model: nn.Module, rows: torch.Tensor, **how) -> list[float]:
    """Losses of four steps of SGD, which the scale of a gradient changes; not Adam."""
    sgd = torch.optim.SGD(model.parameters(), lr=0.01)
    return [step(model, rows, sgd, **how).item() for _ in range(4)]


def mean_over_ranks(numbers: list[float]) -> list[float]:
    """The mean over all ranks, number by number."""
    total = torch.tensor(numbers, dtype=torch.float64)
    dist.all_reduce(total)
    return (total / dist.get_world_size()).tolist()


def memory_gb(work, before: int) -> dict[str, float]:
    """Gigabytes of tensors here after a call of work, and at most in it.

    Without what was there before, in bytes. Both are 0 on a CPU.
    """
    for _ in range(2):
        work()
    wait_for()
    time.sleep(0.3)  # what collectives have used is given back some time later
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
    work()
    wait_for()
    state, peak = torch.cuda.memory_allocated(), torch.cuda.max_memory_allocated()
    return {"state": max(0, state - before) / 1e9, "peak": max(0, peak - before) / 1e9}


def new_model(device: torch.device) -> nn.Sequential:
    """The same transformer each time, on all ranks."""
    torch.manual_seed(0)
    with device:
        return transformer(LAYERS, WIDTH)


def main() -> dict:
    device, group = meet()
    rank, ranks = group.rank(), group.size()
    mesh = DeviceMesh.from_group(group, device.type)
    torch.manual_seed(1)  # all ranks know all rows
    checked = torch.randn(CHECKED[0] * ranks, CHECKED[1], WIDTH).to(device)
    reference, expected = {}, {}
    for name, clip in {"plain": False, "clipped": True}.items():
        model = new_model(device)
        parameters = sum(p.numel() for p in model.parameters())
        reference[name] = losses(model, checked, clip=clip)  # one GPU, all rows
    del model
    rows = torch.randn(MANY, TOKENS, WIDTH, device=device)
    few, many, differ, gb = {}, {}, {}, {}
    for name in ("ddp", "ddp_bf16", *FSDP):
        before, how = torch.cuda.memory_allocated(), {"clip": name == "clipped"}
        how["autocast"] = name == "ddp_bf16"
        model = new_model(device)
        if name in FSDP:
            model = sharded(model, mesh, **FSDP[name])
        else:
            model = DistributedDataParallel(
                model, process_group=group, gradient_as_bucket_view=True
            )
        torch.set_float32_matmul_precision("highest")
        found = mean_over_ranks(losses(model, checked.chunk(ranks)[rank], **how))
        expected = reference["clipped" if how["clip"] else "plain"]
        pairs = zip(found, expected, strict=True)
        differ[name] = max(abs(f - e) / e for f, e in pairs)
        torch.set_float32_matmul_precision("high")  # TF32
        adam = torch.optim.Adam(model.parameters(), lr=1e-5, fused=True)
        few[name] = partial(step, model, rows[:FEW], adam, **how)
        many[name] = partial(step, model, rows, adam, **how)
        gb[name] = memory_gb(many[name], before)
    result = {"ranks": ranks, "parameters": parameters, "layers": LAYERS, "gb": gb}
    result |= {"tokens": {"few": FEW * TOKENS, "many": MANY * TOKENS}}
    result |= {"losses": reference, "losses_differ_by": differ}
    for name, works in {"few": few, "many": many}.items():
        times = take_turns(works, warmup=1, trials=7, clock=slowest_rank)
        result[name] = recorded(times)
    if rank == 0:
        print(f"{'':<15} few tokens  many tokens   peak")
        for name in few:
            ms = [result[tokens]["ms"][name] for tokens in ("few", "many")]
            peak = gb[name]["peak"]
            print(f"{name:<15}{ms[0]:8.1f} ms {ms[1]:9.1f} ms {peak:6.1f} GB")
    dist.destroy_process_group()
    return result


TITLES = {
    "ddp": "DDP, TF32",
    "fsdp": "FSDP, TF32",
    "kept": "… keeps parameters after forward",
    "groups_of_two": "… two blocks a group",
    "groups_of_four": "… four blocks a group",
    "prefetch": "… asks two blocks ahead",
    "clipped": "… gradients clipped",
    "ddp_bf16": "DDP, bf16 autocast",
    "bf16": "FSDP, bf16",
    "together": "… four blocks a group, kept",
}


def derive(results: dict) -> dict:
    """How far losses in float32 differ, and those with clipped gradients."""
    bf16 = ("ddp_bf16", "bf16", "together")
    differ = results["losses_differ_by"].items()
    plain, clipped = (results["losses"][way][-1] for way in ("plain", "clipped"))
    return {
        "fp32_losses_differ_by": max(by for name, by in differ if name not in bf16),
        "clipped_differs_by": abs(plain - clipped) / plain,
    }


def plot(results: dict, ceilings: dict):
    titles = {  # as the page calls them
        "ddp_bf16": "DDP, autocast",
        "bf16": "FSDP: split()",
        "together": "group=4, keep=True",
    }
    panels = {
        "ms a step": results["many"]["ms"],
        "GB at the peak": {name: gb["peak"] for name, gb in results["gb"].items()},
    }
    drawn = []
    for title, values in panels.items():
        shown = {titles[name]: values[name] for name in titles}
        bars = Bars(shown, color="gpu")
        drawn.append(Panel([bars], Axis(title)))
    return Picture(drawn)


if __name__ == "__main__":
    main()
