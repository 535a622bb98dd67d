# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy", "matplotlib"]
# [tool.overlap]
# gpus = [1]
# take = ["lanes"]
# take_on_cpu = ["lanes"]
# ///
"""See what the CPU and the GPU did when: a profile as lanes, one for each of them."""

from collections.abc import Callable
from itertools import count
from typing import Any

import torch

from snippets.pictures import timelines
from snippets.timing.wait_for import wait_for


def profiled(work: Callable[[], object]) -> list[Any]:
    """Events of the profiler while `work` runs, GPU work included, in order of time.

    It runs twice, and the second time counts.
    """
    for _ in range(2):  # the first profile of a process also starts the profiler
        with torch.profiler.profile(acc_events=True) as profiler:
            work()
            wait_for()
    return sorted(profiler.events(), key=lambda event: event.time_range.start)  # type: ignore


def lanes(work: Callable[[], object]) -> list[list[Any]]:
    """[lane, start_us, duration_us, name] of what `work` does; the first starts at 0.

    Give work that may run twice, such as two steps of a training: the rows are of the
    second call. What it raises goes through. Lane "CPU" has the calls of the CUDA API
    of the thread that called first, "CPU 2" those of a second thread; a lane such as
    "stream 7", or "GPU 1, stream 7" where several GPUs work, has its kernels, copies
    and fills. Names are cut at 60 characters. Without a GPU there are no rows.

    The last rows of the CPU are not of `work`: a "cudaDeviceSynchronize" for each GPU
    that this process uses, and one of the profiler. What other threads do on a GPU
    meanwhile has rows, too. Calls of CUDA are told by their names, which begin with
    "cu": an operator of your own whose namespace does so counts as one of them. Not
    within another profile: PyTorch has one at a time.
    """
    events = [e for e in profiled(work) if is_on_gpu(e) or e.name.startswith("cu")]
    events = [event for event in events if not event.is_user_annotation]
    threads, numbers = {}, count(1)
    for event in events:
        if not is_on_gpu(event) and event.thread not in threads:
            threads[event.thread] = next(numbers)
    several = len({event.device_index for event in events if is_on_gpu(event)}) > 1
    rows = []
    for event in events:
        if is_on_gpu(event):
            gpu = f"GPU {event.device_index}, " if several else ""
            lane = f"{gpu}stream {event.device_resource_id}"
        else:
            number = threads[event.thread]
            lane = "CPU" if number == 1 else f"CPU {number}"
        start = event.time_range.start - events[0].time_range.start
        rows.append([lane, start, event.time_range.elapsed_us(), event.name[:60]])
    return rows


def is_on_gpu(event: Any) -> bool:
    """Whether the profiler saw this on a GPU."""
    return event.device_type == torch.autograd.DeviceType.CUDA  # type: ignore


def draw_lanes(timelines: dict[str, list[list[Any]]]):
    """A matplotlib figure of lanes for your own notebook, a panel for each title, with the CPU on top."""
    import matplotlib.pyplot as plt

    names = {title: sorted({e[0] for e in rows}) for title, rows in timelines.items()}
    heights = [len(each) for each in names.values()]
    figure, axes = plt.subplots(len(names), height_ratios=heights, squeeze=False)
    for ax, (title, events) in zip(axes[:, 0], timelines.items(), strict=True):
        for row, lane in enumerate(names[title]):
            spans = [event[1:3] for event in events if event[0] == lane]
            ax.broken_barh(spans, (row - 0.4, 0.8), label=lane)
        ax.set_yticks(range(len(names[title])), names[title])
        ax.set(title=title, xlabel="µs", ylim=(len(names[title]) - 0.4, -0.6))
    return figure


def main() -> dict:
    x = torch.randn(2048, 2048, device="cuda")

    def work() -> None:
        y = torch.mm(x, x).relu()
        y.sum().item()

    events = lanes(work)
    for lane, start_us, duration_us, name in events:
        print(f"{start_us:9.1f} µs {lane:9} {duration_us:8.1f} µs  {name[:40]}")
    return {"events": events}


def plot(results: dict, ceilings: dict):
    events = []
    for lane, start, us, name in results["events"]:
        lane = "GPU" if lane != "CPU" else lane
        lane = "CPU waits" if "Synchronize" in name else lane
        events.append([lane, start, us, name])
    return timelines({"matmul, relu, sum, item": events})


if __name__ == "__main__":
    main()
