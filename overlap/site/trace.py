"""Recorded timelines: what launched what, and as trace files that Perfetto and chrome://tracing open."""

import json
from itertools import pairwise

#: What calls of the CUDA API begin with that give the GPU something to do.
_CALLS = {
    "cudaLaunch": "kernel",
    "cuLaunch": "kernel",
    "cudaGraphLaunch": "kernel",
    "cudaMemcpy": "copy",
    "cuMemcpy": "copy",
    "cudaMemset": "fill",
    "cuMemset": "fill",
}
_WORK = {"Memcpy": "copy", "Memset": "fill"}


def timelines(result: dict) -> dict[str, list]:
    """Lists of [lane, start_us, duration_us, name] in a result: its `events`, or by name its `timelines`."""
    named = {"events": result["events"]} if "events" in result else result.get("timelines")
    if not isinstance(named, dict):
        return {}
    lists = {name: events for name, events in named.items() if isinstance(events, list)}
    return {name: events for name, events in lists.items() if all(map(_is_event, events))}


def _is_event(event) -> bool:
    kinds = (str, (int, float), (int, float), str)
    return isinstance(event, list) and len(event) == 4 and all(map(isinstance, event, kinds))


def launches(events: list[list]) -> dict[int, int]:
    """Which call launched which work of the GPU: indexes of calls by those of kernels, copies and fills.

    Recordings hold no ids of launches. But a stream works in the order in which it was given work, so the
    third launch launched the third kernel: if all kernels are of one stream, there are as many launches, no
    two of them at once, and no kernel starts before its launch. Copies and fills likewise. One launch of a
    graph has launched what the other launches did not. Elsewhere nothing is said.
    """
    order = sorted(range(len(events)), key=lambda i: events[i][1])
    pairs = {}
    for kind in ("kernel", "copy", "fill"):
        calls = [i for i in order if _is_cpu(events[i]) and _kind(events[i][3], _CALLS, "") == kind]
        work = [i for i in order if not _is_cpu(events[i]) and _kind(events[i][3], _WORK, "kernel") == kind]
        calls = _spread([events[i] for i in calls], calls, len(work))
        if _in_order([events[i] for i in calls], [events[i] for i in work]):
            pairs |= dict(zip(work, calls, strict=True))
    return pairs


def _is_cpu(event: list) -> bool:
    return event[0].startswith("CPU")


def _kind(name: str, kinds: dict[str, str], other: str) -> str:
    return next((kind for start, kind in kinds.items() if name.startswith(start)), other)


def _spread(calls: list[list], indexes: list[int], work: int) -> list[int]:
    """The indexes with that of the one launch of a graph repeated, so that there are as many as works."""
    graphs = [place for place, call in enumerate(calls) if "Graph" in call[3]]
    missing = work - len(calls)
    if len(graphs) != 1 or missing < 0:
        return indexes
    place = graphs[0]
    return indexes[:place] + [indexes[place]] * (missing + 1) + indexes[place + 1 :]


def _in_order(calls: list[list], work: list[list]) -> bool:
    """Whether the work can only have been launched by these calls, one after the other."""
    together = any(a[1] + a[2] > b[1] for a, b in pairwise(calls) if a is not b)
    early = any(call[1] > done[1] for call, done in zip(calls, work, strict=False))
    one_stream = len({lane for lane, *_ in work}) == 1
    one_launch = len({start for _, start, *_ in calls}) == 1
    return len(calls) == len(work) and not together and not early and (one_stream or one_launch)


def chrome_trace(result: dict) -> str:
    """Trace Event Format (complete events, times in µs): a process per timeline, a thread per lane.

    A call and what it launched have the same number as `launch`, and an arrow between them.
    """
    rows = []
    for process, (title, events) in enumerate(timelines(result).items()):
        names = {"ph": "M", "pid": process}
        rows.append(names | {"name": "process_name", "args": {"name": title}})
        lanes = sorted({lane for lane, *_ in events})
        for thread, lane in enumerate(lanes):
            rows.append(names | {"tid": thread, "name": "thread_name", "args": {"name": lane}})
        pairs = launches(events)
        called = set(pairs.values())
        for number, (lane, start, duration, name) in enumerate(events):
            place = {"pid": process, "tid": lanes.index(lane)}
            row = {"ph": "X", "ts": start, "dur": duration, "name": name}
            launch = pairs.get(number, number if number in called else None)
            if launch is not None:
                row["args"] = {"launch": launch}
            rows.append(place | row)
        arrows = {call: work for work, call in reversed(pairs.items())}  # a graph's goes to its first kernel
        for call, work in arrows.items():
            for end, number in {"s": call, "f": work}.items():
                lane, start, *_ = events[number]
                place = {"pid": process, "tid": lanes.index(lane), "ts": start}
                arrow = {"ph": end, "bp": "e", "id": f"{process}-{call}", "cat": "launch", "name": "launch"}
                rows.append(place | arrow)
    return json.dumps({"traceEvents": rows, "displayTimeUnit": "ns"})
