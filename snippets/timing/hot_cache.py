# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11"]
# [tool.overlap]
# gpus = [1]
# ///
"""The same kernel over the same bytes, always in one buffer or in a new buffer each time: cache or memory?"""

from collections.abc import Callable
from statistics import median

import torch

from snippets.timing.benchmark import measure

MIB, POOL_MIB, SIZES_MIB = 2**20, 1024, (1, 2, 4, 8, 16, 24, 32, 48, 64, 128, 256)


def repeat_same(pool: torch.Tensor, size: int) -> list[torch.Tensor]:
    """As many times the first buffer of `size` elements as there are such buffers in the pool."""
    return [pool[:size]] * (len(pool) // size)


def rotate(pool: torch.Tensor, size: int) -> list[torch.Tensor]:
    """Each buffer of `size` elements of the pool once: the next one has long left the cache."""
    return [pool[start : start + size] for start in range(0, len(pool) // size * size, size)]


def increments(buffers: list[torch.Tensor]) -> None:
    """Read and write each buffer in turn, in place."""
    for buffer in buffers:
        buffer.add_(1)


def captured(work: Callable[[], None]) -> Callable[[], None]:
    """The work as one launch, because single launches would cost more than the small kernels."""
    work()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    return graph.replay


def bandwidth(buffers: list[torch.Tensor], pool: torch.Tensor) -> list[float]:
    """Trials in GB/s, read plus written, after a look at whether every element was counted up as often as it should."""
    replay = captured(lambda: increments(buffers))
    pool.zero_()
    replay()
    assert int(pool.double().sum()) == sum(map(len, buffers))
    moved = 2 * 4 * sum(map(len, buffers))
    return [moved / seconds / 1e9 for seconds in measure(replay, trials=11).trials]


def main() -> dict:
    pool = torch.zeros(POOL_MIB * MIB // 4, device="cuda")
    cache = torch.cuda.get_device_properties(0).L2_cache_size / MIB
    hot, cold = [], []
    print(f"L2: {cache:.0f} MiB\nbuffer    the same again   another each time")
    for size in SIZES_MIB:
        for gb_s, choose in ((hot, repeat_same), (cold, rotate)):
            gb_s.append(bandwidth(choose(pool, size * MIB // 4), pool))
        print(f"{size:4} MiB{median(hot[-1]):12,.0f} GB/s{median(cold[-1]):15,.0f} GB/s")
    results = {"l2_mib": cache, "buffer_mib": list(SIZES_MIB), "hot_gb_s_trials": hot, "cold_gb_s_trials": cold}
    return results | {"hot_gb_s": list(map(median, hot)), "cold_gb_s": list(map(median, cold))}


def plot(results: dict, ceilings: dict):
    import matplotlib.pyplot as plt

    figure, ax = plt.subplots()
    sizes = results["buffer_mib"]
    ax.plot(sizes, [gb_s / 1e3 for gb_s in results["hot_gb_s"]], marker="o", label="the same buffer again")
    ax.plot(sizes, [gb_s / 1e3 for gb_s in results["cold_gb_s"]], marker="o", label="another buffer each time")
    if "hbm_gb_s" in ceilings:
        ax.axhline(ceilings["hbm_gb_s"] / 1e3, color="gray", linestyle="--", label="memory, ceiling")
    ax.axvline(results["l2_mib"], color="gray", linestyle=":", label="size of the L2")
    ax.set(xscale="log", xlabel="buffer, MiB", ylabel="read and written, TB/s", ylim=(0, None))
    ax.set_xticks([1, 4, 16, 64, 256], labels=["1", "4", "16", "64", "256"])
    ax.xaxis.set_minor_locator(plt.NullLocator())
    ax.legend()
    return figure


if __name__ == "__main__":
    main()
