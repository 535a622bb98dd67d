# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [2]
# exclusive = false
# timeout = 240
# ///
"""Work for GPU 1 is captured while GPU 0 is current: an error, nothing, or a right graph?"""

import json
import subprocess
import sys
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from functools import partial

import torch
from torch import Tensor, nn

from snippets.graphs.capture_beside_threads import error_of

# elements: in a block with others, or in memory of their own
SMALL, LARGE = 2**10, 2**24
WIDTH = 64
GPU = torch.device("cuda", 1)


def first_graph() -> None:
    """A graph for GPU 0, which is current: the first one of the process."""
    x = torch.ones(SMALL, device="cuda:0")
    x * 2
    with torch.cuda.graph(torch.cuda.CUDAGraph()):
        x * 2


def graphed(
    size: int, where: AbstractContextManager, stream: torch.cuda.Stream | None = None
) -> Callable[[float], Tensor]:
    """`2 * x + 1` for a tensor of GPU 1 as a graph, captured `where` it says.

    The call that comes back fills x and replays.
    """
    x, graph = torch.ones(size, device=GPU), torch.cuda.CUDAGraph()
    2 * x + 1
    torch.cuda.synchronize(GPU)
    with where, torch.cuda.graph(graph, stream=stream):
        y = 2 * x + 1

    def call(number: float) -> Tensor:
        x.fill_(number)
        graph.replay()
        return y

    return call


def expected(number: float) -> float:
    """What a right graph gives."""
    return 2 * number + 1


def callable_of(where: AbstractContextManager) -> Callable[[float], Tensor]:
    """A layer on GPU 1 as a graph, by `make_graphed_callables`; it doubles, and adds 1."""
    layer = nn.Linear(WIDTH, WIDTH, device=GPU)
    with torch.no_grad():
        layer.weight.copy_(2 * torch.eye(WIDTH))
        layer.bias.fill_(1)
    sample = torch.ones(WIDTH, WIDTH, device=GPU, requires_grad=True)
    with where:
        graph = torch.cuda.make_graphed_callables(layer, (sample,))

    def call(number: float) -> Tensor:
        return graph(torch.full_like(sample, number, requires_grad=True))

    return call


def after_another(make: Callable[[], Callable[[float], Tensor]]):
    """What `make()` gives in a process that has captured for GPU 0 before."""
    first_graph()
    return make()


def on_stream(where: AbstractContextManager) -> Callable[[float], Tensor]:
    """With a stream of GPU 1 named."""
    return graphed(LARGE, where, torch.cuda.Stream(GPU))


def in_device(make: Callable[..., Callable[[float], Tensor]]):
    """While GPU 1 is current."""
    return make(where=torch.cuda.device(GPU))


def anew(make: Callable[[], Callable[[float], Tensor]]):
    """With a new capture stream, of the GPU that is current then (not documented)."""
    torch.cuda.graph.default_capture_stream = None
    return make()


SMALL_GRAPH, LARGE_GRAPH = partial(graphed, SMALL), partial(graphed, LARGE)
#: each in a process of its own, where GPU 0 is current
CASES: dict[str, Callable[[], Callable[[float], Tensor]]] = {
    "small": lambda: SMALL_GRAPH(nullcontext()),
    "large": lambda: LARGE_GRAPH(nullcontext()),
    "callables": lambda: callable_of(nullcontext()),
    "device": lambda: in_device(LARGE_GRAPH),
    "callables, device": lambda: in_device(callable_of),
    "device, second": lambda: after_another(partial(in_device, SMALL_GRAPH)),
    "callables, device, second": lambda: after_another(partial(in_device, callable_of)),
    "device, second, anew": lambda: after_another(
        partial(anew, partial(in_device, SMALL_GRAPH))
    ),
    "callables, device, second, anew": lambda: after_another(
        partial(anew, partial(in_device, callable_of))
    ),
    "stream": lambda: on_stream(nullcontext()),
    "stream, second": lambda: after_another(partial(on_stream, nullcontext())),
}


def outcome(make: Callable[[], Callable[[float], Tensor]]) -> dict:
    """What a capture says, what its replays give, and whether GPU 1 works afterwards."""
    row: dict = {"says": "", "replay_says": "", "warning": "", "found": []}
    calls: list[Callable[[float], Tensor]] = []
    rights: list[bool] = []
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        row["says"] = error_of(lambda: calls.append(make()))
    for warning in told:
        if "CUDA Graph is empty" in str(warning.message):
            row["warning"] = str(warning.message).partition(" (Triggered")[0]

    def replay() -> None:
        for number in (5.0, 7.0):
            y = calls[0](number)
            torch.cuda.synchronize(GPU)
            row["found"].append(y.detach().flatten()[0].item())
            rights.append(bool((y == expected(number)).all()))

    if calls:
        row["replay_says"] = error_of(replay)
    row["right"] = rights == [True, True]
    row["after"] = error_of(lambda: torch.ones(SMALL, device=GPU).add(1).sum().item())
    return row


def in_a_child(name: str) -> dict:
    """The outcome of this case in a new process, and how that process ended."""
    command = [sys.executable, __file__, name]
    child = subprocess.run(command, capture_output=True, text=True, timeout=200)
    lines = child.stdout.splitlines() or ["{}"]
    row = json.loads(lines[-1]) | {"exit": child.returncode}
    if child.returncode:
        row["end"] = (child.stderr.strip().splitlines() or [""])[-1]
    return row


def word(row: dict) -> str:
    """A case in a few words."""
    if row["exit"]:
        return f"exit code {row['exit']}"
    if row["says"]:
        return "error in the capture"
    if row["replay_says"]:
        return "error in the replay"
    if row["right"]:
        return "right"
    return "empty graph" if row["warning"] else "wrong numbers"


def main() -> dict:
    with ThreadPoolExecutor(3) as pool:
        rows = dict(zip(CASES, pool.map(in_a_child, CASES), strict=True))
    for name, row in rows.items():
        row["word"] = word(row)
        print(f"{name:33}{row['word']:22}{row.get('found', '')}")
        for key in ("says", "replay_says", "warning", "after"):
            if row.get(key):
                print(f"    {key}: {row[key][:90]}")
    return {"cases": rows, "expected": [expected(5.0), expected(7.0)]}


def derive(results: dict) -> dict:
    """The outcome of each case in a word."""
    rows = results["cases"]
    return {"words": {name: row["word"] for name, row in rows.items()}}


if __name__ == "__main__":
    if sys.argv[1:]:
        print(json.dumps(outcome(CASES[sys.argv[1]])))
    else:
        main()
