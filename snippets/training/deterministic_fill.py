# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [1]
# timeout = 240
# ///
"""Deterministic algorithms also fill new memory: what it is filled with, and its price."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from statistics import median

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils import deterministic

from snippets.pictures import bars
from snippets.timing.benchmark import wall_clock
from snippets.timing.lanes import is_on_gpu, profiled
from snippets.timing.take_turns import ratios, recorded, take_turns
from snippets.training.models import Dense
from snippets.training.same_seed import networks

#: (deterministic algorithms, new memory is filled)
SETTINGS = {"off": (False, True), "unfilled": (True, False), "filled": (True, True)}
STEPS, PASSES = 5, 8
ROWS, WIDTH = 8192, 1024  # of what is written into buffers
IMAGES, SIDE, LAYERS = 16, 64, 12  # of the dense block


@contextmanager
def setting(name: str) -> Iterator[None]:
    """PyTorch is as one of SETTINGS says; afterwards as before."""
    before = torch.are_deterministic_algorithms_enabled()
    filled = deterministic.fill_uninitialized_memory
    strict, fill = SETTINGS[name]
    torch.use_deterministic_algorithms(strict)
    deterministic.fill_uninitialized_memory = fill
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)
        deterministic.fill_uninitialized_memory = filled


class IntoBuffers(nn.Module):
    """Each pass writes what it got and what it gives side by side into new memory."""

    def __init__(self) -> None:
        super().__init__()
        self.scales = nn.Parameter(torch.ones(PASSES, WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        for scale in self.scales:
            both = torch.empty(len(x), 2 * WIDTH, device=x.device)
            both[:, :WIDTH] = x[:, :WIDTH]
            both[:, WIDTH:] = F.relu(x[:, :WIDTH] * scale)
            x = both
        return x


def all_networks() -> dict[str, tuple[nn.Module, Tensor]]:
    """Those of `same_seed`, and two that make much new memory; always the same."""
    nets = networks()
    torch.manual_seed(1)
    layers = [Dense(64 + 32 * layer, 32) for layer in range(LAYERS)]
    dense = nn.Sequential(nn.Conv2d(3, 64, 3, padding=1), *layers)
    nets["dense block"] = (dense, torch.randn(IMAGES, 3, SIDE, SIDE))
    nets["into new buffers"] = (IntoBuffers(), torch.randn(ROWS, WIDTH))
    return nets


def training(name: str, device: str) -> tuple[nn.Module, Callable[[], Tensor]]:
    """The network of this name, and a step of it."""
    net, x = all_networks()[name]
    net, x = net.to(device), x.to(device)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3, foreach=True)

    def step() -> Tensor:
        optimizer.zero_grad()
        loss = (net(x) - 1).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return net, step


def trained(name: str, device: str) -> tuple[Tensor, Tensor]:
    """All weights after STEPS steps from one seed, and the losses of the steps."""
    net, step = training(name, device)
    losses = torch.stack([step() for _ in range(STEPS)])
    return torch.cat([p.detach().flatten() for p in net.parameters()]), losses


def steps(step: Callable[[], object], name: str) -> None:
    """STEPS steps in this setting."""
    with setting(name):
        for _ in range(STEPS):
            step()


def per_step(work: Callable[[], object], calls: int) -> float:
    """Seconds of one of the STEPS steps that `work` makes."""
    return wall_clock(work, calls) / STEPS


NEW: dict[str, Callable[[Tensor], Tensor]] = {
    "torch.empty": lambda x: torch.empty(len(x), device=x.device),
    "torch.empty_like": torch.empty_like,
    "x.new_empty": lambda x: x.new_empty(len(x)),
    "torch.empty, integers": lambda x: torch.empty(
        len(x), dtype=torch.int32, device=x.device
    ),
}


def content(new: Callable[[Tensor], Tensor], device: str) -> str:
    """What new memory holds, where sevens lay before: "nan", "largest", or "other"."""
    x = torch.zeros(2**20, device=device)
    sevens = torch.full_like(x, 7)
    del sevens  # on a GPU the next tensor of this size gets its memory
    made = new(x)
    if made.dtype == torch.int32:
        full = bool((made == torch.iinfo(torch.int32).max).all())
        return "largest" if full else "other"
    return "nan" if bool(made.isnan().all()) else "other"


def fills(step: Callable[[], object], name: str) -> dict[str, float]:
    """How many kernels of a step fill memory, and how long they and all kernels take."""
    with setting(name):
        kernels = [event for event in profiled(step) if is_on_gpu(event)]
    us = [k.time_range.elapsed_us() for k in kernels if "FillFunctor" in k.name]
    everything = sum(kernel.time_range.elapsed_us() for kernel in kernels)
    return {"count": len(us), "ms": sum(us) / 1e3, "all_ms": everything / 1e3}


def main() -> dict:
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"  # read at the first product
    device = "cuda" if torch.cuda.is_available() else "cpu"
    found: dict[str, dict[str, str]] = {name: {} for name in SETTINGS}
    for name, row in found.items():
        with setting(name):
            row |= {call: content(new, device) for call, new in NEW.items()}
        print(f"{name:9}torch.empty: {row['torch.empty']}")
    rows: dict[str, dict] = {}
    for net in all_networks():
        ends = {}
        for name in SETTINGS:
            with setting(name):
                ends[name] = trained(net, device)
            losses = ends[name][1], ends["off"][1]
            torch.testing.assert_close(*losses, rtol=1e-2, atol=0)
        expected = ends["unfilled"][0]
        equal = {name: torch.equal(end[0], expected) for name, end in ends.items()}
        _, step = training(net, device)
        works = {name: partial(steps, step, name) for name in SETTINGS}
        turns = take_turns(works, warmup=2, trials=11, calls=2, clock=per_step)
        each = {name: ratios(turns[name], turns["off"]) for name in SETTINGS}
        rows[net] = recorded(turns) | {"slower_trials": each, "as_unfilled": equal}
        rows[net]["slower"] = {name: median(trials) for name, trials in each.items()}
    for net, row in rows.items():  # a profile may leave later steps slower
        if device == "cuda":
            _, step = training(net, device)
            step()
            row["fills"] = {name: fills(step, name) for name in SETTINGS}
        slower = row["slower"]
        print(f"{net:22}{row['ms']['off']:8.3f} ms a step;", end=" ")
        print(f"deterministic {slower['unfilled']:.2f} times as long,", end=" ")
        print(f"and filled {slower['filled']:.2f}", end="")
        print("" if row["as_unfilled"]["filled"] else ", other bits")
    return {"content": found, "networks": rows, "steps": STEPS}


def derive(results: dict) -> dict:
    """By network: how long the filling takes of a step, and how many fills it adds."""
    rows = results["networks"]
    price, added, filling_ms, price_ms = {}, {}, {}, {}
    for net, row in rows.items():
        price[net] = row["slower"]["filled"] / row["slower"]["unfilled"]
        price_ms[net] = row["ms"]["filled"] - row["ms"]["unfilled"]
        if "fills" in row:
            kernels = row["fills"]
            added[net] = kernels["filled"]["count"] - kernels["unfilled"]["count"]
            filling_ms[net] = kernels["filled"]["ms"] - kernels["unfilled"]["ms"]
    same = all(row["as_unfilled"]["filled"] for row in rows.values())
    algorithms = {net: row["slower"]["unfilled"] for net, row in rows.items()}
    return {
        "price": price,
        "price_ms": price_ms,
        "added": added,
        "filling_ms": filling_ms,
        "same": same,
        "algorithms": algorithms,
        "filled_in": [
            name
            for name, row in results["content"].items()
            if "other" not in row.values()
        ],
        "unfilled_in": [
            name
            for name, row in results["content"].items()
            if set(row.values()) == {"other"}
        ],
    }


def plot(results: dict, ceilings: dict):
    groups = {}
    for net, row in results["networks"].items():
        slower = row["slower"]
        groups[net] = {
            "without filling": slower["unfilled"],
            "with it": slower["filled"],
        }
    return bars(groups, {}, "a step takes times as long")


if __name__ == "__main__":
    main()
