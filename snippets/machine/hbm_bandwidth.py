# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11"]
# [tool.overlap]
# gpus = [1]
# ///
"""Copy and triad over the size of a tensor: the L2 cache first, then the bandwidth of memory."""

from collections.abc import Callable
from statistics import median

import torch

SIZES = [2**k for k in range(20, 33)]  # bytes of one tensor: 1 MiB to 4 GiB
CALLS, TRIALS = 20, 7


def copy(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> None:
    """a = b: reads one tensor and writes one."""
    a.copy_(b)


def triad(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> None:
    """a = b + 3c: reads two tensors and writes one."""
    torch.add(b, c, alpha=3, out=a)


MOVED = {copy: 2, triad: 3}  # tensors read and written


def gpu_us(work: Callable[[], None]) -> float:
    """Microseconds per call on the GPU, which spins until all are queued: no launch is timed."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda._sleep(2_000_000)  # cycles, about a millisecond
    start.record()
    for _ in range(CALLS):
        work()
    end.record()
    end.synchronize()
    return 1e3 * start.elapsed_time(end) / CALLS


def trials_gb_s(kernel: Callable, size: int) -> list[float]:
    """Bytes read plus bytes written, per second, in each trial: tensors of `size` bytes."""
    a, b, c = torch.randn(3, size // 4, device="cuda")
    times = [gpu_us(lambda: kernel(a, b, c)) for _ in range(2 + TRIALS)][2:]
    expected = b if kernel is copy else torch.add(b, c, alpha=3)
    assert torch.equal(a, expected), f"{kernel.__name__} of {size} bytes is wrong"
    return [MOVED[kernel] * size / us / 1e3 for us in times]


def main() -> dict:
    trials = {kernel.__name__: [trials_gb_s(kernel, size) for size in SIZES] for kernel in MOVED}
    rates = {name: [median(row) for row in rows] for name, rows in trials.items()}
    l2_bytes = torch.cuda.get_device_properties(0).L2_cache_size
    for size, one, two in zip(SIZES, rates["copy"], rates["triad"], strict=True):
        print(f"{size / 2**20:6.0f} MiB: copy {one:6.0f} GB/s, triad {two:6.0f} GB/s")
    print(f"the L2 cache holds {l2_bytes / 2**20:.0f} MiB")
    result = {"bytes": SIZES, "rates_gb_s": rates, "rates_gb_s_trials": trials, "l2_bytes": l2_bytes}
    for name in rates:
        result |= {f"{name}_gb_s": rates[name][-1], f"{name}_gb_s_trials": trials[name][-1]}
    hump = rates["copy"].index(max(rates["copy"]))
    result |= {"hump_gb_s": rates["copy"][hump], "hump_gb_s_trials": trials["copy"][hump]}
    return result | {"hump_bytes": SIZES[hump]}


def plot(results: dict, ceilings: dict):
    import matplotlib.pyplot as plt

    figure, ax = plt.subplots()
    mib = [size / 2**20 for size in results["bytes"]]
    for name in ("copy", "triad"):
        ax.plot(mib, results["rates_gb_s"][name], marker="o", label=name)
    if "hbm_gb_s" in ceilings:
        ax.axhline(ceilings["hbm_gb_s"], color="gray", linestyle="--", label="memory, ceiling")
    full = results["l2_bytes"] / 2**21  # a copy touches two tensors
    ax.axvline(full, color="gray", linestyle="--")
    ax.text(1.1 * full, 100, "copy larger than L2", color="gray")
    ax.set(xscale="log", xlabel="MiB of one tensor", ylabel="GB/s read and written", ylim=(0, None))
    ax.set_xticks([1, 16, 256, 4096], labels=["1", "16", "256", "4096"])
    ax.xaxis.set_minor_locator(plt.NullLocator())
    ax.legend()
    return figure


if __name__ == "__main__":
    main()
