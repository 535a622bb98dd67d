# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [0, 1]
# take = ["traced", "events_of"]
# ///
"""A first trace of a training loop: two steps of many, with your own labels."""

import gzip
import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile, record_function, schedule

from snippets.pictures import Axis, Panel, Picture, Spans
from snippets.timing.benchmark import measure

BATCHES, ROWS, WIDTH, STEPS = 12, 128, 512, 2
LABELS = ("load", "forward", "backward", "optimizer")


def traced(
    train: Callable[[profile], object], path: Path | str, steps: int = 2, skip: int = 3
) -> None:
    """Run `train(profiler)`, and write a trace of so many of its steps to `path`.

    `train` calls `profiler.step()` at the end of each step. The first `skip` steps, one
    at least (else AssertionError), are not in the trace: the profiler is off, and warms
    up in the last. Behind the traced steps it is off again, and `train` goes on to its
    own end: let it take `skip + steps` steps, if you want the trace alone.

    The file is written behind the last traced step, and overwrites what is there; a
    path that ends in ".gz" is compressed. If `train` ends early, or raises, the trace
    has fewer steps; RuntimeError if it returns and there are none. FileNotFoundError,
    before `train` is called, if there is no folder for the file; `path` is no folder. Of several ranks give
    each a path of its own, or let one alone trace. Stacks, shapes and memory are left
    out: they make each step slower.
    """
    if not Path(path).parent.is_dir():
        raise FileNotFoundError(f"{path}: there is no folder for the trace")
    activities = [ProfilerActivity.CPU]
    if torch.cuda.is_available():
        activities.append(ProfilerActivity.CUDA)
    plan = schedule(wait=skip - 1, warmup=1, active=steps, repeat=1)

    def write(profiler: profile) -> None:
        if profiler.step_num > skip:
            profiler.export_chrome_trace(str(path))

    with profile(
        activities=activities, schedule=plan, on_trace_ready=write
    ) as profiler:
        train(profiler)
    if profiler.step_num <= skip:
        raise RuntimeError(f"train ended before step {skip + 1}: there is no trace")


def events_of(path: Path | str) -> list[dict[str, Any]]:
    """What a trace has bars for, in order of time; the file may be compressed (".gz").

    A trace as PyTorch's profiler writes it: an object with a list of "traceEvents".
    Of each: its name, its category, its lane, and start and duration in µs. KeyError
    for a bar without "pid", "tid", "ts" or "dur", as other programs may write it.
    """
    opened = gzip.open if str(path).endswith(".gz") else open
    with opened(path, "rt", encoding="utf-8") as file:
        trace = json.load(file)
    rows = []
    for event in trace["traceEvents"]:
        category = event.get("cat", "")
        if event.get("ph") != "X" or category == "Trace":
            continue
        row: dict[str, Any] = {"name": event["name"], "category": category}
        row |= {"lane": f"{event['pid']} {event['tid']}"}
        rows.append(row | {"start": event["ts"], "us": event["dur"]})
    return sorted(rows, key=lambda row: row["start"])


def load(i: int) -> Tensor:
    """A batch that numbers of Python are put into one by one: too slow, on purpose."""
    rows = []
    for row in range(ROWS):
        rows.append([(i + row + column) % 7 for column in range(WIDTH)])
    return torch.tensor(rows, dtype=torch.float32)


def loop(profiler: profile | None = None) -> None:
    """A training loop that says what it is doing, so that a trace can show it."""
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    layers = nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH)
    net = nn.Sequential(*layers).to(device)
    optimizer = torch.optim.Adam(net.parameters())
    for i in range(BATCHES):
        with record_function("load"):
            batch = load(i).to(device)
        with record_function("forward"):
            loss = net(batch).square().mean()
        with record_function("backward"):
            loss.backward()
        with record_function("optimizer"):
            optimizer.step()
            optimizer.zero_grad()
        if profiler:
            profiler.step()


def outermost(events: list[dict]) -> list[dict]:
    """Operators that no other operator of their lane has called."""
    found, ends = [], {}
    for event in events:
        end = event["start"] + event["us"]
        if event["category"] == "cpu_op" and event["start"] >= ends.get(
            event["lane"], 0
        ):
            ends[event["lane"]] = end
            found.append(event)
    return found


def of_step(events: list[dict]) -> dict[str, dict]:
    """Of each label in the last step: its time, and how much of it operators take."""
    operators, labels = outermost(events), {}
    for event in events:
        if event["category"] != "user_annotation" or event["name"] not in LABELS:
            continue
        end, inside = event["start"] + event["us"], []
        for operator in operators:
            if event["start"] <= operator["start"] < end:
                inside.append(operator["us"])
        row = {"ms": event["us"] / 1e3, "operators": len(inside)}
        labels[event["name"]] = row | {"share": sum(inside) / event["us"]}
    return labels


def drawn(events: list[dict]) -> list[list[Any]]:
    """[row, start_us, us] of labels, of operators and of the GPU's work."""
    kept = [event for event in events if event["name"] in LABELS]
    bars = [
        [e["name"], e["start"], e["us"]] for e in kept if "gpu" not in e["category"]
    ]
    bars += [["operators", e["start"], e["us"]] for e in outermost(events)]
    for event in events:
        if event["category"] in ("kernel", "gpu_memcpy", "gpu_memset"):
            bars.append(["GPU", event["start"], event["us"]])
    zero = events[0]["start"]
    return [[row, round(start - zero, 1), us] for row, start, us in bars]


def main() -> dict:
    os.environ.setdefault("KINETO_LOG_LEVEL", "6")  # 2.13 writes two lines of a trace
    assert load(3)[2, 4] == (3 + 2 + 4) % 7
    loop()  # libraries start
    plain = measure(loop, warmup=0, trials=5)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        traced(loop, path, STEPS)
        size, events = path.stat().st_size, events_of(path)
    steps = [e["us"] / 1e3 for e in events if e["name"].startswith("ProfilerStep")]
    labels = of_step(events)
    for name, row in labels.items():
        line = "{:10}{ms:7.2f} ms, of which {operators:3} operators take {share:4.0%}"
        print(line.format(name, **row))
    print(f"the trace: {STEPS} steps, {len(events)} events, {size / 1e3:.0f} kB")
    result = {"traced_steps": STEPS, "bytes": size, "count": len(events)}
    result |= {"labels": labels, "traced_ms": median(steps), "bars": drawn(events)}
    return result | {"step_ms": 1e3 * plain.median / BATCHES}


def derive(results: dict) -> dict:
    """How long the GPU worked in the traced steps."""
    return {"gpu_us": sum(us for lane, _, us in results["bars"] if lane == "GPU")}


def plot(results: dict, ceilings: dict):
    rows = [*LABELS, "operators"]
    if any(bar[0] == "GPU" for bar in results["bars"]):
        rows.append("GPU")
    colors = {"load": "data", "operators": "python"}
    marks = []
    for row in rows:
        bars = [bar for bar in results["bars"] if bar[0] == row]
        spans = [(start / 1e3, us / 1e3) for _, start, us in bars]
        marks.append(Spans(row, spans, row, colors.get(row)))
    return Picture([Panel(marks, Axis("ms"))])


if __name__ == "__main__":
    main()
