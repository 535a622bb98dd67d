# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [1]
# exclusive = false
# ///
"""A learning rate in a graph: a Python number is fixed for ever, a tensor is read."""

import torch

from snippets.timing.kernel_time import captured


def moved_at_rate_zero(rate: float | torch.Tensor) -> float:
    """How far a captured Adam step moves a weight after its rate has been set to 0."""
    weight = torch.ones(1, device="cuda", requires_grad=True)
    weight.grad = torch.ones_like(weight)
    optimizer = torch.optim.Adam([weight], lr=rate, capturable=True)
    replay = captured(optimizer.step)
    if isinstance(rate, torch.Tensor):
        rate.zero_()  # a replay reads this place
    else:
        optimizer.param_groups[0]["lr"] = 0.0
    before = weight.item()
    replay()
    return before - weight.item()


def main() -> dict:
    moved = {"number": moved_at_rate_zero(0.5)}
    moved["tensor"] = moved_at_rate_zero(torch.tensor(0.5, device="cuda"))
    for name, distance in moved.items():
        print(
            f"rate 0.5 as a {name}, set to 0: a replay moves the weight {distance:.2f}"
        )
    return {"moved": moved}


if __name__ == "__main__":
    main()
