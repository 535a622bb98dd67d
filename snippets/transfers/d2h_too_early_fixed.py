# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11"]
# [tool.overlap]
# gpus = [1]
# ///
"""Fixed: wait on an event, and only then read a device-to-host copy."""

import time
from statistics import median

import torch

ELEMENTS, STRIDE = 16 * 2**20, 2**16  # float32, 64 MiB; every so many is looked at
TRIES, OLD = 100, -1.0


def fetch(on_gpu: torch.Tensor) -> torch.Tensor:
    """Copy to the host, and wait for this copy, not for the whole device."""
    on_host = on_gpu.to("cpu", non_blocking=True)
    landed = torch.cuda.Event()
    landed.record()
    landed.synchronize()
    return on_host


def leave_behind(value: float) -> None:
    """Fill the pinned memory that the next copy gets from PyTorch's cache: what came before."""
    torch.full((ELEMENTS,), value, pin_memory=True)


def keep_busy(x: torch.Tensor) -> None:
    """A few ms of products in the stream, so that the copy starts later than its launch."""
    for _ in range(3):
        torch.mm(x, x)


def attempt(number: int, on_gpu: torch.Tensor, x: torch.Tensor) -> dict:
    """Write a number on the GPU, fetch it, look at once, ask for one value, and look again."""
    leave_behind(OLD)
    keep_busy(x)
    on_gpu.fill_(number)
    start = time.perf_counter()
    on_host = fetch(on_gpu)
    seen, seconds = on_host[::STRIDE].clone(), time.perf_counter() - start
    item = on_gpu[-1].item()  # this waits by itself, for everything in the stream before it
    later = on_host[::STRIDE]
    wrong = {"stale": bool((seen != number).any()), "stale_later": bool((later != number).any())}
    wrong |= {"item": item != number, "pinned": on_host.is_pinned()}
    old = {"old_elements": int((seen == OLD).sum()), "looked_at": len(seen)}
    return wrong | old | {"read_ms": 1e3 * seconds}


def main() -> dict:
    x = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
    on_gpu = torch.empty(ELEMENTS, device="cuda")
    attempt(0, on_gpu, x)  # the first products set up their library
    tries = [attempt(number, on_gpu, x) for number in range(1, TRIES + 1)]
    names = ("stale", "stale_later", "item", "pinned")
    counts = {name: sum(outcome[name] for outcome in tries) for name in names}
    ms = [outcome["read_ms"] for outcome in tries]
    elements = sum(outcome["looked_at"] for outcome in tries)
    old = sum(outcome["old_elements"] for outcome in tries)
    print(f"read as soon as the call was back: wrong in {counts['stale']} of {TRIES} tries")
    print(f"of {elements:,} elements looked at, {old:,} held the value from before")
    print(f".item() was wrong in {counts['item']}; memory read after it in {counts['stale_later']}")
    result = {"tries": TRIES, "counts": counts, "old_elements": old, "looked_at": elements}
    return result | {"bytes": on_gpu.nbytes, "read_ms": median(ms), "read_ms_trials": ms}


if __name__ == "__main__":
    main()
