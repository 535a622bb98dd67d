# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [0]
# timeout = 900
# exclusive = false
# ///
"""Train a small network with larger batches: what remains of its accuracy?"""

from itertools import pairwise
from statistics import median

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from snippets.pictures import sweep

ROWS, TESTED, EPOCHS = 2**14, 2**13, 10
BATCHES, RATE = [64, 128, 256, 1024, 4096], 0.1  # the rate of the first batch
SEEDS = 3


def labelled(rows: int) -> tuple[Tensor, Tensor]:
    """Random inputs; a random network of one hidden layer gives each its class."""
    torch.manual_seed(0)
    x = torch.randn(rows, 20)
    scores = (x @ torch.randn(20, 64)).relu() @ torch.randn(64, 10)
    return x, (scores - scores.mean(0)).argmax(1)


def network() -> nn.Module:
    first, middle, last = nn.Linear(20, 128), nn.Linear(128, 128), nn.Linear(128, 10)
    return nn.Sequential(first, nn.ReLU(), middle, nn.ReLU(), last)


def train(
    x: Tensor, y: Tensor, batch: int, rate: float, seed: int, epochs: int
) -> list[float]:
    """Its accuracy after each of the last five epochs, on rows that it never saw."""
    torch.manual_seed(seed)
    net, accuracies = network(), []
    sgd = torch.optim.SGD(net.parameters(), lr=rate)
    for _ in range(epochs):
        for rows in torch.randperm(ROWS).split(batch):
            sgd.zero_grad()
            cross_entropy(net(x[rows]), y[rows]).backward()
            sgd.step()
        with torch.no_grad():
            right = net(x[ROWS:]).argmax(1) == y[ROWS:]
        accuracies.append(right.float().mean().item())
    return accuracies[-5:]


def main() -> dict:
    torch.set_num_threads(1)
    x, y = labelled(ROWS + TESTED)
    ways: dict[str, list[list[list[float]]]] = {
        "same rate": [],
        "rate scaled": [],
        "same steps": [],
    }
    for batch in BATCHES:
        times = batch // BATCHES[0]
        settings = {"same rate": (RATE, EPOCHS), "rate scaled": (times * RATE, EPOCHS)}
        if batch <= 1024:
            settings["same steps"] = (RATE, times * EPOCHS)
        for way, (rate, epochs) in settings.items():
            trials = [train(x, y, batch, rate, seed, epochs) for seed in range(SEEDS)]
            ways[way].append(trials)
            last = ", ".join(f"{trial[-1]:.3f}" for trial in trials)
            print(f"batch {batch:4}, {way:<11} accuracy {last}")
    result = {"batches": BATCHES, "epochs": EPOCHS, "epochs_trials": ways}
    result["accuracy"] = {
        way: [median(trial[-1] for trial in trials) for trials in each]
        for way, each in ways.items()
    }
    return result


def derive(results: dict) -> dict:
    """What each larger batch costs at the same rate, and how far accuracy moves.

    `swing` is over the last five epochs of a run, with the seed of most.
    """
    same = results["accuracy"]["same rate"]
    derived: dict = {"falls": [a - b for a, b in pairwise(same)]}
    if "epochs_trials" in results:
        derived["swing"] = {
            way: [max(max(trial) - min(trial) for trial in trials) for trials in each]
            for way, each in results["epochs_trials"].items()
        }
    return derived


def plot(results: dict, ceilings: dict):
    names = {"same rate": "same rate", "rate scaled": "rate grows as the batch"}
    lines = {text: results["accuracy"][way] for way, text in names.items()}
    labels = {"xlabel": "rows in a batch", "ylabel": "accuracy"}
    return sweep(results["batches"], lines, {}, xlog=True, **labels)


if __name__ == "__main__":
    main()
