# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [0, 1]
# ///
"""A loop that gets slower with each step: a state with its graph, a hook in each step."""

from collections.abc import Callable
from statistics import median
from time import perf_counter

import torch
from torch import Tensor, nn

from snippets.pictures import Axis, Line, Panel, Picture

STEPS, ROWS, WIDTH = 100, 64, 256
SHOWN = 5  # the first and the last steps, whose medians are given


def hook_in_each_step(cell: nn.Module, state: Tensor) -> Tensor:
    """A hook that measures its module, registered again in each step."""

    def measure(module: nn.Module, inputs: tuple, output: Tensor) -> None:
        output.detach().norm()

    cell.register_forward_hook(measure)
    return state.detach()


WAYS: dict[str, Callable[[nn.Module, Tensor], Tensor]] = {
    "state.detach()": lambda cell, state: state.detach(),
    "state with its graph": lambda cell, state: state,
    "a hook in each step": hook_in_each_step,
}


def steps(
    way: str, device: str, steps: int, **options
) -> tuple[list[float], list[int]]:
    """Milliseconds of each step, and the bytes of its tensors where there is a GPU.

    A recurrent cell goes on from the state of the step before. `options` are Adam's.
    """
    torch.manual_seed(0)
    cell = nn.GRUCell(WIDTH, WIDTH, device=device)
    adam = torch.optim.Adam(cell.parameters(), **options)
    state = torch.zeros(ROWS, WIDTH, device=device)
    x = torch.rand(ROWS, WIDTH, device=device)
    ms, held = [], []
    for _ in range(steps):
        start = perf_counter()
        state = cell(x, WAYS[way](cell, state))
        state.square().mean().backward(retain_graph=True)
        adam.step()
        adam.zero_grad()
        if device == "cuda":
            torch.cuda.synchronize()
            held.append(torch.cuda.memory_allocated())
        ms.append(1e3 * (perf_counter() - start))
    return ms, held


def counted(device: str, **options) -> int:
    """How many changes of its parameter autograd has counted in a step of Adam."""
    weight = nn.Parameter(torch.ones(8, device=device))
    adam = torch.optim.Adam([weight], **options)
    weight.sum().backward()
    before = weight._version
    adam.step()
    return weight._version - before


def main() -> dict:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    steps("state.detach()", device, SHOWN, fused=True)  # warm
    result: dict = {
        "steps": STEPS,
        "step_ms": {},
        "ms": {},
        "held_mb": {},
        "counted": {},
    }
    for way in WAYS:
        each, held = steps(way, device, STEPS, fused=True)
        first, last = median(each[1 : 1 + SHOWN]), median(each[-SHOWN:])
        result["step_ms"][way] = each
        result["ms"][way] = [first, last]
        print(f"{way:<21} first steps {first:5.2f} ms, last {last:6.2f} ms", end="")
        if held:
            result["held_mb"][way] = [held[SHOWN] / 1e6, held[-1] / 1e6]
            print(", {:.1f} and {:.1f} MB".format(*result["held_mb"][way]), end="")
        print()
    for fused in (False, True):
        result["counted"]["fused" if fused else "plain"] = counted(device, fused=fused)
    try:
        steps("state with its graph", device, SHOWN)
    except RuntimeError as error:
        result["error"] = str(error).split(": [")[0]
        print(f"without fused=True: {result['error']}")
    return result


def derive(results: dict) -> dict:
    """How many times as long a step takes at last, and the megabytes that it keeps."""
    return {
        "times": {way: last / first for way, (first, last) in results["ms"].items()},
        "kept_mb": {way: b - a for way, (a, b) in results["held_mb"].items()},
    }


def plot(results: dict, ceilings: dict):
    x = range(3, results["steps"] + 1)  # the first two are far longer
    lines = [Line(x, y[2:], way, dots=False) for way, y in results["step_ms"].items()]
    return Picture([Panel(lines, Axis("step"), Axis("milliseconds", low=0))])


if __name__ == "__main__":
    main()
