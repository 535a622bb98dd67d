"""The machine chapter: ceilings and what is reached of them, launches, and what a GPU says of itself."""

import ctypes
import gc
import os
import re
import shutil
import sys
import threading
import warnings
from contextlib import nullcontext
from dataclasses import asdict
from functools import partial
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from conftest import ROOT, run_alone
from fake_cuda import H200, imitated

from overlap.run.snippet import Snippet
from snippets.machine import (
    about_cuda_devices,
    as_printed,
    clock_beside_matmuls,
    clock_by_data,
    clock_of_each_sm,
    clock_under_load,
    compile_kernel_types,
    convolution_precision,
    cpu_peak,
    device_card,
    eight_bit_matmul,
    env_report,
    every_call,
    first_uses,
    four_a_thread,
    hbm_bandwidth,
    host_numbers,
    is_cuda_there,
    kernel_from_source,
    kernel_libraries,
    latency_ladder,
    launch_cost,
    launch_shares,
    loading_modes,
    matmul_peak,
    memory_counters,
    nvml_by_uuid,
    pycuda_arrays,
    pycuda_backward_leak,
    pycuda_beside_torch_broken,
    pycuda_capture,
    pycuda_context,
    pycuda_contexts,
    pycuda_errors,
    pycuda_exit,
    pycuda_first,
    pycuda_first_kernel,
    pycuda_gradient,
    pycuda_graph,
    pycuda_handles,
    pycuda_kernel,
    pycuda_kernel_broken,
    pycuda_leaks,
    pycuda_memory,
    pycuda_occupancy,
    pycuda_order,
    pycuda_resources,
    pycuda_stream,
    pycuda_stream_kept,
    pycuda_threads,
    pycuda_transfers,
    pycuda_two_gpus,
    pycuda_which_gpu,
    read_or_write,
    small_copy,
    small_kernels,
    small_matmul,
    tensor_and_gpuarray,
    three_names,
)
from snippets.timing import kernel_time
from snippets.timing.benchmark import Timing
from snippets.transfers import pcie_bandwidth

CARD = device_card.DeviceCard(
    H200.name, "9.0", H200.multi_processor_count, H200.total_memory, H200.L2_cache_size
)


# What a GPU says of itself


def test_both_sources_fill_the_same_card(two_gpus, pycuda):
    assert device_card.card_by_pycuda(1) == device_card.card_by_torch(1) == CARD


def test_the_cards_become_one_list_per_field(two_gpus, pycuda):
    result = device_card.main()
    assert result["pycuda"]["attributes"] == pycuda.ATTRIBUTES
    for field, value in asdict(CARD).items():
        assert result["pycuda"][field] == result["torch"][field] == [value, value]


def test_a_driver_that_is_missing_is_named_and_the_other_source_answers(two_gpus, monkeypatch):
    """Without libcuda `import pycuda` succeeds and `import pycuda.driver` raises ImportError."""
    package = ModuleType("pycuda")
    package.__path__ = []
    monkeypatch.setitem(sys.modules, "pycuda", package)
    monkeypatch.delitem(sys.modules, "pycuda.driver", raising=False)
    result = device_card.main()
    assert result["pycuda"]["missing"] == "ModuleNotFoundError: No module named 'pycuda.driver'"
    assert result["pycuda"]["name"] == [] and result["pycuda"]["attributes"] == {}
    assert result["torch"]["name"] == [H200.name] * 2


def test_only_the_first_sentence_of_an_error_is_kept():
    def ask(index):
        raise RuntimeError("Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU")

    assert device_card.cards_or_reason(ask) == ([], "RuntimeError: Found no NVIDIA driver on your system")


def test_nvml_finds_by_uuid_what_it_counts_otherwise(two_gpus, nvml):
    nvml()
    assert nvml_by_uuid.main() == {
        "index": [1, 0],
        "memory_bytes": [151_000_000_000] * 2,
        "nvlinks": [18, 4],  # links that do not exist count as none
        "peers": [False, True],
    }


@pytest.mark.gpu
def test_pycuda_and_torch_agree_on_this_gpu(real_pycuda):
    assert device_card.card_by_pycuda(0) == device_card.card_by_torch(0)


@pytest.mark.gpu
def test_nvml_finds_the_gpu_that_torch_sees():
    pynvml = pytest.importorskip("pynvml")
    properties = torch.cuda.get_device_properties(0)
    handle = nvml_by_uuid.nvml_handle(0)
    assert pynvml.nvmlDeviceGetName(handle) == properties.name
    assert pynvml.nvmlDeviceGetMemoryInfo(handle).total == pytest.approx(properties.total_memory, rel=0.02)


def test_versions_are_those_of_installed_packages(monkeypatch):
    assert env_report.installed("torch").startswith(torch.__version__.partition("+")[0])
    assert env_report.installed("no-such-package-here") == "not installed"
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


@pytest.mark.parametrize("error", [AssertionError, RuntimeError, None])
def test_pytorch_says_why_cuda_is_not_there(error, monkeypatch):
    def init() -> None:
        if error:
            raise error("Found no NVIDIA driver on your system.")

    monkeypatch.setattr(torch.cuda, "init", init)
    assert is_cuda_there.why_not() == ("Found no NVIDIA driver on your system." if error else "")


# Memory and arithmetic


def test_copy_and_triad_touch_what_they_are_told(gpu):
    copy, triad = hbm_bandwidth.copy_of(1200), hbm_bandwidth.triad_of(1200)
    b, a = copy.args[0], copy()
    assert torch.equal(a, b) and 2 * a.nbytes == 1200
    (b, c), a = triad.args, triad()
    torch.testing.assert_close(a, b + 3 * c)
    assert 3 * a.nbytes == 1200


@pytest.mark.parametrize(("last_hot", "kept"), [(32, (32, 40)), (40, (40, 48)), (None, (None, None))])
def test_the_plateau_is_told_from_the_cache(gpu, monkeypatch, last_hot, kept):
    def take_turns(works, trials, clock, calls):
        mib = works["copy"] // 2**20
        hot = last_hot and 12 <= mib <= last_hot
        return {"copy": Timing([mib / (5e6 if hot else 4e6)] * 3), "triad": Timing([mib / 4e6] * 3)}

    monkeypatch.setattr(hbm_bandwidth, "take_turns", take_turns)
    monkeypatch.setattr(hbm_bandwidth, "copy_of", lambda touched: touched)
    monkeypatch.setattr(hbm_bandwidth, "triad_of", lambda touched: touched)
    result = hbm_bandwidth.main()
    assert result["copy_gb_s"] == pytest.approx(4e6 * 2**20 / 1e9) and result["l2_mib"] == 60
    assert (result.get("kept_mib"), result.get("lost_mib")) == kept


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
    def take_turns(works, warmup, trials, calls, rest_s, clock):
        seconds = {"fp32": 4e-9, "tf32": 2e-9, "bf16": 1e-9}
        return {name: Timing([seconds[name]] * trials) for name in works}

    monkeypatch.setattr(matmul_peak, "CALLS", {16: 5, 32: 2})
    monkeypatch.setattr(matmul_peak, "take_turns", take_turns)
    result = matmul_peak.main()
    assert result["rates"]["bf16"]["n16"]["tflop_s"] == pytest.approx(2 * 16**3 / 1e-9 / 1e12)
    assert result["best"]["tf32"] == result["rates"]["tf32"]["n32"]


def test_small_matmuls_are_made_one_by_one_in_their_precision(gpu, monkeypatch):
    asked = []

    def product(n, dtype, precision):
        asked.append((n, dtype, precision))
        return lambda: None

    def take_turns(works, warmup, trials, calls, rest_s, clock):
        assert len(works) == 1 and calls == matmul_peak.CALLS[small_matmul.N]
        return {name: Timing([0.1] * trials) for name in works}

    monkeypatch.setattr(small_matmul, "product", product)
    monkeypatch.setattr(small_matmul, "take_turns", take_turns)
    rates = small_matmul.main()["tflop_s"]
    assert rates == pytest.approx(dict.fromkeys(matmul_peak.TYPES, 2 * 4096**3 / 0.1 / 1e12))
    types = {"ieee": [torch.float32, torch.bfloat16], "tf32": [torch.float32]}
    for precision, dtypes in types.items():
        assert [dtype for n, dtype, how in asked if how == precision] == dtypes


@pytest.mark.gpu
@pytest.mark.parametrize("module", [launch_cost, pcie_bandwidth, small_copy, small_matmul])
def test_headlines_can_be_measured_with_two_gib(module):
    """The other two say in their headers how much they need."""
    before = torch.cuda.get_per_process_memory_fraction(0)
    torch.cuda.empty_cache()
    allowed = torch.cuda.memory_reserved() + 2 * 2**30  # other tests may hold some
    torch.cuda.set_per_process_memory_fraction(allowed / torch.cuda.get_device_properties(0).total_memory)
    try:
        assert module.main()
    finally:
        torch.cuda.set_per_process_memory_fraction(before)


@pytest.mark.gpu
@pytest.mark.parametrize("module", [hbm_bandwidth, matmul_peak])
def test_a_header_says_how_much_memory_is_needed(module):
    """Enough, and not a third more."""
    name = module.__name__.removeprefix("snippets.machine.")
    needed = Snippet.read(ROOT, f"machine/{name}").options["gpu_gib"]
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    module.main()
    assert 0.75 * needed <= (torch.cuda.max_memory_allocated() - before) / 2**30 <= needed


@pytest.mark.gpu
def test_a_large_copy_stays_below_what_the_bus_allows():
    seconds = kernel_time.gpu_clock(hbm_bandwidth.copy_of(2**31))
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
    result = cpu_peak.main()
    assert result["copy_gb_s"] == result["memory_gb_s"] == pytest.approx(16e3 / 1e9)
    assert result["triad_gb_s"] == pytest.approx(8e3 / 1e9)
    assert result["fp32_tflop_s"] == pytest.approx(2 * 16**3 / 0.5 / 1e12)
    assert result["fp64_tflop_s"] == pytest.approx(2 * 16**3 / 1e12)


def test_a_product_of_the_cpu_may_be_as_inexact_as_its_type_and_no_worse(monkeypatch):
    torch.manual_seed(0)
    assert len(cpu_peak.product_trials_tflop_s(torch.bfloat16, 64)) == 5
    monkeypatch.setattr(cpu_peak.torch, "mm", lambda x, y, out: out.zero_())
    with pytest.raises(AssertionError, match="not close"):
        cpu_peak.product_trials_tflop_s(torch.float32, 16)


def test_each_kernel_touches_as_many_bytes(gpu, monkeypatch):
    monkeypatch.setattr(torch.cuda, "_compile_kernel", lambda source, name: print, raising=False)
    monkeypatch.setattr(read_or_write, "TOUCHED", 2400)
    works = read_or_write.works()
    works["two reads, one write: add"]()
    for name, work in works.items():
        given = [*work.args, *work.keywords.values(), getattr(work.func, "__self__", None)]
        tensors = [each for each in given if isinstance(each, torch.Tensor)]
        touched = sum(each.nbytes for each in tensors)
        if "in place" in name:
            touched *= 2  # what is read is written, too
        assert touched == 2400, name


def scattered(blocks, block, given) -> None:
    """What the kernel writes, by numpy."""
    out, n, factor = given
    i = np.arange(n, dtype=np.uint32) * np.uint32(factor % 2**32)
    rows = np.stack([i * np.uint32(k) for k in (1, 3, 5, 7)], 1)
    out.view(torch.int32).copy_(torch.from_numpy(rows.view(np.int32).reshape(-1)))


def test_scattered_bits_are_those_of_the_kernel():
    out = torch.zeros(4 * 4096, dtype=torch.float32)
    with pytest.raises(AssertionError):
        read_or_write.check_scattered(out)
    read_or_write.scatter(scattered, out, read_or_write.FACTOR)
    read_or_write.check_scattered(out)
    read_or_write.scatter(scattered, out, 0)
    assert not out.any()


def test_reading_and_writing_have_rates_and_a_picture(gpu, monkeypatch):
    monkeypatch.setattr(torch.cuda, "_compile_kernel", lambda source, name: scattered, raising=False)
    monkeypatch.setattr(read_or_write, "TOUCHED", 24 * 4096)
    monkeypatch.setattr(read_or_write, "gpu_clock", lambda work, calls: work() is None or 1e-6)
    result = read_or_write.main()
    assert len(result["gb_s"]) == 9 and all(len(row) == 11 for row in result["gb_s_trials"].values())
    (bars,) = read_or_write.plot(result, {}).panels[0].marks
    assert len(bars.values) == 6 and bars.values["only reads: sum"] == result["gb_s"]["read: sum"]


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


def test_averages_are_over_the_span_alone():
    parts = {"tflop_s": [9.0, 9.0, 1.0, 3.0], "mhz": [1980.0, 1980.0, 1400.0, 1600.0]}
    late = clock_under_load.averages(parts, slice(2, None))
    assert late == {"tflop_s": 1.5, "mhz": 1500, "flop_per_clock": 1e3}, "a rate is averaged over time"
    assert clock_under_load.averages(parts, slice(1))["tflop_s"] == 9


def test_what_nvml_says_at_the_end():
    rows = {"s": [0.1, 0.2, 0.3, 0.4], "mhz": [1980, 1500, 1400, 1600], "capped": [0, 0, 1, 0]}
    rows |= {"watt_now": [90, 400, 680, 700], "reasons": [1, 1, 0x4 | 0x20, 0x4]}
    assert clock_under_load.nvml_at_the_end(rows) == {"nvml_mhz": 1600, "capped": 0.5, "watt": 690}
    shares = clock_under_load.held_down_by(rows)
    assert (shares["idle"], shares["power_limit"], shares["thermal_software"]) == (0, 1, 0.5)
    empty = {key: [] for key in rows}
    assert clock_under_load.nvml_at_the_end(empty) == clock_under_load.held_down_by(empty) == {}


def test_the_beginning_of_a_burst_is_told_from_its_second_half(gpu, monkeypatch):
    def burst(x, parts=clock_under_load.PARTS):
        fill = 800.0 if x.any() else 900.0
        late = parts // 2
        return {"tflop_s": [fill] * (parts - late) + [700.0] * late, "mhz": [1900.0] * parts}

    monkeypatch.setattr(clock_under_load, "N", 16)
    monkeypatch.setattr(clock_under_load, "burst", burst)
    result = clock_under_load.main()
    rates = {
        (when, fill): result[when][fill]["tflop_s"] for when in ("first", "long") for fill in result[when]
    }
    assert rates == {
        ("first", "random"): 800,
        ("first", "zeros"): 900,
        ("long", "random"): 700,
        ("long", "zeros"): 700,
    }


@pytest.mark.gpu
def test_the_spin_tells_a_clock_that_the_gpu_can_have():
    x = torch.randn(2048, 2048, device="cuda", dtype=torch.bfloat16)
    clock_under_load.burst(x, parts=1)  # of an idle GPU the clock rises first
    parts = clock_under_load.burst(x, parts=3)
    assert len(parts["mhz"]) == 3 and all(300 < mhz < 4000 for mhz in parts["mhz"])


def counting(clocks: float, asked: list):
    """A kernel that has counted so many clocks on each SM; it writes down what it was given."""

    def count(grid, block, args):
        out, ns = args
        asked.append((grid, block, ns))
        for number, row in enumerate(out):
            sm = len(out) - 1 - number
            row.copy_(torch.tensor([sm, int(clocks * ns), ns]))

    return count


def test_each_sm_counts_its_clocks(gpu, monkeypatch):
    asked = []
    monkeypatch.setattr(torch.cuda, "_compile_kernel", lambda *of: counting(1.5, asked), raising=False)
    monkeypatch.setattr(clock_of_each_sm, "N", 8)
    monkeypatch.setattr(clock_of_each_sm, "LOAD", 4)
    result = clock_of_each_sm.main()
    row = result["random"]
    assert (row["counted_sms"], row["least_mhz"], row["most_mhz"]) == (132, 1500, 1500)
    assert result["beside_zeros"]["counted_ms"] <= result["beside_zeros"]["both_ms"]
    assert set(asked) == {
        ((132, 1, 1), (1, 1, 1), clock_of_each_sm.SPIN_NS),
        ((132, 1, 1), (1, 1, 1), clock_of_each_sm.BESIDE_NS),
    }


def watching(asked: list):
    """Kernels that find three times of the GPU, and a clock of 1,500 MHz before the last and then 1,800."""

    def compiled(source, name):
        def stamp(grid, block, args):
            asked.append(name)
            threading.Event().wait(0.03)  # the power meter's thread has time to ask NVML
            args[0].fill_(1_000_000 * [5, 10, 20][asked.count(name) % 3 - 1])

        def watch(grid, block, args):
            asked.append(name)
            out, samples, ns = args
            for number in range(samples):
                end = (number + 1) * ns
                mhz = 1500 if end <= 20_000_000 else 1800
                out[number] = torch.tensor([end, mhz * ns // 1000, ns])

        return stamp if name == "stamp" else watch

    return compiled


def test_a_clock_is_counted_while_the_matmuls_run_and_after_them(gpu, nvml, monkeypatch):
    nvml(answers=10**6)
    asked = []
    monkeypatch.setattr(torch.cuda, "_compile_kernel", watching(asked), raising=False)
    monkeypatch.setattr(clock_beside_matmuls, "SHAPES", {"few": ((4, 2, 8), 2)})
    monkeypatch.setattr(clock_beside_matmuls, "SAMPLES", 200)
    monkeypatch.setattr(clock_beside_matmuls, "REST_S", 0.0)
    result = clock_beside_matmuls.main()
    row = result["rows"]["few"]
    assert (row["mhz"], row["after_mhz"], row["nvml_mhz"]) == (1500, 1800, 1500)
    assert row["tflop_s"] == row["alone_tflop_s"] == pytest.approx(2 * 4 * 2 * 8 / 10e6 / 1e3)
    assert "alone_mhz" not in row, "without the counter no clock is counted"
    assert asked.count("watch") == clock_beside_matmuls.ROUNDS
    line, limit = clock_beside_matmuls.plot(result, {"clock_mhz": 1980}).panels[0].marks
    assert max(line.y) == pytest.approx(1800) and line.x[0] < 0 and limit.at == 1980


def test_only_samples_that_lie_between_two_times_count():
    samples = [[10, 9000, 5], [20, 15, 10], [30, 30, 10], [40, 9000, 10]]
    assert clock_beside_matmuls.mhz(samples, 10, 30) == pytest.approx(1e3 * 45 / 20)


def test_rate_and_power_by_the_share_of_zeros(gpu, nvml, monkeypatch):
    monkeypatch.setattr(clock_by_data, "N", 32)
    monkeypatch.setattr(clock_by_data, "REST_S", 0.0)
    seen = []
    monkeypatch.setattr(torch, "mm", lambda a, b, out=None: seen.append(float((a == 0).float().mean())))
    nvml(answers=10**6)
    result = clock_by_data.main()
    shares = sorted({round(each, 1) for each in seen})
    assert shares[0] == 0 and shares[-1] == 1 and sorted(shares) == shares and len(shares) >= 4
    assert len(result["tflop_s"]) == len(clock_by_data.SHARES) == len(result["tflop_s_trials"])


def test_clocks_stand_in_the_order_of_the_sms():
    rows = torch.tensor([[2, 3000, 2000], [0, 2000, 2000], [1, 1000, 2000]])
    assert list(clock_of_each_sm.counted(rows).items()) == [(0, 1000), (1, 500), (2, 1500)]


def test_of_several_runs_the_least_the_middle_and_the_most_clock_is_told():
    runs = [
        {"mhz": {0: 1.0, 1: 2.0, 2: 6.0}, "nvml_mhz": [5]},
        {"mhz": {0: 3.0, 1: 4.0, 2: 8.0}, "nvml_mhz": []},
    ]
    row = clock_of_each_sm.summary(runs)
    assert (row["least_mhz"], row["middle_mhz"], row["most_mhz"], row["nvml_mhz"]) == (2, 3, 7, 5)
    assert row["by_sm_mhz"] == [3, 4, 8] and "both_ms" not in row


@pytest.mark.gpu
def test_each_sm_of_a_real_gpu_counts():
    count = torch.cuda._compile_kernel(clock_of_each_sm.SOURCE, "count")
    x = torch.randn(512, 512, device="cuda", dtype=torch.bfloat16)
    mhz = clock_of_each_sm.after(count, x, torch.empty_like(x), 1)["mhz"]
    assert len(mhz) > 1 and all(300 < each < 4000 for each in mhz.values())


# Launches, small kernels, first uses


def test_a_launch_is_timed_until_it_returned(gpu):
    seconds = launch_cost.launch_clock(lambda: gpu.launch(1.0, cpu_s=7e-6), 5)
    assert seconds == pytest.approx(7e-6, rel=0.01)
    assert not torch.cuda.current_stream().query(), "the kernels still run"


def test_launches_and_their_nodes(gpu, monkeypatch):
    monkeypatch.setattr(launch_cost, "CALLS", 20)
    gpu.kernel_s["mm"] = 5e-6
    result = launch_cost.main()
    for name, node_us in {"add": 1, "mm": 5}.items():
        assert result["us"][name] == pytest.approx({"launch": 10, "node": node_us}, rel=0.1)
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


def test_each_small_kernel_has_a_name_and_two_times(gpu):
    gpu.kernel_s["mm"] = 4e-6
    result = small_kernels.main()
    assert result["us"]["mm64"] == pytest.approx({"spacing": 4, "runs": 4}, rel=0.1)
    assert (result["kernels"]["mm64"], result["kernels_a_call"]["mm64"]) == (["mm"], 1)


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


def test_first_uses_are_timed_in_order_and_waited_for(gpu, monkeypatch):
    costs = iter([0.2, 0.003, 0.1, 0.0, 0.05, 8e-5])

    def use(*args, **options):
        gpu.launch(next(costs))
        return (None, None)

    for module, name in ((torch, "ones"), (torch, "mm"), (torch, "empty")):
        monkeypatch.setattr(module, name, use)
    monkeypatch.setattr(torch.cuda, "current_blas_handle", use)
    ms = first_uses.first_uses_ms()
    assert list(ms) == ["first_cuda_call", "first_kernel", "cublas_handle", "first_product", "new_tensor"]
    assert ms["first_cuda_call"] == pytest.approx(200, rel=1e-3)
    assert ms["first_product"] == pytest.approx(50, rel=1e-3)


def test_code_is_loaded_as_the_process_was_told_before_cuda_starts(gpu, monkeypatch):
    monkeypatch.setenv("CUDA_MODULE_LOADING", "")
    free = iter([90, 80, 80, 60])
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (next(free) * 2**20, 100 * 2**20))
    monkeypatch.setattr(torch.cuda, "current_blas_handle", lambda: gpu.launch(0.2))
    found = loading_modes.in_this_process("EAGER")
    assert os.environ["CUDA_MODULE_LOADING"] == "EAGER"
    assert found["mib"] == {"context": 10, "kernel": 20, "cublas_handle": 20, "matmul": 40}
    assert found["ms"]["cublas_handle"] == pytest.approx(200, rel=1e-3)
    assert len(found["held_ms"]) == loading_modes.BACKWARDS and max(found["held_ms"]) < 15


def test_both_ways_to_load_code_are_asked_in_turn(monkeypatch, capsys):
    asked = []

    def in_this_process(mode):
        asked.append(mode)
        cost = float(len(asked))
        return {"ms": {"context": cost}, "mib": {"context": 9.0}, "held_ms": [cost, 1.0]}

    pool = SimpleNamespace(apply=lambda function, arguments: in_this_process(*arguments))
    context = SimpleNamespace(
        set_forkserver_preload=list, Pool=lambda count, maxtasksperchild: nullcontext(pool)
    )
    monkeypatch.setattr(loading_modes.multiprocessing, "get_context", lambda how: context)
    result = loading_modes.main()
    assert asked == ["LAZY", "EAGER"] * loading_modes.ROUNDS
    assert result["EAGER"]["ms"] == {"context": 4} and result["LAZY"]["held_ms"] == [3, 1]
    assert "context" in capsys.readouterr().out


@pytest.mark.gpu
def test_a_fresh_process_pays_for_the_context_once():
    rows = first_uses.in_fresh_processes()
    assert len(rows) == 5 and all(row["first_cuda_call"] > 100 * row["new_tensor"] for row in rows)


# pycuda


def test_pycuda_describes_each_gpu(pycuda):
    result = about_cuda_devices.main()
    assert result["names"] == [H200.name] * 2 and result["missing"] == ""
    assert result["memory"] == [{"free": 1, "total": 100}, {"free": 2, "total": 100}], "each in its context"
    assert result["attributes"] == [pycuda.ATTRIBUTES] * 2, "all, not only those with a meaning"
    card = about_cuda_devices.AboutCudaDevices().card(1)
    assert "1,980,000 kHz" in card and "unknown" in card, "the driver may leave one out"
    assert pycuda.stack == [], "a context that stays pushed would abort the process"


@pytest.mark.parametrize("reason", ["no pycuda (", "no CUDA-capable device"])
def test_without_pycuda_or_gpu_the_class_says_why(pycuda, monkeypatch, reason):
    def init():
        raise RuntimeError("cuInit failed: no CUDA-capable device is detected")

    if reason == "no pycuda (":
        monkeypatch.setitem(sys.modules, "pycuda.driver", None)
        with pytest.raises(ImportError, match="pip install pycuda"):
            pycuda_context.pycuda_driver()
    monkeypatch.setattr(pycuda.driver, "init", init)
    about = about_cuda_devices.AboutCudaDevices()
    assert about.names() == [] and reason in about.missing and reason in str(about)


def test_torchs_context_is_popped_whatever_happens_and_taken_once(pycuda):
    for index in (0, 1, 1):
        with pytest.raises(ZeroDivisionError), pycuda_context.torch_context(index) as driver:
            assert pycuda.stack == [index] and driver is pycuda.driver
            raise ZeroDivisionError
        assert pycuda.stack == []
    assert pycuda.retained == [0, 1], "to release one would leave it current"


@pytest.mark.parametrize("elements", [1, 255, 256, 257, 1000])
def test_as_many_blocks_as_elements_need(pycuda, elements):
    x = torch.rand(elements)
    expected = x * 2
    pycuda_kernel.double_(x)
    torch.testing.assert_close(x, expected)
    assert 0 <= pycuda.threads[-1] - elements < pycuda_kernel.THREADS and pycuda.stack == []


def test_a_kernel_refuses_what_it_would_get_wrong(pycuda, monkeypatch):
    other = SimpleNamespace(handle=7)
    for wrong in (torch.ones(4, dtype=torch.float64), torch.ones(4, 4).t()[:2], torch.ones(8)[::2]):
        with pytest.raises(ValueError, match="float32, one element after the other"):
            pycuda_kernel.double_(wrong)
    pycuda_kernel.double_(torch.empty(0))
    with pytest.raises(RuntimeError, match="another stream"):
        pycuda_kernel.double_(torch.ones(4), stream=other)
    assert pycuda.threads == [], "nothing was launched"
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device=None: SimpleNamespace(cuda_stream=7))
    with pytest.raises(RuntimeError, match="another stream"):
        pycuda_kernel.double_(torch.ones(4))
    x = torch.ones(4)
    pycuda_kernel.double_(x, stream=other)
    assert x.tolist() == [2, 2, 2, 2]


def test_one_block_doubles_sixteen_elements(pycuda):
    x = torch.ones(100)
    with pycuda_context.torch_context():
        pycuda_kernel_broken.compiled("twice")(x, block=(4, 4, 1))
    assert (x == 2).sum() == 16


def test_names_of_one_number_are_set_side_by_side(pycuda, monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: SimpleNamespace(warp_size=32))
    monkeypatch.setattr(three_names, "IN_TORCH", {"WARP_SIZE": "warp_size"})
    monkeypatch.setattr(three_names, "by_nvml", lambda bus: {"COMPUTE_MODE": int(bus == "0000:01:00.0")})
    assert three_names.rows(1) == {
        "WARP_SIZE": {"pycuda": 32, "torch": 32},
        "COMPUTE_MODE": {"pycuda": 0, "nvml": 1},
    }


def test_a_process_that_aborts_is_seen():
    code = "import os, sys; print('-\\nPyCUDA ERROR: not empty', file=sys.stderr, flush=True); os.abort()"
    assert pycuda_exit.end_of(code) == {"exit": -6, "said": ["PyCUDA ERROR: not empty"]}
    assert pycuda_exit.end_of("pass") == {"exit": 0, "said": []}


def test_what_pycuda_raises_is_kept_as_text(pycuda):
    assert "invalid device context" in pycuda_context.error_of(pycuda.driver.Stream)
    with pycuda_context.torch_context():
        assert pycuda_context.error_of(pycuda.driver.Stream) == ""


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
    assert pycuda_beside_torch_broken.beside_a_thread()["wrong"] == 0


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


def test_convolutions_are_set_back_to_the_precision_that_they_had():
    conv = torch.backends.cudnn.conv
    before = conv.fp32_precision
    with pytest.raises(ZeroDivisionError), convolution_precision.convolutions_in("ieee"):
        assert conv.fp32_precision == "ieee"
        raise ZeroDivisionError
    with convolution_precision.convolutions_in("default"):
        assert conv.fp32_precision == before
    assert conv.fp32_precision == before


def test_a_convolution_is_a_matmul_of_the_pixels_under_its_kernel():
    torch.manual_seed(0)
    x, kernel = torch.randn(2, 3, 5, 5), torch.randn(4, 3, 3, 3)
    exact = convolution_precision.convolve(x, kernel, "default")
    assert convolution_precision.error(convolution_precision.multiply(x, kernel), exact.double()) < 1e-6
    assert convolution_precision.error(2 * exact, exact.double()) == 1


def test_the_convolution_is_timed_in_each_precision(gpu, monkeypatch, capsys):
    for name, size in {"IMAGES": 4, "CHANNELS": 4, "SIDE": 6, "FLOP": 10**9}.items():
        monkeypatch.setattr(convolution_precision, name, size)
    result = convolution_precision.main()
    assert list(result["rates"]) == ["default", "tf32", "ieee", "bf16"]
    assert (
        result["errors"]["ieee"] < 1e-6 < result["errors"]["bf16"] and result["rates"]["ieee"]["tflop_s"] > 0
    )
    assert convolution_precision.plot(result, {"tf32_tflop_s": 400})
    assert capsys.readouterr().out.count("TFLOP/s") == 4


@pytest.mark.gpu
@pytest.mark.program("machine/convolution_precision", quick=True)
def test_a_convolution_of_float32_is_in_tf32_on_a_gpu(returned):
    errors = returned["errors"]
    assert errors["default"] == pytest.approx(errors["tf32"]) and errors["default"] > 50 * errors["ieee"]


def test_eight_bits_are_the_numbers_but_for_their_rounding():
    torch.manual_seed(0)
    x = torch.randn(8, 64)
    for dim in (None, 1):
        low, scale = eight_bit_matmul.in_fp8(x, dim)
        assert low.dtype == torch.float8_e4m3fn and scale.shape == (() if dim is None else (8, 1))
        assert eight_bit_matmul.error(low.float() * scale, x.double()) < 0.04
    low, scale = eight_bit_matmul.in_int8(x)
    assert low.dtype == torch.int8 and int(low.abs().max()) == 127
    assert eight_bit_matmul.error(low.float() * scale, x.double()) < 0.01
    assert not eight_bit_matmul.in_fp8(torch.zeros(2, 2), 1)[0].float().any()


@pytest.fixture
def eight_bits(monkeypatch):
    """Products of eight bits as a GPU computes them, in float32."""

    def scaled(x, y, scale_a, scale_b, out_dtype, use_fast_accum):
        return ((x.float() @ y.float()) * scale_a * scale_b).to(out_dtype)

    monkeypatch.setattr(torch, "_scaled_mm", scaled)
    monkeypatch.setattr(torch, "_int_mm", lambda x, y: x.int() @ y.int())


def test_each_way_gives_the_product(eight_bits):
    torch.manual_seed(0)
    x, weight = torch.randn(4, 64).bfloat16(), torch.randn(16, 64).bfloat16()
    errors = eight_bit_matmul.errors(x, weight)
    assert errors["bf16"] < errors["int8"] < errors["fp8"] < 0.08 and errors["fp8_rows"] < 0.08


def test_rates_of_a_layer_by_rows(eight_bits, gpu, monkeypatch, capsys):
    for name, size in {"INPUTS": 32, "OUTPUTS": 16, "ROWS": (4, 8)}.items():
        monkeypatch.setattr(eight_bit_matmul, name, size)
    monkeypatch.setattr(eight_bit_matmul, "gpu_clock", lambda work, calls: work() is not None and 1e-6)
    result = eight_bit_matmul.main()
    first, second = result["rows"]
    assert second["tflop_s"]["int8"] == pytest.approx(2 * first["tflop_s"]["int8"])
    assert first["gb_s"]["bf16"] == pytest.approx(2 * first["gb_s"]["fp8"])
    assert eight_bit_matmul.derive(result)["gain"]["fp8"] == [1.0, 1.0]
    limits = {"hbm_gb_s": 4000, "bf16_tflop_s": 1000, "fp8_tflop_s": 2000}
    assert eight_bit_matmul.plot(result, limits) and "TFLOP/s" in capsys.readouterr().out


@pytest.mark.gpu
def test_fp8_multiplies_faster_than_bf16_on_a_gpu():
    result = run_alone("machine/eight_bit_matmul")
    assert max(result["errors"].values()) < 0.08
    assert result["rows"][-1]["tflop_s"]["fp8"] > result["rows"][-1]["tflop_s"]["bf16"]


# pycuda: arrays, copies, errors, and the notebooks as printed


@pytest.fixture
def array_module(pycuda, monkeypatch):
    """`pycuda.gpuarray` with an array that only keeps what it was made of."""
    module: Any = ModuleType("pycuda.gpuarray")
    module.GPUArray = lambda shape, dtype, **how: SimpleNamespace(shape=shape, dtype=dtype, **how)
    monkeypatch.setitem(sys.modules, "pycuda.gpuarray", module)
    return module


def test_an_array_has_the_tensors_memory_form_and_owner(array_module):
    x = torch.arange(6.0).view(2, 3)
    array = tensor_and_gpuarray.strided_array(x.T[1:])
    assert (array.shape, array.dtype, array.strides) == ((2, 2), np.float32, (4, 12))
    assert array.gpudata == x.data_ptr() + 4 and array.base.data_ptr() == array.gpudata
    seen = np.lib.stride_tricks.as_strided(x.numpy().ravel()[1:], array.shape, array.strides)
    np.testing.assert_equal(seen, x.T[1:].numpy())
    assert not hasattr(tensor_and_gpuarray.without_owner(x), "base")
    with pytest.raises(TypeError, match="bfloat16"):
        tensor_and_gpuarray.strided_array(x.bfloat16())


def test_each_way_to_a_context_is_timed_and_ends_a_process_that_used_torch(monkeypatch, capsys):
    row = {"ms": 1.0, "mib": 2.0, "wrong": 3}
    ended = []
    monkeypatch.setattr(pycuda_contexts, "costs", lambda take: row | {"take": take.__name__})
    monkeypatch.setattr(pycuda_contexts, "end_of", lambda code: ended.append(code) or {"exit": 0, "said": []})
    result = pycuda_contexts.main()
    takes = {name: row["take"] for name, row in result["rows"].items()}
    assert takes == {"autoinit": "autoinit", "autoprimaryctx": "autoprimaryctx", "pushed": "share"}
    assert set(result["ends"]) == {*takes, "popped"} and ended[-1].endswith("context.pop()")
    for code in ended:
        compile(code, "end", "exec")
        assert code.startswith("import torch; torch.ones(1, device='cuda')")
    assert "3 of 10,000,000 elements read early" in capsys.readouterr().out


class Stream:
    """One that notes that it was waited for."""

    def __init__(self, waited: list):
        self.synchronize = partial(waited.append, self)


class HostMemory:
    """A driver whose GPU memory is an array, with what each stream was asked, in order."""

    def __init__(self, elements: int):
        self.memory, self.asked = np.zeros(elements, np.float32), {}

    def at(self, address: int, count: int) -> np.ndarray:
        return self.memory[address // 4 : address // 4 + count]

    def memcpy_htod_async(self, to: int, host: np.ndarray, stream: Stream) -> None:
        self.asked.setdefault(stream, []).append("there")
        self.at(to, host.size)[:] = host

    def memcpy_dtoh_async(self, host: np.ndarray, source: int, stream: Stream) -> None:
        self.asked.setdefault(stream, []).append("back")
        host[:] = self.at(source, host.size)

    def kernel(self, out, x, n, grid, block, stream) -> None:
        self.asked.setdefault(stream, []).append("kernel")
        reached = min(int(n), grid[0] * block[0])
        self.at(int(out), reached)[:] = 2 * self.at(int(x), reached)


def test_chunks_go_there_are_doubled_and_come_back_each_in_one_stream(monkeypatch):
    monkeypatch.setattr(pycuda_transfers, "CHUNKS", 4)
    size = 4 * 300
    driver, waited = HostMemory(2 * size), []
    streams = [Stream(waited) for _ in range(3)]
    host, back = np.arange(size, dtype=np.float32), np.zeros(size, np.float32)
    pycuda_transfers.chunked(driver, driver.kernel, host, back, (0, 4 * size), streams)
    np.testing.assert_equal(back, 2 * host)
    orders = [driver.asked[stream] for stream in streams]
    assert orders == [["there", "kernel", "back"] * times for times in (2, 1, 1)] and waited == streams


ENDED = """
import json
def said(call):
    try:
        call()
    except Exception as error:
        return str(error)
    return ""
def launch():
    LAUNCH
print("before ", end="")
print("ROW" + json.dumps({"launch": said(launch), "ones": 4}))
print("after")
"""


def test_a_wrong_launch_is_told_with_what_was_printed_and_how_it_ended(monkeypatch, pycuda, capsys):
    monkeypatch.setattr(pycuda_errors, "BEGIN", ENDED)
    launches = {"right": "pass", "wrong": "1 / 0", "dead": "import os; os._exit(3)"}
    monkeypatch.setattr(pycuda_errors, "LAUNCHES", launches)
    rows = pycuda_errors.main()["rows"]
    assert rows["right"] == {"launch": "", "ones": 4, "exit": 0, "printed": "before after\n"}
    assert rows["wrong"]["launch"] == "division by zero" and rows["dead"]["exit"] == 3
    assert "launch  division by zero" in capsys.readouterr().out


def test_launches_are_told_apart_by_who_refused_them():
    def row(launch="", wait="", torch=""):
        return {"launch": launch, "wait": wait, "torch": torch}

    rows = {"right": row(), "late": row(wait="x"), "lost": row(wait="x", torch="x"), "int": row(launch="x")}
    derived = pycuda_errors.derive({"rows": rows})
    assert derived == {"silent": ["right"], "refused": ["int"], "fatal": ["lost"]}


def test_each_launch_stands_in_the_code_that_every_process_runs():
    for launch in pycuda_errors.LAUNCHES.values():
        code = pycuda_errors.BEGIN.replace("LAUNCH\n", f"{launch}\n")
        assert launch in code and "LAUNCH" not in code
        compile(code, "process", "exec")


@pytest.mark.parametrize("grid", as_printed.GRIDS)
def test_what_the_notebook_printed_of_its_threads_follows_from_its_index(grid):
    """The expressions of C are expressions of Python: each thread writes where it says."""
    writes, index, launch, last, printed = grid
    shape = eval(f"dict({launch})")
    (bx, by), (tx, ty, tz) = shape["grid"], shape["block"]
    arrays = [np.zeros(4000) for _ in writes]
    place, *values = (compile(each.replace("\n", " "), "C", "eval") for each in (index, *writes))
    for block in np.ndindex(by, bx):
        for thread in np.ndindex(tz, ty, tx):
            names = {
                "gridDim": SimpleNamespace(x=bx, y=by),
                "blockDim": SimpleNamespace(x=tx, y=ty, z=tz),
                "blockIdx": SimpleNamespace(x=block[1], y=block[0]),
                "threadIdx": SimpleNamespace(x=thread[2], y=thread[1], z=thread[0]),
            }
            at = eval(place, names)
            if at < 4000:
                for array, value in zip(arrays, values, strict=True):
                    array[at] = eval(value, names)
    assert [array[last:].tolist() for array in arrays] == printed
    cell, told = as_printed.grid_cell(grid)
    compile(cell, "cell", "exec")
    assert all(f"(float) {what};" in cell for what in writes) and launch in cell
    assert eval(told) == printed


def test_cells_run_one_after_the_other_and_show_their_last_line_error_and_warning():
    cells = [
        ("import warnings\nx = [1,\n 2]", ""),
        ("x", "[1,  2]"),
        ("y", "3"),
        ("def f():\n    warnings.warn('old', FutureWarning)\n    return 4\nf()", "5"),
    ]
    first, second, third, fourth = as_printed.in_one_process(cells)
    assert (first["now"], second["now"], second["same"]) == ("", "[1, 2]", True)
    assert third["error"] == "NameError: name 'y' is not defined" and not third["same"]
    assert (fourth["now"], fourth["warned"]) == ("4", ["FutureWarning: old"])
    derived = as_printed.derive({"rows": {"part": [first, second, third, fourth]}})
    told = {"printed_then": 3, "the_same": 1, "other": ["y", "f()"]}
    assert derived == told | {"failed": ["y"], "warned": ["f()"]}
    with pytest.raises(RuntimeError, match="ended early"):
        as_printed.in_one_process([("import os; os._exit(1)", "")])


def test_an_entry_is_told_with_what_it_prints_warns_or_lacks(monkeypatch):
    """Names are of a space; what a process prints from C, or forks, disturbs nothing."""
    entry = every_call.entry
    entries = [
        entry("x", "rows = 3\nprint('said')\nrows", "said\n3"),
        entry("y", "rows", "3", space="other"),
        entry("old", "import warnings\nwarnings.warn('old', FutureWarning)", timed=True),
        entry("c", "import os\nos.system('echo from C')"),
        entry("nine", "1", needs=9),
        entry("gone", "1", pycuda=True),
    ]
    monkeypatch.setattr(every_call, "find_spec", lambda name: None)
    x, y, old, c, nine, gone = rows = every_call.in_one_process(entries)
    assert (x["now"], c["now"]) == ("said\n3", "0")
    assert y["error"] == "NameError: name 'rows' is not defined"
    assert old["warned"] == ["FutureWarning: old"] and old["seconds"] > 0
    assert (nine["lacks"], gone["lacks"]) == ("needs 9 GPUs", "needs pycuda")
    derived = every_call.derive({"entries": {row["key"]: row for row in rows}})
    assert (derived["same"], derived["other"], derived["printed_then"]) == (["x"], ["y"], 2)
    assert (derived["failed"], derived["not_run"]) == (["y"], ["nine", "gone"])
    assert derived["says"]["x"] == "said 3" and derived["says"]["old"].endswith(" s ⚠ FutureWarning: old")


def test_a_process_of_entries_that_ends_or_hangs_is_told_and_ended():
    with pytest.raises(RuntimeError, match="ended early, with 1"):
        every_call.in_one_process([every_call.entry("end", "import os; os._exit(1)")])
    hang = "from multiprocessing import Process\nimport time\n"
    hang += "Process(target=time.sleep, args=(60,)).start()\ntime.sleep(60)"
    with pytest.raises(RuntimeError, match="ended early, with -9"):
        every_call.in_one_process([every_call.entry("hang", hang)], limit_s=2)


def test_the_entries_have_names_of_their_own_and_those_of_the_processor_run():
    groups = (every_call.part_1, every_call.articles, every_call.workers, every_call.kernels)
    entries = [entry for group in groups for entry in group()]
    assert len({entry["key"] for entry in entries}) == len(entries)
    for entry in entries:
        compile(entry["code"], entry["key"], "exec")
    words = {"memory_cached()", "FloatTensor((100., 100.))", "get_device_name", "is_cuda", "normal_"}
    assert all(any(word in entry["code"] for entry in entries) for word in words)
    (fancy,) = [entry for entry in entries if entry["key"] == "fancy_func"]
    assert every_call.in_one_process([fancy])[0]["now"] == fancy["then"]


def test_a_function_is_right_wrong_or_told_with_the_compilers_line():
    def refused():
        raise RuntimeError("nvcc failed\nkernel.cu(3): error: texture is undefined\nmore")

    assert pycuda_arrays.verdict(lambda: [1.0, 2.0], np.array([1, 2])) == {"right": True, "error": ""}
    assert pycuda_arrays.verdict(lambda: [1.0, 2.1], np.array([1, 2])) == {"right": False, "error": ""}
    row = pycuda_arrays.verdict(refused, None)
    assert row == {"right": False, "error": "kernel.cu(3): error: texture is undefined"}
    missing = {"right": False, "error": "b'x.hpp:2: fatal error: old.h: No such file or directory'"}
    rows = {"take": missing, "sum": {"right": True, "error": ""}, "put": row}
    derived = pycuda_arrays.derive({"rows": rows})
    assert derived == {"wrong": ["put", "take"], "missing_headers": ["old.h"]}
    assert pycuda_arrays.in_unit(np.linspace(0, 1, 100)) and not pycuda_arrays.in_unit(np.zeros(100))


@pytest.mark.gpu
def test_a_tensor_is_pycudas_array_and_keeps_its_owner(real_pycuda):
    with pycuda_context.torch_context() as driver:
        assert tensor_and_gpuarray.after_the_tensor(tensor_and_gpuarray.strided_array) == 3
        array = tensor_and_gpuarray.of_an_array(driver)
    assert array["same_memory"] and array["kept"] and array["value"] == 3
    assert array["allocated_by_torch"] == 0 and not array["kept_without_tensor"]


@pytest.mark.gpu
def test_a_replay_runs_pycudas_kernel_between_pytorchs(real_pycuda):
    x = torch.zeros(1000, device="cuda")
    pycuda_kernel.launch(x)
    with pycuda_stream.one_stream() as stream:
        graph = pycuda_graph.captured(x, stream)
        torch.cuda.synchronize()
        assert bool((x == 0).all()), "captured, not run"
        graph.replay()
        graph.replay()
    assert bool((x == 9).all())


@pytest.mark.gpu
def test_no_more_blocks_are_on_an_sm_than_its_threads_allow(real_pycuda):
    from pycuda.compiler import SourceModule

    with pycuda_context.torch_context():
        module = SourceModule(pycuda_resources.SOURCE, no_extern_c=True)
        kernel = module.get_function("residents")
        counted = {threads: pycuda_resources.blocks_on_an_sm(kernel, threads) for threads in (256, 1024)}
    most = torch.cuda.get_device_properties(0).max_threads_per_multi_processor
    assert 1 <= counted[1024] <= most // 1024 < counted[256] <= most // 256


@pytest.mark.gpu
def test_pycuda_works_on_each_of_two_gpus(real_pycuda):
    if torch.cuda.device_count() < 2:
        pytest.skip("one GPU")
    assert [pycuda_two_gpus.doubled_on(index) for index in (0, 1)] == [pycuda_two_gpus.SIZE] * 2
    assert pycuda_two_gpus.copied(0, 1) == pycuda_two_gpus.SIZE


# pycuda: captures, threads, gradients, handles


@pytest.fixture
def on_imitated_gpu(pycuda, monkeypatch):
    """CUDA and pycuda, both imitated; a stream of pycuda's is one of PyTorch's."""
    with imitated() as gpu:
        monkeypatch.setattr(torch.cuda, "ExternalStream", lambda handle, device=None: gpu.new_stream())
        yield gpu


def test_a_launch_within_the_capture_is_in_the_graph(on_imitated_gpu):
    row = pycuda_capture.captured("pycuda, blocking", "launch in it")
    assert row["replayed"] == 5, "one is added, doubled, one is added"
    assert not any(row[when] for when in ("call", "capture", "wait", "torch"))


def test_what_ends_a_capture_is_told_with_its_first_line(on_imitated_gpu, monkeypatch):
    def refused(driver, x, stream):
        raise RuntimeError("not permitted\nmore")

    monkeypatch.setitem(pycuda_capture.WORKS, "mem_alloc", refused)
    row = pycuda_capture.captured("PyTorch", "mem_alloc")
    assert row["call"] == "RuntimeError: not permitted" and row["capture"] == ""


def test_rows_of_a_capture_are_told_apart():
    rows = [
        {"stream": "a", "work": "x", "during": 1, "replayed": 5},
        {"stream": "a", "work": "y", "during": 2, "replayed": 3},
        {"stream": "b", "work": "y", "capture": "failed"},
        {"stream": "b", "work": "z", "during": 1, "replayed": 3},
    ]
    derived = pycuda_capture.derive({"rows": rows})
    assert derived == {"in_graph": ["a; x"], "beside": ["a; y"], "ended": ["b; y"]}


def test_each_case_of_a_capture_has_its_work():
    assert {name for _, name in pycuda_capture.CASES} == {*pycuda_capture.WORKS}


def died(how: int) -> dict:
    os._exit(how)


def test_a_process_that_dies_is_told():
    assert "died" in pycuda_capture.in_a_process(died, 3)
    assert pycuda_capture.in_a_process(dict, {"a": 1}) == {"a": 1}


def test_a_push_counts_in_its_own_thread_only(pycuda):
    x = torch.ones(pycuda_threads.SIZE)
    with pycuda_context.torch_context():
        assert pycuda_threads.errors(x)["Stream"] == ""
        said = pycuda_threads.in_thread(pycuda_threads.errors, x)
        assert "invalid device context" in said["Stream"]
        assert set(pycuda_threads.in_thread(pycuda_threads.pushed, x).values()) == {""}
    with pytest.raises(ZeroDivisionError):
        pycuda_threads.in_thread(lambda: 1 / 0)


def test_memory_that_is_still_taken_is_told_with_the_warning(monkeypatch, pycuda):
    free = iter([2**30, 2**30 - 2**28])
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (next(free), 2**40))
    row = pycuda_threads.left(lambda: warnings.warn("not cleaned up", stacklevel=1), in_second=True)
    assert row == {"mib": 256, "warned": ["not cleaned up"]}
    for way, _ in pycuda_threads.WAYS.values():
        way()
    assert pycuda.stack == []


def test_a_kernel_of_pycudas_has_a_gradient(pycuda):
    x = torch.rand(3, 4).T.requires_grad_()
    before = x.detach().clone()
    (pycuda_gradient.Twice.apply(x) ** 2).sum().backward()
    torch.testing.assert_close(x.grad, 8 * before)
    assert torch.equal(x, before), "the weight is not written"


@pytest.mark.parametrize("use", pycuda_handles.USES)
def test_each_use_works_before_and_after_nothing_was_taken(on_imitated_gpu, monkeypatch, use):
    monkeypatch.setattr(pycuda_handles, "SIZE", 8)
    monkeypatch.setitem(pycuda_handles.TAKES, "autoinit", lambda: None)
    assert pycuda_handles.used("autoinit", use) == {"call": "", "wait": "", "torch": ""}


def test_uses_that_fail_are_named():
    rows = {"autoinit": {"a": {"call": "", "wait": "x"}, "b": {"call": "", "wait": ""}}}
    assert pycuda_handles.derive({"rows": rows}) == {"fail": {"autoinit": ["a"]}}


C_TYPES = {
    "int": ctypes.c_int,
    "long long": ctypes.c_longlong,
    "float": ctypes.c_float,
    "double": ctypes.c_double,
}


def test_a_number_is_read_by_the_type_that_the_kernel_declares(monkeypatch):
    """As by PyTorch's function: `int` for Python's int, `double` for its float, and behind it zeros."""

    def compiled(source, name):
        kind = re.search(r"out, (.+?) x\)", source)[1]

        def kernel(grid, block, args):
            out, number = args
            passed = ctypes.c_int(number) if isinstance(number, int) else ctypes.c_double(number)
            read: Any = C_TYPES[kind].from_buffer_copy(bytes(passed).ljust(8, b"\0"))
            out[0] = float(read.value)

        return kernel

    monkeypatch.setattr(torch.cuda, "_compile_kernel", compiled)
    with imitated():
        read = {
            (kind, given): compile_kernel_types.read(kind, given)
            for kind, given in compile_kernel_types.CASES
        }
    assert read["int", -1] == -1 and read["double", 0.5] == 0.5
    assert read["long long", -1] == 2**32 - 1 and read["float", 0.5] == 0


def test_the_default_stream_waits_and_is_waited_for(pycuda):
    """Whoever comes first: the kernel doubles what PyTorch wrote, and PyTorch reads what it doubled."""
    for first in ("main", "side"):
        with imitated(late=True, first=first) as gpu:
            x = torch.zeros(8, device="cuda")
            torch.cuda.synchronize()

            def double(x):
                with gpu.on(gpu.streams[0]):
                    x.mul_(2)

            with torch.cuda.stream(torch.cuda.Stream()):
                x.fill_(3)
                pycuda_stream_kept.in_default_stream(x, double)
                assert x.tolist() == [6] * 8


def test_a_stream_is_made_once_for_each_gpu(pycuda, monkeypatch):
    pycuda_stream_kept.kept_stream.cache_clear()
    monkeypatch.setattr(torch.cuda, "ExternalStream", lambda handle, device=None: (handle, device))
    stream, shared = pycuda_stream_kept.kept_stream(1)
    assert stream.handle == 8 and stream.context == 1, "non-blocking, in that GPU's context"
    assert shared == (8, 1) and pycuda_stream_kept.kept_stream(1)[0] is stream and pycuda.stack == []
    pycuda_stream_kept.kept_stream.cache_clear()


def test_the_hosts_numbers_are_positive_and_its_own_network_answers(monkeypatch, tmp_path):
    for name, size in {"FILE_MIB": 2, "READS": 3, "PINGS": 5, "TRIALS": 1}.items():
        monkeypatch.setattr(host_numbers, name, size)
    program = host_numbers.compiled(tmp_path, host_numbers.VECTORS["vector units"])
    row = host_numbers.told(program, [16, 64])
    assert row["gflop_s"] > 0 and len(row["ns"]) == 2 and min(row["ns"]) > 0
    disk = host_numbers.of_the_disk()
    assert disk["us"] > 0 and len(disk["gb_s_trials"]) == 1
    monkeypatch.setattr(host_numbers, "get_context", lambda kind: threading)
    monkeypatch.setattr(threading, "Process", threading.Thread, raising=False)
    network = host_numbers.of_the_network()
    assert network["us"] > 0 and network["gb_s"] > 0


# pycuda: other libraries, what memory and contexts cost, occupancy


class Doubles(kernel_libraries.Compiled):
    """A library whose kernel PyTorch runs; where no stream is named, in the default one."""

    def kernel(self, source: str):
        return lambda out, a: torch.mul(a, 2, out=out)

    def told(self, kernel, out, a):
        kernel(out, a)

    def untold(self, kernel, out, a):
        def launch():
            with torch.cuda.stream(torch.cuda.default_stream()):
                kernel(out, a)

        return launch

    def passes(self, kernel, out, a):
        return {"tensor": lambda: kernel(out, a), "number": lambda: kernel(out, 1 / 0)}


@pytest.fixture
def doubles(monkeypatch):
    """This library for the one of PyTorch's, and few elements, on a GPU that works late."""
    monkeypatch.setitem(kernel_libraries.LIBRARIES, "compile_kernel", Doubles)
    monkeypatch.setattr(kernel_libraries, "LARGE", 1000)
    with imitated(late=True) as gpu:
        yield gpu


def test_a_librarys_launch_is_in_order_and_in_the_graph_if_it_is_told_the_stream(doubles):
    row = kernel_libraries.probe("compile_kernel")
    assert row["wrong"] == {"told": 0, "untold": 1000} and row["graph"]["replays"] == [5, 7]
    assert row["graph"]["during"] == 0 and row["graph"]["call"] == row["graph"]["capture"] == ""
    assert row["passed"]["tensor"] == {"says": "", "right": kernel_libraries.SMALL}
    assert row["passed"]["number"] == {"says": "ZeroDivisionError: division by zero", "right": 0}


def test_a_librarys_kernels_are_timed_until_they_ran(doubles):
    row = kernel_libraries.ready("compile_kernel")
    assert set(row) == {"import_ms", "first_ms", "ms"} and min(row.values()) >= 0


def test_a_library_that_is_not_there_is_told_and_the_others_are_measured(doubles, monkeypatch, capsys):
    for name in ("cupy", "cuda.core"):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setattr(kernel_libraries, "in_a_process", lambda work, *args: work(*args))
    monkeypatch.delitem(kernel_libraries.LIBRARIES, "pycuda")
    monkeypatch.setattr(
        kernel_libraries, "both_orders", lambda works, **how: {name: Timing([1e-6]) for name in works}
    )
    result = kernel_libraries.main()
    assert "ModuleNotFoundError" in result["rows"]["CuPy"]["missing"]
    assert "ModuleNotFoundError" in result["rows"]["cuda.core"]["missing"]
    assert set(result["launch"]["us"]) == {"torch", "compile_kernel"}
    printed = capsys.readouterr().out
    assert printed.count("missing: ") == 2 and "compile_kernel      launched in  1.00 µs" in printed


def test_pytorchs_stream_is_told_by_the_protocol():
    handle = kernel_libraries.StreamHandle(SimpleNamespace(cuda_stream=7))
    assert handle.__cuda_stream__() == (0, 7)
    assert kernel_libraries.blocks_for(torch.empty(257)) == 2


def test_the_least_of_four_numbers_is_what_an_sm_holds():
    of = dict(zip(pycuda_occupancy.LIMITS, [32, 2048, 65536, 233_472, 1024], strict=True))
    for threads, registers, shared, blocks in (
        (64, 10, 0, 32),
        (96, 10, 0, 21),
        (256, 100, 0, 2),
        (64, 10, 20_000, 11),
    ):
        assert pycuda_occupancy.blocks_at_most(of, threads, registers, shared) == blocks


def test_the_driver_writes_to_its_first_argument_or_says_why_not():
    def written(value, number):
        value._obj.value = number
        return number > 8

    assert pycuda_occupancy.asked(written, 7) == 7
    with pytest.raises(RuntimeError, match="written: error True"):
        pycuda_occupancy.asked(written, 9)


def test_steps_of_processes_become_medians_or_how_they_died():
    flags = {"torch_in_the_first": True, "thread_in_the_same": False, "wrong": 0, "waited_ms": 1.0}
    rows = [{"ms": {"torch": ms}, "mib": {"torch": 4}} | flags for ms in (1, 5, 2)]
    row = pycuda_first.medians(rows)
    assert row["ms"] == {"torch": 2} and row["ms_trials"] == {"torch": [1, 5, 2]}
    assert row["thread_in_the_same"] == [False] * 3
    assert pycuda_first.medians([*rows, {"died": -6}]) == {"died": -6}
    for steps in pycuda_first.ORDERS.values():
        assert set(steps) <= set(pycuda_first.STEPS) == set(pycuda_first.LINES)
        compile("; ".join(pycuda_first.LINES[step] for step in steps), "steps", "exec")


def test_memory_taken_is_read_after_each_drop(pycuda, monkeypatch):
    free = iter([2**40, 2**40 - 2**28, 2**40 - 2**28, 2**40])
    monkeypatch.setattr(pycuda_leaks, "array_of", lambda elements: object())
    monkeypatch.setattr(pycuda_leaks, "free_mib", lambda: next(free) / 2**20)
    monkeypatch.setattr(torch, "ones", lambda *args, **how: None)
    row = pycuda_leaks.taken("mem_alloc, kept")
    assert row == {"mib": 256, "collected_mib": 256, "cleared_mib": 0} and pycuda.stack == []
    assert gc.isenabled()


def test_a_refused_allocation_is_counted_with_what_it_says(pycuda, monkeypatch):
    free = iter([1000.0, 232.0])
    monkeypatch.setattr(pycuda_leaks, "free_mib", lambda: next(free))
    monkeypatch.setattr(torch, "ones", lambda *args, **how: None)
    row = pycuda_leaks.refused()
    assert row["lost_mib"] == 768 == row["calls"] * pycuda_leaks.MIB
    assert "invalid device context" in row["says"]


def test_a_call_is_in_order_if_it_finds_what_was_written_before_it(monkeypatch):
    for name in ("synchronize", "_sleep"):
        monkeypatch.setattr(torch.cuda, name, lambda *of: None)
    monkeypatch.setattr(torch.cuda, "stream", lambda shared: nullcontext())
    program = SimpleNamespace(x=torch.zeros(3), shared=None)
    seen = []
    assert pycuda_order.in_order(program, lambda p: seen.append(p.x.tolist()) or 2 * p.x.numpy(), 4)
    assert seen == [[0] * 3, [2] * 3], "the first call only compiles"
    assert not pycuda_order.in_order(program, lambda p: np.ones(3), 2)
    rows = {"Stream(1)": {"b": False, "a": False, "c": True}, "Stream()": {"a": True}}
    assert pycuda_order.derive({"rows": rows}) == {"early": {"Stream(1)": ["a", "b"], "Stream()": []}}


def test_what_backward_loses_is_counted_after_its_warm_up(monkeypatch):
    free, rounds = iter([1000.0, 232.0]), []
    w = torch.ones(1, requires_grad=True)

    def held(as_tensor):
        rounds.append(as_tensor)
        warnings.warn("lost", stacklevel=1)
        return w.sum()

    monkeypatch.setattr(pycuda_backward_leak, "free_mib", lambda: next(free))
    monkeypatch.setattr(pycuda_backward_leak, "held_by_the_graph", held)
    with pytest.warns(UserWarning, match="lost"):
        row = pycuda_backward_leak.after("shared")
    assert row == {"lost_mib": 768, "warned": ["lost"]} and len(rounds) == 1 + pycuda_backward_leak.ROUNDS
    assert w.grad.item() == len(rounds)


def test_each_way_to_choose_a_gpu_runs_in_a_process(pycuda, monkeypatch, capsys):
    asked = []
    row = {"before": 0, "pycuda": 1}
    monkeypatch.setattr(pycuda_which_gpu, "in_a_process", lambda work, *case: asked.append(case) or row)
    assert set(pycuda_which_gpu.main()["rows"]) == set(pycuda_which_gpu.CASES)
    assert ("1", None) in asked and (None, 1) in asked
    assert "CUDA_DEVICE=1: before 0, pycuda 1\n" in capsys.readouterr().out


@pytest.mark.gpu
def test_the_formula_for_blocks_on_an_sm_agrees_with_the_driver(real_pycuda):
    torch.ones(1, device="cuda")
    of = pycuda_occupancy.limits()
    for name in pycuda_occupancy.KERNELS:
        for row in pycuda_occupancy.by_the_driver(name):
            formula = pycuda_occupancy.blocks_at_most(
                of, row["threads"], row["registers"], row["shared_bytes"]
            )
            assert row["driver"] <= formula, (name, row)
            if name == "small":
                assert row["driver"] == formula, "its threads limit it, which have no unit"


@pytest.mark.gpu
def test_an_array_takes_pytorchs_memory_and_gives_it_back(real_pycuda):

    text = (ROOT / "docs/pycuda.md").read_text()
    fences = re.findall(r"^```python\n(.*?)^```", text, re.M | re.S)
    [code] = [fence for fence in fences if "class TorchMemory" in fence]
    with pycuda_context.torch_context():
        shared = torch.cuda.Stream()
        before = torch.cuda.memory_allocated()
        names: dict = {"shared_stream": lambda index: [(None, shared)][index]}
        exec(compile(code, "docs/pycuda.md", "exec"), names)
        array = names["array"]
        assert torch.cuda.memory_allocated() - before == 4096 == array.nbytes
        array.fill(3)
        assert array.get().tolist() == [3] * 1024
        assert (
            torch.as_tensor(array, device="cuda").data_ptr()
            == int(array.gpudata)
            == array.gpudata.kept.data_ptr()
        )
        del array, names["array"]
        gc.collect()
        assert torch.cuda.memory_allocated() == before


@pytest.mark.gpu
@pytest.mark.parametrize("name", list(kernel_libraries.LIBRARIES))
def test_each_library_doubles_a_tensor_in_pytorchs_stream(name, real_pycuda):
    why = kernel_libraries.missing(name)["missing"]
    if why:
        pytest.skip(why)
    row = kernel_libraries.probe(name)
    # torch.cuda._compile_kernel launches in PyTorch's stream if none is named
    early = 0 if name == "compile_kernel" else kernel_libraries.LARGE
    assert row["wrong"] == {"told": 0, "untold": early} and row["graph"]["replays"] == [5, 7]


def test_a_kernel_loaded_at_the_import_and_one_loaded_at_last_are_launched(monkeypatch):
    launched = []

    def loaded(source):
        number = len(launched)
        launched.append(None)
        return lambda *args, **shape: launched.append(number) or shape["grid"]

    monkeypatch.setattr(pycuda_first_kernel, "ELEMENTS", 1000)
    monkeypatch.setattr(pycuda_first_kernel, "by_pycuda", loaded)
    monkeypatch.setattr(pycuda_first_kernel, "waited_ms", lambda: 50.0)
    monkeypatch.setattr(pycuda_first_kernel, "pycuda_driver", lambda: None)
    contexts = iter([5, 7])
    monkeypatch.setattr(pycuda_first_kernel, "current_context", lambda: next(contexts))
    for step in pycuda_first.STEPS:
        monkeypatch.setitem(pycuda_first.STEPS, step, lambda: None)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(torch.cuda, "_sleep", lambda cycles: None, raising=False)
    zeros = torch.zeros
    monkeypatch.setattr(torch, "zeros", lambda *shape, device: zeros(*shape))
    row = pycuda_first_kernel.kernels("autoinit, torch")
    assert row["import_is_current"] is False and launched == [None, None, 1, 0]
    assert row["kernels"] == {name: {"says": "", "wrong": 1000} for name in ("late", "early")}


def test_bytes_that_were_asked_for_and_what_crossed_the_cache_are_told_apart(monkeypatch, capsys):
    each = memory_counters.works(8, "cpu")
    assert set(each) == set(memory_counters.BYTES)
    for work in each.values():
        work()
    names = memory_counters.METRICS
    numbers = dict.fromkeys(names.values(), 50.0) | {names["sectors"]: 30.0, names["crossed"]: 10.0}
    rows = [{"kernel": name, "range": [name]} | numbers for name in each]
    second = {"kernel": "a second kernel of dot", "range": ["read_two"]} | numbers | {names["ns"]: 1.0}
    monkeypatch.setattr(memory_counters, "counted", lambda command, metrics: [*rows, second])
    result = memory_counters.main()
    assert "DRAM is active for 50%" in capsys.readouterr().out
    assert result["rows"]["read_two"]["ns"] == 50, "the kernel that reads, not the one that adds up"
    found = memory_counters.derive(result)
    assert found["gb_s"]["triad"] == 3 * result["bytes"] / 50 and set(found["crossed"].values()) == {0.5}
    assert found["moved"] == 100 / result["bytes"]
    rows.pop()
    with pytest.raises(AssertionError):
        memory_counters.main()


@pytest.mark.gpu
@pytest.mark.program("machine/memory_counters")
def test_a_fill_writes_and_a_sum_reads(returned):
    rows, once = returned["rows"], returned["bytes"]
    assert rows["write"]["read"] < 0.01 * once < 0.9 * once < rows["write"]["written"]
    assert rows["read"]["written"] < 0.05 * once and rows["read"]["read"] == pytest.approx(once, rel=0.02)


@pytest.mark.gpu
def test_calls_from_cpp_and_by_the_driver_do_what_calls_from_python_do(tmp_path):
    if shutil.which("g++") is None:
        pytest.skip("needs g++")
    functions = launch_shares.library(tmp_path)
    x = torch.zeros(1, device="cuda")
    launch_shares.by_the_driver(functions, x)(7)
    assert x.item() == 1 + 7  # one to compile it
    works = launch_shares.works(functions)  # which checks C++ and Python
    assert all(launch_shares.returned(work, 10) > 0 for work in works.values())


def test_the_shares_of_a_launch_add_up_to_the_call():
    us = {"driver": 3.0, "cpp": 5.0, "cpp_new": 6.0, "cpp_graded": 7.0}
    us |= {"python": 6.5, "python_new": 8.0, "python_graded": 9.5}
    shares = launch_shares.derive({"us": us})["shares"]
    assert shares["in_place"] == {"python": 1.5, "pytorch": 2.0, "driver": 3.0}
    assert sum(shares["graded"].values()) == 9.5 and shares["graded"]["pytorch"] == 4
