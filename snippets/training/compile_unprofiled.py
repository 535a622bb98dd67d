# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [2]
# timeout = 300
# launcher = "torchrun"
# ///
"""DDP with torch.compile, cut or not: many steps between waits, and no profile."""

import gc
import os
import tempfile
from copy import deepcopy
from functools import partial
from statistics import median
from typing import Any

import torch
import torch.distributed as dist

from snippets.pictures import bars
from snippets.timing.take_turns import both_orders, ratios, recorded
from snippets.training.ddp_compile import (
    WAYS,
    Stack,
    eager,
    forward_backward,
    graphs,
    start_over,
)
from snippets.training.ddp_equality import farthest, gradients
from snippets.training.dp_vs_ddp import slowest_rank
from snippets.training.waiting_ranks import meet

LAYERS, WIDTH, ROWS, TOKENS = 3, 1024, 32, 512  # rows for each GPU
BACKEND = "inductor"
STEPS, TRIALS = 10, 4  # between two waits, as in training; in each of two orders


def in_turns(model, group, rows, expected, name: str) -> dict[str, Any]:
    """DDP not compiled, and compiled in one of WAYS: gradients first, then times."""
    wrap, split = WAYS[name]
    start_over(split)  # of all ways before; so they cannot take turns with each other
    models = {"eager": eager(deepcopy(model), group)}
    models[name] = wrap(deepcopy(model), group, BACKEND)
    errors = {n: farthest(gradients(ddp, rows), expected) for n, ddp in models.items()}
    assert max(errors.values()) < 1e-2, f"{name}: wrong gradients"
    parts = graphs()["parts"]
    works = {n: partial(forward_backward, ddp, rows) for n, ddp in models.items()}
    # in its first ten steps DDP waits for the GPU, for its statistics
    how: dict[str, Any] = {"calls": STEPS, "clock": slowest_rank}
    times = both_orders(works, warmup=2, trials=TRIALS, **how)
    gains = ratios(times["eager"], times[name])
    result: dict[str, Any] = {"error": errors[name], "parts": parts}
    result |= recorded(times) | {"gain": median(gains), "gain_trials": gains}
    return result | {"recompiles": graphs()["parts"] - parts}


def main() -> dict:
    device, group = meet()
    torch.set_float32_matmul_precision("high")  # TF32
    torch.manual_seed(0)  # the same model and batch on all ranks
    with device:
        model = Stack(LAYERS, WIDTH)
        batch = torch.randn(group.size() * ROWS, TOKENS, WIDTH)
    expected = gradients(model, batch)  # one device, the whole batch
    rows = batch.chunk(group.size())[group.rank()]
    result: dict[str, Any] = {"ranks": group.size(), "steps": STEPS, "ways": {}}
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = folder
        os.environ["TRITON_CACHE_DIR"] = os.path.join(folder, "triton")
        for name in WAYS:
            way = in_turns(model, group, rows, expected, name)
            result["ways"][name] = way
            gc.collect()  # DDP has cycles
            if group.rank() == 0:
                ms = way["ms"]
                print(
                    f"{name:<15}{way['parts']:3} parts, {ms[name]:6.2f} ms,",
                    f"eager {ms['eager']:.2f}, {way['gain']:.3f}×,",
                    f"{way['recompiles']} recompiles",
                )
    dist.destroy_process_group()
    return result


def derive(results: dict) -> dict:
    """The gain of each way, and in how many rounds it was the faster one."""
    ways = results["ways"]
    derived: dict[str, Any] = {"gains": [way["gain"] for way in ways.values()]}
    derived["most_error"] = max(way["error"] for way in ways.values())
    derived["recompiles"] = sum(way["recompiles"] for way in ways.values())
    if all("gain_trials" in way for way in ways.values()):
        derived["rounds_faster"] = {
            name: sum(gain > 1 for gain in way["gain_trials"])
            for name, way in ways.items()
        }
    return derived


def plot(results: dict, ceilings: dict):
    titles = {"after": "compiled", "unsplit": "compiled, not cut"}
    titles |= {"blocks": "each block", "blocks_unsplit": "each block, not cut"}
    groups = {}
    for name, title in titles.items():
        ms = results["ways"][name]["ms"]
        groups[title] = {"compiled": ms[name], "eager, in turns with it": ms["eager"]}
    return bars(groups, {}, "ms a step")


if __name__ == "__main__":
    main()
