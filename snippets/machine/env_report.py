# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11"]
# [tool.overlap]
# gpus = [0, 1]
# exclusive = false
# ///
"""Name what runs your code: library versions, the accelerator PyTorch would pick, and the CPU cores you may use."""

import os
import platform
from importlib.metadata import PackageNotFoundError, version

import torch


def installed(package: str) -> str:
    """Version of an installed package, or that it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def cudnn_version(number: int | None) -> str:
    """cuDNN packs its version into one integer: 8902 is 8.9.2, 91900 is 9.19.0; None means a build without it."""
    if number is None:
        return "not in this build"
    major, rest = divmod(number, 10_000 if number >= 10_000 else 1_000)
    return f"{major}.{rest // 100}.{rest % 100}"


def nccl_version() -> str:
    """Version of NCCL, which carries the collectives, or that this build has none."""
    if not torch.distributed.is_available() or not torch.distributed.is_nccl_available():
        return "not in this build"
    return ".".join(str(part) for part in torch.cuda.nccl.version())


def versions() -> dict[str, str]:
    """Version of each library that changes what a recording means."""
    return {
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "cuda": torch.version.cuda or "not in this build",
        "cudnn": cudnn_version(torch.backends.cudnn.version()),
        "nccl": nccl_version(),
        "triton": installed("triton"),
        "numpy": installed("numpy"),
    }


def accelerator_or_cpu() -> torch.device:
    """The accelerator that is there now (CUDA, ROCm, XPU, MPS …), else the CPU."""
    return torch.accelerator.current_accelerator(check_available=True) or torch.device("cpu")


def usable_cores() -> int:
    """Cores this process may run on, which can be fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def main() -> dict:
    device = accelerator_or_cpu()
    gpus = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    for name, text in versions().items():
        print(f"{name:12}{text}")
    print(f"{'device':12}{device.type}, GPUs visible: {len(gpus)}{''.join(f', {name}' for name in gpus)}")
    print(f"{'CPU':12}{usable_cores()} cores usable, {torch.get_num_threads()} threads for one operation")
    return {
        "versions": versions(),
        "device": device.type,
        "gpus_visible": gpus,
        "cores_usable": usable_cores(),
        "threads": torch.get_num_threads(),
    }


if __name__ == "__main__":
    main()
