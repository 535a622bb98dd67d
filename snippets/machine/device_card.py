# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [0, 1]
# exclusive = false
# ///
"""Ask pycuda and PyTorch about the same GPUs; a source that is not there says why."""

from collections.abc import Callable
from dataclasses import dataclass, fields

import torch


@dataclass(frozen=True)
class DeviceCard:
    """What one source says about one GPU."""

    name: str
    capability: str
    sms: int
    memory_bytes: int
    l2_bytes: int


def card_by_torch(index: int) -> DeviceCard:
    """What PyTorch says of the GPU that it calls `index`."""
    gpu = torch.cuda.get_device_properties(index)
    capability = f"{gpu.major}.{gpu.minor}"
    counts = gpu.multi_processor_count, gpu.total_memory, gpu.L2_cache_size
    return DeviceCard(gpu.name, capability, *counts)


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


def cards_or_reason(ask: Callable[[int], DeviceCard]) -> tuple[list[DeviceCard], str]:
    """The card of each visible GPU and "", or none and why there is none."""
    try:
        count = max(1, torch.cuda.device_count())  # to ask for number 0 says why
        return [ask(index) for index in range(count)], ""
    except Exception as error:  # an import, a driver, a GPU may be missing
        return [], f"{type(error).__name__}: {str(error).split('. ')[0]}"


def main() -> dict:
    result = {}
    names = [field.name for field in fields(DeviceCard)]
    for source, ask in {"pycuda": card_by_pycuda, "torch": card_by_torch}.items():
        cards, missing = cards_or_reason(ask)
        result[source] = {name: [getattr(c, name) for c in cards] for name in names}
        result[source] |= {"missing": missing, "attributes": {}}
        for card in cards:
            print(f"{source:8}{card}")
        if missing:
            print(f"{source:8}missing, {missing}")
    if not result["pycuda"]["missing"]:
        found = pycuda_device(0).get_attributes()
        result["pycuda"]["attributes"] = {str(key): int(v) for key, v in found.items()}
        print(f"pycuda  {len(found)} attributes of each GPU")
    return result


def derive(results: dict) -> dict:
    """What PyCUDA and PyTorch do not say alike of the GPUs."""
    fields = ("name", "capability", "sms", "memory_bytes", "l2_bytes")
    pycuda, torch = results["pycuda"], results["torch"]
    return {"unlike": [name for name in fields if pycuda.get(name) != torch.get(name)]}


if __name__ == "__main__":
    main()
