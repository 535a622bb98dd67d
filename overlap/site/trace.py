"""Timelines as trace files that Perfetto and chrome://tracing open."""

import json


def timelines(result: dict) -> dict[str, list]:
    """Lists of [lane, start_us, duration_us, name] in a result: its `events`, or by name its `timelines`."""
    named = {"events": result["events"]} if "events" in result else result.get("timelines")
    if not isinstance(named, dict):
        return {}
    return {name: events for name, events in named.items() if all(map(_is_event, events))}


def _is_event(event) -> bool:
    kinds = (str, (int, float), (int, float), str)
    return isinstance(event, list) and len(event) == 4 and all(map(isinstance, event, kinds))


def chrome_trace(result: dict) -> str:
    """Trace Event Format (complete events, times in µs): a process per timeline, a thread per lane."""
    rows = []
    for process, (title, events) in enumerate(timelines(result).items()):
        names = {"ph": "M", "pid": process}
        rows.append(names | {"name": "process_name", "args": {"name": title}})
        lanes = sorted({lane for lane, *_ in events})
        for thread, lane in enumerate(lanes):
            rows.append(names | {"tid": thread, "name": "thread_name", "args": {"name": lane}})
        for lane, start, duration, name in events:
            place = {"ph": "X", "pid": process, "tid": lanes.index(lane)}
            rows.append(place | {"ts": start, "dur": duration, "name": name})
    return json.dumps({"traceEvents": rows, "displayTimeUnit": "ns"})
