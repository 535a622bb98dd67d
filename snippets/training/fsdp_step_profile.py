# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [2, 4, 8]
# timeout = 240
# launcher = "torchrun"
# [tool.overlap.missing]
# 8 = "not recorded yet"
# ///
"""Where does the time of an FSDP step go? The CPU's part by hooks, the GPU's by kind."""

from collections.abc import Callable
from functools import partial
from itertools import pairwise
from statistics import linear_regression, median
from time import perf_counter
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.nn.parallel import DistributedDataParallel

from snippets.pictures import timelines
from snippets.timing.lanes import is_on_gpu
from snippets.timing.take_turns import recorded, take_turns
from snippets.timing.wait_for import wait_for
from snippets.training.dp_vs_ddp import slowest_rank
from snippets.training.fsdp_options import new_model, sharded
from snippets.training.waiting_ranks import meet

LAYERS, WIDTH, TOKENS = 12, 1536, 1024
ROWS = {"tiny": 1, "few": 2, "many": 8}  # rows for each GPU; tiny ones are short, too
SHORT = 64  # tokens of a tiny row: the GPU has next to nothing to compute
BLOCKS = {"fsdp": 1, "fsdp_two": 2, "fsdp_four": 4, "fsdp_all": 12}  # in a group
PROFILED = [("ddp", "few"), ("fsdp", "few"), ("fsdp_four", "few")]
PROFILED += [("ddp", "many"), ("fsdp", "many")]
PHASES = ("forward", "backward", "optimizer")
#: PyTorch 2.13 and later have new names
all_gather = getattr(dist, "all_gather_single", dist.all_gather_into_tensor)
reduce_scatter = getattr(dist, "reduce_scatter_single", dist.reduce_scatter_tensor)

Span = tuple[float, float]  # start and end, in microseconds


def merged(spans: list[Span], gap: float = 0.0) -> list[Span]:
    """Spans of time in which at least one of these runs; small gaps are closed."""
    whole: list[Span] = []
    for start, end in sorted(spans):
        if whole and start <= whole[-1][1] + gap:
            whole[-1] = (whole[-1][0], max(end, whole[-1][1]))
        else:
            whole.append((start, end))
    return whole


def total_ms(spans: list[Span]) -> float:
    """Milliseconds in which at least one of these runs."""
    return sum(end - start for start, end in merged(spans)) / 1e3


def common(some: list[Span], others: list[Span]) -> list[Span]:
    """Spans of time in which at least one of these and one of the others runs."""
    shared, others = [], merged(others)
    for start, end in merged(some):
        for begin, stop in others:
            if max(start, begin) < min(end, stop):
                shared.append((max(start, begin), min(end, stop)))
    return shared


def gaps(spans: list[Span]) -> list[Span]:
    """Spans of time between the first of these and the last in which none runs."""
    whole = merged(spans)
    return [(one[1], other[0]) for one, other in pairwise(whole)]


def inside(spans: list[Span], ranges: list[Span]) -> list[Span]:
    """Those spans that begin within one of the ranges."""
    return [s for s in spans if any(start <= s[0] < end for start, end in ranges)]


def issued(model: nn.Module, rows: torch.Tensor, adam: torch.optim.Optimizer) -> dict:
    """Milliseconds until each phase of a step returned: the CPU's, for the GPU is late.

    `whole` is until the GPU had finished.
    """
    dist.barrier()
    start = perf_counter()
    adam.zero_grad()
    loss = model(rows).float().square().mean()
    forward = perf_counter()
    loss.backward()
    backward = perf_counter()
    adam.step()
    stepped = perf_counter()
    wait_for()
    ends = [start, forward, backward, stepped]
    pairs = zip(PHASES, ends, ends[1:], strict=False)
    seconds = {phase: end - begin for phase, begin, end in pairs}
    seconds["whole"] = perf_counter() - start
    return {phase: 1e3 * each for phase, each in seconds.items()}


def spans_of(
    events: list[Any], named: Callable[[str], bool], on_gpu: bool
) -> list[Span]:
    """Start and end of these events, of the GPU's or of the CPU's."""
    return [
        (event.time_range.start, event.time_range.end)
        for event in events
        if is_on_gpu(event) == on_gpu and named(event.name)
    ]


def kernels_of(events: list[Any]) -> dict[str, list[Span]]:
    """Spans of NCCL's kernels, and of all other kernels and copies."""
    events = [e for e in events if is_on_gpu(e) and not e.is_user_annotation]
    return {
        "nccl": spans_of(events, lambda n: "nccl" in n.lower(), True),
        "kernels": spans_of(events, lambda n: "nccl" not in n.lower(), True),
    }


def gpu_steps(
    work: Callable[[], object], trials: int = 5
) -> list[dict[str, list[Span]]]:
    """`kernels_of` some steps, which all ranks begin together.

    The profiler records only the GPU, so that it hardly slows the CPU. The first
    profile also starts the profiler, and is left out. Without a GPU they are empty.
    """
    kind, steps = torch.profiler.ProfilerActivity, []
    recorded_there = [kind.CUDA if torch.cuda.is_available() else kind.CPU]
    for _ in range(1 + trials):
        with torch.profiler.profile(
            activities=recorded_there, acc_events=True
        ) as profiler:
            dist.barrier()
            work()
            wait_for()
        steps.append(kernels_of(list(profiler.events())))
    return steps[1:]


def of_last_rank(steps: list[dict[str, list[Span]]]) -> list[dict[str, list[Span]]]:
    """Of each step the spans of the rank whose NCCL kernels take least time.

    It comes last to most exchanges, so its kernels wait least for the other ranks.
    """
    every: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(every, steps)
    ranks = zip(*every, strict=True)
    return [min(step, key=lambda each: total_ms(each["nccl"])) for step in ranks]


def gpu_account(step: dict[str, list[Span]]) -> dict[str, float]:
    """Milliseconds of a step on the GPU: kernels + exposed + idle = span.

    exposed: NCCL runs alone; launches: how many kernels and copies ran.
    """
    on_gpu = step["kernels"] + step["nccl"]
    busy, kernels = total_ms(on_gpu), total_ms(step["kernels"])
    idle = total_ms(gaps(on_gpu))
    return {
        "span": busy + idle,
        "kernels": kernels,
        "nccl": total_ms(step["nccl"]),
        "exposed": busy - kernels,
        "idle": idle,
        "launches": float(len(on_gpu)),
        "nccl_kernels": float(len(step["nccl"])),
    }


def is_operator(name: str) -> bool:
    """Whether a CPU event is a call of CUDA, or an operator: C++, not Python."""
    return name.startswith(
        ("cu", "aten::", "c10d::", "fsdp::", "nccl:", "record_param")
    )


def profiled_steps(
    work: Callable[[], object], trials: int = 5
) -> list[dict[str, list[Span]]]:
    """Spans of each of some steps, by what ran: on the CPU, and on the GPU.

    The profiler makes what the CPU does longer; what the GPU does it leaves as it is.
    """
    with torch.profiler.profile(acc_events=True) as profiler:
        for i in range(trials):
            dist.barrier()
            with torch.profiler.record_function(f"trial {i}"):
                work()
                wait_for()
    events, steps = list(profiler.events()), []
    for i in range(trials):
        named = f"trial {i}"
        start, end = spans_of(events, lambda name, n=named: name == n, False)[0]
        of_step = [e for e in events if start <= e.time_range.start < end]
        of_cpu = {
            "hooks": spans_of(of_step, lambda n: n.startswith("FSDP::"), False),
            "optimizer": spans_of(of_step, lambda n: "Optimizer.step" in n, False),
            "calls": spans_of(of_step, lambda n: n.startswith("cu"), False),
            "operators": spans_of(of_step, is_operator, False),
            "step": [(start, end)],
        }
        steps.append(of_cpu | kernels_of(of_step))
    return steps


def cpu_account(step: dict[str, list[Span]]) -> dict[str, float]:
    """Milliseconds of a profiled step on the CPU, and in which of them the GPU is idle.

    operators: calls of CUDA and PyTorch's operators; the rest of hooks is Python, or
    C++ that is no operator. calls: CUDA's own part, launches above all.
    """
    hooks, optimizer = merged(step["hooks"]), merged(step["optimizer"])
    idle = gaps(step["kernels"] + step["nccl"])
    return {
        "step": total_ms(step["step"]),
        "hooks": total_ms(hooks),
        "hooks_operators": total_ms(common(step["operators"], hooks)),
        "hooks_calls": total_ms(inside(step["calls"], hooks)),
        "optimizer": total_ms(optimizer),
        "optimizer_calls": total_ms(inside(step["calls"], optimizer)),
        "idle": total_ms(idle),
        "idle_in_hooks": total_ms(common(idle, hooks)),
        "idle_in_optimizer": total_ms(common(idle, optimizer)),
    }


def timeline(step: dict[str, list[Span]]) -> list[list[Any]]:
    """Rows [lane, start_us, duration_us, name] of a step; what is close is one row."""
    lanes = {"hooks": "CPU: FSDP's hooks", "optimizer": "CPU: optimizer"}
    lanes |= {"kernels": "GPU: compute, copies", "nccl": "GPU: NCCL"}
    first, rows = step["step"][0][0], []
    for kind, lane in lanes.items():
        for start, end in merged(step[kind], gap=20.0):
            rows.append([lane, start - first, end - start, kind])
    return rows


def wire(model: nn.Module, group: dist.ProcessGroup) -> dict[str, Callable[[], object]]:
    """What one block has to exchange, without anything else: gathered, and scattered.

    Each call does it for all blocks.
    """
    first = next(model.parameters())
    block = sum(p.numel() for p in model.parameters()) // LAYERS
    part = torch.zeros(block // group.size(), device=first.device)
    whole = torch.zeros(part.numel() * group.size(), device=first.device)

    def gather() -> None:
        for _ in range(LAYERS):
            all_gather(whole, part, group=group)

    def scatter() -> None:
        for _ in range(LAYERS):
            reduce_scatter(part, whole, group=group)

    return {"gather": gather, "scatter": scatter}


def by_name(trials: list[dict[str, float]]) -> dict[str, dict]:
    """Medians, and all trials, of each quantity."""
    each = {name: [trial[name] for trial in trials] for name in trials[0]}
    medians = {name: median(ms) for name, ms in each.items()}
    return {"ms": medians, "ms_trials": each}


def main() -> dict:
    device, group = meet()
    rank, ranks = group.rank(), group.size()
    mesh = DeviceMesh.from_group(group, device.type)
    torch.set_float32_matmul_precision("high")  # TF32
    models = {"ddp": new_model(device)}
    exchange = take_turns(wire(models["ddp"], group), trials=7, clock=slowest_rank)
    models["ddp"] = DistributedDataParallel(
        models["ddp"], process_group=group, gradient_as_bucket_view=True
    )
    for name, blocks in BLOCKS.items():
        models[name] = sharded(new_model(device), mesh, blocks)
    adams = {}
    for name, model in models.items():
        adams[name] = torch.optim.Adam(model.parameters(), lr=1e-5, fused=True)
    rows = {}
    for size, count in ROWS.items():
        tokens = SHORT if size == "tiny" else TOKENS
        rows[size] = torch.randn(count, tokens, WIDTH, device=device)
    cpu_trials = {name: [] for name in models}
    for trial in range(13):
        for name, model in models.items():
            times = issued(model, rows["tiny"], adams[name])
            if trial >= 2:
                cpu_trials[name].append(times)
    groups = {name: -(-LAYERS // blocks) for name, blocks in BLOCKS.items()}
    result = {"ranks": ranks, "layers": LAYERS, "groups": groups, "cpu": {}}
    result["wire"] = recorded(exchange)
    for name, trials in cpu_trials.items():
        result["cpu"][name] = by_name(trials)
    by_groups = {}  # milliseconds of the CPU for each group more, by phase
    for phase in PHASES:
        medians = [result["cpu"][name]["ms"][phase] for name in groups]
        by_groups[phase] = linear_regression(list(groups.values()), medians).slope
    result["ms_a_group"] = by_groups
    result |= {"gpu": {}, "profile": {}, "timelines": {}}
    for name, size in PROFILED:

        def work(name=name, size=size) -> None:
            issued(models[name], rows[size], adams[name])

        on_gpu = [gpu_account(step) for step in of_last_rank(gpu_steps(work))]
        result["gpu"][f"{name}_{size}"] = by_name(on_gpu)
        steps = of_last_rank(profiled_steps(work))
        on_cpu = [cpu_account(step) for step in steps]
        result["profile"][f"{name}_{size}"] = by_name(on_cpu)
        if size == "few" and name in ("ddp", "fsdp"):
            result["timelines"][name] = timeline(steps[-1])
    works = {}
    for name, size in PROFILED:
        works[f"{name}_{size}"] = partial(issued, models[name], rows[size], adams[name])
    result |= recorded(take_turns(works, warmup=1, trials=11, clock=slowest_rank))
    if rank == 0:
        for name, each in result["cpu"].items():
            print(f"{name:<10}", *(f"{p} {ms:.1f} ms" for p, ms in each["ms"].items()))
        print("a group:", *(f"{phase} {ms:.2f} ms" for phase, ms in by_groups.items()))
        for name, each in result["gpu"].items():
            ms = each["ms"] | {"hooks": result["profile"][name]["ms"]["hooks"]}
            shown = ("span", "kernels", "exposed", "idle", "hooks")
            print(f"{name:<14}", *(f"{part} {ms[part]:.1f}" for part in shown))
    dist.destroy_process_group()
    return result


def derive(results: dict) -> dict:
    """What Python takes of the kernels' time, what idle time is beside, where it lies."""
    if "gpu" not in results:
        return {}
    cpu, fsdp, ddp = (
        results["cpu"],
        results["gpu"]["fsdp_few"]["ms"],
        results["gpu"]["ddp_few"]["ms"],
    )
    profile = results["profile"]["fsdp_few"]["ms"]
    return {
        "python_takes": {
            "fsdp": cpu["fsdp"]["ms"]["whole"] / fsdp["kernels"],
            "ddp": cpu["ddp"]["ms"]["whole"] / ddp["kernels"],
        },
        "idle_beside": {
            "ddp": fsdp["idle"] / ddp["idle"],
            "exposed": fsdp["idle"] / fsdp["exposed"],
        },
        "kernels_off": abs(fsdp["kernels"] / ddp["kernels"] - 1),
        "idle_in": {
            part: profile[f"idle_in_{part}"] / profile["idle"]
            for part in ("hooks", "optimizer")
        },
        "hooks_in": {
            part: profile[f"hooks_{part}"] / profile["hooks"]
            for part in ("calls", "operators")
        },
    }


def plot(results: dict, ceilings: dict):
    titles = {"ddp": "DDP", "fsdp": "FSDP, a group for each block"}
    panels = {}
    for name, title in titles.items():
        rows = results["timelines"][name]
        panels[title] = [
            [lane, start / 1e3, us / 1e3, call] for lane, start, us, call in rows
        ]
    return timelines(panels, "ms")


if __name__ == "__main__":
    main()
