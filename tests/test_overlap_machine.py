"""What a machine is called and what a recording says of it."""

from collections.abc import Sequence
from types import SimpleNamespace

import pytest
import torch

pytest.importorskip("pydantic")

from overlap.book.ceiling import ceilings
from overlap.run import hardware, schema

H200, RTX, A100 = "NVIDIA H200", "NVIDIA GeForce RTX 4090", "NVIDIA A100-SXM4-80GB"


@pytest.mark.parametrize(
    ("gpus", "name", "label"),
    [
        ([], "cpu", "CPU"),
        ([H200], "h200", "1 × H200"),
        ([H200] * 8, "h200-x8", "8 × H200"),
        (["NVIDIA H100 80GB HBM3"] * 2, "h100-80gb-hbm3-x2", "2 × H100"),
        ([RTX, A100, A100], "rtx-4090+a100-sxm4-80gb-x2", "1 × RTX 4090 + 2 × A100 SXM4"),
    ],
)
def test_names(gpus, name, label):
    assert (hardware.name_of(gpus), hardware.label(name)) == (name, label)


@pytest.mark.parametrize(
    ("cpu", "cores", "name", "label"),
    [
        ("AMD Ryzen 9 7950X 16-Core Processor", 32, "cpu-ryzen-9-7950x-32", "CPU RYZEN 9 7950X, 32 cores"),
        (
            "AMD Ryzen 7 7840U w/ Radeon 780M Graphics",
            16,
            "cpu-ryzen-7-7840u-16",
            "CPU RYZEN 7 7840U, 16 cores",
        ),
        ("Intel(R) Xeon(R) CPU @ 2.20GHz", 4, "cpu-xeon-4", "CPU XEON, 4 cores"),
        ("12th Gen Intel(R) Core(TM) i7-12700H", 20, "cpu-core-i7-12700h-20", "CPU CORE I7 12700H, 20 cores"),
    ],
)
def test_names_of_processors(cpu, cores, name, label):
    assert hardware.cpu_name(cpu, cores) == name
    assert hardware.label(name) == label and hardware.is_cpu(name)


def test_order():
    names = [
        "cpu",
        "cpu-epyc-2",
        "h200",
        "rtx-4090",
        "h200-x2",
        "rtx-4090+h200",
        "rtx-4090+h200-x2",
        "h200-x4",
    ]
    assert sorted(reversed(names), key=hardware.order) == names


@pytest.fixture
def tool(tmp_path, monkeypatch):
    """Writes an `nvidia-smi` that lists these GPUs, or is this script."""

    def write(gpus: Sequence[str] = (H200,) * 4, script: str | bytes = "") -> None:
        rows = "".join(f"echo 'GPU-{i}{i}aa-{i}, 580.{i}, {name}'\n" for i, name in enumerate(gpus))
        topology = '[ "$1" = topo ] && printf "\\033[4mGPU0\\033[0m NV18  \\n\\nGPU1\\n" && exit\n'
        path = tmp_path / "nvidia-smi"
        script = script or f"#!/bin/sh\n{topology}{rows}"
        path.write_bytes(script if isinstance(script, bytes) else script.encode())
        path.chmod(0o755)

    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    for cached in (hardware.here, hardware._host):
        cached.cache_clear()
    yield write
    for cached in (hardware.here, hardware._host):
        cached.cache_clear()


VISIBLE = {
    None: ("0123", "0,1"),
    "": ("", ""),
    "2": ("2", "2"),
    " 3 ,1,2": ("312", "3,1"),
    "1,9,0": ("1", "1"),
    "GPU-22aa-2": ("2", "GPU-22aa-2"),
    "GPU-3,GPU-00aa,GPU-9,GPU-1": ("30", "GPU-3,GPU-00aa"),
}


@pytest.mark.parametrize("visible", VISIBLE)
def test_the_gpus_that_cuda_would_show(tool, monkeypatch, visible):
    tool(["NVIDIA A", "NVIDIA B", "NVIDIA C", "NVIDIA D"])
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    shown, two = VISIBLE[visible]
    here = hardware.here()
    assert here["gpus"] == [f"NVIDIA {'ABCD'[int(i)]}" for i in shown]
    assert (here["host_gpus"], here["driver"]) == (4, "580.0")
    assert hardware.visible_devices(2) == two
    assert here["versions"]["torch"].partition("+")[0] == torch.__version__.partition("+")[0]
    hidden = f"none (CUDA_VISIBLE_DEVICES={visible} hides NVIDIA A, NVIDIA B, NVIDIA C, NVIDIA D)"
    assert shown or hardware.described() == hidden


def test_the_second_of_two_unlike_gpus(tool, monkeypatch):
    tool([RTX, A100])
    assert hardware.described() == f"1 × RTX 4090 + 1 × A100 SXM4 ({RTX}, {A100})"
    hardware.here.cache_clear()
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert hardware.name_of(hardware.here()["gpus"]) == "a100-sxm4-80gb"


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("#!/bin/sh\necho 'it has failed, sorry'\nexit 9\n", "nvidia-smi failed: it has failed, sorry"),
        ("#!/bin/sh\necho 'No devices were found'\n", "nvidia-smi lists no GPU: No devices were found"),
        (b"\x7fELF nothing that runs", "nvidia-smi: [Errno 8] Exec format error: 'nvidia-smi'"),
    ],
)
def test_without_a_working_nvidia_smi_there_is_no_gpu(tool, script, why):
    tool(script=script)
    assert (hardware.here()["gpus"], hardware.here()["host_gpus"], hardware.here()["driver"]) == ([], 0, None)
    assert hardware.described() == f"none ({why})"


def test_without_nvidia_smi_there_is_no_gpu(tool, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    assert hardware.here()["gpus"] == []
    assert hardware.described() == "none (there is no nvidia-smi)"


#: `nvidia-smi` of two GPUs, the second in a slot of half the width; of other fields it knows nothing.
SMI = """#!/bin/sh
clocks_max_sm='1980 1980' pcie_link_gen_max='5 5' pcie_link_width_current='16 8' pcie_link_width_max='16 16'
power_limit='700.00 [N/A]'
case "$*" in
topo*) printf '\\tGPU0\\tGPU1\\tCPU\\nGPU0\\t X \\tNV18\\t0-63\\nGPU1\\tNV18\\t X \\t0-63\\n'
  printf '  NV#  = links\\n' ;;
*driver_version*) printf 'GPU-00aa-0, 580.0, NVIDIA H200\\nGPU-11aa-1, 580.0, NVIDIA H200\\n' ;;
*) first=GPU-00aa-0 second=GPU-11aa-1
  for field in $(echo "$1" | sed 's/.*uuid,//; s/[.]/_/g; s/,/ /g'); do
    eval "said=\\${$field-[N/A] [N/A]}"
    first="$first, ${said%% *}" second="$second, ${said#* }"
  done
  printf '%s\\n%s\\n' "$first" "$second" ;;
esac
"""
ATTRIBUTES = {
    "multi_processor_count": 132,
    "clock_rate": 1_980_000,
    "memory_clock_rate": 3_201_000,
    "memory_bus_width": 6016,
    "L2_cache_size": 62_914_560,
}
SAID = {
    "sms": 132,
    "clock_mhz": 1980,
    "memory_clock_mhz": 3201,
    "memory_bus_bits": 6016,
    "l2_bytes": 62_914_560,
}
CARD = {"name": H200, "memory_bytes": 150, "capability": "9.0"}


@pytest.fixture
def probe(tool, monkeypatch):
    """Probes a machine of GPUs with these attributes."""

    def found(*cards: dict) -> dict:
        properties = [
            SimpleNamespace(name=H200, major=9, minor=0, total_memory=150, **card) for card in cards
        ]
        monkeypatch.setattr(torch.cuda, "device_count", lambda: len(cards))
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda i: properties[i])
        monkeypatch.setattr(torch.cuda.nccl, "version", lambda: (2, 27, 3))
        made = hardware.probe()
        schema.Machine.model_validate(made["machine"])
        return made

    return found


def test_a_probe_on_gpus_that_say_little(tool, probe):
    tool()
    found = probe({"uuid": "00aa-0"}, {"uuid": "11aa-1"})
    assert found["machine"]["gpus"] == [CARD | {"nvlinks": 18}, CARD | {"nvlinks": 0}]
    assert (found["machine"]["driver"], found["machine"]["links"]) == ("580.0", ["GPU0 NV18", "GPU1"])
    assert (found["software"]["nccl"], found["software"]["torch"]) == ("2.27.3", torch.__version__)
    assert ceilings(found["machine"])["hbm_gb_s"] == 4814


def test_a_probe_on_gpus_that_say_all(tool, probe):
    """PyTorch numbers them the other way round: they are told apart by UUID."""
    tool(script=SMI)
    second, first = probe(ATTRIBUTES | {"uuid": "11aa-1"}, ATTRIBUTES | {"uuid": "00aa-0"})["machine"]["gpus"]
    link = {
        "clock_max_mhz": 1980,
        "pcie_generation": 5,
        "pcie_width": 16,
        "pcie_width_max": 16,
        "nvlinks": 18,
    }
    assert first == CARD | SAID | link | {"power_limit_w": 700}
    assert second == CARD | SAID | link | {"pcie_width": 8}


def test_a_recording_may_hold_each_number_that_is_asked_of_a_gpu():
    assert {"name", "capability", *hardware.NUMBERS} == schema.Gpu.model_fields.keys()


MODELS = {
    "h200": ("h200", ["H200"]),
    "h200-x2": ("h200", ["H200"]),
    "h100-80gb-hbm3-x4": ("h100-80gb-hbm3", ["H100"]),
    "rtx-4090+h200-x2": ("rtx-4090+h200", ["RTX 4090", "H200"]),
    "rtx-a6000": ("rtx-a6000", ["RTX A6000"]),
    "titan-v": ("titan-v", ["TITAN V"]),
    "cpu": ("cpu", ["CPU"]),
    "cpu-ryzen-9-7950x-32": ("cpu-ryzen-9-7950x-32", ["CPU"]),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_machine_has_a_model_and_sentences_call_it_by_that(name):
    assert (hardware.model(name), hardware.called(name)) == MODELS[name]


def test_hosts_are_told_apart_and_not_named(tool, monkeypatch):
    tool()
    four, files = hardware._host_mark(), {"/etc/machine-id": "secret"}
    monkeypatch.setattr(hardware, "_text", lambda path: files.get(path, ""))
    assert hardware._host_mark() == four, "GPUs are enough"
    tool([H200] * 2)
    hardware._host.cache_clear()
    marks = [four, hardware._host_mark()]
    monkeypatch.setenv("PATH", "/nowhere")
    hardware._host.cache_clear()
    marks.append(hardware._host_mark())
    for others in ({"/etc/machine-id": "other"}, {"/proc/sys/kernel/random/boot_id": "third"}, {}):
        files.clear()
        files.update(others)
        marks.append(hardware._host_mark())
    assert len(set(marks)) == 6 and all(len(mark) == 8 and int(mark, 16) >= 0 for mark in marks)


@pytest.mark.parametrize(
    ("text", "virtual", "model"),
    [
        ("model name\t: Xeon\nflags\t\t: fpu hypervisor sse\n", True, "Xeon"),
        ("model name\t: A: B\nflags\t\t: fpu sse\n", False, "A: B"),
        ("Features\t: fp asimd\n", None, None),
    ],
)
def test_what_the_cpu_says(monkeypatch, text, virtual, model):
    monkeypatch.setattr(hardware, "_text", lambda path: text if path == "/proc/cpuinfo" else "")
    assert hardware._virtual() is virtual
    assert hardware._cpu_model() == model or model is None
