# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [1]
# ///
"""Three counters: what tensors hold, what PyTorch keeps, what the GPU has in use."""

import torch

from snippets.pictures import stacked


def counters() -> dict[str, int]:
    """Bytes held by tensors, kept by PyTorch, and in use on the device by whomever."""
    held, kept = torch.cuda.memory_allocated(), torch.cuda.memory_reserved()
    free, total = torch.cuda.mem_get_info()
    return {"allocated": held, "reserved": kept, "device": total - free}


def tensor(size: int) -> torch.Tensor:
    """A tensor of `size` bytes on the GPU, not filled: no kernel is launched."""
    return torch.empty(size, dtype=torch.uint8, device="cuda")


def story():
    """Allocate, free, empty the cache; yield after each step what was done."""
    yield "nothing yet"
    tiny = tensor(8)
    yield "+ 8 B"
    medium = tensor(2**20 + 1)
    yield "+ 1 MiB and 1 B"
    large = tensor(100 * 2**20)
    yield "+ 100 MiB"
    del large
    yield "del the 100 MiB"
    half = tensor(50 * 2**20)
    yield "+ 50 MiB"
    torch.cuda.empty_cache()
    yield "empty_cache()"
    del half
    torch.cuda.empty_cache()
    yield "del the 50 MiB, empty_cache()"
    del tiny, medium
    torch.cuda.empty_cache()
    yield "del the rest, empty_cache()"


def main() -> dict:
    steps = [{"step": step} | counters() for step in story()]
    print(f"{'MiB':<31}", *(f"{name:>9}" for name in counters()))
    for i, row in enumerate(steps):
        mib = [f"{row[name] / 2**20:9.4f}" for name in counters()]
        print(f"{i} {row['step']:<29}", *mib)
    return {"steps": steps}


def plot(results: dict, ceilings: dict):
    steps = results["steps"]
    actions = ["start", "tiny = empty(8 B)", "small = empty(1 MiB + 1 B)"]
    actions += ["large = empty(100 MiB)", "del large", "half = empty(50 MiB)"]
    actions += ["empty_cache()", "del half; empty_cache()", "del all; empty_cache()"]
    names = [f"{i}.  {action}" for i, action in enumerate(actions)]
    parts = {"tensors": {}, "cache": {}}
    texts = {}
    for name, row in zip(names, steps, strict=True):
        # what is outside PyTorch is the same in all steps, and would hide the rest
        allocated, reserved = row["allocated"] / 2**20, row["reserved"] / 2**20
        parts["tensors"][name] = allocated
        parts["cache"][name] = reserved - allocated
        texts[name] = f"{reserved:,.0f}"
    picture = stacked(parts, "MiB that PyTorch has reserved", texts)
    tensors, cache = picture.panels[0].marks
    tensors.color = 1
    cache.color, cache.light = "ceiling", True
    return picture


if __name__ == "__main__":
    main()
