# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy", "nvidia-ml-py"]
# [tool.overlap]
# gpus = [1]
# timeout = 120
# take = ["Activity"]
# ///
"""The driver's utilisation beside what the SMs, tensor cores and memory really do."""

import time
from collections.abc import Callable
from functools import partial
from statistics import fmean
from typing import Any

import torch

from snippets.pictures import bars
from snippets.timing.power_meter import PowerMeter
from snippets.timing.wait_for import wait_for

SECONDS, TIMES = 0.8, 3
BATCH_S = 0.02  # so much work is launched before the next wait
#: numbers of NVML's GPU performance monitoring; DCGM calls them 1001 to 1005
METRICS = {"graphics": 1, "sm": 2, "occupancy": 3, "tensor": 5, "dram": 10}


class Activity:
    """`with Activity() as activity:` counts what the GPU does while the block is open.

    Hopper and later, by NVML's GPU performance monitoring. `percent` has then, of the
    block's time: `graphics`, in how much of it any kernel ran; `sm`, how many of the
    SMs were busy; `occupancy`, how many of the threads that fit; `tensor`, how long
    tensor cores worked; `dram`, how much of the memory's rate was used. Each is 0 to
    100. All processes on the GPU count. Where NVML cannot be asked, `missing` says why,
    and `percent` stays empty. Give it 0.1 s or more, and
    use it once. `device` counts as PyTorch does.
    """

    def __init__(self, device: int = 0) -> None:
        self.device, self.missing = device, ""
        self.percent: dict[str, float] = {}
        self._samples: list[Any] = []

    def __enter__(self) -> "Activity":
        try:
            import pynvml

            pynvml.nvmlInit()
            uuid = torch.cuda.get_device_properties(self.device).uuid
            self._nvml, self._gpu = (
                pynvml,
                pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}"),
            )
            support = pynvml.nvmlGpmQueryDeviceSupport(self._gpu)
            if not support.isSupportedDevice:
                self.missing = "this GPU has no performance monitoring by NVML"
                return self
            self._sample()
        except Exception as error:
            self.missing = f"{type(error).__name__}: {error}"
        return self

    def __exit__(self, *exc_info: object) -> None:
        if self.missing:
            return
        nvml = self._nvml
        try:
            self._sample()
            asked = nvml.c_nvmlGpmMetricsGet_t()
            asked.version = nvml.NVML_GPM_METRICS_GET_VERSION
            asked.numMetrics = len(METRICS)
            asked.sample1, asked.sample2 = self._samples
            for i, number in enumerate(METRICS.values()):
                asked.metrics[i].metricId = number
            nvml.nvmlGpmMetricsGet(asked)
            for i, name in enumerate(METRICS):
                if asked.metrics[i].nvmlReturn == nvml.NVML_SUCCESS:
                    self.percent[name] = asked.metrics[i].value
        except Exception as error:
            self.missing = f"{type(error).__name__}: {error}"
        finally:
            for sample in self._samples:
                nvml.nvmlGpmSampleFree(sample)

    def _sample(self) -> None:
        sample = self._nvml.nvmlGpmSampleAlloc()
        self._samples.append(sample)
        self._nvml.nvmlGpmSampleGet(self._gpu, sample)


def kept_busy(work: Callable[[], object], seconds: float) -> int:
    """Call `work` again and again for so long, never far ahead; how often it was."""
    end, calls = time.perf_counter() + seconds, 0
    while time.perf_counter() < end:
        batch = time.perf_counter() + BATCH_S
        for _ in range(200):
            work()
            calls += 1
            if time.perf_counter() > batch:
                break
        wait_for()
    return calls


def watched(work: Callable[[], object]) -> dict:
    """Percents of one run: NVML's utilisation, and what `Activity` counts."""
    kept_busy(work, SECONDS / 2)  # the clock settles
    with PowerMeter() as meter, Activity() as activity:
        began = time.perf_counter()
        calls = kept_busy(work, SECONDS)
        us = 1e6 * (time.perf_counter() - began) / calls
    late = meter.rows["busy_percent"][len(meter.rows["busy_percent"]) // 2 :]
    row = {"us": us, "utilisation": fmean(late) if late else None}
    return row | {"missing": activity.missing} | activity.percent


def works(device: str, side: int) -> dict[str, Callable[[], object]]:
    """What a GPU may be busy with, by name."""
    with torch.device(device):
        low = torch.randn(side, side, dtype=torch.bfloat16)
        high, few = torch.randn(side // 2, side // 2), torch.zeros(1024)
        row = torch.randn(1, 128 * side)
        much = torch.zeros(16 * side, side)
    return {
        "one row's softmax": partial(torch.softmax, row, 1),
        "small kernels": partial(few.add_, 1),
        "copy in memory": lambda: much.clone(),
        "float32 matmul": partial(torch.mm, high, high),
        "bf16 matmul": partial(torch.mm, low, low),
    }


def main() -> dict:
    rows: dict = {}
    for name, work in works("cuda", 8192).items():
        trials = [watched(work) for _ in range(TIMES)]
        rows[name] = {"missing": trials[0]["missing"]}
        for key in ("us", "utilisation", *METRICS):
            values = [trial[key] for trial in trials if trial.get(key) is not None]
            if values:
                rows[name] |= {key: fmean(values), f"{key}_trials": values}
        told = {k: rows[name].get(k, float("nan")) for k in ("utilisation", *METRICS)}
        words = ", ".join(f"{key} {value:5.1f}%" for key, value in told.items())
        print(f"{name:18}", rows[name]["missing"] or words)
    return {"works": rows, "copied_bytes": 2 * 16 * 8192 * 8192 * 4, "side": 8192}


def derive(results: dict) -> dict:
    """GB/s of the copy, and TFLOP/s of the bf16 matmul; two of the rows."""
    rows = results["works"]
    return {
        "row": rows["one row's softmax"],
        "matmul": rows["bf16 matmul"],
        "gb_s": results["copied_bytes"] / rows["copy in memory"]["us"] / 1e3,
        "tflop_s": 2 * results["side"] ** 3 / rows["bf16 matmul"]["us"] / 1e6,
    }


def plot(results: dict, ceilings: dict):
    names = {"utilisation": "utilisation", "sm": "SMs busy", "tensor": "tensor cores"}
    names |= {"dram": "memory"}
    values = {}
    for work, row in results["works"].items():
        values[work] = {text: row[key] for key, text in names.items() if key in row}
    return bars(values, {}, "% of the time")


if __name__ == "__main__":
    main()
