# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [0, 1]
# ///
"""What a default device leaves out, and what it costs each call."""

from concurrent.futures import ThreadPoolExecutor

import numpy
import torch

from snippets.timing.take_turns import recorded, take_turns

CALLS = 1000


def places(device: str) -> dict[str, str]:
    """Where new tensors are after `torch.set_default_device(device)`."""
    torch.set_default_device(device)
    array = numpy.zeros(2, dtype=numpy.float32)
    with ThreadPoolExecutor(1) as pool:
        elsewhere = pool.submit(torch.zeros, 2).result()
    tensors = {
        "torch.zeros(2)": torch.zeros(2),
        "torch.zeros(2), in another thread": elsewhere,
        "torch.from_numpy(array)": torch.from_numpy(array),
        "torch.frombuffer(array)": torch.frombuffer(array, dtype=torch.float32),
    }
    torch.set_default_device(None)
    return {code: tensor.device.type for code, tensor in tensors.items()}


def additions() -> None:
    """Many short calls, on the CPU: their time is what Python and PyTorch need."""
    x = torch.zeros(1, device="cpu")
    for _ in range(CALLS):
        torch.add(x, 1)


def after_set_default_device() -> None:
    torch.set_default_device("cpu")
    additions()
    torch.set_default_device(None)


def inside_with() -> None:
    with torch.device("cpu"):
        additions()


def main() -> dict:
    # Without a GPU "meta" stands in for it: a device whose tensors hold no numbers
    device = "cuda" if torch.cuda.is_available() else "meta"
    found = places(device)
    for code, place in found.items():
        print(f"{code:35}{place}")
    ways = {"no default": additions, "with torch.device": inside_with}
    ways["set_default_device"] = after_set_default_device
    times = recorded(take_turns(ways), "ms")  # of 1000 calls: so many µs for one
    us = {"us": times["ms"], "us_trials": times["ms_trials"]}
    for name, each in us["us"].items():
        print(f"a torch.add: {name:<20}{each:6.2f} µs")
    return {"device": device, "places": found, "calls": CALLS} | us


if __name__ == "__main__":
    main()
