"""Snippets of the first steps: what each function says on any machine, with the facts of others made up."""

import contextlib
import ctypes
import json
import subprocess
import sys
import warnings
from types import SimpleNamespace

import matplotlib.pyplot as plt
import pytest
import torch
from conftest import ROOT
from fake_cuda import imitated
from torch import nn

from overlap.run import download
from overlap.run.snippet import Snippet
from snippets.first_steps import (
    choose_a_gpu,
    tensors_left_behind,
    tensors_on_devices,
    three_lines,
    three_memory_calls,
    time_one_line,
    where_tensors_land,
    which_gpu,
    why_no_cuda,
)

MODULES = [
    choose_a_gpu,
    why_no_cuda,
    tensors_left_behind,
    tensors_on_devices,
    three_lines,
    three_memory_calls,
    time_one_line,
    where_tensors_land,
    which_gpu,
]


def name_of(module) -> str:
    return module.__name__.rpartition(".")[2]


def main_of(module) -> dict:
    """What it returns, as it comes back from a recording."""
    return json.loads(json.dumps(module.main(), allow_nan=False))


@pytest.mark.parametrize("module", MODULES, ids=name_of)
def test_each_step_runs_on_this_machine(module, capsys):
    result = main_of(module)
    assert result
    assert capsys.readouterr().out
    if hasattr(module, "plot"):
        assert module.plot(result, {}).axes
    plt.close("all")


@pytest.fixture
def found(monkeypatch):
    """Snippets are told that there is a GPU; who imitates it says how."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)


def test_one_line_is_timed_on_a_gpu(found):
    with imitated(late=True, most=16):
        ms = time_one_line.main()["ms"]
    assert 0 < ms["returned"] <= ms["done"]


def test_three_lines_are_timed_and_drawn_on_a_gpu(found):
    with imitated(late=True, most=16):
        result = three_lines.main()
    assert result["ms"]["returned"] <= result["ms"]["serial"]
    assert result["ms"]["one_line"] < result["ms"]["serial"]
    assert set(result["timelines"]) == {"one_line", "serial", "parallel"}
    assert three_lines.plot(result, {}).axes
    plt.close("all")


def test_memory_is_counted_on_a_gpu(found):
    with imitated(values=False, most=None):
        result = three_memory_calls.main()
    size = result["bytes"]
    assert [row["allocated"] for row in result["steps"]] == [0, size, 0, 0]
    assert [row["reserved"] for row in result["steps"]] == [0, size, size, 0]


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


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        ({"available": True, "visible": "1"}, "CUDA is there"),
        ({"built": False, "built_for": "", "driver": ""}, "CPU build"),
        ({"driver": "", "installed_gpus": 0, "visible": ""}, "no driver"),
        (
            {"driver": "12.8", "warning": "The NVIDIA driver on your system is too old"},
            "driver too old: knows CUDA 12.8",
        ),
        ({"built_for": "12.8", "driver": "12.4", "visible": "7"}, "hidden: CUDA_VISIBLE_DEVICES is '7'"),
        ({"built_for": "9.2", "driver": "13.0", "visible": ""}, "hidden: CUDA_VISIBLE_DEVICES is ''"),
        ({"warning": "CUDA unknown error", "visible": "0"}, "CUDA unknown error"),
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


@pytest.mark.parametrize(("number", "version"), [(13000, "13.0"), (12080, "12.8"), (11040, "11.4")])
def test_the_driver_tells_its_version(number, version, monkeypatch):
    class Driver:
        def __init__(self, name):
            assert name in ("libcuda.so.1", "nvcuda.dll")

        def cuDriverGetVersion(self, pointer):
            pointer._obj.value = number

    monkeypatch.setattr(ctypes, "CDLL", Driver)
    assert why_no_cuda.driver_cuda() == version


def test_without_the_drivers_library_there_is_no_version(monkeypatch):
    def missing(name):
        raise OSError(name)

    monkeypatch.setattr(ctypes, "CDLL", missing)
    assert why_no_cuda.driver_cuda() == ""


def test_gpus_are_counted_as_nvidia_smi_lists_them(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert why_no_cuda.installed_gpus() == 0
    smi = tmp_path / "nvidia-smi"
    lines = [
        "GPU 0: NVIDIA H200 (UUID: GPU-1)",
        "  MIG 1g.18gb Device 0: (UUID: MIG-1)",
        "GPU 1: NVIDIA H200",
    ]
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
        ("7.0", False),
        ("12.0", False),
    ],
)
def test_kernels_serve_later_gpus_of_the_same_major_number(capability, runs, monkeypatch):
    monkeypatch.setattr(
        torch.cuda, "get_arch_list", lambda: ["sm_75", "sm_80", "sm_90a", "sm_100f", "compute_120"]
    )
    assert which_gpu.has_kernels(capability) is runs


def test_a_card_has_what_pytorch_says(monkeypatch):
    gpu = SimpleNamespace(name="NVIDIA H200", total_memory=140 * 2**30, major=9, minor=0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda number: gpu)
    cards = which_gpu.gpu_cards()
    assert [card["device"] for card in cards] == ["cuda:0", "cuda:1"]
    assert cards[1] == {"device": "cuda:1", "name": "NVIDIA H200", "memory_gib": 140.0, "capability": "9.0"}


def test_each_way_to_choose_is_taken_back(monkeypatch):
    current = [0]

    @contextlib.contextmanager
    def device(number):
        before, current[0] = current[0], number
        yield
        current[0] = before

    monkeypatch.setattr(
        choose_a_gpu, "made_on", lambda name: f"cuda:{current[0]}" if name == "cuda" else name
    )
    monkeypatch.setattr(torch.cuda, "device", device)
    monkeypatch.setattr(torch.accelerator, "device_index", device)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: current[0])
    monkeypatch.setattr(torch.cuda, "set_device", lambda number: current.__setitem__(0, number))
    places = choose_a_gpu.ways_to_choose(1)
    chosen = ["by name", "with torch.cuda.device", "with torch.accelerator", "after set_device"]
    assert {way for way, place in places.items() if place == "cuda:1"} == set(chosen)
    assert places["nothing chosen"] == places["after the with"] == "cuda:0"
    assert current == [0]


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


def test_tensors_main_on_this_machine():
    result = tensors_on_devices.main()
    assert all(row["same"] for row in result["rows"])
    assert result["device"] == result["where"]["result"] == result["where"]["model"]
    assert len(result["rows"]) == (8 if result["device"] == "cuda" else 5)


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


def test_left_behind_main_on_this_machine():
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


def test_the_default_device_is_given_back():
    where_tensors_land.new_tensors(torch.ones(2, device="meta"))
    assert torch.zeros(1).device.type == "cpu"


# memory and time


def test_each_step_of_a_tensors_life_is_told_when_it_is_done(monkeypatch):
    done = []
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: done.append("emptied"))
    steps = three_memory_calls.life_of_a_tensor(8, "cpu")
    assert [next(steps) for _ in range(3)] == ["before", "x = torch.empty(...)", "del x"]
    assert done == []
    assert next(steps) == "empty_cache()"
    assert done == ["emptied"]


def test_an_error_is_an_answer():
    def refuse() -> int:
        raise RuntimeError("no accelerator\nand more")

    assert three_memory_calls.answer(refuse) == "no accelerator"
    assert three_memory_calls.answer(lambda: 2048) == "2,048 B"


def test_one_clock_waits_and_the_other_does_not(diary, monkeypatch):
    monkeypatch.setattr("snippets.timing.benchmark.wait_for", lambda devices: diary.append("wait"))
    time_one_line.until_returned(lambda: diary.append("work"), trials=2)
    assert diary == ["work", "work"]
    diary.clear()
    assert time_one_line.until_done(lambda: diary.append("work"), trials=1) == [1000.0]
    assert diary == ["work", "work", "wait", "clock", "work", "wait", "clock"]


# three lines


def test_lines_on_three_streams_are_forked_and_joined(monkeypatch):
    diary, current = [], []

    class Stream:
        def __init__(self, name):
            self.name = name

        def wait_stream(self, other):
            diary.append(f"{self.name} waits for {other.name}")

    @contextlib.contextmanager
    def use(stream):
        current.append(stream.name)
        yield
        current.pop()

    def softmax(x, dim):
        diary.append(f"line in {current[-1]}")
        return x.softmax(dim)

    monkeypatch.setattr(torch.cuda, "current_stream", lambda: Stream("main"))
    monkeypatch.setattr(torch.cuda, "stream", use)
    monkeypatch.setattr(torch, "softmax", softmax)
    monkeypatch.setattr(
        torch.Tensor, "record_stream", lambda x, stream: diary.append(f"kept for {stream.name}")
    )
    inputs = torch.rand(3, 5)
    results = three_lines.parallel(*inputs, [Stream("1"), Stream("2"), Stream("3")])
    for result, x in zip(results, inputs, strict=True):
        torch.testing.assert_close(result, x.softmax(0))
    assert diary[:3] == ["1 waits for main", "2 waits for main", "3 waits for main"]
    assert diary[3:6] == ["line in 1", "line in 2", "line in 3"]
    assert diary[6:9] == ["main waits for 1", "main waits for 2", "main waits for 3"]
    assert diary[9:] == ["kept for main"] * 3


def test_a_timeline_of_streams_has_a_lane_for_each():
    calls = [["CPU", 0.0, 5.0, "cudaLaunchKernel"], ["CPU", 30.0, 600.0, "cudaDeviceSynchronize"]]
    kernels = [["stream 7", 6.0, 200.0, "softmax"], ["stream 7", 206.0, 200.0, "softmax"]]
    timelines = {"one_line": [*calls, kernels[0]], "serial": [*calls, *kernels]}
    timelines["parallel"] = [*calls, *([f"stream {n}", 6.0, 200.0, "softmax"] for n in (13, 17, 21))]
    figure = three_lines.plot({"timelines": timelines}, {})
    lanes = [[label.get_text() for label in ax.get_yticklabels()] for ax in figure.axes]
    assert lanes[0] == lanes[1] == ["CPU", "CPU waits", "stream 7"]
    assert lanes[2] == ["CPU", "CPU waits", "stream 13", "stream 17", "stream 21"]
    plt.close("all")
