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
"""A checkpoint of a sharded model: each rank saves its part, any arrangement loads it."""

import os
import shutil
import tempfile
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_state_dict,
    set_state_dict,
)
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Shard

from snippets.pictures import Axis, Bars, Panel, Picture
from snippets.timing.take_turns import recorded, take_turns
from snippets.training.dp_vs_ddp import slowest_rank, step
from snippets.training.models import transformer
from snippets.training.waiting_ranks import meet

LAYERS, WIDTH, ROWS, TOKENS = 2, 1536, 2, 128


def save(model: nn.Module, adam: torch.optim.Optimizer, folder: str) -> None:
    """Save model and optimizer, by all ranks together: each writes its own part.

    The optimizer may be of any kind; `folder` is one that all ranks can reach.
    """
    weights, moments = get_state_dict(model, adam)
    dcp.save({"model": weights, "optimizer": moments}, checkpoint_id=folder)  # type: ignore


def load(model: nn.Module, adam: torch.optim.Optimizer, folder: str) -> None:
    """Load what `save` wrote, by all ranks together, each the part that it now holds.

    They may be other ranks than those that saved, and hold other parts. The optimizer
    may be of any kind, but of the one that was saved. Call it before the first backward
    pass or after `zero_grad()`: while there are gradients, the state of an optimizer
    that has taken no step yet is not loaded, and nothing says so.
    """
    weights, moments = get_state_dict(model, adam)
    dcp.load({"model": weights, "optimizer": moments}, checkpoint_id=folder)  # type: ignore
    set_state_dict(model, adam, model_state_dict=weights, optim_state_dict=moments)


def load_alone(model: nn.Module, folder: str) -> None:
    """Load the whole of a saved model into one that is not sharded, in one process."""
    weights = model.state_dict()  # its tensors are the model's own: read in place
    dcp.load({"model": weights}, checkpoint_id=folder, no_dist=True)  # type: ignore


def save_whole(model: nn.Module, adam: torch.optim.Optimizer, path: Path) -> None:
    """Gather model and optimizer on rank 0, which writes one file, and waits for it."""
    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
    weights, moments = get_state_dict(model, adam, options=options)
    if dist.get_rank() == 0:
        with path.open("wb") as file:
            torch.save({"model": weights, "optimizer": moments}, file)
            file.flush()
            os.fsync(file.fileno())  # as `dcp.save` does


def save_behind(
    model: nn.Module, adam: torch.optim.Optimizer, folder: str, returned_s: list[float]
) -> None:
    """Save as `save` does, but in a thread; adds the seconds that it held the caller."""
    start = time.perf_counter()
    weights, moments = get_state_dict(model, adam)
    state = {"model": weights, "optimizer": moments}
    saved = dcp.async_save(state, checkpoint_id=folder)
    returned_s.append(time.perf_counter() - start)
    saved.result()  # training would go on meanwhile


def by_columns(parameter: nn.Parameter) -> Shard:
    """Where to cut a parameter: a matrix by columns, a vector as always."""
    return Shard(parameter.dim() - 1)


def sharded(device: torch.device, mesh: DeviceMesh, seed: int, **options) -> nn.Module:
    """A transformer, sharded block by block."""
    torch.manual_seed(seed)
    with device:
        model = transformer(LAYERS, WIDTH)
    for layer in model:
        fully_shard(layer, mesh=mesh, **options)
    return fully_shard(model, mesh=mesh, **options)


def whole(model: nn.Module) -> list[torch.Tensor]:
    """All weights, whole, on each rank."""
    return [p.full_tensor().detach() for p in model.parameters()]


def differ_by(some: list[torch.Tensor], others: list[torch.Tensor]) -> float:
    """The largest difference of any two weights."""
    pairs = zip(some, others, strict=True)
    return max((a.cpu() - b.cpu()).abs().max().item() for a, b in pairs)


def filesystem(folder: Path) -> str:
    """The kind of file system that a folder is on, as Linux names it."""
    mounts = Path("/proc/self/mounts")
    if not mounts.exists():
        return "unknown"
    kinds = {}
    for line in mounts.read_text().splitlines():
        place, kind = line.split()[1:3]
        if folder.resolve().is_relative_to(place):
            kinds[len(place)] = kind  # of two at one place the later one counts
    return kinds[max(kinds)]


def in_one_folder(work: Callable[[Path], dict]) -> dict:
    """Call work with a folder that all ranks see, and remove it."""
    named = [tempfile.mkdtemp(prefix="checkpoint")] if dist.get_rank() == 0 else [None]
    dist.broadcast_object_list(named)
    try:
        return work(Path(named[0]))
    finally:
        dist.barrier()
        if dist.get_rank() == 0:
            shutil.rmtree(named[0], ignore_errors=True)


def measured(folder: Path, device: torch.device, group: dist.ProcessGroup) -> dict:
    """Save in three ways and load in three, compare, and take the times."""
    rank, mesh = group.rank(), DeviceMesh.from_group(group, device.type)
    model = sharded(device, mesh, seed=0)
    other = sharded(device, mesh, seed=1, shard_placement_fn=by_columns)
    torch.manual_seed(2)
    with device:
        alone, rows = transformer(LAYERS, WIDTH), torch.randn(ROWS, TOKENS, WIDTH)
    adams = [torch.optim.Adam(each.parameters(), lr=1e-4) for each in (model, other)]
    for _ in range(3):
        step(model, rows, adams[0])
    before = differ_by(whole(model), whole(other))
    returned_s, file, folders = [], folder / "whole.pt", {"parts": [], "behind": []}

    def new_folder(name: str) -> str:
        folders[name].append(str(folder / f"{name}{len(folders[name])}"))
        return folders[name][-1]

    def save_parts() -> None:
        save(model, adams[0], new_folder("parts"))

    def save_in_thread() -> None:
        save_behind(model, adams[0], new_folder("behind"), returned_s)

    def load_parts() -> None:
        load(other, adams[1], folders["parts"][-1])

    def load_in_one() -> None:
        load_alone(alone, folders["parts"][-1])

    def load_file() -> None:
        state = torch.load(file, map_location="cpu", mmap=True)
        alone.load_state_dict(state["model"])  # only now the weights are read

    works = {
        "save": save_parts,
        "save_whole": partial(save_whole, model, adams[0], file),
        "save_behind": save_in_thread,
        "load": load_parts,
        "load_alone": load_in_one if rank == 0 else lambda: None,
        "load_file": load_file if rank == 0 else lambda: None,
    }
    times = take_turns(works, warmup=1, trials=3, clock=slowest_rank)
    result = {"parameters": sum(p.numel() for p in alone.parameters())}
    result |= {"ranks": group.size(), "differed_by": before} | recorded(times)
    held = [1e3 * seconds for seconds in returned_s[1:]]
    result |= {"held_ms": median(held), "held_ms_trials": held}
    right, differ = whole(model), {"load": differ_by(whole(other), whole(model))}
    if rank == 0:
        for name in ("load_alone", "load_file"):
            for parameter in alone.parameters():
                parameter.data.zero_()
            works[name]()
            differ[name] = differ_by(list(alone.parameters()), right)
        load_alone(alone, folders["behind"][-1])
        differ["save_behind"] = differ_by(list(alone.parameters()), right)
    for each, adam in zip((model, other), adams, strict=True):
        step(each, rows, adam)  # which needs Adam's moments, too
    differ["next_step"] = differ_by(whole(other), whole(model))
    moved = differ_by(whole(model), right)
    files = Path(folders["parts"][-1]).iterdir()
    sizes = {path.name: path.stat().st_size for path in files}
    result |= {"weights_differ_by": differ, "next_step_moves": moved}
    result |= {"parts_bytes": sizes, "file_bytes": file.stat().st_size}
    return result | {"filesystem": filesystem(folder)}


def main() -> dict:
    # to load alone, in a process that is not alone, is what is wanted here
    warnings.filterwarnings("ignore", message="torch.distributed is disabled")
    device, group = meet()
    result = in_one_folder(partial(measured, device=device, group=group))
    if group.rank() == 0:
        for name, ms in result["ms"].items():
            print(f"{name:<12}{ms:8.0f} ms")
        print(f"save_behind held the caller for {result['held_ms']:.0f} ms")
        for name, size in sorted(result["parts_bytes"].items()):
            print(f"{name:<14}{size:>15,} bytes")
        print(f"{'one file':<14}{result['file_bytes']:>15,} bytes")
    dist.destroy_process_group()
    return result


def derive(results: dict) -> dict:
    """How far loaded weights differ, at most."""
    differ = results["weights_differ_by"].items()
    return {"loaded_differ_by": max(by for name, by in differ if name != "next_step")}


def plot(results: dict, ceilings: dict):
    ms = results["ms"]
    panels = {
        "save weights and moments": {
            "each rank its part": ms["save"],
            "rank 0 gathers all": ms["save_whole"],
            "async_save returns": results["held_ms"],
            "async_save is done": ms["save_behind"],
        },
        "load weights and moments": {"all ranks, parts": ms["load"]},
        "one process loads weights": {
            "from parts": ms["load_alone"],
            "from one file": ms["load_file"],
        },
    }
    drawn = [Panel([Bars(shown)], title=title) for title, shown in panels.items()]
    drawn[-1].x = Axis("ms")
    return Picture(drawn)


if __name__ == "__main__":
    main()
