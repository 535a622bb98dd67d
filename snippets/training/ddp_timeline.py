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
"""Where does the time of a DDP step go? Its all-reduces beside its backward pass."""

from copy import deepcopy
from statistics import median
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from snippets.pictures import Note, Spans, timelines
from snippets.timing.lanes import lanes

LAYERS, WIDTH, ROWS = 6, 8192, 4096  # rows for each GPU


def overlap(a: list[Any], b: list[Any]) -> float:
    """Microseconds in which both of two events run."""
    return max(0.0, min(a[1] + a[2], b[1] + b[2]) - max(a[1], b[1]))


def account(events: list[list[Any]]) -> dict[str, float]:
    """Milliseconds of one GPU's step: NCCL, how much of it others hide, the others.

    Right while no two of the others, nor two all-reduces, run at the same time.
    """
    on_gpu = [event for event in events if "stream" in event[0]]
    nccl = [event for event in on_gpu if "nccl" in event[3].lower()]
    others = [event for event in on_gpu if event not in nccl]
    span = max(e[1] + e[2] for e in on_gpu) - min(e[1] for e in on_gpu)
    hidden = sum(overlap(a, b) for a in nccl for b in others)
    us = {"step": span, "all_reduce": sum(e[2] for e in nccl), "hidden": hidden}
    us["others"] = sum(e[2] for e in others)
    return {name: time / 1e3 for name, time in us.items()}


def timelines_of(
    model: nn.Module, rows: torch.Tensor, trials: int = 5
) -> list[list[Any]]:
    """Lanes of some steps of training; in each of them all ranks begin together."""
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def work() -> None:
        dist.barrier()
        optimizer.zero_grad()
        model(rows).square().mean().backward()
        optimizer.step()

    return [lanes(work) for _ in range(trials)]


def main() -> dict:
    dist.init_process_group("gloo")  # a rank that waits in NCCL keeps its GPU spinning
    torch.cuda.set_device(dist.get_rank())  # on one node; else LOCAL_RANK
    torch.set_float32_matmul_precision("high")  # TF32
    each = [nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU()) for _ in range(LAYERS)]
    model = nn.Sequential(*each).to("cuda")
    nccl = dist.new_group(backend="nccl")
    ddp = DistributedDataParallel(deepcopy(model), process_group=nccl)
    rows = torch.randn(ROWS, WIDTH, device="cuda")
    timelines, ms, ms_trials = {}, {}, {}
    for name, each_model in {"one_gpu": model, "ddp": ddp}.items():
        steps = timelines_of(each_model, rows)
        timelines[name] = steps[-1]
        parts = [account(events) for events in steps]
        ms_trials[name] = {key: [part[key] for part in parts] for key in parts[0]}
        ms[name] = {key: median(times) for key, times in ms_trials[name].items()}
        if dist.get_rank() == 0:
            print(name, *(f"{key} {time:.1f} ms" for key, time in ms[name].items()))
    dist.destroy_process_group()
    return {"layers": LAYERS, "ms": ms, "ms_trials": ms_trials, "timelines": timelines}


def derive(results: dict) -> dict:
    """Milliseconds of the step's parts on the GPU, with DDP and without it."""
    one, ddp = results["ms"]["one_gpu"], results["ms"]["ddp"]
    added = {
        "step": ddp["step"] - one["step"],
        "exposed": ddp["all_reduce"] - ddp["hidden"],
        "others": ddp["others"] - one["others"],
    }
    if "timelines" not in results:
        return {"added_ms": added}
    kinds = {"back_from_buckets": "DtoD", "elementwise": "vectorized"}
    kinds |= {"input_matmuls": "_nn_n_", "weight_matmuls": "_nt_n_"}
    parts = {}
    for name, events in results["timelines"].items():
        on_gpu = [event for event in events if "stream" in event[0]]
        others = [(start, us) for _, start, us, call in on_gpu if "nccl" not in call]
        reduces = [(start, us) for _, start, us, call in events if "nccl" in call]
        hidden = sum(
            max(0, min(start + us, at + other) - max(start, at))
            for start, us in reduces
            for at, other in others
        )
        end = max(start + us for _, start, us, _ in on_gpu)
        parts[name] = {
            "whole": (end - min(start for _, start, _, _ in on_gpu)) / 1e3,
            "exposed": (sum(us for _, us in reduces) - hidden) / 1e3,
            "others": sum(us for _, us in others) / 1e3,
        }
        for kind, word in kinds.items():
            parts[name][kind] = sum(us for *_, us, call in events if word in call) / 1e3
    more = {part: parts["ddp"][part] - parts["one_gpu"][part] for part in parts["ddp"]}
    share = (more["back_from_buckets"] + more["elementwise"]) / more["whole"]
    events = results["timelines"]["ddp"]
    reduces = [event for event in events if "nccl" in event[3]]
    beside = {}  # the share of the all-reduces' time in which these run, too
    # without bucket views copies are DDP's: from buckets back into gradients
    for kind, word in {"matmuls": "gemm", "copies": "Memcpy"}.items():
        works = [e for e in events if "stream" in e[0] and word in e[3]]
        shared = sum(overlap(a, b) for a in reduces for b in works)
        beside[kind] = shared / sum(e[2] for e in reduces)
    found = {"added_ms": added, "part_ms": parts, "copies_of_added": share}
    return found | {"beside": beside}


def plot(results: dict, ceilings: dict):
    titles = {"one_gpu": "one GPU", "ddp": "DDP, rank 0"}
    kinds = {"nccl": "all-reduce", "Memcpy": "copies", "multi_tensor": "optimizer"}
    panels = {title: [] for title in titles.values()}
    for name, title in titles.items():
        for lane, start, us, call in results["timelines"][name]:
            if "stream" in lane:
                lane = next((kinds[part] for part in kinds if part in call), "compute")
            elif "Synchronize" in call:
                lane = "CPU waits"
            elif lane == "CPU 2":
                lane = "CPU, backward"
            panels[title].append([lane, start / 1e3, us / 1e3, call])
    picture = timelines(panels, "ms")
    on_gpu = ("all-reduce", "compute", "copies", "optimizer")
    events = [event for event in panels[titles["ddp"]] if event[0] in on_gpu]
    others = sorted(event[1:3] for event in events if event[0] != "all-reduce")
    alone = []  # all-reduces, without the times in which others run
    for _, start, ms, _ in (event for event in events if event[0] == "all-reduce"):
        end = start + ms
        for other, long in [*others, [end, 0.0]]:
            alone.append((start, min(other, end) - start))
            start = max(start, other + long)
    # shorter ones would be drawn wider than they are
    alone = [part for part in alone if part[1] > 0.03]
    marks = picture.panels[1].marks
    for mark in marks:
        mark.light = mark.row == "all-reduce"
    exposed = "exposed: the GPU does nothing else"
    marks.append(Spans("all-reduce", alone, exposed, color="peer"))
    first = min(event[1] for event in events if event[0] == "all-reduce")
    later = [event[1] for event in events if event[0] == "copies" and event[1] > first]
    if later:
        marks.append(Note(min(later), "copies", "from buckets", "right", dx=-4))
    return picture


if __name__ == "__main__":
    main()
