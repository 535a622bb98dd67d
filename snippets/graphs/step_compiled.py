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
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from copy import deepcopy
from functools import partial
from multiprocessing import get_context
from statistics import median

import torch
from torch import Tensor, nn

from snippets.graphs.language_model import LanguageModel, parameters, successors
from snippets.timing.benchmark import wall_clock
from snippets.timing.pictures import bars
from snippets.timing.take_turns import ratios, recorded, take_turns

WIDTH, BLOCKS, BATCH, TOKENS = 768, 4, 16, 1024
OTHER_BATCHES = (12, 8)  # the first compiles for any size, the second finds it done


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


def peak_mib(work: Callable) -> float:
    """MiB that a step needs at most, beside parameters and optimizer."""
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    work()
    return (torch.cuda.max_memory_allocated() - before) / 2**20


def first_calls(net: nn.Module, device: str, way: Callable) -> dict:
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
    torch.testing.assert_close(*map(torch.tensor, losses.values()), rtol=1e-2, atol=0)
    found["losses"] = losses
    if device == "cuda":
        found["peak_mib"] = {name: peak_mib(work) for name, work in works.items()}
    turns = take_turns(works, warmup=1, trials=11)
    faster = ratios(turns["eager"], turns["compiled"])
    found |= recorded(turns) | {"gain": median(faster), "gain_trials": faster}
    found["other_s"] = []
    if way is by_block:
        for size in OTHER_BATCHES:
            other = [rows[:size] for rows in batch]
            found["other_s"].append(wall_clock(partial(steps["compiled"], *other)))
            found["graphs"].append(graphs_so_far())
    return found


def process(folder: str) -> dict:
    """All ways, one after the other, in this fresh process; `folder` is the cache."""
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = folder
    device = "cuda" if torch.cuda.is_available() else "cpu"
    small = torch.randn(64, device=device)
    start = wall_clock(lambda: torch.compile(lambda x: x * 2 + 1)(small))
    found: dict = {"start_s": start}  # import, and what a process pays but once
    for name, way in WAYS.items():
        torch.manual_seed(0)
        net = LanguageModel(WIDTH, BLOCKS, TOKENS).to(device)
        found[name] = first_calls(net, device, way)
    found["parameters"] = parameters(net)
    return found


def main() -> dict:
    context = get_context("forkserver")
    context.set_forkserver_preload(["torch"])
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder,
        ProcessPoolExecutor(1, context, max_tasks_per_child=1) as processes,
    ):
        cold, cached = processes.map(process, [folder, folder])
    print(f"start of the compiler: {cold['start_s']:.1f} s, {cached['start_s']:.1f} s")
    for name in WAYS:
        way, again = cold[name], cached[name]
        print(f"{name:12}first step {way['first_s']:5.1f} s,", end=" ")
        print(f"from the cache {again['first_s']:5.1f} s;", end=" ")
        print(f"eager {way['ms']['eager']:6.2f} ms,", end=" ")
        print(f"compiled {way['ms']['compiled']:6.2f} ms")
    shape = {"blocks": BLOCKS, "batch": BATCH, "tokens": TOKENS}
    return {"cold": cold, "cached": cached, "shape": shape}


def plot(results: dict, ceilings: dict):
    labels = {"whole": "as a whole", "by_block": "block by block"}
    labels["with_breaks"] = "block by block, with breaks"
    seconds = {}
    for name, label in labels.items():
        first = {key: results[key][name]["first_s"] for key in ("cold", "cached")}
        seconds[label] = first
    return bars(seconds, {}, unit="s of the first step")


if __name__ == "__main__":
    main()
