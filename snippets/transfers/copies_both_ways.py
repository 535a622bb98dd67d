# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [1]
# ///
"""Copies there, back, and both at once, in pieces of several sizes: GB/s each way."""

from collections.abc import Callable
from functools import partial
from statistics import median

import torch

from snippets.pictures import sweep
from snippets.timing.take_turns import take_turns

MIB = 2**20
PIECES = [2**k for k in range(18, 29, 2)]  # bytes: 256 KiB to 256 MiB
PIECE = PIECES[-1]


def in_pieces(to: torch.Tensor, source: torch.Tensor, piece: int, stream) -> None:
    """Queue the copy in `stream`, piece by piece (bytes): page-locked, not waited for."""
    with torch.cuda.stream(stream):
        for part, its in zip(to.split(piece), source.split(piece), strict=True):
            part.copy_(its, non_blocking=True)


def both(works: list[Callable[[], object]]) -> None:
    for work in works:
        work()


def main() -> dict:
    gpus = [torch.empty(PIECE, dtype=torch.uint8, device="cuda") for _ in range(2)]
    sent, received = (gpu.random_().cpu().pin_memory() for gpu in gpus)
    ends = {"there": (gpus[0].zero_(), sent), "back": (received.zero_(), gpus[1])}
    torch.cuda.synchronize()  # the streams below do not wait for what is queued here
    streams = [torch.cuda.Stream() for _ in ends]
    trials: dict = {way: [] for way in (*ends, "both")}
    for piece in PIECES:
        alone = {
            way: partial(in_pieces, *pair, piece, stream)
            for (way, pair), stream in zip(ends.items(), streams, strict=True)
        }
        works = alone | {"both": partial(both, list(alone.values()))}
        for way, timing in take_turns(works, trials=9).items():
            trials[way].append([PIECE / s / 1e9 for s in timing.trials])
    assert all(torch.equal(to.cpu(), source.cpu()) for to, source in ends.values())
    rates = {way: [median(each) for each in of_way] for way, of_way in trials.items()}
    for piece, *each in zip(PIECES, *rates.values(), strict=True):
        there, back, together = each
        print(
            f"{piece / MIB:7.4g} MiB pieces {there:6.1f} GB/s there, {back:6.1f} back, "
            f"{together:6.1f} each way at once"
        )
    return {"bytes": PIECE, "pieces": PIECES, "gb_s": rates, "gb_s_trials": trials}


def plot(results: dict, ceilings: dict):
    names = {"pcie_gb_s": "PCIe, one way", "pcie_payload_gb_s": "less packet headers"}
    limits = {text: ceilings[key] for key, text in names.items() if key in ceilings}
    words = {"to the GPU": "there", "back to the host": "back", "each, at once": "both"}
    rates = {text: results["gb_s"][way] for text, way in words.items()}
    mib = [piece / MIB for piece in results["pieces"]]
    labels = {"xlabel": "MiB per piece", "ylabel": "GB/s each way"}
    return sweep(mib, rates, limits, xlog=True, **labels)


if __name__ == "__main__":
    main()
