"""A loader with this process's share of the host's cores, one worker at least, that reads ahead."""

import os

from torch.utils.data import DataLoader


def feeding(dataset, workers=8, **options):
    ranks = int(os.environ.get("LOCAL_WORLD_SIZE", 1))  # torchrun sets it
    cores = getattr(os, "sched_getaffinity", lambda _: range(os.cpu_count()))
    # its share of the launcher's cores, or those that it is pinned to
    share = min(len(cores(os.getppid())) // ranks, len(cores(0)))
    options.setdefault("prefetch_factor", 4)
    options.setdefault("persistent_workers", True)
    options.setdefault("pin_memory", True)
    workers = max(1, min(workers, share - 1))  # a core is left for the loop
    return DataLoader(dataset, num_workers=workers, **options)
