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
"""DataParallel and DDP: DenseNet-121 as in 2018, a transformer, and a tiny model."""

from copy import deepcopy
from functools import partial
from statistics import median

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from snippets.pictures import bars
from snippets.timing.take_turns import ratios, recorded, take_turns
from snippets.training.dp_vs_ddp import slowest_rank, step
from snippets.training.models import densenet, tiny, transformer
from snippets.training.waiting_ranks import meet

#: how it is made, the shape of a row, rows for each GPU, steps in a trial
MODELS = {
    "densenet": (densenet, (3, 224, 224), 64, 1),
    "transformer": (transformer, (512, 1024), 8, 1),
    "tiny": (tiny, (20,), 64, 20),
}
#: seconds on one V100 and on four, with DataParallel, in the comparison of 2018
V100_S = (25 * 60 + 14, 8 * 60 + 27)


def apart(model: nn.Module, group: dist.ProcessGroup) -> float:
    """Largest difference between two ranks in any parameter; all must be finite."""
    most = torch.cat([p.detach().flatten() for p in model.parameters()])
    least = most.clone()
    dist.all_reduce(most, dist.ReduceOp.MAX, group=group)
    dist.all_reduce(least, dist.ReduceOp.MIN, group=group)
    return float((most - least).abs().max())


def steps_with(model: nn.Module, ddp: nn.Module, rows: torch.Tensor, gpus: int) -> dict:
    """This rank's part of each way to train; only rank 0 has one in the first two."""
    sgd = partial(torch.optim.SGD, lr=1e-3)
    works = {"one_gpu": lambda: None, "dp": lambda: None}
    if dist.get_rank() == 0:
        dp, batch = nn.DataParallel(model, list(range(gpus))), torch.cat([rows] * gpus)
        works["one_gpu"] = partial(step, model, rows, sgd(model.parameters()))
        works["dp"] = partial(step, dp, batch, sgd(model.parameters()))
    return works | {"ddp": partial(step, ddp, rows, sgd(ddp.parameters()))}


def main() -> dict:
    device, nccl = meet()
    ranks, rank = dist.get_world_size(), dist.get_rank()
    torch.set_float32_matmul_precision("high")  # TF32, as convolutions have it anyway
    results = {"ranks": ranks, "v100_speedup": V100_S[0] / V100_S[1]}
    for name, (make, shape, count, calls) in MODELS.items():
        torch.manual_seed(rank)  # each rank has rows of its own
        model, rows = make().to(device), torch.randn(count, *shape, device=device)
        ddp = DistributedDataParallel(deepcopy(model), process_group=nccl)
        works = steps_with(model, ddp, rows, ranks)
        times = take_turns(works, trials=7, calls=calls, clock=slowest_rank)
        results[name] = recorded(times) | {"weights_differ_by": apart(ddp, nccl)}
        results[name] |= {"rows": count, "speedup": {}, "speedup_trials": {}}
        for way in ("dp", "ddp"):
            each = [ranks * ratio for ratio in ratios(times["one_gpu"], times[way])]
            results[name]["speedup_trials"][way] = each
            results[name]["speedup"][way] = median(each)
        if rank == 0:
            speedup = (f"{w} {x:.2f}×" for w, x in results[name]["speedup"].items())
            print(f"{name:<12}", *speedup)
    dist.destroy_process_group()
    return results


def plot(results: dict, ceilings: dict):
    titles = {"densenet": "DenseNet-121", "transformer": "transformer"}
    names = {"dp": "DataParallel", "ddp": "DDP"}
    groups = {}
    for model, title in (titles | {"tiny": "tiny network"}).items():
        row = results[model]["speedup"]
        groups[title] = {text: row[name] for name, text in names.items()}
    if results["ranks"] == 4:
        groups["DenseNet-121"]["DataParallel, V100, 2018"] = results["v100_speedup"]
    limits = {"number of GPUs": results["ranks"], "one GPU": 1}
    picture = bars(groups, limits, "speed, times one GPU")
    for mark in picture.panels[0].marks:
        if "DataParallel" in mark.name:
            mark.color, mark.light = "ceiling", "V100" in mark.name
        elif mark.name == "DDP":
            mark.color = 1
    return picture


if __name__ == "__main__":
    main()
