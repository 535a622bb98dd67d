# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [2]
# timeout = 300
# ///
"""One rank leaves out an all-reduce of NCCL: what the flight recorder's files tell.

Once as torchrun starts a job, and once with PyTorch's own way to end a hung one.
"""

import json
import os
import pickle
import re
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
import torch.distributed as dist

from snippets.collectives.rank_fails import under_torchrun

LIMIT = timedelta(seconds=5)
#: of TORCH_NCCL_ASYNC_ERROR_HANDLING: what torchrun sets, and PyTorch's default
WAYS = {"torchrun": "1", "default": "3"}


def job() -> None:
    """Both ranks add up twice; then rank 0 does so again, alone."""
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", timeout=LIMIT, device_id=device)
    x = torch.ones(1, device=device)
    for _ in range(2):
        dist.all_reduce(x)
    assert x.item() == dist.get_world_size() ** 2
    if dist.get_rank() == 0:
        print(json.dumps({"failed_at": time.time()}), flush=True)
        dist.all_reduce(x)
        print(json.dumps({"item": str(x.item()), "reached": True}), flush=True)
    time.sleep(300)


def calls(folder: Path) -> dict[str, list[list[Any]]]:
    """Number, name and state of each rank's calls, from its file `rank_0`, `rank_1`, …

    Unpickle only files of your own jobs.
    """
    found = {}
    for path in sorted(folder.glob("rank_*")):
        entries = pickle.loads(path.read_bytes())["entries"]
        rows = []
        for entry in entries:
            number, name = entry["collective_seq_id"], entry["profiling_name"]
            rows.append([number, name, entry["state"]])
        found[path.name] = rows
    return found


def compared(folder: Path) -> str:
    """What `torchfrtrace` says of the files in a folder."""
    tool = Path(sys.executable).with_name("torchfrtrace")
    done = subprocess.run([str(tool), str(folder)], capture_output=True, text=True)
    return done.stdout + done.stderr


def hung(way: str) -> dict:
    """Run the job, and read its files."""
    with TemporaryDirectory(ignore_cleanup_errors=True) as name:
        settings = {
            "TORCH_NCCL_ASYNC_ERROR_HANDLING": WAYS[way],
            "TORCH_NCCL_DUMP_ON_TIMEOUT": "1",
            "TORCH_FR_DUMP_TEMP_FILE": f"{name}/rank_",
            # the watchdog then sleeps for four times as long, here 20 s
            "TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC": "5000",
        }
        os.environ |= settings
        told = {"item": "nothing", "reached": False} | under_torchrun(__file__)
        for key in settings:
            del os.environ[key]
        ended_s = told.pop("ended_at") - told.pop("failed_at")
        del told["stderr"]
        says = compared(Path(name))
        missing = re.findall(r"missing ranks: \{([\d, ]+)\}", says)
        told |= {"calls": calls(Path(name)), "ended_s": ended_s}
        return told | {"missing": missing[:1], "says": says.replace(name, "FOLDER")}


def main() -> dict:
    result = {}
    for way in WAYS:
        told = hung(way)
        print(f"{way}: after {told['ended_s']:.1f} s, item() gave {told['item']}")
        for rank, rows in told["calls"].items():
            print(f"  {rank}:", *(f"{n} {name} {state};" for n, name, state in rows))
        print("  torchfrtrace: missing ranks", *told["missing"])
        result[way] = told
    return {"ways": result, "limit_s": LIMIT.total_seconds()}


if __name__ == "__main__":
    if "RANK" in os.environ:
        job()
    else:
        main()
