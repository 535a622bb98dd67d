# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [1, 2]
# timeout = 240
# ///
"""A training step under DDP as a CUDA graph: after how many steps may it be captured?"""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from snippets.timing.take_turns import ratios, recorded, take_turns

LAYERS, WIDTH, ROWS, STEPS, LIMIT_S = 24, 256, 64, 5, 60
#: steps in the side stream before the capture; PyTorch's notes ask for eleven
WARMUPS = (0, 1, 3, 11)


def network(device: str) -> tuple[nn.Module, Tensor, Tensor]:
    """Small layers, the same in each process, and a batch of this rank."""
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for _ in range(LAYERS):
        layers += [nn.Linear(WIDTH, WIDTH), nn.ReLU()]
    net = nn.Sequential(*layers).to(device)
    torch.manual_seed(1 + dist.get_rank())
    x, y = torch.randn(2, ROWS, WIDTH)
    return net, x.to(device), y.to(device)


def training(device: str) -> tuple[nn.Module, Callable[[], None]]:
    """A wrapped network, and a step that keeps the addresses of its gradients."""
    net, x, y = network(device)
    ddp = DistributedDataParallel(net, gradient_as_bucket_view=True)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

    def step() -> None:
        optimizer.zero_grad(set_to_none=False)
        nn.functional.mse_loss(ddp(x), y).backward()
        optimizer.step()

    return net, step


def captured(warmups: int) -> tuple[nn.Module, Callable[[], None]]:
    """A step under DDP as a graph; all ranks capture it, and replay it alike.

    DDP is made, warmed up and captured in one side stream. "thread_local": NCCL's
    watchdog may go on calling CUDA from its own thread. Drop the graph before the group.
    """
    aside = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        net, step = training("cuda")
        for _ in range(warmups):
            step()
    aside.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=aside, capture_error_mode="thread_local"):
        step()
    return net, graph.replay


def weights(net: nn.Module) -> Tensor:
    return torch.cat([p.detach().flatten() for p in net.parameters()])


def trained(warmups: int) -> dict:
    """Weights after as many steps as without a graph, and how long a step takes."""
    expected, eager = training("cuda")
    for _ in range(warmups + STEPS):
        eager()
    net, replay = captured(warmups)
    for _ in range(STEPS):
        replay()
    torch.cuda.synchronize()
    difference = float((weights(net) - weights(expected)).abs().max())
    turns = take_turns({"eager": eager, "graph": replay}, 2, 9, 10)
    faster = ratios(turns["eager"], turns["graph"])
    row = {"says": "", "differs_by": difference} | recorded(turns, "us")
    return row | {"faster": median(faster), "faster_trials": faster}


def rank_main(rank: int, ranks: int, warmups: int, folder: str) -> None:
    """One rank of a job: what it found is in a file of the folder."""
    torch.cuda.set_device(rank)  # on one node; else LOCAL_RANK
    meet = f"file://{folder}/store"
    dist.init_process_group("nccl", meet, rank=rank, world_size=ranks)
    try:
        found = trained(warmups)
    except RuntimeError as error:
        found = {"says": str(error).partition("\n")[0]}
    Path(folder, str(rank)).write_text(json.dumps(found))
    os._exit(0)  # after a failed capture the group may not end


def job(warmups: int, ranks: int) -> list[dict]:
    """What each rank of a job of its own finds: a failed capture spoils a process."""
    found = []
    with TemporaryDirectory() as folder:
        children = []
        for rank in range(ranks):
            told = [str(rank), str(ranks), str(warmups), folder]
            children.append(subprocess.Popen([sys.executable, __file__, *told]))
        for rank, child in enumerate(children):
            row = {"says": "", "exit": None}
            try:
                row["exit"] = child.wait(LIMIT_S)
            except subprocess.TimeoutExpired:
                child.kill()
                row["says"] = f"hangs for {LIMIT_S} s"
            if Path(folder, str(rank)).exists():
                row |= json.loads(Path(folder, str(rank)).read_text())
            found.append(row)
    return found


def main() -> dict:
    ranks = torch.cuda.device_count()
    found = {str(count): job(count, ranks) for count in WARMUPS}
    for count, rows in found.items():
        row = rows[0]
        words = row["says"] or f"exit code {row['exit']}"
        if "faster" in row:
            words = (
                f"{row['us']['eager']:.0f} µs, as a graph {row['us']['graph']:.0f}; "
            )
            words += f"weights differ by {row['differs_by']:.1g}"
        print(f"captured after {count:>2} steps: {words}")
    return {"ranks": ranks, "warmups": WARMUPS, "steps": STEPS, "found": found}


def derive(results: dict) -> dict:
    """After how many steps all ranks are refused, or train as without a graph."""
    refused, alike = [], []
    for count, rows in results["found"].items():
        if all("during capture" in row["says"] for row in rows):
            refused.append(int(count))
        if all(row.get("differs_by") == 0 for row in rows):
            alike.append(int(count))
    return {"refused": sorted(refused), "alike": sorted(alike)}


if __name__ == "__main__":
    if len(sys.argv) == 5:
        rank_main(int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
    else:
        main()
