# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy", "pycuda>=2026.1"]
# [tool.overlap]
# gpus = [1]
# timeout = 120
# ///
"""Two ways to keep pycuda and PyTorch in order, and what a new stream each time costs."""

from collections.abc import Callable
from functools import cache

import torch

from snippets.machine.pycuda_context import torch_context
from snippets.machine.pycuda_kernel import launch
from snippets.machine.pycuda_stream import one_stream
from snippets.timing.take_turns import recorded, take_turns

ELEMENTS = 10_000_000
ROUNDS = 20


@cache
def kept_stream(index: int = 0) -> tuple:
    """A stream of pycuda's on this GPU, made once, and the same as PyTorch's.

    It is non-blocking, as PyTorch's are: the default stream and it have no order.
    """
    with torch_context(index) as driver:
        stream = driver.Stream(1)
    return stream, torch.cuda.ExternalStream(stream.handle, device=index)


def in_default_stream(x: torch.Tensor, work: Callable[[torch.Tensor], object]) -> None:
    """Run `work(x)`, which launches in CUDA's default stream, in order with PyTorch's.

    PyTorch stays in its current stream: that waits, and is waited for.
    """
    current = torch.cuda.current_stream(x.device)
    default = torch.cuda.default_stream(x.device)
    default.wait_stream(current)
    work(x)
    current.wait_stream(default)


def wrong_elements(x: torch.Tensor, work: Callable[[torch.Tensor], object]) -> int:
    """PyTorch fills x late with threes, `work` doubles: how many are not six then?"""
    torch.cuda._sleep(100_000_000)  # cycles: some 50 ms of earlier work
    x.fill_(3)
    work(x)
    return int((x != 6).sum())


def orders() -> dict[str, int]:
    """Wrong elements if PyTorch works in a stream of its own, or in the kept one."""
    x = torch.zeros(ELEMENTS, device="cuda")
    launch(x)  # compiled and loaded before anything is timed by a spin
    torch.cuda.synchronize()
    wrong = {}
    with torch.cuda.stream(torch.cuda.Stream()):
        wrong["nothing waits"] = wrong_elements(x, launch)
        wrong["in_default_stream"] = wrong_elements(
            x, lambda x: in_default_stream(x, launch)
        )
    stream, shared = kept_stream()
    shared.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(shared):
        wrong["kept_stream"] = wrong_elements(x, lambda x: launch(x, stream))
    torch.cuda.current_stream().wait_stream(shared)
    return wrong


def in_a_new_stream(x: torch.Tensor) -> None:
    """A tensor made and dropped in a stream that is made for it."""
    with one_stream() as stream:
        launch(x.clone(), stream)


def in_the_kept_stream(x: torch.Tensor) -> None:
    stream, shared = kept_stream()
    shared.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(shared):
        launch(x.clone(), stream)
    torch.cuda.current_stream().wait_stream(shared)


def reserved_mib(work: Callable[[torch.Tensor], None]) -> list[float]:
    """What PyTorch has reserved after each round, above what it had before the first."""
    x = torch.ones(ELEMENTS, device="cuda")
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    before = torch.cuda.memory_reserved()
    found = []
    for _ in range(ROUNDS):
        work(x)
        torch.cuda.synchronize()
        found.append((torch.cuda.memory_reserved() - before) / 2**20)
    return found


def main() -> dict:
    wrong = orders()
    ways = {"new": in_a_new_stream, "kept": in_the_kept_stream}
    reserved = {name: reserved_mib(way) for name, way in ways.items()}
    small = torch.ones(1000, device="cuda")
    works = {name: lambda way=way: way(small) for name, way in ways.items()}
    times = recorded(take_turns(works, trials=15, calls=20), "us")
    for name, count in wrong.items():
        print(f"{name:20}{count:10,} of {ELEMENTS:,} elements wrong")
    for name, mib in reserved.items():
        us = times["us"][name]
        print(f"{name:5} stream: {mib[0]:.0f} MiB, then {mib[-1]:.0f}; {us:.0f} µs")
    mib = {"tensor": 4 * ELEMENTS / 2**20, "reserved": reserved}
    return times | {"elements": ELEMENTS, "wrong": wrong, "mib": mib, "rounds": ROUNDS}


if __name__ == "__main__":
    main()
