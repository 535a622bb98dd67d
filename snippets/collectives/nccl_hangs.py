# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [2]
# timeout = 240
# ///
"""One rank leaves out an all-reduce of NCCL: where the other hangs, what ends it."""

import json
import os
import re
import time
from datetime import timedelta

import torch
import torch.distributed as dist

from snippets.collectives.rank_fails import under_torchrun
from snippets.timing.benchmark import wall_clock

LIMIT = timedelta(seconds=5)


def job() -> None:
    """Both ranks add up once; then rank 0 does so again, alone."""
    # no files of the flight recorder; a real job wants them: who called what?
    os.environ["TORCH_NCCL_DUMP_ON_TIMEOUT"] = "0"
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", timeout=LIMIT, device_id=device)
    x = torch.ones(1, device=device)
    dist.all_reduce(x)
    assert x.item() == dist.get_world_size()
    if dist.get_rank() == 0:
        ms = 1e3 * wall_clock(lambda: dist.all_reduce(x), devices=[])  # waits for none
        print(json.dumps({"returned_ms": ms, "failed_at": time.time()}), flush=True)
        # hangs until the watchdog aborts NCCL; nothing is raised; the sum would be 4
        print(json.dumps({"item": str(x.item()), "reached": True}), flush=True)
    time.sleep(300)


def main() -> dict:
    told = {"item": "nothing", "reached": False} | under_torchrun(__file__)
    ended_s = told.pop("ended_at") - told.pop("failed_at")
    print(f"call {told['returned_ms']:.2f} ms, item() hangs, then gives {told['item']}")
    print(f"after {ended_s:.1f} s exit code {told['exitcode']} of rank {told['rank']}")
    print(*re.findall(r"Watchdog caught[^\n]*?timing out", told.pop("stderr"))[:1])
    return told | {"limit_s": LIMIT.total_seconds(), "ended_s": ended_s}


if __name__ == "__main__":
    if "RANK" in os.environ:
        job()
    else:
        main()
