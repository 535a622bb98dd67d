# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [0, 1]
# ///
"""Time work honestly: every device waited for, warm-up, trials, median and spread."""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from statistics import median, quantiles

import torch

from snippets.timing.wait_for import wait_for


@dataclass(frozen=True)
class Timing:
    """Seconds of one call in each trial, in the order they ran."""

    trials: list[float]

    @property
    def median(self) -> float:
        """Median of the trials, in seconds."""
        return median(self.trials)

    @property
    def spread(self) -> float:
        """Interquartile range of the trials, in seconds; 0 for a single trial."""
        if len(self.trials) == 1:
            return 0.0
        lower, _, upper = quantiles(self.trials, n=4, method="inclusive")
        return upper - lower

    def ms(self) -> list[float]:
        """The trials in milliseconds."""
        return [1e3 * seconds for seconds in self.trials]

    def us(self) -> list[float]:
        """The trials in microseconds."""
        return [1e6 * seconds for seconds in self.trials]


def wall_clock(
    work: Callable[[], object],
    calls: int = 1,
    devices: Iterable[int] | None = None,
) -> float:
    """Seconds of one of `calls` calls; the devices are idle before and after them.

    `devices` is read twice: give a list, not an iterator.
    """
    wait_for(devices)
    start = time.perf_counter()
    for _ in range(calls):
        work()
    wait_for(devices)
    return (time.perf_counter() - start) / calls


def measure(
    work: Callable[[], object],
    devices: Iterable[int] | None = None,
    warmup: int = 2,
    trials: int = 7,
    calls: int = 1,
) -> Timing:
    """Call `work` `warmup` times, then time it `trials` times, `calls` calls each.

    `devices`: GPUs to wait for, by number; all that are in use by default, none if
    empty. A CPU has no number: it has finished whatever has returned.
    """
    devices = None if devices is None else list(devices)
    for _ in range(warmup):
        work()
    return Timing([wall_clock(work, calls, devices) for _ in range(trials)])


def main() -> dict:
    device, n = ("cuda", 4096) if torch.cuda.is_available() else ("cpu", 512)
    x = torch.randn(n, n, device=device)

    def ten_products() -> None:
        for _ in range(10):
            torch.mm(x, x)

    first = measure(ten_products, warmup=0, trials=1)
    torch.testing.assert_close((x @ x)[0], x[0] @ x, rtol=1e-3, atol=1e-2)
    unwaited = measure(ten_products, devices=[], trials=15)  # waits for nobody
    waited = measure(ten_products, trials=15)
    print(f"first    {1e3 * first.median:9.3f} ms")
    print(f"unwaited {1e3 * unwaited.median:9.3f} ms")
    print(f"waited   {1e3 * waited.median:9.3f} ms, spread {1e3 * waited.spread:.3f}")
    result = {"n": n, "first_ms": 1e3 * first.median}
    result |= {
        "unwaited_ms": 1e3 * unwaited.median,
        "unwaited_ms_trials": unwaited.ms(),
    }
    result |= {"median_ms": 1e3 * waited.median, "median_ms_trials": waited.ms()}
    tflop_s = 20 * n**3 / waited.median / 1e12
    return result | {"spread_ms": 1e3 * waited.spread, "tflop_s": tflop_s}


if __name__ == "__main__":
    main()
