# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11"]
# [tool.overlap]
# gpus = [0, 1]
# ///
"""Time work honestly: a monotonic clock, every device waited for, warm-up, trials, median and spread."""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from statistics import median, quantiles

import torch


def wait_for(devices: Iterable[int] | None = None) -> None:
    """Block until these CUDA devices (default: all visible ones, once CUDA is in use) have finished all their work."""
    visible = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()
    for device in visible if devices is None else devices:
        torch.cuda.synchronize(device)


@dataclass(frozen=True)
class Timing:
    """Seconds of each trial, in the order they ran."""

    trials: list[float]

    @property
    def median(self) -> float:
        """Median of the trials, in seconds."""
        return median(self.trials)

    @property
    def spread(self) -> float:
        """Interquartile range of the trials, in seconds; 0 for a single trial."""
        lower, _, upper = quantiles(self.trials, n=4, method="inclusive") if len(self.trials) > 1 else (0.0, 0.0, 0.0)
        return upper - lower

    def ms(self) -> list[float]:
        """The trials in milliseconds."""
        return [1e3 * seconds for seconds in self.trials]


def measure(work: Callable, devices: Iterable[int] | None = None, warmup: int = 2, trials: int = 7) -> Timing:
    """Run `work` `warmup` times untimed, then `trials` times, waiting for the devices before each clock reading."""
    devices = None if devices is None else list(devices)
    for _ in range(warmup):
        work()
    seconds = []
    for _ in range(trials):
        wait_for(devices)
        start = time.perf_counter()
        work()
        wait_for(devices)
        seconds.append(time.perf_counter() - start)
    return Timing(seconds)


class Benchmark:
    """Drop-in for D2L's `with Benchmark('label'):`, one trial, but waiting for the devices before both readings."""

    def __init__(self, label: str, devices: Iterable[int] | None = None):
        self.label, self.devices, self.seconds = label, None if devices is None else list(devices), float("nan")

    def __enter__(self) -> "Benchmark":
        wait_for(self.devices)
        self.start = time.perf_counter()
        return self

    def __exit__(self, *exc_info) -> None:
        wait_for(self.devices)
        self.seconds = time.perf_counter() - self.start
        print(f"{self.label}: {1e3 * self.seconds:.3f} ms")


def main() -> dict:
    device, n = ("cuda", 4096) if torch.cuda.is_available() else ("cpu", 512)
    x = torch.randn(n, n, device=device)

    def ten_products() -> None:
        for _ in range(10):
            torch.mm(x, x)

    first = measure(ten_products, warmup=0, trials=1)
    torch.testing.assert_close(torch.mm(x, x)[0], x[0] @ x, rtol=1e-3, atol=1e-2)
    unwaited = measure(ten_products, devices=(), trials=15)  # an empty list: nobody is waited for
    waited = measure(ten_products, trials=15)
    for label, timing in {"first time, waited for": first, "nobody waited for": unwaited, "waited for": waited}.items():
        print(f"{label:24}{1e3 * timing.median:9.3f} ms, interquartile range {1e3 * timing.spread:.3f} ms")
    result = {"n": n, "device": device, "first_ms": 1e3 * first.median, "tflop_s": 20 * n**3 / waited.median / 1e12}
    result |= {"unwaited_ms": 1e3 * unwaited.median, "unwaited_ms_trials": unwaited.ms()}
    result |= {"median_ms": 1e3 * waited.median, "ms_trials": waited.ms(), "spread_ms": 1e3 * waited.spread}
    return result | {"clocks": {name: vars(time.get_clock_info(name)) for name in ("time", "perf_counter")}}


if __name__ == "__main__":
    main()
