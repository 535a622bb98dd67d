# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11"]
# [tool.overlap]
# gpus = [1]
# ///
"""Draw the arrows of a diamond of four nodes in five ways, and see which of them hold."""

from functools import partial

import torch

from snippets.timing.benchmark import measure

RUNS = 10
# million cycles for which a node spins, and the two values it adds then
NODES = {"a": (2, "x", "x"), "b": (4, "a", "a"), "c": (8, "a", "a"), "d": (2, "b", "c")}
EDGES = {
    "event": lambda before, after: after.wait_event(before.record_event()),
    "wait_stream": lambda before, after: after.wait_stream(before),
    "synchronize": lambda before, after: before.synchronize(),
    "unrecorded_event": lambda before, after: after.wait_event(torch.cuda.Event()),
    "nothing": lambda before, after: None,
}


def node(name: str, stream: torch.cuda.Stream, values: dict) -> None:
    """Spin, then add two values (1000,) into the one of this name."""
    cycles, one, other = NODES[name]
    with torch.cuda.stream(stream):
        torch.cuda._sleep(cycles * 10**6)
        torch.add(values[one], values[other], out=values[name])


def diamond(edge, main, left, right, values: dict) -> None:
    """Node a, then b and c, then d: an edge is an arrow from one stream to another."""
    node("a", main, values)
    for side, name in ((left, "b"), (right, "c")):
        edge(main, side)
        node(name, side, values)
    for side in (left, right):
        edge(side, main)
    node("d", main, values)


def is_right(work, values: dict) -> bool:
    """Whether d is 8 x after a run that began with zeros in a, b, c and d."""
    for name in NODES:
        values[name].zero_()
    measure(work, warmup=0, trials=1)  # waits for the GPU before and after
    return torch.equal(values["d"], 8 * values["x"])


def timeline(work) -> list[list]:
    """[lane, start_us, duration_us, name] of each launch, in lane CPU, and of each node."""
    with torch.profiler.profile(acc_events=True) as profiler:
        measure(work, warmup=0, trials=1)
    found = [e for e in profiler.events() if "Launch" in e.name or "spin_kernel" in e.name]
    lanes = ["CPU" if "Launch" in e.name else f"stream {e.device_resource_id:>3}" for e in found]
    rows, zero = zip(lanes, found, strict=True), min(e.time_range.start for e in found)
    return [[at, e.time_range.start - zero, e.time_range.elapsed_us(), e.name] for at, e in rows]


def main() -> dict:
    values = {name: torch.ones(1000, device="cuda") for name in ("x", *NODES)}
    streams = torch.cuda.current_stream(), torch.cuda.Stream(), torch.cuda.Stream()
    works = {name: partial(diamond, edge, *streams, values) for name, edge in EDGES.items()}
    works["chain"] = partial(diamond, EDGES["nothing"], *streams[:1] * 3, values)
    wrong = {name: RUNS - sum(is_right(works[name], values) for _ in range(RUNS)) for name in works}
    timings = {name: measure(partial(node, name, streams[0], values)) for name in NODES}
    timings |= {name: measure(work) for name, work in works.items()}
    timings |= {f"{name}_returned": measure(works[name], devices=()) for name in EDGES}
    ms = {name: 1e3 * timing.median for name, timing in timings.items()}
    for name in works:
        print(f"{name:<17}{ms[name]:7.2f} ms, wrong in {wrong[name]:2} of {RUNS} runs")
    timeline(works["event"])  # the first profile of a process also starts the profiler
    timelines = {name: timeline(works[name]) for name in ("chain", "event", "synchronize")}
    critical_ms = ms["a"] + max(ms["b"], ms["c"]) + ms["d"]
    results = {"runs": RUNS, "wrong": wrong, "unrecorded_is_done": torch.cuda.Event().query()}
    results |= {"ms": ms, "critical_ms": critical_ms, "timelines": timelines}
    return results | {"ms_trials": {name: timing.ms() for name, timing in timings.items()}}


def plot(results: dict, ceilings: dict):
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(3, sharex=True, layout="constrained")
    for ax, (name, events) in zip(axes, sorted(results["timelines"].items()), strict=True):
        lanes = sorted({lane for lane, *_ in events})
        for row, lane in enumerate(lanes):
            spans = [(start / 1e3, us / 1e3) for at, start, us, _ in events if at == lane]
            ax.broken_barh(spans, (row - 0.4, 0.8), label=lane, edgecolor="face")
        ax.axvline(results["critical_ms"], color="gray", linestyle="--", label="critical path")
        ax.set(title=name, yticks=range(len(lanes)), yticklabels=lanes, ylim=(len(lanes), -1))
    axes[-1].set_xlabel("ms; dashed: the critical path")
    return figure


if __name__ == "__main__":
    main()
