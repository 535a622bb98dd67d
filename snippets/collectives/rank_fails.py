# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [0]
# timeout = 120
# ///
"""One of two ranks leaves collectives out, then raises: who says so, and when?"""

import json
import os
import re
import subprocess
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record

LIMIT = timedelta(seconds=2)


def blocked(call, **options) -> dict:
    """How long a call that must fail took to fail, and what it said."""
    start = time.perf_counter()
    try:
        call(**options)
    except RuntimeError as error:
        says = str(error).partition("\n")[0].rpartition("] ")[2]
        return {"seconds": time.perf_counter() - start, "says": says}
    raise AssertionError("no rank was missing")


@record  # else torchrun's report has no traceback
def job() -> None:
    """Rank 1 leaves out two collectives, and raises when rank 0 has given up."""
    dist.init_process_group("gloo")
    one, other = (dist.new_group(timeout=LIMIT) for _ in range(2))
    if dist.get_rank() == 0:
        plain = blocked(dist.all_reduce, tensor=torch.ones(1), group=one)
        options = {"group": other, "timeout": LIMIT, "wait_all_ranks": True}
        named = blocked(dist.monitored_barrier, **options)
        print(json.dumps({"all_reduce": plain, "monitored_barrier": named}))
    dist.barrier()
    if dist.get_rank() == 1:
        print(json.dumps({"failed_at": time.time()}), flush=True)
        raise ValueError("this batch cannot be read")
    time.sleep(300)  # this rank computes, and knows nothing


def under_torchrun(file: str) -> dict:
    """Run a file as two ranks: what they told in JSON, and what torchrun says broke."""
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    torchrun += ["--nproc-per-node=2", file]
    done = subprocess.run(torchrun, capture_output=True, text=True, timeout=100)
    told = {"ended_at": time.time(), "exit": done.returncode, "stderr": done.stderr}
    for line in re.findall(r"^{.*}$", done.stdout, re.M):
        told |= json.loads(line)
    cause = done.stderr.partition("Root Cause")[2].rpartition("\n==")[0]
    for key in ("rank", "exitcode"):
        told[key] = int(re.search(rf"{key}\s*: (-?\d+)", cause)[1])
    return told | {"says": cause.rstrip().rpartition("\n")[2].strip()}


def main() -> dict:
    told = under_torchrun(__file__)
    ended_s = told.pop("ended_at") - told.pop("failed_at")
    for name in ("all_reduce", "monitored_barrier"):
        print(f"rank 0, {name}: {told[name]['seconds']:.1f} s, {told[name]['says']!r}")
    print(f"torchrun ends after {ended_s:.1f} s: rank {told['rank']}, {told['says']!r}")
    del told["stderr"]
    return told | {"ended_s": ended_s, "limit_s": LIMIT.total_seconds()}


if __name__ == "__main__":
    if "RANK" in os.environ:
        job()
    else:
        main()
