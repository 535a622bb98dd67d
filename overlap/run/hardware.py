"""The machine something runs on: what it is called, and everything a recording says of it."""

import contextlib
import hashlib
import os
import platform
import re
import subprocess
from functools import cache
from importlib import metadata
from itertools import groupby
from pathlib import Path

from overlap.run.text import plural

#: The field of a recording's file that has the machine's name: a name from when a machine was a profile here.
#: Its field `machine` has what is known of the machine.
MACHINE = "profile"
_PACKAGES = ("torch", "numpy", "triton", "pycuda")
#: What a recording says of a GPU, in numbers: PyTorch's attribute and its unit; the field of nvidia-smi.
#: A new one has to stand in `schema.Gpu`, too.
_ATTRIBUTES = {
    "sms": ("multi_processor_count", 1),
    "clock_mhz": ("clock_rate", 1000),
    "memory_clock_mhz": ("memory_clock_rate", 1000),
    "memory_bus_bits": ("memory_bus_width", 1),
    "l2_bytes": ("L2_cache_size", 1),
}
FIELDS = {
    "clock_max_mhz": "clocks.max.sm",
    "pcie_generation": "pcie.link.gen.max",
    "pcie_width": "pcie.link.width.current",
    "pcie_width_max": "pcie.link.width.max",
    "power_limit_w": "power.limit",
}
#: The names of all numbers that a recording may have of a GPU.
NUMBERS = ("memory_bytes", *_ATTRIBUTES, *FIELDS, "nvlinks")


def name_of(gpus: list[str]) -> str:
    """Name of a machine by its GPUs in order: `cpu`, `h200-x2`, or `rtx-4090+h200-x2`."""
    parts = []
    for model, group in groupby(_slug(gpu, r"nvidia|geforce|tesla") for gpu in gpus):
        count = len(list(group))
        parts.append(model if count == 1 else f"{model}-x{count}")
    return "+".join(parts) or "cpu"


def cpu_name(cpu: str, cores: int) -> str:
    """Name of a machine without GPUs by its processor, as `cpu-ryzen-9-7950x-32`."""
    name = re.sub(r"\(r\)|\(tm\)|@.*|\bw(ith|/) .*", " ", cpu.lower())
    model = _slug(name, r"intel|amd|cpu|processor|\d+-core|\d+th gen")
    return f"cpu-{model}-{cores}"


def _slug(name: str, left_out: str) -> str:
    words = re.sub(rf"\b({left_out})\b", " ", name.lower())
    return re.sub(r"[^a-z0-9]+", "-", words).strip("-")


@cache
def _parts(name: str) -> list[tuple[str, int]]:
    """Models of a machine with how many GPUs of each there are; a CPU counts none."""
    if is_cpu(name):
        return [(name, 0)]
    parts = []
    for part in name.split("+"):
        model, count = re.fullmatch(r"(.*?)(?:-x(\d+))?", part).groups()
        parts.append((model, int(count or 1)))
    return parts


def is_cpu(name: str) -> bool:
    """Whether a machine is a CPU without GPUs, by its name."""
    return name.partition("-")[0] == "cpu"


def is_one_gpu(name: str) -> bool:
    """Whether a machine is a single GPU: `h200` is, `cpu`, `h200-x2` and nothing are not."""
    return bool(name) and _parts(name) == [(name, 1)]


@cache
def label(name: str) -> str:
    """How a machine reads: `h200-x2` becomes `2 × H200`, `h100-80gb-hbm3` becomes `1 × H100`.

    The size and the kind of a GPU's memory are left out.
    """
    if name == "cpu":
        return "CPU"
    if is_cpu(name):
        model, _, cores = name.removeprefix("cpu-").rpartition("-")
        return f"CPU {model.replace('-', ' ').upper()}, {plural(int(cores), 'core')}"
    text = " + ".join(f"{count} × {model.replace('-', ' ').upper()}" for model, count in _parts(name))
    return re.sub(r" \d+GB( HBM\w*)?\b", "", text)


def model(name: str) -> str:
    """What GPUs a machine has, whatever their number: `h200` of `h200-x2`; of a CPU its own name."""
    return "+".join(model for model, _ in _parts(name))


def called(name: str) -> list[str]:
    """What a sentence that speaks of a machine calls it by, all of them: `RTX 4090` and `H200`, or `CPU`."""
    if is_cpu(name):
        return ["CPU"]
    labels = (label(model) for model, _ in _parts(name))
    return [re.match(r"1 × (\D*\S*)", text)[1].strip() for text in labels]


def order(name: str) -> tuple:
    """Sort key of machines: CPUs first, then by GPU count and model."""
    return (sum(count for _, count in _parts(name)), _parts(name))


def unlike(name: str, other: str) -> tuple[bool, int, bool, bool]:
    """Sort key: how far another machine is from this one.

    A CPU is the farthest; else the number of GPUs decides, for a speed-up depends on it more than on
    the model. Of as many, the same model is nearer, then fewer GPUs than more.
    """
    more = sum(count for _, count in _parts(other)) - sum(count for _, count in _parts(name))
    return is_cpu(other), abs(more), model(other) != model(name), more > 0


@cache
def here() -> dict:
    """What this machine is, without importing torch; `gpus` are the names of those that CUDA would show."""
    host = _host()[0]
    cores = os.cpu_count()
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    versions = {"python": platform.python_version()} | dict.fromkeys(_PACKAGES)
    for name in _PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    return {
        "gpus": [gpu["name"] for gpu in cuda_gpus().values()],
        "host_gpus": len(host),
        "driver": host[0]["driver"] if host else None,
        "cpu": _cpu_model(),
        "cores": cores,
        "versions": versions,
    }


def described() -> str:
    """The GPUs of this machine in words, or why there is none."""
    gpus = here()["gpus"]
    if gpus:
        return f"{label(name_of(gpus))} ({', '.join(gpus)})"
    host, why = _host()
    if host:
        names = ", ".join(gpu["name"] for gpu in host)
        why = f"CUDA_VISIBLE_DEVICES={os.environ.get('CUDA_VISIBLE_DEVICES')} hides {names}"
    return f"none ({why})"


def visible_devices(count: int) -> str:
    """`CUDA_VISIBLE_DEVICES` for the first `count` GPUs of this process, numbered as `nvidia-smi` does."""
    return ",".join(list(cuda_gpus())[:count])


def cuda_gpus() -> dict[str, dict]:
    """GPUs that CUDA would show, by number or UUID as in CUDA_VISIBLE_DEVICES: a wrong one ends the list."""
    host = _host()[0]
    every = ",".join(map(str, range(len(host))))
    visible = {}
    for key in os.environ.get("CUDA_VISIBLE_DEVICES", every).split(","):
        key = key.strip()
        matches = [gpu for number, gpu in enumerate(host) if str(number) == key]
        if key.startswith("GPU-"):
            matches = [gpu for gpu in host if gpu["uuid"].startswith(key)]
        if len(matches) != 1:
            break
        visible[key] = matches[0]
    return visible


@cache
def _host() -> tuple[list[dict], str]:
    """GPUs of the host in the order of their slots: `uuid`, `driver`, `name`; if there is none, why."""
    text, why = _nvidia_smi("--query-gpu=uuid,driver_version,name", "--format=csv,noheader")
    rows = [line.split(", ", 2) for line in text.splitlines()]
    gpus = [dict(zip(("uuid", "driver", "name"), row, strict=True)) for row in rows if len(row) == 3]
    return gpus, why or f"nvidia-smi lists no GPU: {text.strip()}"


def probe() -> dict:
    """`machine` and `software` of a recording; imports torch, so it is called in a process of its own."""
    import torch

    cards = [torch.cuda.get_device_properties(i) for i in range(torch.cuda.device_count())]
    links = []
    details = {}
    nccl = None
    if cards:
        links = _links()
        details = _details(links)
        nccl = ".".join(map(str, torch.cuda.nccl.version()))
    cudnn = None
    if torch.backends.cudnn.is_available():
        cudnn = torch.backends.cudnn.version()
    return {
        "machine": {
            "gpus": [_gpu(card) | details.get(f"GPU-{card.uuid}", {}) for card in cards],
            "host_gpus": here()["host_gpus"],
            "driver": here()["driver"] if cards else None,
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
            "cudnn": cudnn,
            "nccl": nccl,
        },
    }


def free_gib() -> float:
    """GiB of the first GPU that a process can have; imports torch, so it is called in a process of its own.

    Its own CUDA context, which each process needs, does not count as free.
    """
    import torch

    free, total = torch.cuda.mem_get_info(0)
    return min(free, torch.cuda.get_per_process_memory_fraction(0) * total) / 2**30


def _gpu(properties) -> dict:
    """One GPU by what PyTorch knows of it; what it does not know is left out."""
    gpu = {
        "name": properties.name,
        "memory_bytes": properties.total_memory,
        "capability": f"{properties.major}.{properties.minor}",
    }
    for key, (attribute, unit) in _ATTRIBUTES.items():
        value = getattr(properties, attribute, None)
        if value:
            gpu[key] = number(value / unit)
    return gpu


def number(text: str | float) -> float | None:
    """A number, whole where it is; None for what is none, such as `[N/A]`."""
    try:
        value = float(text)
    except ValueError:
        return None
    return int(value) if value.is_integer() else value


def _details(links: list[str]) -> dict[str, dict]:
    """The fields and NVLinks of each GPU of the host, by UUID."""
    details = {}
    for uuid, cells in query(list(FIELDS.values())).items():
        values = zip(FIELDS, map(number, cells), strict=True)
        details[uuid] = {key: value for key, value in values if value is not None}
    for gpu, count in zip(_host()[0], _nvlinks(links), strict=False):
        details.setdefault(gpu["uuid"], {})["nvlinks"] = count
    return details


def query(fields: list[str]) -> dict[str, list[str]]:
    """What nvidia-smi says in these fields, by the UUID of each GPU; nothing where it cannot be asked."""
    text, _ = _nvidia_smi(f"--query-gpu={','.join(['uuid', *fields])}", "--format=csv,noheader,nounits")
    rows = [line.split(", ") for line in text.splitlines()]
    return {row[0]: row[1:] for row in rows if len(row) == 1 + len(fields)}


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
    """Eight hex digits that tell hosts apart: a digest of the GPUs' UUIDs, or of the system."""
    system = _text("/etc/machine-id") or _text("/proc/sys/kernel/random/boot_id")
    names = sorted(gpu["uuid"] for gpu in _host()[0]) or [platform.node(), system]
    return hashlib.sha256(" ".join(["overlap", *names]).encode()).hexdigest()[:8]


def _links() -> list[str]:
    """The table of links between GPUs, without its underlines."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", _nvidia_smi("topo", "-m")[0])
    return [line.rstrip() for line in text.splitlines() if line.strip()]


def _nvidia_smi(*arguments: str) -> tuple[str, str]:
    """What the tool printed; if it failed, nothing and why."""
    try:
        tool = subprocess.run(
            ["nvidia-smi", *arguments], capture_output=True, text=True, errors="replace", timeout=20
        )
    except FileNotFoundError:
        return "", "there is no nvidia-smi"
    except (OSError, subprocess.TimeoutExpired) as error:
        return "", f"nvidia-smi: {error}"
    if tool.returncode:
        return "", f"nvidia-smi failed: {tool.stdout.strip()}"
    return tool.stdout, ""


def _cpu_model() -> str:
    model = re.search(r"^model name\s*:(.*)", _text("/proc/cpuinfo"), re.M)
    return model[1].strip() if model else platform.processor() or platform.machine()


def _text(path: str) -> str:
    with contextlib.suppress(OSError):
        return Path(path).read_text(encoding="utf-8").strip()
    return ""
