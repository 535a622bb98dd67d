"""The bus bandwidth of an all-reduce, which compares with the rate of a link."""

import time

import torch
import torch.distributed as dist


def bus_gb_s(mib, calls=20):
    x = torch.zeros(mib, 2**18, device="cuda")
    dist.all_reduce(x)  # the first call connects the ranks, and lets them meet
    torch.cuda.synchronize()
    start = time.perf_counter()
    [dist.all_reduce(x) for _ in range(calls)]
    torch.cuda.synchronize()
    seconds = (time.perf_counter() - start) / calls
    return 2 * (1 - 1 / dist.get_world_size()) * x.nbytes / seconds / 1e9
