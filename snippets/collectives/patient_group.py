# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [0]
# exclusive = false
# timeout = 120
# launcher = "torchrun"
# ranks = 2
# ///
"""Rank 0 works alone for longer than the job's timeout: in which group may others wait?"""

import time
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

JOB_S, LIMIT_S, ALONE_S = 120, 2, 4  # timeouts, and what rank 0 does alone
PATIENT = timedelta(hours=2)


def while_first_works(group: dist.ProcessGroup) -> dict:
    """Wait in a group until rank 0 comes; seconds, and the error if there is one."""
    start, says = time.perf_counter(), ""
    if dist.get_rank() == 0:
        time.sleep(ALONE_S)  # it evaluates, or saves
    try:
        dist.barrier(group=group)
    except RuntimeError as error:
        says = str(error).partition("\n")[0].rpartition("] ")[2]
    return {"seconds": time.perf_counter() - start, "says": says}


def timeout_s(group: dist.ProcessGroup) -> float:
    """How long a call of this group waits at most."""
    return group._get_backend(torch.device("cpu")).options._timeout.total_seconds()


def main() -> dict:
    dist.init_process_group("gloo", timeout=timedelta(seconds=JOB_S))
    short = dist.new_group(timeout=timedelta(seconds=LIMIT_S))  # as a job's may be
    patient = dist.new_group(backend="gloo", timeout=PATIENT)
    told = {}
    for name, group in {"patient": patient, "short": short}.items():
        each: list[Any] = [None, None]
        dist.all_gather_object(each, while_first_works(group))
        told[name] = each[1]  # of the rank that waits
        if name == "patient":  # the other group is as it was
            x = torch.ones(1)
            dist.all_reduce(x, group=short)
            assert x.item() == dist.get_world_size()
    groups = {"job": dist.group.WORLD, "new": dist.new_group(), "patient": patient}
    waits = {name: timeout_s(group) for name, group in groups.items()}
    if dist.get_rank() == 0:
        for name, row in told.items():
            print(f"{name:<8} {row['seconds']:4.1f} s {row['says']}")
        print(*(f"{name} group: timeout {s:.0f} s;" for name, s in waits.items()))
    dist.destroy_process_group()
    return {"limit_s": LIMIT_S, "alone_s": ALONE_S, "rank_1": told, "timeout_s": waits}


if __name__ == "__main__":
    main()
