"""A loader with this process's share of the host's cores, one worker at least, that reads ahead."""

import os

from torch.utils.data import DataLoader


def feeding(dataset, workers=8, **options):
    ranks = int(os.environ.get("LOCAL_WORLD_SIZE", 1))  # torchrun sets it
    usable = getattr(os, "sched_getaffinity", lambda _: range(os.cpu_count()))(0)
    # a container's limit of CPU time is not counted
    share = len(usable) // ranks - 1  # a core is left for the loop
    options.setdefault("prefetch_factor", 4)
    options.setdefault("persistent_workers", True)
    options.setdefault("pin_memory", True)
    workers = max(1, min(workers, share))
    return DataLoader(dataset, num_workers=workers, **options)
