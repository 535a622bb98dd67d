# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [0, 2, 4, 8]
# launcher = "torchrun"
# ranks = 2
# missing = { 8 = "not recorded yet" }
# ///
"""What work.wait() waits for: when the call, wait() and a value are back."""

import time
from statistics import median

import torch
import torch.distributed as dist

from snippets.collectives.collectives_zoo import join
from snippets.pictures import timelines
from snippets.timing.wait_for import wait_for


def watched(x: torch.Tensor) -> dict[str, float]:
    """All-reduce ones in x: milliseconds until call, wait() and a value are back.

    Beside them stands the last value of x, copied before wait() and read after it.
    """
    x.fill_(1)
    wait_for()
    dist.barrier()
    start = time.perf_counter()
    work = dist.all_reduce(x, async_op=True)
    call = time.perf_counter()
    before = x[-1].clone()  # nothing says that this comes after the sum
    work.wait()
    wait = time.perf_counter()
    after = x[-1].item()
    ended = {"call": call, "wait": wait, "value": time.perf_counter()}
    ms = {name: 1e3 * (end - start) for name, end in ended.items()}
    return ms | {"before": before.item(), "after": after}


def main() -> dict:
    device = join()
    rank, ranks = dist.get_rank(), dist.get_world_size()
    x = torch.empty(2**28 if device.type == "cuda" else 2**22, device=device)
    runs = [watched(x) for _ in range(17)][2:]  # two to warm up
    ms_trials = {key: [run[key] for run in runs] for key in ("call", "wait", "value")}
    ms = {key: median(each) for key, each in ms_trials.items()}
    wrong = {key: sum(run[key] != ranks for run in runs) for key in ("before", "after")}
    times = ", ".join(f"{key} {time:.2f} ms" for key, time in ms.items())
    print(f"rank {rank}: {times}; wrong values of {len(runs)}: {wrong}")
    dist.destroy_process_group()
    return {"reads": len(runs), "wrong": wrong, "ms": ms, "ms_trials": ms_trials}


def plot(results: dict, ceilings: dict):
    lanes, start = [], 0.0
    names = {"call": "1 all_reduce()", "wait": "2 wait()", "value": "3 item()"}
    for key, lane in names.items():
        end = results["ms"][key]
        lanes.append([lane, start, end - start, key])
        start = end
    picture = timelines({"what the calling thread spends": lanes}, "ms")
    *calls, item = picture.panels[0].marks
    for mark in calls:
        mark.color = "python"
    item.name = "CPU waits"
    return picture


if __name__ == "__main__":
    main()
