# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11"]
# [tool.overlap]
# gpus = [1]
# ///
"""Broken on purpose: replay a captured training step, and give it each new batch under the old name."""

from statistics import median

import torch

FEATURES, ROWS, STEPS, RATE, NOISE_VARIANCE = 32, 32, 50, 0.2, 1.0


def batches(device: str) -> list[torch.Tensor]:
    """Batches [rows, features + 1], the last column the label: a linear function of the features, and noise."""
    torch.manual_seed(0)
    teacher = torch.randn(FEATURES, 1) / FEATURES**0.5
    features = [torch.randn(ROWS, FEATURES) for _ in range(1 + STEPS)]
    noise = [NOISE_VARIANCE**0.5 * torch.randn(ROWS, 1) for _ in features]
    return [torch.cat([x, x @ teacher + e], 1).to(device) for x, e in zip(features, noise, strict=True)]


def errors(weights: torch.Tensor, batch: torch.Tensor) -> torch.Tensor:
    """By how much a linear model misses each label, shape [rows, 1]."""
    return batch[:, :-1] @ weights - batch[:, -1:]


def train_step(weights: torch.Tensor, batch: torch.Tensor) -> torch.Tensor:
    """One step of gradient descent, in place; the loss before it, the mean squared error."""
    missed = errors(weights, batch)
    weights -= RATE / ROWS * batch[:, :-1].T @ missed
    return missed.square().mean()


def captured_step(weights: torch.Tensor, batch: torch.Tensor) -> tuple[torch.cuda.CUDAGraph, torch.Tensor]:
    """A graph of one step on what is in `batch`, and the tensor into which each replay writes its loss."""
    before = weights.clone()
    train_step(weights, batch)  # libraries set themselves up in their first call
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = train_step(weights, batch)
    weights.copy_(before)
    return graph, loss


def train(step, loss: torch.Tensor, weights: torch.Tensor, batch: torch.Tensor, fresh: list) -> list[list[float]]:
    """For each fresh batch the loss that the replay reports, and the one that this batch has at this moment."""
    losses = []
    for new in fresh:
        batch = new
        true = errors(weights, batch).square().mean()
        step()
        losses.append([loss.item(), true.item()])
    return losses


def main() -> dict:
    first, *fresh = batches("cuda")  # `first` stays referenced: the graph knows its address
    weights = torch.zeros(FEATURES, 1, device="cuda")
    graph, loss = captured_step(weights, first)
    losses = train(graph.replay, loss, weights, first, fresh)
    stale = sum(abs(reported - true) > 1e-3 * true for reported, true in losses)
    reported, true = (median(column[-10:]) for column in zip(*losses, strict=True))
    print(f"stale answers: {stale} of {STEPS} replays")
    print(f"loss of the last ten steps: the graph reports {reported:.2f}, the batches have {true:.2f}")
    print(f"noise in the labels, which no model can foresee: {NOISE_VARIANCE:.2f}")
    results = {"steps": STEPS, "stale": stale, "losses": losses, "noise_variance": NOISE_VARIANCE}
    return results | {"last_reported": reported, "last_true": true}


def plot(results: dict, ceilings: dict):
    import matplotlib.pyplot as plt

    figure, ax = plt.subplots()
    steps = range(1, len(results["losses"]) + 1)
    reported, true = zip(*results["losses"], strict=True)
    ax.plot(steps, true, label="loss of the batch you gave it")
    ax.plot(steps, reported, marker=".", linestyle="", label="loss the replay reports")
    floor = results["noise_variance"]
    ax.axhline(floor, color="gray", linestyle="--", label="noise in the labels")
    ax.set(xlabel="step", ylabel="loss", ylim=(0, None))
    ax.legend()
    return figure


if __name__ == "__main__":
    main()
