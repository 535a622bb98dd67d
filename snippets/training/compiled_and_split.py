# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [2, 4]
# missing = { 4 = "not recorded yet" }
# timeout = 420
# launcher = "torchrun"
# ///
"""bf16 and AdamW on several GPUs: DDP or FSDP, blocks compiled or not; losses first."""

import gc
import os
import tempfile
from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.nn.parallel import DistributedDataParallel

from snippets.pictures import bars
from snippets.timing.take_turns import ratios, recorded, take_turns
from snippets.training.ddp_compile import Block, graphs
from snippets.training.dp_vs_ddp import slowest_rank
from snippets.training.fsdp_options import (
    BF16,
    losses,
    mean_over_ranks,
    memory_gb,
    sharded,
    step,
)
from snippets.training.waiting_ranks import meet

LAYERS, WIDTH, TOKENS, ROWS = 12, 1536, 1024, 8  # rows for each GPU
STEPS, TRIALS = 8, 7  # between two waits, as in training; how often
BACKEND = "inductor"
#: whether FSDP splits it, and whether each block is compiled
WAYS = {
    "ddp": (False, False),
    "ddp_compiled": (False, True),
    "fsdp": (True, False),
    "fsdp_compiled": (True, True),
}


def new_blocks(device: torch.device) -> nn.Sequential:
    """The same transformer each time, on all ranks."""
    torch.manual_seed(0)
    with device:
        return nn.Sequential(*(Block(WIDTH) for _ in range(LAYERS)))


def on_gpus(
    model: nn.Sequential,
    split: bool,
    compiled: bool,
    group: dist.ProcessGroup,
    **options: Any,
) -> nn.Module:
    """The model in DDP, or split by `sharded`; its blocks are compiled before that."""
    if compiled:
        for block in model:
            block.compile(backend=BACKEND, dynamic=False)
    if split:
        device = next(model.parameters()).device
        mesh = DeviceMesh.from_group(group, device.type)
        return sharded(model, mesh, **options)
    return DistributedDataParallel(
        model, process_group=group, gradient_as_bucket_view=True
    )


def farthest(found: list[float], expected: list[float]) -> float:
    """How far the mean losses of all ranks are from those expected, at most."""
    pairs = zip(mean_over_ranks(found), expected, strict=True)
    return max(abs(f - e) / e for f, e in pairs)


def losses_differ_by(group: dist.ProcessGroup, device: torch.device) -> dict:
    """How far four losses of each way are from one device's, in float32; and "alone".

    Ranks have rows of other sizes, so that without an exchange losses are others.
    """
    ranks, rank = group.size(), group.rank()
    rows = torch.randn(ranks, ROWS, TOKENS, WIDTH)
    rows = (rows * (1 + torch.arange(ranks)).view(-1, 1, 1, 1)).to(device)
    expected = losses(new_blocks(device), rows.flatten(0, 1))
    assert expected[-1] < expected[0]
    own = rows[rank].clone()
    del rows
    differ = {"alone": farthest(losses(new_blocks(device), own), expected)}
    for name, (split, compiled) in WAYS.items():
        model = on_gpus(new_blocks(device), split, compiled, group)
        differ[name] = farthest(losses(model, own), expected)
        assert differ[name] < 1e-5 < differ["alone"] / 10, f"{name} has other losses"
    torch._dynamo.reset()
    return differ


def main() -> dict:
    device, group = meet()
    rank, ranks = group.rank(), group.size()
    torch.manual_seed(1)  # all ranks know all rows
    result: dict[str, Any] = {"ranks": ranks, "gb": {}, "graphs": {}}
    works: dict[str, Callable[[], object]] = {}
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = folder
        os.environ["TRITON_CACHE_DIR"] = os.path.join(folder, "triton")
        result["losses_differ_by"] = losses_differ_by(group, device)
        torch.set_float32_matmul_precision("high")  # TF32, for what is not in bf16
        rows = torch.randn(ROWS, TOKENS, WIDTH, device=device)
        for name, (split, compiled) in WAYS.items():
            gc.collect()
            before, made = torch.cuda.memory_allocated(), graphs()["graphs"]
            options = {"mp_policy": BF16} if split else {}
            model = on_gpus(new_blocks(device), split, compiled, group, **options)
            adam = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
            # FSDP has a policy of its own
            works[name] = partial(step, model, rows, adam, autocast=not split)
            result["gb"][name] = memory_gb(works[name], before)
            result["graphs"][name] = graphs()["graphs"] - made
        alone = new_blocks(device)
        adam = torch.optim.AdamW(alone.parameters(), lr=1e-5, fused=True)
        work = partial(step, alone, rows, adam, autocast=True)
        works["one_gpu"] = work if rank == 0 else lambda: None  # the others wait
        # in its first ten steps DDP waits for the GPU, for its statistics
        times = take_turns(works, 2, TRIALS, calls=STEPS, clock=slowest_rank)
    result |= recorded(times)
    gains = {
        name: [ranks * ratio for ratio in ratios(times["one_gpu"], times[name])]
        for name in WAYS
    }
    result["speedup"] = {name: median(each) for name, each in gains.items()}
    result["speedup_trials"] = gains
    if rank == 0:
        print(f"one_gpu       {result['ms']['one_gpu']:7.1f} ms")
        for name in WAYS:
            ms, peak = result["ms"][name], result["gb"][name]["peak"]
            told = f"{ms:7.1f} ms, {result['speedup'][name]:.2f}×, {peak:5.1f} GB"
            off = result["losses_differ_by"][name]
            print(f"{name:<14}{told}, {result['graphs'][name]} graphs, off {off:.1e}")
    dist.destroy_process_group()
    return result


def derive(results: dict) -> dict:
    """What compiled blocks save, for DDP and FSDP, and how far losses are at most."""
    ms = results["ms"]
    return {
        "compiled_gains": {w: ms[w] / ms[f"{w}_compiled"] for w in ("ddp", "fsdp")},
        "most_off": max(results["losses_differ_by"][way] for way in WAYS),
    }


def plot(results: dict, ceilings: dict):
    groups = {}
    for way, title in {"ddp": "DDP", "fsdp": "FSDP"}.items():
        groups[title] = {
            "blocks not compiled": results["speedup"][way],
            "each block compiled": results["speedup"][f"{way}_compiled"],
        }
    return bars(groups, {"number of GPUs": results["ranks"]}, "speed, times one GPU")


if __name__ == "__main__":
    main()
