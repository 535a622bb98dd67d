# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [1]
# ///
"""Does running ahead cost memory? Results dropped or kept, batches from the host."""

import torch

STEPS, ELEMENTS = 100, 2**16  # 256 KiB of float32 for each result and each batch
CYCLES = 200_000_000  # about 100 ms of earlier work, so that all steps queue up


def results_at_peak(wait: bool, keep: bool) -> int:
    """How many results of x + 1 the GPU's memory held at most, in STEPS steps."""
    x, kept = torch.ones(ELEMENTS, device="cuda"), []
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    torch.cuda._sleep(CYCLES)
    for _ in range(STEPS):
        y = x + 1
        if keep:
            kept.append(y)
        if wait:
            torch.cuda.synchronize()
    return round((torch.cuda.max_memory_allocated() - before) / y.nbytes)


def pinned_batches(wait: bool) -> int:
    """How many places in pinned memory STEPS batches on their way to the GPU took."""
    places = set()
    torch.cuda._sleep(CYCLES)
    for _ in range(STEPS):
        batch = torch.empty(ELEMENTS, pin_memory=True)
        batch.to("cuda", non_blocking=True)
        places.add(batch.data_ptr())
        if wait:
            torch.cuda.synchronize()
    return len(places)


def main() -> dict:
    result = {}
    for way, wait in {"waiting": True, "ahead": False}.items():
        dropped = results_at_peak(wait, keep=False)
        kept, pinned = results_at_peak(wait, keep=True), pinned_batches(wait)
        print(f"{way:8}{dropped:4} results, {kept:4} if kept, {pinned:4} batches")
        result[way] = {"dropped": dropped, "kept": kept, "pinned": pinned}
    return {"steps": STEPS, "elements": ELEMENTS} | result


if __name__ == "__main__":
    main()
