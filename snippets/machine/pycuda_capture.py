# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy", "pycuda>=2026.1"]
# [tool.overlap]
# gpus = [1]
# timeout = 300
# exclusive = false
# ///
"""While a stream captures a CUDA graph: what pycuda may do, and what ends the capture."""

from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import numpy as np
import torch

from snippets.machine.pycuda_context import pycuda_driver, torch_context
from snippets.machine.pycuda_kernel import SOURCE, launch

SIZE = 1000
#: What pycuda does between two additions of PyTorch's that are captured.
WORKS: dict[str, Callable[..., object]] = {
    "launch in it": lambda driver, x, stream: launch(x, stream),
    "launch in the default stream": lambda driver, x, stream: launch(x),
    "mem_alloc": lambda driver, x, stream: driver.mem_alloc(2**20),
    "memcpy_dtoh": lambda driver, x, stream: driver.memcpy_dtoh(
        np.empty(SIZE, np.float32), x.data_ptr()
    ),
    "Context.synchronize": lambda driver, x, stream: driver.Context.synchronize(),
    "SourceModule": lambda driver, x, stream: loaded(),
}
#: The stream that captures, and the work.
CASES = [
    ("pycuda, blocking", "launch in it"),
    ("pycuda, blocking", "launch in the default stream"),
    ("pycuda, non-blocking", "launch in it"),
    ("pycuda, non-blocking", "launch in the default stream"),
    ("PyTorch", "launch in the default stream"),
    ("pycuda, non-blocking", "mem_alloc"),
    ("pycuda, non-blocking", "memcpy_dtoh"),
    ("pycuda, non-blocking", "Context.synchronize"),
    ("pycuda, non-blocking", "SourceModule"),
]


def loaded():
    """The kernel, loaded once more: from the disk, where it was kept."""
    from pycuda.compiler import SourceModule

    return SourceModule(SOURCE)


def said(call: Callable[[], object]) -> str:
    """The first line of what a call raises, or nothing."""
    try:
        call()
    except Exception as error:
        return f"{type(error).__name__}: {error}".splitlines()[0]
    return ""


def stream_of(kind: str, driver):
    """The stream to capture in, as PyTorch's and as pycuda's; PyTorch's own has no other."""
    if kind == "PyTorch":
        return torch.cuda.Stream(), None
    stream = driver.Stream(1 if kind.endswith("non-blocking") else 0)
    return torch.cuda.ExternalStream(stream.handle), stream


def captured(kind: str, name: str) -> dict:
    """What is said when PyTorch adds one, pycuda works, PyTorch adds one, captured.

    `during` is the value of x after the capture, `replayed` after one replay from one.
    """
    x, graph, row = torch.ones(SIZE, device="cuda"), torch.cuda.CUDAGraph(), {}
    launch(x)  # compiled and loaded before anything is captured
    x.fill_(1)
    with torch_context() as driver:
        shared, stream = stream_of(kind, driver)
        torch.cuda.synchronize()

        def capture() -> None:
            with torch.cuda.graph(graph, stream=shared):
                x.add_(1)
                row["call"] = said(lambda: WORKS[name](driver, x, stream))
                x.add_(1)

        row["capture"] = said(capture)
        row["wait"] = said(torch.cuda.synchronize)
        row["torch"] = said(lambda: row.update(during=float(x[0])))
        if not any(row[when] for when in ("capture", "wait", "torch")):
            x.fill_(1)
            graph.replay()
            row["replayed"] = float(x[0])
    return row


def in_a_process(work: Callable[..., dict], *args) -> dict:
    """What a function gives in a fresh process; that it died, if it did."""
    context = get_context("forkserver")
    context.set_forkserver_preload(["torch"])
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        try:
            return pool.submit(work, *args).result()
        except Exception as error:
            return {"died": f"{type(error).__name__}: {error}".splitlines()[0]}


def main() -> dict:
    pycuda_driver()  # says so if pycuda is missing
    rows = []
    for kind, name in CASES:
        row = in_a_process(captured, kind, name)
        print(f"{kind} captures; {name}")
        for when in ("died", "call", "capture", "wait", "torch"):
            if row.get(when):
                print(f"    {when:8}{row[when]}")
        if "replayed" in row:
            values = f"{row['during']:.0f} at once, {row['replayed']:.0f} by a replay"
            print(f"    x       {values}")
        rows.append({"stream": kind, "work": name} | row)
    return {"rows": rows}


def derive(results: dict) -> dict:
    """Which works are in the graph, which ran beside it at once, which ended the capture."""
    names: dict[str, list[str]] = {"in_graph": [], "beside": [], "ended": []}
    for row in results["rows"]:
        name = f"{row['stream']}; {row['work']}"
        if "replayed" not in row:
            names["ended"].append(name)
        elif row["replayed"] == 5:
            names["in_graph"].append(name)
        elif row["during"] != 1:
            names["beside"].append(name)
    return names


if __name__ == "__main__":
    main()
