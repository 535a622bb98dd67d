# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [1]
# take = ["held_by", "at_peak", "free_memory"]
# ///
"""Take memory snapshots of a training loop, and read who allocated what it holds."""

import gc
import pickle
import tempfile
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from snippets.pictures import Axis, Note, Panel, Picture, Spans
from snippets.timing.benchmark import wall_clock
from snippets.timing.take_turns import recorded, take_turns

LAYERS, WIDTH, ROWS, STEPS, CALLS = 4, 2048, 5000, 3, 1000
NO_FRAME = "no Python frame"
OLDER = "older than the history"
DEEPER = 30  # frames below a tensor, as in a model of many modules


def owner(frames: list[dict[str, Any]]) -> str:
    """The innermost function of a stack that is not in a file of PyTorch's own.

    `NO_FRAME` for what autograd's threads allocate, or what is older than the recording.
    A file in any folder named `torch` counts as PyTorch's, so do not name yours so.
    """
    for frame in frames:
        file = frame["filename"]
        if file.endswith(".py") and "/torch/" not in file:
            return frame["name"]
    return NO_FRAME


def blocks_of(snapshot: dict[str, Any], device: int = 0) -> list[dict[str, Any]]:
    """Every block that PyTorch has on a GPU, by address: its bytes and its owner.

    `asked` is what the tensor needs of the block. The owner is "" if the block is free.
    """
    rows = []
    for segment in sorted(snapshot["segments"], key=lambda segment: segment["address"]):
        if segment.get("device", device) != device:
            continue
        for block in segment["blocks"]:
            row = {"segment": segment["address"], "bytes": block["size"]}
            row |= {"asked": block["requested_size"], "owner": owner(block["frames"])}
            if block["state"] == "inactive":
                row |= {"asked": 0, "owner": ""}
            elif block["state"] != "active_allocated":
                row["owner"] = "dropped, but another stream still uses it"
            rows.append(row)
    return rows


def summed(pairs: Iterable[tuple[str, int]]) -> dict[str, int]:
    """Bytes by owner, the largest first."""
    total: dict[str, int] = {}
    for name, size in pairs:
        total[name] = total.get(name, 0) + size
    return dict(sorted(total.items(), key=lambda item: -item[1]))


def held_by(snapshot: dict[str, Any], device: int = 0) -> dict[str, int]:
    """Bytes that are held now, by the function that allocated them.

    `snapshot` is what `torch.cuda.memory._snapshot()` gave, or `pickle.load` of a file
    that `_dump_snapshot` wrote. Load files that you trust only: a pickle can run code.
    The function is the innermost one whose file has no `/torch/` in its path: on
    Windows, whose paths have backslashes, that is one of PyTorch's own, and in an
    environment such as /opt/torch no function of an installed package is named.
    {} for a GPU that is not there; TypeError for the name of a file.
    """
    blocks = blocks_of(snapshot, device)
    return summed(
        (block["owner"], block["bytes"]) for block in blocks if block["owner"]
    )


def older_blocks(snapshot: dict[str, Any], device: int = 0) -> dict[int, int]:
    """Bytes asked for, by address, that were held before the first recorded event."""
    allocated: set[int] = set()
    older: dict[int, int] = {}
    for event in snapshot["device_traces"][device]:
        if event["action"] == "alloc":
            allocated.add(event["addr"])
        elif event["action"] == "free_completed" and event["addr"] not in allocated:
            older[event["addr"]] = event["size"]
    for segment in snapshot["segments"]:
        address = segment["address"]
        for block in segment["blocks"]:
            held = block["state"] != "inactive"
            if segment["device"] == device and held and address not in allocated:
                older[address] = block["requested_size"]
            address += block["size"]
    return older


def at_peak(snapshot: dict[str, Any], device: int = 0) -> dict[str, int]:
    """Bytes asked for, by function, at the moment when most was held.

    Replays the recorded events: the newest `max_entries` of them. What was held before
    the oldest of these is there as `OLDER`, and a peak before it is not seen: the sum
    is then less than `memory_stats()["requested_bytes.all.peak"]`. {} where nothing
    was recorded, IndexError for a GPU that is not there. `snapshot` is what `held_by`
    takes, not the file's path; functions are named as there.
    """
    events = snapshot["device_traces"][device]
    if not events:
        return {}
    older = older_blocks(snapshot, device)
    sizes = dict(older)
    held = most = sum(sizes.values())
    end = 0
    for i, event in enumerate(events):
        if event["action"] == "alloc":
            sizes[event["addr"]] = event["size"]
            held += event["size"]
        elif event["action"] == "free_completed":
            held -= sizes.pop(event["addr"], 0)
        if held > most:
            most, end = held, i + 1

    live = {address: (OLDER, size) for address, size in older.items()}
    for event in events[:end]:
        if event["action"] == "alloc":
            name = owner(event.get("frames", []))
            live[event["addr"]] = name, event["size"]
        elif event["action"] == "free_completed":
            live.pop(event["addr"], None)
    return summed(live.values())


def free_memory(snapshot: dict[str, Any], device: int = 0) -> dict[str, float]:
    """Bytes that PyTorch keeps and no tensor holds, and the largest piece of them.

    `snapshot` is `torch.cuda.memory._snapshot()`, or what `pickle.load` reads of its
    file. `in_pieces` is the share that lies outside the largest: 0 if there is one piece.
    `ends` are the bytes of held blocks that their tensors do not need.
    """
    blocks = blocks_of(snapshot, device)
    free = [block["bytes"] for block in blocks if not block["owner"]]
    ends = sum(block["bytes"] - block["asked"] for block in blocks if block["owner"])
    found = {"free": sum(free), "largest": max(free, default=0), "ends": ends}
    in_pieces = 1 - found["largest"] / found["free"] if free else 0.0
    return found | {"in_pieces": in_pieces}


def make_model() -> nn.Sequential:
    layers = []
    for _ in range(LAYERS):
        layers += [nn.Linear(WIDTH, WIDTH, bias=False, device="cuda"), nn.ReLU()]
    return nn.Sequential(*layers)


def load() -> Tensor:
    return torch.randn(ROWS, WIDTH, device="cuda")


def forward(net: nn.Sequential, x: Tensor) -> Tensor:
    return net(x)


def score(y: Tensor) -> Tensor:
    return y.square().mean()


def probabilities(y: Tensor) -> Tensor:
    """What somebody wants to look at later, and never does: the planted leak."""
    return y.detach().softmax(1)


def backward(loss: Tensor) -> None:
    loss.backward()


def update(optimizer: torch.optim.Optimizer) -> None:
    optimizer.step()


def train(steps: int, after_step: Callable[[nn.Sequential], None]) -> None:
    """Train, and call `after_step` with the model while all gradients are there."""
    net = make_model()
    optimizer = torch.optim.Adam(net.parameters())
    kept = []
    for _ in range(steps):
        optimizer.zero_grad()
        x = load()
        y = forward(net, x)
        kept.append(probabilities(y))
        loss = score(y)
        backward(loss)
        update(optimizer)
        after_step(net)


def record(**how) -> None:
    """Begin to record; frames of Python alone, since C++ frames take long to name."""
    torch.cuda.memory._record_memory_history(**{"stacks": "python"} | how)


def stop() -> None:
    torch.cuda.memory._record_memory_history(enabled=None)


def watched(path: Path) -> dict:
    """Train with a recording: who holds memory after each step, and at the peak.

    The last snapshot is written to `path`.
    """
    gc.collect()  # a model and its optimizer hold each other
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_stats()
    steps, gradient_bytes = [], 0

    def after_step(net: nn.Sequential) -> None:
        nonlocal gradient_bytes
        steps.append(held_by(torch.cuda.memory._snapshot()))
        gradient_bytes = sum(weight.grad.nbytes for weight in net.parameters())
        if len(steps) == STEPS:
            torch.cuda.memory._dump_snapshot(str(path))

    record()
    train(STEPS, after_step)
    stop()
    after = torch.cuda.memory_stats()
    asked = after["requested_bytes.all.peak"] - before["requested_bytes.all.current"]
    held = after["allocated_bytes.all.peak"] - before["allocated_bytes.all.current"]
    result = {"steps": steps, "gradient_bytes": gradient_bytes}
    result |= {"held_before": before["allocated_bytes.all.current"]}
    result |= {"asked_before": before["requested_bytes.all.current"]}
    return result | {"peak_asked": asked, "peak_held": held}


def allocate(deeper: int = 0) -> None:
    """Allocate a tensor and drop it, `deeper` Python calls further down."""
    if deeper:
        allocate(deeper - 1)
    else:
        torch.empty(512, device="cuda")


def frames_recorded(deeper: int) -> int:
    """How many Python frames the recording has of one allocation."""
    record()
    wall_clock(partial(allocate, deeper))
    events = torch.cuda.memory._snapshot()["device_traces"][0]
    stop()
    return max(len(event.get("frames", [])) for event in events)


def clock(how: dict | None, deeper: int) -> float:
    """Seconds of `allocate`, with or without a recording that has begun before."""
    if how is not None:
        torch.cuda.memory._record_memory_history(max_entries=10_000, **how)
    seconds = wall_clock(partial(allocate, deeper), CALLS)
    stop()
    return seconds


def cost() -> dict:
    """Microseconds to allocate and drop a tensor, with and without a recording."""
    modes = {"not recorded": None, "python": {"stacks": "python"}, "all": {}}
    works = {}
    for name, how in modes.items():
        works[name] = partial(clock, how, 0)
        works[f"{name}, deeper"] = partial(clock, how, DEEPER)
    times = take_turns(works, trials=9, clock=lambda work, _: work())
    frames = {"near": frames_recorded(0), "deeper": frames_recorded(DEEPER)}
    return recorded(times, "us") | {"frames": frames}


def main() -> dict:
    train(1, lambda net: None)  # libraries take their workspaces
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "snapshot.pickle"
        result = watched(path)
        result["file_bytes"] = path.stat().st_size
        snapshot = pickle.loads(path.read_bytes())
        start = time.perf_counter()
        held = held_by(snapshot)
        result["reading_s"] = time.perf_counter() - start
        # the same, but the backward pass runs in the thread that asked for it
        with torch.autograd.set_multithreading_enabled(False):
            result["named"] = watched(Path(folder) / "named.pickle")
    result |= {"held": held, "at_peak": at_peak(snapshot)}
    result["free"] = free_memory(snapshot)
    result["events"] = len(snapshot["device_traces"][0])
    result["blocks"] = drawn(snapshot)
    for name, size in held.items():
        first, last = (
            step.get(name, 0) >> 20 for step in result["steps"][:: STEPS - 1]
        )
        grown = f"{last - first:+5} since step 1"
        print(f"{name:<16}{size >> 20:6} MiB held,{grown},", end=" ")
        print(f"{result['at_peak'].get(name, 0) >> 20:6} at the peak")
    free = result["free"]
    print("{:.0f} MiB free, the largest piece".format(free["free"] / 2**20), end=" ")
    print("{:.0f}".format(free["largest"] / 2**20))
    result |= cost()
    for name, us in result["us"].items():
        print(f"allocate and drop, {name:<21}{us:7.2f} µs")
    return result


def drawn(snapshot: dict[str, Any]) -> list[list[Any]]:
    """[number of the segment, MiB, owner] of each block, by address."""
    rows, numbers = [], {}
    for block in blocks_of(snapshot):
        number = numbers.setdefault(block["segment"], len(numbers))
        rows.append([number, block["bytes"] / 2**20, block["owner"]])
    return rows


def derive(results: dict) -> dict:
    """What grows from step to step, what has no frame, the peak, and what it costs."""
    first, before, now = results["steps"]
    leak = [step["probabilities"] for step in (first, before, now)]
    no_frame, named = "no Python frame", results["named"]
    at_peak, held, us = results["at_peak"], results["held"], results["us"]
    asked_before, gradient_bytes = results["asked_before"], results["gradient_bytes"]
    plain, deeper = us["not recorded"], us["not recorded, deeper"]
    return {
        "changed": [name for name in now if now[name] != before[name]],
        "leaked_bytes": [leak[1] - leak[0], leak[2] - leak[1]],
        "no_frame_adds": {
            "plain": held[no_frame] - results["held_before"],
            "named": named["steps"][2][no_frame] - named["held_before"],
        },
        "peak": {
            "not_found": sum(at_peak.values()) - results["peak_asked"] - asked_before,
            "older": at_peak["older than the history"] - asked_before,
            "loads_without_frame": at_peak[no_frame] / at_peak["load"],
            "beside_gradients": at_peak[no_frame] % gradient_bytes,
            "of_held": results["peak_asked"]
            / (sum(held.values()) - results["held_before"]),
        },
        "recording": {
            "takes": us["python"] / plain,
            "adds_deeper": (us["python, deeper"] - deeper) / (us["python"] - plain),
            "all_takes_deeper": us["all, deeper"] / deeper,
            "all_of_python": us["all, deeper"] / us["python, deeper"],
        },
    }


def plot(results: dict, ceilings: dict):
    large = [name for name, held in results["held"].items() if held >= 2**20]
    large.sort(key=lambda name: -results["held"][name])
    labels = {name: name for name in large} | {"": "free"}
    labels |= {"probabilities": "probabilities: the leak"}
    colors = {"probabilities": 2, "": "ceiling"}
    marks = []
    for owner_of in [name for name in labels if name in large or not name]:
        spans, end = [], 0
        for _, mib, name in results["blocks"]:  # those of other names are too small
            if name == owner_of:
                spans.append((end, mib))
                end += mib
        row, light = labels[owner_of], not owner_of
        color = colors.get(owner_of, 1)
        marks.append(Spans(row, spans, "", color, light, apart=True))
        marks.append(Note(end, row, f"{end:,.0f}", dx=3))
    return Picture([Panel(marks, Axis("MiB after three steps", low=0))])


if __name__ == "__main__":
    main()
