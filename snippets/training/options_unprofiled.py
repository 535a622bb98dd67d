# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [2, 4]
# missing = { 4 = "not recorded yet" }
# timeout = 300
# launcher = "torchrun"
# ///
"""What DDP's options save with DenseNet-121: gradients first, then steps, no profile."""

from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Any

import torch
import torch.distributed as dist

from snippets.pictures import bars
from snippets.timing.take_turns import ratios, recorded, take_turns
from snippets.training.ddp_options import OPTIONS, differences, wrapped
from snippets.training.dp_vs_ddp import slowest_rank, step
from snippets.training.models import densenet
from snippets.training.waiting_ranks import meet

SHAPE, IMAGES = (3, 224, 224), 64  # for each GPU
STEPS, TRIALS = 8, 9  # between two waits, as in training; how often


def main() -> dict:
    device, group = meet()
    rank = group.rank()
    torch.set_float32_matmul_precision("high")  # TF32, as convolutions have it anyway
    torch.manual_seed(0)
    model = densenet().to(device)
    torch.manual_seed(1 + rank)  # each rank has rows of its own
    rows = torch.randn(IMAGES, *SHAPE, device=device)
    models = {"every_gpu": model} | wrapped(model, group)
    differ = differences(models, rows)
    for option in OPTIONS:
        assert differ[option] < 1e-2, f"{option} has other gradients"
    works: dict[str, Callable[[], object]] = {}
    for option, each in models.items():
        sgd = torch.optim.SGD(each.parameters(), lr=1e-3)
        works[option] = partial(step, each, rows, sgd)
    # every_gpu: all ranks at once, each for itself; one_gpu: rank 0, the others wait
    works["one_gpu"] = works["every_gpu"] if rank == 0 else lambda: None
    how: dict[str, Any] = {"calls": STEPS, "clock": slowest_rank}
    # in its first ten steps DDP waits for the GPU, for its statistics
    times = take_turns(works, 2, TRIALS, **how)
    result = {"ranks": group.size(), "differ": differ, **recorded(times)}
    gains = {option: ratios(times["default"], times[option]) for option in works}
    result |= {"gain": {option: median(each) for option, each in gains.items()}}
    result["gain_trials"] = gains
    if rank == 0:
        for option, ms in result["ms"].items():
            print(f"{option:<13}{ms:7.2f} ms a step, {result['gain'][option]:.3f}×")
    dist.destroy_process_group()
    return result


def derive(results: dict) -> dict:
    """DDP's cost by default over ranks that exchange nothing, and what is left of it."""
    ms = results["ms"]
    cost = ms["default"] - ms["every_gpu"]
    faster = {
        option: sum(gain > 1 for gain in trials)
        for option, trials in results.get("gain_trials", {}).items()
    }
    return {
        "cost_ms": cost,
        "saved_of_cost": (ms["default"] - ms["all_three"]) / cost,
        "rounds_faster": faster,
        "options_differ": max(results["differ"][option] for option in OPTIONS),
    }


def plot(results: dict, ceilings: dict):
    titles = {"one_gpu": "one GPU, the others idle", "every_gpu": "each GPU for itself"}
    titles |= {"default": "DDP's default", "static_graph": "static_graph"}
    titles |= {"bucket_view": "gradient_as_bucket_view"}
    titles |= {"no_buffers": "broadcast_buffers=False", "all_three": "all three"}
    return bars({text: results["ms"][name] for name, text in titles.items()}, {}, "ms")


if __name__ == "__main__":
    main()
