"""The machine something runs on: what it is called, and everything a recording says of it."""

import json
import os
import platform
import re
import shutil
import subprocess
import sys
from functools import cache
from importlib import metadata

_PACKAGES = ("torch", "numpy", "triton", "pycuda")


def profile(gpu: str | None, count: int) -> str:
    """Name of a machine: `cpu`, or the GPU model and count, as in `h200-x2`."""
    if count == 0:
        return "cpu"
    words = re.sub(r"\b(nvidia|geforce|tesla)\b", " ", (gpu or "gpu").lower())
    model = re.sub(r"[^a-z0-9]+", "-", words).strip("-")
    return model if count == 1 else f"{model}-x{count}"


def label(name: str) -> str:
    """How a profile reads on a page: `h200-x2` becomes `2 × H200`."""
    if name == "cpu":
        return "CPU"
    model, _, count = re.fullmatch(r"(.+?)(-x(\d+))?", name).groups()
    return f"{count or 1} × {model.upper() if len(model) <= 4 else model.replace('-', ' ').upper()}"


def order(name: str) -> tuple:
    """Sort key of profiles: the CPU first, then by GPU count and model."""
    model, _, count = re.fullmatch(r"(.+?)(-x(\d+))?", name).groups()
    return (0 if name == "cpu" else int(count or 1), model)


@cache
def here() -> dict:
    """What this machine is, read without importing torch: `gpus` (names), `host_gpus`, `driver`, `cpu`, `cores`, `versions`."""
    rows = _nvidia_smi("--query-gpu=name,driver_version", "--format=csv,noheader")
    rows = host = [row.split(", ") for row in rows.splitlines() if ", " in row]
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        rows = rows[: len([part for part in visible.split(",") if part.strip()])]
    versions = {"python": platform.python_version()}
    for name in _PACKAGES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[name] = None
    return {
        "gpus": [name for name, _ in rows],
        "host_gpus": len(host),
        "driver": host[0][1] if host else None,
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "versions": versions,
    }


def visible_devices(count: int) -> str:
    """`CUDA_VISIBLE_DEVICES` that shows the first `count` GPUs a process here could see."""
    outer = os.environ.get("CUDA_VISIBLE_DEVICES")
    ids = outer.split(",") if outer else [str(i) for i in range(len(here()["gpus"]))]
    return ",".join(ids[:count])


def probe() -> dict:
    """`machine` and `software` of a recording; imports torch, so it is called in a process of its own."""
    import torch

    gpus = []
    for i in range(torch.cuda.device_count()):
        properties = torch.cuda.get_device_properties(i)
        capability = f"{properties.major}.{properties.minor}"
        gpus.append({"name": properties.name, "memory_bytes": properties.total_memory, "capability": capability})
    on_gpu = bool(gpus)
    versions = here()["versions"]
    return {
        "machine": {
            "gpus": gpus,
            "host_gpus": here()["host_gpus"],
            "driver": here()["driver"] if on_gpu else None,
            "links": _links() if on_gpu else [],
            "cpu": here()["cpu"],
            "cores": here()["cores"],
            "system": f"{platform.system()} {platform.release()}",
        },
        "software": {
            **versions,
            "torch": torch.__version__,
            "torch_git": torch.version.git_version,
            "cuda": torch.version.cuda,
            "cudnn": torch.backends.cudnn.version() if torch.backends.cudnn.is_available() else None,
            "nccl": ".".join(map(str, torch.cuda.nccl.version())) if on_gpu else None,
        },
    }


def _links() -> list[str]:
    return [
        re.sub(r"\x1b\[[0-9;]*m", "", line).rstrip() for line in _nvidia_smi("topo", "-m").splitlines() if line.strip()
    ]


def _nvidia_smi(*arguments: str) -> str:
    if not shutil.which("nvidia-smi"):
        return ""
    done = subprocess.run(["nvidia-smi", *arguments], capture_output=True, text=True, timeout=60)
    return done.stdout if done.returncode == 0 else ""


def _cpu_model() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            return next(line.partition(":")[2].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


if __name__ == "__main__":
    json.dump(probe(), sys.stdout)
