# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [1]
# ///
"""How wide is the door? GB/s of pinned copies, each way and both ways at once."""

from collections.abc import Callable
from functools import partial
from statistics import median

import torch

from snippets.pictures import Note, sweep
from snippets.timing.benchmark import measure
from snippets.timing.take_turns import take_turns

MIB = 2**20
SIZES = [2**k for k in range(16, 29, 2)]  # bytes: 64 KiB to 256 MiB


def copy(to: torch.Tensor, source: torch.Tensor, size: int) -> None:
    to[:size].copy_(source[:size], non_blocking=True)


def both_ways(copies: list[Callable[[], object]]) -> None:
    """Each of the copies in a stream of its own."""
    for copying in copies:
        with torch.cuda.stream(torch.cuda.Stream()):
            copying()


def main() -> dict:
    gpus = [torch.empty(SIZES[-1], dtype=torch.uint8, device="cuda") for _ in range(2)]
    sent, received = (gpu.random_().cpu().pin_memory() for gpu in gpus)
    ends = {"pinned_to_gpu": (gpus[0].zero_(), sent)}
    ends["gpu_to_pinned"] = (received.zero_(), gpus[1])
    trials = {way: [] for way in ends}
    for size in SIZES:
        copies = {way: partial(copy, *ends[way], size) for way in ends}
        for way, timing in take_turns(copies, trials=9).items():
            trials[way].append([size / s / 1e9 for s in timing.trials])
    both = measure(partial(both_ways, copies.values()), trials=9)
    both = [2 * SIZES[-1] / seconds / 1e9 for seconds in both.trials]
    assert all(torch.equal(to.cpu(), source.cpu()) for to, source in ends.values())
    rates = {way: [median(each) for each in of_way] for way, of_way in trials.items()}
    for size, up, down in zip(SIZES, *rates.values(), strict=True):
        print(f"{size / MIB:9.4g} MiB {up:8.1f} GB/s to the GPU{down:8.1f} back")
    print(f"both ways at once{median(both):6.1f} GB/s")
    result = {"sizes": SIZES, "gb_s": rates, "gb_s_trials": trials}
    return result | {"both_gb_s": median(both), "both_gb_s_trials": both}


def plot(results: dict, ceilings: dict):
    names = {"pcie_gb_s": "PCIe, one way", "pcie_payload_gb_s": "less packet headers"}
    limits = {text: ceilings[key] for key, text in names.items() if key in ceilings}
    ways = {"to the GPU": "pinned_to_gpu", "back to the host": "gpu_to_pinned"}
    rates = {text: results["gb_s"][way] for text, way in ways.items()}
    mib = [size // MIB if size >= MIB else size / MIB for size in results["sizes"]]
    labels = {"xlabel": "MiB per copy", "ylabel": "GB/s"}
    picture = sweep(mib, rates, limits, xlog=True, **labels)
    for (label, limit), dy in zip(limits.items(), (-8, 8), strict=False):
        picture.panels[0].marks.append(Note(mib[0], limit, label, dy=dy))
    return picture


if __name__ == "__main__":
    main()
