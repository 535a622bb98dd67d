# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [0]
# exclusive = false
# timeout = 180
# ///
"""One seed on all ranks, or one for each: are dropout's masks and the loader's random numbers alike?"""

import tempfile
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.nn  # imported later, by DDP, it keeps gloo's threads alive
import torch.multiprocessing as mp
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

SEED, RANKS, WORKERS, ROWS, UNITS = 7, 2, 2, 8, 1000


class Augmented(Dataset[Tensor]):
    """Rows that a worker changes by a random number, here the number itself."""

    def __len__(self) -> int:
        return ROWS

    def __getitem__(self, row: int) -> Tensor:
        return torch.rand(())


def drawn(offset: int) -> dict[str, Tensor]:
    """What this rank draws after `manual_seed(SEED + offset)`: dropout's mask, and its workers' numbers.

    Both are gathered from all ranks, one row for each: of shapes (RANKS, UNITS) and (RANKS, ROWS).
    """
    ddp = DistributedDataParallel(nn.Sequential(nn.Linear(4, UNITS), nn.Dropout(0.5)))
    torch.manual_seed(SEED + offset)
    mask = (ddp(torch.ones(1, 4)) != 0)[0].float()
    numbers = torch.stack(
        list(DataLoader(Augmented(), batch_size=None, num_workers=WORKERS))
    )
    found = {}
    for name, mine in (("mask", mask), ("numbers", numbers)):
        rows = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
        dist.all_gather(rows, mine)
        found[name] = torch.stack(rows)
    return found


def alike(rows: Tensor) -> float:
    """The share of columns in which all rows are equal."""
    return (rows == rows[0]).all(dim=0).float().mean().item()


def job(rank: int, ranks: int, folder: str, answers: Any) -> None:
    """A rank; the first one answers."""
    torch.set_num_threads(1)  # threads do not survive a fork
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=ranks
    )
    told = {}
    for name, offset in (("one seed", 0), ("seed + rank", rank)):
        told[name] = {what: alike(rows) for what, rows in drawn(offset).items()}
    if rank == 0:
        answers.put(told)
    dist.barrier()
    dist.destroy_process_group()


def on_ranks(ranks: int = RANKS) -> dict[str, dict[str, float]]:
    """What is alike on all ranks, as a share, by how they are seeded."""
    fork = mp.get_context("fork")  # quick; threads and CUDA would not survive it
    answers = fork.SimpleQueue()
    with tempfile.TemporaryDirectory() as folder:
        processes = [
            fork.Process(target=job, args=(rank, ranks, folder, answers))
            for rank in range(ranks)
        ]
        for process in processes:
            process.start()
        for process in processes:
            process.join()
    ends = [process.exitcode for process in processes]
    if any(ends):
        raise RuntimeError(f"the ranks ended with exit codes {ends}")
    return answers.get()


def main() -> dict:
    shares = on_ranks()
    for name, share in shares.items():
        print(
            f"{name:12} alike: {share['mask']:.0%} of the mask, {share['numbers']:.0%} of the numbers"
        )
    return {
        "ranks": RANKS,
        "workers": WORKERS,
        "rows": ROWS,
        "units": UNITS,
        "alike": shares,
    }


if __name__ == "__main__":
    main()
