# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [1]
# take = ["gpu_clock", "captured"]
# ///
"""Time kernels without their launches: queue them behind a spin, or capture them."""

from collections.abc import Callable
from typing import Any

import torch

from snippets.timing.take_turns import recorded, take_turns

SPIN_CYCLES = 100_000  # for each call, 50 µs at 2 GHz: longer than its launches take


def gpu_clock(
    work: Callable[[], object],
    calls: int = 20,
    spin_cycles: int = SPIN_CYCLES,
) -> float:
    """Seconds of one of `calls` calls on the current stream, by the GPU's own clock.

    The GPU first spins until all calls are queued; if it overtook them, because the
    host was disturbed or the call was its first, it spins longer. RuntimeError if no
    spin is long enough: where `work` waits for the GPU, or where all calls together
    are more launches than its queue holds, about a thousand. Work in another stream,
    or on another GPU than the current, it does not see, and says nothing.
    """
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    for attempt in range(6):
        torch.cuda._sleep((1_000_000 + spin_cycles * calls) * 2**attempt)
        start.record()
        for _ in range(calls):
            work()
        end.record()
        in_time = not start.query()
        end.synchronize()
        if in_time:
            return start.elapsed_time(end) / 1e3 / calls
    raise RuntimeError("the GPU overtook the launches: work waits for the GPU")


def repeated(work: Callable[[], object], times: int) -> Callable[[], None]:
    """A function that calls `work` so many times."""

    def call() -> None:
        for _ in range(times):
            work()

    return call


def captured(work: Callable[[], Any]) -> Callable[[], Any]:
    """A function that launches all kernels of `work` at once, as one CUDA graph.

    It returns what `work` returned: the same tensors each time, with new contents.
    `work` is called twice: once for real, once to be recorded; a replay runs none of
    its Python. It is kept, with all that it refers to: the graph knows addresses only.
    Its work is on the current GPU: elsewhere the graph would be empty. It reads no value
    on the CPU. A name that `work` reads stays bound to its tensor: bound to another, it
    frees memory that the graph still reads.
    """
    aside = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):  # what happens only once must not be captured
        work()
    torch.cuda.current_stream().wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=aside):
        result = work()

    def replay() -> Any:
        graph.replay()
        return result

    # what the graph reads and writes must not be freed
    replay.work = work  # type: ignore
    return replay


def main() -> dict:
    x = torch.zeros(1024, device="cuda")

    def ten_increments() -> None:
        for _ in range(10):
            x.add_(1)

    works = {"eager": ten_increments, "graph": captured(ten_increments)}
    timings = take_turns(works, calls=20)
    on_gpu = take_turns(works, calls=20, clock=lambda w, n: gpu_clock(w, n, 400_000))
    x.zero_()
    works["graph"]()
    assert x.eq(10).all()
    wall, gpu = recorded(timings, "us"), recorded(on_gpu, "us")
    for name in works:
        print(
            f"{name:6}{wall['us'][name]:7.1f} µs, on the GPU {gpu['us'][name]:6.1f} µs"
        )
    return {"increments": 10, "wall": wall, "gpu": gpu}


if __name__ == "__main__":
    main()
