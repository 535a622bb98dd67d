# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11"]
# [tool.overlap]
# gpus = [1]
# timeout = 180
# ///
"""Where a compiled call of a small network spends its time: leave parts of it out."""

from collections.abc import Callable
from functools import partial
from statistics import median

import torch
from torch import nn

from snippets.timing.pictures import bars
from snippets.timing.take_turns import ratios, recorded, take_turns

CALLS = 40  # few, for short rounds: hosts change from minute to minute


def mlp() -> nn.Module:
    """D2L's network: layers of 512, 256, 128 and 2 units."""
    hidden = [nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU()]
    return nn.Sequential(*hidden, nn.Linear(128, 2))


def what_the_compiler_made(net: nn.Module, x: torch.Tensor) -> Callable:
    """A call of the compiled code alone, with the inputs of `net(x)`: nobody asks
    whether it still fits them."""
    made = []

    def backend(graph: torch.fx.GraphModule, inputs: list) -> Callable:
        compiled = torch._inductor.compile(graph, inputs)

        def call(*given):
            made[:] = [partial(compiled, *given)]
            return compiled(*given)

        return call

    torch.compile(net, backend=backend)(x)
    return made[0]


def often(work: Callable, unguarded: bool = False) -> None:
    """CALLS calls, if `unguarded` without the check that what was compiled fits."""
    with torch.compiler.set_stance("default", skip_guard_eval_unsafe=unguarded):
        for _ in range(CALLS):
            work()


@torch.no_grad()
def main() -> dict:
    net, x = mlp().cuda(), torch.randn(1, 512, device="cuda")
    compiled = torch.compile(net)
    code = what_the_compiler_made(net, x)
    torch.testing.assert_close(compiled(x), net(x), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(code()[0], compiled(x))
    whole = partial(compiled, x)
    ways = {"eager": partial(often, partial(net, x)), "compiled": partial(often, whole)}
    ways["no_guards"] = partial(often, whole, unguarded=True)
    ways["code_alone"] = partial(often, code)
    turns = take_turns(ways, trials=51)
    results = {"calls": CALLS, "share": {}, "share_trials": {}} | recorded(turns, "ms")
    for name in ways:
        shares = ratios(turns[name], turns["compiled"])
        results["share"][name] = median(shares)
        results["share_trials"][name] = shares
        print(f"{name:12}{median(shares):5.0%} of the time of a compiled call")
    return results


def plot(results: dict, ceilings: dict):
    calls = results["calls"]
    names = {"eager": "eager", "compiled": "compiled", "no_guards": "without guards"}
    names["code_alone"] = "its code alone"
    us = {text: 1e3 * results["ms"][name] / calls for name, text in names.items()}
    return bars(us, {}, unit="µs per call")


if __name__ == "__main__":
    main()
