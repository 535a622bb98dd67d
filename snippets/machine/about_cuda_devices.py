# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy", "pycuda>=2026.1"]
# [tool.overlap]
# gpus = [0, 1]
# exclusive = false
# ///
"""What the CUDA driver says of each GPU, by pycuda: a class to take home.

After Puneet Grover's notebook; MIT licence, (c) 2018 Puneet Grover.
"""

from snippets.machine.pycuda_context import pycuda_driver, torch_context

#: Attributes that decide most: their unit, and what they mean to you.
MEANINGS = {
    "MULTIPROCESSOR_COUNT": ("SMs", "the blocks of a kernel are spread over them"),
    "CLOCK_RATE": ("kHz", "largest clock of the SMs: ceiling of arithmetic"),
    "MEMORY_CLOCK_RATE": ("kHz", "of the memory; times bus times 2: its ceiling"),
    "GLOBAL_MEMORY_BUS_WIDTH": ("bits", "of the memory's bus"),
    "L2_CACHE_SIZE": ("bytes", "what is used again may come from here"),
    "MAX_SHARED_MEMORY_PER_MULTIPROCESSOR": ("bytes", "for all blocks on an SM"),
    "MAX_REGISTERS_PER_MULTIPROCESSOR": ("", "for all threads on an SM"),
    "MAX_THREADS_PER_MULTIPROCESSOR": ("threads", "at once on an SM, at most"),
    "MAX_THREADS_PER_BLOCK": ("threads", "a larger block fails to launch"),
    "WARP_SIZE": ("threads", "work in step: make blocks a multiple of it"),
    "ASYNC_ENGINE_COUNT": ("", "copy engines: copies while kernels run"),
    "CONCURRENT_KERNELS": ("", "1: kernels of two streams may run side by side"),
    "UNIFIED_ADDRESSING": ("", "1: CPU and GPUs share one range of addresses"),
    "COMPUTE_MODE": ("", "0: many processes may use it; 3: one; 2: none"),
    "KERNEL_EXEC_TIMEOUT": ("", "1: a display is driven, long kernels are killed"),
    "ECC_ENABLED": ("", "1: flipped bits of the memory are corrected"),
}


class AboutCudaDevices:
    """The GPUs that this process may use, by their ids; print it for a card of each.

    Without pycuda or a GPU there is none, and `missing` says why. Only `memory` takes a
    CUDA context, which it keeps: PyTorch's own, some hundred MiB if it is not there yet.
    """

    def __init__(self):
        self.devices, self.missing = [], ""
        try:
            driver = pycuda_driver()
            self.devices = [driver.Device(i) for i in range(driver.Device.count())]
        except Exception as error:  # no pycuda, no driver, or no GPU
            self.missing = str(error)

    def names(self) -> list[str]:
        """The name of each GPU; its place in the list is its id."""
        return [device.name() for device in self.devices]

    def memory(self, index: int = 0) -> tuple[int, int]:
        """Bytes of one GPU that are free, whoever uses the others, and all bytes."""
        with torch_context(index) as driver:
            return driver.mem_get_info()

    def attributes(self, index: int = 0) -> dict[str, int]:
        """What pycuda has a name for, of one GPU: bytes, kHz, bits, counts."""
        values = self.devices[index].get_attributes()
        return {str(name): int(value) for name, value in values.items()}

    def card(self, index: int = 0) -> str:
        """Name, memory and the attributes of MEANINGS, one to a line."""
        device, attributes = self.devices[index], self.attributes(index)
        gib = device.total_memory() / 2**30
        lines = [f"cuda:{index} {device.name()}, {gib:.1f} GiB"]
        for name, (unit, meaning) in MEANINGS.items():
            value = f"{attributes[name]:,}" if name in attributes else "unknown"
            lines.append(f"  {name:<37}{value:>11} {unit:<8}{meaning}")
        return "\n".join(lines)

    def __str__(self) -> str:
        if self.missing:
            return f"no GPU to describe: {self.missing}"
        return "\n".join(self.card(index) for index in range(len(self.devices)))


def main() -> dict:
    about = AboutCudaDevices()
    print(about)
    ids = range(len(about.devices))
    result = {"missing": about.missing, "names": about.names(), "memory": []}
    result["attributes"] = [about.attributes(i) for i in ids]
    for i in ids:
        free, total = about.memory(i)
        print(f"cuda:{i} {free / 2**30:.1f} of {total / 2**30:.1f} GiB free")
        result["memory"].append({"free": free, "total": total})
    return result


if __name__ == "__main__":
    main()
