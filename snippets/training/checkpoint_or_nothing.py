# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [0]
# exclusive = false
# timeout = 120
# launcher = "torchrun"
# ranks = 2
# take = ["save", "load", "load_alone"]
# ///
"""A checkpoint of a split model that is whole or not there, and loads whole or not at all."""

import gc
import shutil
import tempfile
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import Tensor, nn
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.state_dict import (
    get_model_state_dict,
    get_state_dict,
    set_model_state_dict,
    set_state_dict,
)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Shard

LAYERS, WIDTH, ROWS = 2, 16, 8


def on_first(work: Callable[[], object]) -> None:
    """Call it on rank 0 alone, while the others wait; its OSError is raised on each."""
    errors: list[OSError | None] = [None]
    if not dist.is_initialized() or dist.get_rank() == 0:
        try:
            work()
        except OSError as error:
            errors[0] = error
    if dist.is_initialized():
        dist.broadcast_object_list(errors)
    if errors[0] is not None:
        raise errors[0]


def is_empty(value: object) -> bool:
    """Whether it is a dict of no values, as extra state may be: nothing of it is saved."""
    return isinstance(value, dict) and all(map(is_empty, value.values()))


def same_names(folder: Path, weights: Mapping[str, Any]) -> None:
    """ValueError if the saved model has other weights and buffers than these."""
    paths = FileSystemReader(folder).read_metadata().planner_data.values()
    saved = {path[1] for path in paths if path[0] == "model"}
    own = {name for name, value in weights.items() if not is_empty(value)}
    other = sorted(saved.symmetric_difference(own))
    if other:
        raise ValueError(f"saved or in the model, not both: {', '.join(other[:5])} …")


def save(
    model: nn.Module, optimizer: torch.optim.Optimizer, folder: str | Path
) -> None:
    """Save model and optimizer into a new folder, by all ranks, each its own part.

    Call it on every rank. The ranks write into `folder` with ".part" behind its name;
    once the disk has all, it gets its name: so a folder of this name is whole, also
    after a crash or a full disk. All ranks must reach it, on one file system. With
    FSDP2, DDP, or in one process without a group; not of modules on "meta". Of any
    optimizer whose `step` needs no closure (not LBFGS) and that has made a step: else
    PyTorch lets it make one with gradients of zero, which Adam counts. Not saved:
    random generators, schedulers, the number of the step, buffers that are not
    persistent.

    FileExistsError on each rank if `folder` is there already, OSError if it cannot be
    made, and CheckpointException if a rank cannot write.
    """
    folder = Path(folder)
    part = folder.with_name(f"{folder.name}.part")

    def begin() -> None:
        if folder.exists():
            raise FileExistsError(f"{folder} is there already")
        shutil.rmtree(part, ignore_errors=True)  # of a run that ended while it saved
        part.mkdir(parents=True)

    on_first(begin)
    weights, moments = get_state_dict(model, optimizer)
    dcp.save({"model": weights, "optimizer": moments}, checkpoint_id=part)  # type: ignore
    on_first(lambda: part.rename(folder))


def load(
    model: nn.Module, optimizer: torch.optim.Optimizer, folder: str | Path
) -> None:
    """Load what `save` wrote, by all ranks together, each the part that it now holds.

    There may be more or fewer ranks than saved it, and other splits. The optimizer is
    one of the same kind, with the same parameters; what it has, its learning rate too,
    is overwritten. Gradients stay as they are. Dtypes stay those of your model.

    FileNotFoundError on each rank if there is no whole checkpoint, ValueError if the
    saved model has other names than yours: then nothing is loaded. CheckpointException
    if shapes or the optimizer differ, or a file is damaged: then part of it may be. A
    damaged ".metadata" raises what `pickle` raises.
    """
    folder = Path(folder)
    on_first((folder / ".metadata").stat)
    gradients = [(parameter, parameter.grad) for parameter in model.parameters()]
    for parameter, _ in gradients:
        parameter.grad = None  # else an optimizer without state is not loaded
    try:
        weights, moments = get_state_dict(model, optimizer)
        same_names(folder, weights)
        dcp.load({"model": weights, "optimizer": moments}, checkpoint_id=folder)  # type: ignore
        set_state_dict(
            model, optimizer, model_state_dict=weights, optim_state_dict=moments
        )
    finally:
        for parameter, gradient in gradients:
            parameter.grad = gradient


def load_alone(model: nn.Module, folder: str | Path) -> None:
    """Load a saved model into one that is not split, in this process alone.

    For inference, or to look at weights: no process group is needed, and none is used,
    so one rank may call it. Each tensor is read into the model's own, on its device and
    in its dtype. Names are without those of DDP and `torch.compile`, so a model of
    either may be given. ValueError if the saved model has other names than yours, and
    for a split model; CheckpointException if shapes differ; FileNotFoundError without a
    whole checkpoint.
    """
    folder = Path(folder)
    (folder / ".metadata").stat()
    weights = get_model_state_dict(model)
    if any(hasattr(tensor, "placements") for tensor in weights.values()):
        raise ValueError("the model is split: use `load`, on all ranks")
    same_names(folder, weights)
    dcp.load({"model": weights}, checkpoint_id=folder, no_dist=True)  # type: ignore
    set_model_state_dict(model, weights)  # what is no tensor was not read in place


def network(seed: int, layers: int = LAYERS) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(*[nn.Linear(WIDTH, WIDTH) for _ in range(layers)])


def by_columns(parameter: nn.Parameter) -> Shard:
    return Shard(parameter.dim() - 1)


def step(model: nn.Module, optimizer: torch.optim.Optimizer, rows: Tensor) -> None:
    model(rows).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()


def whole(model: nn.Module) -> list[Tensor]:
    return [parameter.full_tensor().detach() for parameter in model.parameters()]


def error_of(work: Callable[[], object]) -> str:
    try:
        work()
    except Exception as error:
        return type(error).__name__
    return ""


def looked_at(folder: Path) -> dict:
    """Save, change, load; and what is refused."""
    rows = torch.randn(ROWS, WIDTH, generator=torch.Generator().manual_seed(0))
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    model = fully_shard(network(1), mesh=mesh)
    adam = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(3):
        step(model, adam, rows)
    save(model, adam, folder / "three")
    saved = whole(model)
    step(model, adam, rows)

    other = fully_shard(network(2), mesh=mesh, shard_placement_fn=by_columns)
    adams = torch.optim.AdamW(other.parameters(), lr=1.0)
    other(rows).sum().backward()  # it has gradients, and its optimizer has no state
    load(other, adams, folder / "three")
    with_gradients = all(parameter.grad is not None for parameter in other.parameters())
    same = [torch.equal(a, b) for a, b in zip(whole(other), saved, strict=True)]
    adams.zero_grad()
    step(other, adams, rows)
    pairs = zip(whole(other), whole(model), strict=True)
    next_off = max((a - b).abs().max().item() for a, b in pairs)
    pairs = zip(saved, whole(model), strict=True)
    moved = max((a - b).abs().max().item() for a, b in pairs)

    alone, deeper = network(3), fully_shard(network(4, LAYERS + 1), mesh=mesh)
    load_alone(alone, folder / "three")
    parameters = zip(alone.parameters(), saved, strict=True)
    errors = {
        "save again": partial(save, model, adam, folder / "three"),
        "load what is not there": partial(load, other, adams, folder / "two"),
        "load a deeper model": partial(
            load, deeper, torch.optim.AdamW(deeper.parameters()), folder / "three"
        ),
        "load a shallower model": partial(load_alone, network(5, 1), folder / "three"),
        "load a split model alone": partial(load_alone, other, folder / "three"),
    }
    return {
        "same_weights": all(same),
        "same_alone": all(torch.equal(a, b) for a, b in parameters),
        "gradients_stay": with_gradients,
        "next_step_off": next_off,
        "next_step_moves": moved,
        "errors": {name: error_of(work) for name, work in errors.items()},
        "folders": sorted(path.name for path in folder.iterdir()),
    }


def main() -> dict:
    # to load alone, in a process that is not alone, is what is wanted here
    warnings.filterwarnings("ignore", message="torch.distributed is disabled")
    dist.init_process_group("gloo")
    names = [tempfile.mkdtemp() if dist.get_rank() == 0 else ""]
    dist.broadcast_object_list(names)
    result = looked_at(Path(names[0]))
    dist.barrier()
    if dist.get_rank() == 0:
        shutil.rmtree(names[0])
        print(f"same weights: {result['same_weights']}, alone: {result['same_alone']}")
        print(f"the next step moves them by {result['next_step_moves']:.4f}", end=", ")
        print(f"and by {result['next_step_off']:.1g} more or less than without a break")
        for name, error in result["errors"].items():
            print(f"{name:25}{error}")
    gc.collect()  # FSDP has cycles, and no model may outlive its process group
    dist.destroy_process_group()
    return result


if __name__ == "__main__":
    main()
