"""The machine chapter: ceilings and what is reached of them, launches, first uses, and what a GPU says of itself."""

import json
import sys
from dataclasses import asdict
from types import ModuleType, SimpleNamespace

import pytest
import torch

from snippets.machine import (
    about_cuda_devices,
    clock_under_load,
    cpu_peak,
    device_card,
    env_report,
    first_uses,
    four_a_thread,
    hbm_bandwidth,
    is_cuda_there,
    kernel_from_source,
    latency_ladder,
    launch_cost,
    matmul_peak,
    nvml_by_uuid,
    pycuda_beside_torch_broken,
    pycuda_context,
    pycuda_exit,
    pycuda_kernel,
    pycuda_kernel_broken,
    pycuda_memory,
    pycuda_stream,
    small_kernels,
    three_names,
)
from snippets.machine.device_card import DeviceCard
from snippets.timing import kernel_time, take_turns
from snippets.timing.benchmark import Timing

H200 = DeviceCard("NVIDIA H200", "9.0", 132, 150_000_000_000, 62_914_560)
CEILINGS = {
    "bf16_tflop_s": 1071,
    "tf32_tflop_s": 535.3,
    "fp32_tflop_s": 66.91,
    "hbm_gb_s": 4814,
    "clock_mhz": 1980,
}


def same_for_all(seconds: dict[str, float], seen: list | None = None):
    """A `take_turns` by whose clock each work takes the seconds of its name, three times."""

    def take_turns(works, *args, **how):
        for work in works.values():
            work()
        if seen is not None:
            seen.append((list(works), args, how))
        return {name: Timing([seconds[name]] * 3) for name in works}

    return take_turns


def round_trip(result: dict) -> dict:
    """The result as a recording gives it back."""
    return json.loads(json.dumps(result, allow_nan=False))


# What a GPU says of itself


@pytest.fixture
def two_gpus(monkeypatch):
    """Stand-ins for pycuda, torch.cuda and pynvml on a machine of two H200; NVML counts them the other way round."""

    class Device:
        multiprocessor_count, l2_cache_size = H200.sms, H200.l2_bytes

        def __init__(self, index):
            assert index in (0, 1)

        name = staticmethod(lambda: H200.name)
        compute_capability = staticmethod(lambda: (9, 0))
        total_memory = staticmethod(lambda: H200.memory_bytes)
        get_attributes = staticmethod(lambda: {"ASYNC_ENGINE_COUNT": 3, "WARP_SIZE": 32})

    pycuda, driver = ModuleType("pycuda"), ModuleType("pycuda.driver")
    pycuda.driver, driver.Device, driver.init = driver, Device, lambda: None
    monkeypatch.setitem(sys.modules, "pycuda", pycuda)
    monkeypatch.setitem(sys.modules, "pycuda.driver", driver)

    def properties(index):
        names = {
            "name": H200.name,
            "major": 9,
            "minor": 0,
            "uuid": f"uuid-{index}",
            "L2_cache_size": H200.l2_bytes,
        }
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

    nvml.nvmlInit = lambda: None
    nvml.nvmlDeviceGetHandleByUUID = lambda uuid: uuid
    nvml.nvmlDeviceGetIndex = {"GPU-uuid-0": 1, "GPU-uuid-1": 0}.get
    nvml.nvmlDeviceGetNvLinkState = link_state
    nvml.nvmlDeviceGetMemoryInfo = lambda handle: SimpleNamespace(total=151_000_000_000)
    monkeypatch.setitem(sys.modules, "pynvml", nvml)


def test_both_sources_fill_the_same_card(two_gpus):
    assert device_card.card_by_pycuda(1) == device_card.card_by_torch(1) == H200


def test_the_cards_become_one_list_per_field(two_gpus):
    result = round_trip(device_card.main())
    assert result["pycuda"]["attributes"] == {"ASYNC_ENGINE_COUNT": 3, "WARP_SIZE": 32}
    for field, value in asdict(H200).items():
        assert result["pycuda"][field] == result["torch"][field] == [value, value]


def test_a_driver_that_is_missing_is_named_and_the_other_source_answers(two_gpus, monkeypatch):
    """Without libcuda `import pycuda` succeeds and `import pycuda.driver` raises ImportError."""
    pycuda = ModuleType("pycuda")
    pycuda.__path__ = []
    monkeypatch.setitem(sys.modules, "pycuda", pycuda)
    monkeypatch.delitem(sys.modules, "pycuda.driver")
    result = device_card.main()
    assert result["pycuda"]["missing"] == "ModuleNotFoundError: No module named 'pycuda.driver'"
    assert result["pycuda"]["name"] == [] and result["pycuda"]["attributes"] == {}
    assert result["torch"]["name"] == ["NVIDIA H200"] * 2


def test_only_the_first_sentence_of_an_error_is_kept():
    def ask(index):
        raise RuntimeError("Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU")

    assert device_card.cards_or_reason(ask) == ([], "RuntimeError: Found no NVIDIA driver on your system")


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_without_a_gpu_each_source_says_what_is_missing():
    result = device_card.main()
    for source in ("pycuda", "torch"):
        assert result[source]["missing"] and result[source]["sms"] == []


def test_nvml_finds_by_uuid_what_it_counts_otherwise(two_gpus):
    assert nvml_by_uuid.nvml_handle(0) == "GPU-uuid-0"
    result = round_trip(nvml_by_uuid.main())
    assert result == {
        "index": [1, 0],
        "memory_bytes": [151_000_000_000] * 2,
        "nvlinks": [18, 4],  # links that do not exist count as none
        "peers": [False, True],
    }


@pytest.mark.gpu
def test_pycuda_and_torch_agree_on_this_gpu():
    pytest.importorskip("pycuda.driver", exc_type=ImportError)
    assert device_card.card_by_pycuda(0) == device_card.card_by_torch(0)


@pytest.mark.gpu
def test_nvml_finds_the_gpu_that_torch_sees():
    pynvml = pytest.importorskip("pynvml")
    properties = torch.cuda.get_device_properties(0)
    handle = nvml_by_uuid.nvml_handle(0)
    assert pynvml.nvmlDeviceGetName(handle) == properties.name
    assert pynvml.nvmlDeviceGetMemoryInfo(handle).total == pytest.approx(properties.total_memory, rel=0.02)


def test_installed_and_absent_packages():
    assert env_report.installed("torch").startswith(torch.__version__.partition("+")[0])
    assert env_report.installed("no-such-package-here") == "not installed"


def test_nccl_is_joined_or_empty(monkeypatch):
    monkeypatch.setattr(torch.distributed, "is_nccl_available", lambda: True)
    monkeypatch.setattr(torch.cuda.nccl, "version", lambda: (2, 27, 5))
    assert env_report.versions()["nccl"] == "2.27.5"
    monkeypatch.setattr(torch.distributed, "is_nccl_available", lambda: False)
    assert env_report.versions()["nccl"] == ""


def test_cores_are_those_this_process_may_use(monkeypatch):
    monkeypatch.setattr(env_report.os, "sched_getaffinity", lambda pid: {0, 3, 5}, raising=False)
    assert env_report.usable_cores() == 3
    monkeypatch.delattr(env_report.os, "sched_getaffinity")
    monkeypatch.setattr(env_report.os, "cpu_count", lambda: 8)
    assert env_report.usable_cores() == 8


def test_env_main_reports_this_process():
    result = round_trip(env_report.main())
    assert result["versions"]["torch"] == torch.__version__
    assert result["device"] == env_report.accelerator_or_cpu().type
    assert len(result["gpus_visible"]) == torch.cuda.device_count() and result["cores_usable"] >= 1


# Memory and arithmetic


def test_copy_and_triad_touch_what_they_are_told(gpu):
    copy, triad = hbm_bandwidth.copy_of(1200), hbm_bandwidth.triad_of(1200)
    b, a = copy.args[0], copy()
    assert torch.equal(a, b) and 2 * a.nbytes == 1200
    (b, c), a = triad.args, triad()
    torch.testing.assert_close(a, b + 3 * c)
    assert 3 * a.nbytes == 1200


@pytest.mark.parametrize(("last_hot", "kept"), [(32, (32, 40)), (40, (40, 48)), (None, None)])
def test_the_plateau_is_told_from_the_cache(gpu, monkeypatch, last_hot, kept):
    def take_turns(works, trials, clock, calls):
        mib = works["copy"] // 2**20
        hot = last_hot and 12 <= mib <= last_hot
        return {"copy": Timing([mib / (5e6 if hot else 4e6)] * 3), "triad": Timing([mib / 4e6] * 3)}

    monkeypatch.setattr(hbm_bandwidth, "take_turns", take_turns)
    monkeypatch.setattr(hbm_bandwidth, "copy_of", lambda touched: touched)
    monkeypatch.setattr(hbm_bandwidth, "triad_of", lambda touched: touched)
    result = round_trip(hbm_bandwidth.main())
    assert result["copy_gb_s"] == pytest.approx(4e6 * 2**20 / 1e9) and result["l2_mib"] == 60
    assert (result.get("kept_mib"), result.get("lost_mib")) == (kept or (None, None))
    (ax,) = hbm_bandwidth.plot(result, CEILINGS).axes
    labels = [line.get_label() for line in ax.lines]
    assert labels[:3] == ["copy", "triad", "memory, ceiling"] and ax.lines[3].get_xdata()[0] == 60
    assert len(hbm_bandwidth.plot(result, {}).axes[0].lines) == 3


def test_a_product_is_compared_with_float64_and_uses_its_precision(gpu, precision, monkeypatch):
    seen, mm = [], torch.mm

    def spy(x, y, out):
        seen.append(precision.fp32_precision)
        return mm(x, y, out=out)

    monkeypatch.setattr(torch, "mm", spy)
    matmul_peak.product(64, torch.float32, "tf32")()
    assert seen == ["tf32", "tf32"] and precision.fp32_precision == "ieee"
    monkeypatch.setattr(torch, "mm", lambda x, y, out: out.zero_())
    with pytest.raises(AssertionError, match="not close"):
        matmul_peak.product(64, torch.bfloat16)


def test_the_best_size_of_each_type_is_named(gpu, monkeypatch):
    seen = []
    monkeypatch.setattr(matmul_peak, "CALLS", {16: 5, 32: 2})
    seconds = {"fp32": 4e-9, "tf32": 2e-9, "bf16": 1e-9}
    monkeypatch.setattr(matmul_peak, "take_turns", same_for_all(seconds, seen))
    result = round_trip(matmul_peak.main())
    assert result["rates"]["bf16"]["n16"]["tflop_s"] == pytest.approx(2 * 16**3 / 1e-9 / 1e12)
    assert result["best"]["tf32"] == result["rates"]["tf32"]["n32"]
    assert [args[2] for _, args, _ in seen] == [5, 2]
    (ax,) = matmul_peak.plot(result, CEILINGS).axes
    assert len(ax.lines) == 6 and ax.lines[-1].get_ydata()[0] == 1071
    assert len(matmul_peak.plot(result, {}).axes[0].lines) == 3


@pytest.mark.gpu
def test_a_large_copy_stays_below_what_the_bus_allows():
    from snippets.timing.kernel_time import gpu_clock

    seconds = gpu_clock(hbm_bandwidth.copy_of(2**31))
    properties = torch.cuda.get_device_properties(0)
    assert 2**31 / seconds < 2e3 * properties.memory_clock_rate * properties.memory_bus_width / 8


def test_the_cpu_is_taken_at_its_best(monkeypatch):
    times = iter([[2.0, 1.0], [4.0, 3.0], [0.5, 0.25], [0.5, 0.5], [1.0, 1.0], [1.0, 1.0]])
    monkeypatch.setattr(cpu_peak, "ELEMENTS", 1000)
    monkeypatch.setattr(cpu_peak, "SIZES", (8, 16))

    def measure(work, devices, trials=0, warmup=2):
        work()
        return Timing(next(times))

    monkeypatch.setattr(cpu_peak, "measure", measure)
    result = round_trip(cpu_peak.main())
    assert (result["copy_gb_s"], result["triad_gb_s"]) == (
        pytest.approx(16e3 / 1e9),
        pytest.approx(8e3 / 1e9),
    )
    assert result["memory_gb_s"] == result["copy_gb_s"] == max(result["copy_gb_s_trials"])
    assert result["fp32_tflop_s"] == pytest.approx(2 * 16**3 / 0.5 / 1e12)
    assert result["fp64_tflop_s"] == pytest.approx(2 * 16**3 / 1e12)


def test_a_product_may_be_as_inexact_as_its_type():
    torch.manual_seed(0)
    assert len(cpu_peak.product_trials_tflop_s(torch.bfloat16, 64)) == 5


def test_a_wrong_product_of_the_cpu_is_found_out(monkeypatch):
    monkeypatch.setattr(cpu_peak.torch, "mm", lambda x, y, out: out.zero_())
    with pytest.raises(AssertionError, match="not close"):
        cpu_peak.product_trials_tflop_s(torch.float32, 16)


# The clock


def test_each_part_of_a_burst_has_its_rate_and_its_clock(gpu, monkeypatch):
    """In the second part the clock has fallen by half: kernels and spin take twice as long."""
    calls = clock_under_load.CALLS
    hz = iter([2e9] * (calls + 1) + [1e9] * (calls + 1))
    monkeypatch.setattr(torch, "mm", lambda x, y, out: gpu.launch(2e6 / next(hz)))
    monkeypatch.setattr(torch.cuda, "_sleep", lambda cycles: gpu.launch(cycles / next(hz)))
    parts = clock_under_load.burst(torch.ones(100, 100), parts=2)
    assert parts["tflop_s"] == [pytest.approx(2 * 100**3 / s / 1e12, rel=1e-2) for s in (1e-3, 2e-3)]
    assert parts["mhz"] == [pytest.approx(2000, rel=1e-2), pytest.approx(1000, rel=1e-2)]
    assert torch.cuda.current_stream().query(), "the burst has finished"


PARTS = {"tflop_s": [9.0, 9.0, 1.0, 3.0], "mhz": [1980.0, 1980.0, 1400.0, 1600.0]}


def test_averages_are_over_the_span_alone():
    late = clock_under_load.averages(PARTS, slice(2, None))
    assert late == {"tflop_s": 1.5, "mhz": 1500, "flop_per_clock": 1e3}, (
        "a rate is averaged over time, so harmonically"
    )
    assert clock_under_load.averages(PARTS, slice(1))["tflop_s"] == 9


def test_what_nvml_says_at_the_end():
    rows = {"s": [0.1, 0.2, 0.3, 0.4], "mhz": [1980, 1500, 1400, 1600], "capped": [0, 0, 1, 0]}
    rows["watt_now"] = [90, 400, 680, 700]
    assert clock_under_load.nvml_at_the_end(rows) == {"nvml_mhz": 1600, "capped": 0.5, "watt": 690}
    assert clock_under_load.nvml_at_the_end({key: [] for key in rows}) == {}


@pytest.mark.parametrize("missing", ["", "no pynvml"])
def test_random_numbers_and_zeros_take_turns_under_the_meter(gpu, monkeypatch, missing):
    order = []

    class Meter:
        def __init__(self):
            self.missing = missing
            self.rows = {key: [] if missing else [1700] for key in ("s", "mhz", "capped", "watt_now")}
            self.rows["reasons"] = [] if missing else [0x4 | 0x20]

        def __enter__(self):
            order.append("open")
            return self

        def __exit__(self, *exc_info):
            order.append("closed")

    def burst(x, parts=clock_under_load.PARTS):
        order.append("random" if x.any() else "zeros")
        late = parts // 2
        return {
            "tflop_s": [800.0] * (parts - late) + [700.0] * late,
            "mhz": [1900.0] * (parts - late) + [1500.0] * late,
        }

    monkeypatch.setattr(clock_under_load, "N", 16)
    monkeypatch.setattr(clock_under_load, "PowerMeter", Meter)
    monkeypatch.setattr(clock_under_load, "burst", burst)
    monkeypatch.setattr(clock_under_load.time, "sleep", order.append)
    result = round_trip(clock_under_load.main())
    rest = clock_under_load.REST_S
    one_round = [rest, "open", "random", "closed", rest, "open", "zeros", "closed"]
    assert order == ["random", *one_round * clock_under_load.ROUNDS], "one part warms up"
    long, first = result["long"]["random"], result["first"]["random"]
    assert (long["tflop_s"], long["mhz"], first["tflop_s"], first["mhz"]) == (700, 1500, 800, 1900)
    assert len(long["tflop_s_trials"]) == clock_under_load.ROUNDS
    assert result["missing"] == missing and ("nvml_mhz" in long) == (not missing)
    if not missing:
        held = result["held_down_by"]["zeros"]
        assert (held["power_limit"], held["thermal_software"], held["thermal_hardware"]) == (1, 1, 0)
    axes = clock_under_load.plot(result, CEILINGS).axes
    assert [len(ax.lines) for ax in axes] == [3, 3] and axes[0].lines[0].get_ydata()[0] == 800
    assert [len(ax.lines) for ax in clock_under_load.plot(result, {}).axes] == [2, 2]


@pytest.mark.gpu
def test_the_spin_tells_a_clock_that_the_gpu_can_have():
    parts = clock_under_load.burst(torch.randn(2048, 2048, device="cuda", dtype=torch.bfloat16), parts=3)
    assert len(parts["mhz"]) == 3 and all(300 < mhz < 4000 for mhz in parts["mhz"])


# Launches, small kernels, first uses


def test_a_launch_is_timed_until_it_returned(gpu):
    seconds = launch_cost.launch_clock(lambda: gpu.launch(1.0, cpu_s=7e-6), 5)
    assert seconds == pytest.approx(7e-6, rel=0.01)
    assert not torch.cuda.current_stream().query(), "the kernels still run"


def test_turns_are_taken_in_both_orders():
    order = []

    def clock(work, calls):
        order.append(work())
        return len(order)

    works = {"a": lambda: "a", "b": lambda: "b"}
    timings = take_turns.both_orders(works, trials=2, warmup=0, clock=clock)
    assert "".join(order) == "ababbaba" and timings["a"].trials == [1, 3, 6, 8]


def test_three_launches_and_their_nodes(gpu, monkeypatch):
    monkeypatch.setattr(launch_cost, "CALLS", 50)
    gpu.kernel_s["mm"] = 5e-6
    result = launch_cost.main()
    for name, node_us in {"add": 1, "mm": 5}.items():
        assert result["us"][name] == pytest.approx({"launch": 10, "node": node_us}, rel=0.05)
    assert len(result["us_trials"]["mm"]["launch"]) == 30
    assert len(launch_cost.plot(result, {}).axes[0].patches) == 6


def test_a_graph_that_added_nothing_is_found_out(gpu, monkeypatch):
    monkeypatch.setattr(launch_cost, "captured", lambda work: lambda: None)
    with pytest.raises(AssertionError, match="not close"):
        launch_cost.main()


@pytest.mark.gpu
def test_a_graph_node_is_cheaper_than_a_launch():
    x = torch.zeros(1, device="cuda")
    launch = launch_cost.launch_clock(lambda: x.add_(1), launch_cost.CALLS)
    replay = kernel_time.captured(kernel_time.repeated(lambda: x.add_(1), launch_cost.CALLS))
    x.zero_()
    replay()
    assert x.item() == launch_cost.CALLS
    assert launch_cost.node_clock(replay, 3) < launch


def test_kernels_are_told_from_calls_of_the_api(gpu):
    x = torch.zeros(1, device="cuda")
    rows = small_kernels.kernels_of(lambda: x.add_(1))
    assert [row[3] for row in rows] == ["add_"] * small_kernels.CALLS


def test_each_small_kernel_has_a_name_and_two_times(gpu):
    gpu.kernel_s["mm"] = 4e-6
    result = small_kernels.main()
    assert result["us"]["mm64"] == pytest.approx({"spacing": 4, "runs": 4}, rel=0.1)
    assert (result["kernels"]["mm64"], result["kernels_a_call"]["mm64"]) == (["mm"], 1)
    assert len(small_kernels.plot(result, {}).axes[0].patches) == 12


@pytest.mark.gpu
def test_an_addition_is_one_kernel():
    x = torch.zeros(1, device="cuda")
    rows = small_kernels.kernels_of(lambda: x.add_(1))
    assert len(rows) == small_kernels.CALLS and all(0 < row[2] < 20 for row in rows)


def test_a_new_tensor_finds_the_cache_empty(gpu, monkeypatch):
    log = []
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: log.append("emptied"))
    monkeypatch.setattr(torch, "empty", lambda size, device: log.append("new") or gpu.sleep(80e-6))
    us = latency_ladder.cuda_malloc_us()
    assert us == pytest.approx([80] * latency_ladder.TRIALS, rel=0.01)
    assert log == ["emptied", *["new"] * latency_ladder.TENSORS] * (latency_ladder.TRIALS + 1)


def test_the_ladder_has_six_steps(gpu, monkeypatch):
    monkeypatch.setattr(latency_ladder, "cuda_malloc_us", lambda: [80.0, 90.0, 300.0])
    us = latency_ladder.main()["us"]
    assert us["cuda_malloc"] == 90 and us["eager_launch"] == pytest.approx(10, rel=0.1) and len(us) == 6
    assert us["python_call"] < 0.1 > us["cpu_operation"], "on this clock only CUDA takes time"


def test_first_uses_are_timed_in_order(gpu, monkeypatch):
    costs = iter([0.2, 0.003, 0.1, 0.0, 0.05, 8e-5])

    def use(*args, **options):
        gpu.launch(next(costs))
        return (None, None)

    for module, name in (
        (torch, "ones"),
        (torch, "mm"),
        (torch, "empty"),
        (torch.cuda, "current_blas_handle"),
    ):
        monkeypatch.setattr(module, name, use)
    found = first_uses.first_uses_ms()
    assert list(found) == ["first_cuda_call", "first_kernel", "cublas_handle", "first_product", "new_tensor"]
    assert found["first_cuda_call"] == pytest.approx(200, rel=1e-3), "it is waited for"
    assert found["first_product"] == pytest.approx(50, rel=1e-3) and found["new_tensor"] == pytest.approx(
        0.09, rel=1e-2
    )


def test_first_uses_become_medians_over_processes(monkeypatch):
    rows = [{"first_cuda_call": ms, "new_tensor": ms / 1e3} for ms in (200.0, 240.0, 300.0)]
    answers = iter([rows, rows[:1]])
    monkeypatch.setattr(first_uses, "in_fresh_processes", lambda: next(answers))
    result = round_trip(first_uses.main())
    assert result["ms"] == {"first_cuda_call": 240, "new_tensor": 0.24}
    assert result["ms_trials"]["first_cuda_call"] == [200, 240, 300]
    assert result["beside"]["ms"] == {"first_cuda_call": 200, "new_tensor": 0.2}
    assert len(first_uses.plot(result, {}).axes[0].patches) == 2


@pytest.mark.gpu
def test_a_fresh_process_pays_for_the_context_once():
    rows = first_uses.in_fresh_processes()
    assert len(rows) == 5 and all(row["first_cuda_call"] > 100 * row["new_tensor"] for row in rows)


# Recordings


def test_recorded_cards_have_one_entry_per_gpu(recorded):
    for profile, result in recorded("machine/device_card").items():
        gpus = int(profile != "cpu")
        for source in ("pycuda", "torch"):
            said = result[source]
            assert len(said["name"]) == len(said["sms"]) == len(said["memory_bytes"]) == gpus, (
                profile,
                source,
            )
            assert bool(said["missing"]) == (gpus == 0), (profile, source)
        assert (
            not gpus or result["pycuda"]["attributes"]["MULTIPROCESSOR_COUNT"] == result["pycuda"]["sms"][0]
        )


def test_recorded_reports_name_their_device(recorded):
    for profile, result in recorded("machine/env_report").items():
        assert result["device"] == ("cpu" if profile == "cpu" else "cuda")
        assert (len(result["gpus_visible"]) == 0) == (profile == "cpu")
        assert set(result["versions"]) == {"python", "torch", "cuda", "cudnn", "nccl", "triton", "numpy"}


@pytest.mark.parametrize("error", [AssertionError, RuntimeError])
def test_pytorch_says_why_cuda_is_not_there(error, monkeypatch, capsys):
    def refuse() -> None:
        raise error("Found no NVIDIA driver on your system.")

    monkeypatch.setattr(torch.cuda, "init", refuse)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    result = is_cuda_there.main()
    assert (result["available"], result["why_not"]) == (False, "Found no NVIDIA driver on your system.")
    assert "why_not         Found no NVIDIA driver" in capsys.readouterr().out


def test_where_cuda_is_there_no_reason_is_given(monkeypatch):
    monkeypatch.setattr(torch.cuda, "init", lambda: None)
    assert is_cuda_there.why_not() == ""


# pycuda


class FakePycuda:
    """Stand-ins for pycuda's modules: GPUs, a stack of contexts, kernels that know their blocks, and what was asked."""

    def __init__(self, gpus=1):
        self.stack, self.retained, self.threads = [], [], []
        self.driver, self.compiler = ModuleType("pycuda.driver"), ModuleType("pycuda.compiler")
        self.driver.init = lambda: None
        self.driver.Device = self.device_class(gpus)
        self.driver.mem_get_info = lambda: (self.top() + 1, 100)
        self.driver.Stream = lambda: SimpleNamespace(handle=7, context=self.top())
        self.compiler.SourceModule = lambda *args, **options: SimpleNamespace(get_function=self.kernel)

    def top(self) -> int:
        """The GPU of the context that pycuda works in."""
        if not self.stack:
            raise RuntimeError("explicit_context_dependent failed: invalid device context")
        return self.stack[-1]

    def device_class(self, gpus):
        fake = self

        class Device:
            count = staticmethod(lambda: gpus)

            def __init__(self, index):
                self.index = index

            def name(self):
                return f"GPU {'AB'[self.index]}"

            def total_memory(self):
                return (self.index + 1) * 2**30

            def pci_bus_id(self):
                return f"0000:0{self.index}:00.0"

            def get_attributes(self):
                return {
                    "WARP_SIZE": 32,
                    "CLOCK_RATE": 1_980_000,
                    "COMPUTE_MODE": 0,
                    "TEXTURE_PITCH_ALIGNMENT": 32,
                }

            def retain_primary_context(self):
                fake.retained.append(self.index)
                return SimpleNamespace(push=lambda: fake.stack.append(self.index), pop=fake.stack.pop)

        return Device

    def kernel(self, name):
        """A kernel that doubles what its threads reach; where no size is given, every thread has an element."""
        self.top()

        def twice(x, n=None, grid=(1, 1), block=None, stream=None):
            threads = grid[0] * block[0] * block[1]
            self.threads.append(threads)
            x.view(-1)[: min(threads, threads if n is None else int(n))] *= 2

        return twice


@pytest.fixture
def fake_pycuda(monkeypatch):
    """pycuda on a machine of two GPUs; no context or kernel is left from another test."""
    fake = FakePycuda(gpus=2)
    pycuda = ModuleType("pycuda")
    pycuda.driver, pycuda.compiler = fake.driver, fake.compiler
    for name in ("pycuda", "pycuda.driver", "pycuda.compiler"):
        monkeypatch.setitem(sys.modules, name, fake.__dict__.get(name.rpartition(".")[2], pycuda))
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device=None: SimpleNamespace(cuda_stream=0))
    for cached in (pycuda_context.primary_context, pycuda_kernel.twice_kernel):
        cached.cache_clear()
    yield fake
    for cached in (pycuda_context.primary_context, pycuda_kernel.twice_kernel):
        cached.cache_clear()


def test_pycuda_describes_each_gpu(fake_pycuda, capsys):
    result = round_trip(about_cuda_devices.main())
    assert result["names"] == ["GPU A", "GPU B"] and result["missing"] == ""
    assert result["memory"] == [{"free": 1, "total": 100}, {"free": 2, "total": 100}], (
        "each asked in its own context"
    )
    assert result["attributes"][1]["TEXTURE_PITCH_ALIGNMENT"] == 32, (
        "all attributes, not only those with a meaning"
    )
    told = capsys.readouterr().out
    assert "cuda:1 GPU B, 2.0 GiB" in told and told.count("1,980,000 kHz") == 2
    assert "L2_CACHE_SIZE                            unknown" in told
    assert fake_pycuda.stack == [], "a context that stays pushed would abort the process"


def broken_driver():
    raise RuntimeError("cuInit failed: no CUDA-capable device is detected")


@pytest.mark.parametrize("reason", ["no pycuda (", "no CUDA-capable device"])
def test_without_pycuda_or_gpu_the_class_says_why(fake_pycuda, monkeypatch, capsys, reason):
    if reason == "no pycuda (":
        monkeypatch.setitem(sys.modules, "pycuda.driver", None)
    else:
        monkeypatch.setattr(fake_pycuda.driver, "init", broken_driver)
    result = about_cuda_devices.main()
    assert result["names"] == result["memory"] == [] and reason in result["missing"]
    assert capsys.readouterr().out.startswith("no GPU to describe: ")


def test_without_pycuda_the_driver_says_what_it_needs(fake_pycuda, monkeypatch):
    monkeypatch.setitem(sys.modules, "pycuda.driver", None)
    with pytest.raises(ImportError, match="pip install pycuda"):
        pycuda_context.pycuda_driver()


def test_torchs_context_is_popped_whatever_happens_and_taken_once(fake_pycuda):
    for index in (0, 1, 1):
        with pytest.raises(ZeroDivisionError), pycuda_context.torch_context(index) as driver:
            assert fake_pycuda.stack == [index] and driver is fake_pycuda.driver
            raise ZeroDivisionError
        assert fake_pycuda.stack == []
    assert fake_pycuda.retained == [0, 1], "to release one would leave it current"


@pytest.mark.parametrize("elements", [1, 255, 256, 257, 1000])
def test_as_many_blocks_as_elements_need(fake_pycuda, elements):
    x = torch.rand(elements)
    expected = x * 2
    pycuda_kernel.double_(x)
    torch.testing.assert_close(x, expected)
    assert 0 <= fake_pycuda.threads[-1] - elements < pycuda_kernel.THREADS and fake_pycuda.stack == []


def test_a_kernel_refuses_what_it_would_get_wrong(fake_pycuda, monkeypatch):
    for wrong in (torch.ones(4, dtype=torch.float64), torch.ones(4, 4).t()[:2], torch.ones(8)[::2]):
        with pytest.raises(ValueError, match="float32, one element after the other"):
            pycuda_kernel.double_(wrong)
    pycuda_kernel.double_(torch.empty(0))
    with pytest.raises(RuntimeError, match="another stream"):
        pycuda_kernel.double_(torch.ones(4), stream=SimpleNamespace(handle=7))
    assert fake_pycuda.threads == [], "nothing was launched"
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device=None: SimpleNamespace(cuda_stream=7))
    with pytest.raises(RuntimeError, match="another stream"):
        pycuda_kernel.double_(torch.ones(4))
    pycuda_kernel.double_(x := torch.ones(4), stream=SimpleNamespace(handle=7))
    assert x.tolist() == [2, 2, 2, 2]


def test_one_block_doubles_sixteen_elements(fake_pycuda):
    x = torch.ones(100)
    with pycuda_context.torch_context():
        pycuda_kernel_broken.compiled("twice")(x, block=(4, 4, 1))
    assert (x == 2).sum() == 16
    assert "__global__ void double(float *a)" in pycuda_kernel_broken.SOURCE.replace("NAME", "double")


def test_names_of_one_number_are_set_side_by_side(fake_pycuda, monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: SimpleNamespace(warp_size=32))
    monkeypatch.setattr(three_names, "IN_TORCH", {"WARP_SIZE": "warp_size"})
    monkeypatch.setattr(three_names, "by_nvml", lambda bus: {"COMPUTE_MODE": int(bus == "0000:01:00.0")})
    assert three_names.rows(1) == {
        "WARP_SIZE": {"pycuda": 32, "torch": 32},
        "COMPUTE_MODE": {"pycuda": 0, "nvml": 1},
    }


def test_a_process_that_aborts_is_seen(monkeypatch):
    code = "import os, sys; print('-\\nPyCUDA ERROR: not empty', file=sys.stderr, flush=True); os.abort()"
    assert pycuda_exit.end_of(code) == {"exit": -6, "said": ["PyCUDA ERROR: not empty"]}
    assert pycuda_exit.end_of("pass") == {"exit": 0, "said": []}


def test_what_pycuda_raises_is_kept_as_text(fake_pycuda):
    assert "invalid device context" in pycuda_context.error_of(fake_pycuda.driver.Stream)
    with pycuda_context.torch_context():
        assert pycuda_context.error_of(fake_pycuda.driver.Stream) == ""


@pytest.fixture
def real_pycuda():
    pytest.importorskip("pycuda.driver", exc_type=ImportError)


@pytest.mark.gpu
def test_pycuda_tells_the_memory_and_attributes_of_this_gpu(real_pycuda):
    about = about_cuda_devices.AboutCudaDevices()
    free, total = about.memory(0)
    in_torch = torch.cuda.mem_get_info(0)
    assert total == in_torch[1] and abs(free - in_torch[0]) < 2**28
    for name, values in three_names.rows(0).items():
        assert len(set(values.values())) == 1 and len(values) > 1, (name, values)
    assert set(about_cuda_devices.MEANINGS) <= set(about.attributes(0))


@pytest.mark.gpu
def test_pycuda_doubles_a_tensor_as_torch_does_in_either_stream(real_pycuda):
    for elements in (1, 1000, 2**20 + 1):
        x = torch.rand(elements, device="cuda")
        expected = x * 2
        pycuda_kernel.double_(x)
        torch.testing.assert_close(x, expected)
        with pycuda_stream.one_stream() as stream:
            pycuda_kernel.double_(x, stream)
            with pytest.raises(RuntimeError, match="another stream"):
                pycuda_kernel.double_(x)
        torch.testing.assert_close(x, 2 * expected)


@pytest.mark.gpu
def test_pycuda_in_torchs_context_leaves_it_current(real_pycuda):
    x = torch.ones(4, device="cuda")
    with pycuda_context.torch_context() as driver:
        assert driver.mem_get_info()[1] == torch.cuda.mem_get_info()[1]
    assert "explicit_context_dependent failed" in pycuda_context.error_of(driver.Stream)
    assert (x + 1).tolist() == [2, 2, 2, 2]
    assert pycuda_beside_torch_broken.wrong_gradients() == 0


@pytest.mark.gpu
def test_pycuda_and_torch_compile_the_same_kernel(real_pycuda):
    a = torch.rand(2**12, device="cuda")
    out = torch.empty_like(a)
    with pycuda_context.torch_context():
        works = kernel_from_source.launches(a, out)
        works |= {"four": four_a_thread.kernel(four_a_thread.FOUR, out, a, 4)}
        for name, work in works.items():
            out.zero_()
            work()
            assert torch.equal(out, a * 2), name


@pytest.mark.gpu
def test_pycuda_in_and_out_gives_the_doubles(real_pycuda):
    import numpy as np

    host = np.arange(1000, dtype=np.float32)
    with pycuda_context.torch_context():
        pycuda_memory.by_handler(host)
        assert pycuda_memory.by_hand(host) > 0
    assert (host == 4 * np.arange(1000)).all()
