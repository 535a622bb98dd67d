# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [0, 1]
# exclusive = false
# ///
"""Is CUDA there? If not, name the reason."""

import ctypes
import os
import subprocess
import warnings

import torch


def driver_cuda() -> str:
    """The newest CUDA that the installed driver knows, such as "13.0"; "" if none."""
    try:
        driver = ctypes.CDLL("nvcuda.dll" if os.name == "nt" else "libcuda.so.1")
    except OSError:
        return ""
    version = ctypes.c_int()
    driver.cuDriverGetVersion(ctypes.byref(version))
    return f"{version.value // 1000}.{version.value % 1000 // 10}"


def installed_gpus() -> int:
    """How many GPUs nvidia-smi lists, also those that are hidden from this process."""
    try:
        smi = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True)
    except OSError:  # there is no such program
        return 0
    return sum(line.startswith("GPU ") for line in smi.stdout.splitlines())


def major(version: str) -> int:
    """12 of "12.8"; 0 where there is no version, as in a build for AMD."""
    return int(version.partition(".")[0] or 0)


def cuda_facts() -> dict:
    """What decides whether CUDA is there. Call it first: PyTorch warns only once."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        available = torch.cuda.is_available()
    return {
        "available": available,
        "built": torch.backends.cuda.is_built(),
        "built_for": torch.version.cuda or "",
        "driver": driver_cuda(),
        "installed_gpus": installed_gpus(),
        "visible": os.environ.get("CUDA_VISIBLE_DEVICES"),
        "warning": str(caught[0].message) if caught else "",
    }


def diagnosis(facts: dict) -> str:
    """Why `torch.cuda.is_available()` is what it is, from the facts above."""
    if facts["available"]:
        return "CUDA is there"
    if not facts["built"]:
        return "CPU build: this PyTorch was built without CUDA"
    if not facts["driver"]:
        return "no driver: the library of the NVIDIA driver is not found"
    if major(facts["driver"]) < major(facts["built_for"]):
        versions = f"knows CUDA {facts['driver']}, PyTorch needs {facts['built_for']}"
        return f"driver too old: {versions}"
    if facts["warning"]:
        return facts["warning"]
    if facts["visible"] is not None:
        return f"hidden: CUDA_VISIBLE_DEVICES is {facts['visible']!r}"
    if not facts["installed_gpus"]:
        return "no GPU: nvidia-smi lists none"
    return "not known: try torch.zeros(1, device='cuda') and read its error"


def main() -> dict:
    facts = cuda_facts()
    for name, fact in facts.items():
        print(f"{name:16}{fact!r}")
    print(diagnosis(facts))
    return facts | {"diagnosis": diagnosis(facts)}


if __name__ == "__main__":
    main()
