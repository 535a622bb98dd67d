# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [1]
# timeout = 180
# ///
"""A small language model's step: does compiling take its launches away?"""

from collections.abc import Callable
from copy import deepcopy
from functools import partial
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn

from snippets.graphs.language_model import LanguageModel, successors
from snippets.graphs.step_compiled import training_step
from snippets.pictures import bars
from snippets.timing.benchmark import wall_clock
from snippets.timing.kernel_time import captured, gpu_clock
from snippets.timing.take_turns import ratios, recorded, take_turns

WIDTH, BLOCKS, BATCH, TOKENS, STEPS = 256, 4, 4, 128, 5
WARM_UP = 3  # `reduce-overhead` warms up in its first step, and records in its second


def marked_step(net: nn.Module) -> Callable[[Tensor, Tensor], Tensor]:
    """As `training_step`; it tells the graphs of `reduce-overhead` where a step begins."""
    step = training_step(net)

    def call(tokens: Tensor, targets: Tensor) -> Tensor:
        torch.compiler.cudagraph_mark_step_begin()
        return step(tokens, targets).clone()  # the next step overwrites the loss

    return call


def captured_step(net: nn.Module, *batch: Tensor) -> Callable[..., Any]:
    """The whole step as one graph, by hand; to warm up is a real step."""
    optimizer = torch.optim.AdamW(
        net.parameters(), lr=1e-4, fused=True, capturable=True
    )
    held = [rows.clone() for rows in batch]

    def step() -> Tensor:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(held[0].device.type, torch.bfloat16):
            loss = net(*held)
        loss.backward()
        optimizer.step()
        return loss.detach()

    replay = captured(step)

    def call(*batch: Tensor) -> Tensor:
        for old, new in zip(held, batch, strict=True):
            old.copy_(new)
        return replay().clone()

    return call


def ways(net: LanguageModel, *batch: Tensor) -> dict[str, Callable[..., Any]]:
    """Steps of nets with equal parameters; each has made `WARM_UP` steps on the batch.

    What is captured by hand comes last: to record its graphs `reduce-overhead` frees
    cuBLAS's workspaces, to which a graph that exists already would go on writing.
    """
    steps = {"eager": training_step(net)}
    steps["compiled"] = training_step(torch.compile(deepcopy(net)))
    few = torch.compile(deepcopy(net), mode="reduce-overhead")
    steps["reduce_overhead"] = marked_step(few)
    graphed, compiled = deepcopy(net), torch.compile(deepcopy(net))
    for step in steps.values():
        for _ in range(WARM_UP):
            step(*batch)
    for name, other in (("graph", graphed), ("compiled_graph", compiled)):
        steps[name] = captured_step(other, *batch)  # a first step, then the graph
        for _ in range(WARM_UP - 1):
            steps[name](*batch)
    return steps


def main() -> dict:
    torch.manual_seed(0)
    device = "cuda"
    net = LanguageModel(WIDTH, BLOCKS, TOKENS).to(device)
    batch = successors(BATCH, TOKENS, device)
    built = {}

    def build() -> None:
        built.update(ways(net, *batch))

    build_s = wall_clock(build)
    losses = {}
    for name, step in built.items():
        losses[name] = [float(step(*batch)) for _ in range(STEPS)]
    expected = torch.tensor(losses["eager"])
    for row in losses.values():
        torch.testing.assert_close(torch.tensor(row), expected, rtol=2e-2, atol=0)
    works = {name: partial(step, *batch) for name, step in built.items()}
    turns = take_turns(works, trials=21, calls=5)
    on_gpu = {}
    for name in ("eager", "graph", "compiled_graph"):
        on_gpu[name] = works[name]
    spin = partial(gpu_clock, calls=1, spin_cycles=20_000_000)
    kernels = take_turns(on_gpu, trials=5, clock=lambda work, _: spin(work))
    result = recorded(turns) | {"losses": losses, "build_s": build_s}
    result["gpu"] = recorded(kernels)
    result["gain"], result["gain_trials"] = {}, {}
    for name, timing in turns.items():
        faster = ratios(turns["eager"], timing)
        result["gain"][name], result["gain_trials"][name] = median(faster), faster
        ms, gain = result["ms"][name], result["gain"][name]
        print(f"{name:16}{ms:7.3f} ms a step, {gain:5.2f} times as fast as eager")
    print(f"on the GPU an eager step takes {result['gpu']['ms']['eager']:.3f} ms")
    return result


def derive(results: dict) -> dict:
    """How far the losses of the compiled step are from those of the eager one."""
    losses = results["losses"]
    pairs = zip(losses["compiled"], losses["eager"], strict=True)
    return {"compiled_off": [abs(compiled / eager - 1) for compiled, eager in pairs]}


def plot(results: dict, ceilings: dict):
    labels = {
        "eager": "eager",
        "compiled": "compiled",
        "reduce_overhead": "compiled,\nreduce-overhead",
        "graph": "one graph, by hand",
        "compiled_graph": "compiled,\none graph by hand",
    }
    steps = {label: results["ms"][name] for name, label in labels.items()}
    return bars(steps, {}, unit="ms per step")


if __name__ == "__main__":
    main()
