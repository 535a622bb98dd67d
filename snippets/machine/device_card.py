# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11"]
# [tool.overlap]
# gpus = [0, 1, 4, 8]
# exclusive = false
# missing = { 8 = "no machine with eight GPUs was available when this was recorded" }
# ///
"""Ask pycuda, PyTorch and NVML about the same GPUs. pycuda and nvidia-ml-py are used where they are installed."""

from contextlib import suppress
from dataclasses import dataclass, fields
from itertools import permutations, product

import torch


@dataclass(frozen=True)
class DeviceCard:
    """What one source says about one GPU."""

    name: str
    capability: str
    sms: int
    memory_bytes: int
    l2_bytes: int

    @classmethod
    def from_pycuda(cls, gpu) -> "DeviceCard":
        """`gpu` is a `pycuda.driver.Device`: naming an attribute reads it from the driver."""
        major, minor = gpu.compute_capability()
        return cls(gpu.name(), f"{major}.{minor}", gpu.multiprocessor_count, gpu.total_memory(), gpu.l2_cache_size)

    @classmethod
    def from_torch(cls, gpu) -> "DeviceCard":
        """`gpu` is what `torch.cuda.get_device_properties` returns."""
        return cls(gpu.name, f"{gpu.major}.{gpu.minor}", gpu.multi_processor_count, gpu.total_memory, gpu.L2_cache_size)

    @classmethod
    def from_nvml(cls, gpu, nvml) -> "DeviceCard":
        """`gpu` is an NVML handle. NVML counts CUDA cores instead of SMs, and does not tell the L2 (0 here)."""
        capability = "{}.{}".format(*nvml.nvmlDeviceGetCudaComputeCapability(gpu))
        sms = nvml.nvmlDeviceGetNumGpuCores(gpu) // (64 if capability in ("6.0", "7.0", "7.5", "8.0") else 128)
        return cls(nvml.nvmlDeviceGetName(gpu), capability, sms, nvml.nvmlDeviceGetMemoryInfo(gpu).total, 0)


def ask_pycuda() -> dict:
    """Makes no CUDA context. Without a driver it is this import that fails; `import pycuda` alone would succeed."""
    import pycuda.driver as cuda

    cuda.init()
    gpus = [cuda.Device(i) for i in range(cuda.Device.count())]
    attributes = {str(name): int(value) for name, value in gpus[0].get_attributes().items()}
    peers = [bool(a.can_access_peer(b)) for a, b in permutations(gpus, 2)]
    return {"cards": [DeviceCard.from_pycuda(gpu) for gpu in gpus], "attributes": attributes, "peers": peers}


def ask_torch() -> dict:
    gpus = range(torch.cuda.device_count() or 1)  # where there is none, asking for number 0 says why
    peers = [torch.cuda.can_device_access_peer(a, b) for a, b in permutations(gpus, 2)]
    return {"cards": [DeviceCard.from_torch(torch.cuda.get_device_properties(i)) for i in gpus], "peers": peers}


def ask_nvml() -> dict:
    """NVML ignores CUDA_VISIBLE_DEVICES, so its index may mean another GPU: each is found by its UUID."""
    import pynvml as nvml

    nvml.nvmlInit()
    cards = [torch.cuda.get_device_properties(i) for i in range(torch.cuda.device_count() or 1)]
    gpus, nvlinks = [nvml.nvmlDeviceGetHandleByUUID(f"GPU-{card.uuid}") for card in cards], [0] * len(cards)
    for i, link in product(range(len(gpus)), range(nvml.NVML_NVLINK_MAX_LINKS)):
        with suppress(nvml.NVMLError):  # a GPU may have fewer links, or none
            nvlinks[i] += nvml.nvmlDeviceGetNvLinkState(gpus[i], link)
    return {"cards": [DeviceCard.from_nvml(gpu, nvml) for gpu in gpus], "nvlinks": nvlinks}


def answer(ask) -> dict:
    """What a source says, or no cards and, in `missing`, why: one that is not there must not silence the others."""
    nothing = {"cards": [], "attributes": {}, "peers": [], "nvlinks": []}
    try:
        return nothing | {"missing": ""} | ask()
    except Exception as error:
        return nothing | {"missing": f"{type(error).__name__}: {str(error).split('. ')[0]}"}


def main() -> dict:
    answers = {"pycuda": answer(ask_pycuda), "torch": answer(ask_torch), "nvml": answer(ask_nvml)}
    for source, said in answers.items():
        cards = said.pop("cards")
        print(*(f"{source:8}{text}" for text in cards or ["missing, " + said["missing"]]), sep="\n")
        said |= {field.name: [getattr(card, field.name) for card in cards] for field in fields(DeviceCard)}
    attributes, peers = answers["pycuda"]["attributes"], answers["pycuda"]["peers"]
    print(f"pycuda  {len(attributes)} attributes, {sum(peers)} of {len(peers)} GPU pairs reach each other's memory")
    print("nvml    NVLinks up on each GPU:", *answers["nvml"]["nvlinks"] or ["unknown"])
    return answers


if __name__ == "__main__":
    main()
