"""What a machine is called and what a recording says of it."""

from types import SimpleNamespace

import pytest
import torch

from overlap import OverlapError
from overlap.book.ceiling import ceilings
from overlap.run import machine

H200, RTX, A100 = "NVIDIA H200", "NVIDIA GeForce RTX 4090", "NVIDIA A100-SXM4-80GB"


@pytest.mark.parametrize(
    ("gpus", "name", "label"),
    [
        ([], "cpu", "CPU"),
        ([H200], "h200", "1 × H200"),
        ([H200] * 8, "h200-x8", "8 × H200"),
        (["NVIDIA GeForce RTX 4090"], "rtx-4090", "1 × RTX 4090"),
        (["NVIDIA H100 80GB HBM3"] * 2, "h100-80gb-hbm3-x2", "2 × H100 80GB HBM3"),
        (["Tesla V100-SXM2-16GB"], "v100-sxm2-16gb", "1 × V100 SXM2 16GB"),
        (["../../etc"], "etc", "1 × ETC"),
        ([RTX, A100], "rtx-4090+a100-sxm4-80gb", "1 × RTX 4090 + 1 × A100 SXM4 80GB"),
        ([RTX, A100, A100], "rtx-4090+a100-sxm4-80gb-x2", "1 × RTX 4090 + 2 × A100 SXM4 80GB"),
        ([H200, RTX, H200], "h200+rtx-4090+h200", "1 × H200 + 1 × RTX 4090 + 1 × H200"),
    ],
)
def test_names(gpus, name, label):
    assert (machine.profile(gpus), machine.label(name)) == (name, label)


@pytest.mark.parametrize("gpu", ["", "NVIDIA", "中", "CPU", "NVIDIA CPU", "NVIDIA H200 x2", "H200-X16", "x2 -x2"])
def test_a_gpu_is_not_named_like_another_machine(gpu):
    with pytest.raises(OverlapError, match=f"GPU {gpu!r}: no profile can be named after it"):
        machine.profile([H200, gpu])


def test_order():
    names = ["cpu", "h200", "rtx-4090", "h200-x2", "rtx-4090+h200", "rtx-4090+h200-x2", "h200-x4", "h200-x16"]
    assert sorted(reversed(names), key=machine.order) == names


@pytest.fixture
def tool(tmp_path, monkeypatch):
    """Writes an `nvidia-smi` that lists these GPUs, or is this script."""

    def write(gpus: list[str] = (H200,) * 4, script: str | bytes = "") -> None:
        rows = "".join(f"echo 'GPU-{i}{i}aa-{i}, 580.{i}, {name}'\n" for i, name in enumerate(gpus))
        topology = '[ "$1" = topo ] && printf "\\033[4mGPU0\\033[0m NV18  \\n\\nGPU1\\n" && exit\n'
        path = tmp_path / "nvidia-smi"
        script = script or f"#!/bin/sh\n{topology}{rows}"
        path.write_bytes(script if isinstance(script, bytes) else script.encode())
        path.chmod(0o755)

    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    for cached in (machine.here, machine._host):
        cached.cache_clear()
    yield write
    for cached in (machine.here, machine._host):
        cached.cache_clear()


VISIBLE = {
    None: ("0123", "0,1"),
    "": ("", ""),
    "-1": ("", ""),
    "2": ("2", "2"),
    " 3 ,1,2": ("312", "3,1"),
    "1,9,0": ("1", "1"),
    "1,-1,0": ("1", "1"),
    "1,,0": ("1", "1"),
    "1,0,1": ("", ""),
    "NoDevFiles": ("", ""),
    "GPU-22aa-2": ("2", "GPU-22aa-2"),
    "GPU-3,GPU-00aa,GPU-9,GPU-1": ("30", "GPU-3,GPU-00aa"),
    "GPU-": ("", ""),
    "MIG-1": ("", ""),
}


@pytest.mark.parametrize("visible", VISIBLE)
def test_the_gpus_that_cuda_would_show(tool, monkeypatch, visible):
    tool(["NVIDIA A", "NVIDIA B", "NVIDIA C", "NVIDIA D"])
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    shown, two = VISIBLE[visible]
    here = machine.here()
    assert here["gpus"] == [f"NVIDIA {'ABCD'[int(i)]}" for i in shown]
    assert (here["host_gpus"], here["driver"]) == (4, f"580.{shown[:1] or 0}")
    assert machine.visible_devices(2) == two
    assert here["versions"]["torch"].partition("+")[0] == torch.__version__.partition("+")[0]
    hidden = f"none (CUDA_VISIBLE_DEVICES={visible} hides NVIDIA A, NVIDIA B, NVIDIA C, NVIDIA D)"
    assert shown or machine.described() == hidden


def test_the_second_of_two_unlike_gpus(tool, monkeypatch):
    tool([RTX, A100])
    assert machine.described() == f"1 × RTX 4090 + 1 × A100 SXM4 80GB ({RTX}, {A100})"
    machine.here.cache_clear()
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert machine.profile(machine.here()["gpus"]) == "a100-sxm4-80gb"


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("#!/bin/sh\necho 'NVIDIA-SMI has failed, sorry'\nexit 9\n", "nvidia-smi failed: NVIDIA-SMI has failed, sorry"),
        ("#!/bin/sh\nsleep 60\n", "nvidia-smi did not answer within 0.5 s"),
        ("#!/bin/sh\necho 'No devices were found'\n", "nvidia-smi lists no GPU: No devices were found"),
        (b"#!/bin/sh\nprintf '\xff\xfe\n'\n", "nvidia-smi lists no GPU: \ufffd\ufffd"),
        (b"\x7fELF nothing that runs", "nvidia-smi cannot be run: Exec format error"),
    ],
)
def test_without_a_working_nvidia_smi_there_is_no_gpu(tool, monkeypatch, script, why):
    monkeypatch.setattr(machine, "_SMI_S", 0.5)
    tool(script=script)
    assert (machine.here()["gpus"], machine.here()["host_gpus"], machine.here()["driver"]) == ([], 0, None)
    assert machine.described() == f"none ({why})"


def test_without_nvidia_smi_there_is_no_gpu(tool, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    assert machine.here()["gpus"] == []
    assert machine.described() == "none (there is no nvidia-smi)"


def test_a_probe_on_gpus(tool, monkeypatch):
    tool()
    properties = SimpleNamespace(name=H200, major=9, minor=0, total_memory=150)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda i: properties)
    monkeypatch.setattr(torch.cuda.nccl, "version", lambda: (2, 27, 3))
    found = machine.probe()
    assert found["machine"]["gpus"] == [{"name": H200, "memory_bytes": 150, "capability": "9.0"}] * 2
    assert (found["machine"]["driver"], found["machine"]["links"]) == ("580.0", ["GPU0 NV18", "GPU1"])
    assert (found["software"]["nccl"], found["software"]["torch"]) == ("2.27.3", torch.__version__)
    assert ceilings(found["machine"])["hbm_gb_s"] == 4800


def test_ceilings_of_unknown_machines_are_empty():
    assert ceilings({"gpus": []}) == ceilings({"gpus": [{"name": "NVIDIA H9000"}]}) == {}
