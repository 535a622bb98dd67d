# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [1]
# timeout = 120
# ///
"""Capture forward and backward pass under autocast: with its cache, and without."""

from collections.abc import Callable
from copy import deepcopy
from functools import partial
from statistics import median

import torch
from torch import Tensor, nn
from torch.nn.utils import clip_grad_norm_

from snippets.graphs.language_model import LanguageModel, successors
from snippets.pictures import bars
from snippets.timing.kernel_time import captured
from snippets.timing.take_turns import ratios, recorded, take_turns

WIDTH, BLOCKS, BATCH, TOKENS, STEPS = 256, 4, 4, 128, 60
WORDS, RATE = 256, 1e-3

Step = Callable[[Tensor, Tensor], Tensor]


def autocast(cache: bool = True) -> torch.autocast:
    return torch.autocast("cuda", torch.bfloat16, cache_enabled=cache)


def adam(net: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(net.parameters(), lr=RATE, fused=True, capturable=True)


def eager_step(net: nn.Module, optimizer: torch.optim.Optimizer) -> Step:
    """What every other step has to equal: autocast begins and ends in each step."""

    def step(tokens: Tensor, targets: Tensor) -> Tensor:
        optimizer.zero_grad()
        with autocast():
            loss = net(tokens, targets)
        loss.backward()
        clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        return loss.detach()

    return step


def passes_captured(net: nn.Module, batch: list[Tensor]) -> Step:
    """Forward and backward pass as one graph, captured in the caller's autocast.

    Clipping and the optimizer stay eager.
    """
    optimizer, held = adam(net), [rows.clone() for rows in batch]

    def passes() -> Tensor:
        optimizer.zero_grad()
        loss = net(*held)
        loss.backward()
        return loss.detach()

    replay = captured(passes)

    def step(*batch: Tensor) -> Tensor:
        torch._foreach_copy_(held, list(batch))
        loss = replay()
        clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        return loss

    return step


def graphed_callable(net: nn.Module, batch: list[Tensor]) -> Step:
    """PyTorch's own way: the module's forward and backward pass as two graphs."""
    optimizer, samples = adam(net), tuple(rows.clone() for rows in batch)
    torch.cuda.make_graphed_callables(net, samples)

    def step(tokens: Tensor, targets: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = net(tokens, targets)
        loss.backward()
        clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        return loss.detach()

    return step


def whole_captured(net: nn.Module, batch: list[Tensor]) -> Step:
    """Autocast, both passes, clipping and optimizer: the whole step as one graph.

    Autocast begins and ends in the capture, so its cache is empty there. To warm up is
    a real step, which is undone in place.
    """
    held, before = [rows.clone() for rows in batch], deepcopy(net.state_dict())
    optimizer = adam(net)
    replay = captured(partial(eager_step(net, optimizer), *held))
    net.load_state_dict(before)
    for state in optimizer.state.values():
        for value in state.values():
            value.zero_()

    def call(*batch: Tensor) -> Tensor:
        torch._foreach_copy_(held, list(batch))
        return replay()

    return call


def all_losses(step: Step, batches: list[list[Tensor]]) -> list[float]:
    return [float(step(*batch)) for batch in batches]


def refusal(work: Callable[[], object]) -> str:
    """The error that `work()` ends with; empty if it does not."""
    try:
        work()
    except RuntimeError as error:
        return str(error).splitlines()[0]
    return ""


def distance(net: nn.Module, other: nn.Module) -> float:
    """The largest difference between their parameters."""
    pairs = zip(net.parameters(), other.parameters(), strict=True)
    return max(float((a - b).detach().abs().max()) for a, b in pairs)


def main() -> dict:
    torch.manual_seed(0)
    net = LanguageModel(WIDTH, BLOCKS, TOKENS, WORDS).to("cuda")
    rows = [successors(BATCH, TOKENS, "cuda") for _ in range(STEPS)]
    batches = [[tokens % WORDS, targets % WORDS] for tokens, targets in rows]
    first = batches[0]
    names = ("eager", "cache_off", "callable", "whole", "cache_on", "eager_around")
    nets = {name: deepcopy(net) for name in names}
    steps, losses = {}, {}
    with autocast(cache=True):  # it stays open while the steps run
        refused = refusal(lambda: graphed_callable(deepcopy(net), first))
        stale = passes_captured(nets["cache_on"], first)
        losses["cache_on"] = all_losses(stale, batches)
    with autocast(cache=True):
        around = eager_step(nets["eager_around"], adam(nets["eager_around"]))
        losses["eager_around"] = all_losses(around, batches)
    with autocast(cache=False):
        steps["cache_off"] = passes_captured(nets["cache_off"], first)
        steps["callable"] = graphed_callable(nets["callable"], first)
    steps["eager"] = eager_step(nets["eager"], adam(nets["eager"]))
    steps["whole"] = whole_captured(nets["whole"], first)
    losses |= {name: all_losses(step, batches) for name, step in steps.items()}
    differs_by = {name: distance(nets["eager"], other) for name, other in nets.items()}
    expected = torch.tensor(losses["eager"])
    for name in steps:
        found = torch.tensor(losses[name])
        torch.testing.assert_close(found, expected, rtol=1e-2, atol=1e-2)

    works = {name: partial(step, *first) for name, step in steps.items()}
    turns = take_turns(works, calls=5)
    result = recorded(turns) | {"losses": losses, "differs_by": differs_by}
    result |= {"refused": refused, "gain": {}, "gain_trials": {}}
    for name, timing in turns.items():
        faster = ratios(turns["eager"], timing)
        result["gain"][name], result["gain_trials"][name] = median(faster), faster
    for name, row in losses.items():
        ms = f"{result['ms'][name]:6.2f} ms a step" if name in result["ms"] else ""
        print(f"{name:13} loss {row[0]:.3f} → {row[-1]:.3f} {ms}")
    print(refused)
    return result


def derive(results: dict) -> dict:
    """How far the right ways differ from eager, what losses fall to, which are equal."""
    losses = results["losses"]
    right = ("cache_off", "callable", "whole")
    return {
        "right_differ_by": max(results["differs_by"][way] for way in right),
        "falls_to": {way: each[-1] / each[0] for way, each in losses.items()},
        "whole_as_eager": losses["whole"] == losses["eager"],
        "eager_around_as_cache_on": losses["eager_around"] == losses["cache_on"],
    }


def plot(results: dict, ceilings: dict):
    labels = {
        "eager": "eager",
        "callable": "make_graphed_callables",
        "cache_off": "both passes as one graph",
        "whole": "the whole step as one graph",
    }
    steps = {label: results["ms"][name] for name, label in labels.items()}
    return bars(steps, {}, unit="ms per step")


if __name__ == "__main__":
    main()
