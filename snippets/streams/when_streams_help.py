# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [1]
# ///
"""Deal out kernels of growing size to one to eight streams, eager and in a graph."""

from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Any

import torch

from snippets.pictures import Axis, Cells, Panel, Picture
from snippets.timing.kernel_time import captured
from snippets.timing.take_turns import ratios, take_turns

STREAMS = (1, 2, 4, 8)
LAUNCHES = {128: 1600, 256: 400, 512: 200, 1024: 80, 4096: 8}  # by n, fp32


def spread(
    launch: Callable[..., Any], launches: int, streams: list[torch.cuda.Stream]
) -> None:
    """Deal out launches in turn to streams that fork from the current one and join it.

    `launch(i)` is called on stream i.
    """
    main = torch.cuda.current_stream()
    for stream in streams:
        stream.wait_stream(main)
    for number in range(launches):
        i = number % len(streams)
        with torch.cuda.stream(streams[i]):
            launch(i)
    for stream in streams:
        main.wait_stream(stream)


def product(
    n: int, dtype: torch.dtype
) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Launch x @ x, shape (n, n), into place i of eight; check all and clear them."""
    x = torch.randn(n, n, device="cuda").div(n**0.25).to(dtype)
    places = torch.zeros(max(STREAMS), n, n, device="cuda", dtype=dtype)

    def check() -> None:
        right = (x @ x).expand_as(places)
        torch.testing.assert_close(places, right, rtol=1e-2, atol=1e-2)
        places.zero_()

    return lambda i: torch.mm(x, x, out=places[i]), check


def compared(works: list[Callable[..., Any]], rest_s: float) -> dict:
    """How many times as fast as the first each of them is, round by round."""
    timings = take_turns(dict(enumerate(works)), warmup=1, trials=5, rest_s=rest_s)
    trials = [ratios(timings[0], timing) for timing in timings.values()]
    return {"speedup": [median(each) for each in trials], "speedup_trials": trials}


def main() -> dict:
    spin = partial(torch.cuda._sleep, 8_000_000)
    kernels = {"one_block": (8, lambda i: spin(), lambda: None)}
    for n, launches in LAUNCHES.items():
        kernels[f"mm_{n}"] = (launches, *product(n, torch.float32))
    kernels["bf16_mm_8192"] = (8, *product(8192, torch.bfloat16))
    pool, results = [torch.cuda.Stream() for _ in range(8)], {"eager": {}, "graph": {}}
    for name, (launches, launch, check) in kernels.items():
        eager = [partial(spread, launch, launches, pool[:n]) for n in STREAMS]
        ways = {"eager": eager, "graph": [captured(work) for work in eager]}
        rest_s = 0.01 if launches <= 8 else 0  # the large ones reach the power limit
        for way, works in ways.items():
            check()  # of what was launched last
            results[way][name] = compared(works, rest_s)
        check()
        eight = [results[way][name]["speedup"][-1] for way in ways]
        print(f"{name:<13} on 8 streams: eager {eight[0]:.2f}×, graph {eight[1]:.2f}×")
    return results | {"streams": list(STREAMS), "kernels": list(kernels)}


def derive(results: dict) -> dict:
    """By how much streams change the time of each product, at most."""
    ways = (results["eager"], results["graph"])
    return {
        "most_change": {
            name: max(abs(s - 1) for way in ways for s in way[name]["speedup"])
            for name in results["eager"]
        }
    }


def plot(results: dict, ceilings: dict):
    names = [name.replace("_", " ") for name in results["kernels"]]
    names = [name.replace("one block", "long kernel,\n1 block") for name in names]
    names = [name.replace("mm", "matmul,\nn =") for name in names]
    titles = {"eager": "launched from Python:\nspeed, times one stream"}
    titles |= {"graph": "in a CUDA graph:\nspeed, times one stream"}
    columns = [str(n) for n in results["streams"][1:]]
    most = results["streams"][-1] - 1
    panels = []
    for way, title in titles.items():
        rows = [results[way][kernel]["speedup"][1:] for kernel in results["kernels"]]
        texts = [[f"{value:.1f}" for value in row] for row in rows]
        shades = [[(value - 1) / most for value in row] for row in rows]
        cells = Cells(columns, names, rows, "speed, times one stream", texts, shades)
        panels.append(Panel([cells], Axis("streams"), title=title))
    return Picture(panels, columns=2)


if __name__ == "__main__":
    main()
