# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11"]
# [tool.overlap]
# gpus = [1]
# ///
"""One float32 product, read from eight clocks: what does each of them include?"""

import time
from importlib import import_module
from statistics import median

import torch
from torch.utils.benchmark import Timer

from snippets.timing.benchmark import measure, wait_for

N, TRIALS = 6144, 11


def host_clock(work, now, wait=lambda: None) -> list[float]:
    """A clock of the CPU around one call and one wait, in ms."""
    ms = []
    for _ in range(TRIALS):
        wait_for()
        start = now()
        work()
        wait()
        ms.append(1e3 * (now() - start))
    return ms


def cuda_events(work) -> list[float]:
    """The GPU's own clock, read at two marks in the stream, in ms."""
    ms, start, end = [], *(torch.cuda.Event(enable_timing=True) for _ in range(2))
    for _ in range(TRIALS):
        wait_for()
        start.record()
        work()
        end.record()
        end.synchronize()  # only after the GPU has passed the second mark can it be read
        ms.append(start.elapsed_time(end))
    return ms


def triton(work) -> list[float]:
    return [float(ms) for ms in import_module("triton.testing").do_bench(work, return_mode="all")]


def profiler(work) -> list[float]:
    """The kernels of each call, as the profiler saw them, in ms."""
    with torch.profiler.profile(acc_events=True) as profile:
        host_clock(work, time.perf_counter, wait_for)
    us = [e.time_range.elapsed_us() for e in profile.events() if e.device_type.name == "CUDA"]
    kernels = len(us) // TRIALS
    return [sum(us[i * kernels : (i + 1) * kernels]) / 1e3 for i in range(TRIALS)]


CLOCKS = {  # name: (trials in ms, what lies between its two readings)
    "time": (lambda f: host_clock(f, time.time), "launch"),
    "perf_counter": (lambda f: host_clock(f, time.perf_counter), "launch"),
    "waited": (lambda f: host_clock(f, time.perf_counter, wait_for), "launch, kernel, wait"),
    "measure": (lambda f: measure(f, trials=TRIALS).ms(), "launch, kernel, wait"),
    "timer": (lambda f: [1e3 * s for s in Timer("f()", globals={"f": f}).blocked_autorange().times], "a block, a wait"),
    "events": (cuda_events, "all that is in the stream between two marks"),
    "do_bench": (triton, "the same, with an empty L2"),
    "profiler": (profiler, "kernel"),
}


def main() -> dict:
    x, trials = torch.randn(N, N, device="cuda"), {}
    torch.testing.assert_close(torch.mm(x, x)[:64].double(), x[:64].double() @ x.double(), rtol=1e-3, atol=1e-2)
    measure(lambda: torch.mm(x, x), trials=80)  # until the GPU has raised its clock rate
    for name, (clock, includes) in CLOCKS.items():
        try:
            trials[name] = clock(lambda: torch.mm(x, x))
            print(f"{name:14}{median(trials[name]):8.3f} ms  {includes}")
        except ImportError as error:  # Triton does not come with every build of PyTorch
            print(f"{name:14} missing, {error}")
    ms = {name: median(trials[name]) for name in trials}
    return {"n": N, "flop": 2 * N**3, "ms": ms, "ms_trials": trials}


def plot(results: dict, ceilings: dict):
    import matplotlib.pyplot as plt

    figure, ax = plt.subplots()
    clocks = [clock for clock in CLOCKS if clock in results["ms"]]
    ax.bar_label(ax.barh(clocks, [results["ms"][clock] for clock in clocks]), fmt="%.3g", padding=3)
    if "fp32_tflop_s" in ceilings:
        ax.axvline(results["flop"] / ceilings["fp32_tflop_s"] / 1e9, color="gray", linestyle="--", label="FLOP / peak")
        ax.legend(loc="lower left", bbox_to_anchor=(0, 1))
    ax.set(xscale="log", xlabel="ms for one product", xmargin=0.2, ylim=(7.5, -0.5))
    ax.xaxis.set_major_formatter("{x:g}")
    return figure


if __name__ == "__main__":
    main()
