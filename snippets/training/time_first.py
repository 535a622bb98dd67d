# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [2]
# timeout = 180
# launcher = "torchrun"
# ///
"""What a profile leaves behind: the same training steps, timed before it and after it."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.nn.parallel import DistributedDataParallel

from snippets.pictures import sweep
from snippets.timing.take_turns import recorded, take_turns
from snippets.training.dp_vs_ddp import slowest_rank
from snippets.training.fsdp_options import new_model, sharded, step
from snippets.training.fsdp_step_profile import gpu_steps, profiled_steps
from snippets.training.models import densenet
from snippets.training.waiting_ranks import meet

ROWS, TOKENS, WIDTH = 2, 1024, 1536  # few rows for each GPU: launches decide
IMAGES, SHAPE = 64, (3, 224, 224)


def steps(
    device: torch.device, group: dist.ProcessGroup
) -> dict[str, Callable[..., Any]]:
    """A step of training of each: DenseNet on each GPU by itself, DDP, and FSDP."""
    with device:
        images = torch.randn(IMAGES, *SHAPE)
        rows = torch.randn(ROWS, TOKENS, WIDTH)
    mesh = DeviceMesh.from_group(group, device.type)
    ddp = DistributedDataParallel(new_model(device), process_group=group)
    models = {
        "densenet_alone": (densenet().to(device), images),
        "ddp": (ddp, rows),
        "fsdp": (sharded(new_model(device), mesh), rows),
    }
    works = {}
    for name, (model, x) in models.items():
        adam = torch.optim.Adam(model.parameters(), lr=1e-5, fused=True)
        works[name] = partial(step, model, x, adam)
    return works


def main() -> dict:
    device, group = meet()
    torch.set_float32_matmul_precision("high")  # TF32
    works = steps(device, group)
    phases = {  # what is done to each step before all are timed again
        "first": lambda work: None,
        "again": lambda work: None,  # the control: time has passed, and no more
        "after_gpu_profile": partial(gpu_steps, trials=1),
        "after_full_profile": partial(profiled_steps, trials=1),
        "once_more": lambda work: None,
    }
    result = {"ranks": group.size(), "phases": list(phases), "times": {}}
    for phase, prepare in phases.items():
        for work in works.values():
            prepare(work)
        # in its first ten steps DDP waits for the GPU, for its statistics
        times = take_turns(works, 10, trials=11, clock=slowest_rank)
        result["times"][phase] = recorded(times)
    if group.rank() == 0:
        for phase, times in result["times"].items():
            each = (f"{name} {ms:.1f} ms" for name, ms in times["ms"].items())
            print(f"{phase:<19}", *each)
    dist.destroy_process_group()
    return result


def derive(results: dict) -> dict:
    """A step of DDP, in each phase."""
    times = results["times"]
    return {"ddp_ms": [times[phase]["ms"]["ddp"] for phase in results["phases"]]}


def plot(results: dict, ceilings: dict):
    titles = {
        "densenet_alone": "DenseNet on one GPU",
        "ddp": "transformer, DDP",
        "fsdp": "transformer, FSDP",
    }
    lines = {}
    for name, text in titles.items():
        ms = [results["times"][phase]["ms"][name] for phase in results["phases"]]
        lines[text] = [each / ms[0] for each in ms]
    places = list(range(len(results["phases"])))
    labels = {"xlabel": "the turn, by what came before it", "ylabel": "times the first"}
    picture = sweep(places, lines, {}, **labels)
    names = ["first", "again", "GPU\nprofiled", "both\nprofiled", "once\nmore"]
    picture.panels[0].x.ticks = dict(zip(places, names, strict=True))
    return picture


if __name__ == "__main__":
    main()
