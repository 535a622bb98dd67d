# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [2]
# timeout = 300
# launcher = "torchrun"
# ///
"""FSDP beside DDP in the same precision, three times: memory, and steps as in training."""

import gc
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.nn.parallel import DistributedDataParallel

from snippets.pictures import Axis, Bars, Panel, Picture
from snippets.timing.take_turns import ratios, recorded, take_turns
from snippets.training.dp_vs_ddp import slowest_rank
from snippets.training.fsdp_options import (
    losses,
    mean_over_ranks,
    memory_gb,
    new_model,
    sharded,
    step,
)
from snippets.training.waiting_ranks import meet

TOKENS, WIDTH = 1024, 1536
ROWS = {"few": 2, "many": 8}  # for each GPU
CHECKED = (1, 128)  # rows for each GPU and their tokens, to compare losses
STEPS, TRIALS = 5, 5  # between two waits, as in training; how often
#: how both compute, by name: the type of the parameters, and whether under autocast
PRECISIONS = {
    "tf32": (torch.float32, False),
    "autocast": (torch.float32, True),
    "bf16": (torch.bfloat16, False),
}
#: how the model is on the GPUs; options of `sharded`
WAYS: dict[str, dict[str, Any] | None] = {
    "ddp": None,
    "fsdp": {},
    "fsdp_kept": {"blocks": 4, "reshard_after_forward": False},
}


def on_gpus(way: str, model: nn.Sequential, group: dist.ProcessGroup) -> nn.Module:
    """The model in DDP, or split; its parameters are where it computes."""
    options = WAYS[way]
    if options is None:
        return DistributedDataParallel(
            model, process_group=group, gradient_as_bucket_view=True
        )
    device = next(model.parameters()).device
    mesh = DeviceMesh.from_group(group, device.type)
    return sharded(model, mesh, **options)


def main() -> dict:
    device, group = meet()
    torch.manual_seed(1)  # all ranks know all rows
    ranks = group.size()
    checked = torch.randn(CHECKED[0] * ranks, CHECKED[1], WIDTH).to(device)
    own = checked.chunk(ranks)[group.rank()]
    all_rows = {
        n: torch.randn(r, TOKENS, WIDTH, device=device) for n, r in ROWS.items()
    }
    result: dict[str, Any] = {"ranks": ranks, "loss": {}, "gb": {}, "times": {}}
    result |= {"ratio": {}, "ratio_trials": {}}
    for precision, (dtype, autocast) in PRECISIONS.items():
        works: dict[str, dict] = {size: {} for size in ROWS}
        loss, gb = {}, {}
        for way in WAYS:
            gc.collect()
            before = torch.cuda.memory_allocated()
            model = on_gpus(way, new_model(device).to(dtype), group)
            # float32 for the comparison, whatever the timed steps have
            torch.set_float32_matmul_precision("highest")
            rows = own.to(dtype)
            loss[way] = mean_over_ranks(losses(model, rows, autocast=autocast))
            torch.set_float32_matmul_precision("high")  # TF32
            adam = torch.optim.Adam(model.parameters(), lr=1e-5, fused=True)
            for size, rows in all_rows.items():
                works[size][way] = partial(
                    step, model, rows.to(dtype), adam, autocast=autocast
                )
            gb[way] = memory_gb(works["many"][way], before)
        result["loss"][precision], result["gb"][precision] = loss, gb
        result["times"][precision] = {}
        for size, each in works.items():
            # in its first ten steps DDP waits for the GPU, for its statistics
            times = take_turns(each, 2, TRIALS, calls=STEPS, clock=slowest_rank)
            result["times"][precision][size] = recorded(times)
            if size == "many":
                result["ratio_trials"][precision] = {
                    way: ratios(times[way], times["ddp"]) for way in WAYS
                }
        if group.rank() == 0:
            for way in WAYS:
                ms = [result["times"][precision][size]["ms"][way] for size in ROWS]
                peak = gb[way]["peak"]
                print(f"{precision:<9}{way:<10}{ms[0]:7.1f} ms{ms[1]:8.1f} ms", end="")
                print(f"{peak:6.1f} GB, last loss {loss[way][-1]:.6f}")
        del model, adam, works, each  # the next precision needs the memory
    gc.collect()
    for precision, each in result["ratio_trials"].items():
        medians = {
            way: sorted(trials)[len(trials) // 2] for way, trials in each.items()
        }
        result["ratio"][precision] = medians
    dist.destroy_process_group()
    return result


TITLES = {"ddp": "DDP", "fsdp": "FSDP", "fsdp_kept": "FSDP, four blocks\na group, kept"}
NAMES = {"tf32": "TF32", "autocast": "bf16 autocast", "bf16": "bf16 parameters"}


def derive(results: dict) -> dict:
    """What FSDP takes of DDP's memory and time; how far its losses are from DDP's."""
    off = {}
    for precision, each in results["loss"].items():
        shares = []
        for way in each:
            pairs = zip(each[way], each["ddp"], strict=True)
            shares += [abs(loss - ddp) / ddp for loss, ddp in pairs]
        off[precision] = max(shares)
    gb, times = results["gb"], results["times"]
    memory, time = [], []
    for precision, each in gb.items():
        ms = times[precision]["many"]["ms"]
        if each["ddp"]["peak"]:  # a CPU's is not measured
            memory.append(each["fsdp"]["peak"] / each["ddp"]["peak"])
        time += [ms[way] / ms["ddp"] for way in ("fsdp", "fsdp_kept")]
    of_ddp = {"memory": memory, "time": time}
    return {"losses_off": off, "of_ddp": of_ddp}


def plot(results: dict, ceilings: dict):
    panels = []
    for unit in ("ms a step", "GB at the peak"):
        marks: list[Any] = []
        for way, title in TITLES.items():
            values = {}
            for precision, name in NAMES.items():
                if unit == "ms a step":
                    values[name] = results["times"][precision]["many"]["ms"][way]
                else:
                    values[name] = results["gb"][precision][way]["peak"]
            marks.append(Bars(values, title.replace("\n", " ")))
        title = "time of a step" if unit == "ms a step" else "memory"
        panels.append(Panel(marks, Axis(unit), title=title))
    return Picture(panels)


if __name__ == "__main__":
    main()
