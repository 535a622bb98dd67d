# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [1]
# ///
"""New pinned memory from CUDA, or made by several threads and registered after."""

from functools import partial
from statistics import median

import torch

from snippets.pictures import bars
from snippets.timing.take_turns import ratios, recorded, take_turns

BYTES, THREADS = 128 * 2**20, (1, 2, 4, 8)


def choose(threads: int) -> None:
    """Let so many threads make new pinned memory; 0 asks CUDA for it, the default.

    In a program of yours set PYTORCH_ALLOC_CONF to this before it starts.
    """
    settings = f"pinned_use_cuda_host_register:{threads > 0}"
    settings += f",pinned_num_register_threads:{max(threads, 1)}"
    torch._C._accelerator_setAllocatorSettings(settings)


def pin(threads: int, kept: list[torch.Tensor]) -> None:
    """New pinned memory: what is kept cannot be lent a second time."""
    choose(threads)
    kept.append(torch.empty(BYTES, dtype=torch.uint8, pin_memory=True))


def main() -> dict:
    kept = []
    ways = {f"threads_{n}": partial(pin, n, kept) for n in THREADS}
    turns = take_turns({"default": partial(pin, 0, kept)} | ways, warmup=1, trials=7)
    result = {"bytes": BYTES} | recorded(turns)
    print(*(f"{way:<10}{ms:8.2f} ms" for way, ms in result["ms"].items()), sep="\n")
    faster = ratios(turns["threads_1"], turns["threads_8"])
    return result | {"faster": median(faster), "faster_trials": faster}


def plot(results: dict, ceilings: dict):
    times = {}
    for way, ms in results["ms"].items():
        name = " ".join(reversed(way.split("_")))
        times["1 thread" if name == "1 threads" else name] = ms
    return bars(times, {}, "ms")


if __name__ == "__main__":
    main()
