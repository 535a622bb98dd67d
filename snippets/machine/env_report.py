# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "numpy"]
# [tool.overlap]
# gpus = [0, 1]
# exclusive = false
# take = ["versions", "usable_cores"]
# ///
"""Name what runs your code: versions, accelerator, CPU, and the cores you may use."""

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


def versions() -> dict[str, str]:
    """Version of each library that changes what a measurement means.

    Where there is none: "None", "" or "not installed".
    """
    nccl = torch.cuda.nccl.version() if torch.distributed.is_nccl_available() else ()  # type: ignore
    return {
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "cuda": str(torch.version.cuda),
        "cudnn": str(torch.backends.cudnn.version()),  # 91900 is 9.19.0
        "nccl": ".".join(str(part) for part in nccl),
        "triton": installed("triton"),
        "numpy": installed("numpy"),
    }


def accelerator_or_cpu() -> torch.device:
    """The accelerator that is there now (CUDA, ROCm, XPU, MPS …), else the CPU."""
    found = torch.accelerator.current_accelerator(check_available=True)
    return found if found is not None else torch.device("cpu")


def usable_cores() -> int | None:
    """Cores this process may run on, which can be fewer than the machine has.

    None where that is unknown. A container's limit of CPU time is not seen: where there
    is one, the file /sys/fs/cgroup/cpu.max tells it.
    """
    asks = hasattr(os, "sched_getaffinity")
    return len(os.sched_getaffinity(0)) if asks else os.cpu_count()


def main() -> dict:
    gpus = range(torch.cuda.device_count())
    here = {"device": accelerator_or_cpu().type, "cores_usable": usable_cores()}
    here["gpus_visible"] = [torch.cuda.get_device_name(i) for i in gpus]
    for name, what in (versions() | here).items():
        print(f"{name:14}{what}")
    return {"versions": versions()} | here


if __name__ == "__main__":
    main()
