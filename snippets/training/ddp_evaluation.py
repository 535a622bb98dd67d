# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [0]
# exclusive = false
# ///
"""Who evaluates between two epochs: rank 0 alone, or every rank a part of the rows?"""

import json
import os
import re
import tempfile
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.nn  # imported later, by DDP, it keeps gloo's threads alive
import torch.multiprocessing as mp
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

LIMIT = timedelta(seconds=2)  # how long a rank waits for the other
ROWS = torch.arange(40.0).reshape(10, 4) % 7  # ten batches of one row


def step(ddp: nn.Module) -> None:
    """A step of training, which all ranks take."""
    ddp.train()
    ddp.zero_grad()
    ddp(ROWS).square().mean().backward()


def positive(model: nn.Module, rows: Tensor, seconds: float = 0.0) -> int:
    """For how many rows the model gives a positive number, one row after the other."""
    model.eval()
    time.sleep(seconds)
    with torch.no_grad():
        return sum(int((model(row[None]) > 0).sum()) for row in rows)


def wrapped_on_rank_0(ddp: Any) -> int | None:
    return positive(ddp, ROWS) if dist.get_rank() == 0 else None


def module_on_rank_0(ddp: Any) -> int | None:
    return positive(ddp.module, ROWS) if dist.get_rank() == 0 else None


def slow_on_rank_0(ddp: Any) -> int | None:
    """It takes longer than the group's timeout."""
    seconds = 2 * LIMIT.total_seconds()
    return positive(ddp.module, ROWS, seconds) if dist.get_rank() == 0 else None


def on_all_ranks(ddp: Any) -> int:
    """Each rank has every second row; then they add up what they have counted."""
    mine = ROWS[dist.get_rank() :: dist.get_world_size()]
    count = torch.tensor(positive(ddp.module, mine))
    dist.all_reduce(count, group=ddp.process_group)
    return int(count)


WAYS: dict[str, Callable[[Any], int | None]] = {
    "ddp on rank 0": wrapped_on_rank_0,
    "ddp.module on rank 0": module_on_rank_0,
    "ddp.module, slowly": slow_on_rank_0,
    "on all ranks": on_all_ranks,
}


def train(evaluate: Callable[[Any], int | None]) -> dict:
    """A step, an evaluation, a step: what this rank has counted, and its error."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
    ddp = DistributedDataParallel(model, process_group=dist.new_group(timeout=LIMIT))
    told: dict = {"steps": 0, "counted": None}
    try:
        step(ddp)
        told["steps"] = 1
        told["counted"] = evaluate(ddp)
        step(ddp)
        told["steps"] = 2
    except RuntimeError as error:
        told["says"] = str(error)
    return told


def job(rank: int, ranks: int, name: str, folder: Path) -> None:
    """A rank, which writes what it has to tell into files: it may be aborted."""
    with open(folder / f"{rank}.err", "w") as file:
        os.dup2(file.fileno(), 2)
    torch.set_num_threads(1)  # threads do not survive a fork
    store = f"file://{folder}/store"
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=ranks)
    told = train(WAYS[name])
    (folder / f"{rank}.json").write_text(json.dumps(told))
    dist.barrier()
    dist.destroy_process_group()


def on_two_ranks(name: str) -> list[dict]:
    """How each rank ended: its steps, its exit code, the first line of its error."""
    fork = mp.get_context("fork")  # quick; threads and CUDA would not survive it
    with tempfile.TemporaryDirectory() as path:
        folder = Path(path)
        ranks = [fork.Process(target=job, args=(r, 2, name, folder)) for r in range(2)]
        for process in ranks:
            process.start()
        ends = []
        for rank, process in enumerate(ranks):
            process.join()
            file = folder / f"{rank}.json"
            told = json.loads(file.read_text()) if file.exists() else {}
            thrown = re.search(r"what\(\):(.*)", (folder / f"{rank}.err").read_text())
            says = thrown[1] if thrown else told.get("says", "")
            says = re.sub(r"\[[^]]*\][:\d]* ?", "", says.partition("\n")[0])
            says = says.partition(". This is typically")[0].strip()
            ends.append(told | {"says": says, "exit": process.exitcode})
    return ends


def main() -> dict:
    import torch._dynamo  # noqa: F401, DDP imports it: once here, not in each child

    found = {name: on_two_ranks(name) for name in WAYS}
    for name, ranks in found.items():
        for rank, end in enumerate(ranks):
            print(f"{name:<21}rank {rank}: exit code {end['exit']}, {end['says']!r}")
            print(f"{'':<29}steps {end.get('steps')}, counted {end.get('counted')}")
    return {"found": found}


def derive(results: dict) -> dict:
    """By case and rank exit codes and counts; where a rank tells of a mismatch."""
    found = results["found"]
    return {
        "exits": {
            case: [rank["exit"] for rank in ranks] for case, ranks in found.items()
        },
        "counted": {
            case: [rank.get("counted") for rank in ranks]
            for case, ranks in found.items()
        },
        "mismatch": [
            case
            for case, ranks in found.items()
            if "collective mismatch" in ranks[1]["says"]
        ],
    }


if __name__ == "__main__":
    main()
