# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [0, 2, 4, 8]
# timeout = 120
# launcher = "torchrun"
# ranks = 2
# ///
"""What each collective leaves on each rank: before and after."""

import os

import torch
import torch.distributed as dist

from snippets.pictures import Cells, Panel, Picture

# PyTorch 2.13 gives them these names, and warns of those before
all_gather = getattr(dist, "all_gather_single", dist.all_gather_into_tensor)
reduce_scatter = getattr(dist, "reduce_scatter_single", dist.reduce_scatter_tensor)


def join() -> torch.device:
    """Join the ranks that torchrun has started; this rank's device."""
    if not torch.cuda.is_available():
        dist.init_process_group("gloo")
        return torch.device("cpu")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)  # before anything else touches a GPU
    dist.init_process_group("nccl", device_id=device)
    return device


def after_each(x: torch.Tensor) -> dict[str, torch.Tensor]:
    """What this rank holds after each collective on x, one element for each rank."""
    n, root = dist.get_world_size(), dist.get_rank() == 0
    held = {name: x.clone() for name in ("broadcast", "reduce", "all_reduce")}
    dist.broadcast(held["broadcast"], src=0)
    dist.reduce(held["reduce"], dst=0)
    dist.all_reduce(held["all_reduce"])
    for name, size in {"scatter": 1, "gather": n * n, "all_gather": n * n}.items():
        held[name] = x.new_zeros(size)
    dist.scatter(held["scatter"], list(x.split(1)) if root else None, src=0)
    dist.gather(x, list(held["gather"].split(n)) if root else None, dst=0)
    all_gather(held["all_gather"], x)
    held |= {"reduce_scatter": x.new_zeros(1), "all_to_all": torch.zeros_like(x)}
    reduce_scatter(held["reduce_scatter"], x)
    dist.all_to_all_single(held["all_to_all"], x)
    for name in () if root else ("reduce", "gather"):
        held[name] = x.new_zeros(0)  # the result is on rank 0 alone
    return held


def main() -> dict:
    device = join()
    rank, ranks = dist.get_rank(), dist.get_world_size()
    x = 10 * (rank + 1) + torch.arange(ranks, device=device)
    held = {"before": x.tolist()}
    held |= {name: tensor.tolist() for name, tensor in after_each(x).items()}
    for name, values in held.items():
        print(f"{name:<15} rank {rank}:", *values or "–")
    every = [None] * ranks
    dist.all_gather_object(every, held)
    dist.destroy_process_group()
    return {"ranks": ranks} | {name: [each[name] for each in every] for name in held}


def derive(results: dict) -> dict:
    """Whether each collective is what others would give."""
    ranks, reduced = range(results["ranks"]), results["all_reduce"]
    parts, gathered = results["reduce_scatter"], results["all_gather"]
    firsts = [row[0] for row in results["before"]]
    scattered = [row[0] for row in results["scatter"]]
    whole = [value for part in parts for value in part]
    return {
        "agree": {
            "reduce_scatter": [reduced[rank][rank] for rank in ranks]
            == [part[0] for part in parts],
            "all_reduce": all(each == whole for each in reduced),
            "all_gather": all(each == results["gather"][0] for each in gathered),
            "scatter": scattered == results["before"][0],
            "all_to_all": results["all_to_all"][0] == firsts,
        }
    }


def plot(results: dict, ceilings: dict):
    ranks = results["ranks"]

    def color(value: int | None) -> int | str:
        """Rank 0 had 10, 11 …, rank 1 had 20, 21 …; what is larger than all is a sum."""
        rank = (value or 0) // 10 - 1
        return rank % 6 + 1 if rank < ranks else "ceiling"

    names = ["before", "broadcast", "scatter", "gather", "reduce"]
    names += ["all_reduce", "all_gather", "reduce_scatter", "all_to_all"]
    rows = [name.replace("_", "-") for name in names]
    panels = []
    for rank in (0, ranks - 1):
        held = [results[name][rank] or [] for name in names]
        values = [row + [None] * (ranks**2 - len(row)) for row in held]
        colors = [[color(value) for value in row] for row in values]
        texts = [[str(v) if v and ranks == 2 else "" for v in row] for row in values]
        look = {"texts": texts, "colors": colors}
        cells = Cells([""] * ranks**2, rows, values, **look)
        panels.append(Panel([cells], title=f"rank {rank}"))
    return Picture(panels, columns=2)


if __name__ == "__main__":
    main()
