# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [0, 1]
# exclusive = false
# take = ["best_device", "has_kernels"]
# ///
"""Which GPUs are there, and can this PyTorch run on them?"""

import torch


def gpu_cards() -> list[dict]:
    """Number, name, memory and capability of each GPU that this process sees."""
    cards = []
    for number in range(torch.cuda.device_count()):
        gpu = torch.cuda.get_device_properties(number)
        card = {"device": f"cuda:{number}", "name": gpu.name}
        card["memory_gib"] = gpu.total_memory / 2**30
        card["capability"] = f"{gpu.major}.{gpu.minor}"
        cards.append(card)
    return cards


def has_kernels(capability: str | tuple[int, int]) -> bool:
    """Whether this PyTorch brings kernels for GPUs of this capability.

    It is a text such as "9.0", or what `torch.cuda.get_device_capability()` gives.
    Kernels serve all later GPUs of the same major number; those of a target with an
    "a", such as "sm_90a", only GPUs of this very capability. Code in PTX is
    left aside. For NVIDIA's GPUs alone: False with ROCm, whose names are such as
    "gfx942", and False on a machine without a GPU, where PyTorch names no target.
    ValueError for a text without a point, such as "9".
    """
    if isinstance(capability, str):
        major, minor = map(int, capability.split("."))
    else:
        major, minor = capability
    for target in torch.cuda.get_arch_list():  # such as "sm_90" or "compute_90"
        kind, _, number = target.partition("_")
        if kind != "sm":
            continue
        built_major, built_minor = divmod(int(number.rstrip("af")), 10)
        if built_major != major:
            continue
        if built_minor == minor or (built_minor < minor and number[-1] != "a"):
            return True
    return False


def kernel_runs(device: str) -> bool:
    """Whether a kernel runs on this GPU, which `has_kernels` tells in advance."""
    try:
        return (torch.ones(1, device=device) + 1).item() == 2
    except RuntimeError:  # no kernel image is available for execution on the device
        return False


def best_device() -> torch.device:
    """The GPU, of whatever make, or else the CPU."""
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    return accelerator or torch.device("cpu")


def main() -> dict:
    cards = gpu_cards()
    for card in cards:
        card["has_kernels"] = has_kernels(card["capability"])
        card["kernel_runs"] = kernel_runs(card["device"])
        print(*card.values(), sep="  ")
    print(f"{len(cards)} CUDA GPUs; this program would run on {best_device()}")
    built_for = torch.cuda.get_arch_list()
    return {"cards": cards, "device": best_device().type, "built_for": built_for}


if __name__ == "__main__":
    main()
