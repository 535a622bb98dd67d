# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [1]
# ///
"""Fixed: a captured step, and each new batch copied into the captured one."""

from statistics import median

import torch

from snippets.timing.kernel_time import captured

FEATURES, ROWS, STEPS, RATE, NOISE = 32, 32, 50, 0.2, 1.0  # NOISE: a variance


def batches(device: str) -> list[torch.Tensor]:
    """1 + STEPS batches [rows, features + 1]; the last column is label and noise."""
    torch.manual_seed(0)
    teacher = torch.randn(FEATURES, 1) / FEATURES**0.5
    x = torch.randn(1 + STEPS, ROWS, FEATURES)
    noise = NOISE**0.5 * torch.randn(1 + STEPS, ROWS, 1)
    return list(torch.cat([x, x @ teacher + noise], 2).to(device))


def train_step(weights: torch.Tensor, batch: torch.Tensor) -> torch.Tensor:
    """A step of gradient descent, in place; the mean squared error before it."""
    x, labels = batch[:, :-1], batch[:, -1:]
    missed = x @ weights - labels
    weights -= RATE / ROWS * x.T @ missed
    return missed.square().mean()


def train(
    step, weights, batch: torch.Tensor, fresh: list[torch.Tensor]
) -> list[list[float]]:
    """[the loss that `step` reports, the loss of this batch] for each fresh batch."""
    losses = []
    for new in fresh:
        batch.copy_(new)
        true = train_step(weights.clone(), new)
        losses.append([step().item(), true.item()])
    return losses


def main() -> dict:
    first, *fresh = batches("cuda")  # the graph knows the address of `first`
    weights = torch.zeros(FEATURES, 1, device="cuda")
    replay = captured(lambda: train_step(weights, first))
    weights.zero_()  # to warm up was a step, too
    losses = train(replay, weights, first, fresh)
    stale = sum(abs(said - true) > 1e-3 * true for said, true in losses)
    said, true = (median(column[-10:]) for column in zip(*losses, strict=True))
    print(f"{stale} of {STEPS} stale; at the end {said:.2f} reported, {true:.2f} true")
    results = {"steps": STEPS, "stale": stale, "noise_variance": NOISE}
    return results | {"losses": losses, "last_reported": said, "last_true": true}


def plot(results: dict, ceilings: dict):
    from snippets.graphs.stale_input_broken import plot

    return plot(results, ceilings)


if __name__ == "__main__":
    main()
