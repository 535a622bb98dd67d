# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [1]
# ///
"""Kernels of known length, read from eight clocks: what does each clock include?"""

from functools import partial
from importlib.util import find_spec

import torch
from torch.utils.benchmark import Timer

from snippets.pictures import Axis, Dots, Panel, Picture, Rule
from snippets.timing.benchmark import wall_clock
from snippets.timing.kernel_time import gpu_clock
from snippets.timing.lanes import lanes
from snippets.timing.take_turns import recorded, take_turns
from snippets.timing.wait_for import wait_for

CYCLES = {"small": 1_000, "middle": 100_000, "large": 18_000_000}  # of the GPU's clock
CALLS = {"small": 20, "middle": 20, "large": 2}


def events(work, calls: int) -> float:
    """Seconds on the GPU's clock between two marks, before and after one call."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    for event in (start, end):
        event.record()  # the first time CUDA makes the event, which takes time, too
    wait_for()
    start.record()
    work()
    end.record()
    end.synchronize()  # only after the GPU has passed the second mark can it be read
    return start.elapsed_time(end) / 1e3


def timer(work, calls: int) -> float:
    return Timer("work()", globals={"work": work}).timeit(calls).median


def do_bench(work, calls: int) -> float:
    from triton import testing

    return testing.do_bench(work, warmup=1, rep=5, return_mode="median") / 1e3


def profiler(work, calls: int) -> float:
    """Seconds of the kernels of one call, as the profiler saw them."""

    def several() -> None:
        for _ in range(calls):
            work()

    kernels = [us for lane, _, us, _ in lanes(several) if lane.startswith("stream")]
    return sum(kernels) / calls / 1e6


CLOCKS = {  # name: (seconds of one call, what lies between the two readings)
    "profiler": (profiler, "the kernel"),
    "gpu_clock": (
        partial(gpu_clock, spin_cycles=1_000_000),
        "a full queue, per kernel",
    ),
    "do_bench": (do_bench, "two marks in a full queue"),
    "timer": (timer, "calls in a row, one wait"),
    "block": (wall_clock, "calls in a row, one wait"),
    "events": (events, "two marks, an idle GPU"),
    "unwaited": (lambda work, calls: wall_clock(work, devices=[]), "the launch"),
    "measure": (lambda work, calls: wall_clock(work), "launch, kernel, wait"),
}


def main() -> dict:
    names = [name for name in CLOCKS if name != "do_bench" or find_spec("triton")]
    found = {"cycles": CYCLES}
    for size, cycles in CYCLES.items():
        work = partial(torch.cuda._sleep, cycles)  # one thread counts clock cycles
        clocks = {name: partial(CLOCKS[name][0], work, CALLS[size]) for name in names}
        timings = take_turns(clocks, 1, 7, clock=lambda read, calls: read())
        spreads = {name: 1e6 * timing.spread for name, timing in timings.items()}
        found[size] = recorded(timings, "us") | {"iqr_us": spreads}
    print("µs           " + "".join(f"{size:>11}" for size in CYCLES) + "  includes")
    for name in sorted(names, key=found["small"]["us"].get):
        us = "".join(f"{found[size]['us'][name]:11,.1f}" for size in CYCLES)
        print(f"{name:13}{us}  {CLOCKS[name][1]}")
    return found


def derive(results: dict) -> dict:
    """How clocks that wait differ on a long kernel, and read shorter ones."""
    large, small, cycles = (
        results["large"]["us"],
        results["small"]["us"],
        results["cycles"],
    )
    waiting = [clock for clock in large if clock != "unwaited"]
    small_us = large["profiler"] * cycles["small"] / cycles["large"]
    middle = results["middle"]["us"]
    longest = max(middle[clock] for clock in ("timer", "block", "gpu_clock"))
    return {
        "small_us": small_us,
        "times_small": {clock: us / small_us for clock, us in small.items()},
        "middle_of_profiler": longest / middle["profiler"],
        "most_small_us": max(small[clock] for clock in waiting),
        "off_large": max(
            abs(large[clock] / large["profiler"] - 1) for clock in waiting
        ),
    }


def plot(results: dict, ceilings: dict):
    small = results["small"]["us"]
    # `seconds` and `kernel_seconds` are what the page's boxes call these two clocks
    labels = {"block": "seconds, many calls", "measure": "seconds, calls=1"}
    labels |= {"gpu_clock": "kernel_seconds", "timer": "PyTorch's Timer"}
    labels |= {"do_bench": "Triton's do_bench", "events": "events, idle GPU"}
    labels |= {"unwaited": "no wait"}
    names = sorted(small, key=small.get)
    clocks = [labels.get(name, name) for name in names]
    cycles = results["cycles"]
    mhz = cycles["large"] / results["large"]["us"]["profiler"]  # of a long kernel
    marks = []
    for size in CYCLES:
        us, counted_us = results[size]["us"], cycles[size] / mhz
        times = [us[name] / counted_us for name in names]
        length = f"{counted_us:.2g} µs"
        if counted_us >= 1000:
            length = f"{counted_us / 1e3:.0f} ms"
        marks.append(Dots(times, clocks, f"a kernel of {length}"))
    marks.append(Rule("x", 1, "right"))
    x = Axis("← too short · reading ÷ true time · too long →", log=True)
    return Picture([Panel(marks, x)])


if __name__ == "__main__":
    main()
