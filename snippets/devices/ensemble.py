# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [0, 2]
# take = ["ensemble"]
# ///
"""Average the outputs of several models for one batch, with one model on each GPU."""

import torch
from torch import nn

ROWS, INPUTS, CLASSES, WIDTHS = 256, 64, 10, (64, 128, 256)


@torch.no_grad()
def ensemble(models: list[nn.Module], x: torch.Tensor) -> torch.Tensor:
    """Mean of the models' outputs for x, on x's device; each model on one device."""
    places = [next(model.parameters()).device for model in models]
    # copies between GPUs wait for the work of both: so all copies, then all models
    inputs = [x.to(place) for place in places]
    outputs = [model(rows) for model, rows in zip(models, inputs, strict=True)]
    return torch.stack([output.to(x.device) for output in outputs]).mean(0)


def mlp(width: int) -> nn.Module:
    """A small model, from INPUTS to CLASSES."""
    return nn.Sequential(nn.Linear(INPUTS, width), nn.ReLU(), nn.Linear(width, CLASSES))


def main() -> dict:
    gpus = [f"cuda:{i}" for i in range(torch.cuda.device_count())]
    devices = gpus or ["cpu"]
    places = [devices[i % len(devices)] for i in range(len(WIDTHS))]
    models = [mlp(width).to(place) for width, place in zip(WIDTHS, places, strict=True)]
    x = torch.randn(ROWS, INPUTS, device=devices[0])
    mean = ensemble(models, x)

    total = torch.zeros(ROWS, CLASSES)
    for model in models:
        total += model.cpu()(x.cpu()).detach()
    difference = (mean.cpu() - total / len(models)).abs().max().item()
    print("models on", ", ".join(places))
    print(f"mean of {len(models)} outputs, shape {list(mean.shape)}, on {mean.device}")
    print(f"largest difference from one after the other: {difference:.1e}")
    return {"places": places, "place": str(mean.device), "difference": difference}


if __name__ == "__main__":
    main()
