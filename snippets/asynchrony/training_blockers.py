# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [1]
# ///
"""Which lines of a training step wait for the GPU? Optimizers, scaling, clipping."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch.nn.utils import clip_grad_norm_
from torch.optim import SGD, Adam

from snippets.asynchrony.waits import report


def parameters() -> list[torch.Tensor]:
    """Eight matrices with gradients."""
    made = [torch.rand(64, 64, device="cuda", requires_grad=True) for _ in range(8)]
    for parameter in made:
        parameter.grad = torch.rand_like(parameter)
    return made


def optimizer_lines() -> dict[str, Callable[..., Any]]:
    """Steps, scaled steps and clipping."""
    sgd, fused = SGD(parameters()), Adam(parameters(), fused=True)
    strict_clip = partial(clip_grad_norm_, parameters(), 1, error_if_nonfinite=True)
    scaler = torch.amp.GradScaler("cuda")
    scaler.scale(torch.zeros(1, device="cuda"))

    def updated(step: Callable[..., Any], optimizer: torch.optim.Optimizer) -> None:
        step(optimizer)
        scaler.update()

    return {
        "SGD.step()": sgd.step,
        "Adam(foreach=True).step()": Adam(parameters(), foreach=True).step,
        "Adam(fused=True).step()": fused.step,
        "Adam(capturable=True).step()": Adam(parameters(), capturable=True).step,
        "scaler.step(SGD), update()": lambda: updated(scaler.step, sgd),
        "scaler.step(fused Adam), update()": lambda: updated(scaler.step, fused),
        "scaler.unscale_(SGD), update()": lambda: updated(scaler.unscale_, sgd),
        "clip_grad_norm_(p, 1)": partial(clip_grad_norm_, parameters(), 1),
        "clip_grad_norm_(p, 1, error_if_nonfinite=True)": strict_clip,
        "zero_grad(set_to_none=False)": lambda: sgd.zero_grad(set_to_none=False),
    }


def main() -> dict:
    return report(optimizer_lines())


if __name__ == "__main__":
    main()
