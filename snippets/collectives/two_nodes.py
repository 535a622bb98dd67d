# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11"]
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

import torch
import torch.distributed as dist

from snippets.collectives.ring_by_hand import ring_all_reduce


def job() -> None:
    """What each rank does; nothing in it knows how many machines there are."""
    dist.init_process_group("gloo")
    x = torch.arange(1000) + dist.get_rank()
    expected = x.clone()
    dist.all_reduce(expected)
    ring_all_reduce(x)
    names = {"node": "GROUP_RANK", "local_rank": "LOCAL_RANK", "rank": "RANK"}
    told = {name: int(os.environ[key]) for name, key in names.items()}
    print(
        json.dumps(told | {"ranks": dist.get_world_size(), "equal": x.equal(expected)})
    )
    dist.destroy_process_group()


def agent(endpoint: str, file: str) -> subprocess.Popen:
    """What you type on each of two machines; multiprocessing is torchrun's part."""
    options = ["--nnodes=2", "--nproc-per-node=2", "--rdzv-backend=c10d"]
    options += [f"--rdzv-endpoint={endpoint}", "--local-addr=localhost"]
    torchrun = [sys.executable, "-m", "torch.distributed.run", *options, file]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        torchrun, env=environment, stdout=subprocess.PIPE, text=True
    )


def main() -> dict:
    with socket.create_server(("localhost", 0)) as free:
        endpoint = f"localhost:{free.getsockname()[1]}"
    agents = [agent(endpoint, __file__) for _ in range(2)]
    try:
        outputs = [each.communicate(timeout=100)[0] for each in agents]
    finally:
        for each in agents:
            each.terminate()  # and it ends its ranks
    lines = "".join(outputs).splitlines()
    ranks = sorted(map(json.loads, lines), key=lambda told: told["rank"])
    for told in ranks:
        print(*(f"{name} {value}" for name, value in told.items()), sep=", ")
    return {"agents": len(agents), "ranks": ranks}


if __name__ == "__main__":
    if "RANK" in os.environ:
        job()
    else:
        main()
