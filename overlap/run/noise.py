"""How busy a host is: what other work on it does to the CPU shows in every launch, and only there."""

import contextlib
import os
import time
from collections.abc import Callable
from statistics import median

#: A run was disturbed if a small torch call before or after it cost so many times the least seen, or a
#: hypervisor or other processes took these shares of CPU time.
FACTOR, STEAL, OTHERS = 1.5, 0.02, 0.2
#: Seconds that all waiting for a busy host may take.
PATIENCE_S = 60.0


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
    if total == total_before:  # a system without /proc/stat tells its load alone
        return recording, {"steal": None, "others": None, "load": load, "disturbed": load > os.cpu_count()}
    ticks = total - total_before
    steal = round((stolen - stolen_before) / ticks, 4)
    idle_share = (idle - idle_before) / ticks
    own_share = cpu_s * os.sysconf("SC_CLK_TCK") / ticks
    others = max(0.0, round(1 - idle_share - steal - own_share, 4))
    is_disturbed = steal > STEAL or others > OTHERS
    return recording, {"steal": steal, "others": others, "load": load, "disturbed": is_disturbed}


class Watch:
    """Waits for a calm host, and tells calm runs from disturbed ones; `probe` gives a `dispatch_us`."""

    def __init__(self, probe: Callable[[], float], patience_s: float):
        self._probe = probe
        self._patience_s = patience_s
        self._least_us = min(probe() for _ in range(5))

    def around(self, run: Run) -> tuple[dict, dict]:
        """What `during` gives, with what a small call cost before and after the run."""
        before_us = self._look_us()
        while before_us > FACTOR * self._least_us and self._patience_s > 0:
            time.sleep(0.5)
            self._patience_s -= 0.5
            before_us = self._look_us()
        recording, noise = during(run)
        after_us = self._look_us()
        noise |= {"dispatch_us": [before_us, after_us], "least_us": self._least_us}
        noise["disturbed"] |= max(before_us, after_us) > FACTOR * self._least_us
        return recording, noise

    def _look_us(self) -> float:
        cost_us = self._probe()
        self._least_us = min(cost_us, self._least_us)
        return cost_us


def jiffies() -> tuple[int, int, int]:
    """CPU time that nobody used, that a hypervisor took, and in all; zeros where the system does not tell."""
    with contextlib.suppress(OSError), open("/proc/stat", encoding="utf-8") as file:
        times = [int(word) for word in file.readline().split()[1:9]]
        return times[3] + times[4], times[7], sum(times)
    return 0, 0, 0
