# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [1]
# ///
"""Broken on purpose: read a device-to-host copy before it has landed."""

import torch
from torch import Tensor

ELEMENTS, STRIDE = 16 * 2**20, 2**16  # float32, 64 MiB; each 65,536th is looked at
TRIES, OLD = 100, -1.0


def fetch(on_gpu: Tensor) -> Tensor:
    """Copy to the host, and do not wait."""
    return on_gpu.to("cpu", non_blocking=True)


def attempt(fetch, number: int, on_gpu: Tensor, x: Tensor) -> dict:
    """Write a number on the GPU, fetch it, look, ask for one value, look again."""
    torch.full((ELEMENTS,), OLD, pin_memory=True)  # the cache lends this memory again
    for _ in range(3):  # a few ms, so that the copy starts after its launch
        torch.mm(x, x)
    on_gpu.fill_(number)
    on_host = fetch(on_gpu)
    seen = on_host[::STRIDE].clone()
    return {
        "stale": bool((seen != number).any()),
        "old_looks": int((seen == OLD).sum()),
        "item": on_gpu[-1].item() != number,  # waits for all that is in the stream
        "stale_later": bool((on_host[::STRIDE] != number).any()),
        "pinned": on_host.is_pinned(),
    }


def attempts(fetch) -> dict:
    """How often of TRIES what was fetched is wrong."""
    x = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
    on_gpu = torch.empty(ELEMENTS, device="cuda")
    attempt(fetch, 0, on_gpu, x)  # the first matmuls set up their library
    tries = [attempt(fetch, i + 1, on_gpu, x) for i in range(TRIES)]
    counts = {name: sum(found[name] for found in tries) for name in tries[0]}
    looks = TRIES * ELEMENTS // STRIDE
    print(f"read as soon as `fetch` was back: wrong in {counts['stale']} of {TRIES}")
    print(f"of {looks:,} looks {counts['old_looks']:,} found the old value")
    print(f"wrong: .item() {counts['item']}, read after it {counts['stale_later']}")
    return {"tries": TRIES, "looks": looks, "counts": counts}


def main() -> dict:
    return attempts(fetch)


if __name__ == "__main__":
    main()
