# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11"]
# [tool.overlap]
# gpus = [1]
# ///
"""Deal out kernels of growing size to one to eight streams, launched one by one and in a graph."""

import time
from collections.abc import Callable
from functools import partial
from statistics import median

import torch

from snippets.timing.benchmark import measure

STREAMS = (1, 2, 4, 8)
PRODUCTS = {128: 1600, 256: 400, 512: 200, 1024: 80, 2048: 16, 4096: 8}  # n of fp32: launches


def product(n: int, dtype: torch.dtype = torch.float32) -> tuple[Callable, Callable]:
    """Launch x @ x, shape (n, n), into place i of eight; and check all eight, then clear them."""
    x = torch.randn(n, n, device="cuda").div(n**0.25).to(dtype)
    places = torch.zeros(max(STREAMS), n, n, device="cuda", dtype=dtype)

    def check() -> None:
        torch.testing.assert_close(places, (x @ x).expand_as(places), rtol=1e-2, atol=1e-2)
        places.zero_()

    return lambda i: torch.mm(x, x, out=places[i]), check


def spread(launch: Callable, launches: int, streams: list) -> None:
    """Deal out launches in turn to streams that fork from the current stream and join it again."""
    main = torch.cuda.current_stream()
    for stream in streams:
        stream.wait_stream(main)
    for i in range(launches):
        with torch.cuda.stream(streams[i % len(streams)]):
            launch(i % len(streams))
    for stream in streams:
        main.wait_stream(stream)


def captured(work: Callable) -> Callable:
    """A call that replays all that `work` launches, on all the streams that it launches on."""
    work()
    with torch.cuda.graph(graph := torch.cuda.CUDAGraph()):
        work()
    return graph.replay


def trials_ms(works: list[Callable], rest_s: float) -> list[list[float]]:
    """Eleven trials of each, one of each in turn and after a rest, so that the GPU's clock treats them alike."""
    rounds = [[time.sleep(rest_s) or measure(work, warmup=0, trials=1).ms()[0] for work in works] for _ in range(12)]
    return [list(trials) for trials in zip(*rounds[1:], strict=True)]


def main() -> dict:
    kernels = {"one_block": (16, lambda _: torch.cuda._sleep(2_000_000), lambda: None)}
    kernels |= {f"mm_{n}": (launches, *product(n)) for n, launches in PRODUCTS.items()}
    kernels |= {"bf16_mm_8192": (8, *product(8192, torch.bfloat16))}
    pool, results = [torch.cuda.Stream() for _ in range(max(STREAMS))], {"eager": {}, "graph": {}}
    for name, (launches, launch, check) in kernels.items():
        works = [partial(spread, launch, launches, pool[:streams]) for streams in STREAMS]
        ways = {"eager": works, "graph": [captured(work) for work in works]}
        for way, same_work in ways.items():
            check()  # of what was launched last
            trials = trials_ms(same_work, 0.05 if launches <= 8 else 0)  # the large ones reach the power limit
            ratios = [[one / ms for one, ms in zip(trials[0], each, strict=True)] for each in trials]
            row = {"speedup": [median(each) for each in ratios], "speedup_trials": ratios}
            results[way][name] = row | {"ms_trials": trials}
        check()
        shown = [f"{way} {results[way][name]['speedup'][-1]:5.2f}×" for way in ways]
        print(f"{name:<13} on {STREAMS[-1]} streams: {', '.join(shown)}")
    return results | {"streams": list(STREAMS), "kernels": list(kernels)}


def plot(results: dict, ceilings: dict):
    import matplotlib.pyplot as plt

    (figure, axes), streams = plt.subplots(1, 2, sharey=True), results["streams"]
    names = [kernel.replace("_", " ") for kernel in results["kernels"]]
    for ax, way in zip(axes, ("eager", "graph"), strict=True):
        rows = [results[way][kernel]["speedup"] for kernel in results["kernels"]]
        ax.grid(False)
        ax.pcolormesh([str(n) for n in streams], names, rows, vmin=0, vmax=max(streams))
        for y, row in enumerate(rows):
            for x, value in enumerate(row):
                ink = "black" if value > 0.6 * max(streams) else "white"
                ax.text(x, y, f"{value:.1f}", ha="center", va="center", color=ink)
        ax.set(title=way, xlabel="streams")
    axes[0].invert_yaxis()
    return figure


if __name__ == "__main__":
    main()
