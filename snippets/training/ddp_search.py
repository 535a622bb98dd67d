# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [1]
# timeout = 180
# ///
"""What `find_unused_parameters` costs a rank: a search in each step, and a wait."""

import time
from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from snippets.timing.benchmark import Timing
from snippets.timing.take_turns import ratios, recorded
from snippets.timing.wait_for import wait_for

#: layers, their width, rows: many small layers, and a few that keep a GPU busy
NETWORKS = {"small layers": (200, 16, 8), "wide layers": (16, 4096, 1024)}
WARMUP, ROUNDS = 6, 60
FIND: dict[str, Any] = {"find_unused_parameters": True}
#: DDP's options, and whether one layer takes no part
WAYS: dict[str, tuple[dict[str, Any], bool]] = {
    "default": ({}, False),
    "find_unused": (FIND, False),
    "find_unused, one unused": (FIND, True),
    "static_graph": ({"static_graph": True}, False),
    "static_graph, one unused": ({"static_graph": True}, True),
}


class Layers(nn.Module):
    """Linear layers in a row, and one more that takes part, or not."""

    def __init__(self, layers: int, width: int, unused: bool) -> None:
        super().__init__()
        self.layers = nn.Sequential(*(nn.Linear(width, width) for _ in range(layers)))
        self.last, self.unused = nn.Linear(width, width), unused

    def forward(self, x: Tensor) -> Tensor:
        x = self.layers(x)
        return x if self.unused else self.last(x)


def steps_of(network: tuple[int, int, int], device: str) -> dict[str, partial]:
    """A forward and backward pass of the network, for each way to wrap it."""
    layers, width, rows = network
    x = torch.randn(rows, width, device=device)

    def step(ddp: nn.Module) -> None:
        ddp.zero_grad()
        ddp(x).square().mean().backward()

    steps = {}
    for name, (options, unused) in WAYS.items():
        with torch.device(device):
            model = Layers(layers, width, unused)
        steps[name] = partial(step, DistributedDataParallel(model, **options))
    return steps


def split(step: Callable[[], object]) -> tuple[float, float]:
    """Seconds until a step returns, and until the GPU has done it, of the same call."""
    began = time.perf_counter()
    step()
    returned = time.perf_counter() - began
    wait_for()
    return returned, time.perf_counter() - began


def timed(network: tuple[int, int, int], device: str) -> dict:
    """Milliseconds of a step, and until it returns; how much longer than by default.

    The ways take turns, one call each, in one order and then in the other.
    """
    steps = steps_of(network, device)
    returns: dict[str, list[float]] = {name: [] for name in steps}
    ends: dict[str, list[float]] = {name: [] for name in steps}
    for round in range(WARMUP + ROUNDS):
        for name in list(steps) if round % 2 else reversed(steps):
            returned, done = split(steps[name])
            if round >= WARMUP:
                returns[name].append(returned)
                ends[name].append(done)
    turns = {name: Timing(seconds) for name, seconds in ends.items()}
    early = {name: Timing(seconds) for name, seconds in returns.items()}
    row = {"step": recorded(turns, "ms"), "return": recorded(early, "ms")}
    row |= {"slower": {}, "slower_trials": {}, "more_ms": {}, "more_ms_trials": {}}
    for name, timing in turns.items():
        slower = ratios(timing, turns["default"])
        pairs = zip(timing.trials, turns["default"].trials, strict=True)
        more = [1e3 * (one - other) for one, other in pairs]
        row["slower"][name], row["slower_trials"][name] = median(slower), slower
        row["more_ms"][name], row["more_ms_trials"][name] = median(more), more
    return row


def main() -> dict:
    dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1)
    networks = {}
    for name, network in NETWORKS.items():
        row = networks[name] = timed(network, "cuda")
        print(f"{name}, {network[0] + 1} of them")
        for way in WAYS:
            print(f"    {way:26}{row['step']['ms'][way]:7.2f} ms a step,", end=" ")
            print(f"returns after {row['return']['ms'][way]:7.2f}", end=", ")
            print(f"{row['slower'][way]:.3f} times the default")
    dist.destroy_process_group()
    parameters = 2 * (NETWORKS["small layers"][0] + 1)
    return {"networks": networks, "parameters": parameters}


def derive(results: dict) -> dict:
    """Many small layers; when Python returns from a step of the wide ones."""
    networks = results["networks"]
    small, wide = networks["small layers"], networks["wide layers"]
    return {"small": small, "returns_ms": wide["return"]["ms"], "wide": wide}


if __name__ == "__main__":
    main()
