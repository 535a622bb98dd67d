# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy", "pycuda>=2026.1", "nvidia-ml-py"]
# [tool.overlap]
# gpus = [1]
# exclusive = false
# ///
"""One number, up to three names: pycuda's, PyTorch's and NVML's for the same GPU."""

import torch

from snippets.machine.about_cuda_devices import AboutCudaDevices

IN_TORCH = {
    "MULTIPROCESSOR_COUNT": "multi_processor_count",
    "CLOCK_RATE": "clock_rate",
    "MEMORY_CLOCK_RATE": "memory_clock_rate",
    "GLOBAL_MEMORY_BUS_WIDTH": "memory_bus_width",
    "L2_CACHE_SIZE": "L2_cache_size",
    "MAX_SHARED_MEMORY_PER_MULTIPROCESSOR": "shared_memory_per_multiprocessor",
    "MAX_REGISTERS_PER_MULTIPROCESSOR": "regs_per_multiprocessor",
    "MAX_THREADS_PER_MULTIPROCESSOR": "max_threads_per_multi_processor",
    "MAX_THREADS_PER_BLOCK": "max_threads_per_block",
    "WARP_SIZE": "warp_size",
}


def by_nvml(bus_id: str) -> dict[str, int]:
    """What NVML says of the GPU at this place of the bus, under pycuda's names."""
    import pynvml as nvml

    nvml.nvmlInit()
    gpu = nvml.nvmlDeviceGetHandleByPciBusId(bus_id)
    clocks = {
        "CLOCK_RATE": nvml.NVML_CLOCK_SM,
        "MEMORY_CLOCK_RATE": nvml.NVML_CLOCK_MEM,
    }
    khz = {k: 1000 * nvml.nvmlDeviceGetMaxClockInfo(gpu, c) for k, c in clocks.items()}
    return khz | {
        "GLOBAL_MEMORY_BUS_WIDTH": nvml.nvmlDeviceGetMemoryBusWidth(gpu),
        "COMPUTE_MODE": nvml.nvmlDeviceGetComputeMode(gpu),
        "ECC_ENABLED": nvml.nvmlDeviceGetEccMode(gpu)[0],
    }


def rows(index: int = 0) -> dict[str, dict[str, int]]:
    """By attribute, what each source says that has a name for it."""
    about = AboutCudaDevices()
    attributes = about.attributes(index)
    in_torch = torch.cuda.get_device_properties(index)
    in_nvml = by_nvml(about.devices[index].pci_bus_id())
    found = {}
    for name in IN_TORCH | in_nvml:
        found[name] = {"pycuda": attributes[name]}
        if name in IN_TORCH:
            found[name]["torch"] = getattr(in_torch, IN_TORCH[name])
        if name in in_nvml:
            found[name]["nvml"] = in_nvml[name]
    return found


def main() -> dict:
    found = rows()
    for name, values in found.items():
        says = ", ".join(f"{source} {value:,}" for source, value in values.items())
        print(f"{name:<37}{says}")
    context = torch._C._cuda_hasPrimaryContext(0)
    print("a CUDA context was", "made" if context else "not needed")
    return {"rows": found, "context": context}


if __name__ == "__main__":
    main()
