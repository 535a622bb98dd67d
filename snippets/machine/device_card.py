# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11"]
# [tool.overlap]
# gpus = [0, 1]
# exclusive = false
# ///
"""Ask pycuda and PyTorch about the same GPUs; a source that is not there says why."""

from collections import namedtuple

import torch

# What one source says about one GPU
DeviceCard = namedtuple("DeviceCard", "name capability sms memory_bytes l2_bytes")


def card_by_torch(index: int) -> DeviceCard:
    """What PyTorch says of the GPU that it calls `index`."""
    gpu = torch.cuda.get_device_properties(index)
    counts = gpu.multi_processor_count, gpu.total_memory, gpu.L2_cache_size
    return DeviceCard(gpu.name, f"{gpu.major}.{gpu.minor}", *counts)


def pycuda_device(index: int):
    """The GPU for pycuda, without a CUDA context.

    Where there is no driver this import fails; `import pycuda` alone would succeed.
    """
    import pycuda.driver

    pycuda.driver.init()
    return pycuda.driver.Device(index)


def card_by_pycuda(index: int) -> DeviceCard:
    """What the CUDA driver says, asked by pycuda."""
    gpu = pycuda_device(index)
    major, minor = gpu.compute_capability()
    counts = gpu.multiprocessor_count, gpu.total_memory(), gpu.l2_cache_size
    return DeviceCard(gpu.name(), f"{major}.{minor}", *counts)


def cards_or_reason(ask) -> tuple[list[DeviceCard], str]:
    """What `ask(index)` says of each visible GPU and "", or none and the reason."""
    try:
        count = max(1, torch.cuda.device_count())  # to ask for number 0 says why
        return [ask(index) for index in range(count)], ""
    except Exception as error:  # an import, a driver, a GPU may be missing
        return [], f"{type(error).__name__}: {str(error).split('. ')[0]}"


def main() -> dict:
    result = {}
    for source, ask in {"pycuda": card_by_pycuda, "torch": card_by_torch}.items():
        cards, missing = cards_or_reason(ask)
        print(f"{source:8}" + (f"missing, {missing}" if missing else f"{cards}"))
        result[source] = {"missing": missing}
        for name in DeviceCard._fields:
            result[source][name] = [getattr(card, name) for card in cards]
    found = {} if result["pycuda"]["missing"] else pycuda_device(0).get_attributes()
    result["pycuda"]["attributes"] = {str(key): int(n) for key, n in found.items()}
    return result


if __name__ == "__main__":
    main()
