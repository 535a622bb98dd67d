# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [1]
# take = ["graphed"]
# ///
"""A training step as one CUDA graph, or with its network graphed, against eager."""

from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Any

import torch
from torch import nn

from snippets.pictures import bars, stacked
from snippets.timing.kernel_time import captured
from snippets.timing.take_turns import ratios, recorded, take_turns

STEPS = 30
OPTIONS = {  # of Adam
    "eager": {},
    "fused": {"fused": True},
    "capturable": {"capturable": True},
    "callables": {},
    "graph": {"capturable": True},
    "graph_fused": {"capturable": True, "fused": True},
}


def network() -> nn.Module:
    """The same small network, with the same parameters, each time."""
    torch.manual_seed(0)
    hidden = [nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU()]
    return nn.Sequential(*hidden, nn.Linear(256, 1)).cuda()


def training_step(net: nn.Module, **options: Any) -> Callable[..., torch.Tensor]:
    """A function of inputs and targets: it trains `net` on them, returns the loss.

    `options` are Adam's. A graph needs `capturable=True`: it keeps the optimizer's
    count of steps on the GPU.
    """
    optimizer = torch.optim.Adam(net.parameters(), **options)

    def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad(set_to_none=True)  # captured, gradients live in the graph
        loss = nn.functional.mse_loss(net(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def graphed(
    step: Callable[..., torch.Tensor], *first: torch.Tensor
) -> Callable[..., torch.Tensor]:
    """`step` as one CUDA graph, for batches like `first`, on which it trains once.

    `step` reads no value on the CPU, and its optimizer is `capturable`; a learning rate
    that is a number is frozen at what it is now: a scheduler needs one in a tensor.
    What it returns is overwritten by the next call. ValueError, before it trains, for
    another number of tensors, another shape, as the last batch of an epoch may have, or
    another dtype.
    """
    held = [each.detach().clone() for each in first]
    replay: Callable[[], torch.Tensor] = captured(partial(step, *held))  # a real step

    def call(*batch: torch.Tensor) -> torch.Tensor:
        for old, new in zip(held, batch, strict=True):
            if (new.shape, new.dtype) != (old.shape, old.dtype):  # copy_ would convert
                wanted = f"{tuple(old.shape)} of {old.dtype}"
                given = f"{tuple(new.shape)} of {new.dtype}"
                raise ValueError(f"captured for {wanted}, not for {given}")
        for old, new in zip(held, batch, strict=True):
            old.copy_(new.detach())
        return replay()

    return call


def distance(net: nn.Module, other: nn.Module) -> float:
    """The largest difference between their parameters."""
    pairs = zip(net.parameters(), other.parameters(), strict=True)
    return max(float((a - b).detach().abs().max()) for a, b in pairs)


def main() -> dict:
    nets = {name: network() for name in OPTIONS}
    x = torch.randn(1 + STEPS, 64, 64, device="cuda")
    first, *batches = zip(x, x.square().mean(2, keepdim=True), strict=True)
    torch.cuda.make_graphed_callables(nets["callables"], (first[0].clone(),))
    steps = {}
    for name, options in OPTIONS.items():
        step = training_step(nets[name], **options)
        if name.startswith("graph"):
            steps[name] = graphed(step, *first)
        else:
            step(*first)
            steps[name] = step

    losses = {n: [step(*b).item() for b in batches] for n, step in steps.items()}
    differs_by = {name: distance(net, nets["eager"]) for name, net in nets.items()}
    alike = {"graph": "capturable", "graph_fused": "fused"}  # but for the graph
    graph_adds = {name: distance(nets[name], nets[n]) for name, n in alike.items()}
    works = {name: partial(step, *batches[0]) for name, step in steps.items()}
    turns = take_turns(works, trials=31, calls=10)
    faster = {name: ratios(turns["eager"], turns[name]) for name in turns}
    results = recorded(turns, "us") | {"losses": losses, "differs_by": differs_by}
    results |= {"graph_adds": graph_adds, "speedup_trials": faster}
    results["speedup"] = {name: median(each) for name, each in faster.items()}
    for name, us in results["us"].items():
        print(f"{name:12}{us:7.1f} µs a step,", end=" ")
        print(f"loss {losses[name][-1]:.6f}, parameters {differs_by[name]:.1g} off")
    return results


def derive(results: dict) -> dict:
    """Which ways have the losses of those that they capture."""
    losses = results["losses"]
    pairs = {"callables": "eager", "graph": "capturable", "graph_fused": "fused"}
    return {"alike": [way for way, of in pairs.items() if losses[way] == losses[of]]}


def plot(results: dict, ceilings: dict):
    names = {
        "eager": "eager",
        "fused": "eager, fused Adam",
        "callables": "network as a graph",
        "graph": "whole step as a graph",
        "graph_fused": "whole step, fused Adam",
    }
    steps = {text: results["us"][name] for name, text in names.items()}
    picture = bars(steps, {}, unit="µs per step")
    us = {"launched by Python": results["us"]["fused"]}
    us["one CUDA graph"] = works = results["us"]["graph_fused"]
    parts = {"the GPU works": dict.fromkeys(us, works)}
    parts["the GPU waits for Python"] = {"launched by Python": max(us.values()) - works}
    waits = stacked(
        parts, "µs per step", {row: f"{each:,.0f} µs" for row, each in us.items()}
    )
    for mark, color in zip(waits.panels[0].marks, ("gpu", "python"), strict=True):
        mark.color = color
    return picture, {"waits": waits}


if __name__ == "__main__":
    main()
