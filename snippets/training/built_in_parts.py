# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [0, 2]
# timeout = 120
# launcher = "torchrun"
# ranks = 2
# take = ["built_in_parts", "sharded"]
# ///
"""Build a model that does not fit: no rank holds more than its part, at any time."""

import ctypes
import gc
import math
from collections.abc import Callable, Iterable
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor

from snippets.pictures import bars
from snippets.training.waiting_ranks import meet

LAYERS, WIDTH = 16, 2048


def unset(dtype: torch.dtype) -> float | None:
    """A number that stands where none was filled in; None where every one may be right."""
    if not dtype.is_signed or dtype.itemsize == 1:
        return None
    if dtype.is_floating_point or dtype.is_complex:
        return math.nan
    return torch.iinfo(dtype).min


def unfilled(part: Tensor) -> bool:
    """Whether a number of it is still the one that says so."""
    mark = unset(part.dtype)
    if mark is None or part.numel() == 0:
        return False
    if math.isnan(mark):
        return bool(part.sum().isnan())
    return bool(part.min() == mark)


def parts_of(model: nn.Module) -> list[tuple[str, Tensor]]:
    """This rank's parts of the model's parameters and buffers, with their names."""
    parts = []
    for name, whole in chain(model.named_parameters(), model.named_buffers()):
        part = whole.detach()
        parts.append((name, part.to_local() if isinstance(part, DTensor) else part))
    return parts


def built_in_parts(
    build: Callable[[], nn.Module],
    split: Callable[[nn.Module], nn.Module],
    device: torch.device | str,
    fill: Callable[[nn.Module], object] | None = None,
) -> nn.Module:
    """A model of which this rank never has more than its part, in its first state.

    `build()` makes the whole model, here without memory. `split(model)` splits it in
    place, as `fully_shard` does. Then memory is taken for this rank's part, and each
    module, after those in it, fills its own parameters and buffers: by `fill(module)`,
    or else by its `reset_parameters`, as torch.nn's layers do. Modules that share a
    parameter still do. On the CPU each rank needs a seed of its own, or all draw the
    same part. ValueError, before memory is taken, for a module with numbers of its own
    and no `reset_parameters`, unless you give `fill`; and at the end, if a parameter or
    buffer was not filled: it would be garbage. (Numbers of one byte are not checked.)
    """
    with torch.device("meta"):
        model = build()
    uses: dict[nn.Parameter, list[tuple[nn.Module, str]]] = {}
    for name, module in model.named_modules():
        for key, parameter in module.named_parameters(recurse=False):
            uses.setdefault(parameter, []).append((module, key))
        own = [*module.parameters(False), *module.buffers(False)]
        if own and fill is None and not hasattr(module, "reset_parameters"):
            what = f"{name or 'the model'}, a {type(module).__name__},"
            remedy = "give `fill`, or give it one that fills all its numbers"
            raise ValueError(f"{what} has no reset_parameters; {remedy}")
    modules = list(model.modules())
    model = split(model)
    model.to_empty(device=device)
    for (first, name), *others in uses.values():
        for module, key in others:  # `to_empty` parts what they share
            setattr(module, key, getattr(first, name))
    for _, part in parts_of(model):
        mark = unset(part.dtype)
        if mark is not None:
            part.fill_(mark)
    with torch.no_grad():
        for module in reversed(modules):
            reset = getattr(module, "reset_parameters", None)
            if fill is not None:
                fill(module)
            elif reset is not None:
                reset()
    for name, part in parts_of(model):
        if unfilled(part):
            raise ValueError(f"{name} has numbers that nobody filled in")
    return model


def sharded(
    model: nn.Module,
    mesh: DeviceMesh,
    blocks: Iterable[nn.Module] = (),
    group: int = 1,
    ahead: int = 0,
    **options: Any,
) -> nn.Module:
    """Split a model by FSDP, so many of its blocks in a group, which gathers at once.

    `blocks` are those of the model in the order in which they run; without any, its
    children, as of a Sequential; a child that has no `forward`, as a ModuleList, makes
    the forward pass fail: name the blocks in it. All other parameters are a group, too.
    ahead: how many groups each one asks for before its forward pass begins. The options
    are those of `fully_shard`; a `mp_policy` in bf16 that names no `reduce_dtype` also
    sums gradients in bf16. ValueError for a group of no blocks.
    """
    if group < 1 or ahead < 0:
        raise ValueError(f"{group} blocks in a group, {ahead} groups ahead")
    each = list(blocks or model.children())
    firsts: list[FSDPModule] = []
    for start in range(0, len(each), group):
        first, *_ = fully_shard(each[start : start + group], mesh=mesh, **options)
        firsts.append(first)
    for i, first in enumerate(firsts):
        if ahead:
            first.set_modules_to_forward_prefetch(firsts[i + 1 : i + 1 + ahead])
    fully_shard(model, mesh=mesh, **options)
    return model


def mlp(layers: int, width: int) -> nn.Sequential:
    """Linear layers (width, width)."""
    return nn.Sequential(*[nn.Linear(width, width) for _ in range(layers)])


def peak_gb(
    work: Callable[[], nn.Module], device: torch.device
) -> tuple[nn.Module, float]:
    """What `work` returns, and how far memory grew in it at most, in 10⁹ bytes.

    On the CPU that is the memory of this process (Linux, glibc).
    """
    gc.collect()
    if device.type == "cuda":
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        model = work()
        return model, (torch.cuda.max_memory_allocated() - before) / 1e9
    ctypes.CDLL(None).malloc_trim(0)  # what is free goes back to the system
    Path("/proc/self/clear_refs").write_text("5")  # the peak is counted from now on
    before = process_bytes("VmRSS")
    model = work()
    return model, (process_bytes("VmHWM") - before) / 1e9


def process_bytes(row: str) -> int:
    """VmRSS: bytes of this process that are in RAM; VmHWM: their peak (Linux)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    kib = next(line.split()[1] for line in lines if line.startswith(row))
    return 1024 * int(kib)


def of_all_ranks(number: float) -> list[float]:
    """This number of every rank, in the order of the ranks."""
    numbers = [0.0] * dist.get_world_size()
    dist.all_gather_object(numbers, number)
    return numbers


def first_number(model: nn.Module) -> float:
    """The first number of this rank's part of the first layer's weight."""
    return model[0].weight.detach().to_local()[0, 0].item()


def main() -> dict:
    device, group = meet()
    rank, ranks = group.rank(), group.size()
    mesh = DeviceMesh.from_group(group, device.type)

    def whole(layers: int, width: int) -> nn.Module:
        with device:
            return sharded(mlp(layers, width), mesh)

    def in_parts(layers: int, width: int) -> nn.Module:
        build = partial(mlp, layers, width)
        return built_in_parts(build, partial(sharded, mesh=mesh), device)

    peaks, spread, first_numbers = {}, {}, {}
    for name, way in {"whole": whole, "in_parts": in_parts}.items():
        torch.manual_seed(rank if name == "in_parts" and device.type == "cpu" else 0)
        way(2, 8)  # what is imported or made only once is not the model's
        model, gb = peak_gb(partial(way, LAYERS, WIDTH), device)
        peaks[name] = of_all_ranks(gb)
        weight = model[0].weight.detach()
        # uniform numbers between -b and b, b = 1 / sqrt(WIDTH), spread by b / sqrt(3)
        spread[name] = weight.full_tensor().std().item() * (3 * WIDTH) ** 0.5
        first_numbers[name] = of_all_ranks(first_number(model))
        model_gb = 4e-9 * sum(p.numel() for p in model.parameters())
        del model, weight
    torch.manual_seed(0)
    first_numbers["one_seed"] = of_all_ranks(first_number(in_parts(2, 8)))
    gc.collect()  # FSDP has cycles, and no model may outlive its process group
    if rank == 0:
        for name, each in peaks.items():
            shares = ", ".join(f"{gb / model_gb:.2f}" for gb in each)
            print(f"{name:<9} grows to {shares} of the model's size on {ranks} ranks")
    dist.destroy_process_group()
    result = {"ranks": ranks, "model_gb": model_gb, "peak_gb": peaks}
    return result | {"spread": spread, "first_numbers": first_numbers}


def derive(results: dict) -> dict:
    """The peaks: of a part in shares of a rank, of a whole model in models."""
    peak_gb, model_gb = results["peak_gb"], results["model_gb"]
    return {
        "part_of_share": max(peak_gb["in_parts"]) * results["ranks"] / model_gb,
        "whole_of_model": min(peak_gb["whole"]) / model_gb,
    }


def plot(results: dict, ceilings: dict):
    titles = {"whole": "built, then split", "in_parts": "split, then built"}
    groups = {}
    for name, text in titles.items():
        peaks = results["peak_gb"][name]
        shares = [gb / results["model_gb"] for gb in peaks]
        groups[text] = {f"rank {i}": share for i, share in enumerate(shares)}
    limit = {"the whole model": 1.0}
    return bars(groups, limit, "peak, as a multiple of the model")


if __name__ == "__main__":
    main()
