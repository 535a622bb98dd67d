# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [2]
# timeout = 480
# launcher = "torchrun"
# ///
"""What a step of FSDP consists of: timed first, profiled then, many steps in a row."""

from collections.abc import Callable, Mapping
from functools import partial
from time import perf_counter
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.nn.parallel import DistributedDataParallel

from snippets.pictures import Picture, stacked
from snippets.timing.take_turns import recorded, take_turns
from snippets.timing.wait_for import wait_for
from snippets.training.dp_vs_ddp import slowest_rank
from snippets.training.fsdp_options import new_model, sharded, step
from snippets.training.fsdp_step_profile import (
    by_name,
    gpu_account,
    kernels_of,
    of_last_rank,
)
from snippets.training.waiting_ranks import meet

TOKENS, WIDTH = 1024, 1536
ROWS = {"few": 2, "many": 8}  # for each GPU
BLOCKS = {"ddp": 0, "fsdp": 1, "fsdp_four": 4}  # in a group of FSDP
STEPS = 8  # between two waits
TRIALS, PROFILES = 5, 3


def profiled_in_a_row(
    work: Callable[[], object], steps: int, trials: int
) -> list[dict]:
    """Kernels of so many steps in a row, and `wall`, their milliseconds, of each trial.

    The GPU alone is recorded. Nobody waits between the steps of a trial. The first
    profile also starts the profiler, and is left out.
    """
    kind = torch.profiler.ProfilerActivity
    activities = [kind.CUDA if torch.cuda.is_available() else kind.CPU]
    found = []
    for _ in range(1 + trials):
        dist.barrier()
        wait_for()
        with torch.profiler.profile(activities=activities, acc_events=True) as profiler:
            dist.barrier()  # before the clock starts
            start = perf_counter()
            for _ in range(steps):
                work()
            wait_for()
            wall = 1e3 * (perf_counter() - start)
        found.append({**kernels_of(list(profiler.events())), "wall": wall})
    return found[1:]


def account(trials: list[dict], steps: int) -> dict:
    """Milliseconds of one step: kernels + exposed + idle = span, and wall by the clock."""
    each = []
    for trial in trials:
        row = {name: ms / steps for name, ms in gpu_account(trial).items()}
        each.append(row | {"wall": trial["wall"] / steps})
    return by_name(each)


def main() -> dict:
    device, group = meet()
    mesh = DeviceMesh.from_group(group, device.type)
    torch.set_float32_matmul_precision("high")  # TF32
    works: dict[str, Callable[..., Any]] = {}
    for name, blocks in BLOCKS.items():
        model: Any = new_model(device)
        if blocks == 0:
            model = DistributedDataParallel(
                model, process_group=group, gradient_as_bucket_view=True
            )
        else:
            model = sharded(model, mesh, blocks)
        adam = torch.optim.Adam(model.parameters(), lr=1e-5, fused=True)
        for size, count in ROWS.items():
            rows = torch.randn(count, TOKENS, WIDTH, device=device)
            works[f"{name}_{size}"] = partial(step, model, rows, adam)
    # in its first ten steps DDP waits for the GPU, for its statistics
    how: dict[str, Any] = {"calls": STEPS, "clock": slowest_rank}
    before = recorded(take_turns(works, 2, TRIALS, **how))
    result: dict[str, Any] = {"ranks": group.size(), "before": before, "profiled": {}}
    for name, work in works.items():
        trials = of_last_rank(profiled_in_a_row(work, STEPS, PROFILES))
        result["profiled"][name] = account(trials, STEPS)
    result["after"] = recorded(take_turns(works, 1, TRIALS, **how))
    if group.rank() == 0:
        for name, each in result["profiled"].items():
            ms = {"before": before["ms"][name]} | each["ms"]
            ms["after"] = result["after"]["ms"][name]
            shown = ("before", "wall", "span", "kernels", "exposed", "idle", "after")
            print(f"{name:<15}", *(f"{part} {ms[part]:.1f}" for part in shown))
    dist.destroy_process_group()
    return result


def derive(results: dict) -> dict:
    """How far a step is from what its profile accounts for; FSDP's idle time."""
    off = {}
    for name, each in results["profiled"].items():
        ms = results["before"]["ms"][name]
        off[name] = abs(ms - each["ms"]["span"]) / ms
    fsdp, ddp = (results["profiled"][name]["ms"] for name in ("fsdp_few", "ddp_few"))
    idle = fsdp["idle"] / ddp["idle"]
    return {"account_off": off, "idle_of_ddp": idle}


def plot(results: dict, ceilings: dict):
    titles = {"ddp": "DDP", "fsdp": "FSDP", "fsdp_four": "FSDP, four\nblocks a group"}
    colors = {"kernels": "gpu", "NCCL alone": "peer", "the GPU waits": "ceiling"}

    def drawn(rows: Mapping[str, str], timed: bool) -> Picture:
        """What the GPU does in a step: of profiled ones, or of those that are only timed.

        Kernels last as long in both, and so does NCCL alone, where there is room for it.
        """
        parts: dict[str, dict] = {part: {} for part in colors}
        for name, row in rows.items():
            ms = results["profiled"][name]["ms"]
            whole = results["before"]["ms"][name] if timed else ms["span"]
            alone = max(0.0, min(ms["exposed"], whole - ms["kernels"]))
            lengths = (ms["kernels"], alone, max(0.0, whole - ms["kernels"] - alone))
            for part, length in zip(colors, lengths, strict=True):
                parts[part][row] = length
        picture = stacked(parts, "ms of a step")
        for mark in picture.panels[0].marks:
            mark.color = colors[mark.name]
        return picture

    rows, both = {}, {}
    for size, count in ROWS.items():
        for name, title in titles.items():
            rows[f"{name}_{size}"] = f"{title}, {size} tokens"
        for name in ("ddp", "fsdp"):
            tokens = f"{count * TOKENS:,} tokens"
            both[f"{name}_{size}"] = f"{titles[name]}, {tokens}"
    unprofiled = drawn(both, True)
    unprofiled.panels[0].title = "a step in TF32, timed without a profiler"
    return drawn(rows, False), {"unprofiled": unprofiled}


if __name__ == "__main__":
    main()
