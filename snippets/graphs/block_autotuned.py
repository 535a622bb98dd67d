# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [1]
# timeout = 540
# ///
"""A transformer's block compiled by default, and autotuned without CUDA graphs: worth it?"""

import os
import tempfile
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from statistics import median

import torch
from torch import Tensor

from snippets.graphs.language_model import Block
from snippets.pictures import bars
from snippets.timing.benchmark import wall_clock
from snippets.timing.kernel_time import gpu_clock
from snippets.timing.lanes import lanes
from snippets.timing.take_turns import ratios, recorded, take_turns

WIDTH, TOKENS = 1024, 1024
BATCHES = {"many": 8, "few": 1}  # texts of TOKENS tokens
MODES = {"compiled": None, "max_autotune": "max-autotune-no-cudagraphs"}


def matmuls(work: Callable[[], object]) -> dict[str, int]:
    """How many matmuls of one call are Triton's templates, and how many cuBLAS's."""
    found = {"triton": 0, "cublas": 0}
    for lane, _, _, name in lanes(work):
        if lane.startswith("CPU"):
            continue
        if "triton_tem" in name:
            found["triton"] += 1
        elif any(word in name for word in ("gemm", "nvjet", "cutlass", "xmma")):
            found["cublas"] += 1
    return found


@torch.no_grad()
def compared(block: Block, x: Tensor) -> dict:
    """Compile the block for this batch in each mode; check it, then time it."""
    torch.compiler.reset()
    expected, works, found = block(x), {"eager": partial(block, x)}, {"first_s": {}}
    for name, mode in MODES.items():
        works[name] = partial(torch.compile(block, mode=mode, dynamic=False), x)
        found["first_s"][name] = wall_clock(works[name])
        torch.testing.assert_close(works[name](), expected, rtol=0.05, atol=0.05)
    turns = take_turns(works, trials=11, calls=10, clock=gpu_clock)
    found |= recorded(turns, "us") | {"gain": {}, "gain_trials": {}, "matmuls": {}}
    for name, timing in turns.items():
        faster = ratios(turns["eager"], timing)
        found["gain"][name], found["gain_trials"][name] = median(faster), faster
        found["matmuls"][name] = matmuls(works[name])
    return found


def process(folder: str) -> dict:
    """Both batches, in a fresh process with an empty cache."""
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = folder
    small = torch.randn(64, device="cuda")
    wall_clock(lambda: torch.compile(lambda x: x * 2 + 1)(small))
    torch._inductor.config.autotune_num_choices_displayed = 0
    torch.manual_seed(0)
    block = Block(WIDTH).bfloat16().to("cuda")
    found = {}
    for name, batch in BATCHES.items():
        x = torch.randn(batch, TOKENS, WIDTH, device="cuda", dtype=torch.bfloat16)
        found[name] = compared(block, x) | {"tokens": batch * TOKENS}
    return found


def main() -> dict:
    context = get_context("forkserver")
    context.set_forkserver_preload(["torch"])
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder,
        ProcessPoolExecutor(1, context) as processes,
    ):
        found = processes.submit(process, folder).result()
    for row in found.values():
        print(f"{row['tokens']:,} tokens: eager {row['us']['eager']:.0f} µs")
        for name, seconds in row["first_s"].items():
            us, kernels = row["us"][name], row["matmuls"][name]
            print(f"  {name:13}{us:5.0f} µs, compiled in {seconds:4.1f} s,", end=" ")
            print(f"matmuls: {kernels['triton']} Triton, {kernels['cublas']} cuBLAS")
    return {"batches": found, "width": WIDTH}


def plot(results: dict, ceilings: dict):
    labels = {
        "eager": "eager",
        "compiled": "compiled",
        "max_autotune": "max-autotune-no-cudagraphs",
    }
    values = {}
    for row in results["batches"].values():
        group = {label: row["us"][name] for name, label in labels.items()}
        values[f"{row['tokens']:,} tokens"] = group
    return bars(values, {}, unit="µs on the GPU")


if __name__ == "__main__":
    main()
