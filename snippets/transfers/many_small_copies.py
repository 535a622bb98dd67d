# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [1]
# timeout = 120
# take = ["send_packed"]
# ///
"""A hundred small tensors to the GPU: one by one, or packed into one copy."""

from collections.abc import Sequence
from functools import partial
from statistics import median

import torch
from torch import Tensor

from snippets.pictures import over_sizes
from snippets.timing.take_turns import recorded, take_turns

COUNT, SIZES = 100, [1, 4, 16, 64, 256]  # float32 tensors of so many KiB each


def pack(tensors: Sequence[Tensor]) -> Tensor:
    """The values of dense CPU tensors of one type, in one piece of pinned memory.

    The pinned memory is PyTorch's, which does not lend it again before it has left.
    ValueError without a tensor or for one on a GPU, TypeError if the types differ.
    """
    types = {tensor.dtype for tensor in tensors}
    if not types or any(tensor.device.type != "cpu" for tensor in tensors):
        raise ValueError("there is no tensor to pack, or one is not on the CPU")
    if len(types) > 1:
        raise TypeError(f"tensors of one type make one copy; these have {types}")
    numbers = sum(tensor.numel() for tensor in tensors)
    packed = torch.empty(numbers, dtype=types.pop(), pin_memory=True)
    torch.cat([tensor.detach().flatten() for tensor in tensors], out=packed)
    return packed


def send_packed(
    tensors: Sequence[Tensor], device: str | torch.device = "cuda"
) -> list[Tensor]:
    """The values of dense CPU tensors on a GPU, by one copy for each of their types.

    Use them on the stream that is current there now. They have no graph, and those of
    one type share memory, which stays as long as one of them. Each begins where the one
    before it ends: not at a multiple of 16 bytes, as some kernels want it. Then clone
    it. They are contiguous, also where the given are not. ValueError for a tensor that
    is on a GPU already.
    """
    places: dict[torch.dtype, list[int]] = {}
    for place, tensor in enumerate(tensors):
        places.setdefault(tensor.dtype, []).append(place)
    sent = list(tensors)
    for alike in places.values():
        group = [tensors[place] for place in alike]
        on_gpu = pack(group).to(device, non_blocking=True)
        parts = on_gpu.split([tensor.numel() for tensor in group])
        for place, part in zip(alike, parts, strict=True):
            sent[place] = part.view(tensors[place].shape)
    return sent


def send(tensors: list[Tensor], non_blocking: bool = True) -> list[Tensor]:
    return [tensor.to("cuda", non_blocking=non_blocking) for tensor in tensors]


def main() -> dict:
    rows = []
    for kib in SIZES:
        tensors = [torch.randn(256 * kib) for _ in range(COUNT)]
        pinned = [tensor.pin_memory() for tensor in tensors]
        for on_gpu, tensor in zip(send_packed(tensors), tensors, strict=True):
            assert torch.equal(on_gpu.cpu(), tensor), "it is not what was sent"
        works = {"pageable": partial(send, tensors), "pinned": partial(send, pinned)}
        works["blocking"] = partial(send, tensors, non_blocking=False)
        works["pack"] = partial(pack, tensors)
        works["packed"] = partial(send_packed, tensors)
        works["one"] = partial(send, [torch.cat(tensors).pin_memory()])
        rows.append({"kib": kib} | recorded(take_turns(works, warmup=3)))
        print(f"{kib:>4} KiB", *(f"{k}{v:7.3f} ms" for k, v in rows[-1]["ms"].items()))
    return {"count": COUNT, "rows": rows}


def derive(results: dict) -> dict:
    """How many times as long one way takes as another, in the middle of the sizes."""
    pairs = [("pageable", "packed"), ("packed", "one"), ("blocking", "pageable")]
    each = [row["ms"] for row in results["rows"]]
    return {
        "times_as_long": {
            f"{slow}_{fast}": median(ms[slow] / ms[fast] for ms in each)
            for slow, fast in pairs
        }
    }


def plot(results: dict, ceilings: dict):
    labels = {
        "blocking": "pageable, blocking",
        "pageable": "pageable, non_blocking",
        "packed": "pageable, packed first",
        "pinned": "pinned, non_blocking",
        "one": "one pinned tensor",
    }
    rows, limits = results["rows"], {}
    kib = [row["kib"] for row in rows]
    if "pcie_gb_s" in ceilings:
        per_kib = results["count"] * 1024 / ceilings["pcie_gb_s"] / 1e6
        limits["least to cross PCIe"] = [per_kib * each for each in kib]
    times = {text: [row["ms"][name] for row in rows] for name, text in labels.items()}
    words = {"xlabel": "size of a tensor", "ylabel": f"ms for all {results['count']}"}
    return over_sizes(kib, times, limits, **words)


if __name__ == "__main__":
    main()
