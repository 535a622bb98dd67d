# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [0, 2]
# take = ["ensemble"]
# ///
"""Average the outputs of several models for one batch, with one model on each GPU."""

from collections.abc import Sequence
from copy import deepcopy
from functools import partial
from itertools import chain
from statistics import median

import torch
from torch import nn

from snippets.timing.take_turns import ratios, recorded, take_turns

ROWS, INPUTS, CLASSES, WIDTHS = 256, 64, 10, (64, 128, 256)
LARGE_ROWS, LARGE, LAYERS = 4096, 8192, 4  # of the models that are timed


@torch.no_grad()
def ensemble(models: Sequence[nn.Module], x: torch.Tensor) -> torch.Tensor:
    """Mean of the models' outputs for x, on x's device; each model on one device.

    Call `eval()` of each model before: Dropout and BatchNorm give other outputs while
    they train, and BatchNorm would also learn from x. ValueError, if any part of a
    model trains, and without models.
    """
    if not models:
        raise ValueError("there is no model, so no mean")
    if any(part.training for model in models for part in model.modules()):
        raise ValueError("a model is in training mode: call its eval() first")
    held = [chain(model.parameters(), model.buffers(), [x]) for model in models]
    places = [next(tensors).device for tensors in held]
    # a copy to another GPU waits for what x's GPU does: so all copies, then all models
    inputs = [x.to(place) for place in places]
    outputs = [model(rows) for model, rows in zip(models, inputs, strict=True)]
    return torch.stack([output.to(x.device) for output in outputs]).mean(0)


@torch.no_grad()
def copy_by_copy(models: Sequence[nn.Module], x: torch.Tensor) -> torch.Tensor:
    """The same mean; each copy of x is launched after the model before it."""
    outputs = [model(x.to(next(model.parameters()).device)) for model in models]
    return torch.stack([output.to(x.device) for output in outputs]).mean(0)


def mlp(width: int) -> nn.Module:
    """A small model, from INPUTS to CLASSES."""
    return nn.Sequential(nn.Linear(INPUTS, width), nn.ReLU(), nn.Linear(width, CLASSES))


def timed(devices: list[str]) -> dict:
    """Times of both ways, with an equally large model on each device."""
    with torch.device(devices[0]):
        layers = [nn.Linear(LARGE, LARGE) for _ in range(LAYERS)]
    model = nn.Sequential(*layers).eval()
    models = [deepcopy(model).to(device) for device in devices]
    x = torch.randn(LARGE_ROWS, LARGE, device=devices[0])
    works = {
        "one_model": partial(ensemble, models[:1], x),
        "ensemble": partial(ensemble, models, x),
        "copy_by_copy": partial(copy_by_copy, models, x),
    }
    torch.testing.assert_close(works["copy_by_copy"](), works["ensemble"]())
    times = take_turns(works, trials=11)
    slower = ratios(times["copy_by_copy"], times["ensemble"])
    return recorded(times) | {"slower": median(slower), "slower_trials": slower}


def main() -> dict:
    gpus = [f"cuda:{i}" for i in range(torch.cuda.device_count())]
    devices = gpus or ["cpu"]
    places = [devices[i % len(devices)] for i in range(len(WIDTHS))]
    pairs = zip(WIDTHS, places, strict=True)
    models = [mlp(width).eval().to(place) for width, place in pairs]
    x = torch.randn(ROWS, INPUTS, device=devices[0])
    mean = ensemble(models, x)

    total = torch.zeros(ROWS, CLASSES)
    for model in models:
        total += model.cpu()(x.cpu()).detach()
    difference = (mean.cpu() - total / len(models)).abs().max().item()
    print("models on", ", ".join(places))
    print(f"mean of {len(models)} outputs, shape {list(mean.shape)}, on {mean.device}")
    print(f"largest difference from one after the other: {difference:.1e}")
    result = {"places": places, "place": str(mean.device), "difference": difference}
    if len(gpus) < 2:
        return result
    result |= timed(gpus)
    for name, ms in result["ms"].items():
        print(f"{name:<13}{ms:6.1f} ms")
    return result


if __name__ == "__main__":
    main()
