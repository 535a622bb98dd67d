# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [2, 4, 8]
# timeout = 120
# launcher = "torchrun"
# [tool.overlap.missing]
# 8 = "not recorded yet"
# ///
"""Tensor parallel with and without sequence parallel: memory of activations, and time."""

from functools import partial
from statistics import median

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

from snippets.pictures import bars
from snippets.timing.take_turns import ratios, recorded, take_turns
from snippets.timing.wait_for import wait_for
from snippets.training.ddp_equality import farthest, of_all_ranks
from snippets.training.dp_vs_ddp import slowest_rank
from snippets.training.waiting_ranks import meet

BLOCKS, WIDTH, HIDDEN = 4, 4096, 16384
BATCH, TOKENS = 4, 2048  # the ranks divide the tokens
CHECKED = (2, 64)  # the same, where gradients are compared
#: PyTorch 2.13 and later have new names
all_gather = getattr(dist, "all_gather_single", dist.all_gather_into_tensor)
reduce_scatter = getattr(dist, "reduce_scatter_single", dist.reduce_scatter_tensor)


class Block(nn.Module):
    """What stands beside attention in a transformer: LayerNorm and two matmuls."""

    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.wide = nn.Linear(WIDTH, HIDDEN, bias=False)
        self.narrow = nn.Linear(HIDDEN, WIDTH, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = nn.functional.gelu(self.wide(self.norm(x)))
        return x + self.narrow(hidden)


def split(model: nn.Sequential, mesh: DeviceMesh, by_sequence: bool) -> nn.Sequential:
    """Split the matmuls of each block over the ranks; and what lies between them.

    by_sequence: a rank has its share of tokens there, not all. It is given its share,
    and gives it.
    """
    if by_sequence:
        plan = {
            "norm": SequenceParallel(),
            "wide": ColwiseParallel(input_layouts=Shard(1)),
            "narrow": RowwiseParallel(output_layouts=Shard(1)),
        }
    else:
        plan = {"wide": ColwiseParallel(), "narrow": RowwiseParallel()}
    for block in model:
        parallelize_module(block, mesh, plan)
    return model


def passes(model: nn.Module, x: torch.Tensor, numbers: int) -> list[torch.Tensor]:
    """Gradients of x and of the weights; numbers: how many outputs all ranks have."""
    model.zero_grad()
    x.grad = None
    (model(x).square().sum() / numbers).backward()
    return [x.grad, *(parameter.grad for parameter in model.parameters())]


def held_gb(model: nn.Module, x: torch.Tensor) -> dict[str, float]:
    """Gigabytes that a forward pass keeps for backward, and the peak of both passes.

    Above parameters, gradients and x. Both are 0 on a CPU.
    """
    for _ in range(2):
        passes(model, x, x.numel())
    model.zero_grad(set_to_none=False)
    x.grad.zero_()
    wait_for()
    before = torch.cuda.memory_allocated()
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
    output = model(x)
    wait_for()
    kept = torch.cuda.memory_allocated() - before - output.nbytes
    output.square().sum().backward()
    wait_for()
    peak = torch.cuda.max_memory_allocated() - before
    return {"kept": max(0, kept) / 1e9, "peak": max(0, peak) / 1e9}


def new_model(device: torch.device) -> nn.Sequential:
    """The same blocks each time, on all ranks."""
    torch.manual_seed(0)
    with device:
        return nn.Sequential(*(Block() for _ in range(BLOCKS)))


def whole(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor that may be cut into parts, whole; all ranks call it together."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def exchanges(x: torch.Tensor, group: dist.ProcessGroup) -> dict:
    """What the blocks exchange in a step, alone: two all-reduces of x in each block.

    Or, by sequence, an all-gather and a reduce-scatter, forward, and the same backward.
    """
    flat = x.detach().clone().flatten()
    part = flat.chunk(group.size())[group.rank()].clone()

    def all_reduces() -> None:
        for _ in range(2 * BLOCKS):
            dist.all_reduce(flat, group=group)

    def gathers_and_scatters() -> None:
        for _ in range(2 * BLOCKS):
            all_gather(flat, part, group=group)
            reduce_scatter(part, flat, group=group)

    return {"all_reduces": all_reduces, "gathers_and_scatters": gathers_and_scatters}


def main() -> dict:
    device, group = meet()
    rank, ranks = group.rank(), group.size()
    mesh = DeviceMesh.from_group(group, device.type)
    one, checked = new_model(device), {}
    with device:
        x = torch.randn(*CHECKED, WIDTH).requires_grad_()
    dist.broadcast(x.detach(), 0, group=group)
    expected, error = passes(one, x, x.numel()), {}
    torch.manual_seed(1)
    with device:
        rows = torch.randn(BATCH, TOKENS, WIDTH)
    mine = rows.chunk(ranks, 1)[rank].contiguous().requires_grad_()
    rows.requires_grad_()
    models = {"tensor": split(new_model(device), mesh, False)}
    models["sequence"] = split(new_model(device), mesh, True)
    inputs = {"tensor": rows, "sequence": mine}
    for name, model in models.items():
        part = x.detach()
        if name == "sequence":
            part = part.chunk(ranks, 1)[rank]
        part = part.clone().requires_grad_()
        found = [whole(each) for each in passes(model, part, x.numel())]
        right = list(expected)
        if name == "sequence":
            right[0] = right[0].chunk(ranks, 1)[rank]
        checked[name] = farthest(found, right)
        error[name] = of_all_ranks(checked[name], torch.device("cpu"))
    torch.set_float32_matmul_precision("high")  # TF32
    gb = {name: held_gb(model, inputs[name]) for name, model in models.items()}
    gb["one_gpu"] = held_gb(one, rows)
    works = {}
    for name, model in models.items():
        works[name] = partial(passes, model, inputs[name], rows.numel())
    works["one_gpu"] = lambda: None
    if rank == 0:
        works["one_gpu"] = partial(passes, one, rows, rows.numel())
    works |= exchanges(rows, group)
    times = take_turns(works, trials=11, clock=slowest_rank)
    result = recorded(times) | {"ranks": ranks, "error": error, "gb": gb}
    result |= {"blocks": BLOCKS, "rows_gb": rows.nbytes / 1e9}
    result["hidden_gb"] = result["rows_gb"] * HIDDEN / WIDTH
    for name in models:
        each = ratios(times["one_gpu"], times[name])
        result |= {f"{name}_speedup": median(each), f"{name}_speedup_trials": each}
    if rank == 0:
        for name, ms in result["ms"].items():
            kept = f", keeps {gb[name]['kept']:.2f} GB" if name in gb else ""
            print(f"{name:<21}{ms:8.1f} ms{kept}")
    dist.destroy_process_group()
    return result


def derive(results: dict) -> dict:
    """How far kept memory is from the rows that the blocks gather; times beside."""
    ranks, blocks, ms = results["ranks"], results["blocks"], results["ms"]
    rows = {
        "tensor": blocks * (2 + 8 / ranks) - 1,
        "sequence": blocks * (1 + 9 / ranks) - 1 / ranks,
    }
    off = {}
    for way, count in rows.items():
        off[way] = abs(1 - count * results["rows_gb"] / results["gb"][way]["kept"])
    return {"kept_off": off, "sequence_takes": ms["sequence"] / ms["tensor"]}


def plot(results: dict, ceilings: dict):
    titles = {"one_gpu": "one GPU", "tensor": "tensor parallel"}
    titles["sequence"] = "tensor and sequence parallel"
    shown = {}
    for name, title in titles.items():
        gb = results["gb"][name]
        shown[title] = {"kept for backward": gb["kept"], "peak of the step": gb["peak"]}
    return bars(shown, {}, "GB on each GPU")


if __name__ == "__main__":
    main()
