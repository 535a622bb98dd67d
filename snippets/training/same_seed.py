# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [1]
# timeout = 120
# ///
"""Train the same network from the same seed four times: are the weights the same?"""

import os
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from statistics import median

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from snippets.pictures import sweep
from snippets.timing.benchmark import wall_clock
from snippets.timing.take_turns import ratios, recorded, take_turns
from snippets.training.other_bits import deterministic

RUNS, STEPS = 4, 40
NODES, EDGES, WIDTH = 2000, 100_000, 128


class Neighbours(nn.Module):
    """Each node adds up what its neighbours send, twice: a network on a graph."""

    def __init__(self, edges: Tensor):
        super().__init__()
        self.register_buffer("edges", edges)
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        source, target = self.edges
        for layer in self.layers:
            sums = torch.zeros_like(x).index_add_(0, target, x[source])
            x = F.relu(layer(sums / (EDGES / NODES)))
        return x


class Attention(nn.Module):
    """Causal attention in bfloat16, for rows (n, tokens, width)."""

    def forward(self, x: Tensor) -> Tensor:
        heads = x.unflatten(-1, (-1, 64)).transpose(1, 2).bfloat16()
        seen = F.scaled_dot_product_attention(heads, heads, heads, is_causal=True)
        return seen.transpose(1, 2).flatten(2).float()


def networks() -> dict[str, tuple[nn.Module, Tensor]]:
    """Networks and what each is trained on, new each time and always the same."""
    torch.manual_seed(0)
    convolution = [nn.Conv2d(3, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU()]
    convolution += [nn.Conv2d(64, 64, 3, 2, 1), nn.ReLU(), nn.Conv2d(64, 16, 3)]
    tokens = nn.Linear(WIDTH, WIDTH), Attention(), nn.Linear(WIDTH, WIDTH)
    linear = nn.Linear(WIDTH, 1024), nn.ReLU(), nn.Linear(1024, WIDTH)
    return {
        "linear layers": (nn.Sequential(*linear), torch.randn(512, WIDTH)),
        "convolutions": (nn.Sequential(*convolution), torch.randn(32, 3, 64, 64)),
        "attention": (nn.Sequential(*tokens), torch.randn(8, 512, WIDTH)),
        "sums over neighbours": (
            Neighbours(torch.randint(NODES, (2, EDGES))),
            torch.randn(NODES, WIDTH),
        ),
    }


def training(name: str, device: str) -> tuple[nn.Module, Callable[[], Tensor]]:
    """The network of this name, and a step of it."""
    net, x = networks()[name]
    net, x = net.to(device), x.to(device)
    with torch.no_grad():
        target = torch.tanh(x.mean() + torch.zeros_like(net(x)))
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3, foreach=True)

    def step() -> Tensor:
        optimizer.zero_grad()
        loss = (net(x) - target).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return net, step


def trained(name: str, device: str) -> tuple[Tensor, list[float]]:
    """All weights after STEPS steps, and the loss of each step."""
    net, step = training(name, device)
    losses = torch.stack([step() for _ in range(STEPS)])
    weights = torch.cat([p.detach().flatten() for p in net.parameters()])
    return weights, losses.tolist()


def compared(name: str, device: str) -> dict:
    """Train it RUNS times: how many different networks, and where losses part."""
    runs = [trained(name, device) for _ in range(RUNS)]
    kinds: list[Tensor] = []
    for weights, _ in runs:
        if not any(torch.equal(weights, other) for other in kinds):
            kinds.append(weights)
    first, apart = runs[0][0], []
    for step in range(STEPS):
        losses = [losses[step] for _, losses in runs]
        apart.append(max(losses) / min(losses) - 1)
    differ = [number for number, gap in enumerate(apart) if gap > 0]
    return {
        "distinct": len(kinds),
        "weights_differ_by": max(float((w - first).abs().max()) for w, _ in runs),
        "losses": [losses[-1] for _, losses in runs],
        "losses_apart": apart,
        "first_step_apart": differ[0] + 1 if differ else None,
    }


def per_step(work: Callable[[], object], calls: int) -> float:
    """Seconds of one of the ten steps that `work` makes."""
    return wall_clock(work, calls) / 10


def ten(step: Callable[[], object], strict: bool) -> None:
    """Ten steps, by deterministic algorithms or not."""
    with deterministic() if strict else nullcontext():
        for _ in range(10):
            step()


def main() -> dict:
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"  # read at the first product
    device = "cuda" if torch.cuda.is_available() else "cpu"
    rows = {}
    for name in networks():
        assert not torch.are_deterministic_algorithms_enabled()
        row: dict = {"default": compared(name, device)}
        with deterministic():
            row["deterministic"] = compared(name, device)
        _, step = training(name, device)
        works = {"default": partial(ten, step, False)}
        works["deterministic"] = partial(ten, step, True)
        turns = take_turns(works, warmup=1, trials=7, clock=per_step)
        slower = ratios(turns["deterministic"], turns["default"])
        row |= recorded(turns) | {"slower": median(slower), "slower_trials": slower}
        rows[name] = row
        kinds = [row[way]["distinct"] for way in ("default", "deterministic")]
        print(f"{name:22}{kinds[0]} results of {RUNS} runs, deterministic", end=" ")
        print(f"{kinds[1]}; {row['ms']['default']:6.3f} ms a step,", end=" ")
        print(f"deterministic {row['slower']:.2f} times as long")
    return {"networks": rows, "runs": RUNS, "steps": STEPS}


def derive(results: dict) -> dict:
    """Which networks end with more than one result, and how far their last losses are apart."""
    rows = results["networks"]
    many = {name: row["default"]["distinct"] for name, row in rows.items()}
    strict = {name: row["deterministic"]["distinct"] for name, row in rows.items()}
    apart = {name: row["default"]["losses_apart"][-1] for name, row in rows.items()}
    slower = {name: row["slower"] for name, row in rows.items()}
    return {"many": many, "strict": strict, "apart": apart, "slower": slower}


def plot(results: dict, ceilings: dict):
    lines = {}
    for name, row in results["networks"].items():
        if row["default"]["distinct"] > 1:
            apart = row["default"]["losses_apart"]
            lines[name] = [gap if gap > 0 else None for gap in apart]
    numbers = list(range(1, results["steps"] + 1))
    labels = {"xlabel": "step", "ylabel": "losses differ by (relative)"}
    picture = sweep(numbers, lines, {}, ylog=True, **labels)
    picture.panels[0].x.ticks = None
    return picture


if __name__ == "__main__":
    main()
