# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [2, 4, 8]
# ///
"""From GPU to GPU by size: directly, and through the host in three ways."""

from functools import partial
from statistics import median

import torch
from torch import Tensor

from snippets.devices.p2p_copy import through_host
from snippets.pictures import over_sizes
from snippets.timing.take_turns import take_turns
from snippets.timing.wait_for import wait_for

SIZES = [2**k for k in range(12, 31, 3)]  # bytes: 4 KiB to 1 GiB


def in_pieces(x: Tensor, room: Tensor, y: Tensor, piece: int = 2**22) -> None:
    """Queue x to y through pinned room: a piece leaves the host as the next comes.

    All three have one dimension; a piece is so many elements.
    """
    leaving, coming = (torch.cuda.current_stream(each.device) for each in (x, y))
    leaving.wait_stream(coming)  # until nobody reads the room any more
    for a, between, b in zip(*(t.split(piece) for t in (x, room, y)), strict=True):
        between.copy_(a, non_blocking=True)
        coming.wait_stream(leaving)
        b.copy_(between, non_blocking=True)


def ways(x: Tensor, y: Tensor, pinned: Tensor, pageable: Tensor) -> dict:
    """Four ways from x to y."""
    return {
        "direct": partial(y.copy_, x, non_blocking=True),
        "pieces": partial(in_pieces, x, pinned, y),
        "pinned": partial(through_host, x, pinned, y),
        "pageable": partial(through_host, x, pageable, y),
    }


def arrives(work, y: Tensor, expected: Tensor) -> bool:
    """Whether this copy fills the emptied y with what is expected."""
    y.zero_()
    wait_for()
    work()
    wait_for()
    return torch.equal(y, expected)


def main() -> dict:
    x = torch.randint(256, SIZES[-1:], dtype=torch.uint8, device="cuda:0")
    expected = x.cpu().to("cuda:1")
    y, pageable = torch.empty_like(expected), torch.zeros(x.shape, dtype=x.dtype)
    room, trials = pageable.pin_memory(), {}
    for n in SIZES:
        works = ways(x[:n], y[:n], room[:n], pageable[:n])
        for way, work in works.items():
            assert arrives(work, y[:n], expected[:n]), way
        for way, timing in take_turns(works, warmup=1, trials=7).items():
            trials.setdefault(way, []).append([n / s / 1e9 for s in timing.trials])
    rates = {way: [median(each) for each in of_way] for way, of_way in trials.items()}
    print(f"{'KiB':>9}" + "".join(f"{way:>10}" for way in rates) + ", GB/s")
    for n, *row in zip(SIZES, *rates.values(), strict=True):
        print(f"{n // 1024:9,}" + "".join(f"{rate:10.2f}" for rate in row))
    return {"sizes": SIZES, "gb_s": rates, "gb_s_trials": trials}


def plot(results: dict, ceilings: dict):
    labels = {"direct": "direct", "pieces": "through the host, in pieces"}
    labels |= {"pinned": "pinned, at once", "pageable": "pageable"}
    lines = {text: results["gb_s"][way] for way, text in labels.items()}
    limits = {"NVLink": "nvlink_gb_s", "PCIe": "pcie_gb_s"}
    limits = {text: ceilings[key] for text, key in limits.items() if key in ceilings}
    kib = [size // 1024 for size in results["sizes"]]
    words = {"xlabel": "size of a copy", "ylabel": "GB/s"}
    return over_sizes(kib, lines, limits, **words)


if __name__ == "__main__":
    main()
