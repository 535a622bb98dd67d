"""The machine chapter: what runs the code, and what pycuda, PyTorch and NVML say about the GPUs."""

import json
import sys
from dataclasses import asdict
from types import ModuleType, SimpleNamespace

import pytest
import torch

from snippets.machine import device_card, env_report
from snippets.machine.device_card import DeviceCard

H200 = DeviceCard("NVIDIA H200", "9.0", 132, 150_000_000_000, 62_914_560)


@pytest.fixture
def two_gpus(monkeypatch):
    """Stand-ins for pycuda, torch.cuda and pynvml on a machine of two H200s; returns the initialising calls."""
    calls = []

    class Device:
        multiprocessor_count, l2_cache_size = H200.sms, H200.l2_bytes

        def __init__(self, index):
            self.index = index

        count = staticmethod(lambda: 2)
        name = staticmethod(lambda: H200.name)
        compute_capability = staticmethod(lambda: (9, 0))
        total_memory = staticmethod(lambda: H200.memory_bytes)
        get_attributes = staticmethod(lambda: {"ASYNC_ENGINE_COUNT": 3, "WARP_SIZE": 32})

        def can_access_peer(self, other):
            return self.index < other.index

    pycuda, driver = ModuleType("pycuda"), ModuleType("pycuda.driver")
    pycuda.driver, driver.Device, driver.init = driver, Device, lambda: calls.append("cuInit")
    monkeypatch.setitem(sys.modules, "pycuda", pycuda)
    monkeypatch.setitem(sys.modules, "pycuda.driver", driver)

    def properties(index):
        names = {"name": H200.name, "major": 9, "minor": 0, "uuid": f"uuid-{index}", "L2_cache_size": H200.l2_bytes}
        return SimpleNamespace(multi_processor_count=H200.sms, total_memory=H200.memory_bytes, **names)

    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_device_properties", properties)
    monkeypatch.setattr(torch.cuda, "can_device_access_peer", lambda a, b: a > b)

    nvml = ModuleType("pynvml")
    nvml.NVMLError, nvml.NVML_NVLINK_MAX_LINKS = type("NVMLError", (Exception,), {}), 20

    def link_state(handle, link):
        if link >= 18:
            raise nvml.NVMLError("invalid argument")
        return 1 if handle == "GPU-uuid-0" else int(link < 4)

    nvml.nvmlInit = lambda: calls.append("nvmlInit")
    nvml.nvmlDeviceGetHandleByUUID = lambda uuid: uuid
    nvml.nvmlDeviceGetNvLinkState = link_state
    nvml.nvmlDeviceGetCudaComputeCapability = lambda handle: [9, 0]
    nvml.nvmlDeviceGetNumGpuCores = lambda handle: 132 * 128
    nvml.nvmlDeviceGetName = lambda handle: H200.name
    nvml.nvmlDeviceGetMemoryInfo = lambda handle: SimpleNamespace(total=151_000_000_000)
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    return calls


def test_the_three_sources_fill_the_same_card(two_gpus):
    assert device_card.ask_pycuda()["cards"] == [H200, H200]
    assert device_card.ask_torch()["cards"] == [H200, H200]
    assert device_card.ask_nvml()["cards"] == [DeviceCard("NVIDIA H200", "9.0", 132, 151_000_000_000, 0)] * 2
    assert two_gpus == ["cuInit", "nvmlInit"], "the driver is initialised and no context is made"


def test_an_sm_of_an_a100_has_64_cores(two_gpus):
    nvml = sys.modules["pynvml"]
    nvml.nvmlDeviceGetCudaComputeCapability, nvml.nvmlDeviceGetNumGpuCores = lambda gpu: [8, 0], lambda gpu: 108 * 64
    assert DeviceCard.from_nvml("handle", nvml).sms == 108


def test_peers_and_links_of_each_gpu(two_gpus):
    assert device_card.ask_pycuda()["peers"] == [True, False]
    assert device_card.ask_torch()["peers"] == [False, True]
    assert device_card.ask_nvml()["nvlinks"] == [18, 4], "links that do not exist count as none"


def test_card_main_returns_one_list_per_field(two_gpus, capsys):
    result = device_card.main()
    assert result["pycuda"]["attributes"] == {"ASYNC_ENGINE_COUNT": 3, "WARP_SIZE": 32}
    for field, value in asdict(H200).items():
        assert result["pycuda"][field] == result["torch"][field] == [value, value]
    assert [result[source]["missing"] for source in ("pycuda", "torch", "nvml")] == ["", "", ""]
    told = capsys.readouterr().out
    assert told.count("NVIDIA H200") == 6 and "2 attributes, 1 of 2 GPU pairs" in told and "GPU: 18 4" in told
    json.dumps(result, allow_nan=False)


def test_a_driver_that_is_missing_is_named_and_the_others_still_answer(two_gpus, monkeypatch, capsys):
    """Without libcuda `import pycuda` succeeds and `import pycuda.driver` raises ImportError."""
    pycuda = ModuleType("pycuda")
    pycuda.__path__ = []
    monkeypatch.setitem(sys.modules, "pycuda", pycuda)
    monkeypatch.delitem(sys.modules, "pycuda.driver")
    result = device_card.main()
    assert result["pycuda"]["missing"] == "ModuleNotFoundError: No module named 'pycuda.driver'"
    assert result["pycuda"]["name"] == [] and result["pycuda"]["attributes"] == {}
    assert result["torch"]["name"] == ["NVIDIA H200"] * 2
    assert "pycuda  missing, ModuleNotFoundError" in capsys.readouterr().out


def test_only_the_first_sentence_of_an_error_is_kept():
    def ask():
        raise RuntimeError("Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU")

    assert device_card.answer(ask)["missing"] == "RuntimeError: Found no NVIDIA driver on your system"


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_without_a_gpu_each_source_says_what_is_missing(capsys):
    result = device_card.main()
    told = capsys.readouterr().out
    for source in ("pycuda", "torch", "nvml"):
        assert result[source]["missing"] and result[source]["sms"] == []
        assert f"{source:8}missing, {result[source]['missing']}" in told


@pytest.mark.gpu
def test_pycuda_and_torch_agree_on_this_gpu():
    cuda = pytest.importorskip("pycuda.driver", exc_type=ImportError)
    cuda.init()
    by_pycuda, by_torch = (
        DeviceCard.from_pycuda(cuda.Device(0)),
        DeviceCard.from_torch(torch.cuda.get_device_properties(0)),
    )
    assert by_pycuda == by_torch
    assert len(device_card.ask_pycuda()["attributes"]) > 90


@pytest.mark.gpu
def test_nvml_finds_the_gpu_that_torch_sees():
    pytest.importorskip("pynvml")
    card = device_card.ask_nvml()["cards"][0]
    properties = torch.cuda.get_device_properties(0)
    assert (card.name, card.sms) == (properties.name, properties.multi_processor_count)
    assert card.memory_bytes == pytest.approx(properties.total_memory, rel=0.02)


def test_recorded_cards_have_one_entry_per_gpu(recorded):
    for profile, result in recorded("machine/device_card").items():
        gpus = 0 if profile == "cpu" else int(profile.rpartition("-x")[2] if "-x" in profile else 1)
        for source in ("pycuda", "torch", "nvml"):
            said = result[source]
            assert len(said["name"]) == len(said["sms"]) == len(said["memory_bytes"]) == gpus, (profile, source)
            assert bool(said["missing"]) == (gpus == 0), (profile, source)
        assert len(result["torch"]["peers"]) == len(result["pycuda"]["peers"]) == gpus * max(gpus - 1, 0)
        assert not gpus or result["pycuda"]["attributes"]["MULTIPROCESSOR_COUNT"] == result["pycuda"]["sms"][0]


@pytest.mark.parametrize(
    ("number", "text"),
    [(None, "not in this build"), (8902, "8.9.2"), (90100, "9.1.0"), (91900, "9.19.0"), (91002, "9.10.2")],
)
def test_cudnn_version(number, text):
    assert env_report.cudnn_version(number) == text


def test_installed_and_absent_packages():
    assert env_report.installed("torch").startswith(torch.__version__.partition("+")[0])
    assert env_report.installed("no-such-package-here") == "not installed"


def test_nccl_version_is_joined_or_absent(monkeypatch):
    monkeypatch.setattr(torch.distributed, "is_nccl_available", lambda: True)
    monkeypatch.setattr(torch.cuda.nccl, "version", lambda: (2, 27, 5))
    assert env_report.nccl_version() == "2.27.5"
    monkeypatch.setattr(torch.distributed, "is_nccl_available", lambda: False)
    assert env_report.nccl_version() == "not in this build"


def test_cores_are_those_this_process_may_use(monkeypatch):
    monkeypatch.setattr(env_report.os, "sched_getaffinity", lambda pid: {0, 3, 5}, raising=False)
    assert env_report.usable_cores() == 3
    monkeypatch.delattr(env_report.os, "sched_getaffinity")
    monkeypatch.setattr(env_report.os, "cpu_count", lambda: 8)
    assert env_report.usable_cores() == 8


def test_env_main_reports_this_process(capsys):
    result = env_report.main()
    told = capsys.readouterr().out
    assert result["versions"]["torch"] == torch.__version__ and f"torch       {torch.__version__}" in told
    assert result["device"] == env_report.accelerator_or_cpu().type
    assert len(result["gpus_visible"]) == torch.cuda.device_count() and "GPUs visible: " in told
    assert result["threads"] == torch.get_num_threads() and result["cores_usable"] >= 1
    json.dumps(result, allow_nan=False)


def test_recorded_reports_name_their_device(recorded):
    for profile, result in recorded("machine/env_report").items():
        assert result["device"] == ("cpu" if profile == "cpu" else "cuda")
        assert (len(result["gpus_visible"]) == 0) == (profile == "cpu")
        assert set(result["versions"]) == {"python", "torch", "cuda", "cudnn", "nccl", "triton", "numpy"}
