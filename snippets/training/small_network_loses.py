# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11"]
# [tool.overlap]
# gpus = [2, 4, 8]
# timeout = 120
# launcher = "torchrun"
# [tool.overlap.missing]
# 2 = "not recorded yet"
# 4 = "not recorded yet"
# 8 = "not recorded yet"
# ///
"""From how many rows on do more GPUs train the 20-20-4 network faster than one?"""

from copy import deepcopy
from functools import partial
from statistics import median

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from snippets.timing.pictures import sweep
from snippets.timing.take_turns import ratios, take_turns
from snippets.training.dp_vs_ddp import slowest_rank, step
from snippets.training.models import tiny
from snippets.training.waiting_ranks import meet

ROWS = [2**6, 2**12, 2**16, 2**20, 2**24]  # in all: the GPUs share them


def steps_of(model: nn.Module, ddp: nn.Module, batch: torch.Tensor, group) -> dict:
    """Ways to take a step with the batch; only rank 0 has work in the first two."""
    rank, ranks = group.rank(), group.size()
    dp = nn.DataParallel(model, list(range(ranks)))
    sgd = torch.optim.SGD(model.parameters(), lr=1e-3)
    works = {"one_gpu": partial(step, model, batch, sgd)}
    works["dp"] = partial(step, dp, batch, sgd)
    if rank > 0:
        works = dict.fromkeys(works, lambda: None)
    sgd = torch.optim.SGD(ddp.parameters(), lr=1e-3)
    return works | {"ddp": partial(step, ddp, batch.chunk(ranks)[rank], sgd)}


def main() -> dict:
    device, group = meet()
    ranks, model = group.size(), tiny().to(device)
    ddp = DistributedDataParallel(deepcopy(model), process_group=group)
    trials, speedups = {"one_gpu": [], "dp": [], "ddp": []}, {"dp": [], "ddp": []}
    for rows in ROWS:
        works = steps_of(model, ddp, torch.randn(rows, 20, device=device), group)
        times = take_turns(works, trials=7, calls=10, clock=slowest_rank)
        for way, timing in times.items():
            trials[way].append(timing.ms())
        for way, found in speedups.items():
            found.append(ratios(times["one_gpu"], times[way]))
        if group.rank() == 0:
            ways = (f"{way} {median(each[-1]):.2f}×" for way, each in speedups.items())
            print(f"{rows:>10,} rows:", *ways)
    dist.destroy_process_group()
    ms = {way: list(map(median, each)) for way, each in trials.items()}
    speedup = {way: list(map(median, each)) for way, each in speedups.items()}
    result = {"ranks": ranks, "rows": ROWS, "ms": ms, "ms_trials": trials}
    return result | {"speedup": speedup, "speedup_trials": speedups}


def plot(results: dict, ceilings: dict):
    names = {"dp": "DataParallel", "ddp": "DDP"}
    lines = {text: results["speedup"][way] for way, text in names.items()}
    limits = {"number of GPUs": results["ranks"], "one GPU": 1}
    labels = {"xlabel": "rows in all", "ylabel": "times one GPU"}
    return sweep(results["rows"], lines, limits, xlog=True, **labels)


if __name__ == "__main__":
    main()
