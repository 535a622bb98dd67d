# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy", "nvidia-ml-py"]
# [tool.overlap]
# gpus = [1, 2]
# exclusive = false
# take = ["nvml_handle"]
# ///
"""Find the GPU that PyTorch calls number 0 in NVML, and ask what only NVML knows."""

from contextlib import suppress
from itertools import permutations
from typing import Any

import torch


def nvml_handle(index: int) -> Any:
    """NVML's handle of the GPU that PyTorch calls `index`: NVML has its own numbers.

    What pynvml raises goes through, as for a part of a GPU (MIG). NVML stays open until
    the process ends, as others may use it.
    """
    import pynvml

    pynvml.nvmlInit()
    uuid = torch.cuda.get_device_properties(index).uuid
    return pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}")


def nvlinks_up(handle: Any) -> int:
    """How many NVLinks of this GPU are active."""
    import pynvml

    up = 0
    for link in range(pynvml.NVML_NVLINK_MAX_LINKS):
        with suppress(pynvml.NVMLError):  # a GPU may have fewer links, or none
            up += pynvml.nvmlDeviceGetNvLinkState(handle, link)
    return up


def main() -> dict:
    import pynvml

    indices = range(torch.cuda.device_count())
    result = {"index": [], "memory_bytes": [], "nvlinks": []}
    for i in indices:
        handle = nvml_handle(i)
        memory = pynvml.nvmlDeviceGetMemoryInfo(handle).total
        result["index"].append(pynvml.nvmlDeviceGetIndex(handle))
        result["memory_bytes"].append(memory)
        result["nvlinks"].append(nvlinks_up(handle))
        print(f"cuda:{i} is NVML's {result['index'][i]}, {memory / 2**30:.1f} GiB")
    pairs = permutations(indices, 2)
    result["peers"] = [torch.cuda.can_device_access_peer(a, b) for a, b in pairs]
    print(f"{sum(result['peers'])} of {len(result['peers'])} pairs reach each other")
    print("NVLinks up:", *result["nvlinks"])
    return result


if __name__ == "__main__":
    main()
