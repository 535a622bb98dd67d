# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [1, 2, 4, 8]
# ///
"""How long must a kernel be for one thread to keep all GPUs busy?"""

from functools import partial
from statistics import median
from typing import Any

import torch

from snippets.pictures import Rule, sweep
from snippets.timing.benchmark import measure
from snippets.timing.take_turns import ratios, recorded, take_turns
from snippets.timing.wait_for import wait_for

#: n, and how many products of (n, n) with itself each GPU has to do
PRODUCTS = {128: 2000, 512: 400, 640: 300, 768: 250, 1024: 150, 1280: 100, 2048: 30}


def feed(jobs: list[tuple[torch.Tensor, torch.Tensor]], products: int) -> None:
    """Launch a product on each GPU in turn; a job is x and the room for x @ x."""
    for _ in range(products):
        for x, out in jobs:
            torch.mm(x, x, out=out)


def graph_of(x: torch.Tensor, out: torch.Tensor, products: int) -> torch.cuda.CUDAGraph:
    """All products of one GPU as one CUDA graph, captured on a stream of that GPU.

    x and out must be ready: that stream does not wait for what made them.
    """
    graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream(x.device)
    with torch.cuda.stream(stream):
        feed([(x, out)], 1)
        with torch.cuda.graph(graph, stream=stream):  # else: a stream of another GPU
            feed([(x, out)], products)
        out.zero_()
        graph.replay()
        torch.testing.assert_close(out, x @ x, rtol=1e-4, atol=1e-4)
    return graph


def replay(graphs: list[torch.cuda.CUDAGraph]) -> None:
    """Launch every GPU's graph, from this thread."""
    for graph in graphs:
        graph.replay()


def launch_us(job: tuple, launches: int = 100) -> float:
    """Host microseconds of a launch while the GPU is busy, so that none can begin.

    The job is on the current GPU.
    """
    torch.cuda._sleep(20_000_000)  # cycles: about 10 ms, longer than the launches
    time = measure(partial(feed, [job], launches), devices=[], warmup=0, trials=1)
    wait_for()
    return 1e6 * time.median / launches


def compared(n: int, products: int, gpus: int) -> dict:
    """One GPU and all of them, by loop and by graph, in turns; and a launch alone."""
    xs = [torch.randn(n, n, device=f"cuda:{i}") / n**0.5 for i in range(gpus)]
    jobs = [(x, torch.zeros_like(x)) for x in xs]
    graphs = [graph_of(*job, products) for job in jobs]
    works = {}
    for crowd, count in {"one": 1, "all": gpus}.items():
        works[crowd, "one_thread"] = partial(feed, jobs[:count], products)
        works[crowd, "graphs"] = partial(replay, graphs[:count])
    times, launch = take_turns(works, trials=7), [launch_us(jobs[0]) for _ in range(7)]
    row = {"n": n, "products": products, "speedup": {}}
    row |= {"launch_us": median(launch), "launch_us_trials": launch}
    for way in ("one_thread", "graphs"):
        pairs = ratios(times["one", way], times["all", way])
        row["speedup"][way] = gpus * median(pairs)
    for crowd in ("one", "all"):
        timings = {way: times[crowd, way] for way in row["speedup"]}
        row |= {f"{crowd}_{key}": ms for key, ms in recorded(timings).items()}
    return row


def columns(rows: list[Any]) -> list[Any] | dict[str, Any]:
    """Dicts of one shape as one such dict, with lists for its leaves."""
    if not isinstance(rows[0], dict):
        return rows
    return {key: columns([row[key] for row in rows]) for key in rows[0]}


def main() -> dict:
    gpus = torch.cuda.device_count()
    rows = [compared(n, products, gpus) for n, products in PRODUCTS.items()]
    for row in rows:
        loop, graphs = row["speedup"].values()
        print(f"n = {row['n']:4}: one thread {loop:.2f}×, with graphs {graphs:.2f}×")
    return {"visible_gpus": gpus} | columns(rows)


def derive(results: dict) -> dict:
    """How far one thread is from the longer of kernels and launches; both, by rows."""
    one, off = results["one_ms"], []
    rows = zip(
        one["one_thread"],
        one["graphs"],
        results["products"],
        results["launch_us"],
        strict=True,
    )
    for ms, kernels_ms, products, launch_us in rows:
        longer_ms = products * max(1e3 * kernels_ms / products, launch_us) / 1e3
        off.append(abs(ms / longer_ms - 1))
    kernel_us = [
        1e3 * ms / products
        for ms, products in zip(one["graphs"], results["products"], strict=True)
    ]
    launch_at = dict(zip(results["n"], results["launch_us"], strict=True))
    gpus, ratios = results["visible_gpus"], []
    speedups = zip(
        results["speedup"]["one_thread"], kernel_us, results["launch_us"], strict=True
    )
    for speedup, kernel, launch in speedups:
        predicted = gpus * max(kernel, launch) / max(kernel, gpus * launch)
        ratios.append(max(speedup / predicted, predicted / speedup))
    return {
        "off_model": off,
        "kernel_us": kernel_us,
        "launch_at": launch_at,
        "other_launch_us": max(launch_at[n] for n in (128, 1024, 2048)),
        "off_two_times": ratios,
    }


def plot(results: dict, ceilings: dict):
    """Speed-up over the length of the kernel, beside the model and the ceiling.

    With one GPU, which cannot be faster than itself: how long one product takes.
    """
    gpus, ms = results["visible_gpus"], results["one_ms"]["graphs"]
    kernel = [1e3 * t / p for t, p in zip(ms, results["products"], strict=True)]
    pairs = zip(kernel, results["launch_us"], strict=True)
    if gpus == 1:
        looped = zip(results["one_ms"]["one_thread"], results["products"], strict=True)
        lines = {"CUDA graphs": kernel}
        lines["launched one by one"] = [1e3 * ms / count for ms, count in looped]
        lines["the longer of kernel and launch"] = [max(pair) for pair in pairs]
        ylabel, ends = "one product on one GPU, µs", {}
    else:
        lines = {"CUDA graphs": results["speedup"]["graphs"]}
        lines["one thread, alternating"] = results["speedup"]["one_thread"]
        model = [gpus * max(k, us) / max(k, gpus * us) for k, us in pairs]
        lines["formula for one thread"] = model
        ylabel, ends = "speed, times one GPU", {"number of GPUs": gpus}
    labels = {"xlabel": "one kernel, µs", "ylabel": ylabel}
    picture = sweep(kernel, lines, {}, xlog=True, ylog=gpus == 1, **labels)
    panel = picture.panels[0]
    panel.marks[-1].dash, panel.marks[-1].dots = "1 2", False
    for line, color in zip(panel.marks, (2, 1, 3), strict=True):  # a graph is orange
        line.color = color
    panel.x.ticks = {us: str(us) for us in (5, 10, 20, 50, 100, 200)}
    for label, limit in ends.items():
        panel.marks.append(Rule("y", limit, label))
        panel.y.ticks = {n: str(n) for n in range(gpus + 1)}
        panel.y.high = 1.1 * gpus
    return picture


if __name__ == "__main__":
    main()
