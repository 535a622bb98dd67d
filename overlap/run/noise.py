"""How busy a host is: what other work on it does to the CPU shows in every launch, and only there."""

import contextlib
import os
import time
from collections.abc import Callable
from statistics import median

#: A run was disturbed if a small torch call before or after it cost so many times the least seen, or a
#: hypervisor took this share of CPU time.
FACTOR, STEAL = 1.5, 0.02
#: Seconds that all waiting for a busy host, and all repeating of what it disturbed, may take.
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


class Watch:
    """Tells calm runs from disturbed ones; `probe` gives the microseconds of one small call."""

    def __init__(self, probe: Callable[[], float], patience_s: float | None = None):
        self._probe = probe
        self._patience_s = PATIENCE_S if patience_s is None else patience_s
        self._least_us = min(probe() for _ in range(5))

    def around(self, run: Callable[[], dict]) -> tuple[dict, dict]:
        """What `run` gave, and how busy the host was: the field `noise` of a recording.

        It waits for a calm host, and repeats a run that was disturbed once, as long as there is patience.
        """
        recording, noise, seconds = self._once(run)
        if noise["disturbed"] and seconds < self._patience_s:
            self._patience_s -= seconds
            second, second_noise, _ = self._once(run)
            if not second_noise["disturbed"]:
                return second, second_noise
        return recording, noise

    def _once(self, run: Callable[[], dict]) -> tuple[dict, dict, float]:
        before_us = self._calm_us()
        load = _load()
        stolen, total = _jiffies()
        started = time.monotonic()
        recording = run()
        after_us = self._look_us()
        seconds = time.monotonic() - started
        now_stolen, now_total = _jiffies()
        stolen, total = now_stolen - stolen, now_total - total
        steal = round(stolen / total, 4) if total else None
        is_disturbed = max(before_us, after_us) > FACTOR * self._least_us or (steal or 0) > STEAL
        noise = {
            "dispatch_us": [before_us, after_us],
            "least_us": self._least_us,
            "steal": steal,
            "load": load,
        }
        return recording, noise | {"disturbed": is_disturbed}, seconds

    def _calm_us(self) -> float:
        cost_us = self._look_us()
        while cost_us > FACTOR * self._least_us and self._patience_s > 0:
            time.sleep(0.5)
            self._patience_s -= 0.5
            cost_us = self._look_us()
        return cost_us

    def _look_us(self) -> float:
        cost_us = self._probe()
        self._least_us = min(cost_us, self._least_us)
        return cost_us


def _load() -> float | None:
    with contextlib.suppress(OSError):
        return round(os.getloadavg()[0], 2)
    return None


def _jiffies() -> tuple[int, int]:
    """CPU time that a hypervisor took, and all CPU time; nothing where the system does not tell."""
    with contextlib.suppress(OSError, ValueError, IndexError), open("/proc/stat", encoding="utf-8") as file:
        times = [int(word) for word in file.readline().split()[1:9]]
        return times[7], sum(times)
    return 0, 0
