"""How busy a host is: what other work on it does to the CPU shows in every launch, and only there."""

import contextlib
import os
import time
from collections.abc import Callable
from statistics import median

#: A run was disturbed if a small torch call before or after it cost this many times the least seen, or this share of CPU time was stolen.
FACTOR, STEAL = 1.5, 0.02
#: Seconds that all waiting for a busy host, and all repeating of what it disturbed, may take.
PATIENCE_S = 60.0


def dispatch_us(batches: int = 15, calls: int = 400) -> float:
    """Microseconds of one PyTorch call on one element on the CPU, the median of batches: what a launch costs before the driver has it."""
    import torch

    one, times = torch.zeros(1), []
    for _ in range(batches):
        started = time.perf_counter()
        for _ in range(calls):
            one.add_(1)
        times.append((time.perf_counter() - started) / calls)
    return round(1e6 * median(times), 3)


class Watch:
    """Tells calm runs from disturbed ones; `probe` gives the microseconds of one small call, `patience_s` is `PATIENCE_S` or less."""

    def __init__(self, probe: Callable[[], float], patience_s: float | None = None):
        self._probe, self._patience = probe, PATIENCE_S if patience_s is None else patience_s
        self._least = min(probe() for _ in range(5))

    def around(self, run: Callable[[], dict]) -> tuple[dict, dict]:
        """What `run` gave, and how busy the host was: `dispatch_us` before and after, `least_us`, `steal`, `load`, `disturbed`.

        It waits for a calm host, and repeats a run that was disturbed once, as long as there is patience.
        """
        given, noise, seconds = self._once(run)
        if noise["disturbed"] and seconds < self._patience:
            self._patience -= seconds
            again = self._once(run)
            given, noise, _ = again if not again[1]["disturbed"] else (given, noise, seconds)
        return given, noise

    def _once(self, run: Callable[[], dict]) -> tuple[dict, dict, float]:
        before, load, then, started = self._calm(), _load(), _jiffies(), time.monotonic()
        given, after, seconds = run(), self._look(), time.monotonic() - started
        steal, total = (now - was for now, was in zip(_jiffies(), then, strict=True))
        share = round(steal / total, 4) if total else None
        noise = {"dispatch_us": [before, after], "least_us": self._least, "steal": share, "load": load}
        disturbed = max(before, after) > FACTOR * self._least or (share or 0) > STEAL
        return given, noise | {"disturbed": disturbed}, seconds

    def _calm(self) -> float:
        while (cost := self._look()) > FACTOR * self._least and self._patience > 0:
            time.sleep(0.5)
            self._patience -= 0.5
        return cost

    def _look(self) -> float:
        cost = self._probe()
        self._least = min(cost, self._least)
        return cost


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
