# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [1]
# ///
"""Copies of pageable memory over their size, beside those of one CPU thread."""

from functools import partial
from statistics import median

import torch
from torch import Tensor

from snippets.pictures import over_sizes
from snippets.timing.take_turns import take_turns

SIZES = [2**k for k in range(12, 29, 2)]  # bytes: 4 KiB to 256 MiB


def copy(to: Tensor, source: Tensor) -> None:
    to.copy_(source, non_blocking=True)


def main() -> dict:
    torch.set_num_threads(1)  # for the copies on the host; those of CUDA do not ask
    gpu = torch.empty(SIZES[-1], dtype=torch.uint8, device="cuda").random_()
    pageable, other, pinned = gpu.cpu(), gpu.cpu(), gpu.cpu().pin_memory()
    ends = {"pinned_to_gpu": (gpu, pinned), "gpu_to_pinned": (pinned, gpu)}
    ends |= {"pageable_to_gpu": (gpu, pageable), "gpu_to_pageable": (other, gpu)}
    ends["on_host"] = (pinned, pageable)
    trials = {way: [] for way in ends}
    print(f"{'KiB':>8}" + "".join(f"{way:>17}" for way in ends) + ", GB/s")
    for size in SIZES:
        copies = {
            way: partial(copy, a[:size], b[:size]) for way, (a, b) in ends.items()
        }
        for way, timing in take_turns(copies, trials=9).items():
            trials[way].append([size / s / 1e9 for s in timing.trials])
        rates = "".join(f"{median(trials[way][-1]):17.2f}" for way in ends)
        print(f"{size // 1024:8}{rates}")
    assert torch.equal(gpu.cpu(), pageable) and torch.equal(other, pageable)
    rates = {way: [median(each) for each in of_way] for way, of_way in trials.items()}
    return {"sizes": SIZES, "gb_s": rates, "gb_s_trials": trials}


def derive(results: dict) -> dict:
    """From 64 MiB on gains of pinned memory, and host rates; the largest beside all."""
    large = [i for i, size in enumerate(results["sizes"]) if size >= 2**26]
    pairs = {
        "pinned_to_gpu": "pageable_to_gpu",
        "gpu_to_pinned": "gpu_to_pageable",
        "pageable_to_gpu": "on_host",
    }
    gb_s, ratios = results["gb_s"], {}
    for name, other in pairs.items():
        ratios[name] = [gb_s[name][i] / gb_s[other][i] for i in large]
    largest = {name: rates[-1] / max(rates) for name, rates in gb_s.items()}
    return {"times_as_fast": ratios, "largest_of_best": largest}


def plot(results: dict, ceilings: dict):
    labels = {
        "pinned_to_gpu": "pinned, to the GPU",
        "pageable_to_gpu": "pageable, to the GPU",
    }
    labels |= {
        "gpu_to_pageable": "pageable, back to the host",
        "on_host": "on the host, one thread",
    }
    limits = {"PCIe": ceilings["pcie_gb_s"]} if "pcie_gb_s" in ceilings else {}
    rates = {text: results["gb_s"][way] for way, text in labels.items()}
    kib = [size // 1024 for size in results["sizes"]]
    words = {"xlabel": "size of a copy", "ylabel": "GB/s"}
    return over_sizes(kib, rates, limits, **words)


if __name__ == "__main__":
    main()
