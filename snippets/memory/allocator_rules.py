# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [1]
# ///
"""Predict what one tensor takes from the caching allocator, and measure it."""

import torch

MIB = 2**20
SIZES = (8, 512, 513, MIB, MIB + 1, 9 * MIB, 10 * MIB, 25 * MIB // 2, 13 * MIB)
SIZES += (27 * MIB // 2, 100 * MIB)


def round_up(size: int, step: int) -> int:
    """The least multiple of `step` that is no less than `size`."""
    return -(-size // step) * step


def predicted(size: int) -> dict[str, int]:
    """Bytes a tensor of `size` bytes holds, and that PyTorch takes for it from CUDA.

    `size` is at least 1. The tensor is the first one, with an empty cache.
    """
    holds = round_up(size, 512)
    if holds <= MIB:
        takes = 2 * MIB
    elif holds < 10 * MIB:
        takes = 20 * MIB
    else:
        takes = round_up(holds, 2 * MIB)
        if takes - holds <= MIB:
            holds = takes  # so small a rest is not cut off
    return {"size": size, "allocated": holds, "reserved": takes}


def measured(size: int) -> dict[str, int]:
    """The same by PyTorch's two counters, with an empty cache."""
    torch.cuda.empty_cache()
    held, kept = torch.cuda.memory_allocated(), torch.cuda.memory_reserved()
    tensor = torch.empty(size, dtype=torch.uint8, device="cuda")
    held = torch.cuda.memory_allocated() - held
    kept = torch.cuda.memory_reserved() - kept
    return {"size": tensor.nbytes, "allocated": held, "reserved": kept}


def main() -> dict:
    rows = [measured(size) for size in SIZES]
    for row in rows:
        shown = "the tensor holds {allocated:>11,}, PyTorch takes {reserved:>11,}"
        print("{size:>11,} B: ".format(**row) + shown.format(**row))
    return {"measured": rows, "predicted": [predicted(size) for size in SIZES]}


def derive(results: dict) -> dict:
    """In how many steps the rules say what is allocated and reserved."""
    pairs = zip(results["measured"], results["predicted"], strict=True)
    keys = ("allocated", "reserved")
    right = [all(real[key] == said[key] for key in keys) for real, said in pairs]
    return {"steps_right": sum(right)}


if __name__ == "__main__":
    main()
