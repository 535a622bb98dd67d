# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [2, 4, 8]
# missing = { 8 = "not recorded yet" }
# timeout = 60
# ///
"""Graphs of small products on every GPU, replayed once and many times in a row."""

from functools import partial
from statistics import median

import torch

from snippets.devices.every_way import PRODUCTS, N, operands, prove
from snippets.devices.launch_bound_crossover import graph_of, replay
from snippets.timing.benchmark import measure
from snippets.timing.take_turns import ratios, recorded, take_turns
from snippets.timing.wait_for import wait_for

REPLAYS = (1, 2, 4, 8)


def in_a_row(graphs: list[torch.cuda.CUDAGraph], replays: int) -> None:
    """Launch every GPU's graph, then each once more, and so on, from this thread."""
    for _ in range(replays):
        replay(graphs)


def launch_ms(graph: torch.cuda.CUDAGraph) -> float:
    """Milliseconds until the call that launches a graph on an idle GPU is back."""
    call = measure(graph.replay, devices=[], warmup=0, trials=1)
    wait_for()
    return 1e3 * call.median


def main() -> dict:
    gpus = torch.cuda.device_count()
    jobs = operands(gpus, N, N)
    graphs, works, result = [graph_of(*job, PRODUCTS) for job in jobs], {}, {}
    for crowd, some in {"one": graphs[:1], "all": graphs}.items():
        for n in REPLAYS:
            works[crowd, n] = partial(in_a_row, some, n)
    prove(works["all", REPLAYS[-1]], jobs)
    times = take_turns(works, warmup=1, trials=7)
    for crowd in ("one", "all"):
        timings = {str(n): times[crowd, n] for n in REPLAYS}
        result |= {f"{crowd}_{key}": ms for key, ms in recorded(timings).items()}
    speedup, launches = {}, [launch_ms(graphs[0]) for _ in range(7)]
    for n in REPLAYS:
        rounds = ratios(times["one", n], times["all", n])
        speedup[str(n)] = [gpus * ratio for ratio in rounds]
        print(f"{n} in a row: {median(speedup[str(n)]):.3f} times one GPU's work")
    print(f"the launch of one graph takes {median(launches):.3f} ms")
    result |= {"launch_ms": median(launches), "launch_ms_trials": launches}
    result["speedup"] = {n: median(each) for n, each in speedup.items()}
    result["speedup_trials"] = speedup
    return {"visible_gpus": gpus, "products": PRODUCTS, "replays": REPLAYS} | result


if __name__ == "__main__":
    main()
