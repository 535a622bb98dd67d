# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy", "nvidia-ml-py"]
# [tool.overlap]
# gpus = [1]
# timeout = 180
# ///
"""Matmuls beside a kernel that holds SMs, or also copies: what does each cost them?

It stands in for an all-reduce, on one GPU: as many blocks as NCCL had channels.
"""

import time
from collections.abc import Callable
from statistics import median
from typing import Any

import torch

from snippets.pictures import bars
from snippets.timing.power_meter import PowerMeter

#: `hold` waits on its SMs, and `copy` reads and writes there, until the time is over.
#: 48 KiB of shared memory leave no room for a block of a large matmul beside them.
SOURCE = r"""
__device__ long long now_ns()
{
    long long ns;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
    return ns;
}

extern "C" __global__ void hold(long long *done, int us)
{
    __shared__ volatile char room[48 * 1024];
    long long end = now_ns() + 1000LL * us;
    room[threadIdx.x] = 0;
    while (now_ns() < end) __nanosleep(1000);
    if (threadIdx.x == 0) done[blockIdx.x] = room[0];
}

extern "C" __global__ void copy(
    const float4 *from, float4 *to, long long *done, int count, int us)
{
    __shared__ volatile char room[48 * 1024];
    long long end = now_ns() + 1000LL * us, copied = 0;
    int share = count / gridDim.x, first = blockIdx.x * share;
    room[threadIdx.x] = 0;
    do {
        for (int i = threadIdx.x; i < share; i += blockDim.x) to[first + i] = from[first + i];
        copied += share;
    } while (now_ns() < end);
    if (threadIdx.x == 0) done[blockIdx.x] = copied + room[0];
}
"""
BLOCKS, THREADS = 24, 512  # of the kernel beside the matmuls
N, MATMULS = 8192, 200  # in each of two halves; the second counts
COPIED = 2**26  # floats; 256 MiB, more than the L2 cache
TRIALS, REST_S = 5, 0.3
WAYS = ("alone", "held", "copied")


def beside(
    kernels: dict[str, Callable[..., Any]], way: str, us: int, tensors: dict
) -> None:
    """Start the kernel that runs beside the matmuls, for so many µs."""
    grid, block = (BLOCKS, 1, 1), (THREADS, 1, 1)
    done = tensors["done"]
    if way == "held":
        kernels["hold"](grid, block, [done, us])
    elif way == "copied":
        count = COPIED // 4  # in float4
        given = [tensors["from"], tensors["to"], done, count, us]
        kernels["copy"](grid, block, given)


def burst(kernels: dict, way: str, us: int, tensors: dict) -> dict[str, float]:
    """Rate of the matmuls, and clock and power in the second half of a burst."""
    main, side = torch.cuda.current_stream(), torch.cuda.Stream()
    torch.cuda.synchronize()
    time.sleep(REST_S)
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(3)]
    began, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    with PowerMeter(every_s=0.01) as meter:
        with torch.cuda.stream(side):
            began.record()
            beside(kernels, way, us, tensors)
            ended.record()
        time.sleep(0.005)  # it has its SMs before a matmul begins
        for half, mark in enumerate(marks):
            mark.record(main)
            for _ in range(MATMULS if half < 2 else 0):
                torch.mm(tensors["a"], tensors["a"], out=tensors["out"])
        main.synchronize()
        rows = {name: list(each) for name, each in meter.rows.items()}
        torch.cuda.synchronize()
    if way != "alone":
        assert marks[-1].elapsed_time(ended) > 0, "the kernel beside ended too soon"
    ms = marks[1].elapsed_time(marks[2])
    found = {"tflop_s": 2 * N**3 * MATMULS / ms / 1e9, "ms": ms / MATMULS}
    if way == "copied":
        copied = 16 * float(tensors["done"].sum())
        found["copied_gb_s"] = copied / began.elapsed_time(ended) / 1e6
    if rows["s"]:
        late = len(rows["s"]) // 2
        found["watt"] = median(rows["watt_now"][late:])
        found["mhz"] = median(rows["mhz"][late:])
    return found


def summary(bursts: list[dict[str, float]]) -> dict[str, Any]:
    """The median of each quantity, and its trials."""
    row: dict[str, Any] = {}
    for key in bursts[0]:
        trials = [burst[key] for burst in bursts if key in burst]
        row[key], row[f"{key}_trials"] = median(trials), trials
    return row


def main() -> dict:
    kernels = {
        name: torch.cuda._compile_kernel(SOURCE, name) for name in ("hold", "copy")
    }
    a = torch.randn(N, N, device="cuda", dtype=torch.bfloat16)
    tensors = {"a": a, "out": torch.empty_like(a)}
    tensors["from"] = torch.randn(COPIED, device="cuda")
    tensors["to"] = torch.zeros_like(tensors["from"])
    tensors["done"] = torch.zeros(BLOCKS, dtype=torch.long, device="cuda")
    beside(kernels, "copied", 20_000, tensors)
    share = COPIED // 4 // BLOCKS * BLOCKS * 4  # what no block has is left out
    assert torch.equal(tensors["to"][:share], tensors["from"][:share])
    expected = a @ a
    alone = burst(kernels, "alone", 0, tensors)
    us = int(6e3 * alone["ms"] * MATMULS)  # three times both halves
    found: dict[str, list[dict[str, float]]] = {way: [] for way in WAYS}
    for _ in range(TRIALS):
        for way in WAYS:
            found[way].append(burst(kernels, way, us, tensors))
            torch.testing.assert_close(tensors["out"], expected)
    rows = {way: summary(bursts) for way, bursts in found.items()}
    for way, row in rows.items():
        told = f"{row['ms']:.3f} ms a matmul, {row['tflop_s']:.0f} TFLOP/s"
        clock = f"{row['mhz']:.0f} MHz, {row['watt']:.0f} W" if "mhz" in row else ""
        copied = f"{row['copied_gb_s']:.0f} GB/s copied" if "copied_gb_s" in row else ""
        print(f"{way:<7}{told}", clock, copied, sep="; ")
    processors = torch.cuda.get_device_properties(0).multi_processor_count
    return {"blocks": BLOCKS, "multiprocessors": processors, "rows": rows}


def derive(results: dict) -> dict:
    """How many times as long a matmul takes, and the clock; what fewer SMs explain."""
    rows, found = results["rows"], {}
    count = results["multiprocessors"]
    for way in ("held", "copied"):
        row = {"takes": rows[way]["ms"] / rows["alone"]["ms"]}
        if "mhz" in rows[way]:
            row["clock"] = rows[way]["mhz"] / rows["alone"]["mhz"]
        found[way] = row
    return {"of_alone": found, "fewer_sms": count / (count - results["blocks"])}


def plot(results: dict, ceilings: dict):
    titles = {"alone": "alone", "held": "24 SMs held", "copied": "24 SMs copy"}
    rows = results["rows"]
    return bars({text: rows[way]["ms"] for way, text in titles.items()}, {}, "ms")


if __name__ == "__main__":
    main()
