# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11"]
# [tool.overlap]
# gpus = [1]
# ///
"""A small product in a hurry, launched while large kernels fill the GPU: which stream lets it through?"""

import time
from collections.abc import Callable
from statistics import median

import torch

QUEUED, TRIALS = 6, 15
WAYS = {"idle": "idle GPU", "urgent": "stream of priority -1", "other": "another stream", "same": "the same stream"}


def crowds() -> dict[str, Callable[[], object]]:
    """Launches of kernels that fill the GPU for milliseconds: a sum, of many short blocks, and a product, of long ones."""
    numbers, x = torch.zeros(2**30, device="cuda"), torch.randn(4096, 4096, device="cuda")
    room = torch.empty_like(x)
    return {"short_blocks": lambda: numbers.add_(1), "long_blocks": lambda: torch.mm(x, x, out=room)}


def fill(crowd: Callable[[], object]) -> None:
    """Queue large kernels in the current stream, and return when the second one has just begun."""
    crowd()
    first_is_over = torch.cuda.current_stream().record_event()
    for _ in range(QUEUED):
        crowd()
    first_is_over.synchronize()


def latency_ms(stream: torch.cuda.Stream, x: torch.Tensor, product: torch.Tensor) -> float:
    """ms from the launch of product = x @ x, shape (512, 512), in this stream until it is there."""
    start = time.perf_counter()
    with torch.cuda.stream(stream):
        torch.mm(x, x, out=product)
        stream.record_event().synchronize()
    return 1e3 * (time.perf_counter() - start)


def trial(way: str, stream: torch.cuda.Stream, crowd: Callable[[], object], x: torch.Tensor) -> float:
    """The latency in one of the ways, after a look at whether the product is right."""
    product = torch.zeros_like(x)
    torch.cuda.synchronize()
    if way != "idle":
        fill(crowd)
    ms = latency_ms(stream, x, product)
    torch.cuda.synchronize()
    torch.testing.assert_close(product, x @ x)
    return ms


def main() -> dict:
    x, results = torch.randn(512, 512, device="cuda"), {}
    streams = {"idle": torch.cuda.Stream(), "urgent": torch.cuda.Stream(priority=-1), "other": torch.cuda.Stream()}
    streams["same"] = torch.cuda.current_stream()
    for name, crowd in crowds().items():
        rounds = [{way: trial(way, streams[way], crowd, x) for way in WAYS} for _ in range(2 + TRIALS)][2:]
        trials = {way: [each[way] for each in rounds] for way in WAYS}
        ms = {way: median(trials[way]) for way in WAYS}
        print(f"beside kernels of {name.replace('_', ' ')}")
        print(*(f"  {label:<22}{ms[way]:8.3f} ms" for way, label in WAYS.items()), sep="\n")
        results[name] = {"ms": ms, "ms_trials": trials}
    return results | {"queued": QUEUED, "priorities": list(torch.cuda.Stream.priority_range())}


def plot(results: dict, ceilings: dict):
    import matplotlib.pyplot as plt

    figure, ax = plt.subplots()
    for i, name in enumerate(("short_blocks", "long_blocks")):
        ms = [results[name]["ms"][way] for way in WAYS]
        bars = ax.barh([row + 0.4 * i for row in range(len(ms))], ms, height=0.38, label=name.replace("_", " "))
        ax.bar_label(bars, fmt="%.2g", padding=3)
    ax.set(xscale="log", xlabel="ms until the small product is done", xmargin=0.2)
    ax.set_yticks([row + 0.2 for row in range(len(WAYS))], WAYS.values())
    ax.xaxis.set_major_formatter("{x:g}")
    ax.invert_yaxis()
    figure.legend(loc="outside upper left", ncols=2)
    return figure


if __name__ == "__main__":
    main()
