# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy", "nvidia-ml-py"]
# [tool.overlap]
# gpus = [1]
# ///
"""Let each SM count its own clocks, after matmuls and beside them: have all the same?"""

import time
from collections.abc import Callable
from statistics import median
from typing import Any

import torch

from snippets.pictures import Axis, Dots, Note, Panel, Picture, Rule
from snippets.timing.power_meter import PowerMeter

#: One thread a block counts clocks until so many nanoseconds have passed.
SOURCE = r"""
__device__ long long now_ns()
{
    long long ns;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
    return ns;
}

extern "C" __global__ void count(long long *out, int ns)
{
    unsigned sm;
    asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
    long long began = now_ns(), first = clock64(), now;
    do now = now_ns(); while (now - began < ns);
    long long *mine = out + 3 * blockIdx.x;
    mine[0] = sm;
    mine[1] = clock64() - first;
    mine[2] = now - began;
}
"""
N, LOAD, SOME = 8192, 300, 8  # 300 bf16 matmuls are some 0.45 s
SPIN_NS, BESIDE_NS = 500_000, 8_000_000
ROUNDS, REST_S = 4, 0.3


def counted(out: torch.Tensor) -> dict[int, float]:
    """MHz by SM, of rows of [SM, clocks, nanoseconds]."""
    return {sm: 1e3 * clocks / ns for sm, clocks, ns in sorted(out.tolist())}


def load(x: torch.Tensor, y: torch.Tensor, matmuls: int) -> None:
    for _ in range(matmuls):
        torch.mm(x, x, out=y)


def after(
    count: Callable[..., Any], x: torch.Tensor, y: torch.Tensor, matmuls: int
) -> dict:
    """The clock of each SM right after the matmuls, and the driver's last one."""
    out = torch.zeros(sms(), 3, dtype=torch.long, device="cuda")
    with PowerMeter() as meter:
        time.sleep(REST_S)
        load(x, y, matmuls)
        count((sms(), 1, 1), (1, 1, 1), [out, SPIN_NS])
        torch.cuda.synchronize()
    return {"mhz": counted(out), "nvml_mhz": meter.rows["mhz"][-1:]}


def beside(count: Callable[..., Any], x: torch.Tensor, y: torch.Tensor) -> dict:
    """The clock of each SM beside the last matmuls, and how long those take, and it."""
    out = torch.zeros(sms(), 3, dtype=torch.long, device="cuda")
    side = torch.cuda.Stream()
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(3)]
    counted_all = torch.cuda.Event(enable_timing=True)
    time.sleep(REST_S)
    load(x, y, LOAD)
    marks[0].record()
    load(x, y, SOME)
    marks[1].record()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        count((sms(), 1, 1), (1, 1, 1), [out, BESIDE_NS])
        counted_all.record()
    load(x, y, SOME)
    marks[2].record()
    torch.cuda.synchronize()
    alone_ms, both_ms = (marks[i].elapsed_time(marks[i + 1]) for i in (0, 1))
    # shorter than `both_ms`: the counting was over before the matmuls were
    return {
        "mhz": counted(out),
        "alone_ms": alone_ms,
        "both_ms": both_ms,
        "counted_ms": marks[1].elapsed_time(counted_all),
    }


def sms() -> int:
    return torch.cuda.get_device_properties().multi_processor_count


def summary(runs: list[dict]) -> dict:
    """Least, median and most MHz of the SMs of each run, and medians over the runs."""
    clocks = [list(run["mhz"].values()) for run in runs]
    row = {
        "counted_sms": min(len(each) for each in clocks),
        "least_mhz_trials": [min(each) for each in clocks],
        "middle_mhz_trials": [median(each) for each in clocks],
        "most_mhz_trials": [max(each) for each in clocks],
    }
    told = [mhz for run in runs for mhz in run.get("nvml_mhz", [])]
    if told:
        row["nvml_mhz_trials"] = told
    for key in ("alone_ms", "both_ms", "counted_ms"):
        if key in runs[0]:
            row[f"{key}_trials"] = [run[key] for run in runs]
    for key, trials in list(row.items()):
        if key.endswith("_trials"):
            row[key.removesuffix("_trials")] = median(trials)
    return row | {"by_sm_mhz": clocks[-1]}


def main() -> dict:
    count = torch.cuda._compile_kernel(SOURCE, "count")
    random = torch.randn(N, N, device="cuda", dtype=torch.bfloat16)
    y, zeros = torch.empty_like(random), torch.zeros_like(random)
    load(random, y, 3)  # cuBLAS sets itself up
    after(count, random, y, 1)
    cases = {
        "rested": lambda: after(count, random, y, 0),
        "random": lambda: after(count, random, y, LOAD),
        "zeros": lambda: after(count, zeros, y, LOAD),
        "beside_random": lambda: beside(count, random, y),
        "beside_zeros": lambda: beside(count, zeros, y),
    }
    rounds = [{name: case() for name, case in cases.items()} for _ in range(ROUNDS)]
    result = {}
    for name in cases:
        row = result[name] = summary([each[name] for each in rounds])
        clock = f"{row['least_mhz']:.0f} to {row['most_mhz']:.0f} MHz"
        print(f"{name:<14}{row['counted_sms']} SMs at {clock}")
        if "nvml_mhz" in row:
            print(f"{'':14}the driver says {row['nvml_mhz']:.0f} MHz")
        if "both_ms" in row:
            took = f"{row['both_ms']:.1f} ms, without it {row['alone_ms']:.1f}"
            print(f"{'':14}{SOME} matmuls take {took}")
    return result


def derive(results: dict) -> dict:
    """How clocks differ between SMs, and from the driver's; what counting beside costs."""
    cases = [results["random"], results["zeros"]]
    beside = [results["beside_random"], results["beside_zeros"]]
    of_driver = [row["middle_mhz"] / row["nvml_mhz"] for row in cases]
    return {
        "counted": results["random"]["counted_sms"],
        "uneven": max(row["most_mhz"] / row["least_mhz"] for row in cases),
        "least_of": min(of_driver),
        "most_off": max(abs(share - 1) for share in of_driver),
        "both_of_alone": [row["both_ms"] / row["alone_ms"] for row in beside],
        "counted_beside": [row["counted_sms"] for row in beside],
    }


def plot(results: dict, ceilings: dict):
    rows = {"after a rest": results["rested"]["by_sm_mhz"]}
    for kind in ("zeros", "random"):
        rows[f"{kind}, during"] = results[f"beside_{kind}"]["by_sm_mhz"]
        rows[f"{kind}, right after"] = results[kind]["by_sm_mhz"]
        rows[f"{kind}, the driver"] = [results[kind]["nvml_mhz"]]
    marks = []
    for row, clocks in rows.items():
        one = len(clocks) == 1
        places = [row] * len(clocks)
        name = "by the driver" if one else "each SM"
        marks.append(Dots(clocks, places, name, color=2 if one else 1, diamond=one))
        marks.append(Note(max(clocks), row, f"{median(clocks):,.0f}", dx=8))
    if "clock_mhz" in ceilings:
        marks.append(Rule("x", ceilings["clock_mhz"], "highest clock"))
    return Picture([Panel(marks, Axis("MHz"))])


if __name__ == "__main__":
    main()
