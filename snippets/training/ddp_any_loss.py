# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [0, 2, 4, 8]
# launcher = "torchrun"
# ranks = 2
# timeout = 120
# take = ["train"]
# [tool.overlap.missing]
# 2 = "not recorded yet"
# 4 = "not recorded yet"
# 8 = "not recorded yet"
# ///
"""DDP to take home: with a loss, an optimizer and batches of your own."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.nn  # imported later, by DDP, it keeps gloo's threads alive
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import (
    DataLoader,
    Dataset,
    DistributedSampler,
    IterableDataset,
    TensorDataset,
)

from snippets.training.ddp_minimal import join


def check_shapes(output: object, y: object) -> None:
    """ValueError for an output and a y that a loss would spread over each other.

    Of an output (N, 1) and a y (N,) many losses make N × N differences. So shapes are
    refused that differ in sides of 1 alone; all others are for the loss to judge.
    """
    if not isinstance(output, Tensor) or not isinstance(y, Tensor):
        return
    sides = [[side for side in each.shape if side != 1] for each in (output, y)]
    if sides[0] != sides[1]:
        return
    try:
        spread = torch.broadcast_shapes(output.shape, y.shape)
    except RuntimeError:  # nothing is spread
        return
    if spread.numel() > max(output.numel(), y.numel()):
        given = f"the model gives {tuple(output.shape)}, and y is {tuple(y.shape)}"
        raise ValueError(f"{given}; give y the shape of the output, or classes")


def train(
    model: nn.Module,
    data: Dataset[Any],
    device: torch.device,
    epochs: int,
    loss: Callable[[Any, Any], Tensor],
    optimizer: Callable[[Iterator[nn.Parameter]], torch.optim.Optimizer],
    batch_size: int,
    **ddp: Any,
) -> list[float]:
    """Train the model in place; the mean of this rank's losses in each epoch.

    Each rank of a group calls it. `data` holds pairs of tensors x, y; `loss` is that
    of an output and its y; `optimizer` makes one for the parameters it gets, as
    `partial(torch.optim.AdamW, lr=1e-3)` does; `batch_size` is the rows of one rank.
    Other arguments are for DDP, such as `find_unused_parameters=True`. The ranks share
    the rows; where these do not divide evenly, some are used twice. An IterableDataset
    gives each rank rows of its own, and as many batches as all others. Afterwards the
    model is in training mode.
    """
    model = DistributedDataParallel(model.to(device), **ddp)  # rank 0's weights for all
    model.train()
    sampler: DistributedSampler[Any] | None = None
    if not isinstance(data, IterableDataset):
        sampler = DistributedSampler(data)  # other rows for each rank
    loader = DataLoader(data, batch_size=batch_size, sampler=sampler)
    steps = optimizer(model.parameters())
    means = []
    for epoch in range(epochs):
        if sampler is not None:
            sampler.set_epoch(epoch)  # else every epoch has the order of the first
        losses = []
        for x, y in loader:
            steps.zero_grad()
            output, y = model(x.to(device)), y.to(device)
            check_shapes(output, y)
            error = loss(output, y)
            error.backward()  # averages the gradients of all ranks
            steps.step()  # so every rank takes the same step
            losses.append(error.detach())
        if not losses:
            raise ValueError("the data has no row for this rank")
        means.append(torch.stack(losses).mean().item())
    return means


def next_token(output: Tensor, y: Tensor) -> Tensor:
    """The loss of a language model: scores (texts, tokens, vocabulary), the next tokens."""
    return nn.functional.cross_entropy(output.flatten(0, 1), y.flatten())


def main() -> dict:
    device = join()
    x = torch.randn(1024, 8, generator=torch.Generator().manual_seed(0))
    sums = x @ torch.ones(8, 1)
    adam = partial(torch.optim.Adam, lr=0.03)
    train_ten = partial(train, device=device, epochs=10, optimizer=adam, batch_size=64)
    squares = nn.functional.mse_loss
    texts = torch.arange(1024 * 8).view(1024, 8) % 10  # they count
    language = nn.Sequential(nn.Embedding(10, 16), nn.Linear(16, 10))
    classes = (sums[:, 0] > 0).long()
    trainings = {
        "squares": (nn.Linear(8, 1), x, sums, squares),
        "classes": (nn.Linear(8, 2), x, classes, nn.CrossEntropyLoss()),
        "texts": (language, texts, (texts + 1) % 10, next_token),
    }
    result: dict = {"ranks": dist.get_world_size(), "loss": {}}
    for name, (model, rows, y, loss) in trainings.items():
        losses = train_ten(model, TensorDataset(rows, y), loss=loss)
        result["loss"][name] = losses
        print(f"{name:8} loss {losses[0]:.3f}, then {losses[-1]:.3f}")
    try:
        train_ten(nn.Linear(8, 1), TensorDataset(x, sums[:, 0]), loss=squares)
    except ValueError as error:
        result["refused"] = str(error)
        print(f"refused  {error}")
    dist.destroy_process_group()
    return result


if __name__ == "__main__":
    main()
