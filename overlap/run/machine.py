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
    gpus = [dict(zip(("uuid", "driver", "name"), map(visible, row), strict=True)) for row in rows if len(row) == 3]
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
    seen = [gpu["uuid"] for gpu in _visible().values()] + [""] * len(cards)
    uuids = [f"GPU-{card.uuid}" if hasattr(card, "uuid") else uuid for card, uuid in zip(cards, seen, strict=False)]
    versions = here()["versions"]
    return {
        "machine": {
            "gpus": [_gpu(card, details.get(uuid, {})) for card, uuid in zip(cards, uuids, strict=True)],
            "host_gpus": here()["host_gpus"],
            "driver": here()["driver"] if on_gpu else None,
            "links": links,
            "cpu": here()["cpu"],
            "cores": here()["cores"],
            "system": visible(f"{platform.system()} {platform.release()}"),
            "virtual": _virtual(),
            "host": _host_mark(),
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


def _gpu(properties, more: dict) -> dict:
    """One GPU by what PyTorch and nvidia-smi know of it; what neither knows is left out."""
    capability = f"{properties.major}.{properties.minor}"
    found = {"name": properties.name, "memory_bytes": properties.total_memory, "capability": capability}
    for key, (attribute, unit) in _ATTRIBUTES.items():
        found[key] = _number(getattr(properties, attribute, None), unit)
    return {key: value for key, value in (found | more).items() if value is not None}


def _number(said, unit: float = 1) -> float | None:
    """A number above zero in our unit, whole where it is; None for anything else, such as `[N/A]`."""
    try:
        value = float(said) / unit
    except (TypeError, ValueError):
        return None
    return (int(value) if value.is_integer() else value) if 0 < value < 1e15 else None


def _details(links: list[str]) -> dict[str, dict]:
    """The fields and NVLinks of each GPU of the host, by UUID; a driver that does not know a field is asked for each by itself."""
    found: dict[str, dict] = {gpu["uuid"]: {} for gpu in _host()[0]}
    if not ask(_FIELDS, found):
        for key, field in _FIELDS.items():
            ask({key: field}, found)
    for uuid, count in zip(found, _nvlinks(links), strict=False):
        found[uuid]["nvlinks"] = count
    return found


def ask(
    fields: dict[str, str], found: dict[str, dict], read: Callable[[str, str], object] = lambda key, said: _number(said)
) -> bool:
    """Add fields of nvidia-smi, by our keys, to what was found of each GPU by UUID; what `read(key, said)` gives None for is left out.

    False where nvidia-smi refused and may answer to fewer.
    """
    text, why = _nvidia_smi(f"--query-gpu={','.join(['uuid', *fields.values()])}", "--format=csv,noheader,nounits")
    for row in text.splitlines():
        uuid, *values = (part.strip() for part in row.split(","))
        if uuid in found and len(values) == len(fields):
            said = {key: read(key, value) for key, value in zip(fields, values, strict=True)}
            found[uuid].update((key, value) for key, value in said.items() if value is not None)
    return not why or "did not answer" in why


def _nvlinks(links: list[str]) -> list[int]:
    """The most NVLinks between each GPU of the host and another one; nothing where the topology does not name two GPUs."""
    rows = [line for line in links if re.match(r"GPU\d", line)]
    return [max(map(int, re.findall(r"\bNV(\d+)\b", row)), default=0) for row in rows] if len(rows) > 1 else []


def _virtual() -> bool | None:
    """Whether a hypervisor runs this machine; None where the CPU does not say."""
    flags = re.search(r"^flags\b.*", _text("/proc/cpuinfo"), re.M)
    return "hypervisor" in flags[0].split() if flags else None


def _host_mark() -> str:
    """Eight hex digits that tell hosts apart and name none: of its GPUs' UUIDs, or else of the system's own number."""
    system = _text("/etc/machine-id") or _text("/proc/sys/kernel/random/boot_id")
    said = sorted(gpu["uuid"] for gpu in _host()[0]) or [platform.node(), system]
    return hashlib.sha256(" ".join(["overlap", *said]).encode()).hexdigest()[:8]


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
    return ("", f"nvidia-smi failed: {text.strip()[:200]}") if done.returncode else (text, "")


def _cpu_model() -> str:
    model = re.search(r"^model name\s*:(.*)", _text("/proc/cpuinfo"), re.M)
    return visible(model[1].strip() if model else platform.processor() or platform.machine())[:200]


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read().strip()
    except OSError:
        return ""
