# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11"]
# [tool.overlap]
# gpus = [1]
# ///
"""What pinning costs: new pinned memory, the cache's, one buffer used again."""

import torch
from torch import Tensor

from snippets.timing.benchmark import measure
from snippets.timing.pictures import bars
from snippets.timing.take_turns import recorded

ELEMENTS = 32 * 2**20  # float32: 128 MiB


def send(x: Tensor, buffer: Tensor, gpu: Tensor, sent: torch.cuda.Event) -> None:
    """Send x through one pinned buffer, not refilled before its last copy has left."""
    sent.synchronize()
    buffer.copy_(x)
    gpu.copy_(buffer, non_blocking=True)
    sent.record()


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

    def pin_new() -> Tensor:
        kept.append(x.pin_memory())  # what stays in use is not lent again
        return kept[-1]

    def copy_on_host() -> None:
        buffer.copy_(x)

    ways = {
        "pageable_copy": lambda: to_gpu(x),
        "pin": pin_new,
        "pin_then_copy": lambda: to_gpu(pin_new()),
        "pin_again": lambda: x.pin_memory(),
        "pin_again_then_copy": lambda: to_gpu(x.pin_memory()),
        "reuse": lambda: send(x, buffer, gpu, sent),
        "pinned_copy": lambda: to_gpu(buffer),
        "on_host": copy_on_host,
    }
    turns = {way: measure(work, warmup=1, trials=5) for way, work in ways.items()}
    torch.set_num_threads(1)
    for way in ("pin", "pin_again", "on_host"):
        turns[f"{way}_one_thread"] = measure(ways[way], warmup=1, trials=5)
    result = {"bytes": x.nbytes, "refusal": refusal(gpu)} | recorded(turns)
    print(f"{x.nbytes / 2**20:g} MiB")
    print(*(f"{way:<24}{ms:8.2f} ms" for way, ms in result["ms"].items()), sep="\n")
    return result | {
        "is_pinned": {"fresh": x.is_pinned(), "buffer": buffer.is_pinned()}
    }


def plot(results: dict, ceilings: dict):
    limits = {}
    if "pcie_gb_s" in ceilings:
        limits["least to cross PCIe"] = results["bytes"] / ceilings["pcie_gb_s"] / 1e6
    times = {way.replace("_", " "): ms for way, ms in results["ms"].items()}
    return bars(times, limits, f"ms for {results['bytes'] / 2**20:g} MiB")


if __name__ == "__main__":
    main()
