"""What a GPU says of itself, and the rate of its memory that follows."""

import torch


def what_it_is(index=0):
    gpu = torch.cuda.get_device_properties(index)
    most = gpu.memory_clock_rate * 1e3 * 2 * gpu.memory_bus_width / 8
    facts = {"name": gpu.name, "compute capability": f"{gpu.major}.{gpu.minor}"}
    facts["SMs"] = gpu.multi_processor_count
    facts["highest clock, MHz"] = gpu.clock_rate // 1000
    facts["memory, GiB"] = round(gpu.total_memory / 2**30, 1)
    facts["memory at most, GB/s"] = round(most / 1e9)
    facts["L2 cache, MiB"] = gpu.L2_cache_size / 2**20
    return facts
