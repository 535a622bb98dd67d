# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [1]
# timeout = 180
# few = { h100-80gb-hbm3 = "one run so far" }
# ///
"""Serve one model on one GPU: by several processes, by threads, in batches, as a graph."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from multiprocessing import get_context
from statistics import median, quantiles
from typing import Any

import torch
from torch import Tensor, nn

from snippets.pictures import bars
from snippets.timing.kernel_time import captured

MODELS = {"small": (256, 24, 1), "large": (4096, 4, 2048)}  # width, layers, rows
CLIENTS, WINDOW_S, WINDOWS = 4, 0.25, 3
PROCESSES = (1, 2, 4)
ALONE = ("threads", "batch", "graph")  # in one process


def network(model: str, requests: int = 1) -> tuple[nn.Sequential, Tensor]:
    """A model in bfloat16, and the rows of so many requests."""
    torch.manual_seed(0)
    width, layers, rows = MODELS[model]
    with torch.device("cuda"):
        parts: list[nn.Module] = []
        for _ in range(layers):
            parts += [nn.Linear(width, width), nn.ReLU()]
        net, x = nn.Sequential(*parts), torch.randn(rows, width).repeat(requests, 1)
    return net.bfloat16(), x.bfloat16()


def flop(model: str) -> int:
    """FLOP of the matmuls of a request."""
    width, layers, rows = MODELS[model]
    return 2 * rows * layers * width**2


def answers(request: Callable[[], Tensor], seconds: float) -> list[float]:
    """Ask one request after the other; the seconds until each answer was on the CPU."""
    latencies = []
    end = time.perf_counter() + seconds
    with torch.inference_mode():
        while (start := time.perf_counter()) < end:
            request()[0, 0].item()
            latencies.append(time.perf_counter() - start)
    return latencies


def on_own_stream(request: Callable[[], Tensor], seconds: float) -> list[float]:
    with torch.cuda.stream(torch.cuda.Stream()):
        return answers(request, seconds)


def by_threads(request: Callable[[], Tensor], seconds: float) -> list[float]:
    """What CLIENTS threads get, each on a stream of its own."""
    with ThreadPoolExecutor(CLIENTS) as pool:
        parts = pool.map(on_own_stream, [request] * CLIENTS, [seconds] * CLIENTS)
        return [latency for part in parts for latency in part]


def server(model: str, way: str) -> Callable[[float], list[float]]:
    """A function that serves in this way for so many seconds: latencies of all answers."""
    net, x = network(model, CLIENTS if way == "batch" else 1)
    request = partial(net, x)
    with torch.inference_mode():
        one = network(model)
        expected, rows = one[0](one[1]), len(one[1])
        torch.testing.assert_close(request()[:rows], expected, rtol=0.02, atol=0.02)
        if way == "graph":
            request = captured(request)
    if way == "threads":
        return partial(by_threads, request)
    if way == "batch":  # each answer is one for all clients
        return lambda seconds: answers(request, seconds) * CLIENTS
    return partial(answers, request)


def serve(model: str, way: str, meet: Any, results: Any) -> None:
    """One process: serves at the same time as the others, and sends what it measured."""
    run = server(model, way)
    run(0.05)
    for _ in range(WINDOWS):
        meet.wait(60)
        results.put(run(WINDOW_S))
    meet.wait(60)  # nobody leaves while others serve


def served(model: str, way: str, processes: int) -> dict:
    """Answers a second of so many processes together, and how long each took."""
    context = get_context("forkserver")
    context.set_forkserver_preload(["torch"])
    meet, results = context.Barrier(processes), context.Queue()
    arguments = model, way, meet, results
    servers = [context.Process(target=serve, args=arguments) for _ in range(processes)]
    for process in servers:
        process.start()
    rates, latencies = [], []
    for _ in range(WINDOWS):
        window = [results.get(timeout=90) for _ in range(processes)]
        rates.append(sum(map(len, window)) / WINDOW_S)
        latencies += [latency for each in window for latency in each]
    for process in servers:
        process.join()
    us = [1e6 * latency for latency in latencies]
    row = {"requests_s": median(rates), "requests_s_trials": rates}
    row |= {"latency_us": median(us), "latency_95_us": quantiles(us, n=20)[-1]}
    return row | {"tflop_s": row["requests_s"] * flop(model) / 1e12}


def all_ways() -> dict[str, dict[str, dict]]:
    """`served` of each model, by several processes, and in each way by one."""
    found: dict[str, dict[str, dict]] = {}
    for model in MODELS:
        rows = {}
        for count in PROCESSES:
            rows[f"processes_{count}"] = served(model, "alone", count)
        for way in ALONE:
            rows[way] = served(model, way, 1)
        found[model] = rows
    return found


def tell(rows: dict[str, dict[str, dict]]) -> None:
    for model, ways in rows.items():
        for way, row in ways.items():
            print(
                f"{model:6}{way:12}{row['requests_s']:8.0f} answers a second,", end=""
            )
            print(f" {row['latency_us']:7.0f} µs, of 95% {row['latency_95_us']:7.0f}")


def main() -> dict:
    rows = all_ways()
    tell(rows)
    return {"models": rows, "clients": CLIENTS}


def derive(results: dict) -> dict:
    """Answers a second, as multiples of those of one process."""
    gains = {}
    for model, ways in results["models"].items():
        one = ways["processes_1"]["requests_s"]
        gains[model] = {way: row["requests_s"] / one for way, row in ways.items()}
    return {"gain": gains}


def plot(results: dict, ceilings: dict):
    clients = results["clients"]
    words = {
        "processes_1": "1 process",
        "processes_2": "2 processes",
        "processes_4": "4 processes",
        "threads": f"1 process, {clients} threads\nwith a stream each",
        "batch": f"1 process, a batch of {clients}",
        "graph": "1 process, a CUDA graph",
    }
    groups = {}
    for way, text in words.items():
        groups[text] = {
            f"{model} model": ways[way]["requests_s"]
            / ways["processes_1"]["requests_s"]
            for model, ways in results["models"].items()
        }
    return bars(groups, {}, "answers a second, as multiples of one process")


if __name__ == "__main__":
    main()
