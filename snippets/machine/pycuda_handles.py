# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy", "pycuda>=2026.1"]
# [tool.overlap]
# gpus = [1]
# timeout = 300
# exclusive = false
# ///
"""What PyTorch made before an import of pycuda's, used after it: another context's."""

from collections.abc import Callable

import torch

from snippets.machine.pycuda_beside_torch_broken import autoinit
from snippets.machine.pycuda_capture import in_a_process, said
from snippets.machine.pycuda_context import pycuda_driver
from snippets.machine.pycuda_contexts import autoprimaryctx

SIZE = 256


def on_stream(x: torch.Tensor) -> Callable[[], object]:
    """Work on a stream of PyTorch's that was used before."""
    stream = torch.cuda.Stream()

    def work() -> None:
        with torch.cuda.stream(stream):
            x.add_(1)
        stream.synchronize()

    return work


def event(x: torch.Tensor) -> Callable[[], object]:
    """A wait for an event that was recorded before."""
    recorded = torch.cuda.Event()
    recorded.record()
    return recorded.synchronize


def stream_waits(x: torch.Tensor) -> Callable[[], object]:
    """An event recorded before, for which the current stream waits."""
    recorded = torch.cuda.Event()
    recorded.record()
    return lambda: torch.cuda.current_stream().wait_event(recorded)


def addition(x: torch.Tensor) -> Callable[[], object]:
    """A kernel that was loaded before."""
    return lambda: x.add_(1)


def matmul(x: torch.Tensor) -> Callable[[], object]:
    """cuBLAS, whose handle was made before."""
    return lambda: torch.mm(x, x)


def convolution(x: torch.Tensor) -> Callable[[], object]:
    """cuDNN, whose handle was made before."""
    image, kernel = x[None, None], x[None, None, :3, :3].contiguous()
    return lambda: torch.nn.functional.conv2d(image, kernel)


def replay(x: torch.Tensor) -> Callable[[], object]:
    """A CUDA graph that was captured before."""
    graph = torch.cuda.CUDAGraph()
    x.add_(1)
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        x.add_(1)
    return graph.replay


def new_stream(x: torch.Tensor) -> Callable[[], object]:
    """A stream that is made after it: of PyTorch's pool, which begins with its first one."""

    def work() -> None:
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            x.add_(1)
        stream.synchronize()

    return work


USES = {
    "a stream": on_stream,
    "an event, waited for": event,
    "an event, for a stream": stream_waits,
    "a loaded kernel": addition,
    "cuBLAS": matmul,
    "cuDNN": convolution,
    "a captured graph": replay,
    "a new stream": new_stream,
}
TAKES = {"autoinit": autoinit, "autoprimaryctx": autoprimaryctx}


def used(take: str, use: str) -> dict[str, str]:
    """What PyTorch says if it does something before the import, and again after it."""
    x = torch.zeros(SIZE, SIZE, device="cuda")
    work = USES[use](x)
    if use != "a new stream":
        work()
    torch.cuda.synchronize()
    TAKES[take]()
    row = {"call": said(work), "wait": said(torch.cuda.synchronize)}
    return row | {"torch": said(lambda: torch.ones(4, device="cuda").sum().item())}


def main() -> dict:
    pycuda_driver()  # says so if pycuda is missing
    rows: dict[str, dict] = {}
    for take in TAKES:
        rows[take] = {use: in_a_process(used, take, use) for use in USES}
        print(f"after pycuda.{take}")
        for use, row in rows[take].items():
            lines = [f"{when}: {error}" for when, error in row.items() if error]
            print(f"    {use:24}{'; '.join(lines) or 'works'}")
    return {"rows": rows}


def derive(results: dict) -> dict:
    """Which uses fail after which import."""
    return {
        "fail": {
            take: sorted(use for use, row in uses.items() if any(row.values()))
            for take, uses in results["rows"].items()
        }
    }


if __name__ == "__main__":
    main()
