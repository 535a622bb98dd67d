# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy", "pycuda>=2026.1"]
# [tool.overlap]
# gpus = [1]
# timeout = 120
# ///
"""A kernel of pycuda's inside a CUDA graph that PyTorch captured, and its events."""

from collections.abc import Callable
from statistics import median

import torch

from snippets.machine.pycuda_context import error_of, torch_context
from snippets.machine.pycuda_kernel import launch
from snippets.machine.pycuda_stream import one_stream

SIZE = 2**26  # elements: 256 MiB, a kernel of tens of microseconds
TRIALS = 15


def captured(x: torch.Tensor, stream) -> torch.cuda.CUDAGraph:
    """A graph of three kernels: PyTorch adds one, pycuda doubles, PyTorch adds one.

    `stream` is pycuda's, and PyTorch captures in it: a kernel in another would not be
    in the graph.
    """
    graph = torch.cuda.CUDAGraph()
    shared = torch.cuda.ExternalStream(stream.handle, device=x.device)
    with torch.cuda.graph(graph, stream=shared):
        x.add_(1)
        launch(x, stream)
        x.add_(1)
    return graph


def in_another_stream(x: torch.Tensor) -> None:
    """The capture of a kernel that pycuda launches in the default stream: a trap."""
    with torch.cuda.graph(torch.cuda.CUDAGraph()):
        launch(x)


def by_pycuda(driver, stream, work: Callable[[], object]) -> float:
    """Milliseconds of `work`, which launches in `stream`, by two events of pycuda's."""
    start, end = driver.Event(), driver.Event()
    start.record(stream)
    work()
    end.record(stream)
    end.synchronize()
    return end.time_since(start)


def by_torch(work: Callable[[], object]) -> float:
    """The same by two events of PyTorch's, in its current stream."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    work()
    end.record()
    end.synchronize()
    return start.elapsed_time(end)


def main() -> dict:
    x = torch.zeros(SIZE, device="cuda")
    launch(x)  # compiled and loaded before anything is captured
    with one_stream() as stream:
        graph = captured(x, stream)
        torch.cuda.synchronize()
        during_capture = float(x[0])
        seen = []
        for _ in range(3):
            graph.replay()
            seen.append(sorted(set(x[:: SIZE // 8].tolist())))
        trials: dict[str, list[float]] = {"pycuda": [], "torch": []}
        with torch_context() as driver:
            for _ in range(TRIALS):
                torch.cuda._sleep(1_000_000)  # the launches come before the kernel runs
                trials["pycuda"].append(
                    by_pycuda(driver, stream, lambda: launch(x, stream))
                )
                torch.cuda._sleep(1_000_000)
                trials["torch"].append(by_torch(lambda: launch(x, stream)))
    refused = error_of(lambda: in_another_stream(x))
    ms = {name: median(values) for name, values in trials.items()}
    print(f"while it is captured nothing runs: x stays {during_capture}")
    print(f"after one, two, three replays x is {seen}")
    for name, each in ms.items():
        print(f"the kernel takes {each:.4f} ms by the events of {name}")
    print(f"launched in another stream: {refused or 'no error'}")
    return {
        "during_capture": during_capture,
        "seen": seen,
        "ms": ms,
        "ms_trials": trials,
        "refused": refused,
    }


if __name__ == "__main__":
    main()
