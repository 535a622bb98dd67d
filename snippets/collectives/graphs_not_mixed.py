# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [2]
# timeout = 120
# launcher = "torchrun"
# ///
"""All-reduces in graphs, without what lets NCCL run eager ones at the same time."""

import os

import torch
import torch.distributed as dist

from snippets.collectives.captured_all_reduces import CALLS, SIZES, both, meet


def main() -> dict:
    os.environ["NCCL_GRAPH_MIXING_SUPPORT"] = "0"  # NCCL reads it once, when it begins
    group = meet()
    x = torch.zeros(SIZES[-1] // 4, device="cuda")
    result = both([x[: size // 4] for size in SIZES], group)  # its graphs end with it
    if dist.get_rank() == 0:
        print("all-reduce of 1 KiB, µs     in all   on the GPU")
        for name, each in result.items():
            print(f"{name:<22}{each['us'][0]:12.1f}{each['gpu']['us'][0]:13.1f}")
    ranks = dist.get_world_size()
    dist.destroy_process_group()
    return {"ranks": ranks, "calls": CALLS, "bytes": SIZES} | result


if __name__ == "__main__":
    main()
