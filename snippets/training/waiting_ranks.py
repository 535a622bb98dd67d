# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [2, 4, 8]
# timeout = 120
# launcher = "torchrun"
# [tool.overlap.missing]
# 8 = "not recorded yet"
# ///
"""What a rank's GPU does while the rank waits for another: in gloo, and in NCCL."""

import os
import time
from statistics import median

import torch
import torch.distributed as dist

from snippets.timing.lanes import lanes

LATE_S = 0.1


def meet() -> tuple[torch.device, dist.ProcessGroup]:
    """Join the other ranks: in gloo, so that who waits leaves its GPU alone.

    Returns this rank's device, and a group to exchange tensors there.
    """
    dist.init_process_group("gloo")
    if not torch.cuda.is_available():
        return torch.device("cpu"), dist.group.WORLD
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    return device, dist.new_group(backend="nccl")


def wait_for_first(x: torch.Tensor, group: dist.ProcessGroup) -> None:
    """Wait in an all-reduce until rank 0, which comes late, has come."""
    dist.barrier()  # all begin together
    if dist.get_rank() == 0:
        time.sleep(LATE_S)
    dist.all_reduce(x, group=group)


def main() -> dict:
    device, nccl = meet()
    groups, busy = {"gloo": dist.group.WORLD, "nccl": nccl}, {}
    for name, group in groups.items():
        x = torch.zeros(1, device=device if name == "nccl" else "cpu")
        events = [lanes(lambda x=x, g=group: wait_for_first(x, g)) for _ in range(5)]
        on_gpu = [[e[2] for e in each if "stream" in e[0]] for each in events]
        mine, all_ranks = [sum(us) / 1e3 for us in on_gpu], [None] * nccl.size()
        dist.all_gather_object(all_ranks, mine)
        busy[name] = all_ranks[-1]
        print(f"rank {dist.get_rank()} waits in {name}: GPU busy {median(mine):.1f} ms")
    dist.destroy_process_group()
    ms = {name: median(each) for name, each in busy.items()}
    return {"late_ms": 1e3 * LATE_S, "busy_ms": ms, "busy_ms_trials": busy}


if __name__ == "__main__":
    main()
