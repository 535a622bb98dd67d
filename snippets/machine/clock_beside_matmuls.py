# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy", "nvidia-ml-py"]
# [tool.overlap]
# gpus = [1]
# timeout = 180
# ///
"""Count the clock on one SM while matmuls run: does the counting slow them down?"""

import time
from collections.abc import Callable
from itertools import pairwise
from statistics import median
from typing import Any

import torch

from snippets.pictures import Axis, Line, Panel, Picture, Rule
from snippets.timing.power_meter import PowerMeter

#: `watch`: one thread writes, for each sample, when it ended, its clocks and its ns.
SOURCE = r"""
__device__ long long now_ns()
{
    long long ns;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
    return ns;
}

extern "C" __global__ void watch(long long *out, int samples, int ns)
{
    for (int i = 0; i < samples; ++i) {
        long long began = now_ns(), first = clock64(), now;
        do now = now_ns(); while (now - began < ns);
        out[3 * i] = now;
        out[3 * i + 1] = clock64() - first;
        out[3 * i + 2] = now - began;
    }
}

extern "C" __global__ void stamp(long long *out) { out[0] = now_ns(); }
"""
#: (m, n, k) and how many matmuls: of the whole GPU, and of blocks for a part of its SMs
SHAPES = {
    "all SMs": ((8192, 8192, 8192), 300),
    "120 blocks": ((1280, 3072, 65536), 500),
    "100 blocks": ((1280, 2560, 65536), 600),
}
SAMPLES, SAMPLE_NS = 4500, 200_000  # 0.9 s
AFTER_NS = 5_000_000
ROUNDS, REST_S = 2, 0.3


def mhz(samples: list[list[int]], start_ns: int, end_ns: int) -> float:
    """Clocks per microsecond in all samples that lie between two times."""
    inside = [
        row for row in samples if start_ns <= row[0] - row[2] and row[0] <= end_ns
    ]
    return 1e3 * sum(row[1] for row in inside) / sum(row[2] for row in inside)


def trace(samples: list[list[int]], start_ns: int) -> dict[str, list[float]]:
    """The clock in MHz over ms since a start, as means of ten samples."""
    ends = [row[0] for row in samples[::10]]
    clocks = [mhz(samples, *pair) for pair in pairwise(ends)]
    return {"ms": [(end - start_ns) / 1e6 for end in ends[1:]], "mhz": clocks}


def burst(
    kernels: dict[str, Callable[..., Any]], factors, matmuls: int, watched: bool
) -> dict:
    """Rate, power and clocks in the second half of a burst, by the GPU's own timer.

    Where it is not `watched`, no SM counts, and there is no `mhz`.
    """
    a, b = factors
    y, side = a @ b, torch.cuda.Stream()
    samples = torch.zeros(SAMPLES, 3, dtype=torch.long, device="cuda")
    stamps = torch.zeros(3, 1, dtype=torch.long, device="cuda")
    torch.cuda.synchronize()
    time.sleep(REST_S)
    with PowerMeter(every_s=0.01) as meter:
        if watched:
            with torch.cuda.stream(side):
                kernels["watch"]((1, 1, 1), (1, 1, 1), [samples, SAMPLES, SAMPLE_NS])
        for half, mark in enumerate(stamps):
            kernels["stamp"]((1, 1, 1), (1, 1, 1), [mark])
            for _ in range(matmuls // 2 if half < 2 else 0):
                torch.mm(a, b, out=y)
        torch.cuda.current_stream().synchronize()
        rows = {name: list(each) for name, each in meter.rows.items()}
        torch.cuda.synchronize()  # the counting goes on after the matmuls
    start, middle, end = stamps.flatten().tolist()
    flop = 2 * a.shape[0] * a.shape[1] * b.shape[1] * (matmuls // 2)
    found = {"tflop_s": flop / (end - middle) / 1e3}
    if rows["s"]:
        late = rows["watt_now"][len(rows["s"]) // 2 :]
        found |= {"watt": median(late), "nvml_mhz": rows["mhz"][-1]}
    if watched:
        taken = samples.tolist()
        found["mhz"] = mhz(taken, middle, end)
        found["after_mhz"] = mhz(taken, end + AFTER_NS, taken[-1][0])
        found["trace"] = trace(taken, start)
        found["end_ms"] = (end - start) / 1e6
    return found


def summary(watched: list[dict], alone: list[dict]) -> dict:
    """Medians and trials, with and without the counter, and the last trace."""
    row = {key: watched[-1][key] for key in ("trace", "end_ms")}
    for prefix, bursts in (("", watched), ("alone_", alone)):
        for key in ("tflop_s", "mhz", "after_mhz", "watt", "nvml_mhz"):
            trials = [burst[key] for burst in bursts if key in burst]
            if trials:
                row[prefix + key] = median(trials)
                row[f"{prefix}{key}_trials"] = trials
    return row


def rested_mhz() -> float:
    """The clock of one thread on a GPU that has rested, by the clock of the CPU."""
    clocks = 10**9
    torch.cuda.synchronize()
    time.sleep(REST_S)
    start = time.perf_counter()
    torch.cuda._sleep(clocks)
    torch.cuda.synchronize()
    return clocks / (time.perf_counter() - start) / 1e6


def main() -> dict:
    names = ("watch", "stamp")
    kernels = {name: torch.cuda._compile_kernel(SOURCE, name) for name in names}
    rested = [rested_mhz() for _ in range(ROUNDS)]
    print(f"rested: {median(rested):,.1f} MHz by the CPU's clock")
    rows = {}
    for name, ((m, n, k), matmuls) in SHAPES.items():
        factors = torch.randn(m, k, device="cuda", dtype=torch.bfloat16)
        other = torch.randn(n, k, device="cuda", dtype=torch.bfloat16)
        pair = factors, other.t()
        bursts = {True: [], False: []}
        for _ in range(ROUNDS):
            for watched, found in bursts.items():
                found.append(burst(kernels, pair, matmuls, watched))
        row = rows[name] = summary(bursts[True], bursts[False])
        rates = f"{row['tflop_s']:.0f} TFLOP/s, uncounted {row['alone_tflop_s']:.0f}"
        print(f"{name:11}{row['mhz']:,.0f} MHz, then {row['after_mhz']:,.0f}; {rates}")
        if "nvml_mhz" in row:
            clocks = f"{row['nvml_mhz']:,.0f}, uncounted {row['alone_nvml_mhz']:,.0f}"
            print(f"{'':11}the driver's clock: {clocks}; {row['alone_watt']:.0f} W")
    return {"rows": rows, "rested_mhz": median(rested), "rested_mhz_trials": rested}


def derive(results: dict) -> dict:
    """How far rates and clocks beside the counting blocks are from those alone."""
    rows = results["rows"]
    row = rows["120 blocks"]
    beside = [rows[name] for name in ("100 blocks", "120 blocks", "all SMs")]
    return {
        "rises_after_120": row["after_mhz"] / row["mhz"],
        "off_with_120": {
            "rate_alone": abs(row["tflop_s"] / row["alone_tflop_s"] - 1),
            "drivers": max(
                abs(row["mhz"] / row[name] - 1)
                for name in ("nvml_mhz", "alone_nvml_mhz")
            ),
        },
        "off_alone": [abs(each["mhz"] / each["alone_nvml_mhz"] - 1) for each in beside],
    }


def plot(results: dict, ceilings: dict):
    marks = []
    for name, row in results["rows"].items():
        ms = [each - row["end_ms"] for each in row["trace"]["ms"]]
        marks.append(Line(ms, row["trace"]["mhz"], f"matmuls: {name}", dots=False))
    if "clock_mhz" in ceilings:
        marks.append(Rule("y", ceilings["clock_mhz"], "highest, by the driver"))
    x = Axis("ms after the last matmul", low=-400, high=100)
    return Picture([Panel(marks, x, Axis("MHz"))])


if __name__ == "__main__":
    main()
