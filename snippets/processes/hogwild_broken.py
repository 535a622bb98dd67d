# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [0]
# exclusive = false
# timeout = 240
# ///
"""Broken on purpose: train a shared model in four processes, and read no exit code.

After Puneet Grover's notebook; MIT licence, (c) 2018 Puneet Grover.
"""

import io
import sys

import torch
import torch.multiprocessing as mp
from torch import nn

WORKERS, BATCH = 4, 32
loss_fun = nn.BCELoss()


def rows() -> tuple[torch.Tensor, torch.Tensor]:
    """10,000 rows of 20 features, and for each 0 or 1, as a plane divides them."""
    torch.manual_seed(0)
    x, normal = torch.randn(10_000, 20), torch.randn(20)
    return x, (x @ normal > 0).float()


def network() -> nn.Sequential:
    """A small network: the probability of a 1."""
    layers = nn.Linear(20, 15), nn.ReLU(), nn.Linear(15, 1), nn.Sigmoid()
    return nn.Sequential(*layers, nn.Flatten(0))


def train(model: nn.Module) -> None:
    """In a child: one pass over all rows, in an order of its own."""
    sys.stderr = io.StringIO()  # as in a notebook that shows no child's traceback
    torch.set_num_threads(1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, nesterov=True)
    x, y = rows()
    torch.seed()
    for batch in torch.randperm(len(x)).split(BATCH):
        optimizer.zero_grad()
        loss_fn(model(x[batch]), y[batch]).backward()  # noqa: F821
        optimizer.step()  # writes into the shared parameters


@torch.no_grad()
def error(model: nn.Module) -> float:
    """Share of the rows that the model gets wrong."""
    x, y = rows()
    return ((model(x) > 0.7) != y).float().mean().item()  # 0.7, as in the notebook


def main() -> dict:
    torch.manual_seed(1)
    model, context = network().share_memory(), mp.get_context("spawn")
    children = [context.Process(target=train, args=(model,)) for _ in range(WORKERS)]
    for child in children:
        child.start()
    for child in children:
        child.join()
    result = {"workers": WORKERS, "error": error(model)}
    print(f"trained by {WORKERS} processes, error {result['error']:.4f}")
    return result | {"exit_codes": [child.exitcode for child in children]}  # unread


if __name__ == "__main__":
    main()
