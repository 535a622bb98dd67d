# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [1]
# ///
"""Copy in the GPU's memory with less than a GiB of it: on a small GPU, or beside other work."""

from statistics import median

import torch

from snippets.machine.hbm_bandwidth import copy_of
from snippets.timing.kernel_time import gpu_clock
from snippets.timing.take_turns import take_turns

MIB = 768  # touched by a copy, half read and half written: far more than an L2 holds


def main() -> dict:
    touched = 2**20 * MIB
    works = {"copy": copy_of(touched)}
    timing = take_turns(works, trials=9, clock=gpu_clock, calls=20)["copy"]
    trials = [touched / 1e9 / seconds for seconds in timing.trials]
    used = torch.cuda.max_memory_allocated() / 2**20
    print(
        f"{MIB} MiB touched: copy {median(trials):.0f} GB/s, with {used:.0f} MiB of the GPU's memory"
    )
    return {
        "mib": MIB,
        "copy_gb_s": median(trials),
        "copy_gb_s_trials": trials,
        "used_mib": used,
    }


if __name__ == "__main__":
    main()
