# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [0, 1]
# ///
"""One line is asynchronous, three on one stream are serial, on three streams parallel."""

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from snippets.pictures import Panel, Picture, Spans
from snippets.timing.benchmark import wall_clock
from snippets.timing.lanes import lanes
from snippets.timing.take_turns import recorded, take_turns

BLOCKS = 1  # for softmax PyTorch takes one thread block for each long row


def one_line(a: Tensor) -> Tensor:
    return torch.softmax(a, dim=0)


def serial(a: Tensor, b: Tensor, c: Tensor) -> tuple[Tensor, ...]:
    """Three lines on one stream, which is a queue."""
    x = torch.softmax(a, dim=0)
    y = torch.softmax(b, dim=0)
    z = torch.softmax(c, dim=0)
    return x, y, z


def parallel(
    a: Tensor, b: Tensor, c: Tensor, streams: list[torch.cuda.Stream]
) -> tuple[Tensor, ...]:
    """The same lines on three streams, which need not wait for each other."""
    main_stream = torch.cuda.current_stream()
    for stream in streams:
        stream.wait_stream(main_stream)  # fork: the inputs were made on this stream
    with torch.cuda.stream(streams[0]):
        x = torch.softmax(a, dim=0)
    with torch.cuda.stream(streams[1]):
        y = torch.softmax(b, dim=0)
    with torch.cuda.stream(streams[2]):
        z = torch.softmax(c, dim=0)
    for stream in streams:
        main_stream.wait_stream(stream)  # join: the results are used on this stream
    for result in (x, y, z):
        result.record_stream(main_stream)  # and are kept until it is done with them
    return x, y, z


def timeline(work: Callable[[], object]) -> list[list[Any]]:
    """What ran where and when; on the CPU it runs from the call to its return."""
    if torch.cuda.is_available():
        return lanes(work)
    work()  # the second time counts, as in lanes
    start = time.perf_counter()
    work()
    return [["CPU", 0.0, 1e6 * (time.perf_counter() - start), "softmax"]]


def main() -> dict:
    device, numbers = ("cuda", 2**22) if torch.cuda.is_available() else ("cpu", 2**16)
    a, b, c = torch.randn(3, numbers, device=device)
    ways = {"one_line": partial(one_line, a), "serial": partial(serial, a, b, c)}
    if device == "cuda":
        streams = [torch.cuda.Stream() for _ in range(3)]
        ways["parallel"] = partial(parallel, a, b, c, streams)
        torch.testing.assert_close(ways["parallel"](), ways["serial"](), rtol=0, atol=0)
    timelines = {way: timeline(work) for way, work in ways.items()}
    ways.setdefault("parallel", ways["serial"])  # a CPU has no streams
    timings = take_turns(ways, trials=15, calls=20)
    unwaited = partial(wall_clock, devices=[])  # waits for nobody
    timings |= take_turns({"returned": ways["serial"]}, trials=15, clock=unwaited)
    results = recorded(timings, "ms")
    for way, ms in results["ms"].items():
        print(f"{way:<9}{ms:8.3f} ms")
    return results | {"blocks": BLOCKS, "lines": 3, "timelines": timelines}


def plot(results: dict, ceilings: dict):
    colors = {"calls": "python", "line 1": 1, "line 2": 7, "line 3": 6}
    titles = {"one_line": "one line", "serial": "three lines, one stream"}
    titles |= {"parallel": "three lines, three streams"}
    if len(results["timelines"]) == 2:
        titles = {"one_line": "one line", "serial": "three lines"}
    panels = []
    for way, title in titles.items():
        events = results["timelines"][way]
        kernels = sum(event[0] != "CPU" for event in events)
        spans, seen = {}, 0
        for lane, start, us, name in events:
            what = "calls"
            if lane != "CPU":
                what = f"line {1 + 3 * seen // max(kernels, 3)}"
                lane = f"GPU, {lane}"
                seen += 1
            elif "Synchronize" in name:
                what = "CPU waits"
            spans.setdefault((lane, what), {})[start / 1e3, us / 1e3] = name
        marks = []
        for (lane, what), names in sorted(spans.items()):
            parts, names = list(names), list(names.values())
            marks.append(Spans(lane, parts, what, colors.get(what), names=names))
        panels.append(Panel(marks, title=title))
    panels[-1].x.label = "ms"  # of one scale for all
    return Picture(panels)


if __name__ == "__main__":
    main()
