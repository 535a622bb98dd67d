"""The machine something runs on: what it is called, and everything a recording says of it."""

import contextlib
import os
import platform
import re
import subprocess
from functools import cache
from importlib import metadata
from itertools import groupby

from overlap import OverlapError

_PACKAGES = ("torch", "numpy", "triton", "pycuda")
_COUNTED = re.compile(r"(.*?)(-x(\d+))?", re.S)
_SMI_S = 20


def profile(gpus: list[str]) -> str:
    """Name of a machine by the names of its GPUs, in order: `cpu`, `h200-x2`, or `rtx-4090+h200-x2` where they are unlike."""
    counts = ((model, len(list(same))) for model, same in groupby(map(_model, gpus)))
    return "+".join(model if count == 1 else f"{model}-x{count}" for model, count in counts) or "cpu"


def _model(gpu: str) -> str:
    words = re.sub(r"\b(nvidia|geforce|tesla)\b", " ", gpu.lower())
    model = re.sub(r"[^a-z0-9]+", "-", words).strip("-")
    if model in ("", "cpu") or _COUNTED.fullmatch(model)[2]:
        why = f"no profile can be named after it: {model!r} would be mistaken for another machine"
        raise OverlapError(f"GPU {gpu!r}: {why}; hide this GPU with CUDA_VISIBLE_DEVICES")
    return model


def _parts(name: str) -> list[tuple[str, int]]:
    """Models of a profile with how many of each there are; the CPU is none of one model."""
    found = [_COUNTED.fullmatch(part).groups() for part in name.split("+")]
    return [(model, 0 if model == "cpu" else int(count or 1)) for model, _, count in found]


def label(name: str) -> str:
    """How a profile reads on a page: `h200-x2` becomes `2 × H200`."""
    words = [f"{count} × {model.replace('-', ' ').upper()}" for model, count in _parts(name)]
    return "CPU" if name == "cpu" else " + ".join(words)


def order(name: str) -> tuple:
    """Sort key of profiles: the CPU first, then by GPU count and model."""
    return (sum(count for _, count in _parts(name)), _parts(name))


@cache
def here() -> dict:
    """What this machine is, read without importing torch: `gpus` (names), `host_gpus`, `driver`, `cpu`, `cores`, `versions`."""
    shown, host = _visible(), _host()[0]
    versions = {"python": platform.python_version()} | dict.fromkeys(_PACKAGES)
    for name in _PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    return {
        "gpus": [gpu["name"] for gpu in shown.values()],
        "host_gpus": len(host),
        "driver": next((gpu["driver"] for gpu in [*shown.values(), *host]), None),
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "versions": versions,
    }


def described() -> str:
    """The GPUs of this machine in words, or why there is none."""
    if gpus := here()["gpus"]:
        return f"{label(profile(gpus))} ({', '.join(gpus)})"
    host, why = _host()
    hidden = f"CUDA_VISIBLE_DEVICES={os.environ.get('CUDA_VISIBLE_DEVICES')} hides {', '.join(g['name'] for g in host)}"
    return f"none ({hidden if host else why})"


def visible_devices(count: int) -> str:
    """`CUDA_VISIBLE_DEVICES` that shows the first `count` GPUs a process here could see, numbered as `nvidia-smi` does."""
    return ",".join(list(_visible())[:count])


def _visible() -> dict[str, dict]:
    """GPUs that CUDA would show, by number or UUID: a wrong one hides what follows, one given twice hides all."""
    outer, host, shown = os.environ.get("CUDA_VISIBLE_DEVICES"), _host()[0], {}
    for given in map(str, range(len(host))) if outer is None else outer.split(","):
        number = re.match(r"\s*\+?(\d+)", given)
        if number:
            found = host[int(number[1]) :][:1]
        else:
            found = [gpu for gpu in host if len(given.strip()) > 4 and gpu["uuid"].startswith(given.strip())]
        if len(found) != 1:
            break
        if found[0] in shown.values():
            return {}
        shown[number[1] if number else given.strip()] = found[0]
    return shown


@cache
def _host() -> tuple[list[dict], str]:
    """GPUs of the host in the order of their slots: `uuid`, `driver`, `name`; if there is none, why."""
    text, why = _nvidia_smi("--query-gpu=uuid,driver_version,name", "--format=csv,noheader")
    rows = (row.strip().split(", ", 2) for row in text.splitlines())
    gpus = [dict(zip(("uuid", "driver", "name"), row, strict=True)) for row in rows if len(row) == 3]
    return gpus, why or f"nvidia-smi lists no GPU: {text.strip()[:200]}"


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
    lines = re.sub(r"\x1b\[[0-9;]*m", "", _nvidia_smi("topo", "-m")[0]).splitlines()
    return [line.rstrip() for line in lines if line.strip()]


def _nvidia_smi(*arguments: str) -> tuple[str, str]:
    """What the tool printed; if it failed, nothing and why."""
    try:
        done = subprocess.run(["nvidia-smi", *arguments], capture_output=True, timeout=_SMI_S)
    except FileNotFoundError:
        return "", "there is no nvidia-smi"
    except subprocess.TimeoutExpired:
        return "", f"nvidia-smi did not answer within {_SMI_S} s"
    except OSError as error:
        return "", f"nvidia-smi cannot be run: {error.strerror}"
    text = done.stdout.decode("utf-8", "replace")
    return ("", f"nvidia-smi failed: {text.strip()[:200]}") if done.returncode else (text, "")


def _cpu_model() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            return next(line.partition(":")[2].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()
