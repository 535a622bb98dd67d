# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [1]
# ///
"""What pinning costs: new pinned memory, the cache's, one buffer used again."""

from statistics import median

import torch
from torch import Tensor

from snippets.pictures import bars
from snippets.timing.take_turns import ratios, recorded, take_turns

ELEMENTS = 32 * 2**20  # float32: 128 MiB


def send(x: Tensor, buffer: Tensor, gpu: Tensor, sent: torch.cuda.Event) -> None:
    """Send x through one pinned buffer, not refilled before its last copy has left."""
    sent.synchronize()
    buffer.copy_(x)
    gpu.copy_(buffer, non_blocking=True)
    sent.record(torch.cuda.current_stream(gpu.device))


def to_gpu(x: Tensor) -> Tensor:
    return x.to("cuda", non_blocking=True)


def refusal(gpu: Tensor) -> str:
    """What PyTorch says when it is asked to pin a tensor that is on the GPU."""
    try:
        gpu.pin_memory()
    except RuntimeError as error:
        return str(error).splitlines()[0]
    return ""


def main() -> dict:
    x, kept = torch.randn(ELEMENTS), []
    buffer, gpu, sent = x.pin_memory(), to_gpu(x), torch.cuda.Event()
    lent = [x.pin_memory()]  # so the cache has something to lend in `pin_again` only

    def pin() -> Tensor:
        kept.append(x.pin_memory())  # what stays in use is not lent again
        return kept[-1]

    def pin_again() -> Tensor:
        lent.clear()
        lent.append(x.pin_memory())
        return lent[0]

    ways = {
        "pageable_copy": lambda: to_gpu(x),
        "pinned_copy": lambda: to_gpu(buffer),
        "pin": pin,
        "pin_then_copy": lambda: to_gpu(pin()),
        "pin_again": pin_again,
        "pin_again_then_copy": lambda: to_gpu(pin_again()),
        "reuse": lambda: send(x, buffer, gpu, sent),
    }
    turns = take_turns(ways, warmup=1, trials=9)
    pairs = {"pin": "pin_again", "pin_then_copy": "pageable_copy"}
    pairs["pageable_copy"] = "pin_again_then_copy"
    times = {slow: ratios(turns[slow], turns[fast]) for slow, fast in pairs.items()}
    result = {"bytes": x.nbytes, "refusal": refusal(gpu)} | recorded(turns)
    print(f"{x.nbytes / 2**20:g} MiB")
    print(*(f"{way:<24}{ms:8.2f} ms" for way, ms in result["ms"].items()), sep="\n")
    medians = {slow: median(each) for slow, each in times.items()}
    return result | {"times": medians, "times_trials": times}


def plot(results: dict, ceilings: dict):
    limits = {}
    if "pcie_gb_s" in ceilings:
        limits["at PCIe's rate"] = results["bytes"] / ceilings["pcie_gb_s"] / 1e6
    ways = {
        "new pinned memory,\nthen copy": "pin_then_copy",
        "plain copy,\npageable": "pageable_copy",
        "pinned memory from\nthe cache, then copy": "pin_again_then_copy",
        "pinned buffer\nof your own": "reuse",
    }
    times = {text: results["ms"][way] for text, way in ways.items()}
    return bars(times, limits, f"ms for {results['bytes'] / 2**20:g} MiB")


if __name__ == "__main__":
    main()
