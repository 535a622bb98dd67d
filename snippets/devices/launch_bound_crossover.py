# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11"]
# [tool.overlap]
# gpus = [1, 2, 4, 8]
# missing = { 8 = "no machine with eight GPUs was available when this was recorded" }
# ///
"""Four ways to feed all visible GPUs, and the kernel size from which each way keeps all of them busy."""

from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from functools import cache, partial
from multiprocessing import get_context

import torch

from snippets.timing.benchmark import measure

PRODUCTS = {128: 2000, 512: 2000, 1024: 500, 2048: 100}  # n: products for each GPU


@cache
def operands(n: int, device: str) -> tuple[torch.Tensor, torch.Tensor]:
    """x (n, n), the same on every device, and room (n, n) for x @ x, whose entries have unit variance."""
    x = torch.randn(n, n, generator=torch.Generator().manual_seed(n)) / n**0.25
    return x.to(device), torch.zeros(n, n, device=device)


def feed(n: int, devices: list[str], products: int, check: bool = False) -> None:
    """Launch for all devices from one thread, a product each in turn; to check is to wait, compare and clear."""
    jobs = [operands(n, device) for device in devices]
    for x, y in jobs * products:
        torch.mm(x, x, out=y)
    for x, y in jobs if check else ():
        torch.testing.assert_close(y, x @ x, rtol=1e-4, atol=1e-4)
        y.zero_()


def hand_out(workers: dict, n: int, devices: list[str], products: int) -> None:
    """Let each device be fed, waited for and checked by its own worker: a thread or a process."""
    for answer in [workers[device].submit(feed, n, [device], products, True) for device in devices]:
        answer.result()


def captured(n: int, devices: list[str], products: int):
    """Work that launches one CUDA graph per device, which holds all of its products."""
    graphs = {device: torch.cuda.CUDAGraph() for device in devices}
    for device, graph in graphs.items():
        with torch.cuda.stream(stream := torch.cuda.Stream(device=device)):
            feed(n, [device], 1, check=True)
            with torch.cuda.graph(graph, stream=stream):  # without stream= the capture listens on GPU 0, in vain
                feed(n, [device], products)
    return lambda: [graph.replay() for graph in graphs.values()]


def report(gpus: int, timings: dict) -> dict:
    """Medians, spreads and trials for one GPU and for all, and the speed-up, which is 1 by definition on one GPU."""
    results = {"visible_gpus": gpus, "n": list(PRODUCTS), "products": list(PRODUCTS.values())}
    for crowd, rows in timings.items():
        results[f"{crowd}_ms"] = {way: [1e3 * t.median for t in row] for way, row in rows.items()}
        results[f"{crowd}_spread_ms"] = {way: [1e3 * t.spread for t in row] for way, row in rows.items()}
        results[f"{crowd}_ms_trials"] = {way: [t.ms() for t in row] for way, row in rows.items()}
    pairs = {way: zip(row, results["all_ms"][way], strict=True) for way, row in results["one_ms"].items()}
    speedup = {way: [gpus * one / all_ if gpus > 1 else 1.0 for one, all_ in row] for way, row in pairs.items()}
    return results | {"speedup": speedup}


def main() -> dict:
    devices = [f"cuda:{i}" for i in range(torch.cuda.device_count())]
    threads = {d: ThreadPoolExecutor(1, d, torch.cuda.set_device, (d,)) for d in devices}
    processes = {d: ProcessPoolExecutor(1, get_context("spawn"), torch.cuda.set_device, (d,)) for d in devices}
    timings = {crowd: {way: [] for way in ("one_thread", "threads", "processes", "graphs")} for crowd in ("all", "one")}
    for n, products in PRODUCTS.items():
        for crowd, row in zip((devices, devices[:1]), timings.values(), strict=True):
            row["one_thread"] += [measure(partial(feed, n, crowd, products))]
            feed(n, crowd, 0, check=True)
            row["threads"] += [measure(partial(hand_out, threads, n, crowd, products))]
            row["processes"] += [measure(partial(hand_out, processes, n, crowd, products))]
            row["graphs"] += [measure(captured(n, crowd, products))]
            feed(n, crowd, 0, check=True)
    results = report(len(devices), timings)
    for way, speedups in results["speedup"].items():
        print(f"{way:<10}", *(f"n = {n}: {speedup:5.2f}×  " for n, speedup in zip(PRODUCTS, speedups, strict=True)))
    return results


def plot(results: dict, ceilings: dict):
    """Speed-up over the size of the product, a line for each way, under as many GPUs as there are."""
    import matplotlib.pyplot as plt

    (figure, ax), n = plt.subplots(), results["n"]
    for way, speedups in results["speedup"].items():
        ax.semilogx(n, speedups, base=2, marker="o", label=way.replace("_", " "))
    ax.axhline(results["visible_gpus"], color="gray", linestyle="--", label="number of GPUs")
    ax.set(ylim=(0, None), xlabel="n of the n × n product", ylabel="speed-up over one GPU", xticks=n, xticklabels=n)
    ax.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2)
    return figure


if __name__ == "__main__":
    main()
