"""How busy a host is: the shares of the CPU's time that other processes and other virtual machines took.

A look at a small call before and after a run does not tell more: docs/timing.md says why.
"""

import contextlib
import os
import time
from collections.abc import Callable
from statistics import median

#: A run was disturbed if a hypervisor or other processes took these shares of CPU time.
STEAL, OTHERS = 0.02, 0.2


def dispatch_us(batches: int = 15, calls: int = 400) -> float:
    """Microseconds of one PyTorch call on the CPU: what a launch costs before the driver has it."""
    import torch

    one = torch.zeros(1)
    times = []
    for _ in range(batches):
        started = time.perf_counter()
        for _ in range(calls):
            one.add_(1)
        times.append((time.perf_counter() - started) / calls)
    return round(1e6 * median(times), 3)


#: Runs a snippet: gives its recording, and the seconds of CPU time that it took.
Run = Callable[[], tuple[dict, float]]


def during(run: Run) -> tuple[dict, dict]:
    """What `run` gave, and how busy the host was meanwhile: the field `noise` of a recording."""
    load = round(os.getloadavg()[0], 2)
    idle_before, stolen_before, total_before = jiffies()
    recording, cpu_s = run()
    idle, stolen, total = jiffies()
    noise = {"steal": None, "others": None, "load": load}
    ticks = total - total_before
    if ticks:
        idle_share = (idle - idle_before) / ticks
        own_share = cpu_s * os.sysconf("SC_CLK_TCK") / ticks
        noise["steal"] = steal = round((stolen - stolen_before) / ticks, 4)
        noise["others"] = max(0.0, round(1 - idle_share - steal - own_share, 4))
    return recording, noise


def is_disturbed(noise: dict, cores: int) -> bool:
    """Whether other work took so much of the CPU in a run with this `noise` that its times may be longer.

    A system without /proc/stat tells its load alone.
    """
    if noise.get("steal") is None:
        return (noise.get("load") or 0.0) > cores
    return noise["steal"] > STEAL or (noise.get("others") or 0.0) > OTHERS


def jiffies() -> tuple[int, int, int]:
    """CPU time that nobody used, that a hypervisor took, and in all; zeros where the system does not tell."""
    with contextlib.suppress(OSError), open("/proc/stat", encoding="utf-8") as file:
        times = [int(word) for word in file.readline().split()[1:9]]
        return times[3] + times[4], times[7], sum(times)
    return 0, 0, 0
