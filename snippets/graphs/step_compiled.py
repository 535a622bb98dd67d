# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [1]
# timeout = 240
# ///
"""A language model's training step, compiled: what compiling costs, and what it gains."""

import os
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from copy import deepcopy
from functools import partial
from multiprocessing import get_context
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn

from snippets.graphs.language_model import LanguageModel, successors
from snippets.pictures import bars
from snippets.timing.benchmark import Timing, wall_clock
from snippets.timing.kernel_time import gpu_clock
from snippets.timing.take_turns import ratios, recorded, take_turns

WIDTH, BLOCKS, BATCH, TOKENS = 768, 4, 64, 1024
OTHER_BATCHES = (48, 32)  # the first compiles for any size, the second finds it done
SPIN_CYCLES = 40_000_000  # about 20 ms: Python launches a step in less


def cut(*_) -> None:
    """A hook that Dynamo cannot trace through, as one that logs or prints."""
    torch._dynamo.graph_break()


def whole(net: LanguageModel) -> None:
    """Compile the model, loss included, as one function."""
    net.compile()


def by_block(net: LanguageModel) -> None:
    """Compile each block in place; embedding, last norm and loss stay eager."""
    for block in net.blocks:
        block.compile()


def with_breaks(net: LanguageModel) -> None:
    """As `by_block`, with a break in each block, before its feed-forward part."""
    for block in net.blocks:
        block.before_mlp.register_forward_pre_hook(cut)
    by_block(net)


WAYS = {"whole": whole, "by_block": by_block, "with_breaks": with_breaks}


def training_step(net: nn.Module) -> Callable[[Tensor, Tensor], Tensor]:
    """bf16 autocast, AdamW in one kernel: what to compare a compiled step with."""
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4, fused=True)
    device = next(net.parameters()).device.type

    def step(tokens: Tensor, targets: Tensor) -> Tensor:
        with torch.autocast(device, torch.bfloat16):
            loss = net(tokens, targets)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    return step


def graphs_so_far() -> int:
    """How many graphs were compiled since the last `torch.compiler.reset()`."""
    return torch._dynamo.utils.counters["stats"]["unique_graphs"]


def peak_mib(work: Callable[[], object]) -> float:
    """MiB that a step needs at most, beside parameters and optimizer."""
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    work()
    return (torch.cuda.max_memory_allocated() - before) / 2**20


def noted(work: Callable[[], object], returned_s: list[float]) -> None:
    """Do the work, and note how long Python was busy with it."""
    start = time.perf_counter()
    work()
    returned_s.append(time.perf_counter() - start)


def timed(works: dict[str, Callable[[], object]]) -> dict:
    """Each step's time, Python's part of the same calls, and the GPU's time alone."""
    returned_s: dict[str, list[float]] = {name: [] for name in works}
    watched = {n: partial(noted, work, returned_s[n]) for n, work in works.items()}
    turns = take_turns(watched, warmup=1, trials=11)
    faster = ratios(turns["eager"], turns["compiled"])
    found = recorded(turns) | {"gain": median(faster), "gain_trials": faster}
    python = {name: Timing(seconds[1:]) for name, seconds in returned_s.items()}
    found["python"] = recorded(python)
    if torch.cuda.is_available():
        spin = partial(gpu_clock, calls=1, spin_cycles=SPIN_CYCLES)
        alone = {"warmup": 1, "trials": 7, "clock": lambda work, _: spin(work)}
        kernels = take_turns(works, **alone)
        faster = ratios(kernels["eager"], kernels["compiled"])
        found["gpu"] = recorded(kernels)
        found["gpu"] |= {"gain": median(faster), "gain_trials": faster}
    return found


def first_calls(net: nn.Module, device: str, way: Callable[..., Any]) -> dict:
    """Compile one way: seconds of the first step, of the next, and of other batches."""
    torch.compiler.reset()
    torch._dynamo.utils.counters.clear()
    eager, batch = deepcopy(net), successors(BATCH, TOKENS, device)
    way(net)
    steps = {"eager": training_step(eager), "compiled": training_step(net)}
    works = {name: partial(step, *batch) for name, step in steps.items()}
    works["eager"]()
    found = {"first_s": wall_clock(works["compiled"]), "graphs": [graphs_so_far()]}
    losses = {n: [float(work()) for _ in range(3)] for n, work in works.items()}
    torch.testing.assert_close(*map(torch.tensor, losses.values()), rtol=1e-3, atol=0)
    found["losses"] = losses
    if device == "cuda":
        found["peak_mib"] = {name: peak_mib(work) for name, work in works.items()}
    found |= timed(works) | {"other_s": []}
    if way is by_block:
        for size in OTHER_BATCHES:
            other = [rows[:size] for rows in batch]
            found["other_s"].append(wall_clock(partial(steps["compiled"], *other)))
            found["graphs"].append(graphs_so_far())
    return found


def process(names: tuple[str, ...], folder: str) -> dict:
    """Some ways, one after the other, in this fresh process; `folder` is the cache."""
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = folder
    device = "cuda" if torch.cuda.is_available() else "cpu"
    small = torch.randn(64, device=device)
    start = wall_clock(lambda: torch.compile(lambda x: x * 2 + 1)(small))
    found: dict = {"start_s": start}  # import, and what a process pays but once
    for name in names:
        torch.manual_seed(0)
        net = LanguageModel(WIDTH, BLOCKS, TOKENS).to(device)
        found[name] = first_calls(net, device, WAYS[name])
    return found


def main() -> dict:
    context = get_context("forkserver")
    context.set_forkserver_preload(["torch"])
    new_folder = partial(tempfile.TemporaryDirectory, ignore_cleanup_errors=True)
    parts, one = ("by_block", "with_breaks"), ("whole",)
    with (
        new_folder() as of_parts,
        new_folder() as of_one,
        ProcessPoolExecutor(1, context, max_tasks_per_child=1) as processes,
    ):
        # a new cache for each, so that neither finds what the other compiled
        jobs = [parts, one, one], [of_parts, of_one, of_one]
        by_parts, cold, cached = processes.map(process, *jobs)
    start_s = [found.pop("start_s") for found in (by_parts, cold, cached)]
    ways = cold | by_parts
    print("start of the compiler: " + ", ".join(f"{s:.1f} s" for s in start_s))
    for name, way in ways.items():
        print(f"{name:12}first step {way['first_s']:5.1f} s;", end=" ")
        print(f"eager {way['ms']['eager']:6.2f} ms,", end=" ")
        print(f"compiled {way['ms']['compiled']:6.2f} ms,", end=" ")
        print(f"of which Python is busy {way['python']['ms']['compiled']:6.2f} ms")
    again = cached["whole"]
    print(f"whole, from the cache: first step {again['first_s']:.1f} s")
    shape = {"blocks": BLOCKS, "batch": BATCH, "tokens": TOKENS}
    return {"ways": ways, "cached": again, "start_s": start_s, "shape": shape}


def derive(results: dict) -> dict:
    """Shares of a step that Python and the GPU take; how the GPU's gain differs."""
    ways = results["ways"].values()
    shares = {
        part: [
            way[part]["ms"][name] / way["ms"][name]
            for way in ways
            for name in ("eager", "compiled")
        ]
        for part in ("python", "gpu")
    }
    off = [abs(way["gpu"]["gain"] / way["gain"] - 1) for way in ways]
    return {"share": shares, "gpu_gain_off": off}


def plot(results: dict, ceilings: dict):
    labels = {"whole": "as a whole", "by_block": "block by block"}
    labels["with_breaks"] = "block by block,\nwith breaks"
    times = {}
    for name, label in labels.items():
        way = results["ways"][name]
        times[label] = {"eager": way["ms"]["eager"], "compiled": way["ms"]["compiled"]}
        times[label]["compiled: Python is done"] = way["python"]["ms"]["compiled"]
    return bars(times, {}, unit="ms per step")


if __name__ == "__main__":
    main()
