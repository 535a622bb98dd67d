# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [0]
# timeout = 120
# ///
"""Two torchrun agents, as on two machines, start one job of four ranks between them."""

import json
import os
import socket
import subprocess
import sys
from multiprocessing.pool import ThreadPool

import torch
import torch.distributed as dist


def job() -> None:
    """What each rank does; nothing in it knows how many machines there are."""
    dist.init_process_group("gloo")
    x = torch.tensor(dist.get_rank())
    dist.all_reduce(x)
    keys = ("GROUP_RANK", "LOCAL_RANK", "RANK", "WORLD_SIZE")
    told = {key.lower(): int(os.environ[key]) for key in keys} | {"sum": x.item()}
    # torchrun's ranks share an unbuffered pipe: one write keeps a line whole
    print(f"{json.dumps(told)}\n", end="")
    dist.destroy_process_group()


def agent(endpoint: str) -> str:
    """What you type on each of two machines; what its ranks print."""
    options = ["--nnodes=2", "--nproc-per-node=2", "--rdzv-backend=c10d"]
    options += [f"--rdzv-endpoint={endpoint}", "--local-addr=localhost"]
    torchrun = [sys.executable, "-m", "torch.distributed.run", *options, __file__]
    env = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.check_output(torchrun, env=env, text=True, timeout=100)


def main() -> dict:
    with socket.create_server(("localhost", 0)) as free:
        endpoint = f"localhost:{free.getsockname()[1]}"
    with ThreadPool(2) as pool:
        lines = "".join(pool.map(agent, [endpoint] * 2)).splitlines()
    ranks = sorted(map(json.loads, lines), key=lambda told: told["rank"])
    print(*ranks, sep="\n")
    return {"ranks": ranks}


def derive(results: dict) -> dict:
    """What the ranks say, by name, in their order."""
    ranks = results["ranks"]
    names = ("rank", "local_rank", "group_rank", "sum", "world_size")
    return {"each": {name: [rank[name] for rank in ranks] for name in names}}


if __name__ == "__main__":
    if "RANK" in os.environ:
        job()
    else:
        main()
