# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [0, 1]
# exclusive = false
# ///
"""Where is a new tensor? On the CPU, unless it is told otherwise."""

import torch
from torch import nn


def new_tensors(x: torch.Tensor) -> dict[str, torch.Tensor]:
    """Ways to make a tensor in a program that works on x, which is on a GPU."""
    made = {
        "torch.zeros(2)": torch.zeros(2),
        "torch.zeros(x.shape)": torch.zeros(x.shape),
        "torch.zeros(2, device=x.device)": torch.zeros(2, device=x.device),
        "torch.zeros_like(x)": torch.zeros_like(x),
        "x.new_zeros(2)": x.new_zeros(2),
        "x + 1": x + 1,
        "nn.Linear(2, 2)": nn.Linear(2, 2).weight,
    }
    with torch.device(x.device):
        made["with torch.device: torch.zeros(2)"] = torch.zeros(2)
        made["with torch.device: nn.Linear(2, 2)"] = nn.Linear(2, 2).weight
    torch.set_default_device(x.device)
    made["after set_default_device"] = torch.zeros(2)
    torch.set_default_device(None)
    return made


def main() -> dict:
    # Without a GPU "meta" stands in for it: a device whose tensors hold no numbers
    device = "cuda" if torch.cuda.is_available() else "meta"
    tensors = new_tensors(torch.ones(2, device=device))
    places = {code: tensor.device.type for code, tensor in tensors.items()}
    for code, place in places.items():
        print(f"{code:37}{place}")
    return {"device": device, "places": places}


def derive(results: dict) -> dict:
    """What lands on the CPU, and what neither there nor on the device."""
    places, device = sorted(results["places"].items()), results["device"]
    elsewhere = [code for code, place in places if place not in ("cpu", device)]
    on_cpu = [code for code, place in places if place == "cpu"]
    return {"on_cpu": on_cpu, "elsewhere": elsewhere}


if __name__ == "__main__":
    main()
