# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [1]
# timeout = 180
# ///
"""Where a compiled call of a small network spends its time: leave parts of it out."""

from functools import partial
from statistics import median

import torch

from snippets.graphs.network_in_a_file import mlp
from snippets.pictures import bars
from snippets.timing.take_turns import ratios, recorded, take_turns

CALLS = 40  # few, for short rounds: hosts change from minute to minute


def what_the_compiler_made(net: torch.nn.Module, x: torch.Tensor):
    """A call of the compiled code alone on the inputs of `net(x)`; it gives a list.

    Nobody asks whether the code still fits. A network that is cut is refused.
    """
    made = []

    def backend(graph: torch.fx.GraphModule, inputs: list[torch.Tensor]):
        compiled = torch._inductor.compile(graph, inputs)
        made.append(partial(compiled, *inputs))
        return compiled

    torch.compile(net, backend=backend, fullgraph=True)(x)
    return made[0]


def often(work, unguarded: bool = False) -> None:
    """CALLS calls, if `unguarded` without the check that what was compiled fits."""
    with torch.compiler.set_stance("default", skip_guard_eval_unsafe=unguarded):
        for _ in range(CALLS):
            work()


@torch.no_grad()
def main() -> dict:
    net, x = mlp().cuda(), torch.randn(1, 512, device="cuda")
    eager, whole = partial(net, x), partial(torch.compile(net), x)
    code = what_the_compiler_made(net, x)
    torch.testing.assert_close(whole(), eager(), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(code()[0], whole())
    ways = {"eager": eager, "compiled": whole, "no_guards": whole, "code_alone": code}
    works = {n: partial(often, way, n == "no_guards") for n, way in ways.items()}
    turns = take_turns(works, trials=51)
    trials = {name: ratios(turn, turns["compiled"]) for name, turn in turns.items()}
    share = {name: median(each) for name, each in trials.items()}
    print(*(f"{n:11}{each:5.0%} of compiled" for n, each in share.items()), sep="\n")
    return recorded(turns) | {"calls": CALLS, "share": share, "share_trials": trials}


def plot(results: dict, ceilings: dict):
    calls = results["calls"]
    names = {
        "eager": "eager",
        "compiled": "compiled",
        "no_guards": "compiled, without guards",
    }
    names["code_alone"] = "the compiled code alone"
    us = {text: 1e3 * results["ms"][name] / calls for name, text in names.items()}
    return bars(us, {}, unit="µs per call")


if __name__ == "__main__":
    main()
