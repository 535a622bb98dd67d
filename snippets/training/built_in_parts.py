# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [0, 2]
# timeout = 120
# launcher = "torchrun"
# ranks = 2
# take = ["built_in_parts"]
# ///
"""Build a model that does not fit: no rank holds more than its part, at any time."""

import ctypes
import gc
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard

from snippets.pictures import bars
from snippets.training.waiting_ranks import meet

LAYERS, WIDTH = 16, 2048


def built_in_parts(
    build: Callable[[], nn.Module],
    split: Callable[[nn.Module], nn.Module],
    device: torch.device,
) -> nn.Module:
    """A model of which this rank never has more than its part, in its first state.

    `build()` makes the whole model, here without memory. `split(model)` splits it, as
    with `fully_shard`. Then memory is taken for this rank's part, and each module fills
    its own parameters and buffers by its `reset_parameters`, as torch.nn's layers do.
    On the CPU each rank needs a seed of its own, or all draw the same part. Raises
    ValueError, before memory is taken, where a module has numbers of its own and no
    `reset_parameters`: they would be garbage.
    """
    with torch.device("meta"):
        model = build()
    fillers = []
    for name, module in model.named_modules():
        if not [*module.parameters(False), *module.buffers(False)]:
            continue
        if not hasattr(module, "reset_parameters"):
            what = f"{name or 'the model'}, a {type(module).__name__},"
            remedy = "give it one that fills all its parameters and buffers"
            raise ValueError(f"{what} has no reset_parameters; {remedy}")
        fillers.append(module)
    model = split(model)
    model.to_empty(device=device)
    for module in fillers:
        module.reset_parameters()
    return model


def mlp(layers: int, width: int) -> nn.Sequential:
    """Linear layers (width, width)."""
    return nn.Sequential(*[nn.Linear(width, width) for _ in range(layers)])


def split(model: nn.Module, mesh: DeviceMesh) -> nn.Module:
    """Keep on each rank a part of each layer."""
    for layer in model:
        fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


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
            return split(mlp(layers, width), mesh)

    def in_parts(layers: int, width: int) -> nn.Module:
        build = partial(mlp, layers, width)
        return built_in_parts(build, partial(split, mesh=mesh), device)

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
