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
"""Options of DDP, one by one: gradients first, then copies on the GPU and the step."""

from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from functools import partial
from statistics import median
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from snippets.pictures import bars
from snippets.timing.lanes import lanes
from snippets.timing.take_turns import ratios, recorded, take_turns
from snippets.training.ddp_equality import farthest, gradients
from snippets.training.dp_vs_ddp import mlp, slowest_rank, step
from snippets.training.models import densenet
from snippets.training.waiting_ranks import meet

OPTIONS = {
    "default": {},
    "bucket_view": {"gradient_as_bucket_view": True},
    "static_graph": {"static_graph": True},
    "no_buffers": {"broadcast_buffers": False},
    "all_three": {
        "gradient_as_bucket_view": True,
        "static_graph": True,
        "broadcast_buffers": False,
    },
}
#: how it is made, the shape of a row, rows for each GPU, steps in a trial
MODELS = {
    "wide": (partial(mlp, 6, 8192), (8192,), 4096, 1),
    "densenet": (densenet, (3, 224, 224), 64, 1),
}
#: part of the name of a kernel or a copy in the profile
KINDS = {"copies": "DtoD", "all_reduces": "AllReduce", "broadcasts": "Broadcast"}


def wrapped(model: nn.Module, group: dist.ProcessGroup) -> dict[str, nn.Module]:
    """The same model in DDP, once with each of OPTIONS."""
    models = {}
    for name, options in OPTIONS.items():
        models[name] = DistributedDataParallel(
            deepcopy(model), process_group=group, **options
        )
    return models


@contextmanager
def exact() -> Iterator[None]:
    """Convolutions and matmuls in float32, convolutions in one fixed order.

    For this file alone: after an error inside it the settings stay.
    """
    cudnn, precision = torch.backends.cudnn, torch.get_float32_matmul_precision()
    before = cudnn.deterministic, cudnn.allow_tf32
    cudnn.deterministic, cudnn.allow_tf32 = True, False
    torch.set_float32_matmul_precision("highest")
    yield
    cudnn.deterministic, cudnn.allow_tf32 = before
    torch.set_float32_matmul_precision(precision)


def differences(models: dict[str, nn.Module], rows: torch.Tensor) -> dict[str, float]:
    """How far each model's gradients are from the default's, in the second pass.

    Before that DDP makes its buckets anew, and learns the graph if it is static.
    """
    with exact():
        for model in models.values():
            gradients(model, rows)
        expected = gradients(models["default"], rows)
        return {
            name: farthest(gradients(model, rows), expected)
            for name, model in models.items()
        }


def gpu_work(events: list[list[Any]]) -> dict[str, dict[str, float]]:
    """How many of each of KINDS there are in `lanes`, and their milliseconds.

    "everything" is all that ran on this GPU, of other kinds, too.
    """
    on_gpu = [event for event in events if "stream" in event[0]]
    work = {}
    for kind, part in (KINDS | {"everything": ""}).items():
        us = [event[2] for event in on_gpu if part in event[3]]
        work[kind] = {"count": len(us), "ms": sum(us) / 1e3}
    return work


def profiled_step(work) -> list[list[Any]]:
    """`lanes` of one step, which all ranks begin together.

    `lanes` profiles twice and gives the second; the first is left empty here.
    """
    turns = iter([list, lambda: [dist.barrier(), work()]])
    return lanes(lambda: next(turns)())


def main() -> dict:
    device, group = meet()
    torch.set_float32_matmul_precision("high")  # TF32, as convolutions have it anyway
    results = {"ranks": group.size()}
    for name, (make, shape, count, calls) in MODELS.items():
        torch.manual_seed(0)
        model = make().to(device)
        torch.manual_seed(1 + dist.get_rank())  # each rank has rows of its own
        rows = torch.randn(count, *shape, device=device)
        models = {"one_gpu": model} | wrapped(model, group)
        differ = differences(models, rows)
        for option in OPTIONS:
            assert differ[option] < 1e-2, f"{name}: {option} has other gradients"
        works = {}
        for option, each in models.items():
            sgd = torch.optim.SGD(each.parameters(), lr=1e-3)
            works[option] = partial(step, each, rows, sgd)
        # in its first ten steps DDP waits for the GPU, for its statistics
        times = take_turns(works, 9, trials=9, calls=calls, clock=slowest_rank)
        result = recorded(times) | {"differ": differ}
        result["buffers"] = len(list(model.buffers()))
        each = {o: ratios(times["default"], timing) for o, timing in times.items()}
        result["gain"] = {option: median(ratio) for option, ratio in each.items()}
        result["gain_trials"] = each
        result["gpu"] = {o: gpu_work(profiled_step(w)) for o, w in works.items()}
        results[name] = result
        if dist.get_rank() == 0:
            print(f"{name}, {result['buffers']} buffers")
            for option, ms in result["ms"].items():
                work = result["gpu"][option]
                print(
                    f"  {option:<13}{ms:7.2f} ms, {work['copies']['count']:4} copies,",
                    f"{work['broadcasts']['count']} broadcasts,",
                    f"gradients differ by {differ[option]:.1e}",
                )
        del models, works
    dist.destroy_process_group()
    return results


def derive(results: dict) -> dict:
    """How many copies of a step options save, and what one model broadcasts."""
    saved = {}
    for model in ("densenet", "wide"):
        gpu = results[model]["gpu"]
        count = gpu["default"]["copies"]["count"]
        saved[model] = {
            name: count - row["copies"]["count"] for name, row in gpu.items()
        }
    ways = ("bucket_view", "static_graph", "no_buffers", "all_three")
    differ = [results[model]["differ"][way] for model in saved for way in ways]
    densenet = results["densenet"]
    sent = {way: row["broadcasts"]["count"] for way, row in densenet["gpu"].items()}
    return {
        "options_differ": max(differ),
        "view_saves": [saved[model]["bucket_view"] for model in ("densenet", "wide")],
        "buffers_not_saved": densenet["buffers"] - saved["densenet"]["no_buffers"],
        "static_graph_saves": saved["densenet"]["static_graph"],
        "broadcasts": sent,
    }


def plot(results: dict, ceilings: dict):
    titles = {"default": "DDP's default", "static_graph": "static_graph"}
    titles |= {"bucket_view": "gradient_as_bucket_view"}
    titles |= {"no_buffers": "broadcast_buffers=False", "all_three": "all three"}
    names = {"wide": "wide layers", "densenet": "DenseNet-121"}
    groups = {}
    for option, title in titles.items():
        work = {text: results[name]["gpu"][option] for name, text in names.items()}
        groups[title] = {text: each["copies"]["count"] for text, each in work.items()}
    return bars(groups, {}, "copies in a step", log=True)


if __name__ == "__main__":
    main()
