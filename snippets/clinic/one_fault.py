# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [1]
# timeout = 120
# ///
"""Six faults for a healthy training step: what does each cost alone?"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader

from snippets.clinic.patient import SIZES, Classifier, normalised
from snippets.clinic.photos import Photos, known_loss, read_ahead
from snippets.pictures import bars
from snippets.timing.take_turns import recorded, take_turns

#: in the order in which they will be taken out
FAULTS = ("loader", "copy", "kernels", "straggler", "mask", "item")


def one_by_one(pixels: Tensor) -> Tensor:
    """What `normalised` gives, by five small kernels for each image."""
    images = map(Tensor.float, pixels)
    return torch.stack([(x - x.mean()) / x.std(correction=0) for x in images])


def ill_step(
    faults, model, optimizer, batches: Iterator[tuple[Tensor, Tensor]], device
) -> Tensor | float:
    """One step of training with these faults; without any it is `patient.step`."""
    pixels, labels = next(batches)  # with "loader" nobody has read ahead
    if "copy" in faults:
        pixels = pixels.float().to(device)  # four times the bytes, and pageable
    pixels, labels = (part.to(device, non_blocking=True) for part in (pixels, labels))
    with torch.autocast(pixels.device.type, torch.bfloat16):
        x = (one_by_one if "kernels" in faults else normalised)(pixels)
        scores = model(x)
        if "mask" in faults:
            known = labels >= 0  # how many? only the GPU knows
            scores, labels = scores[known], labels[known]
        loss = known_loss(scores, labels)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    if "straggler" in faults:  # this rank also validates
        with torch.no_grad(), torch.autocast(x.device.type, torch.bfloat16):
            getattr(model, "module", model)(x)
    return loss.item() if "item" in faults else loss.detach()


def loaders(sizes: tuple, pin: bool) -> dict[bool, Iterator[Any]]:
    """Batches: True, with the fault, one when it is asked for; False, read ahead."""
    data = Photos(*sizes[:2])
    return {True: iter(DataLoader(data, None)), False: read_ahead(data, pin)}


def training(
    faults: set[str], sources, sizes, device, wrap=None
) -> Callable[[], object]:
    """A function that takes one step of training with these faults."""
    torch.manual_seed(0)
    model = Classifier(*sizes[1:]).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    batches = sources["loader" in faults]
    model = wrap(model) if wrap else model
    return partial(ill_step, faults, model, optimizer, batches, device)


def first_losses(steps: dict[str, Callable[[], object]]) -> dict[str, list[float]]:
    """Losses of three steps of each; AssertionError if a fault changes them."""
    loss = {name: [float(step()) for _ in range(3)] for name, step in steps.items()}
    healthy = torch.tensor(list(loss.values())[-1])
    for each in loss.values():
        torch.testing.assert_close(torch.tensor(each), healthy, rtol=0.02, atol=0)
    return loss


def main() -> dict:
    device, sources = torch.device("cuda"), loaders(SIZES, pin=True)
    ways = {fault: {fault} for fault in FAULTS} | {"healthy": set()}
    steps = {name: training(way, sources, SIZES, device) for name, way in ways.items()}
    loss = first_losses(steps)
    result = recorded(take_turns(steps, warmup=1, trials=5, calls=4))
    for name, ms in result["ms"].items():
        print(f"{name:<10}{ms:7.2f} ms, {ms - result['ms']['healthy']:+6.2f}")
    return result | {"loss": loss}


def plot(results: dict, ceilings: dict):
    ms = results["ms"]
    names = {
        "loader": "nobody\nreads ahead",
        "copy": "pageable\nfloats",
        "kernels": "many small\nkernels",
        "straggler": "validation in\neach step",
        "mask": "a boolean\nmask",
        "item": ".item() in\neach step",
    }
    times = {name: ms[fault] for fault, name in names.items()}
    limits = {"the healthy step": ms["healthy"]}
    return bars(times, limits, "ms per step, with one fault")


if __name__ == "__main__":
    main()
