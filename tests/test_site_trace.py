"""Traces: which call launched which kernel, where a recording tells it, and as arrows of the file."""

import json
from itertools import pairwise

import pytest
from conftest import ROOT

from overlap.site.trace import chrome_trace, launches, timelines

LAUNCH, COPY, GRAPH = "cudaLaunchKernel", "cudaMemcpyAsync", "cudaGraphLaunch"


def test_a_stream_works_in_the_order_of_its_launches():
    events = [
        ["CPU", 0, 2, LAUNCH],
        ["CPU", 3, 2, COPY],
        ["CPU", 6, 2, LAUNCH],
        ["stream 7", 5, 10, "multiply"],
        ["stream 7", 15, 5, "Memcpy DtoH"],
        ["stream 7", 20, 5, "add"],
    ]
    assert launches(events) == {3: 0, 4: 1, 5: 2}
    assert launches(events[:2] + events[3:]) == {3: 1}  # a launch is missing: of kernels nothing is said


def test_one_launch_of_a_graph_launched_what_the_others_did_not():
    calls = [["CPU", 0, 2, LAUNCH], ["CPU", 3, 2, GRAPH], ["CPU", 6, 2, LAUNCH]]
    kernels = [["stream 7", start, 1, "kernel"] for start in (10, 12, 14, 16)]
    assert launches(calls + kernels) == {3: 0, 4: 1, 5: 1, 6: 2}
    several = [["stream 7", 10, 1, "kernel"], ["stream 13", 11, 1, "kernel"]]
    assert launches([calls[1], *several]) == {1: 0, 2: 0}  # on whatever streams its kernels run


@pytest.mark.parametrize(
    "events",
    [
        [["CPU", 0, 1, LAUNCH], ["CPU", 2, 1, LAUNCH], ["stream 7", 5, 1, "k"], ["stream 13", 6, 1, "k"]],
        [["CPU", 0, 4, LAUNCH], ["CPU 2", 2, 1, LAUNCH], ["stream 7", 5, 1, "k"], ["stream 7", 6, 1, "k"]],
        [["CPU", 5, 1, LAUNCH], ["stream 7", 2, 1, "k"]],
        [["CPU", 0, 1, LAUNCH], ["stream 7", 2, 1, "k"], ["stream 7", 4, 1, "k"]],
        [["CPU", 0, 1, LAUNCH]],
    ],
    ids=["two streams", "two threads at once", "before its launch", "more kernels", "no kernel"],
)
def test_what_is_not_certain_is_not_said(events):
    assert launches(events) == {}


def test_a_number_of_events_is_no_timeline():
    event = ["CPU", 0, 2.5, LAUNCH]
    assert timelines({"events": 324}) == {} and timelines({"timelines": 3}) == {}
    assert timelines({"timelines": {"count": 2, "mixed": [event, 1], "all": [event]}}) == {"all": [event]}


def test_a_trace_has_an_arrow_from_each_launch():
    events = [["CPU", 0, 2, LAUNCH], ["CPU", 4, 2, "cudaDeviceSynchronize"], ["stream 7", 3, 9, "k"]]
    rows = json.loads(chrome_trace({"events": events}))["traceEvents"]
    arrows = [(row["ph"], row["tid"], row["ts"], row["id"]) for row in rows if row["ph"] in "sf"]
    assert arrows == [("s", 0, 0, "0-0"), ("f", 1, 3, "0-0")]
    numbers = {row["name"]: row.get("args") for row in rows if row["ph"] == "X"}
    assert numbers == {LAUNCH: {"launch": 0}, "cudaDeviceSynchronize": None, "k": {"launch": 0}}


def test_a_count_of_events_is_no_timeline():
    assert timelines({"events": 12}) == timelines({"timelines": 3}) == {}
    assert timelines({"timelines": {"a": [["CPU", 0, 2, LAUNCH]], "b": 5}}) == {"a": [["CPU", 0, 2, LAUNCH]]}


def test_recordings_of_one_stream_tell_all_their_launches():
    """Each kernel, copy and fill of a stream that one thread feeds has its call, in their order."""
    seen = 0
    for name in ("streams/one_stream_is_serial", "asynchrony/dependency_trace", "timing/lanes"):
        for file in sorted(ROOT.glob(f"docs/recordings/h*/{name}.json")):
            for events in timelines(json.loads(file.read_text())["result"]).values():
                pairs = launches(events)
                work = [i for i, event in enumerate(events) if not event[0].startswith("CPU")]
                assert sorted(pairs) == work
                calls = [events[pairs[i]][1] for i in sorted(work, key=lambda i: events[i][1])]
                assert all(a < b for a, b in pairwise(calls))
                seen += 1
    assert seen >= 6
