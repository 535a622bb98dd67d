# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [1]
# ///
"""TFLOP/s of a matrix product with less than a GiB: one data type after the other."""

from statistics import median

import torch

from snippets.machine.matmul_peak import CALLS, TYPES, product
from snippets.timing.kernel_time import gpu_clock
from snippets.timing.take_turns import take_turns

N = 4096


def rates(name: str) -> list[float]:
    """TFLOP/s of each burst in a data type: "fp32", "tf32" or "bf16"."""
    precision = "tf32" if name == "tf32" else "ieee"
    works = {name: product(N, TYPES[name], precision)}
    timing = take_turns(works, 1, 5, CALLS[N], rest_s=0.03, clock=gpu_clock)[name]
    return [2 * N**3 / 1e12 / seconds for seconds in timing.trials]


def main() -> dict:
    trials = {name: rates(name) for name in TYPES}
    medians = {name: median(each) for name, each in trials.items()}
    for name, rate in medians.items():
        print(f"{name:5} n={N}: {rate:6.1f} TFLOP/s")
    used = torch.cuda.max_memory_allocated() / 2**20
    print(f"with {used:.0f} MiB of the GPU's memory")
    return {"n": N, "tflop_s": medians, "tflop_s_trials": trials, "used_mib": used}


if __name__ == "__main__":
    main()
