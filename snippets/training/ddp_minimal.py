# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [0, 2, 4, 8]
# launcher = "torchrun"
# ranks = 2
# take = ["join"]
# [tool.overlap.missing]
# 8 = "not recorded yet"
# ///
"""Train with DistributedDataParallel: all that it takes, from start to end."""

import os

import torch
import torch.distributed as dist
import torch.distributed.nn  # imported later, by DDP, it keeps gloo's threads alive
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler, TensorDataset


def join() -> torch.device:
    """Join the group of processes that torchrun has started; this rank's device.

    A CUDA GPU, or without one the CPU. End with `dist.destroy_process_group()`.
    """
    device = torch.device("cpu")
    if torch.cuda.is_available():
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)  # before anything else touches a GPU
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    return device


def train(
    model: nn.Module, data: Dataset, device: torch.device, epochs: int
) -> list[float]:
    """Train the model in place; this rank's mean loss in each epoch.

    `data` holds pairs x, y of the shapes that the model takes and gives: a y of shape
    (N,) beside an output (N, 1) would train on the wrong numbers, and torch only warns.
    Loss, batch size and learning rate are those of the example: set your own.
    """
    model = DistributedDataParallel(model.to(device))  # all ranks get rank 0's weights
    # another part of the rows for each rank
    sampler: DistributedSampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=32, sampler=sampler)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    means = []
    for epoch in range(epochs):
        sampler.set_epoch(epoch)  # else every epoch has the order of the first
        losses = []
        for x, y in loader:
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(x.to(device)), y.to(device))
            loss.backward()  # averages the gradients of all ranks
            optimizer.step()  # so every rank takes the same step
            losses.append(loss.detach())
        means.append(torch.stack(losses).mean().item())
    return means


def main() -> dict:
    device = join()
    x = torch.randn(1024, 8, generator=torch.Generator().manual_seed(0))
    data = TensorDataset(x, x @ torch.ones(8, 1))
    torch.manual_seed(dist.get_rank())  # weights that differ, to see them made equal
    model = nn.Linear(8, 1)
    losses = train(model, data, device, epochs=5)
    weights = [torch.empty_like(model.weight) for _ in range(dist.get_world_size())]
    dist.all_gather(weights, model.weight.detach())
    apart = float((torch.stack(weights) - weights[0]).abs().max())
    print(f"rank {dist.get_rank()}: loss {losses[0]:.3f}, then {losses[-1]:.1e}")
    dist.destroy_process_group()
    return {"ranks": len(weights), "loss": losses, "weights_differ_by": apart}


if __name__ == "__main__":
    main()
