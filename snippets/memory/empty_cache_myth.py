# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11"]
# [tool.overlap]
# gpus = [1]
# ///
"""Empty the cache: what comes back, what it costs, and what it does when memory is out."""

from statistics import median

import torch

from snippets.timing.benchmark import measure

MIB, COUNT = 2**20, 8  # so many tensors are allocated in one trial
SIZES_MIB = (16, 64, 256, 1024)


def tensor(mib: int) -> torch.Tensor:
    """A tensor of so many MiB on the GPU, not filled: no kernel is launched."""
    return torch.empty(mib * MIB, dtype=torch.uint8, device="cuda")


def counters() -> dict[str, int]:
    """Bytes held by tensors, and bytes that PyTorch keeps."""
    return {"allocated": torch.cuda.memory_allocated(), "reserved": torch.cuda.memory_reserved()}


def given_back() -> dict[str, dict[str, int]]:
    """Both counters around `empty_cache()`, with 64 MiB in use and 1 GiB in the cache."""
    _held, cached = tensor(64), tensor(1024)
    del cached
    before = counters()
    torch.cuda.empty_cache()
    return {"before": before, "after": counters()}


def allocation_us(mib: int, prepare) -> list[float]:
    """Trials in µs per tensor allocated and dropped, each the median of five; `prepare` is not timed."""

    def once() -> float:
        prepare()
        return 1e6 * measure(lambda: [tensor(mib) for _ in range(COUNT)], warmup=0, trials=1).median / COUNT

    return [median(once() for _ in range(5)) for _ in range(11)][2:]  # the first two fill the cache


def asked(done: str) -> dict:
    """After this was done: do 1.5 GiB fit, and did PyTorch itself empty its cache to find out?"""
    before, fits = torch.cuda.memory_stats()["num_alloc_retries"], True
    try:
        tensor(1536)
    except torch.OutOfMemoryError:
        fits = False
    emptied = torch.cuda.memory_stats()["num_alloc_retries"] - before
    return {"done": done, "fits": fits, "emptied_by_itself": emptied}


def when_memory_is_out() -> list[dict]:
    """Three attempts, where PyTorch may take 4 GiB at most."""
    torch.cuda.set_per_process_memory_fraction(4096 * MIB / torch.cuda.mem_get_info()[1])
    held = [tensor(1024) for _ in range(3)]
    rows = [asked("three tensors of 1 GiB")]
    torch.cuda.empty_cache()
    rows.append(asked("empty_cache()"))
    held.pop()
    return [*rows, asked("one of the three deleted")]


def main() -> dict:
    around, ways = given_back(), {"cached": lambda: None, "emptied": torch.cuda.empty_cache}
    for name, before in around["before"].items():
        less = (before - around["after"][name]) / MIB
        print(f"{name:<9} {less:5.0f} MiB less after empty_cache()")
    trials = {way: [allocation_us(mib, do) for mib in SIZES_MIB] for way, do in ways.items()}
    us = {way: [median(each) for each in row] for way, row in trials.items()}
    for mib, cached, emptied in zip(SIZES_MIB, *us.values(), strict=True):
        print(f"{mib:>5} MiB: from the cache {cached:6.2f} µs, else {emptied:8.1f} µs")
    rows = when_memory_is_out()
    for row in rows:
        print("{done:<25} 1.5 GiB more fit: {fits}".format(**row))
    results = {"given_back": around, "out_of_memory": rows, "sizes_mib": list(SIZES_MIB)}
    return results | {"us": us, "us_trials": trials}


def plot(results: dict, ceilings: dict):
    import matplotlib.pyplot as plt

    (figure, ax), sizes = plt.subplots(), results["sizes_mib"]
    ax.loglog(sizes, results["us"]["emptied"], marker="o", label="after empty_cache()")
    ax.loglog(sizes, results["us"]["cached"], marker="o", label="from the cache")
    ax.set(xlabel="MiB", ylabel="µs per allocation", xticks=sizes, xticklabels=sizes)
    ax.set_yticks([1, 10, 100, 1000], [1, 10, 100, 1000])
    ax.minorticks_off()
    ax.legend()
    return figure


if __name__ == "__main__":
    main()
