# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [1]
# exclusive = false
# ///
"""Ask a profile how each kernel was launched: blocks, threads, registers, memory."""

import json
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from snippets.timing.wait_for import wait_for


def kernels_of(work: Callable[[], object]) -> list[dict]:
    """The kernels that `work` launches, as the trace of a profiler describes them.

    Each has a `name`, a `grid` and a `block`, both [x, y, z], `registers per thread`,
    and `shared memory` in bytes of one block.
    """
    with torch.profiler.profile(acc_events=True) as profiler:
        work()
        wait_for()
    with TemporaryDirectory() as folder:
        trace = Path(folder, "trace.json")
        profiler.export_chrome_trace(str(trace))
        events = json.loads(trace.read_text())["traceEvents"]
    kernels = [event for event in events if event.get("cat") == "kernel"]
    return [{"name": kernel["name"]} | kernel["args"] for kernel in kernels]


def main() -> dict:
    x = torch.randn(4096, 4096, device="cuda")
    keys = ("name", "grid", "block", "registers per thread", "shared memory")
    kernels = kernels_of(lambda: torch.mm(x, x).relu().sum())
    for kernel in kernels:
        print(kernel["name"].split("<")[0])  # without its template's arguments
        print("  ", ", ".join(f"{key} {kernel[key]}" for key in keys[1:]))
    return {"kernels": [{key: kernel[key] for key in keys} for kernel in kernels]}


if __name__ == "__main__":
    main()
