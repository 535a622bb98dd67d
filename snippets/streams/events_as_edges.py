# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [1]
# ///
"""Draw the arrows of a diamond of four nodes in three ways; time the critical path."""

import time
from collections.abc import Callable
from functools import partial

import torch

from snippets.pictures import Note, Rule, timelines
from snippets.timing.lanes import lanes
from snippets.timing.take_turns import recorded, take_turns
from snippets.timing.wait_for import wait_for

# by node: million cycles for which it spins, and the two values it adds then
NODES = {"a": (2, "x", "x"), "b": (4, "a", "a"), "c": (8, "a", "a"), "d": (2, "b", "c")}
EDGES = {
    "event": lambda before, after: after.wait_event(before.record_event()),
    "wait_stream": lambda before, after: after.wait_stream(before),
    "synchronize": lambda before, after: before.synchronize(),
}


def node(name: str, stream: torch.cuda.Stream, values: dict) -> None:
    """Spin, then add two values into the one of this name."""
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


def until_returned(work: Callable[[], object], calls: int = 1) -> float:
    """Seconds until a call of `work` is back, each on an idle GPU; no call follows."""
    seconds = 0.0
    for _ in range(calls):
        wait_for()
        start = time.perf_counter()
        work()
        seconds += time.perf_counter() - start
    return seconds / calls


def main() -> dict:
    values = {name: torch.ones(1000, device="cuda") for name in ("x", *NODES)}
    main, left, right = (
        torch.cuda.current_stream(),
        torch.cuda.Stream(),
        torch.cuda.Stream(),
    )
    ways = {n: partial(diamond, e, main, left, right, values) for n, e in EDGES.items()}
    for name, way in ways.items():
        for each in NODES:
            values[each].zero_()
        way()
        assert values["d"].eq(8 * values["x"]).all(), name
    ways["chain"] = partial(diamond, EDGES["event"], main, main, main, values)
    nodes = {name: partial(node, name, main, values) for name in NODES}
    timings = take_turns(nodes | ways, trials=7)
    calls = {f"{name}_returned": ways[name] for name in ("event", "synchronize")}
    timings |= take_turns(calls, trials=7, clock=until_returned)
    results = recorded(timings, "ms")
    for name, ms in results["ms"].items():
        print(f"{name:<20}{ms:7.2f} ms")
    traced = ("chain", "event", "synchronize")
    return results | {"timelines": {name: lanes(ways[name]) for name in traced}}


def derive(results: dict) -> dict:
    """The longer of two ways to order streams, in shares of the chain without a branch."""
    ms = results["ms"]
    return {"of_chain": max(ms["event"], ms["wait_stream"]) / (ms["chain"] - ms["b"])}


def plot(results: dict, ceilings: dict):
    titles = {"chain": "one stream", "event": "events", "synchronize": "synchronize"}
    panels, ms = {}, results["ms"]
    for way, title in titles.items():
        events = results["timelines"][way]
        main = next(lane for lane, *_ in events if lane != "CPU")
        lanes = sorted({event[0] for event in events} - {"CPU", main})
        lanes = {main: "main"} | {lane: f"side {i}" for i, lane in enumerate(lanes, 1)}
        panels[title] = []
        for lane, start, us, name in events:
            lane = "CPU waits" if "Synchronize" in name else lanes.get(lane, lane)
            panels[title].append([lane, start, us, name])
    picture = timelines(panels, "µs (profiled)")
    least = 1e3 * (ms["chain"] - ms["b"])
    for panel, events in zip(picture.panels, panels.values(), strict=True):
        first, *middle, last = (event for event in events if "spin" in event[3])
        b, c = sorted(middle, key=lambda event: event[2])  # b spins for a shorter time
        for name, (lane, start, us, _) in zip("abcd", (first, b, c, last), strict=True):
            note = Note(start + us / 2, lane, name, "center", color="paper")
            panel.marks.append(note)
        panel.marks.append(Rule("x", least, "one stream without b"))
    return picture


if __name__ == "__main__":
    main()
