# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11"]
# [tool.overlap]
# gpus = [1]
# ///
"""GB/s between host and GPU over the size of a copy: pinned, pageable, and both ways at once."""

from statistics import median

import torch
from torch import Tensor

from snippets.timing.benchmark import measure

MIB = 2**20
SIZES = tuple(2**k for k in range(16, 29, 2))  # bytes: 64 KiB to 256 MiB
WAYS = ("pinned_to_gpu", "gpu_to_pinned", "pageable_to_gpu", "gpu_to_pageable")


def random_bytes(size: int) -> Tensor:
    """Random bytes (size,) on the GPU."""
    return torch.empty(size, dtype=torch.uint8, device="cuda").random_()


def gb_s(to: Tensor, source: Tensor) -> float:
    """GB/s of one copy, waited for; then both must end in the same bytes."""
    to[-4096:].zero_()
    timing = measure(lambda: to.copy_(source, non_blocking=True), warmup=1, trials=1)
    assert torch.equal(to[-4096:].cpu(), source[-4096:].cpu()), "the copy is not what was sent"
    return source.nbytes / timing.median / 1e9


def sweep(ways: dict[str, tuple[Tensor, Tensor]]) -> dict[str, list[list[float]]]:
    """GB/s of nine trials for each way and size, in turn: a bad moment spoils one turn only."""
    trials = {way: [[] for _ in SIZES] for way in ways}
    for _ in range(9):
        for way, (to, source) in ways.items():
            for of_size, size in zip(trials[way], SIZES, strict=True):
                of_size.append(gb_s(to[:size], source[:size]))
    return trials


def both_ways(gpu: Tensor, host: Tensor, other_gpu: Tensor, other_host: Tensor) -> list[float]:
    """GB/s of each trial, added: host to gpu in one stream, other_gpu to other_host in another."""
    up, down = torch.cuda.Stream(), torch.cuda.Stream()

    def work() -> None:
        with torch.cuda.stream(up):
            gpu.copy_(host, non_blocking=True)
        with torch.cuda.stream(down):
            other_host.copy_(other_gpu, non_blocking=True)

    timing = measure(work)
    assert torch.equal(gpu.cpu(), host) and torch.equal(other_gpu.cpu(), other_host)
    return [(host.nbytes + other_host.nbytes) / seconds / 1e9 for seconds in timing.trials]


def main() -> dict:
    gpu, other_gpu = random_bytes(SIZES[-1]), random_bytes(SIZES[-1])
    pageable = gpu.cpu()
    pinned, other_pinned = pageable.pin_memory(), torch.zeros_like(pageable).pin_memory()
    pairs = (gpu, pinned), (pinned, gpu), (gpu, pageable), (pageable, gpu)
    trials = sweep(dict(zip(WAYS, pairs, strict=True)))
    rates = {way: [median(of_size) for of_size in trials[way]] for way in WAYS}
    print(f"{'GB/s, copies of':<17}" + "".join(f"{size / MIB:>9g}" for size in SIZES) + " MiB")
    for way in WAYS:
        print(f"{way.replace('_', ' '):<17}" + "".join(f"{rate:9.1f}" for rate in rates[way]))
    both = both_ways(gpu, pinned, other_gpu, other_pinned)
    print(f"both ways at once, pinned, {SIZES[-1] / MIB:g} MiB each: {median(both):.1f} GB/s")
    result = {"sizes": list(SIZES), "gb_s": rates, "gb_s_trials": trials}
    return result | {"both_gb_s": median(both), "both_gb_s_trials": both}


def plot(results: dict, ceilings: dict):
    import matplotlib.pyplot as plt

    figure, ax = plt.subplots()
    mib = [size / MIB for size in results["sizes"]]
    for way in WAYS:
        ax.plot(mib, results["gb_s"][way], marker="o", label=way.replace("_", " "))
    ax.plot(mib[-1], results["both_gb_s"], marker="s", linestyle="none", label="both ways at once")
    if "pcie_gb_s" in ceilings:
        for lanes, name in ((1, "one way"), (2, "both ways")):
            limit = lanes * ceilings["pcie_gb_s"]
            ax.axhline(limit, color="gray", linestyle="--", label=f"{limit:g} GB/s, {name}")
            ax.annotate(f"PCIe, {name}", (mib[0], limit), (0, 2), textcoords="offset points", color="gray")
    ax.set(xscale="log", xlabel="MiB per copy", ylabel="GB/s", ylim=(0, None))
    ax.set_xticks([1 / 16, 1, 16, 256], labels=["1/16", "1", "16", "256"])
    ax.minorticks_off()
    handles, labels = ax.get_legend_handles_labels()
    figure.legend(handles[:5], labels[:5], loc="outside upper left", ncols=2)
    return figure


if __name__ == "__main__":
    main()
