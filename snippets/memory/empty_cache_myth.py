# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [1]
# ///
"""Empty the cache: what comes back, and what it does when memory is out."""

import torch

from snippets.memory.allocated_vs_reserved import counters
from snippets.memory.empty_cache_cost import tensor


def given_back() -> dict[str, dict[str, int]]:
    """All counters around `empty_cache()`, 64 MiB in use and 1 GiB in the cache."""
    _held, cached = tensor(64), tensor(1024)
    del cached
    before = counters()
    torch.cuda.empty_cache()
    return {"before": before, "after": counters()}


def asked(done: str) -> dict:
    """Then do 1.5 GiB fit, and did PyTorch empty its cache to find out?"""
    before, fits = torch.cuda.memory_stats()["num_alloc_retries"], True
    try:
        tensor(1536)
    except torch.OutOfMemoryError:
        fits = False
    emptied = torch.cuda.memory_stats()["num_alloc_retries"] - before
    return {"done": done, "fits": fits, "emptied_by_itself": emptied}


def when_memory_is_out() -> list[dict]:
    """Three attempts, where PyTorch may take 4 GiB at most."""
    torch.cuda.set_per_process_memory_fraction(2**32 / torch.cuda.mem_get_info()[1])
    held = [tensor(1024) for _ in range(3)]  # each of 1024 MiB
    rows = [asked("three tensors of 1 GiB")]
    torch.cuda.empty_cache()
    rows.append(asked("empty_cache()"))
    held.pop()
    return [*rows, asked("one of the three deleted")]


def main() -> dict:
    around, rows = given_back(), when_memory_is_out()
    for name, before in around["before"].items():
        less = (before - around["after"][name]) >> 20
        print(f"{name:<9} {less:5} MiB less after empty_cache()")
    for row in rows:
        print("{done:<25} 1.5 GiB more fit: {fits}".format(**row))
    return {"given_back": around, "out_of_memory": rows}


if __name__ == "__main__":
    main()
