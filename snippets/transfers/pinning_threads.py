# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11"]
# [tool.overlap]
# gpus = [1]
# ///
"""New pinned memory in one piece, or made by several threads and registered after."""

from functools import partial

import torch

from snippets.timing.benchmark import measure
from snippets.timing.pictures import bars
from snippets.timing.take_turns import recorded

BYTES, THREADS = 128 * 2**20, (1, 2, 4, 8)


def choose(settings: str) -> str:
    """Change PyTorch's allocators; why that is impossible, or nothing.

    In a program of yours set PYTORCH_ALLOC_CONF to this before it starts.
    """
    try:
        torch._C._accelerator_setAllocatorSettings(settings)
    except (AttributeError, RuntimeError, ValueError) as error:
        return f"{type(error).__name__}: {error}".splitlines()[0]
    return ""


def pin(kept: list[torch.Tensor]) -> None:
    """New pinned memory: what is kept cannot be lent a second time."""
    kept.append(torch.empty(BYTES, dtype=torch.uint8, pin_memory=True))


def main() -> dict:
    timings, refused, kept = {"default": measure(partial(pin, []), trials=5)}, {}, []
    for threads in THREADS:
        settings = "pinned_use_cuda_host_register:True"
        why = choose(f"{settings},pinned_num_register_threads:{threads}")
        if why:
            refused[str(threads)] = why
        else:
            work = partial(pin, kept)
            timings[f"threads_{threads}"] = measure(work, warmup=1, trials=5)
    result = {"bytes": BYTES, "refused": refused} | recorded(timings)
    print(*(f"{way:<10}{ms:8.2f} ms" for way, ms in result["ms"].items()), sep="\n")
    print(*(f"{threads} threads: {why}" for threads, why in refused.items()), sep="\n")
    return result


def plot(results: dict, ceilings: dict):
    return bars(
        {way.replace("_", " "): ms for way, ms in results["ms"].items()}, {}, "ms"
    )


if __name__ == "__main__":
    main()
