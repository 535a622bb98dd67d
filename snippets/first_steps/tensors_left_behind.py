# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [0, 1]
# exclusive = false
# take = ["strays"]
# ///
"""Expected all tensors to be on the same device: which of the model's stayed behind?"""

import torch
from torch import nn


def is_on(tensor: torch.Tensor, device: torch.device) -> bool:
    """Whether it is on this device; without a number, on any of its type."""
    at = tensor.device
    return at.type == device.type and device.index in (None, at.index or 0)


def strays(model: nn.Module, device: str | torch.device) -> list[str]:
    """Names of the model's tensors that are not on this device, "cuda" or "cuda:1".

    Plain attributes too: `model.to` moves parameters and buffers only. What a module
    keeps in a list or a dict is not looked at.
    """
    wanted, found = torch.device(device), []
    for path, module in model.named_modules():
        tensors = {name: t for name, t in vars(module).items() if torch.is_tensor(t)}
        tensors |= dict(module.named_parameters(recurse=False))
        tensors |= dict(module.named_buffers(recurse=False))
        away = [name for name, t in tensors.items() if not is_on(t, wanted)]
        found += [f"{path}.{name}".lstrip(".") for name in away]
    return found


class Scale(nn.Module):
    """Times a number for each column, which is neither parameter nor buffer."""

    def __init__(self):
        super().__init__()
        self.by = torch.ones(4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.by


def complaint(call, *args) -> str:
    """The first line of its error; empty if there is none."""
    try:
        call(*args)
    except (RuntimeError, TypeError) as error:
        return f"{type(error).__name__}: {error}".splitlines()[0]
    return ""


def main() -> dict:
    device = "cuda" if torch.cuda.is_available() else "meta"
    model = nn.Sequential(nn.Linear(20, 4), Scale()).to(device)
    x = torch.ones(2, 20, device=device)
    errors, found = {"mixed": complaint(model, x)}, strays(model, device)
    model[1].by = model[1].by.to(device)
    errors |= {"mended": complaint(model, x), "numpy": complaint(x.numpy)}
    print(errors["mixed"], errors["numpy"], sep="\n")
    print(f"left behind: {found}, after the repair: {strays(model, device)}")
    return {"errors": errors, "strays": found, "strays_mended": strays(model, device)}


if __name__ == "__main__":
    main()
