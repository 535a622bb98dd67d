# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11"]
# [tool.overlap]
# gpus = [1]
# ///
"""Three counters of one GPU's memory: what tensors hold, what PyTorch keeps, what is in use on the device."""

import warnings
from collections.abc import Iterator

import torch

MIB = 2**20
COUNTERS = ("allocated", "reserved", "device")


def predicted(size: int) -> dict[str, int]:
    """Bytes a tensor of `size` bytes holds, and bytes PyTorch asks CUDA for when nothing in its cache fits."""
    holds = -(-size // 512) * 512
    asks = 2 * MIB if holds <= MIB else 20 * MIB if holds < 10 * MIB else -(-holds // (2 * MIB)) * 2 * MIB
    return {"size": size, "allocated": holds, "reserved": asks}


def counters() -> dict[str, int]:
    """Bytes held by tensors, kept by PyTorch, and in use on the device by whomever."""
    free, total = torch.cuda.mem_get_info()
    return dict(zip(COUNTERS, (torch.cuda.memory_allocated(), torch.cuda.memory_reserved(), total - free), strict=True))


def tensor(size: int) -> torch.Tensor:
    """A tensor of `size` bytes on the GPU, not filled: no kernel is launched."""
    return torch.empty(size, dtype=torch.uint8, device="cuda")


def growth(size: int) -> dict[str, int]:
    """By how many bytes PyTorch's two counters grow for one tensor of `size` bytes when the cache is empty."""
    torch.cuda.empty_cache()
    before, _tensor, after = counters(), tensor(size), counters()
    return {"size": size} | {name: after[name] - before[name] for name in ("allocated", "reserved")}


def story() -> Iterator[str]:
    """Allocate, free, empty the cache; yield after each step what was done."""
    yield "nothing yet"
    tiny = tensor(8)
    yield "+ 8 B"
    medium = tensor(MIB + 1)
    yield "+ 1 MiB and 1 B"
    large = tensor(100 * MIB)
    yield "+ 100 MiB"
    del large
    yield "del the 100 MiB"
    half = tensor(50 * MIB)
    yield "+ 50 MiB"
    torch.cuda.empty_cache()
    yield "empty_cache()"
    del half
    torch.cuda.empty_cache()
    yield "del the 50 MiB, empty_cache()"
    del tiny, medium
    torch.cuda.empty_cache()
    yield "del the rest, empty_cache()"


def article_name() -> dict:
    """What became of the article's `memory_cached`: what it warns of, and its bytes beside `memory_reserved`'s."""
    _held, cached = tensor(8), getattr(torch.cuda, "memory_cached", torch.cuda.memory_reserved)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        both = {"cached": cached(), "reserved": torch.cuda.memory_reserved()}
    return both | {"exists": hasattr(torch.cuda, "memory_cached"), "warns": [w.category.__name__ for w in caught]}


def main() -> dict:
    steps = [{"step": step} | counters() for step in story()]
    print(f"MiB after{'allocated':>33}{'reserved':>10}{'device':>10}")
    for i, row in enumerate(steps):
        print(f"{i}  {row['step']:<29}" + "".join(f"{row[name] / MIB:10.4f}" for name in COUNTERS))
    sizes = (8, 512, 513, MIB, MIB + 1, 9 * MIB, 10 * MIB, 100 * MIB)
    rules = {"predicted": [predicted(size) for size in sizes], "measured": [growth(size) for size in sizes]}
    for row in rules["measured"]:
        print("alone, {size:>11,} B: the tensor holds {allocated:>11,}, PyTorch takes {reserved:>11,}".format(**row))
    return rules | {"steps": steps, "memory_cached": article_name()}


def plot(results: dict, ceilings: dict):
    import matplotlib.pyplot as plt

    figure, ax = plt.subplots()
    steps, looks = results["steps"], ({}, {}, {"color": "gray", "linestyle": "--"})
    for name, look in zip(COUNTERS, looks, strict=True):
        ax.step(range(len(steps)), [row[name] / MIB for row in steps], where="mid", label=name, **look)
    ax.set(xlabel="step, numbered as above", ylabel="MiB", xticks=range(len(steps)))
    ax.legend()
    return figure


if __name__ == "__main__":
    main()
