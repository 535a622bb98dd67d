# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [0, 2, 4, 8]
# launcher = "torchrun"
# ranks = 2
# [tool.overlap.missing]
# 8 = "not recorded yet"
# ///
"""Are DDP's gradients those of one device? A test that fails without an all-reduce."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

WIDTH, ROWS = 256, 512  # rows for each rank


def gradients(model: nn.Module, rows: torch.Tensor) -> list[torch.Tensor]:
    """Gradients of the mean loss over these rows, a tensor for each parameter."""
    model.zero_grad()
    model(rows).square().mean().backward()
    return [parameter.grad.clone() for parameter in model.parameters()]


def farthest(found: list[torch.Tensor], expected: list[torch.Tensor]) -> float:
    """Largest error in any tensor, as a share of the largest entry of that tensor.

    Of finite numbers, and no tensor all zero: `max` may pass over a NaN.
    """
    pairs = zip(found, expected, strict=True)
    return max(float((f - e).abs().max() / e.abs().max()) for f, e in pairs)


def unlike_rows(ranks: int, device: torch.device) -> torch.Tensor:
    """Rows (ranks * ROWS, WIDTH) for all ranks; those of rank r have scale r + 1."""
    rows = torch.randn(ranks, ROWS, WIDTH, generator=torch.Generator().manual_seed(0))
    scales = torch.arange(1.0, ranks + 1).reshape(ranks, 1, 1)
    return (scales * rows).flatten(0, 1).to(device)


def of_all_ranks(number: float, device: torch.device) -> list[float]:
    """This number of every rank, in the order of the ranks."""
    numbers = torch.zeros(dist.get_world_size(), device=device)
    numbers[dist.get_rank()] = number
    dist.all_reduce(numbers)
    return numbers.tolist()


def main() -> dict:
    import torch.distributed.nn  # later, by DDP, it keeps gloo's threads alive

    device = torch.device("cpu")
    if torch.cuda.is_available():
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    torch.manual_seed(0)
    layers = nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH)
    model = nn.Sequential(*layers).to(device)
    rows = unlike_rows(dist.get_world_size(), device)
    expected = gradients(model, rows)  # one device, the whole batch
    mine = rows.chunk(dist.get_world_size())[dist.get_rank()]
    ddp, error = DistributedDataParallel(model), {}
    error["ddp"] = of_all_ranks(farthest(gradients(ddp, mine), expected), device)
    with ddp.no_sync():  # the broken twin: nothing is exchanged
        alone = gradients(ddp, mine)
    error["no_sync"] = of_all_ranks(farthest(alone, expected), device)
    if dist.get_rank() == 0:
        for way, errors in error.items():
            print(f"{way:<8}", *(f"rank {r}: {e:.1e}" for r, e in enumerate(errors)))
    del ddp  # it holds the group, whose end must not wait for main() to end
    dist.destroy_process_group()
    return {"ranks": len(error["ddp"]), "error": error}


if __name__ == "__main__":
    main()
