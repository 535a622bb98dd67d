# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [0, 1]
# ///
"""GPU memory in three calls: allocated, reserved, and how to give it back."""

import torch


def allocated_and_reserved() -> dict[str, int]:
    """Bytes that tensors hold, and bytes that PyTorch keeps for tensors."""
    allocated, reserved = torch.cuda.memory_allocated(), torch.cuda.memory_reserved()
    return {"allocated": allocated, "reserved": reserved}


def life_of_a_tensor(size: int, device: str):
    """Make a tensor of so many bytes, drop it, free the cache; yield after each."""
    yield "before"
    x = torch.empty(size, dtype=torch.uint8, device=device)
    yield "x = torch.empty(...)"
    del x
    yield "del x"
    torch.cuda.empty_cache()
    yield "empty_cache()"


def answer(call) -> str:
    """What the call gives, or the first line of its error."""
    try:
        return f"{call():,} B"
    except RuntimeError as error:
        return str(error).splitlines()[0]


def main() -> dict:
    device, size = "cuda" if torch.cuda.is_available() else "cpu", 100 * 2**20
    steps = []
    print(f"{'MiB':<22}{'allocated':>10}{'reserved':>10}")
    for step in life_of_a_tensor(size, device):
        row = {"step": step} | allocated_and_reserved()
        print(f"{step:<22}{row['allocated'] >> 20:10}{row['reserved'] >> 20:10}")
        steps.append(row)
    accelerator = answer(torch.accelerator.memory_allocated)
    print("torch.accelerator.memory_allocated():", accelerator, sep="\n")
    return {"bytes": size, "steps": steps, "accelerator": accelerator}


if __name__ == "__main__":
    main()
