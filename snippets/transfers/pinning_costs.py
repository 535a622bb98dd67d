# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11"]
# [tool.overlap]
# gpus = [1]
# ///
"""What pinning costs: new pinned memory, pinned memory from the cache, one buffer used again."""

from statistics import median

import torch
from torch import Tensor

from snippets.timing.benchmark import measure

ELEMENTS = 32 * 2**20  # float32: 128 MiB
LABELS = {
    "pageable_copy": '.to("cuda")',
    "pin": "pin_memory(), new",
    "pin_then_copy": "the same, then .to()",
    "pin_again": "pin_memory(), cached",
    "pin_again_then_copy": "the same, then .to()",
    "reuse": "into my own buffer, sent",
    "pinned_copy": ".to(), pinned already",
}


def to_gpu(x: Tensor) -> Tensor:
    return x.to("cuda", non_blocking=True)


def send(x: Tensor, buffer: Tensor, gpu: Tensor, sent: torch.cuda.Event) -> None:
    """Send x through one pinned buffer, which is not touched before its last copy has left."""
    sent.synchronize()
    buffer.copy_(x)
    gpu.copy_(buffer, non_blocking=True)
    sent.record()


def refusal(gpu: Tensor) -> str:
    """What PyTorch says when it is asked to pin a tensor that is on the GPU."""
    try:
        gpu.pin_memory()
    except RuntimeError as error:
        return str(error).splitlines()[0]
    return ""


def both_arrive(x: Tensor, double: Tensor, buffer: Tensor, sent: torch.cuda.Event) -> bool:
    """Send two tensors through one buffer, one right after the other: neither may be lost."""
    first, second = (torch.zeros_like(x, device="cuda") for _ in range(2))
    send(x, buffer, first, sent)
    send(double, buffer, second, sent)
    return torch.equal(first.cpu(), x) and torch.equal(second.cpu(), double)


def main() -> dict:
    x = torch.randn(ELEMENTS)
    buffer, gpu, sent = x.pin_memory(), x.to("cuda"), torch.cuda.Event()
    assert both_arrive(x, 2 * x, buffer, sent), "the buffer was overwritten before it had left"
    kept = []  # what stays in use cannot be taken from the cache, so the next one is new
    ways = {
        "pageable_copy": lambda: to_gpu(x),
        "pin": lambda: kept.append(x.pin_memory()),
        "pin_then_copy": lambda: to_gpu(kept.append(x.pin_memory()) or kept[-1]),
        "pin_again": lambda: x.pin_memory(),
        "pin_again_then_copy": lambda: to_gpu(x.pin_memory()),
        "reuse": lambda: send(x, buffer, gpu, sent),
        "pinned_copy": lambda: to_gpu(buffer),
    }
    trials = {way: measure(work, warmup=1, trials=5).ms() for way, work in ways.items()}
    ms = {way: median(trials[way]) for way in ways}
    print(f"{x.nbytes / 2**20:g} MiB")
    print(*(f"{LABELS[way]:<26}{ms[way]:8.2f} ms" for way in ways), sep="\n")
    result = {"bytes": x.nbytes, "ms": ms, "ms_trials": trials, "refusal": refusal(gpu)}
    return result | {"is_pinned": {"fresh": x.is_pinned(), "buffer": buffer.is_pinned()}}


def plot(results: dict, ceilings: dict):
    import matplotlib.pyplot as plt

    figure, ax = plt.subplots()
    rows = range(len(LABELS))
    ax.bar_label(ax.barh(rows, [results["ms"][way] for way in LABELS]), fmt="%.1f", padding=3)
    if "pcie_gb_s" in ceilings:
        least = results["bytes"] / ceilings["pcie_gb_s"] / 1e6
        ax.axvline(least, color="gray", linestyle="--", label="least possible")
        ax.text(least, -0.6, f" least to cross PCIe: {least:.1f}", color="gray", va="bottom")
    ax.set(xlabel=f"ms for {results['bytes'] / 2**20:g} MiB", xmargin=0.2)
    ax.set_yticks(rows, labels=LABELS.values())
    ax.invert_yaxis()
    return figure


if __name__ == "__main__":
    main()
