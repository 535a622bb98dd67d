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
"""How large should the buckets of DDP be? From one for each tensor to one for all."""

from copy import deepcopy
from functools import partial
from statistics import median

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from snippets.pictures import sweep
from snippets.timing.take_turns import take_turns
from snippets.training.ddp_from_scratch import averaged
from snippets.training.dp_vs_ddp import slowest_rank
from snippets.training.models import transformer
from snippets.training.waiting_ranks import meet

ROWS, TOKENS, WIDTH = 8, 512, 1024  # rows for each GPU
BUCKETS_MIB = [0.25, 1, 5, 25, 100, 250, 1000]


def main() -> dict:
    device, group = meet()
    torch.set_float32_matmul_precision("high")  # TF32
    with device:
        model = transformer(width=WIDTH)
        rows = torch.randn(ROWS, TOKENS, WIDTH)
    works = {0: partial(averaged, model, lambda: None, rows)}
    for mib in BUCKETS_MIB:
        options = {"process_group": group, "bucket_cap_mb": mib}  # it means MiB
        ddp = DistributedDataParallel(deepcopy(model), **options)
        works[mib] = partial(averaged, ddp, lambda: None, rows)
    times = take_turns(works, trials=15, clock=slowest_rank)
    nothing, *ms = (timing.ms() for timing in times.values())
    if dist.get_rank() == 0:
        for mib, each in zip(BUCKETS_MIB, ms, strict=True):
            print(f"buckets of {mib:>7,} MiB {median(each):6.2f} ms")
    dist.destroy_process_group()
    result = {"buckets_mib": BUCKETS_MIB, "ms": list(map(median, ms)), "ms_trials": ms}
    return result | {"nothing_ms": median(nothing), "nothing_ms_trials": nothing}


def plot(results: dict, ceilings: dict):
    lines, limit = {"DDP": results["ms"]}, {"no exchange": results["nothing_ms"]}
    labels = {"xlabel": "size of a bucket, MiB", "ylabel": "ms a step"}
    picture = sweep(results["buckets_mib"], lines, limit, xlog=True, **labels)
    picture.panels[0].y.high = 1.1 * max(results["ms"])
    return picture


if __name__ == "__main__":
    main()
