# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [1]
# timeout = 180
# ///
"""What compiling costs, taken apart: process, function, shape; then from disk."""

import importlib
import multiprocessing
import os
import tempfile
from concurrent.futures import ProcessPoolExecutor
from functools import partial

import torch

from snippets.pictures import bars
from snippets.timing.benchmark import wall_clock
from snippets.timing.kernel_time import gpu_clock
from snippets.timing.take_turns import recorded, take_turns

N = 4096
COMPILER = ("torch._dynamo", "torch._inductor.compile_fx", "triton")


def first(x: torch.Tensor) -> torch.Tensor:
    """Ten pointwise operations: eager, ten kernels that read and write all of x."""
    for _ in range(5):
        x = x * 0.5 + 1
    return x


def second(x: torch.Tensor) -> torch.Tensor:
    for _ in range(5):
        x = x * 0.25 + 2
    return x


def import_compiler() -> None:
    for name in COMPILER:
        importlib.import_module(name)


def stages(folder: str) -> dict:
    """Seconds of each step of compiling, in this fresh process, cached in `folder`."""
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = folder
    x = torch.randn(N, N, device="cuda")
    expected = first(x)
    found = {"import_s": wall_clock(import_compiler)}
    compiled = torch.compile(first)
    found["first_s"] = wall_clock(partial(compiled, x))
    torch.testing.assert_close(compiled(x), expected)
    traced = torch.compile(second, backend="eager")
    found["trace_s"] = wall_clock(partial(traced, x))
    found["second_s"] = wall_clock(partial(torch.compile(second), x))
    graphed = partial(torch.compile(second, mode="reduce-overhead"), x)
    found["reduce_overhead_ms"] = [1e3 * wall_clock(graphed) for _ in range(5)]
    ways = {"eager": partial(first, x), "compiled": partial(compiled, x)}
    ways["graphed"] = graphed
    found["on_gpu"] = recorded(take_turns(ways, calls=10, clock=gpu_clock))
    for rows in (3072, 2048):  # of another size, then of any size
        found[f"rows_{rows}_s"] = wall_clock(partial(compiled, x[:rows]))
    return found


def main() -> dict:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch"])
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder,
        ProcessPoolExecutor(1, context, max_tasks_per_child=1) as processes,
    ):
        cold, cached = processes.map(stages, [folder, folder])  # one after the other
    for key in [key for key in cold if key.endswith("_s")]:
        print(f"{key[:-2]:12}cold {cold[key]:8.3f} s, cached {cached[key]:8.3f} s")
    return {"n": N, "cold": cold, "cached": cached}


def derive(results: dict) -> dict:
    """After how many calls the compiled function has repaid what came before."""
    cold = results["cold"]
    saved_ms = cold["on_gpu"]["ms"]["eager"] - cold["on_gpu"]["ms"]["compiled"]
    first_s = cold["import_s"] + cold["first_s"]
    return {
        "repaid_after": {
            "second": 1e3 * cold["second_s"] / saved_ms,
            "first": 1e3 * first_s / saved_ms,
        }
    }


def plot(results: dict, ceilings: dict):
    labels = {"import_s": "import the compiler", "first_s": "first function"}
    labels |= {"second_s": "second function", "trace_s": "tracing of it"}
    labels |= {
        "rows_3072_s": "new number of rows",
        "rows_2048_s": "a third number of rows",
    }
    values = {}
    for key, label in labels.items():
        values[label] = {
            "first process": results["cold"][key],
            "second process, with the cache": results["cached"][key],
        }
    return bars(values, {}, unit="s", log=True)


if __name__ == "__main__":
    main()
