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
            full.setdefault(lane, set()).update(us)
    ran = sorted(set().union(*full.values())) or [0]
    return {lane: f"{len(full[lane]) / (ran[-1] - ran[0] + 1):.0%}" for lane in full}
