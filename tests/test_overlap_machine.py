"""What a machine is called and what a recording says of it."""

from types import SimpleNamespace

import pytest
import torch

from overlap.book.ceiling import ceilings
from overlap.run import machine

H200 = "NVIDIA H200"


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
    ],
)
def test_names(gpus, name, label):
    assert (machine.profile(gpus), machine.label(name)) == (name, label)


def test_order():
    assert sorted(["h200-x2", "rtx-4090", "h200", "cpu", "h200-x16"], key=machine.order) == [
        "cpu",
        "h200",
        "rtx-4090",
        "h200-x2",
        "h200-x16",
    ]


@pytest.fixture
def four_gpus(tmp_path, monkeypatch):
    """An `nvidia-smi` that knows four H200."""
    tool = tmp_path / "nvidia-smi"
    tool.write_text(
        '#!/bin/sh\n[ "$1" = topo ] && printf "\\033[4mGPU0\\033[0m NV18  \\n\\nGPU1\\n" && exit\n'
        "for i in 1 2 3 4; do echo 'NVIDIA H200, 580.1'; done\n"
    )
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    machine.here.cache_clear()
    yield tool
    machine.here.cache_clear()


@pytest.mark.parametrize(
    ("visible", "count", "two"), [(None, 4, "0,1"), ("", 0, ""), ("2", 1, "2"), ("3,1,2", 3, "3,1"), ("-1", 0, "")]
)
def test_visible_gpus(four_gpus, monkeypatch, visible, count, two):
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    here = machine.here()
    assert here["gpus"] == [H200] * count
    assert (here["host_gpus"], here["driver"]) == (4, "580.1")
    assert machine.visible_devices(2) == two
    assert here["versions"]["torch"].partition("+")[0] == torch.__version__.partition("+")[0]


def test_a_failing_nvidia_smi_is_no_gpu(four_gpus):
    four_gpus.write_text("#!/bin/sh\necho 'NVIDIA-SMI has failed, sorry'\nexit 9\n")
    assert (machine.here()["gpus"], machine.here()["driver"]) == ([], None)


def test_a_probe_on_gpus(four_gpus, monkeypatch):
    properties = SimpleNamespace(name=H200, major=9, minor=0, total_memory=150)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda i: properties)
    monkeypatch.setattr(torch.cuda.nccl, "version", lambda: (2, 27, 3))
    found = machine.probe()
    assert found["machine"]["gpus"] == [{"name": H200, "memory_bytes": 150, "capability": "9.0"}] * 2
    assert (found["machine"]["driver"], found["machine"]["links"]) == ("580.1", ["GPU0 NV18", "GPU1"])
    assert (found["software"]["nccl"], found["software"]["torch"]) == ("2.27.3", torch.__version__)
    assert ceilings(found["machine"])["hbm_gb_s"] == 4800


def test_ceilings_of_unknown_machines_are_empty():
    assert ceilings({"gpus": []}) == ceilings({"gpus": [{"name": "NVIDIA H9000"}]}) == {}
