"""The machine chapter: what runs the code, and what pycuda, PyTorch and NVML say about the GPUs."""

import contextlib
import json
import os
import sys
from dataclasses import asdict
from statistics import median
from types import ModuleType, SimpleNamespace

import matplotlib
import pytest
import torch

from snippets.machine import (
    clock_under_load,
    cpu_peak,
    device_card,
    env_report,
    hbm_bandwidth,
    latency_ladder,
    launch_cost,
    matmul_peak,
)
from snippets.machine.device_card import DeviceCard

matplotlib.use("Agg")

H200 = DeviceCard("NVIDIA H200", "9.0", 132, 150_000_000_000, 62_914_560)


CEILINGS = {"bf16_tflop_s": 1071, "tf32_tflop_s": 535.3, "fp32_tflop_s": 66.91, "hbm_gb_s": 4814, "clock_mhz": 1980}


class Gpu:
    """Two clocks in seconds: what the CPU reads, and when the GPU will have done all it was given."""

    def __init__(self):
        self.now = self.done = 0.0

    def launch(self, gpu_s: float = 0.0, cpu_s: float = 10e-6) -> None:
        self.now += cpu_s
        self.done = max(self.done, self.now) + gpu_s

    def wait(self, device=None) -> None:
        self.now = max(self.now, self.done)

    def event(self, enable_timing: bool = False) -> SimpleNamespace:
        event = SimpleNamespace(at=0.0, synchronize=self.wait)
        event.record = lambda: setattr(event, "at", max(self.now, self.done))
        event.query = lambda: self.now >= event.at
        event.elapsed_time = lambda end: 1e3 * (end.at - event.at)
        return event


@pytest.fixture
def gpu(monkeypatch) -> Gpu:
    """A GPU whose kernels take the time they are told to take; tensors are on the CPU."""
    gpu = Gpu()

    def anywhere(make):
        return lambda *args, device=None, pin_memory=None, **options: make(*args, **options)

    for name in ("empty", "zeros", "randn", "empty_like"):
        monkeypatch.setattr(torch, name, anywhere(getattr(torch, name)))
    monkeypatch.setattr(torch.cuda, "Event", gpu.event)
    monkeypatch.setattr(torch.cuda, "_sleep", lambda cycles: gpu.launch(cycles / 2e9))
    monkeypatch.setattr(torch.cuda, "synchronize", gpu.wait)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    for module in (launch_cost, latency_ladder):
        monkeypatch.setattr(module.time, "perf_counter", lambda: gpu.now)
    return gpu


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


def test_copy_and_triad_move_two_and_three_tensors():
    a, b, c = torch.zeros(4), torch.arange(4.0), torch.ones(4)
    hbm_bandwidth.copy(a, b, c)
    assert a.tolist() == [0, 1, 2, 3]
    hbm_bandwidth.triad(a, b, c)
    assert a.tolist() == [3, 4, 5, 6]
    assert [hbm_bandwidth.MOVED[kernel] for kernel in (hbm_bandwidth.copy, hbm_bandwidth.triad)] == [2, 3]


def test_bandwidth_is_timed_on_the_gpu_without_the_launches(gpu):
    assert hbm_bandwidth.gpu_us(lambda: gpu.launch(5e-6, cpu_s=20e-6)) == pytest.approx(5)


def test_bytes_are_counted_read_and_written_and_the_result_is_checked(gpu, monkeypatch):
    monkeypatch.setattr(hbm_bandwidth, "gpu_us", lambda work: work() or 2.0)
    assert hbm_bandwidth.trials_gb_s(hbm_bandwidth.copy, 1000) == [pytest.approx(2 * 1000 / 2e-6 / 1e9)] * 7
    assert hbm_bandwidth.trials_gb_s(hbm_bandwidth.triad, 1000)[0] == pytest.approx(3 * 1000 / 2e-6 / 1e9)
    monkeypatch.setattr(hbm_bandwidth, "gpu_us", lambda work: 2.0)
    with pytest.raises(AssertionError, match="triad of 1000 bytes is wrong"):
        hbm_bandwidth.trials_gb_s(hbm_bandwidth.triad, 1000)


def test_bandwidth_main_tells_plateau_from_hump(monkeypatch, capsys):
    import matplotlib.pyplot as plt

    rate = {size: 5000.0 if size == 2**24 else 4000.0 for size in hbm_bandwidth.SIZES}
    monkeypatch.setattr(hbm_bandwidth, "trials_gb_s", lambda kernel, size: [rate[size], 0.0, 9e9])
    properties = SimpleNamespace(L2_cache_size=60 * 2**20)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: properties)
    result = hbm_bandwidth.main()
    assert (result["copy_gb_s"], result["hump_gb_s"], result["hump_bytes"]) == (4000, 5000, 2**24)
    told = capsys.readouterr().out
    assert "    16 MiB: copy   5000 GB/s, triad   5000 GB/s" in told and "holds 60 MiB" in told
    ax = hbm_bandwidth.plot(json.loads(json.dumps(result)), CEILINGS).axes[0]
    assert [line.get_label() for line in ax.lines][:3] == ["copy", "triad", "memory, ceiling"]
    assert ax.lines[0].get_xdata()[-1] == 4096 and ax.lines[2].get_ydata()[0] == 4814
    assert ax.lines[3].get_xdata()[0] == 30, "two tensors of 30 MiB fill the cache"
    assert len(hbm_bandwidth.plot(result, {}).axes[0].lines) == 3
    plt.close("all")


def test_products_are_compared_with_float64(gpu, monkeypatch):
    x, y = matmul_peak.operands(64, torch.bfloat16)
    assert x.shape == y.shape == (64, 64) and x.dtype == torch.bfloat16 and not torch.equal(x, y)
    monkeypatch.setattr(torch, "randn", lambda *shape, **options: torch.full(shape, 1e3, dtype=options["dtype"]))
    monkeypatch.setattr(torch.Tensor, "double", lambda self: self * 2)
    with pytest.raises(AssertionError, match="not close"):
        matmul_peak.operands(64, torch.float32)


def test_a_burst_is_flop_over_gpu_time(gpu, monkeypatch):
    outs = []
    monkeypatch.setattr(torch, "mm", lambda x, y, out: outs.append(out) or gpu.launch(1e-3))
    x = torch.ones(100, 100)
    assert matmul_peak.burst(x, x, 7) == pytest.approx(2 * 100**3 / 1e-3 / 1e12)
    assert len(outs) == 7 and outs[0].shape == x.shape and outs[0] is not x


def test_the_sweep_sets_the_precision_and_gives_it_back(monkeypatch):
    seen = []
    monkeypatch.setattr(matmul_peak, "operands", lambda n, dtype: (n, dtype))
    monkeypatch.setattr(matmul_peak.time, "sleep", lambda seconds: seen.append(seconds))

    def burst(n, dtype, calls):
        seen.append((n, calls, torch.get_float32_matmul_precision()))
        return float(len(seen))

    monkeypatch.setattr(matmul_peak, "burst", burst)
    before = torch.get_float32_matmul_precision()
    rows = matmul_peak.sweep(torch.float32, "high", 2)
    assert torch.get_float32_matmul_precision() == before == "highest"
    assert seen[::2] == [0.1] * 36, "a rest before each burst"
    assert seen[1::18] == [(1024, 100, "high"), (2048, 100, "high"), (4096, 16, "high"), (8192, 2, "high")]
    assert list(rows) == ["n1024", "n2048", "n4096", "n8192"]
    assert rows["n1024"] == {"tflop_s": 12, "tflop_s_trials": [6, 8, 10, 12, 14, 16, 18]}, "two warm up"


def test_matmul_main_names_the_best_size(monkeypatch, capsys):
    import matplotlib.pyplot as plt

    monkeypatch.setattr(matmul_peak.time, "sleep", lambda seconds: None)
    monkeypatch.setattr(matmul_peak, "SIZES", (16, 32))
    monkeypatch.setattr(matmul_peak, "operands", lambda n, dtype: (torch.ones(n, n, dtype=dtype),) * 2)
    monkeypatch.setattr(matmul_peak, "burst", lambda x, y, calls: 100.0 * x.dtype.itemsize + x.shape[0])
    result = matmul_peak.main()
    assert {name: row["tflop_s"] for name, row in result["best"].items()} == {"fp32": 432, "tf32": 432, "bf16": 232}
    told = capsys.readouterr().out
    assert "fp32" in told and " n32" in told and told.count("TFLOP/s") == 3
    axes = matmul_peak.plot(json.loads(json.dumps(result)), CEILINGS).axes[0]
    assert [line.get_label() for line in axes.lines][:2] == ["fp32", "fp32, ceiling"]
    assert axes.lines[-1].get_ydata()[0] == 1071 and list(axes.lines[-2].get_ydata()) == [216.0, 232.0]
    assert len(matmul_peak.plot(result, {}).axes[0].lines) == 3
    plt.close("all")


def meters(mhz: float, seconds: float, watt: float = 700.0) -> list[tuple]:
    """What a meter says every 10 ms of a burst: another clock for the first tenth of a second, then this one, at the limit half the time."""
    times = [i / 100 for i in range(round(100 * seconds) + 1)]
    return [(at, mhz if at >= 0.1 else 1.0, watt, i % 2) for i, at in enumerate(times)]


def test_a_long_burst_knows_its_clock_and_a_short_one_does_not():
    long = clock_under_load.known(800.0, meters(1500, 0.5))
    assert long == {"tflop_s": 800, "mhz": 1500, "watt": 700, "capped": pytest.approx(0.5, abs=0.02)} | {
        "flop_per_clock": pytest.approx(800e12 / 1500e6)
    }
    for seen in (meters(1500, 0.2), [row[:1] for row in meters(1500, 0.5)], []):
        assert clock_under_load.known(800.0, seen) == {"tflop_s": 800}, "too short, or without a meter"


def test_a_summary_has_none_for_what_is_unknown():
    row = clock_under_load.summary([{"tflop_s": 9.0}, {"tflop_s": 1.0}, {"tflop_s": 3.0}, {"tflop_s": 4.0}])
    assert row == {"tflop_s": 3, "tflop_s_trials": [1, 3, 4]} | dict.fromkeys(
        ("mhz", "watt", "capped", "flop_per_clock")
    )
    known = clock_under_load.summary([{"mhz": 9}, {"mhz": 1500}, {"mhz": 1400}])
    assert (known["mhz"], known["mhz_trials"], known["watt"]) == (1450, [1500, 1400], None)


@pytest.fixture
def nvml(monkeypatch):
    """A stand-in for pynvml: the second GPU, at its power limit and a hardware slowdown."""
    nvml = ModuleType("pynvml")
    nvml.NVML_CLOCK_SM, nvml.nvmlClocksThrottleReasonSwPowerCap = 1, 4
    nvml.nvmlInit = lambda: None
    nvml.nvmlDeviceGetHandleByUUID = lambda uuid: uuid
    nvml.nvmlDeviceGetCurrentClocksThrottleReasons = lambda gpu: 12
    nvml.nvmlDeviceGetClockInfo = lambda gpu, kind: {("GPU-uuid", 1): 1485}[gpu, kind]
    nvml.nvmlDeviceGetPowerUsage = lambda gpu: 698_000
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: SimpleNamespace(uuid="uuid"))
    return nvml


def test_the_meter_reads_clock_power_and_reason(nvml):
    meter = clock_under_load.nvml_meter()
    assert meter() == (1485, 698, 1)
    nvml.nvmlDeviceGetCurrentClocksThrottleReasons = lambda gpu: 1
    assert meter() == (1485, 698, 0)


def test_the_meter_is_read_while_the_gpu_works(gpu, monkeypatch):
    """Each question advances the CPU's clock; the GPU is done after a second."""
    monkeypatch.setattr(torch, "mm", lambda x, y, out: gpu.launch(0.1))
    monkeypatch.setattr(clock_under_load.time, "perf_counter", lambda: gpu.now)
    monkeypatch.setattr(clock_under_load.time, "sleep", lambda seconds: setattr(gpu, "now", gpu.now + seconds))
    rate, seen = clock_under_load.burst(torch.ones(100, 100), 10, lambda: (1500, 700.0, 1))
    assert rate == pytest.approx(2 * 100**3 / 0.1 / 1e12)
    assert len(seen) == pytest.approx(100, abs=3) and seen[-1] == (pytest.approx(1, abs=0.03), 1500, 700, 1)
    assert clock_under_load.burst(torch.ones(10, 10), 10, tuple)[1][-1] == (pytest.approx(1, abs=0.03),)


@pytest.mark.parametrize("works", [True, False], ids=["NVML", "no NVML"])
def test_random_and_zeros_take_turns_under_the_meter(nvml, gpu, monkeypatch, capsys, works):
    import matplotlib.pyplot as plt

    def refuse(gpu):
        raise RuntimeError("Not Supported")

    if not works:
        nvml.nvmlDeviceGetPowerUsage = refuse
    order = []

    def burst(x, calls, meter):
        order.append(("random" if x.any() else "zeros", calls, x.shape[0]))
        said = meter()
        seen = [(at, *said) for at in (0.0, 0.2, 0.4)]
        return 700.0 + calls, seen if calls > 40 else seen[:1]

    monkeypatch.setattr(clock_under_load, "N", 16)
    monkeypatch.setattr(clock_under_load, "burst", burst)
    monkeypatch.setattr(clock_under_load.time, "sleep", lambda seconds: order.append(seconds))
    result = json.loads(json.dumps(clock_under_load.main(), allow_nan=False))
    assert (
        order
        == [0.5, ("random", 40, 16), 0.5, ("zeros", 40, 16)] * 6
        + [
            0.5,
            ("random", 600, 16),
            0.5,
            ("zeros", 600, 16),
        ]
        * 6
    )
    long, told = result["long"]["random"], capsys.readouterr().out
    assert (long["tflop_s"], long["mhz"], long["capped"]) == ((1300, 1485, 1) if works else (1300, None, None))
    assert len(long["tflop_s_trials"]) == 5 and result["short"]["zeros"]["mhz"] is None
    assert (
        "long  zeros    1300 TFLOP/s at 1485 MHz, 698 W" in told
    ) == works and "short zeros     740 TFLOP/s \n" in told
    drawn = clock_under_load.plot(result, CEILINGS | {"power_limit_w": 700}).axes
    assert [list(ax.lines[0].get_ydata()) for ax in drawn] == ([[1485] * 3, [698] * 3] if works else [[], []])
    assert [ax.lines[2].get_ydata()[0] for ax in drawn] == [1980, 700]
    assert [len(ax.lines) for ax in clock_under_load.plot(result, {}).axes] == [2, 2]
    plt.close("all")


def test_the_cpu_is_taken_at_its_best(monkeypatch, capsys):
    trials = iter([[2.0, 1.0], [4.0, 3.0], [0.5, 0.25], [0.5, 0.5], [1.0, 1.0], [1.0, 1.0]])
    monkeypatch.setattr(cpu_peak, "ELEMENTS", 1000)
    monkeypatch.setattr(cpu_peak, "SIZES", (8, 16))

    def measure(work, devices, trials=0, warmup=2):
        work()
        return SimpleNamespace(trials=next(times))

    times = trials
    monkeypatch.setattr(cpu_peak, "measure", measure)
    result = cpu_peak.main()
    assert (result["copy_gb_s"], result["triad_gb_s"]) == (pytest.approx(16e3 / 1e9), pytest.approx(8e3 / 1e9))
    assert result["memory_gb_s"] == result["copy_gb_s"] == max(result["copy_gb_s_trials"])
    assert (result["fp32_n"], result["fp32_tflop_s"]) == (16, pytest.approx(2 * 16**3 / 0.5 / 1e12))
    assert (result["fp64_n"], result["fp64_tflop_s"]) == (16, pytest.approx(2 * 16**3 / 1e12))
    assert result["array_bytes"] == 8000 and "GB/s at best" in capsys.readouterr().out
    json.dumps(result, allow_nan=False)


def test_a_wrong_product_of_the_cpu_is_found_out(monkeypatch):
    monkeypatch.setattr(cpu_peak.torch, "mm", lambda x, y, out: out.zero_())
    with pytest.raises(AssertionError, match="not close"):
        cpu_peak.product_trials_tflop_s(torch.float32, 16)


def test_a_launch_is_timed_until_it_returned_and_a_kernel_until_it_ran(gpu):
    def launch():
        gpu.launch(gpu_s=2e-6, cpu_s=7e-6)

    assert launch_cost.enqueue_us(launch) == pytest.approx(7)
    assert launch_cost.kernel_us(launch) == pytest.approx(2)
    assert gpu.now == gpu.done, "the next trial finds an idle GPU"


def test_launch_main_compares_three_launches(gpu, monkeypatch, capsys):
    import matplotlib.pyplot as plt

    kernels, add = [], torch.Tensor.add_

    class Graph:
        def replay(self):
            for kernel in self.kernels:
                kernel()
            gpu.launch(gpu_s=1e-6 * len(self.kernels), cpu_s=0)

    @contextlib.contextmanager
    def capture(graph):
        kernels.clear()
        yield
        graph.kernels = list(kernels)

    def launch_add(x, one):
        kernels.append(lambda: add(x, one))
        gpu.launch(2e-6, 7e-6)
        return add(x, one)

    def launch_mm(a, b):
        kernels.append(lambda: None)
        gpu.launch(5e-6, 11e-6)

    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    monkeypatch.setattr(torch.cuda, "graph", capture)
    monkeypatch.setattr(torch.Tensor, "add_", launch_add)
    monkeypatch.setattr(torch, "mm", launch_mm)
    result = launch_cost.main()
    assert result["us"]["add"]["launch"] == pytest.approx(7) and result["us"]["add"]["kernel"] == pytest.approx(2)
    assert result["us"]["add"]["node"] == pytest.approx(1) and result["us"]["mm"]["node"] == pytest.approx(1)
    assert all(len(trials) == 15 for row in result["us_trials"].values() for trials in row.values())
    assert "torch.mm(m, m)  eager launch, CPU 11.00 µs" in capsys.readouterr().out
    figure = launch_cost.plot(result, {})
    widths = [[bar.get_width() for bar in bars] for bars in figure.axes[0].containers]
    assert widths[0] == [result["us"][name]["launch"] for name in ("bare", "add", "mm")] and len(widths) == 3
    assert [text.get_text() for text in figure.legends[0].get_texts()] == list(launch_cost.KINDS.values())
    plt.close("all")


def test_a_graph_that_added_nothing_is_found_out(gpu, monkeypatch):
    monkeypatch.setattr(torch.cuda, "CUDAGraph", lambda: SimpleNamespace(replay=lambda: None))
    monkeypatch.setattr(torch.cuda, "graph", lambda graph: contextlib.nullcontext())
    with pytest.raises(AssertionError, match="not close"):
        launch_cost.main()


def test_each_rung_finds_an_idle_gpu(gpu):
    before = []
    trials = latency_ladder.each_us(lambda: gpu.launch(1.0, cpu_s=3e-6), calls=4, before=lambda: before.append(gpu.now))
    assert trials == [pytest.approx(3)] * 15 and len(before) == 17


def test_the_first_call_is_timed_in_processes_one_after_the_other(monkeypatch):
    monkeypatch.setattr(latency_ladder, "FIRST_CALL", "input(); print(12.5)")
    assert latency_ladder.first_cuda_call_us(processes=2) == [12.5, 12.5]


def test_compiling_starts_from_empty_caches(gpu, monkeypatch):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "/elsewhere")
    caches = []

    def compile(function):
        caches.append((os.environ["TORCHINDUCTOR_CACHE_DIR"], os.listdir(os.environ["TORCHINDUCTOR_CACHE_DIR"])))
        return lambda x: gpu.launch(0, cpu_s=2.0) or function(x)

    monkeypatch.setattr(torch, "compile", compile)
    assert latency_ladder.first_compiled_call_us(torch.zeros(1)) == [pytest.approx(2e6)]
    ((folder, entries),) = caches
    assert folder != "/elsewhere" and entries == [] and not os.path.exists(folder)


def test_the_ladder_has_ten_rungs(gpu, monkeypatch, capsys):
    import matplotlib.pyplot as plt

    monkeypatch.setattr(latency_ladder, "first_cuda_call_us", lambda: [2e5, 3e5, 4e5])
    monkeypatch.setattr(latency_ladder, "first_compiled_call_us", lambda x: [5e6])
    monkeypatch.setattr(torch.cuda, "init", lambda: None)
    monkeypatch.setattr(latency_ladder.each_us, "__defaults__", (300, lambda: None))
    monkeypatch.setattr(torch.cuda, "CUDAGraph", lambda: SimpleNamespace(replay=lambda: gpu.launch(1e-6, 8e-6)))
    monkeypatch.setattr(torch.cuda, "graph", lambda graph: contextlib.nullcontext())
    emptied = []
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: emptied.append(1))
    monkeypatch.setattr(torch.Tensor, "item", lambda self: gpu.launch(0, 19e-6))
    monkeypatch.setattr(torch.Tensor, "copy_", lambda self, other, non_blocking: gpu.launch(4e-6, 5e-6))
    result = latency_ladder.main()
    assert result["us"]["first_cuda_call"] == 3e5 and len(result["us"]) == 10
    assert result["us"]["item"] == pytest.approx(19) and result["us"]["graph_replay"] == pytest.approx(8)
    assert result["us"]["pinned_copy_and_wait"] == pytest.approx(9), "the copy is waited for"
    assert len(emptied) == 17, "every trial asks CUDA for memory, not PyTorch's cache"
    told = capsys.readouterr().out.splitlines()
    assert told[-1] == "first_compiled_call     5,000,000.00 µs"
    result["us"]["python_call"] = 0.05
    bars = latency_ladder.plot(result, {}).axes[0].containers[0]
    assert bars[0].get_width() == 5 and bars[1].get_width() == pytest.approx(0.3)
    plt.close("all")


@pytest.mark.gpu
def test_a_large_copy_stays_below_the_datasheet():
    rates = hbm_bandwidth.trials_gb_s(hbm_bandwidth.copy, 2**30)
    assert 1000 < median(rates) < 1.03 * 4800 or torch.cuda.get_device_name() != "NVIDIA H200"


@pytest.mark.gpu
def test_a_graph_node_is_cheaper_than_a_launch():
    x = torch.zeros(1, device="cuda")
    launch = lambda: x.add_(1)  # noqa: E731
    graph = launch_cost.captured(launch)
    rounds = [launch_cost.costs_us(launch, graph) for _ in range(5)]
    assert median(row["node"] for row in rounds) < median(row["launch"] for row in rounds)


def test_recorded_bandwidths_follow_from_their_trials(recorded):
    import matplotlib.pyplot as plt

    for profile, result in recorded("machine/hbm_bandwidth").items():
        for name, rows in result["rates_gb_s_trials"].items():
            assert result["rates_gb_s"][name] == pytest.approx([median(row) for row in rows]), profile
        assert result["copy_gb_s"] == result["rates_gb_s"]["copy"][-1] == median(result["copy_gb_s_trials"])
        assert result["hump_gb_s"] == max(result["rates_gb_s"]["copy"]) == median(result["hump_gb_s_trials"])
        assert list(hbm_bandwidth.plot(result, {}).axes[0].lines[1].get_ydata()) == result["rates_gb_s"]["triad"]
    plt.close("all")


def test_recorded_products_follow_from_their_trials(recorded):
    import matplotlib.pyplot as plt

    for profile, result in recorded("machine/matmul_peak").items():
        for rows in result["rates"].values():
            for row in rows.values():
                assert row["tflop_s"] == pytest.approx(median(row["tflop_s_trials"])), profile
                assert len(row["tflop_s_trials"]) >= 5, profile
        for name, row in result["best"].items():
            assert row["tflop_s"] == max(other["tflop_s"] for other in result["rates"][name].values()), profile
        assert set(result["rates"]) == set(matmul_peak.DTYPES)
        assert len(matmul_peak.plot(result, CEILINGS).axes[0].lines) == 6
    plt.close("all")


def test_recorded_clocks_and_cpus_follow_from_their_trials(recorded):
    import matplotlib.pyplot as plt

    for profile, result in recorded("machine/clock_under_load").items():
        rows = [row for length in clock_under_load.LENGTHS for row in result[length].values()]
        for row, key in ((row, key) for row in rows for key in ("tflop_s", "mhz", "watt") if row[key]):
            assert row[key] == pytest.approx(median(row[f"{key}_trials"])), (profile, key)
        assert len(clock_under_load.plot(result, CEILINGS).axes) == 2
    for profile, result in recorded("machine/cpu_peak").items():
        for key in ("copy_gb_s", "triad_gb_s", "fp32_tflop_s", "fp64_tflop_s"):
            assert result[key] == max(result[f"{key}_trials"]), (profile, key)
    plt.close("all")


@pytest.mark.parametrize(("name", "module"), [("launch_cost", launch_cost), ("latency_ladder", latency_ladder)])
def test_recorded_latencies_follow_from_their_trials(recorded, name, module):
    import matplotlib.pyplot as plt

    for profile, result in recorded(f"machine/{name}").items():
        rows = result["us_trials"] if name == "launch_cost" else {"": result["us_trials"]}
        for key, trials in rows.items():
            measured = result["us"][key] if key else result["us"]
            assert measured == pytest.approx({kind: median(times) for kind, times in trials.items()}), profile
        assert module.plot(result, {}).axes[0].patches, profile
    plt.close("all")
