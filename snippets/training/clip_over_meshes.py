# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [0]
# exclusive = false
# timeout = 120
# launcher = "torchrun"
# ranks = 4
# take = ["clip_over_meshes"]
# take_on_cpu = ["clip_over_meshes"]
# ///
"""Clip gradients by one norm: over tensor parallel and FSDP, and over a pipeline."""

from collections.abc import Iterable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)
from torch.nn.utils import clip_grad_norm_, clip_grads_with_norm_, get_total_norm

WIDTH, ROWS, SHARE = 16, 8, 0.5  # SHARE of the norm stays


def clip_over_meshes(
    parameters: Iterable[Tensor],
    max_norm: float,
    stages: dist.ProcessGroup | None = None,
) -> Tensor:
    """As `clip_grad_norm_`, if parts lie on different meshes; the norm of all gradients.

    All ranks call it. `stages` is the group of this rank's stages of a pipeline, which
    share no parameter. Parameters without a gradient are left out. On each rank one
    parameter at least has a gradient; for a pipeline with a frozen stage, the page has
    `clip_stages`.
    """
    by_mesh: dict[Any, list[Tensor]] = {}
    for parameter in parameters:
        if parameter.grad is not None:
            mesh = getattr(parameter.grad, "device_mesh", None)
            by_mesh.setdefault(mesh, []).append(parameter)
    norms = []
    for some in by_mesh.values():
        norm = get_total_norm([p.grad for p in some if p.grad is not None])
        norms.append(norm.full_tensor() if isinstance(norm, DTensor) else norm)
    total = torch.stack(norms).norm()
    if stages is not None:
        squares = total.square()
        dist.all_reduce(squares, group=stages)
        total = squares.sqrt()
    for some in by_mesh.values():
        clip_grads_with_norm_(some, max_norm, total)
    return total


class Block(nn.Module):
    """Two matmuls that tensor parallel splits, and a LayerNorm that it leaves whole."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(self.up(self.norm(x)).relu())


def new_model() -> nn.Sequential:
    """The same two blocks on all ranks."""
    torch.manual_seed(0)
    return nn.Sequential(Block(), Block())


def farthest(model: nn.Module, expected: nn.Module) -> float:
    """How far gradients are from those expected, relative to the largest of them."""
    off, pairs = 0.0, zip(model.parameters(), expected.parameters(), strict=True)
    for mine, other in pairs:
        grad = mine.grad.full_tensor() if isinstance(mine.grad, DTensor) else mine.grad
        apart = (grad - other.grad).abs().max() / other.grad.abs().max()
        off = max(off, float(apart))
    return off


def main() -> dict:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(1)
    rows = torch.randn(ROWS, WIDTH)
    whole = new_model()
    whole(rows).square().mean().backward()
    norm = float(get_total_norm([p.grad for p in whole.parameters()]))
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "tensor"))
    model = new_model()
    for block in model:
        plan = {"up": ColwiseParallel(), "down": RowwiseParallel()}
        fully_shard(parallelize_module(block, mesh["tensor"], plan), mesh=mesh["data"])
    fully_shard(model, mesh=mesh["data"])
    model(rows.chunk(2)[mesh["data"].get_local_rank()]).square().mean().backward()
    says = ""
    try:
        clip_grad_norm_(model.parameters(), SHARE * norm)
    except RuntimeError as error:
        says = str(error).partition(", but got")[0]
    found = {"two_meshes": float(clip_over_meshes(model.parameters(), SHARE * norm))}
    # a pipeline of two stages, twice: each rank has the gradients of its own block
    each = new_model()
    each(rows).square().mean().backward()
    stage = each[rank % 2]
    own = float(get_total_norm([p.grad for p in stage.parameters()]))
    groups = [dist.new_group([first, first + 1]) for first in (0, 2)]
    pipeline = clip_over_meshes(stage.parameters(), SHARE * norm, groups[rank // 2])
    found["pipeline"] = float(pipeline)
    clip_grad_norm_(whole.parameters(), SHARE * norm)
    off = {"two_meshes": farthest(model, whole)}
    off["pipeline"] = farthest(stage, whole[rank % 2])
    stages: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(stages, own)
    if rank == 0:
        print(f"one device {norm:.4f}; clip_grad_norm_: {says!r}")
        for name, value in found.items():
            print(f"{name:<11}{value:.4f}, gradients off by {off[name]:.1e}")
        print("the stages' own norms:", *(f"{each:.4f}" for each in stages[:2]))
    dist.destroy_process_group()
    result = {"norm": norm, "norms": found, "off": off, "says": says}
    return result | {"own_norms": stages[:2]}


if __name__ == "__main__":
    main()
