# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11"]
# [tool.overlap]
# gpus = [1, 2, 4, 8]
# missing = { 8 = "no machine with eight GPUs was available when this was recorded" }
# ///
"""From which kernel on can one thread, or one per GPU, keep all GPUs busy?"""

import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from statistics import median

import torch

from snippets.timing.benchmark import ratios, recorded, take_turns, wait_for

#: n, and how many products of (n, n) each GPU has to do
PRODUCTS = {128: 1000, 512: 600, 640: 500, 768: 400, 1024: 200, 1280: 100, 2048: 40}


def feed(jobs: list, products: int) -> None:
    """Launch a product on each GPU in turn; a job is x and the room for x @ x."""
    for _ in range(products):
        for x, out in jobs:
            torch.mm(x, x, out=out)


def feed_by_threads(pools: list, jobs: list, products: int) -> None:
    """Let each GPU have its own thread, pools[i], that launches for it alone."""
    answers = []
    for pool, job in zip(pools, jobs, strict=True):
        answers.append(pool.submit(feed, [job], products))
    for answer in answers:
        answer.result()


def graph_of(job: tuple, products: int) -> torch.cuda.CUDAGraph:
    """All products of one GPU as one CUDA graph, captured on a stream of that GPU."""
    graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream(job[0].device)
    with torch.cuda.stream(stream):
        feed([job], 1)
        with torch.cuda.graph(graph, stream=stream):  # else: a stream of another GPU
            feed([job], products)
    return graph


def replay(graphs: list[torch.cuda.CUDAGraph]) -> None:
    """Launch every GPU's graph, from this thread."""
    for graph in graphs:
        graph.replay()


def prove(work, jobs: list) -> None:
    """Fail unless one call of work leaves x @ x on every GPU."""
    for _, out in jobs:
        out.zero_()
    wait_for()
    work()
    wait_for()
    for x, out in jobs:
        torch.testing.assert_close(out, x @ x, rtol=1e-4, atol=1e-4)


def launch_us(job: tuple, launches: int = 200, trials: int = 7) -> list[float]:
    """Host microseconds of a launch while the GPU is busy, so that none can begin."""
    costs = []
    for _ in range(trials):
        torch.cuda._sleep(50_000_000)  # cycles: about 25 ms, longer than the launches
        start = time.perf_counter()
        feed([job], launches)
        costs.append(1e6 * (time.perf_counter() - start) / launches)
        wait_for()
    return costs


def compared(n: int, products: int, pools: list) -> dict:
    """All ways with all GPUs and the plain loop and a graph with one, in turns."""
    jobs = []
    for i in range(len(pools)):
        x = torch.randn(n, n, device=f"cuda:{i}") / n**0.25
        jobs.append((x, torch.zeros_like(x)))
    graphs = [graph_of(job, products) for job in jobs]
    everyone = {
        "one_thread": partial(feed, jobs, products),
        "threads": partial(feed_by_threads, pools, jobs, products),
        "graphs": partial(replay, graphs),
    }
    for work in everyone.values():
        prove(work, jobs)
    one = {
        "one_thread": partial(feed, jobs[:1], products),
        "graphs": partial(replay, graphs[:1]),
    }
    return {}


if __name__ == "__main__":
    main()
