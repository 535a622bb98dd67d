# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [1]
# timeout = 180
# few = { h100-80gb-hbm3 = "one run so far" }
# ///
"""One batch, or micro-batches whose gradients add up: peak, time, gradients."""

from functools import partial
from statistics import median

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from snippets.memory.peak_predicted import measured, predicted
from snippets.pictures import Axis, Line, Panel, Picture
from snippets.timing.take_turns import ratios, recorded, take_turns

ROWS, TOKENS, WIDTH, LAYERS, WORDS = 64, 256, 1024, 4, 8192
PARTS = (1, 2, 4, 8, 16, 64)


def network(device: str) -> nn.Sequential:
    """A transformer without dropout: scores of words for rows (n, tokens, width)."""
    torch.manual_seed(0)
    with torch.device(device):
        blocks = [
            nn.TransformerEncoderLayer(WIDTH, 16, 4 * WIDTH, 0, batch_first=True)
            for _ in range(LAYERS)
        ]
        return nn.Sequential(*blocks, nn.Linear(WIDTH, WORDS))


def accumulate(net: nn.Module, x: Tensor, words: Tensor, parts: int) -> Tensor:
    """Leave the gradients of the whole batch, given in equal parts; its mean loss."""
    net.zero_grad()
    total = torch.zeros((), device=x.device)
    for rows, targets in zip(x.chunk(parts), words.chunk(parts), strict=True):
        with torch.autocast(x.device.type, torch.bfloat16):
            loss = cross_entropy(net(rows).flatten(0, 1), targets.flatten()) / parts
        loss.backward()
        total += loss.detach()
    return total


def step(parts: int, device: str = "cuda") -> None:
    """A first step in so many parts, with network and data of its own."""
    net = network(device)
    x = torch.randn(ROWS, TOKENS, WIDTH, device=device)
    words = torch.arange(ROWS * TOKENS, device=device).view(ROWS, TOKENS) % WORDS
    accumulate(net, x, words, parts)


def error(net: nn.Module, expected: list[Tensor]) -> float:
    """The norm of the gradients' difference, over that of what is expected."""
    pairs = zip(net.parameters(), expected, strict=True)
    apart = sum(float((p.grad - e).square().sum()) for p, e in pairs)
    return (apart / sum(float(e.square().sum()) for e in expected)) ** 0.5


def main() -> dict:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    step(1, device)  # libraries take their workspaces
    rows = {}
    for parts in PARTS:
        dry, by = predicted(partial(step, parts, device), device)
        rows[parts] = {"predicted": dry, "by": by}
        if device == "cuda":
            rows[parts]["peak"] = measured(partial(step, parts))
    net = network(device)
    x = torch.randn(ROWS, TOKENS, WIDTH, device=device)
    words = torch.randint(WORDS, (ROWS, TOKENS), device=device)
    works = {str(n): partial(accumulate, net, x, words, n) for n in PARTS}
    works["1"]()
    expected = [parameter.grad.clone() for parameter in net.parameters()]
    for parts in PARTS:
        works[str(parts)]()
        rows[parts]["error"] = error(net, expected)
        assert rows[parts]["error"] < 0.05, "the gradients are not the batch's"
    del expected
    turns = take_turns(works, warmup=1, trials=5)
    times = recorded(turns)
    slower = {name: ratios(turns[name], turns["1"]) for name in works}
    for parts, row in rows.items():
        row["rows"] = ROWS // parts
        peak = row.get("peak", row["predicted"]) / 2**20
        print(f"{parts:3} parts of {row['rows']:2} rows: {peak:7.0f} MiB,", end=" ")
        print(f"{times['ms'][str(parts)]:8.2f} ms, error {row['error']:.1e}")
    result = {"parts": {str(parts): row for parts, row in rows.items()}} | times
    result |= {"batch": ROWS, "tokens": TOKENS}
    medians = {name: median(each) for name, each in slower.items()}
    return result | {"slower": medians, "slower_trials": slower}


def plot(results: dict, ceilings: dict):
    parts = sorted(int(name) for name in results["parts"])  # keys are sorted as texts
    rows = [results["parts"][str(n)] for n in parts]
    ticks = {n: str(n) for n in parts}
    peaks = [row.get("peak", row["predicted"]) / 2**30 for row in rows]
    ms = [results["ms"][str(n)] for n in parts]
    panels = []
    for label, y in {"peak, GiB": peaks, "ms": ms}.items():
        x = Axis("micro-batches", log=True, ticks=ticks)
        panels.append(Panel([Line(parts, y, label)], x, Axis(label, low=0)))
    return Picture(panels, columns=2)


if __name__ == "__main__":
    main()
