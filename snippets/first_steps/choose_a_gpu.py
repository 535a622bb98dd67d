# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [0, 2]
# exclusive = false
# ///
"""Four ways to choose a GPU: where does a new tensor go?"""

import torch


def made_on(device: str) -> str:
    """Where a new tensor is that was asked for on this device."""
    return str(torch.ones(1, device=device).device)


def ways_to_choose(number: int) -> dict[str, str]:
    """Where "cuda" leads to after each way to choose the GPU of this number."""
    places = {"nothing chosen": made_on("cuda")}
    places["by name"] = made_on(f"cuda:{number}")
    with torch.cuda.device(number):
        places["with torch.cuda.device"] = made_on("cuda")
    with torch.accelerator.device_index(number):
        places["with torch.accelerator"] = made_on("cuda")
    places["after the with"] = made_on("cuda")
    before = torch.cuda.current_device()
    torch.cuda.set_device(number)
    places["after set_device"] = made_on("cuda")
    torch.cuda.set_device(before)
    return places


def main() -> dict:
    count = torch.cuda.device_count()
    places = {"nothing chosen": made_on("cpu")}
    if count:
        places = ways_to_choose(count - 1)
    print(f"{count} GPUs to choose from")
    for way, place in places.items():
        print(f"{way:24}{place}")
    return {"count": count, "places": places}


def derive(results: dict) -> dict:
    """Where a tensor is, by each of the ways to choose a GPU, and without a choice."""
    ways = ("by name", "with torch.cuda.device", "with torch.accelerator")
    places = results["places"]
    return {
        "chosen": [places.get(way) for way in (*ways, "after set_device")],
        "unchosen": [places.get(way) for way in ("nothing chosen", "after the with")],
    }


if __name__ == "__main__":
    main()
