"""The machine something runs on: what it is called, and everything a recording says of it."""

import contextlib
import os
import platform
import re
import shutil
import subprocess
from functools import cache
from importlib import metadata

_PACKAGES = ("torch", "numpy", "triton", "pycuda")


def profile(gpus: list[str]) -> str:
    """Name of a machine by the names of its GPUs: `cpu`, or the model and how many, as in `h200-x2`."""
    if not gpus:
        return "cpu"
    words = re.sub(r"\b(nvidia|geforce|tesla)\b", " ", gpus[0].lower())
    model = re.sub(r"[^a-z0-9]+", "-", words).strip("-")
    return model if len(gpus) == 1 else f"{model}-x{len(gpus)}"


def label(name: str) -> str:
    """How a profile reads on a page: `h200-x2` becomes `2 × H200`."""
    if name == "cpu":
        return "CPU"
    model, _, count = re.fullmatch(r"(.+?)(-x(\d+))?", name).groups()
    return f"{count or 1} × {model.replace('-', ' ').upper()}"


def order(name: str) -> tuple:
    """Sort key of profiles: the CPU first, then by GPU count and model."""
    model, _, count = re.fullmatch(r"(.+?)(-x(\d+))?", name).groups()
    return (0 if name == "cpu" else int(count or 1), model)


@cache
def here() -> dict:
    """What this machine is, read without importing torch: `gpus` (names), `host_gpus`, `driver`, `cpu`, `cores`, `versions`."""
    rows = _nvidia_smi("--query-gpu=name,driver_version", "--format=csv,noheader").splitlines()
    host = [row.split(", ") for row in rows if ", " in row]
    versions = {"python": platform.python_version()} | dict.fromkeys(_PACKAGES)
    for name in _PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    return {
        "gpus": [name for name, _ in host[: len(_visible(len(host)))]],
        "host_gpus": len(host),
        "driver": host[0][1] if host else None,
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "versions": versions,
    }


def visible_devices(count: int) -> str:
    """`CUDA_VISIBLE_DEVICES` that shows the first `count` GPUs a process here could see."""
    return ",".join(_visible(here()["host_gpus"])[:count])


def _visible(host_gpus: int) -> list[str]:
    outer = os.environ.get("CUDA_VISIBLE_DEVICES")
    ids = map(str, range(host_gpus)) if outer is None else outer.split(",")
    return [i.strip() for i in ids if i.strip() not in ("", "-1")]


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
    lines = re.sub(r"\x1b\[[0-9;]*m", "", _nvidia_smi("topo", "-m")).splitlines()
    return [line.rstrip() for line in lines if line.strip()]


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
