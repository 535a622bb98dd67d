"""Where the time of `steps` goes: each microsecond counts once, for the first of `lanes` at work in it."""

import torch


def full_lanes(steps, lanes=("CUDA", "nccl", "Memcpy ", "DataLoader", "CPU", "Python")):
    trace = torch.profiler.profile(acc_events=True)
    with trace, torch.profiler.record_function("Python"):
        steps()
    busy = torch.zeros(len(lanes), int(max(e.time_range.end for e in trace.events())))
    for e in trace.events():  # a row for each lane, a column for each microsecond
        lane = next((lane for lane in lanes if lane in e.name), e.device_type.name)
        if lane in ("DataLoader", "Python") or not e.is_user_annotation:
            busy[lanes.index(lane), int(e.time_range.start) : int(e.time_range.end)] = 1
    first = busy.argmax(0)[busy.any(0)]  # the first lane at work in each microsecond
    return {lane: f"{(first == i).float().mean():.0%}" for i, lane in enumerate(lanes)}
