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
"""From how many rows on do more GPUs train the 20-20-4 network faster than one?"""

from copy import deepcopy
from functools import partial
from statistics import median

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from snippets.pictures import sweep
from snippets.timing.take_turns import ratios, take_turns
from snippets.training.dp_vs_ddp import slowest_rank, step
from snippets.training.dp_vs_ddp_models import steps_with
from snippets.training.models import tiny
from snippets.training.waiting_ranks import meet

ROWS = [2**6, 2**12, 2**16, 2**20, 2**24]  # in all: the GPUs share them


def main() -> dict:
    device, group = meet()
    rank, ranks, model = group.rank(), group.size(), tiny().to(device)
    ddp = DistributedDataParallel(deepcopy(model), process_group=group)
    sgd, speedups = torch.optim.SGD(model.parameters(), lr=1e-3), {"dp": [], "ddp": []}
    for rows in ROWS:
        batch = torch.randn(rows, 20, device=device)
        works = steps_with(model, ddp, batch[: rows // ranks], ranks)
        if rank == 0:
            works["one_gpu"] = partial(step, model, batch, sgd)  # all rows, on one GPU
        times = take_turns(works, trials=7, calls=10, clock=slowest_rank)
        for way, trials in speedups.items():
            trials.append(ratios(times["one_gpu"], times[way]))
            if rank == 0:
                print(f"{rows:>10,} rows, {way:<4}{median(trials[-1]):.2f}×")
    dist.destroy_process_group()
    speedup = {way: list(map(median, trials)) for way, trials in speedups.items()}
    result = {"ranks": ranks, "rows": ROWS}
    return result | {"speedup": speedup, "speedup_trials": speedups}


def plot(results: dict, ceilings: dict):
    names = {"dp": "DataParallel", "ddp": "DDP"}
    lines = {text: results["speedup"][way] for way, text in names.items()}
    limits = {"number of GPUs": results["ranks"], "one GPU": 1}
    labels = {"xlabel": "rows in all", "ylabel": "speed, times one GPU"}
    picture = sweep(results["rows"], lines, limits, xlog=True, **labels)
    for mark, color in zip(picture.panels[0].marks, ("muted", 1), strict=False):
        mark.color = color
    return picture


if __name__ == "__main__":
    main()
