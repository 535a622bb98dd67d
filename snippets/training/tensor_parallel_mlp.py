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
"""One layer on several GPUs: the first matmul split by columns, the second by rows."""

from copy import deepcopy
from functools import partial
from statistics import median

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)

from snippets.pictures import Axis, Bars, Panel, Picture
from snippets.timing.take_turns import ratios, recorded, take_turns
from snippets.training.ddp_equality import farthest, of_all_ranks
from snippets.training.dp_vs_ddp import slowest_rank
from snippets.training.waiting_ranks import meet

ROWS, WIDTH, HIDDEN = 4096, 8192, 32768


def layer(hidden: int) -> nn.Sequential:
    """Two matmuls with a ReLU between, for rows (batch, WIDTH)."""
    wide, narrow = nn.Linear(WIDTH, hidden, bias=False), nn.Linear(hidden, WIDTH, False)
    return nn.Sequential(wide, nn.ReLU(), narrow)


def passes(model: nn.Module, x: torch.Tensor) -> list[torch.Tensor]:
    """Gradients of the rows x and of the weights; those of split weights are split."""
    model.zero_grad()
    x.grad = None
    model(x).square().mean().backward()
    return [x.grad, *(parameter.grad for parameter in model.parameters())]


def all_reduces(x: torch.Tensor, group: dist.ProcessGroup) -> None:
    """What is exchanged in a step: outputs forward, gradients of the rows backward."""
    dist.all_reduce(x, group=group)
    dist.all_reduce(x, group=group)


def main() -> dict:
    device, group = meet()
    rank, ranks = group.rank(), group.size()
    torch.manual_seed(0)  # the same rows and weights on all ranks
    with device:
        one_gpu, part = layer(HIDDEN), layer(HIDDEN // ranks)
        x = torch.randn(ROWS, WIDTH).requires_grad_()
    mesh = DeviceMesh.from_group(group, device.type)
    plan = {"0": ColwiseParallel(), "2": RowwiseParallel()}
    split = parallelize_module(deepcopy(one_gpu), mesh, plan)
    expected, found = passes(one_gpu, x), passes(split, x)
    found[1:] = [gradient.full_tensor() for gradient in found[1:]]
    error = of_all_ranks(farthest(found, expected), torch.device("cpu"))
    torch.set_float32_matmul_precision("high")  # TF32
    works = {
        "one_gpu": partial(passes, one_gpu, x) if rank == 0 else lambda: None,
        "split": partial(passes, split, x),
        "part": partial(passes, part, x),  # the same matmuls, and no exchange
        "exchange": partial(all_reduces, torch.randn_like(x), group),
    }
    times = take_turns(works, trials=15, clock=slowest_rank)
    speedup = ratios(times["one_gpu"], times["split"])
    if rank == 0:
        for name, timing in times.items():
            print(f"{name:<9}{1e3 * timing.median:7.2f} ms")
    dist.destroy_process_group()
    exchanged = {"exchanged_gb": 2 * x.nbytes / 1e9, "error": error, "ranks": ranks}
    faster = {"speedup": median(speedup), "speedup_trials": speedup}
    return recorded(times) | exchanged | faster


def plot(results: dict, ceilings: dict):
    ms = results["ms"]
    whole = {
        "one GPU, whole layer": ms["one_gpu"],
        f"{results['ranks']} GPUs, split layer": ms["split"],
    }
    alone = "each alone, added up"
    sums = {alone: f"{ms['part']:.3g} + {ms['exchange']:.2g}"}
    part, exchange = {alone: ms["part"]}, {alone: ms["exchange"]}
    marks = [
        Bars(whole, color="gpu"),
        Bars(part, "a GPU's part of the layer", {alone: 0.0}, {}, "gpu"),
        Bars(exchange, "two all-reduces", part, sums, "peer"),
    ]
    return Picture([Panel(marks, Axis("ms a step"))])


if __name__ == "__main__":
    main()
