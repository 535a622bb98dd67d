# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11"]
# [tool.overlap]
# gpus = [1]
# ///
"""`z = x * y + 2`, `print(z)`: what the CPU and the GPU do meanwhile, and where one waits."""

import torch
from torch.profiler import profile, record_function

STEPS = {"multiply": "x * y", "add": "+ 2", "text": "str(z)"}  # print(z) prints str(z)


def traced(x: torch.Tensor, y: torch.Tensor) -> tuple[str, list]:
    """Text of x * y + 2, launched while the GPU is busy, and the events that the profiler saw."""
    with profile(acc_events=True) as profiler:
        torch.cuda._sleep(4_000_000)  # about two milliseconds of earlier work
        with record_function(STEPS["multiply"]):
            product = x * y
        with record_function(STEPS["add"]):
            z = product + 2
        with record_function(STEPS["text"]):
            text = str(z)
    return text, profiler.events()


def lane(event) -> str | None:
    """Where an event belongs. The profiler repeats each step as a span on the GPU: left out."""
    if event.name in STEPS.values():
        return "CPU" if event.device_type.name == "CPU" else None
    if event.device_type.name == "CUDA":
        return "GPU"
    return "CPU waits" if event.name == "cudaStreamSynchronize" else None


def timeline(events: list) -> list[list]:
    """[lane, start_us, duration_us, name] of steps, waits and kernels, in order."""
    seen = sorted(filter(lane, events), key=lambda event: event.time_range.start)
    kernels = iter(("earlier work", STEPS["multiply"], STEPS["add"]))  # a stream keeps their order
    rows = []
    for event in seen:
        start = event.time_range.start - seen[0].time_range.start
        name = next(kernels, "for str") if lane(event) == "GPU" else event.name
        rows.append([lane(event), round(start, 1), round(event.time_range.elapsed_us(), 1), name])
    return rows


def span(rows: list[list], where: str, name: str) -> dict[str, float]:
    """Start and end in µs of the first event of this lane and name."""
    start, length = next(row[1:3] for row in rows if row[0] == where and row[3] == name)
    return {"start": start, "end": round(start + length, 1)}


def main() -> dict:
    x, y = torch.ones(1, 2, device="cuda"), torch.ones(1, 2, device="cuda")
    traced(x, y)  # the first profile of a process also starts the profiler
    text, events = traced(x, y)
    rows = timeline(events)
    cpu = {key: span(rows, "CPU", step) for key, step in STEPS.items()}
    gpu = {key: span(rows, "GPU", STEPS[key]) for key in ("multiply", "add")}
    gpu["earlier"] = span(rows, "GPU", "earlier work")
    waits = [row for row in rows if row[0] == "CPU waits"]
    for where, spans in {"CPU": cpu, "GPU": gpu}.items():
        for key, at in sorted(spans.items(), key=lambda item: item[1]["start"]):
            print(f"{where} {key:<9}{at['start']:8.1f} to {at['end']:8.1f} µs")
    print(f"{text}, after {len(waits)} waits, the first of them {waits[0][2]:.0f} µs")
    extra = sum(row[3] == "for str" for row in rows)
    first = span(rows, "CPU waits", "cudaStreamSynchronize")
    result = {"text": text, "events": rows, "cpu": cpu, "gpu": gpu, "first_wait": first}
    return result | {"waits": len(waits), "gpu_events_for_text": extra}


def plot(results: dict, ceilings: dict):
    import matplotlib.pyplot as plt

    figure, ax = plt.subplots()
    lanes = [("CPU", step) for step in STEPS.values()] + [("CPU waits", ""), ("GPU", "")]
    for row, (where, step) in enumerate(lanes):
        spans = [e[1:3] for e in results["events"] if e[0] == where and step in e[3]]
        ax.broken_barh(spans, (row - 0.3, 0.6), edgecolor="face", label=f"{where} {step}")
    names = [f"{where}: {step}" if step else where for where, step in lanes]
    ax.set(xlabel="µs", yticks=range(len(lanes)), yticklabels=names, ylim=(len(lanes), -1))
    return figure


if __name__ == "__main__":
    main()
