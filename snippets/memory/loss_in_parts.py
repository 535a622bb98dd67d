# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [1]
# timeout = 240
# take = ["computed_twice", "AtOnce"]
# take_on_cpu = ["computed_twice", "AtOnce"]
# ///
"""The loss of a large vocabulary, at once or in chunks: gradients, peak and time."""

from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, linear
from torch.utils.checkpoint import checkpoint

from snippets.memory.peak_predicted import measured
from snippets.pictures import Axis, Line, Panel, Picture
from snippets.timing.take_turns import ratios, recorded, take_turns

TOKENS, WIDTH, WORDS = 16384, 2048, 128256  # as many words as Llama 3 has
PARTS = (2, 4, 8, 16, 32, 64)
CHECKED = (96, 32, 500)  # tokens, width and words to compare gradients, in float64
IGNORED = -100  # what `cross_entropy` leaves out by default


def loss_of(hidden: Tensor, weight: Tensor, targets: Tensor, count: Tensor) -> Tensor:
    """Losses of these tokens, added up and divided by `count`; scores are in bf16."""
    with torch.autocast(hidden.device.type, torch.bfloat16):
        scores = linear(hidden, weight)
    return cross_entropy(scores.float(), targets, reduction="sum") / count


def whole(hidden: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
    """Mean loss of all tokens, from the scores of all."""
    return loss_of(hidden, weight, targets, (targets != IGNORED).sum())


def computed_twice(
    hidden: Tensor, weight: Tensor, targets: Tensor, parts: int
) -> Tensor:
    """Mean loss of `hidden` (tokens, width), with scores of one part at a time.

    `weight` (words, width) is that of the last layer. The backward pass computes the
    scores again. Tokens whose target is -100 do not count.
    """
    count = (targets != IGNORED).sum()
    total = torch.zeros((), device=hidden.device)
    rows, words = hidden.chunk(parts), targets.chunk(parts)
    for some, their_words in zip(rows, words, strict=True):
        total = total + checkpoint(
            loss_of, some, weight, their_words, count, use_reentrant=False
        )
    return total


class AtOnce(torch.autograd.Function):
    """`AtOnce.apply(hidden, weight, targets, parts)`: as `computed_twice`, computed once.

    The forward pass computes the gradients of each part with its loss, and keeps them
    alone. Gradients of gradients are not there.
    """

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, targets: Tensor, parts: int
    ) -> Tensor:
        count = (targets != IGNORED).sum()
        total = torch.zeros((), device=hidden.device)
        layer = weight.detach().requires_grad_()
        of_layer, of_rows = torch.zeros_like(layer), torch.empty_like(hidden)
        rows, words = hidden.chunk(parts), targets.chunk(parts)
        places = of_rows.chunk(parts)
        for some, their_words, place in zip(rows, words, places, strict=True):
            with torch.enable_grad():
                some = some.detach().requires_grad_()
                loss = loss_of(some, layer, their_words, count)
            of_some, of_layer_here = torch.autograd.grad(loss, (some, layer))
            place.copy_(of_some)
            of_layer += of_layer_here
            total += loss.detach()
        ctx.save_for_backward(of_rows, of_layer)
        return total

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, by: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore
        of_rows, of_layer = ctx.saved_tensors
        return of_rows * by, of_layer * by, None, None


def ways(parts: tuple[int, ...]) -> dict[str, Callable[..., Tensor]]:
    """Each way to the loss, by name."""
    each = {"whole": whole, "compiled": torch.compile(whole, dynamic=False)}
    for n in parts:
        each[f"twice_{n}"] = partial(computed_twice, parts=n)
        each[f"once_{n}"] = lambda *tensors, n=n: AtOnce.apply(*tensors, n)
    return each


def tensors(
    tokens: int, width: int, words: int, device: str, dtype: torch.dtype
) -> tuple[Tensor, ...]:
    """What the last layer is given, its weight, and the next words; some do not count."""
    torch.manual_seed(0)
    hidden = torch.randn(tokens, width, device=device, dtype=dtype)
    weight = torch.randn(words, width, device=device, dtype=dtype) / width**0.5
    targets = torch.randint(words, (tokens,), device=device)
    targets[::10] = IGNORED
    return hidden.requires_grad_(), weight.requires_grad_(), targets


def step(way: Callable[..., Tensor], given: tuple[Tensor, ...]) -> Tensor:
    """Leave the gradients of hidden and weight, no others; the loss."""
    given[0].grad = given[1].grad = None
    loss = way(*given)
    loss.backward()
    return loss.detach()


def gradients(way: Callable[..., Tensor], given: tuple[Tensor, ...]) -> list[Tensor]:
    """Loss, and gradients of hidden and weight; they are not left behind."""
    loss = step(way, given)
    found = [loss, given[0].grad, given[1].grad]
    given[0].grad = given[1].grad = None
    return found  # type: ignore


def exact(hidden: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
    """Mean loss of all tokens, in the tensors' own type."""
    return cross_entropy(linear(hidden, weight), targets)


def error(found: list[Tensor], expected: list[Tensor]) -> float:
    """The norm of the difference over that of what is expected, for the worst tensor."""
    off = [(a - b).norm() / b.norm() for a, b in zip(found, expected, strict=True)]
    return float(max(off))


def main() -> dict:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    each = ways(PARTS)
    # float64: autocast leaves it as it is, so that all ways compute the same
    small = tensors(*CHECKED, device, torch.float64)
    expected = gradients(exact, small)
    for name, way in each.items():
        found = gradients(way, small)
        assert error(found, expected) < 1e-5, f"{name} has other gradients"
    given = tensors(TOKENS, WIDTH, WORDS, device, torch.float32)
    expected = gradients(exact, given)
    rows: dict[str, dict] = {}
    for name, way in each.items():
        rows[name] = {"error": error(gradients(way, given), expected)}
        assert rows[name]["error"] < 0.05, f"{name} has other gradients"
    del expected
    for name, way in each.items():
        if device == "cuda":
            rows[name]["peak"] = measured(partial(gradients, way, given))
    works = {name: partial(step, way, given) for name, way in each.items()}
    turns = take_turns(works, warmup=1, trials=5)
    times = recorded(turns)
    slower = {name: ratios(turns[name], turns["whole"]) for name in works}
    for name, row in rows.items():
        peak = row.get("peak", 0) / 2**20
        print(f"{name:<10}{peak:8.0f} MiB, {times['ms'][name]:8.2f} ms,", end=" ")
        print(f"error {row['error']:.1e}")
    result = {"tokens": TOKENS, "width": WIDTH, "words": WORDS, "parts": list(PARTS)}
    # what must be there: the gradients, and a copy of the weight in bf16
    result["least_bytes"] = given[0].nbytes + given[1].nbytes * 3 // 2
    medians = {name: median(trials) for name, trials in slower.items()}
    result |= {"rows": rows, "slower": medians, "slower_trials": slower}
    return result | times


def derive(results: dict) -> dict:
    """Peaks and times relative to the loss at once, and the largest error."""
    rows = results["rows"]
    errors = [row["error"] for row in rows.values()]
    found: dict[str, Any] = {"most_error": max(errors)}
    found["error_of"] = {name: row["error"] / errors[0] for name, row in rows.items()}
    if "peak" in rows["whole"]:
        peak = {name: row["peak"] for name, row in rows.items()}
        found["peak_of"] = {name: each / peak["whole"] for name, each in peak.items()}
    return found


def plot(results: dict, ceilings: dict):
    parts = results["parts"]
    titles = {"twice": "computed twice", "once": "gradients at once"}
    ticks = {n: str(n) for n in (1, *parts)}
    panels = []
    for unit in ("peak, GB", "ms"):
        lines = []
        for way, title in titles.items():
            y = []
            for name in ("whole", *(f"{way}_{n}" for n in parts)):
                row = results["rows"][name]
                y.append(
                    row.get("peak", 0) / 1e9 if unit != "ms" else results["ms"][name]
                )
            lines.append(Line([1, *parts], y, title))
        x = Axis("chunks of the loss", log=True, ticks=ticks)
        panels.append(Panel(lines, x, Axis(unit, low=0)))
    return Picture(panels, columns=2)


if __name__ == "__main__":
    main()
