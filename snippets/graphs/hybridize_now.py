# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [1]
# timeout = 180
# ///
"""D2L's small network, as PyTorch can call it today: what a call costs, and does.

After D2L's sample code; MIT-0 licence, (c) 2019 Amazon.com, Inc. or its affiliates.
"""

import warnings
from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Any

import torch
from torch import nn

from snippets.pictures import timelines
from snippets.timing.kernel_time import captured
from snippets.timing.lanes import lanes
from snippets.timing.take_turns import ratios, recorded, take_turns

HANDS_OVER = ("Launch", "Memcpy", "Memset")  # in the names of such calls of CUDA's API


def mlp() -> nn.Module:
    """D2L's network: layers of 512, 256, 128 and 2 units."""
    hidden = [nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU()]
    return nn.Sequential(*hidden, nn.Linear(128, 2))


def as_graph(net: Callable[..., Any], x: torch.Tensor) -> Callable[..., Any]:
    """`net` as one CUDA graph, for inputs like x; each call overwrites the result.

    To be called under `torch.no_grad()`; ValueError for inputs of another shape, and
    another dtype is converted without a word.
    """
    held = x.clone()
    replay = captured(partial(net, held))

    def call(x: torch.Tensor) -> torch.Tensor:
        if x.shape != held.shape:  # copy_ would spread one row over all
            raise ValueError(f"captured for {held.shape}, not for {x.shape}")
        held.copy_(x)
        return replay()

    return call


def handed_over(timeline: list[list[Any]]) -> list[str]:
    """The calls by which the CPU gave the GPU work: kernels, copies, graphs alike."""
    calls = [name for lane, _, _, name in timeline if lane.startswith("CPU")]
    return [name for name in calls if any(part in name for part in HANDS_OVER)]


@torch.no_grad()
def main() -> dict:
    warnings.simplefilter("ignore")  # jit.script is deprecated, TF32 would differ
    torch.manual_seed(0)
    net, x, other = mlp().cuda(), *torch.randn(2, 1, 512, device="cuda")
    ways = {"eager": net, "script": torch.jit.script(net)}
    ways["compile"] = torch.compile(net)
    ways["reduce_overhead"] = torch.compile(net, mode="reduce-overhead")
    ways["graph"] = as_graph(net, x)
    results = {"differs_by": {}, "timelines": {}, "calls": {}, "launches": {}}
    for name, way in ways.items():
        torch.testing.assert_close(way(other), net(other), rtol=1e-4, atol=1e-5)
        results["differs_by"][name] = float((way(other) - net(other)).abs().max())
    works = {name: partial(way, x) for name, way in ways.items()}
    turns = take_turns(works, trials=51, calls=40)  # short rounds: hosts change
    results |= recorded(turns, "us") | {"speedup": {}, "speedup_trials": {}}
    for name, work in works.items():
        results["timelines"][name] = lanes(work)
        results["calls"][name] = handed_over(results["timelines"][name])
        results["launches"][name] = len(results["calls"][name])
        results["speedup_trials"][name] = ratios(turns["eager"], turns[name])
        results["speedup"][name] = median(results["speedup_trials"][name])
        us, calls = results["us"][name], results["calls"][name]
        print(f"{name:16}{us:7.1f} µs,{len(calls):2} calls:", *sorted(set(calls)))
    return results | {"parameters": sum(p.numel() for p in net.parameters())}


def plot(results: dict, ceilings: dict):
    panels = {}
    for way in ("eager", "script", "compile", "reduce_overhead", "graph"):
        events = panels[way.replace("_", "-")] = []
        for lane, start, us, name in results["timelines"][way]:
            if "Synchronize" not in name:  # what waits for the end of the profile
                lane = "GPU" if lane != "CPU" else lane
                events.append([lane, start, us, name])
    return timelines(panels, "µs (profiled: a first call takes longer)")


if __name__ == "__main__":
    main()
