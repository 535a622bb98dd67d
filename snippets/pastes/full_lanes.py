"""The share of `steps` in which each lane is full; in Memcpy and nccl, the CPU's part of it counts, too."""

from torch.profiler import profile


def full_lanes(steps):
    with profile(acc_events=True) as profiled:
        steps()
    full = {lane: set() for lane in ("DataLoader", "nccl", "Memcpy", "CUDA", "CPU")}
    for e in profiled.events():
        lane = next((lane for lane in full if lane in e.name), e.device_type.name)
        if lane == "DataLoader" or not e.is_user_annotation:
            us = range(int(e.time_range.start), int(e.time_range.end))
            full[lane].update(us)
    every = sorted(set().union(*full.values()))
    return {lane: f"{len(full[lane]) / (every[-1] - every[0]):.0%}" for lane in full}
