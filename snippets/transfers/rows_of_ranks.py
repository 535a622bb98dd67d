# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [0]
# exclusive = false
# timeout = 180
# launcher = "torchrun"
# ranks = 4
# take = ["Dealt", "sampler_of"]
# take_on_cpu = ["Dealt", "sampler_of"]
# ///
"""Each row once: a stream dealt out to ranks and workers, and a sampler for a mesh."""

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, Generic, TypeVar

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.utils.data import (
    DataLoader,
    Dataset,
    DistributedSampler,
    IterableDataset,
    get_worker_info,
)

ROWS, WORKERS = 30, 2
Row = TypeVar("Row")


class Dealt(IterableDataset, Generic[Row]):  # type: ignore
    """The rows of `source` that are this process's; each row goes to one process.

    All workers of all ranks take turns. Every one reads the whole source and keeps its
    own rows, in order. `source` is read anew in each epoch, and gives all processes the
    same rows in the same order; an iterator, which ends for ever, is a ValueError. With
    `equal` rows at the end are left out, so that each rank has as many if all have as
    many workers. Give `rank` and `ranks` here: a worker that was not forked has no
    process group. If GPUs share a batch, as in tensor parallel, they are the numbers of
    the mesh's other dimension.
    """

    def __init__(
        self, source: Iterable[Row], rank: int, ranks: int, equal: bool = False
    ) -> None:
        if isinstance(source, Iterator):
            raise ValueError("an iterator gives its rows in one epoch only")
        self.source, self.equal = source, equal
        self.rank, self.ranks = rank, ranks

    def __iter__(self) -> Iterator[Row]:
        worker = get_worker_info()
        workers, number = (worker.num_workers, worker.id) if worker else (1, 0)
        readers, mine = self.ranks * workers, self.rank * workers + number
        turn: list[Row] = []
        for row in self.source:
            turn.append(row)
            if len(turn) == readers:
                yield turn[mine]
                turn.clear()
        if mine < len(turn) and not self.equal:
            yield turn[mine]


class AsItIs(IterableDataset):
    """Whoever iterates gets all rows."""

    def __iter__(self) -> Iterator[int]:
        return iter(range(ROWS))


class ByRank(IterableDataset):
    """Dealt out to ranks, and not to their workers."""

    def __init__(self, rank: int, ranks: int) -> None:
        self.rank, self.ranks = rank, ranks

    def __iter__(self) -> Iterator[int]:
        return islice(range(ROWS), self.rank, None, self.ranks)


def sampler_of(
    data: Dataset[Any], mesh: DeviceMesh, **options: Any
) -> DistributedSampler[Any]:
    """Rows by the place in a mesh of one dimension: that over which batches differ.

    By default a sampler counts all ranks. Those that share a layer would get other rows.
    """
    return DistributedSampler(
        data, num_replicas=mesh.size(), rank=mesh.get_local_rank(), **options
    )


def seen(loader: Iterable[Any]) -> list[list[int]]:
    """The rows of each rank, by what its loader gives."""
    rows = [int(row) for row in loader]
    each: list[list[int]] = [[] for _ in range(dist.get_world_size())]
    dist.all_gather_object(each, rows)
    return each


def counted(each: list[list[int]]) -> dict[str, Any]:
    """How often a row was given, and how many rows each rank has."""
    times = Counter(row for rows in each for row in rows)
    return {
        "least": min(times[row] for row in range(ROWS)),
        "most": max(times.values()),
        "of_ranks": [len(rows) for rows in each],
    }


def main() -> dict:
    torch.set_num_threads(1)  # threads do not survive a fork
    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    source, streams = range(ROWS), {}
    ways = {
        "as it is": AsItIs(),
        "by rank": ByRank(rank, ranks),
        "dealt": Dealt(source, rank, ranks),
        "dealt, equal": Dealt(source, rank, ranks, equal=True),
    }
    for name, rows in ways.items():
        loader = DataLoader(rows, batch_size=None, num_workers=WORKERS)
        streams[name] = counted(seen(loader))
    mesh = init_device_mesh("cpu", (ranks // 2, 2), mesh_dim_names=("data", "tensor"))
    data: Any = list(range(ROWS))
    samplers = {
        "default": DistributedSampler(data, shuffle=False),
        "mesh": sampler_of(data, mesh["data"], shuffle=False),
    }
    pairs = {}
    for name, sampler in samplers.items():
        each = seen(sampler)
        # ranks 0 and 1 split layers, and so do 2 and 3
        alike = [each[i] == each[i + 1] for i in range(0, ranks, 2)]
        pairs[name] = {"alike": all(alike), **counted(each[::2])}
    if rank == 0:
        for name, row in (streams | pairs).items():
            times = f"each row {row['least']} to {row['most']} times"
            print(f"{name:<13}{times}, rows of ranks {row['of_ranks']}")
    dist.destroy_process_group()
    result = {"rows": ROWS, "workers": WORKERS, "ranks": ranks}
    return result | {"streams": streams, "samplers": pairs}


if __name__ == "__main__":
    main()
