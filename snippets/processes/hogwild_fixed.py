# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [0]
# exclusive = false
# timeout = 360
# ///
"""Fixed: train a shared model in four processes; a child that dies is an error.

After Puneet Grover's notebook; MIT licence, (c) 2018 Puneet Grover.
"""

import torch
import torch.multiprocessing as mp
from torch import nn

from snippets.processes.hogwild_broken import BATCH, WORKERS, error, network, rows


def train(index: int, model: nn.Module, loss_fun) -> None:
    """In a child: one pass over all rows, in an order of its own."""
    torch.set_num_threads(1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, nesterov=True)
    x, y = rows()
    torch.manual_seed(index)
    for batch in torch.randperm(len(x)).split(BATCH):
        optimizer.zero_grad()
        loss_fun(model(x[batch]), y[batch]).backward()
        optimizer.step()  # writes into the shared parameters


def main() -> dict:
    torch.manual_seed(1)
    model = network().share_memory()
    result = {"workers": WORKERS, "error_before": error(model)}
    try:
        mp.spawn(train, (model, None))  # None is no loss: the child dies
    except mp.ProcessRaisedException as raised:
        result["raised"] = str(raised).strip().splitlines()[-1]
    print(f"a child with a mistake: {result['raised']}")
    mp.spawn(train, (model, nn.BCELoss()), nprocs=WORKERS)
    result["error"] = error(model)
    torch.manual_seed(1)
    alone = network()
    for index in range(WORKERS):
        train(index, alone, nn.BCELoss())
    result["error_alone"] = error(alone)
    for name in ("error_before", "error", "error_alone"):
        print(f"{name:<13}{result[name]:.4f}")
    return result


if __name__ == "__main__":
    main()
