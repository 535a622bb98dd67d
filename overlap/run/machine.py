"""The machine something runs on: what it is called, and everything a recording says of it."""

import contextlib
import hashlib
import os
import platform
import re
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from importlib import metadata
from itertools import groupby

from overlap import OverlapError
from overlap.run.text import visible

_PACKAGES = ("torch", "numpy", "triton", "pycuda")
_COUNTED = re.compile(r"(.*?)(-x(\d+))?", re.S)
_SMI_S = 20
#: What a recording says of a GPU: PyTorch's attribute and its unit; the field of nvidia-smi.
_ATTRIBUTES = {
    "sms": ("multi_processor_count", 1),
    "clock_mhz": ("clock_rate", 1000),
    "memory_clock_mhz": ("memory_clock_rate", 1000),
    "memory_bus_bits": ("memory_bus_width", 1),
    "l2_bytes": ("L2_cache_size", 1),
}
_FIELDS = {
    "clock_max_mhz": "clocks.max.sm",
    "pcie_generation": "pcie.link.gen.max",
    "pcie_width": "pcie.link.width.current",
    "pcie_width_max": "pcie.link.width.max",
    "power_limit_w": "power.limit",
}


def profile(gpus: list[str]) -> str:
    """Name of a machine by its GPUs in order: `cpu`, `h200-x2`, or `rtx-4090+h200-x2`."""
    parts = []
    for model, group in groupby(_model(gpu) for gpu in gpus):
        count = len(list(group))
        parts.append(model if count == 1 else f"{model}-x{count}")
    return "+".join(parts) or "cpu"


def _model(gpu: str) -> str:
    words = re.sub(r"\b(nvidia|geforce|tesla)\b", " ", gpu.lower())
    model = re.sub(r"[^a-z0-9]+", "-", words).strip("-")
    if model in ("", "cpu") or _COUNTED.fullmatch(model)[2]:
        why = f"no profile can be named after it: {model!r} would be mistaken for another machine"
        raise OverlapError(f"GPU {gpu!r}: {why}; hide this GPU with CUDA_VISIBLE_DEVICES")
    return model


def _parts(name: str) -> list[tuple[str, int]]:
    """Models of a profile with how many GPUs of each there are; the CPU counts none."""
    if name == "cpu":
        return [("cpu", 0)]
    parts = []
    for part in name.split("+"):
        model, _, count = _COUNTED.fullmatch(part).groups()
        parts.append((model, int(count or 1)))
    return parts


def label(name: str) -> str:
    """How a profile reads on a page: `h200-x2` becomes `2 × H200`."""
    if name == "cpu":
        return "CPU"
    return " + ".join(f"{count} × {model.replace('-', ' ').upper()}" for model, count in _parts(name))


def order(name: str) -> tuple:
    """Sort key of profiles: the CPU first, then by GPU count and model."""
    return (sum(count for _, count in _parts(name)), _parts(name))


@cache
def here() -> dict:
    """What this machine is, without importing torch; `gpus` are the names of those that CUDA would show."""
    visible = list(cuda_gpus().values())
    host = _host()[0]
    drivers = [gpu["driver"] for gpu in [*visible, *host]]
    cores = os.cpu_count()
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    versions = {"python": platform.python_version()} | dict.fromkeys(_PACKAGES)
    for name in _PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    return {
        "gpus": [gpu["name"] for gpu in visible],
        "host_gpus": len(host),
        "driver": drivers[0] if drivers else None,
        "cpu": _cpu_model(),
        "cores": cores,
        "versions": versions,
    }


def described() -> str:
    """The GPUs of this machine in words, or why there is none."""
    gpus = here()["gpus"]
    if gpus:
        return f"{label(profile(gpus))} ({', '.join(gpus)})"
    host, why = _host()
    if host:
        names = ", ".join(gpu["name"] for gpu in host)
        why = f"CUDA_VISIBLE_DEVICES={os.environ.get('CUDA_VISIBLE_DEVICES')} hides {names}"
    return f"none ({why})"


def visible_devices(count: int) -> str:
    """`CUDA_VISIBLE_DEVICES` for the first `count` GPUs of this process, numbered as `nvidia-smi` does."""
    return ",".join(list(cuda_gpus())[:count])


def cuda_gpus() -> dict[str, dict]:
    """GPUs that CUDA would show, by number or UUID: a wrong one hides what follows, one named twice all."""
    host = _host()[0]
    every = ",".join(map(str, range(len(host))))
    visible: dict[str, dict] = {}
    for text in os.environ.get("CUDA_VISIBLE_DEVICES", every).split(","):
        key = text.strip()
        number = re.match(r"\+?(\d+)", key)
        if number:
            key = number[1]
            matches = host[int(key) :][:1]
        else:
            matches = [gpu for gpu in host if len(key) > 4 and gpu["uuid"].startswith(key)]
        if len(matches) != 1:
            break
        if matches[0] in visible.values():
            return {}
        visible[key] = matches[0]
    return visible


@cache
def _host() -> tuple[list[dict], str]:
    """GPUs of the host in the order of their slots: `uuid`, `driver`, `name`; if there is none, why."""
    text, why = _nvidia_smi("--query-gpu=uuid,driver_version,name", "--format=csv,noheader")
    gpus = []
    for row in text.splitlines():
        cells = row.strip().split(", ", 2)
        if len(cells) == 3:
            uuid, driver, name = map(visible, cells)
            gpus.append({"uuid": uuid, "driver": driver, "name": name})
    return gpus, why or f"nvidia-smi lists no GPU: {text.strip()[:200]}"


def probe() -> dict:
    """`machine` and `software` of a recording; imports torch, so it is called in a process of its own."""
    try:
        import torch
    except Exception as error:
        raise SystemExit(f"{sys.executable} cannot `import torch`: {type(error).__name__}: {error}") from None
    cards = [torch.cuda.get_device_properties(i) for i in range(torch.cuda.device_count())]
    on_gpu = bool(cards)
    links = _links() if on_gpu else []
    details = _details(links) if on_gpu else {}
    visible = [gpu["uuid"] for gpu in cuda_gpus().values()]
    gpus = []
    for number, card in enumerate(cards):
        uuid = ""
        if hasattr(card, "uuid"):
            uuid = f"GPU-{card.uuid}"
        elif number < len(visible):
            uuid = visible[number]
        gpus.append(_gpu(card, details.get(uuid, {})))
    return {
        "machine": {
            "gpus": gpus,
            "host_gpus": here()["host_gpus"],
            "driver": here()["driver"] if on_gpu else None,
            "links": links,
            "cpu": here()["cpu"],
            "cores": here()["cores"],
            "system": f"{platform.system()} {platform.release()}",
            "virtual": _virtual(),
            "host": _host_mark(),
        },
        "software": {
            **here()["versions"],
            "torch": torch.__version__,
            "torch_git": torch.version.git_version,
            "cuda": torch.version.cuda,
            "cudnn": torch.backends.cudnn.version() if torch.backends.cudnn.is_available() else None,
            "nccl": ".".join(map(str, torch.cuda.nccl.version())) if on_gpu else None,
        },
    }


def _gpu(properties, more: dict) -> dict:
    """One GPU by what PyTorch and nvidia-smi know of it; what neither knows is left out."""
    gpu = {
        "name": properties.name,
        "memory_bytes": properties.total_memory,
        "capability": f"{properties.major}.{properties.minor}",
    }
    for key, (attribute, unit) in _ATTRIBUTES.items():
        gpu[key] = _number(getattr(properties, attribute, None), unit)
    return {key: value for key, value in (gpu | more).items() if value is not None}


def _number(text: object, unit: float = 1) -> float | None:
    """A number above zero in our unit, whole where it is; None for anything else, such as `[N/A]`."""
    try:
        value = float(text) / unit
    except (TypeError, ValueError):
        return None
    if not 0 < value < 1e15:
        return None
    return int(value) if value.is_integer() else value


def _details(links: list[str]) -> dict[str, dict]:
    """The fields and NVLinks of each GPU of the host, by UUID."""
    details: dict[str, dict] = {gpu["uuid"]: {} for gpu in _host()[0]}
    if not ask(_FIELDS, details):  # a driver that does not know a field answers to none
        for key, field in _FIELDS.items():
            ask({key: field}, details)
    for uuid, count in zip(details, _nvlinks(links), strict=False):
        details[uuid]["nvlinks"] = count
    return details


def ask(
    fields: dict[str, str],
    details: dict[str, dict],
    read: Callable[[str, str], object] = lambda key, text: _number(text),
) -> bool:
    """Add fields of nvidia-smi, by our keys, to what is known of each GPU by UUID.

    What `read(key, text)` gives None for is left out. False where nvidia-smi refused and may answer to fewer.
    """
    query = ",".join(["uuid", *fields.values()])
    text, why = _nvidia_smi(f"--query-gpu={query}", "--format=csv,noheader,nounits")
    for row in text.splitlines():
        uuid, *cells = (cell.strip() for cell in row.split(","))
        if uuid in details and len(cells) == len(fields):
            for key, cell in zip(fields, cells, strict=True):
                value = read(key, cell)
                if value is not None:
                    details[uuid][key] = value
    return not why or "did not answer" in why


def _nvlinks(links: list[str]) -> list[int]:
    """The most NVLinks between each GPU of the host and another one; nothing where there are not two."""
    rows = [line for line in links if re.match(r"GPU\d", line)]
    if len(rows) < 2:
        return []
    return [max(map(int, re.findall(r"\bNV(\d+)\b", row)), default=0) for row in rows]


def _virtual() -> bool | None:
    """Whether a hypervisor runs this machine; None where the CPU does not say."""
    flags = re.search(r"^flags\b.*", _text("/proc/cpuinfo"), re.M)
    if not flags:
        return None
    return "hypervisor" in flags[0].split()


def _host_mark() -> str:
    """Eight hex digits that tell hosts apart and name none: of its GPUs' UUIDs, or else of the system."""
    system = _text("/etc/machine-id") or _text("/proc/sys/kernel/random/boot_id")
    names = sorted(gpu["uuid"] for gpu in _host()[0]) or [platform.node(), system]
    return hashlib.sha256(" ".join(["overlap", *names]).encode()).hexdigest()[:8]


def _links() -> list[str]:
    lines = re.sub(r"\x1b\[[0-9;]*m", "", _nvidia_smi("topo", "-m")[0]).splitlines()
    return [visible(line.rstrip())[:1000] for line in lines if line.strip()][:1000]


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
    if done.returncode:
        return "", f"nvidia-smi failed: {text.strip()[:200]}"
    return text, ""


def _cpu_model() -> str:
    model = re.search(r"^model name\s*:(.*)", _text("/proc/cpuinfo"), re.M)
    return visible(model[1].strip() if model else platform.processor() or platform.machine())[:200]


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read().strip()
    except OSError:
        return ""
