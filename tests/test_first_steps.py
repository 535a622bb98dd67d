"""Snippets of the first steps: what each function says on any machine, with the facts of others made up."""

import ctypes
import subprocess
import sys
import warnings

import pytest
import torch
from conftest import ROOT
from torch import nn

from overlap.run import download
from overlap.run.snippet import Snippet
from snippets.first_steps import (
    choose_a_gpu,
    default_device,
    other_inputs,
    tensors_left_behind,
    tensors_on_devices,
    three_lines,
    three_memory_calls,
    time_one_line,
    where_tensors_land,
    which_gpu,
    why_no_cuda,
)
from snippets.pictures import Spans

# is CUDA there?

WELL = {
    "available": False,
    "built": True,
    "built_for": "13.0",
    "driver": "13.0",
    "installed_gpus": 1,
    "visible": None,
    "warning": "",
}
#: Without NVIDIA's Fabric Manager; `nvidia-smi` lists the GPUs.
ERROR_802 = (
    "CUDA initialization: Unexpected error from cudaGetDeviceCount(). Did you run some cuda functions before "
    "calling NumCudaDevices() that might have already set an error? Error 802: system not yet initialized"
)


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        ({"available": True, "visible": "1"}, "CUDA is there"),
        ({"built": False, "built_for": "", "driver": ""}, "CPU build"),
        ({"driver": "", "installed_gpus": 0, "visible": ""}, "no driver"),
        ({"driver": "12.8", "warning": "The driver is too old"}, "driver too old: knows CUDA 12.8"),
        ({"built_for": "12.8", "driver": "12.4", "visible": "7"}, "hidden: CUDA_VISIBLE_DEVICES is '7'"),
        ({"built_for": "9.2", "driver": "13.0", "visible": ""}, "hidden: CUDA_VISIBLE_DEVICES is ''"),
        ({"warning": "CUDA unknown error", "visible": "0"}, "CUDA unknown error"),
        ({"warning": ERROR_802, "installed_gpus": 1}, "CUDA initialization: Unexpected error"),
        ({"installed_gpus": 0}, "no GPU"),
        ({}, "not known"),
        ({"built_for": ""}, "not known"),  # a build for AMD
    ],
)
def test_the_reason_is_named_from_the_facts(facts, reason):
    assert why_no_cuda.diagnosis(WELL | facts).startswith(reason)


def test_a_warning_of_pytorch_is_a_fact_and_not_shown(monkeypatch):
    def warn() -> bool:
        warnings.warn("CUDA initialization: CUDA unknown error", stacklevel=1)
        return False

    monkeypatch.setattr(torch.cuda, "is_available", warn)
    assert why_no_cuda.cuda_facts()["warning"] == "CUDA initialization: CUDA unknown error"


@pytest.mark.parametrize(("number", "version"), [(13000, "13.0"), (12080, "12.8"), (None, "")])
def test_the_driver_tells_its_version(number, version, monkeypatch):
    class Driver:
        def __init__(self, name):
            assert name in ("libcuda.so.1", "nvcuda.dll")
            if not number:
                raise OSError(name)

        def cuDriverGetVersion(self, pointer):
            pointer._obj.value = number

    monkeypatch.setattr(ctypes, "CDLL", Driver)
    assert why_no_cuda.driver_cuda() == version


def test_gpus_are_counted_as_nvidia_smi_lists_them(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert why_no_cuda.installed_gpus() == 0
    lines = [
        "GPU 0: NVIDIA H200 (UUID: GPU-1)",
        "  MIG 1g.18gb Device 0: (UUID: MIG-1)",
        "GPU 1: NVIDIA H200",
    ]
    smi = tmp_path / "nvidia-smi"
    smi.write_text("#!/bin/sh\n" + "".join(f"echo '{line}'\n" for line in lines))
    smi.chmod(0o755)
    assert why_no_cuda.installed_gpus() == 2


# which GPU, and choosing it


@pytest.mark.parametrize(
    ("capability", "runs"),
    [
        ("8.0", True),
        ("8.6", True),
        ("8.9", True),
        ("9.0", True),
        ("10.3", True),
        ("9.1", False),  # a target with an "a" serves its own capability alone
        ("7.0", False),
        ("12.0", False),
    ],
)
def test_kernels_serve_later_gpus_of_the_same_major_number(capability, runs, monkeypatch):
    targets = ["sm_75", "sm_80", "sm_90a", "sm_100f", "compute_120"]
    monkeypatch.setattr(torch.cuda, "get_arch_list", lambda: targets)
    assert which_gpu.has_kernels(capability) is runs
    pair = tuple(int(number) for number in capability.split("."))  # as get_device_capability() gives it
    assert which_gpu.has_kernels(pair) is runs


def test_a_kernel_without_an_image_does_not_run(monkeypatch):
    def refuse(*args, **kwargs):
        raise RuntimeError("CUDA error: no kernel image is available for execution on the device")

    assert which_gpu.kernel_runs("cpu")
    monkeypatch.setattr(torch, "ones", refuse)
    assert not which_gpu.kernel_runs("cuda:0")


def test_a_card_has_what_pytorch_says(two_gpus):
    cards = which_gpu.gpu_cards()
    assert [card["device"] for card in cards] == ["cuda:0", "cuda:1"]
    card = {"device": "cuda:1", "name": "NVIDIA H200", "memory_gib": 1024.0, "capability": "9.0"}
    assert cards[1] == card


def test_each_way_to_choose_is_taken_back(two_gpus, monkeypatch):
    def made_on(name: str) -> str:
        return f"cuda:{torch.cuda.current_device()}" if name == "cuda" else name

    monkeypatch.setattr(choose_a_gpu, "made_on", made_on)
    places = choose_a_gpu.ways_to_choose(1)
    chosen = ["by name", "with torch.cuda.device", "with torch.accelerator", "after set_device"]
    assert {way for way, place in places.items() if place == "cuda:1"} == set(chosen)
    assert places["nothing chosen"] == places["after the with"] == "cuda:0"
    assert torch.cuda.current_device() == 0


@pytest.mark.gpu(2)
def test_the_second_gpu_can_be_chosen_in_four_ways():
    places = choose_a_gpu.ways_to_choose(1)
    assert list(places.values()).count("cuda:1") == 4


# where is it?


def test_softmax_without_dim_takes_another_one_for_three_dimensions():
    rows = [tensors_on_devices.implicit_softmax(dimensions) for dimensions in (1, 2, 3, 4)]
    assert [row["dim"] for row in rows] == [0, 1, 0, 1]
    assert all("Implicit dimension choice" in row["said"][0] for row in rows)


def test_old_calls_are_compared_by_value_type_and_device():
    one = torch.ones(2)
    assert tensors_on_devices.same(one, torch.ones(2)) and tensors_on_devices.same(2, 2)
    for other in (one.double(), torch.zeros(2), one.to("meta")):
        assert not tensors_on_devices.same(one, other)


def test_moving_a_tensor_gives_another_and_moving_a_model_moves_it():
    where = tensors_on_devices.places("meta")
    assert (where["tensor"], where["result"], where["model"]) == ("cpu", "meta", "meta")
    assert where["again_is_the_same_object"] and where["product"] == "meta"


def test_every_tensor_of_a_model_that_stays_behind_is_named():
    class Part(nn.Module):
        def __init__(self):
            super().__init__()
            self.plain, self.unset = torch.ones(1), None
            self.register_buffer("kept", torch.ones(1))
            self.weight = nn.Parameter(torch.ones(1))

    model = nn.Sequential(nn.Linear(2, 2, bias=False), Part())
    everything = ["0.weight", "1.plain", "1.weight", "1.kept"]
    assert tensors_left_behind.strays(model, "meta") == everything
    assert tensors_left_behind.strays(model, "meta:1") == everything
    for here in ("cpu", "cpu:0", torch.device("cpu")):
        assert tensors_left_behind.strays(model, here) == []
    assert tensors_left_behind.strays(Part().to("meta"), "meta") == ["plain"]


def test_a_model_works_when_what_stayed_behind_is_moved():
    result = tensors_left_behind.main()
    assert (result["strays"], result["strays_mended"]) == (["1.by"], [])
    assert result["errors"]["mixed"] and not result["errors"]["mended"]
    assert "can't convert" in result["errors"]["numpy"]


def test_a_borrower_finds_what_stayed_behind(tmp_path):
    file = tmp_path / "tensors_left_behind.py"
    file.write_text(download.program(Snippet.read(ROOT, "first_steps/tensors_left_behind")))
    program = "import sys; sys.path.insert(0, '.')\nfrom tensors_left_behind import Scale, strays\n"
    program += "print(strays(Scale().to('meta'), 'meta'))"
    command = [sys.executable, "-I", "-c", program]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout == "['by']\n"


def test_a_default_device_is_for_one_thread_and_for_new_memory_only():
    assert default_device.places("meta") == {
        "torch.zeros(2)": "meta",
        "torch.zeros(2), in another thread": "cpu",
        "torch.from_numpy(array)": "cpu",
        "torch.frombuffer(array)": "cpu",
    }
    assert torch.get_default_device() == torch.device("cpu")


def test_the_price_of_a_default_device_is_for_one_call(capsys, monkeypatch):
    monkeypatch.setattr(default_device, "CALLS", 3)
    result = default_device.main()
    assert set(result["us"]) == {"no default", "with torch.device", "set_default_device"}
    assert capsys.readouterr().out.count(" µs\n") == 3
    assert torch.get_default_device() == torch.device("cpu")


def test_the_default_device_is_given_back():
    where_tensors_land.new_tensors(torch.ones(2, device="meta"))
    assert torch.zeros(1).device.type == "cpu"


# memory and time


def test_a_tensor_leaves_its_memory_in_the_cache(allocator):
    result = three_memory_calls.main()
    size = result["bytes"]
    assert [row["allocated"] for row in result["steps"]] == [0, size, 0, 0]
    assert [row["reserved"] for row in result["steps"]] == [0, size, size, 0]


def test_an_error_is_an_answer():
    def refuse() -> int:
        raise RuntimeError("no accelerator\nand more")

    assert three_memory_calls.answer(refuse) == "no accelerator"
    assert three_memory_calls.answer(lambda: 2048) == "2,048 B"


def test_one_clock_waits_and_the_other_does_not(gpu):
    assert time_one_line.until_returned(lambda: gpu.launch(1.0)) == pytest.approx([0.01] * 15, rel=0.01)
    assert time_one_line.until_done(lambda: gpu.launch(1.0)) == pytest.approx([1000] * 15, rel=0.01)


# three lines


def test_three_streams_give_what_one_gives_and_are_forked_and_joined(unfair):
    a, b, c = inputs = torch.rand(3, 5, device="cuda")
    streams = [torch.cuda.Stream() for _ in inputs]
    results = three_lines.parallel(a, b, c, streams)
    assert (
        unfair.diary[:3] == ["side waits for main"] * 3 and unfair.diary[3:6] == ["main waits for side"] * 3
    )
    assert unfair.diary[6:] == ["used on main"] * 3
    for result, x in zip(results, inputs, strict=True):
        assert torch.allclose(result, x.softmax(0))


def test_three_lines_are_timed_on_a_gpu(late):
    late.most, late.kernel_s["softmax"] = 16, 1e-4
    ms = three_lines.main()["ms"]
    assert ms["one_line"] < ms["parallel"] < ms["serial"] and ms["returned"] < ms["serial"]


def test_the_line_takes_the_inputs_in_turn(gpu):
    inputs = [torch.full((2,), float(i), device="cuda") for i in range(3)]
    seen = []
    line = other_inputs.in_turn(inputs)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(other_inputs, "one_line", lambda x: seen.append(x[0].item()))
        for _ in range(5):
            line()
    assert seen == [0, 1, 2, 0, 1]


def test_a_timeline_of_streams_has_a_lane_for_each():
    calls = [["CPU", 0.0, 5.0, "cudaLaunchKernel"], ["CPU", 30.0, 600.0, "cudaDeviceSynchronize"]]
    kernels = [["stream 7", 6.0, 200.0, "softmax"], ["stream 7", 206.0, 200.0, "softmax"]]
    timelines = {"one_line": [*calls, kernels[0]], "serial": [*calls, *kernels]}
    timelines["parallel"] = [*calls, *([f"stream {n}", 6.0, 200.0, "softmax"] for n in (13, 17, 21))]
    panels = three_lines.plot({"timelines": timelines}, {}).panels
    lanes = [
        list(dict.fromkeys(mark.row for mark in panel.marks if isinstance(mark, Spans))) for panel in panels
    ]
    assert lanes[0] == lanes[1] == ["CPU", "GPU, stream 7"]
    assert lanes[2] == ["CPU", *(f"GPU, stream {n}" for n in (13, 17, 21))]
