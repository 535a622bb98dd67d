# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy", "pycuda>=2026.1"]
# [tool.overlap]
# gpus = [2]
# timeout = 120
# exclusive = false
# ///
"""pycuda on two GPUs: the class, a kernel on each, and a copy from one to the other."""

import torch

from snippets.machine.about_cuda_devices import AboutCudaDevices
from snippets.machine.pycuda_context import torch_context
from snippets.machine.pycuda_kernel import launch

SIZE = 2**24


def doubled_on(index: int) -> int:
    """How many elements of a tensor on this GPU a kernel doubles, launched there."""
    x = torch.ones(SIZE, device=f"cuda:{index}")
    torch.cuda.synchronize(index)
    launch(x)
    torch.cuda.synchronize(index)
    return int((x == 2).sum())


def copied(source: int, target: int) -> int:
    """How many elements arrive from a tensor of one GPU in a tensor of another."""
    x = torch.arange(SIZE, dtype=torch.float32, device=f"cuda:{source}")
    y = torch.zeros(SIZE, device=f"cuda:{target}")
    for index in (source, target):
        torch.cuda.synchronize(index)
    with torch_context(source) as driver:
        driver.memcpy_dtod(y.data_ptr(), x.data_ptr(), x.nbytes)
        driver.Context.synchronize()
    return int((y.cpu() == x.cpu()).sum())


def main() -> dict:
    about = AboutCudaDevices()
    count = len(about.devices)
    x = torch.ones(2**28, device="cuda:1")  # a GiB on the second GPU alone
    used_mib = []
    for index in range(count):
        free, total = about.memory(index)
        used_mib.append((total - free) / 2**20)
    del x
    devices = range(count)
    result = {"names": about.names(), "used_mib": used_mib, "elements": SIZE}
    result["attributes"] = [about.attributes(index) for index in devices]
    result["peer"] = [
        about.devices[a].can_access_peer(about.devices[1 - a]) for a in (0, 1)
    ]
    result["doubled"] = [doubled_on(index) for index in devices]
    result["copied"] = copied(0, 1)
    result["current"] = torch.cuda.current_device()
    for index, mib in zip(devices, used_mib, strict=True):
        print(f"cuda:{index} {result['names'][index]}, {mib:,.0f} MiB in use")
    print(f"doubled on each: {result['doubled']}; copied: {result['copied']:,}")
    return result


if __name__ == "__main__":
    main()
