"""The share of `steps` in which each lane is full; in Memcpy and nccl, the CPU's part of it counts, too."""

from torch.profiler import profile, record_function


def full_lanes(steps):
    with profile(acc_events=True) as profiled, record_function("steps"):
        steps()
    us, ends = {"steps": 0, "DataLoader": 0, "nccl": 0, "Memcpy": 0, "CUDA": 0}, {}
    for e in sorted(profiled.events(), key=lambda e: e.time_range.start):
        lane = next((lane for lane in us if lane in e.name), e.device_type.name)
        if lane in ("steps", "DataLoader") or not e.is_user_annotation:
            start = max(e.time_range.start, ends.get(lane, 0))  # no moment counts twice
            ends[lane] = max(e.time_range.end, start)
            us[lane] = us.get(lane, 0) + ends[lane] - start
    return {lane: f"{full / us['steps']:.0%}" for lane, full in list(us.items())[1:]}
