"""Each box of lines to paste, run as a reader runs it: alone in a name space."""

import ast
import ctypes
import gc
import os
import pickle
import re
import shutil
import subprocess
import sys
import time
import warnings
import weakref
from collections import namedtuple
from contextlib import contextmanager, nullcontext
from datetime import timedelta
from functools import partial
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
import torch
import torch.distributed as dist
import torch.utils.benchmark
from conftest import ROOT, all_snippets, on_ranks, under_torchrun
from fake_cuda import imitated, on_gpu
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.nn.utils.rnn import pack_sequence
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler, TensorDataset

from overlap.blocks.paste import Paste
from overlap.run import download

MIB = 2**20
Pair = namedtuple("Pair", "x y")


@pytest.fixture
def pasted():
    """`pasted(name)` runs the lines of a box, as the page shows them, and gives the names that they make.

    Several boxes are pasted one below the other.
    """

    def pasted(*boxes: str) -> dict:
        names: dict = {}
        for name in boxes:
            exec(compile(Paste("", 0, name, "").code(ROOT), name, "exec"), names)
        return names

    return pasted


def spin(milliseconds: float) -> None:
    torch.cuda._sleep(int(milliseconds * 2_000_000))


def test_a_box_says_what_it_needs_of_others():
    code = Paste("", 0, "pycuda_function", "").code(ROOT)
    assert code.startswith("# needs launch_double, torch_context\nimport torch\n")
    assert Paste("", 0, "pycuda_function", "").needs(ROOT) == {"pycuda_double", "torch_context"}
    assert Paste("", 0, "torch_context", "").needs(ROOT) == set()


@pytest.mark.parametrize("gpus", ["meta", "cpu"])
def test_model_and_batches_are_put_on_what_there_is(gpus, pasted, monkeypatch, capsys):
    """A device without numbers stands for the GPU; a machine without any GPU has none to name."""
    found = torch.device(gpus) if gpus == "meta" else None
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda check_available=False: found)
    names = pasted("put")
    assert capsys.readouterr().out == f"device: {gpus}\n"
    x, model = torch.ones(2), nn.Linear(2, 1)
    put = names["put"]
    assert put(model) is model and model.weight.device.type == gpus
    batch = put({"x": x, "more": (x, [x, 3], Pair(x, None)), "name": "a"})
    assert isinstance(batch["more"][2], Pair)
    first, (second, number), (third, nothing) = batch["more"]
    packed = put(pack_sequence([x[:, None]])).data
    assert {each.device.type for each in (batch["x"], first, second, third, packed)} == {gpus}
    assert (number, nothing, batch["name"]) == (3, None, "a")


@pytest.mark.gpu
def test_a_model_computes_what_was_put_on_the_gpu(pasted):
    names = pasted("put")
    put = names["put"]
    model, x = nn.Linear(2, 1), torch.ones(3, 2)
    expected = model(x).detach()
    assert names["device"].type == "cuda" and put([x])[0].is_cuda
    torch.testing.assert_close(put(model)(put(x)).detach().cpu(), expected, rtol=1e-3, atol=1e-3)


class Waiting(Dataset):
    """Two items, each of which takes a while to read."""

    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> int:
        time.sleep(0.05)
        return index


def test_the_lane_of_the_loader_is_full_while_it_reads(pasted):
    def steps():
        for batch in DataLoader(Waiting()):
            batch + 1

    full = {lane: int(share[:-1]) for lane, share in pasted("full_lanes")["full_lanes"](steps).items()}
    assert list(full) == ["CUDA", "nccl", "Memcpy ", "DataLoader", "CPU", "Python"]
    assert full["DataLoader"] > 60 and full["CPU"] < 20 and full["CUDA"] == 0


def test_where_nothing_runs_all_is_python(pasted):
    full = pasted("full_lanes")["full_lanes"](lambda: None)
    assert full.pop("Python") == "100%" and set(full.values()) == {"0%"}


def test_each_moment_counts_for_the_first_lane_at_work_and_labels_for_none(pasted, monkeypatch):
    rows = [
        ("cudaLaunchKernel", 0, 10, "CPU"),
        ("aten::add", 5, 20, "CPU"),
        ("cudaMemcpyAsync", 50, 60, "CPU"),
    ]
    rows += [("gemm", 10, 30, "CUDA"), ("gemm", 20, 40, "CUDA"), ("ncclDevKernel", 40, 100, "CUDA")]
    rows += [("Memcpy HtoD", 55, 115, "CUDA"), ("Optimizer.step", 0, 100, "CUDA"), ("mine", 0, 100, "CPU")]
    rows += [
        ("enumerate(DataLoader)", 60, 125, "CPU"),
        ("Python", -60, 80, "CPU"),
        ("Python", 30, 140, "CUDA"),
    ]

    class Profile:
        def __init__(self, **options):
            pass

        def __enter__(self):
            return self

        def __exit__(self, *error):
            pass

        def events(self):
            return [
                SimpleNamespace(
                    name=name,
                    time_range=SimpleNamespace(start=start + 60, end=end + 60),
                    device_type=SimpleNamespace(name=device),
                    is_user_annotation=name in ("Optimizer.step", "mine", "enumerate(DataLoader)", "Python"),
                )
                for name, start, end, device in rows
            ]

    monkeypatch.setattr(torch.profiler, "profile", Profile)
    full = pasted("full_lanes")["full_lanes"](lambda: None)
    assert full == {
        "CUDA": "15%",
        "nccl": "30%",
        "Memcpy ": "8%",  # 15 of 200 µs are beside no kernel
        "DataLoader": "5%",
        "CPU": "5%",
        "Python": "38%",
    }


def test_time_before_the_first_call_counts(pasted):
    def steps():
        time.sleep(0.2)
        torch.rand(300, 300) @ torch.rand(300, 300)

    assert int(pasted("full_lanes")["full_lanes"](steps)["Python"][:-1]) > 60


@pytest.mark.gpu
def test_the_lane_of_the_gpu_is_full_behind_long_kernels_and_empty_behind_a_loader(pasted):
    full_lanes = pasted("full_lanes")["full_lanes"]
    x = torch.rand(8192, 8192, device="cuda")

    def busy():
        for _ in range(10):
            x @ x

    def starving():
        for batch in DataLoader(Waiting()):
            batch.cuda() + 1

    busy()
    starving()
    assert 85 < int(full_lanes(busy)["CUDA"][:-1]) <= 100
    full = full_lanes(starving)
    assert int(full["CUDA"][:-1]) < 10 and int(full["DataLoader"][:-1]) > 60


def test_clock_waits_for_the_gpu(gpu, pasted):
    assert pasted("clock")["seconds"](lambda: spin(3), calls=4) == pytest.approx(3e-3, rel=0.1)


def test_kernel_time_leaves_launches_out(gpu, pasted):
    measured = pasted("kernel_time")["kernel_seconds"](lambda: spin(0.001))
    assert measured == pytest.approx(1e-6, rel=0.5)


@pytest.mark.parametrize("name", ["clock", "returned_and_done", "per_second"])
def test_a_clock_that_waits_for_one_gpu_says_so(name, pasted):
    assert callable(pasted(name)["seconds" if name == "clock" else name])
    assert "# waits for the current GPU only" in Paste("", 0, name, "").code(ROOT)


def test_no_guard_is_one_that_python_may_leave_out():
    """`python -O` strips each `assert`: then a wrong number is told, or memory of others is written."""
    files = [(path.stem, path.read_text()) for path in (ROOT / "snippets/pastes").glob("*.py")]
    for snippet in all_snippets().values():
        files += [(name, download.piece(snippet, name)) for name in snippet.options["take"]]
    for name, text in files:
        guards = [node.lineno for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Assert)]
        assert not guards, f"{name}, line {guards}: raise an error"


def test_kernel_time_refuses_work_that_waits(gpu, pasted):
    with pytest.raises(RuntimeError, match="overtook"):
        pasted("kernel_time")["kernel_seconds"](torch.cuda.synchronize)


def test_memory_parts_add_up_to_the_whole_gpu(late, pasted):
    tensors = [torch.empty(size * MIB, dtype=torch.uint8, device="cuda") for size in (3, 5)]
    del tensors[1]
    parts = pasted("memory_parts")["memory_parts"]()
    assert (parts["tensors"], parts["cache"], parts.pop("most tensors so far")) == (3, 5, 8)
    assert sum(parts.values()) == torch.cuda.get_device_properties(0).total_memory // MIB


def test_a_snapshot_is_written_also_where_memory_is_out(monkeypatch, pasted, tmp_path):
    monkeypatch.chdir(tmp_path)
    calls = []
    monkeypatch.setattr(torch.cuda.memory, "_record_memory_history", lambda **how: calls.append(how))
    monkeypatch.setattr(torch.cuda.memory, "_dump_snapshot", calls.append)
    with_snapshot = pasted("memory_snapshot")["with_snapshot"]
    assert with_snapshot(lambda: calls.append("work") or 3, "a.pickle") == 3
    assert calls[1:] == ["work", "a.pickle", {"enabled": None}]
    with pytest.raises(ZeroDivisionError):
        with_snapshot(lambda: 1 / 0, "b.pickle")
    assert calls[-2:] == ["b.pickle", {"enabled": None}]
    before = len(calls)
    with pytest.raises(FileNotFoundError):
        with_snapshot(lambda: calls.append("work"), "no such folder/c.pickle")
    assert len(calls) == before, "nothing ran for a file that cannot be written"
    monkeypatch.setattr(torch.cuda.memory, "_dump_snapshot", lambda path: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        with_snapshot(lambda: 3, "d.pickle")
    assert calls[-1] == {"enabled": None}, "no disk is a reason to go on recording"


def test_a_smaller_batch_is_tried_when_the_larger_is_gone(late, pasted):
    late.limit(9 * MIB / torch.cuda.get_device_properties(0).total_memory)
    tried = []

    def step(rows):
        tried.append(rows)
        first = torch.empty(rows * MIB, dtype=torch.uint8, device="cuda")
        second = torch.empty_like(first)
        return first, second

    fits = pasted("batch_that_fits")["batch_that_fits"]
    assert fits(step, 16) == 4 and tried == [16, 8, 4]
    late.limit(0)
    with pytest.raises(RuntimeError, match="not even one"):
        fits(step, 2)


@pytest.mark.gpu
def test_a_snapshot_names_the_function_of_a_tensor(pasted, tmp_path):
    def holder():
        return torch.ones(MIB, device="cuda")

    kept = pasted("memory_snapshot")["with_snapshot"](holder, str(tmp_path / "s.pickle"))
    snapshot = pickle.loads((tmp_path / "s.pickle").read_bytes())
    blocks = [block for segment in snapshot["segments"] for block in segment["blocks"]]
    of_kept = [block["frames"] for block in blocks if block["requested_size"] == kept.nbytes]
    assert "holder" in {frame["name"] for frames in of_kept for frame in frames}


def test_results_of_side_streams_may_be_used_at_once(unfair, pasted):
    x = torch.ones(3, device="cuda") * 2
    streams = [torch.cuda.Stream() for _ in range(2)]
    branches = [lambda: x + 1, lambda: x + 2]
    results = pasted("side_by_side")["side_by_side"](branches, streams)
    both = torch.add(*results)
    assert [result.block.users for result in results] == [[unfair.current]] * 2
    del results
    spoiled = [torch.full((3,), -1.0, device="cuda") for _ in streams]
    assert both.tolist() == [7.0] * 3 and len(spoiled) == 2


def test_nothing_is_launched_on_too_few_streams(gpu, pasted):
    launched = []
    with pytest.raises(ValueError, match="shorter"):
        pasted("side_by_side")["side_by_side"]([lambda: launched.append(1)] * 2, [torch.cuda.Stream()])
    assert not launched


def summed_on_the_side(fork: bool):
    """A program that writes on the current stream, and sums on another one."""
    side = torch.cuda.Stream()
    x = torch.zeros(1000, device="cuda")

    def program(given):
        x.fill_(given)
        if fork:
            side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            total = x.sum()
        torch.cuda.current_stream().wait_stream(side)
        return total

    return program


def test_a_missing_fork_is_wrong_under_load(pasted):
    with imitated(late=True, first="side"):
        wrong = pasted("wrong_under_load")["wrong_under_load"]
        assert wrong(summed_on_the_side(fork=True), [1.0, 2.0], rounds=3) == 0
        assert wrong(summed_on_the_side(fork=False), [1.0, 2.0], rounds=3) > 0


def test_results_in_one_buffer_are_told_apart(late, pasted):
    """As those of a graph are: each run overwrites the result of the one before."""
    wrong, buffer = pasted("wrong_under_load")["wrong_under_load"], torch.zeros(4, device="cuda")
    assert wrong(lambda given: buffer.fill_(given), [1.0, 2.0], rounds=3) == 0
    buffer.zero_()
    assert wrong(lambda given: buffer.fill_(max(given, buffer[0].item())), [1.0, 2.0], rounds=3) == 3


@pytest.mark.gpu
def test_a_missing_fork_is_wrong_on_a_gpu_under_load(pasted):
    wrong = pasted("wrong_under_load")["wrong_under_load"]
    assert wrong(summed_on_the_side(fork=True), [1.0, 2.0], rounds=3) == 0
    assert wrong(summed_on_the_side(fork=False), [1.0, 2.0], rounds=3) >= 5


def test_a_gpu_describes_itself(two_gpus, pasted):
    facts = pasted("what_it_is")["what_it_is"](1)
    assert facts["name"] == "NVIDIA H200" and facts["compute capability"] == "9.0"
    assert (facts["SMs"], facts["highest clock, MHz"], facts["L2 cache, MiB"]) == (132, 2000, 60)
    assert (facts["memory, GiB"], facts["memory at most, GB/s"]) == (1024, 4814)


def test_a_copy_reads_and_writes_and_a_product_is_two_n_cubed(two_gpus, monkeypatch, pasted):
    ran = []

    class Timer:
        """Each call takes two milliseconds."""

        def __init__(self, stmt: str, globals: dict):
            self.stmt, self.names = stmt, globals

        def timeit(self, calls: int) -> SimpleNamespace:
            exec(self.stmt, self.names)
            ran.append((self.stmt, two_gpus.index))
            return SimpleNamespace(median=2e-3)

    monkeypatch.setattr(torch.utils.benchmark, "Timer", Timer)
    measured = pasted("rates")["rates"](n=100, index=1)
    assert ran == [("copy.copy_(big)", 1), ("x @ x", 1)], "the clock waits for the current GPU"
    assert two_gpus.index == 0
    assert measured["copy, GB/s"] == pytest.approx(2 * 8 * 100 * 100 * 2 / 2e-3 / 1e9)
    assert measured["bf16, TFLOP/s"] == pytest.approx(2e6 / 2e-3 / 1e12)


@pytest.mark.gpu
def test_a_copy_comes_near_what_the_gpu_says_of_its_memory(pasted):
    most = pasted("what_it_is")["what_it_is"]()["memory at most, GB/s"]
    assert 0.5 * most < pasted("rates")["rates"]()["copy, GB/s"] <= 1.02 * most


@pytest.mark.gpu
def test_both_clocks_agree_on_a_long_kernel(pasted):
    x = torch.rand(8192, 8192, device="cuda")
    work = lambda: x @ x  # noqa: E731
    seconds, kernel = pasted("clock")["seconds"](work), pasted("kernel_time")["kernel_seconds"](work)
    assert kernel == pytest.approx(seconds, rel=0.1)


def test_a_line_waits_if_the_kernel_before_it_is_done(gpu, pasted):
    waits = pasted("waits")["waits"]
    x = torch.ones(4, device="cuda")
    assert waits(lambda: x[0].item()) and waits(torch.cuda.synchronize)
    assert not waits(lambda: x + 1) and not waits(lambda: gpu.sleep(1e-3))
    assert not waits(lambda: time.sleep(0.02)), "however long Python's own work takes"


@pytest.mark.gpu
def test_waits_of_known_lines(pasted):
    waits = pasted("waits")["waits"]
    x = torch.ones(1024, device="cuda")
    assert waits(lambda: x[x > 0]) and not waits(lambda: torch.where(x > 0, x, 0))


def test_lines_of_waits_are_named_and_the_mode_ends(pasted, monkeypatch):
    modes = []

    def set_mode(mode):
        modes.append(mode)
        warnings.warn("the mode does not yet detect all synchronizing operations", stacklevel=1)

    monkeypatch.setattr(torch.cuda, "set_sync_debug_mode", set_mode)
    monkeypatch.setattr(torch.cuda, "get_sync_debug_mode", lambda: 2)

    def step(fails=False):
        for _ in range(2):
            warnings.warn("called a synchronizing CUDA operation", stacklevel=1)
        warnings.warn("something else", stacklevel=1)
        assert modes[-1] == "warn" and not fails

    lines_that_wait = pasted("lines_that_wait")["lines_that_wait"]
    assert lines_that_wait(step) == [f"{__file__}:{step.__code__.co_firstlineno + 2}"]
    with pytest.raises(AssertionError):
        lines_that_wait(lambda: step(fails=True))
    assert modes == ["warn", 2] * 2, "the mode is put back to what it was"


@pytest.mark.gpu
def test_the_debug_mode_names_the_line_of_item(pasted):
    x = torch.ones(1024, device="cuda")

    def step():
        y = x + 1
        y.sum().item()

    found = pasted("lines_that_wait")["lines_that_wait"](step)
    assert found == [f"{__file__}:{step.__code__.co_firstlineno + 2}"]
    assert torch.cuda.get_sync_debug_mode() == 0


def test_a_loss_is_read_once_in_many_steps(gpu, pasted, capsys):
    losses = torch.arange(7.0, device="cuda")
    loss = lambda batch: SimpleNamespace(detach=lambda: losses[batch] * 2)  # noqa: E731
    pasted("read_rarely")["train"](loss, range(7), every=3)
    assert capsys.readouterr().out == "3: 2.0000\n6: 8.0000\n"
    assert [row[1] for row in gpu.log].count("cudaStreamSynchronize") == 2


def training_step():
    """`step(x, y)` and the weight that it trains."""
    weight = torch.zeros(1, device="cuda", requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=0.1)

    def step(x, y):
        optimizer.zero_grad()
        loss = (weight * x - y).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step, weight


def replays_train_as_eager_steps_do(pasted):
    x, y = torch.tensor([[1.0, 2.0], [3.0, 5.0]], device="cuda")
    batches = [(x + turn, y - turn) for turn in range(4)]
    step, trained = training_step()
    graph, loss = pasted("capture")["captured"](step, x, y)
    inputs = x, y
    losses = [each.item() for each in pasted("replay")["replayed"](graph, loss, inputs, batches)]
    eager, weight = training_step()
    for _ in range(3):
        eager(*batches[0])
    assert losses == pytest.approx([eager(*batch).item() for batch in batches])
    torch.testing.assert_close(trained, weight)


def test_replays_train_as_eager_steps_do(gpu, pasted):
    replays_train_as_eager_steps_do(pasted)


@pytest.mark.gpu
@pytest.mark.filterwarnings("error")
def test_replays_train_as_eager_steps_do_on_a_gpu(pasted):
    replays_train_as_eager_steps_do(pasted)


def test_a_graph_keeps_what_its_step_refers_to(gpu, pasted):
    """A function that makes model, optimizer and step, and returns the graph alone: all of it is in use."""

    def made():
        step, weight = training_step()
        x = torch.ones(2, device="cuda")
        return pasted("capture")["captured"](step, x, x), [weakref.ref(each) for each in (step, weight, x)]

    (graph, _), parts = made()
    assert all(part() is not None for part in parts)
    del graph, _
    gc.collect()
    assert all(part() is None for part in parts)


def test_a_shorter_batch_is_refused_before_it_is_replayed(pasted):
    held = torch.zeros(3, 2)
    with pytest.raises(ValueError, match="one shape"):
        next(pasted("replay")["replayed"](None, None, (held,), [(torch.ones(1, 2),)]))
    with pytest.raises(ValueError, match="would convert"):
        next(pasted("replay")["replayed"](None, None, (held,), [(torch.ones(3, 2).double(),)]))
    assert not held.any()


def test_a_result_of_one_launch_is_kept(pasted, monkeypatch):
    modes = []

    def compiled(function, mode):
        modes.append(mode)
        buffer = torch.empty(2)
        return lambda x: buffer.copy_(function(x))

    monkeypatch.setattr(torch, "compile", compiled)
    call = pasted("one_launch")["one_launch"](lambda x: x + 1)
    first, second = call(torch.zeros(2)), call(torch.ones(2))
    assert (first.tolist(), second.tolist(), modes) == ([1, 1], [2, 2], ["reduce-overhead"])


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:The CUDA Graph is empty")  # PyTorch's own first capture
@torch.no_grad()
def test_one_launch_gives_what_the_function_gives(pasted):
    call = pasted("one_launch")["one_launch"](lambda x: (x.sin() + x).relu().sum(1))
    inputs = [torch.randn(64, 64, device="cuda") for _ in range(5)]
    results = [call(x) for x in inputs]
    for x, result in zip(inputs, results, strict=True):
        torch.testing.assert_close(result, (x.sin() + x).relu().sum(1))


@pytest.mark.parametrize("order", ["main", "side"])
def test_batches_of_any_form_come_ahead_and_right(order, pasted):
    """Whichever stream runs first: no batch is read before it arrives, none is overwritten while in use."""
    with imitated(late=True, first=order):
        batches = [{"x": torch.full((4,), float(i)), "names": ["a", 2]} for i in range(6)]
        sums = [batch["x"].sum() for batch in pasted("ahead")["ahead"](batches)]
        assert [total.item() for total in sums] == [0, 4, 8, 12, 16, 20]
        forms = [torch.ones(2), (torch.ones(2), 3), Pair(torch.ones(2), None), [torch.ones(2).pin_memory()]]
        arrived = list(pasted("ahead")["ahead"](forms))
        assert [type(batch) for batch in arrived[1:]] == [tuple, Pair, list]
        assert all(map(on_gpu, (arrived[0], arrived[1][0], arrived[2].x, arrived[3][0])))
        assert list(pasted("ahead")["ahead"]([])) == []


@pytest.mark.gpu
def test_ahead_hides_the_shorter_of_copy_and_work(pasted):
    seconds = pasted("clock")["seconds"]
    batches = [torch.rand(2048, 8192).pin_memory() for _ in range(12)]
    w = torch.rand(8192, 8192, device="cuda")
    copy = seconds(lambda: [batch.cuda(non_blocking=True) for batch in batches], calls=5)
    kept = [batch.cuda() for batch in batches]
    work = seconds(lambda: [batch @ w for batch in kept], calls=5)
    both = seconds(lambda: [batch @ w for batch in pasted("ahead")["ahead"](batches)], calls=5)
    assert both < max(copy, work) + 0.4 * min(copy, work)


def test_per_second_tells_loader_step_and_both_apart(gpu, pasted):
    def slow(pause, count):
        for i in range(count):
            time.sleep(pause)
            yield i

    per_second = pasted("per_second")["per_second"]
    assert per_second(slow(0.01, 30)) == pytest.approx(100, rel=0.3)
    assert per_second([0] * 30, lambda batch: spin(5)) == pytest.approx(200, rel=0.3)
    assert per_second(slow(0.01, 30), most=10) == pytest.approx(100, rel=0.3)
    for batches, error in (([0], ZeroDivisionError), ([], StopIteration)):
        with pytest.raises(error):
            per_second(batches)


class Slept(Dataset):
    """Rows that each take 50 ms to load."""

    def __len__(self):
        return 40

    def __getitem__(self, index):
        time.sleep(0.05)
        return index


@pytest.mark.parametrize("kept", [False, True])
def test_per_second_does_not_count_what_was_loaded_during_a_slow_first_step(kept, monkeypatch, pasted):
    """While the first step compiles, two workers could load 16 of the 40 batches; they load 40 a second."""
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    loader = DataLoader(Slept(), None, num_workers=2, prefetch_factor=8, persistent_workers=kept)
    compiled = []

    def step(batch):
        compiled.append(batch)
        time.sleep(1 if len(compiled) == 1 else 0.001)

    assert 10 < pasted("per_second")["per_second"](loader, step) < 50  # fewer on a busy host, never more


def test_feeding_takes_a_ranks_share_of_the_cores(monkeypatch, pasted):
    feeding = pasted("feeding")["feeding"]
    data = TensorDataset(torch.arange(8.0))
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(16)))
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    assert [feeding(data, n, pin_memory=False).num_workers for n in (0, 8, 99)] == [1, 8, 15]
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    assert feeding(data, pin_memory=False).num_workers == 3
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(16 if process else 4)))
    assert feeding(data, pin_memory=False).num_workers == 3, "already pinned to its part"
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(16 if process else 8)))
    assert feeding(data, pin_memory=False).num_workers == 3, "two ranks on each half of the cores"
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(16 if process else 2)))
    assert feeding(data, pin_memory=False).num_workers == 1, "pinned to less than its part"
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0})
    monkeypatch.delattr(os, "sched_getaffinity")  # as on macOS and Windows
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    loader = feeding(data, batch_size=4, prefetch_factor=2, pin_memory=False)
    assert (loader.num_workers, loader.persistent_workers, loader.prefetch_factor) == (1, True, 2)
    assert [x.tolist() for (x,) in loader] == [[0, 1, 2, 3], [4, 5, 6, 7]]


def test_spawned_workers_share_cores_and_results_and_raise(tmp_path, pasted):
    """As the file that a reader makes of it; then with a mistake in the work, as a reader makes one."""
    pasted("spawned")  # importing starts nothing
    code = Paste("", 0, "spawned", "").code(ROOT).replace("4", "2")
    without = "import os\n\nvars(os).pop('sched_getaffinity', None)  # as on macOS and Windows\n"
    right = code.replace("torch.ones(512, 512).sum()", "torch.get_num_threads()")
    (tmp_path / "right.py").write_text(without + right)
    (tmp_path / "wrong.py").write_text(code.replace("torch.ones", "torch.oness").replace("2)", "1)"))
    ended, failed = (
        subprocess.run([sys.executable, name], cwd=tmp_path, capture_output=True, text=True, timeout=120)
        for name in ("right.py", "wrong.py")
    )
    first, second = map(float, ended.stdout.strip("[]\n").split(", "))
    assert first == second and 1 <= first <= max(1, (os.cpu_count() or 1) // 2)
    assert failed.returncode and "has no attribute 'oness'" in failed.stderr


def test_python_returns_before_the_gpu_is_done(gpu, pasted):
    returned, done = pasted("returned_and_done")["returned_and_done"](lambda: gpu.launch(5e-3))
    assert returned < 1e-4 and done == pytest.approx(5e-3, rel=0.1)


@torch.no_grad()
def test_equal_blocks_are_compiled_once_and_keep_their_names(pasted):
    class Block(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(4, 4)

        def forward(self, x):
            return self.layer(x).relu()

    graphs = []
    net = torch.nn.Sequential(*(Block() for _ in range(3)))
    names, x = list(net.state_dict()), torch.ones(2, 4)
    before = net(x)
    torch.compiler.reset()
    pasted("compile_blocks")["compile_blocks"](net, backend=lambda graph, _: graphs.append(graph) or graph)
    torch.testing.assert_close(net(x), before)
    assert len(graphs) == 1 and list(net.state_dict()) == names
    torch.compiler.reset()


class Attention(torch.nn.Module):
    """A language model of one block; without a cache it looks at all tokens."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.tokens, self.places = torch.nn.Embedding(16, 8), torch.nn.Embedding(16, 8)
        self.project, self.scores = torch.nn.Linear(8, 24), torch.nn.Linear(8, 16)

    def forward(self, token, place, attend):
        x = self.tokens(token) + self.places(place)
        q, k, v = self.project(x).unflatten(-1, (3, 2, 4)).permute(2, 0, 3, 1, 4)
        return self.scores(x + attend(q, k, v).transpose(1, 2).flatten(2))


def causal(q, k, v):
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)


def likeliest(net, tokens, count):
    """The next tokens of each text, without a cache."""
    for _ in range(count):
        place = torch.arange(tokens.shape[1], device=tokens.device)
        tokens = torch.cat([tokens, net(tokens, place, causal)[:, -1:].argmax(-1)], 1)
    return tokens[:, -count:]


def test_a_static_cache_gives_what_attention_to_all_tokens_gives(pasted):
    q, k, v = torch.randn(3, 2, 3, 7, 4)  # texts, heads, tokens, size
    cache = pasted("static_cache")["StaticCache"](2, 3, 9, 4)
    parts = [torch.arange(5), torch.tensor([5]), torch.tensor([6])]
    found = [cache.attend(q[:, :, part], k[:, :, part], v[:, :, part], part) for part in parts]
    torch.testing.assert_close(torch.cat(found, 2), causal(q, k, v))


@torch.no_grad()
def generates_the_likeliest_tokens(pasted):
    net = Attention().cuda()
    prompt = torch.tensor([[1, 2, 3], [7, 5, 9]], device="cuda")
    cache = pasted("static_cache")["StaticCache"](2, 2, 16, 4, device="cuda")

    def step(token, place):
        return net(token, place, lambda q, k, v: cache.attend(q, k, v, place))

    token = step(prompt, torch.arange(3, device="cuda"))[:, -1:].argmax(-1)
    place = torch.tensor([3], device="cuda")
    first = token.clone()
    found = pasted("generate")["generate"](step, token, place, 6)
    assert torch.equal(torch.cat([first, found], 1), likeliest(net, prompt, 7))


def test_generates_the_likeliest_tokens(gpu, pasted, monkeypatch):
    monkeypatch.setattr(torch.nn.Module, "cuda", lambda net: net)
    generates_the_likeliest_tokens(pasted)


@pytest.mark.gpu
def test_generates_the_likeliest_tokens_on_a_gpu(pasted):
    generates_the_likeliest_tokens(pasted)


#: What a rank of the CPU has instead of a GPU, and a loop over its own half of the rows.
ON_THE_CPU = """
import sys

import torch.distributed.nn  # else a thread of gloo may abort the process at its end

calls = []
torch.cuda.set_device = calls.append
torch.nn.Module.cuda = lambda module: module
join = dist.init_process_group
dist.init_process_group = lambda backend, device_id: (calls.append((backend, device_id)), join("gloo"))


def train(ddp):
    rank = dist.get_rank()
    gpu = torch.device("cuda", rank)
    assert calls == [gpu, ("nccl", gpu)] and dist.get_world_size() == 2
    rows = torch.arange(4.0).view(4, 1)[2 * rank : 2 * rank + 2]
    ddp(rows).square().mean().backward()
    torch.save((ddp.module.weight.detach(), ddp.module.weight.grad), f"{sys.argv[1]}/{rank}")


run(torch.nn.Linear(1, 1, bias=False), train)
assert not dist.is_initialized()
"""


def test_a_model_on_all_ranks_has_one_start_and_the_gradients_of_all_rows(tmp_path, pasted):
    assert callable(pasted("ddp")["run"])  # starts nothing by itself
    (tmp_path / "file.py").write_text(Paste("", 0, "ddp", "").code(ROOT) + "\n" + ON_THE_CPU)
    on_ranks(2, str(tmp_path / "file.py"), str(tmp_path))
    (weight, grad), (other, grad_of_other) = (torch.load(tmp_path / str(rank)) for rank in range(2))
    assert weight == other and grad == grad_of_other
    torch.testing.assert_close(grad, 2 * weight * torch.arange(4.0).square().mean())


@pytest.mark.gpu
def test_a_model_is_trained_on_each_gpu(tmp_path):
    train = """
def train(ddp):
    assert next(ddp.parameters()).device.index == int(os.environ["LOCAL_RANK"])
    ddp(torch.ones(2, 3, device="cuda")).sum().backward()
    print("trained", ddp.module.weight.grad.sum().item())


run(torch.nn.Linear(3, 1), train)
"""
    (tmp_path / "file.py").write_text(Paste("", 0, "ddp", "").code(ROOT) + "\n" + train)
    gpus = torch.cuda.device_count()
    assert under_torchrun(gpus, str(tmp_path / "file.py")).count("trained 6.0") == gpus


def test_a_batch_in_parts_is_exchanged_once(alone, pasted):
    exchanged = []

    def hook(state, bucket):
        exchanged.append(bucket.buffer().numel())
        return allreduce_hook(state, bucket)

    model = torch.nn.Linear(3, 1)
    ddp = torch.nn.parallel.DistributedDataParallel(model)
    ddp.register_comm_hook(None, hook)
    x, y = torch.randn(12, 3), torch.randn(12, 1)
    mse = partial(torch.nn.functional.mse_loss, reduction="sum")
    mean = torch.nn.functional.mse_loss(model(x), y)
    expected = torch.autograd.grad(mean, list(model.parameters()))
    parts = list(zip(x.split([5, 0, 4, 3, 0]), y.split([5, 0, 4, 3, 0]), strict=True))
    for exchanges, given in enumerate((parts, iter(parts)), 1):  # the second begins from no gradients
        ddp.zero_grad()
        pasted("accumulate")["accumulate"](ddp, mse, given)
        assert exchanged == [4] * exchanges
        for parameter, grad in zip(model.parameters(), expected, strict=True):
            torch.testing.assert_close(parameter.grad, grad)


def test_the_hook_of_the_page_is_imported_from_there_and_sends_bf16(alone, monkeypatch):
    page = (ROOT / "docs/training.md").read_text()
    (imported,) = re.findall(r"import is `(from torch[^`]+)`", page)
    (call,) = set(re.findall(r"`(ddp\.register_comm_hook\(None, [^`]+)`", page))
    ddp_class = torch.nn.parallel.DistributedDataParallel
    monkeypatch.setattr(ddp_class, "_check_comm_hook", lambda ddp, hook: None)  # it asks for NCCL
    model = torch.nn.Linear(3, 1)
    names = {"ddp": ddp_class(model)}
    exec(f"{imported}\n{call}", names)
    x = torch.randn(5, 3)
    (expected,) = torch.autograd.grad(model(x).square().mean(), [model.weight])
    names["ddp"](x).square().mean().backward()
    assert torch.equal(model.weight.grad, expected.bfloat16().float())
    assert not torch.equal(model.weight.grad, expected)


#: Each of two ranks has half of the rows; DDP's options are those of the chapter's table.
IN_PARTS_WITH = """
from functools import partial
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank, mse = dist.get_rank(), partial(torch.nn.functional.mse_loss, reduction="sum")
torch.manual_seed(0)
model = torch.nn.Linear(3, 2)
x, y = torch.randn(2, 8, 3), torch.randn(2, 8, 2)
mean = mse(model(x.flatten(0, 1)), y.flatten(0, 1)) / y.numel()
expected = torch.autograd.grad(mean, list(model.parameters()))
view = {"gradient_as_bucket_view": True}
for options in ({}, view, view | {"broadcast_buffers": False}, view | {"static_graph": True}):
    ddp = DistributedDataParallel(model, **options)
    parts = lambda: zip(x[rank].split([5, 3]), y[rank].split([5, 3]))
    if "static_graph" in options:
        try:
            accumulate(ddp, mse, parts())
            raise SystemExit("static_graph allows no_sync in the first pass: say less on the page")
        except RuntimeError as error:
            assert "expect_autograd_hooks_ INTERNAL ASSERT" in str(error)
        ddp = DistributedDataParallel(model, **options)
        mse(ddp(x[rank]), y[rank]).backward()
    for _ in range(3):
        ddp.zero_grad()
        accumulate(ddp, mse, parts())
        for parameter, grad in zip(model.parameters(), expected):
            torch.testing.assert_close(parameter.grad, grad)
    del ddp
TOKENS
ddp = DistributedDataParallel(model)
accumulate(ddp, loss, in_parts())
for parameter, grad in zip(model.parameters(), mean_grads(model)):
    torch.testing.assert_close(parameter.grad, grad)
del ddp
dist.destroy_process_group()
"""

#: A language model's loss is a mean over tokens. Some are left out: not equally many in each part, and rank.
TOKENS = """
from functools import partial
model = torch.nn.Linear(3, 7)
x, y = torch.randn(2, 6, 9, 3), torch.randint(7, (2, 6, 9))
y[0, :, 2:], y[0, 0], y[1, 4, 1:] = -100, -100, -100
cross_entropy = torch.nn.functional.cross_entropy
loss = lambda scores, labels: cross_entropy(scores.flatten(0, -2), labels.flatten(), reduction="sum")
in_parts = lambda: zip(x[rank].split([4, 2][:: 1 - 2 * rank]), y[rank].split([4, 2][:: 1 - 2 * rank]))
mean_grads = lambda model: torch.autograd.grad(
    cross_entropy(model(x).flatten(0, -2), y.flatten()), list(model.parameters())
)
"""


def test_a_batch_in_parts_is_right_with_each_option_after_a_first_exchange(tmp_path):
    code = Paste("", 0, "accumulate", "").code(ROOT)
    (tmp_path / "file.py").write_text(f"{code}\n{IN_PARTS_WITH.replace('TOKENS', TOKENS)}")
    on_ranks(2, str(tmp_path / "file.py"))


def test_a_split_model_is_told_before_the_forward_pass_which_part_is_the_last(pasted, alone):
    told: list[object] = []

    class Model(torch.nn.Linear):
        def set_requires_gradient_sync(self, last):
            told.append(last)

        def forward(self, x):
            told.append("forward")
            return super().forward(x)

    pairs = zip(torch.ones(3, 2, 4), torch.ones(3, 2, 1), strict=True)
    pasted("accumulate_split")["accumulate_split"](Model(4, 1), torch.nn.functional.mse_loss, pairs)
    assert told == [*[False, "forward"] * 2, True, "forward", True]


#: Each of two ranks has its own rows, in parts of unequal size.
SPLIT_IN_PARTS = """
from functools import partial
import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from torch.utils._python_dispatch import TorchDispatchMode

called = []


class Called(TorchDispatchMode):
    def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
        called.extend(["reduce_scatter"] * ("reduce_scatter" in str(operator)))
        return operator(*args, **kwargs or {})


dist.init_process_group("gloo")
rank, mse = dist.get_rank(), partial(torch.nn.functional.mse_loss, reduction="sum")
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2))
x, y = torch.randn(2, 12, 3), torch.randn(2, 12, 2)
(mse(model(x.flatten(0, 1)), y.flatten(0, 1)) / y.numel()).backward()
expected = [parameter.grad.clone() for parameter in model.parameters()]
model.zero_grad()
fully_shard(model)
parts = zip(x[rank].split([5, 0, 4, 3]), y[rank].split([5, 0, 4, 3]))
for turn in (1, 2):  # all is set as it was for the next batch
    model.zero_grad()
    called.clear()
    with Called():
        accumulate_split(model, mse, parts if turn == 1 else [(x[rank], y[rank])])
    assert called == ["reduce_scatter"]
    for parameter, grad in zip(model.parameters(), expected):
        torch.testing.assert_close(parameter.grad.full_tensor(), grad)


fault = {"place": "", "part": 0}  # where the second part raises


def fail_in(place):
    if fault == {"place": place, "part": 2}:
        raise ZeroDivisionError


class Between(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        fail_in("backward")
        return grad


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(3, 3) for _ in range(3))
        self.head = torch.nn.Linear(3, 2)

    def forward(self, x):
        fault["part"] += 1
        for layer in self.layers:
            x = Between.apply(layer(x).tanh())
            fail_in("forward")
        return self.head(x)


def new_model():
    torch.manual_seed(1)
    return Model()


whole = new_model()
(mse(whole(x.flatten(0, 1)), y.flatten(0, 1)) / y.numel()).backward()
parts = list(zip(x[rank].split([5, 4, 3]), y[rank].split([5, 4, 3])))


# The largest error of a gradient; infinity if a parameter is no longer split.
def most_off(model):
    most = 0.0
    for mine, other in zip(model.parameters(), whole.parameters(), strict=True):
        if not hasattr(mine.grad, "full_tensor"):
            return float("inf")
        most = max(most, float((mine.grad.full_tensor() - other.grad).abs().max()))
    return most


# How far gradients of the next two batches are off, and how many weights the optimizer then changes.
def after_an_error(place, reset, back):
    model = new_model()
    for layer in model.layers:
        fully_shard(layer)
    fully_shard(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    split = list(model.parameters())

    def loss_of(output, target):
        fail_in("loss")
        return mse(output, target)

    fault.update(place=place, part=0)
    try:
        accumulate_split(model, loss_of, parts)
    except ZeroDivisionError:
        fault.update(place="")
    else:
        raise AssertionError("nothing was raised")
    if reset:
        model.reset_iter_state()
    if back:
        mse(model(x[rank]), y[rank]).backward()
    model.zero_grad()
    errors = []
    for _ in range(2):
        accumulate_split(model, mse, parts)
        errors.append(most_off(model))
        if len(errors) == 1:
            model.zero_grad()
    before = [parameter.to_local().detach().clone() for parameter in split]
    optimizer.step()
    return errors, sum(not torch.equal(a, b.to_local()) for a, b in zip(before, split))


for place in ("forward", "loss", "backward"):
    errors, changed = after_an_error(place, reset=False, back=True)
    assert (max(errors) < 1e-6) == (changed == 8) == (place != "backward"), (place, errors, changed)
    if hasattr(torch.distributed.fsdp.FSDPModule, "reset_iter_state"):
        errors, changed = after_an_error(place, reset=True, back=True)
        assert max(errors) < 1e-6 and changed == 8, (place, errors, changed)
        errors, changed = after_an_error(place, reset=True, back=False)
        assert errors[0] > 0.01 and errors[1] < 1e-6, (place, errors)  # the first has the failed one's, too
TOKENS
expected = mean_grads(model)
fully_shard(model)
accumulate_split(model, loss, in_parts())
for parameter, grad in zip(model.parameters(), expected):
    torch.testing.assert_close(parameter.grad.full_tensor(), grad)
dist.destroy_process_group()
"""


def test_a_split_models_batch_in_parts_is_exchanged_once(tmp_path):
    code = Paste("", 0, "accumulate_split", "").code(ROOT)
    (tmp_path / "file.py").write_text(f"{code}\n{SPLIT_IN_PARTS.replace('TOKENS', TOKENS)}")
    on_ranks(2, str(tmp_path / "file.py"))


#: One of three ranks comes once, and not again before another has said so.
TWO_OF_THREE = """
import pathlib
import sys
import time

said, missing = pathlib.Path(sys.argv[1]) / "said", int(sys.argv[2])
all_here = join(5, "gloo")
all_here()
if dist.get_rank() == missing:
    while not said.exists():
        time.sleep(0.1)
else:
    try:
        all_here()
    except RuntimeError as error:
        if dist.get_rank() == (1 if missing == 0 else 0):
            said.write_text(str(error))
"""


@pytest.mark.parametrize(
    "missing, says",
    [(2, "Ranks 2 failed to pass monitoredBarrier in 5000 ms"), (0, "Please check rank 0 logs")],
)
def test_the_missing_rank_is_named(missing, says, tmp_path, pasted):
    """By rank 0; if this is missing, by what the others get instead."""
    (tmp_path / "file.py").write_text(Paste("", 0, "all_here", "").code(ROOT) + "\n" + TWO_OF_THREE)
    on_ranks(3, str(tmp_path / "file.py"), str(tmp_path), str(missing))
    assert says in (tmp_path / "said").read_text()


def test_the_group_is_joined_with_its_timeout(monkeypatch, pasted):
    starts = []
    monkeypatch.setattr(
        dist, "init_process_group", lambda backend, timeout: starts.append((backend, timeout))
    )
    monkeypatch.setattr(dist, "new_group", lambda **how: None)
    pasted("all_here")["join"](90)
    assert starts == [("nccl", timedelta(seconds=90))]


def test_bus_bandwidth_is_what_a_link_carries(gpu, pasted, monkeypatch):
    monkeypatch.setattr(dist, "all_reduce", lambda x: gpu.launch(5e-3))
    monkeypatch.setattr(dist, "get_world_size", lambda: 4)
    assert pasted("bus_gb_s")["bus_gb_s"](3, calls=4) == pytest.approx(1.5 * 3 * MIB / 5e-3 / 1e9, rel=0.1)


@pytest.mark.gpu
@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="two GPUs exchange")
def test_bus_bandwidth_grows_with_the_tensor(tmp_path):
    measured = """
import os
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl")
sizes = bus_gb_s(1), bus_gb_s(512)
if dist.get_rank() == 0:
    print(*sizes)
dist.destroy_process_group()
"""
    (tmp_path / "file.py").write_text(Paste("", 0, "bus_gb_s", "").code(ROOT) + "\n" + measured)
    small, large = map(float, under_torchrun(2, str(tmp_path / "file.py")).split())
    assert 2 * small < large


def test_each_gpu_has_its_work_before_the_first_is_waited_for(two_gpus, pasted):
    two_gpus.kernel_s["mm"] = 1e-3
    launched = []

    def model(batch: SimpleNamespace) -> torch.Tensor:
        launched.append((two_gpus.index, two_gpus.now))
        return torch.mm(batch.x, batch.x)

    batches = [SimpleNamespace(device=i, x=torch.full((2, 2), i + 1.0, device="cuda")) for i in (1, 0)]
    results = pasted("on_all")["on_all"]([model, model], batches)
    (first, at), (second, later) = launched
    assert (first, second) == (1, 0) and later - at < 1e-4, "no wait between them"
    for result, number in zip(results, (8.0, 2.0), strict=True):
        assert not on_gpu(result) and not result.is_inference(), "a reader may train on it"
        torch.testing.assert_close(result, torch.full((2, 2), number))


@pytest.mark.gpu(2)
def test_two_gpus_work_side_by_side(pasted):
    def model(batch: torch.Tensor) -> torch.Tensor:
        spin(50)
        return batch.sum()

    batches = [torch.ones(3, device=f"cuda:{i}") for i in range(2)]
    on_all = pasted("on_all")["on_all"]
    on_all([model] * 2, batches)
    start = time.perf_counter()
    on_all([model], batches[:1])
    alone = time.perf_counter() - start
    assert [result.item() for result in on_all([model] * 2, batches)] == [3, 3]
    assert time.perf_counter() - start - alone < 1.5 * alone


def test_a_copy_between_gpus_is_timed_and_compared(two_gpus, monkeypatch, pasted):
    class Timer:
        """Each call takes two milliseconds; the clock waits for the current GPU."""

        def __init__(self, stmt: str, globals: dict):
            self.stmt, self.names = stmt, globals

        def timeit(self, calls: int) -> SimpleNamespace:
            assert two_gpus.index == 1
            exec(self.stmt, self.names)
            return SimpleNamespace(median=2e-3)

    monkeypatch.setattr(torch.utils.benchmark, "Timer", Timer)
    from_to = pasted("from_to")["from_to"]
    assert from_to(1, 0, size=2000) == {"direct": True, "right": True, "GB/s": pytest.approx(1e-3)}
    monkeypatch.setattr(Timer, "timeit", lambda timer, calls: SimpleNamespace(median=2e-3))
    assert from_to(0, 1, size=2000) == {"direct": False, "right": False, "GB/s": pytest.approx(1e-3)}


@pytest.mark.gpu(2)
def test_a_copy_between_gpus_is_right(pasted):
    there, back = (pasted("from_to")["from_to"](*pair) for pair in ((0, 1), (1, 0)))
    assert there["right"] and back["right"] and there["GB/s"] == pytest.approx(back["GB/s"], rel=0.5)


#: On two ranks of the CPU, or of GPUs: a model that is split into blocks, built in parts, and loaded.
SPLIT = """
import sys

import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FSDPModule

from snippets.training.built_in_parts import built_in_parts

kind = sys.argv[1]
dist.init_process_group("gloo" if kind == "cpu" else "nccl")
rank = dist.get_rank()
if kind == "cuda":
    torch.cuda.set_device(rank)
torch.manual_seed(rank)


def make():
    return nn.Sequential(nn.Linear(64, 64), nn.LayerNorm(64), nn.Linear(64, 64))


whole = make().to(kind)
for tensor in whole.state_dict().values():
    dist.broadcast(tensor, 0)
model = make()
model.load_state_dict(whole.state_dict())
mesh = dist.device_mesh.init_device_mesh(kind, (2,))
assert split(model, [model[0], model[2]], mesh) is model
for module in (model, model[0], model[2]):
    assert isinstance(module, FSDPModule)
assert not isinstance(model[1], FSDPModule)
for parameter in model.parameters():
    assert parameter.dtype == torch.float32 and 2 * parameter.to_local().numel() == parameter.numel()
rows = torch.randn(8, 64, generator=torch.Generator().manual_seed(7)).to(kind)
own = model(rows.chunk(2)[rank])
assert own.dtype == torch.bfloat16
own.float().square().mean().backward()
whole(rows).square().mean().backward()
for part, parameter in zip(model.parameters(), whole.parameters(), strict=True):
    assert part.grad.dtype == torch.float32
    torch.testing.assert_close(part.grad.full_tensor(), parameter.grad, rtol=0.1, atol=2e-3)

asked = []
def split_later(model):
    asked.append(model[0].weight.device.type)
    return split(model, model, mesh)


new = built_in_parts(make, split_later, kind)
assert asked == ["meta"]
first = new[0].weight
assert first.device.type == kind and first.requires_grad and 2 * first.to_local().numel() == first.numel()
numbers = first.full_tensor()
assert 0.9 < numbers.std() / (1 / 8 / 3**0.5) < 1.1 and numbers.abs().max() <= 1 / 8  # as Linear's own
assert (new[1].weight.full_tensor() == 1).all()
try:
    built_in_parts(lambda: nn.MultiheadAttention(8, 2), lambda model: split(model, [], mesh), kind)
except ValueError as error:
    assert "reset_parameters" in str(error)
else:
    raise AssertionError("some numbers were not filled")

file = sys.argv[2]
if dist.get_rank() == 0:
    saved = {name: torch.randn_like(value) for name, value in make().state_dict().items()}
    torch.save(saved, file)
else:
    file = "no other rank sees the file"
assert loaded(new, file) is new
parts = [new[0].weight.to_local(), new[1].weight.full_tensor()]
if dist.get_rank() == 0:
    torch.testing.assert_close(parts[0].cpu(), saved["0.weight"][: len(parts[0])])
    torch.testing.assert_close(parts[1].cpu(), saved["1.weight"])
dist.barrier()
dist.destroy_process_group()
"""


#: Four ranks of the CPU as two hosts of two: each host has the whole model, in halves.
TWO_HOSTS = """
import torch.distributed as dist
from torch import nn

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
whole, model = nn.Linear(8, 8), nn.Sequential(nn.Linear(8, 8))
model[0].load_state_dict(whole.state_dict())
split(model, model, init_device_mesh("cpu", (2, 2), mesh_dim_names=("copied", "split")))
part = model[0].weight
assert part.to_local().numel() == 32 and [str(way) for way in part.placements] == ["R", "S(0)"]
rows = torch.randn(8, 8)
model(rows.chunk(4)[rank]).float().square().mean().backward()
whole(rows).square().mean().backward()
torch.testing.assert_close(part.grad.full_tensor(), whole.weight.grad, rtol=0.1, atol=5e-3)
dist.barrier()
dist.destroy_process_group()
"""


def test_a_model_is_split_within_a_host_and_copied_over_hosts(tmp_path, pasted):
    assert callable(pasted("split")["split"])
    (tmp_path / "file.py").write_text(Paste("", 0, "split", "").code(ROOT) + "\n" + TWO_HOSTS)
    on_ranks(4, str(tmp_path / "file.py"))


def write_split(path: Path) -> Path:
    """A program of both boxes and their test."""
    path.write_text(
        "\n".join(Paste("", 0, name, "").code(ROOT) for name in ("split", "loaded")) + "\n" + SPLIT
    )
    return path


def test_a_model_is_split_and_built_in_parts(tmp_path, pasted):
    names = pasted("split") | pasted("loaded")
    assert all(callable(names[name]) for name in ("split", "loaded"))  # they start nothing
    on_ranks(2, str(write_split(tmp_path / "file.py")), "cpu", str(tmp_path / "weights"))


@pytest.mark.gpu(2)
def test_a_model_is_split_and_built_in_parts_on_gpus(tmp_path):
    under_torchrun(2, str(write_split(tmp_path / "file.py")), "cuda", str(tmp_path / "weights"))


#: On two ranks of the CPU: blocks are computed twice, and names in files are those of the plain model.
CHECKPOINTED = """
import sys

import torch.distributed as dist
from torch import nn

from snippets.training.built_in_parts import built_in_parts
from snippets.training.checkpoint_or_nothing import load, save

calls = []


class Block(nn.Linear):
    def forward(self, x, *, times):
        calls.append(dist.get_rank())
        return x + times * super().forward(x).relu()


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers, self.head = nn.ModuleList(Block(8, 8) for _ in range(2)), nn.Linear(8, 2)

    def forward(self, x):
        for block in self.layers:
            x = block(x, times=2)
        return self.head(x)


def make():
    model = Model()
    assert checkpointed(model, model.layers) is model
    return model


dist.init_process_group("gloo")
rank, mesh = dist.get_rank(), dist.device_mesh.init_device_mesh("cpu", (2,))
torch.manual_seed(0)
whole = Model()
assert list(make().state_dict()) == list(whole.state_dict())
file, folder = f"{sys.argv[1]}/weights", f"{sys.argv[1]}/saved"
if rank == 0:
    torch.save(whole.state_dict(), file)
model = built_in_parts(make, lambda model: split(model, model.layers, mesh), "cpu")
loaded(model, file)
rows = torch.randn(8, 8)
output = model(rows.chunk(2)[rank])
assert len(calls) == 2
output.float().square().mean().backward()
assert len(calls) == 4
whole(rows).square().mean().backward()
for part, parameter in zip(model.parameters(), whole.parameters(), strict=True):
    torch.testing.assert_close(part.grad.full_tensor(), parameter.grad, rtol=0.1, atol=0.02)
adam = torch.optim.AdamW(model.parameters())
adam.step()
save(model, adam, folder)
plain = Model()
split(plain, plain.layers, mesh)
load(plain, torch.optim.AdamW(plain.parameters()), folder)
for mine, other in zip(plain.parameters(), model.parameters(), strict=True):
    assert torch.equal(mine.to_local(), other.to_local())
dist.barrier()
dist.destroy_process_group()
"""


def test_only_modules_within_the_model_can_be_computed_again(pasted):
    model = torch.nn.ModuleDict({"0": torch.nn.Linear(2, 2)})
    for blocks in (model, ["0"], [model], [torch.nn.Linear(2, 2)]):
        with pytest.raises(ValueError, match="within the model"):
            pasted("checkpointed")["checkpointed"](model, blocks)


def test_blocks_are_computed_twice_and_keep_their_names_in_files(tmp_path, pasted):
    assert callable(pasted("checkpointed")["checkpointed"])
    boxes = (Paste("", 0, name, "").code(ROOT) for name in ("split", "loaded", "checkpointed"))
    (tmp_path / "file.py").write_text("\n".join(boxes) + "\n" + CHECKPOINTED)
    on_ranks(2, str(tmp_path / "file.py"), str(tmp_path))


#: On two ranks of the CPU: train, save, and go on in another model, split otherwise, that has gradients.
SAVED = """
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Shard

from snippets.training import checkpoint_or_nothing

dist.init_process_group("gloo")
rank, folder = dist.get_rank(), sys.argv[1]
rows = torch.randn(4, 8, generator=torch.Generator().manual_seed(rank))


def new(seed, layers=2, **how):
    torch.manual_seed(seed)
    model = nn.Sequential(*(nn.Linear(8, 8) for _ in range(layers)))
    for layer in model:
        fully_shard(layer, **how)
    return fully_shard(model, **how)


def step(model, adam):
    adam.zero_grad()
    model(rows).square().mean().backward()
    adam.step()


def apart(model, other):
    pairs = zip(model.parameters(), other.parameters())
    return max(float((a.full_tensor() - b.full_tensor()).abs().max()) for a, b in pairs)


model = new(0, layers=3)
adam = torch.optim.AdamW(model.parameters(), lr=1e-2)
for _ in range(3):
    step(model, adam)
save(model, adam, folder)
before = [parameter.full_tensor() for parameter in model.parameters()]
other = new(1, layers=3, shard_placement_fn=lambda weight: Shard(weight.dim() - 1))
later = torch.optim.AdamW(other.parameters(), lr=1.0)
other(rows).sum().backward()  # the optimizer has no state, and its parameters have gradients
load(other, later, folder)
assert apart(model, other) == 0
step(model, adam)
step(other, later)
moved = max(float((a - b.full_tensor()).abs().max()) for a, b in zip(before, model.parameters()))
assert moved > 0.005 and (apart(model, other) < 0.01 * moved) == (sys.argv[2] == "as it is")
if sys.argv[2] == "as it is":
    shallow = new(1)
    steps = torch.optim.AdamW(shallow.parameters())
    load(shallow, steps, folder)  # no error, though the saved model has a layer more
    try:
        checkpoint_or_nothing.load(shallow, steps, folder)
    except ValueError as error:
        assert "2.weight" in str(error)
    else:
        raise AssertionError("a model with fewer layers was loaded")
dist.barrier()
dist.destroy_process_group()
"""


@pytest.mark.parametrize("way", ["as it is", "without zero_grad"])
def test_a_split_model_goes_on_from_its_checkpoint_unless_gradients_hold_moments_back(tmp_path, pasted, way):
    assert callable(pasted("checkpoint")["load"])
    code = Paste("", 0, "checkpoint", "").code(ROOT)
    if way != "as it is":
        code = re.sub(r" +optimizer.zero_grad.*\n", "", code)
        assert "zero_grad" not in code
    (tmp_path / "file.py").write_text(f"{code}\n{SAVED}")
    on_ranks(2, str(tmp_path / "file.py"), str(tmp_path / "saved"), way)


#: On two ranks of the CPU: is an embedding or a head whole in the layers, and between the passes?
VOCABULARY = """
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DTensor


class Model(nn.Module):
    def __init__(self, tied):
        super().__init__()
        self.embed, self.head = nn.Embedding(32, 8), nn.Linear(8, 32, bias=False)
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(2))
        if tied:
            self.head.weight = self.embed.weight

    def forward(self, tokens):
        x = self.embed(tokens)
        for layer in self.layers:
            x = x + layer(x).tanh()
        return self.head(x)


def new(tied):
    torch.manual_seed(0)
    return Model(tied)


dist.init_process_group("gloo")
rank, mesh = dist.get_rank(), dist.device_mesh.init_device_mesh("cpu", (2,))
tokens = torch.arange(16).view(2, 8)
cases = [
    (False, lambda model: model.layers, True, True),
    (False, lambda model: [*model.layers, model.embed, model.head], False, False),
    (True, lambda model: model.layers, True, True),
    (True, lambda model: [*model.layers, [model.embed, model.head]], True, False),  # saves nothing in a pass
]
for tied, blocks, in_layers, between in cases:
    whole, model = new(tied), new(tied)
    split(model, blocks(model), mesh)
    seen = []
    ends = (model.embed, model.head)
    whole_now = lambda *_: seen.extend(not isinstance(layer.weight, DTensor) for layer in ends)
    for layer in model.layers:
        layer.register_forward_hook(whole_now)
        layer.register_full_backward_hook(whole_now)
    loss = nn.functional.cross_entropy(model(tokens[rank]).float(), tokens[rank])
    assert seen == [in_layers] * 4
    whole_now()
    assert seen[4:] == [between] * 2
    loss.backward()
    assert seen[6:] == [in_layers] * 4
    nn.functional.cross_entropy(whole(tokens.flatten()), tokens.flatten()).backward()
    for mine, other in zip(model.parameters(), whole.parameters(), strict=True):
        torch.testing.assert_close(mine.grad.full_tensor(), other.grad, rtol=0.1, atol=2e-3)
    assert (model.embed.weight is model.head.weight) == tied
dist.barrier()
dist.destroy_process_group()
"""


def test_embedding_and_head_are_freed_in_the_layers_only_if_each_is_a_block(tmp_path, pasted):
    """If they share a weight, one group of both has it whole in each layer of both passes."""
    assert callable(pasted("split")["split"])
    (tmp_path / "file.py").write_text(Paste("", 0, "split", "").code(ROOT) + "\n" + VOCABULARY)
    on_ranks(2, str(tmp_path / "file.py"))


#: On two ranks of the CPU: what gathers weights, what larger groups are, and a weight that two layers share.
CALLED = """
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DTensor


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.head = nn.Embedding(32, 16), nn.Linear(16, 32, bias=False)
        self.layers = nn.ModuleList(nn.Linear(16, 16) for _ in range(6))

    def forward(self, tokens):
        x = self.embed(tokens)
        for layer in self.layers:
            x = x + layer(x).tanh()
        return self.head(x)

    def generate(self, tokens):
        for _ in range(6):
            tokens = torch.cat([tokens, self(tokens)[:, -1:].argmax(-1)], 1)
        return tokens

    def encode(self, tokens):
        return self.layers[0](self.embed(tokens))


def new():
    torch.manual_seed(0)
    model = Model()
    model.head.weight.data.mul_(20)  # no two tokens are nearly as likely, also in bf16
    return model


dist.init_process_group("gloo")
rank, mesh = dist.get_rank(), dist.device_mesh.init_device_mesh("cpu", (2,))
tokens = torch.arange(10).view(2, 5)[rank:][:1]
for method in ("forward", "encode"):
    model = new()
    split(model, model.layers, mesh)
    try:
        getattr(model, method)(tokens)
    except RuntimeError as error:
        assert "got mixed torch.Tensor and DTensor" in str(error)
    else:
        raise AssertionError(method)
with torch.no_grad():
    model = new()
    split(model, model.layers, mesh)
    assert torch.equal(model.generate(tokens), new().generate(tokens))

for group, keep in ((1, False), (4, False), (4, True)):
    model = new()
    split(model, model.layers, mesh, group=group, keep=keep)
    whole_now = lambda: [not isinstance(layer.weight, DTensor) for layer in model.layers]
    seen = []
    model.layers[1].register_forward_pre_hook(lambda *_: seen.append(whole_now()))
    loss = nn.functional.cross_entropy(model(tokens).float().flatten(0, 1), tokens.flatten())
    gathered = {(1, False): [1], (4, False): range(4), (4, True): range(4)}[group, keep]
    assert seen == [[i in gathered for i in range(6)]]
    assert whole_now() == [keep] * 6
    loss.backward()
    assert whole_now() == [False] * 6
dist.barrier()
dist.destroy_process_group()
"""


def test_calls_gather_weights_by_groups_and_a_bare_forward_does_not(tmp_path, pasted):
    assert callable(pasted("split")["split"])
    (tmp_path / "file.py").write_text(Paste("", 0, "split", "").code(ROOT) + "\n" + CALLED)
    on_ranks(2, str(tmp_path / "file.py"))


def test_fill_computes_the_buffers_that_no_file_has(pasted):
    """As in a model of Transformers: norms that have only a weight, positions whose module takes a config."""
    from types import SimpleNamespace

    from snippets.training.built_in_parts import built_in_parts

    class Positions(torch.nn.Module):
        def __init__(self, config):
            super().__init__()
            self.config = config
            power = torch.arange(0, config.width, 2) / config.width
            self.register_buffer("inv_freq", config.base**-power, persistent=False)

    class Norm(torch.nn.Module):
        def __init__(self, width):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(width))

    def make():
        return torch.nn.ModuleList([Norm(8), Positions(SimpleNamespace(width=8, base=1e4))])

    with pytest.raises(ValueError, match="a Norm, has no reset_parameters"):
        built_in_parts(make, lambda model: model, "cpu")
    model = built_in_parts(make, lambda model: model, "cpu", pasted("fill")["fill"])
    torch.testing.assert_close(model[1].inv_freq, make()[1].inv_freq, rtol=0, atol=0)
    assert list(model.state_dict()) == ["0.weight"] and not model[0].weight.any()


#: Two ranks of the CPU, each with a half of the vocabulary; {} are the lines of the page.
SPLIT_VOCABULARY = """
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.tensor import Replicate
from torch.distributed.tensor.parallel import loss_parallel


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.head = nn.Embedding(32, 8), nn.Linear(8, 32, bias=False)
        self.up, self.down = nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, tokens):
        x = self.embed(tokens)
        return self.head(x + self.down(self.up(x).tanh()))


def new():
    torch.manual_seed(0)
    return Model()


dist.init_process_group("gloo")
mesh = dist.device_mesh.init_device_mesh("cpu", (2,))
whole, model = new(), new()
split_layers([model], mesh, ["up"], ["down"])
tokens, targets = torch.arange(32).view(4, 8), torch.arange(32).roll(5).view(4, 8)
widths = []
model.head.register_forward_hook(lambda _, given, output: widths.append(output.to_local().shape[-1]))
{}
assert widths == [16] and model.embed.weight.to_local().shape == model.head.weight.to_local().shape == (16, 8)
F.cross_entropy(whole(tokens).flatten(0, 1), targets.flatten()).backward()
for mine, other in zip(model.parameters(), whole.parameters(), strict=True):
    grad = getattr(mine.grad, "full_tensor", mine.grad.clone)()
    torch.testing.assert_close(grad, other.grad, rtol=1e-4, atol=1e-6)
dist.barrier()
dist.destroy_process_group()
"""


def test_no_rank_has_all_logits_of_a_split_vocabulary(tmp_path):
    page = (ROOT / "docs/sharding.md").read_text()
    (lines,) = re.findall(r"^```python\n(parallelize_module\(model\.embed.*?)^```$", page, re.M | re.S)
    code = Paste("", 0, "split_layers", "").code(ROOT)
    (tmp_path / "file.py").write_text(f"{code}\n{SPLIT_VOCABULARY.format(lines)}")
    on_ranks(2, str(tmp_path / "file.py"))


#: Four ranks of the CPU: layers split over two, then FSDP over the other two; attention counts its own heads.
LAYERS = """
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.between = nn.LayerNorm(16), nn.LayerNorm(16)
        self.q, self.k, self.v, self.out = (nn.Linear(16, 16) for _ in range(4))
        self.up, self.down = nn.Linear(16, 64), nn.Linear(64, 16)

    def forward(self, x):
        rows = self.norm(x)
        q, k, v = (each(rows).unflatten(-1, (-1, 4)).transpose(1, 2) for each in (self.q, self.k, self.v))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.between(x))))


def new_model():
    torch.manual_seed(0)
    return nn.Sequential(Block(), Block())


dist.init_process_group("gloo")
mesh = dist.device_mesh.init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "tensor"))
names = ["q", "k", "v", "up"], ["out", "down"]
whole, layers, both = new_model(), new_model(), new_model()
split_layers(layers, mesh["tensor"], *names)
split_layers(both, mesh["tensor"], *names)
split(both, both, mesh["data"])
assert layers[0].q.weight.to_local().shape == (8, 16) and layers[0].out.weight.to_local().shape == (16, 8)
assert 4 * both[1].up.weight.to_local().numel() == both[1].up.weight.numel()
torch.manual_seed(1)
rows = torch.randn(4, 8, 16)
for model in (whole, layers):
    model(rows).square().mean().backward()
both(rows.chunk(2)[mesh["data"].get_local_rank()]).float().square().mean().backward()
largest = max(float(p.grad.abs().max()) for p in whole.parameters())
for model, share in ((layers, 1e-5), (both, 0.02)):  # the second computes in bf16
    for mine, other in zip(model.parameters(), whole.parameters(), strict=True):
        grad = getattr(mine.grad, "full_tensor", mine.grad.clone)()
        torch.testing.assert_close(grad, other.grad, rtol=0, atol=share * largest)
dist.barrier()
dist.destroy_process_group()
"""


#: What is counted in two ranks: all-reduces of two blocks in both passes, with plain and replicated norms.
COUNTED = """
from torch.distributed.tensor import Replicate
from torch.distributed.tensor.debug import CommDebugMode
from torch.distributed.tensor.parallel import PrepareModuleOutput

dist.init_process_group("gloo")
mesh = dist.device_mesh.init_device_mesh("cpu", (2,))
rows = torch.ones(2, 8, 16).cumsum(1)
whole = new_model()
whole(rows).square().mean().backward()
for replicated in (False, True):
    model, counts = new_model(), []
    split_layers(model, mesh, ["q", "k", "v", "up"], ["out", "down"])
    for block in model if replicated else []:
        same = {"output_layouts": Replicate(), "desired_output_layouts": Replicate()}
        parallelize_module(block.norm, mesh, PrepareModuleOutput(**same, use_local_output=False))
    with CommDebugMode() as forward:
        loss = model(rows).square().mean()
    with CommDebugMode() as backward:
        loss.backward()
    counts = [mode.get_total_counts() // len(model) for mode in (forward, backward)]
    assert counts == [2, 2 if replicated else 4], counts
    for mine, other in zip(model.parameters(), whole.parameters(), strict=True):
        grad = getattr(mine.grad, "full_tensor", mine.grad.clone)()
        torch.testing.assert_close(grad, other.grad, rtol=1e-4, atol=1e-5)
dist.barrier()
dist.destroy_process_group()
"""


@pytest.mark.skipif(torch.cuda.device_count() > 0, reason="two ranks on the CPU")
def test_a_split_block_sums_twice_forward_and_four_times_backward_or_twice(tmp_path):
    """In `split_layers`: q, k and v each sum their input's gradient, unless they share a replicated one."""
    code = Paste("", 0, "split_layers", "").code(ROOT)
    model = LAYERS[: LAYERS.index("dist.init_process_group")]
    (tmp_path / "file.py").write_text("import torch\n" + code + "\n" + model + COUNTED)
    on_ranks(2, str(tmp_path / "file.py"))


def test_layers_are_split_and_fsdp_splits_them_again(tmp_path, pasted):
    assert callable(pasted("split_layers")["split_layers"])
    boxes = (Paste("", 0, name, "").code(ROOT) for name in ("split", "split_layers"))
    (tmp_path / "file.py").write_text("\n".join(boxes) + "\n" + LAYERS)
    on_ranks(4, str(tmp_path / "file.py"))


#: Two ranks of the CPU with a half of each layer: the masks of a dropout between the halves, and behind them.
MASKS = """
import torch.distributed as dist
from torch import nn


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down, self.drop = nn.Linear(8, 64), nn.Linear(64, 8), nn.Dropout(0.5)

    def forward(self, x, inside):
        wide = self.up(x) + 9  # nothing is zero by itself
        self.wide = self.drop(wide) if inside else wide
        out = self.down(self.wide)
        return out if inside else self.drop(out)


dist.init_process_group("gloo")
mesh = dist.device_mesh.init_device_mesh("cpu", (2,))
torch.manual_seed(0)
whole, halves = Block(), Block()
halves.load_state_dict(whole.state_dict())
split_layers([halves], mesh, ["up"], ["down"])
for inside in (True, False):
    outputs = []
    for model in (whole, halves):
        torch.manual_seed(1)  # the same on both ranks
        outputs.append(model(torch.ones(4, 8), inside).detach())
    assert torch.allclose(*outputs, atol=1e-4) == (not inside)
    masks = [None, None]
    dist.all_gather_object(masks, (halves.wide == 0).tolist())
    assert masks[0] == masks[1]
    assert inside == any(any(row) for row in masks[0])
try:
    split_layers([Block()], mesh, ["up"], ["dwon"])
except AttributeError as error:
    assert "dwon" in str(error)
else:
    raise AssertionError("a layer that is not there was split")
dist.barrier()
dist.destroy_process_group()
"""


def test_halves_of_a_layer_have_one_mask_and_a_wrong_name_is_refused(tmp_path, pasted):
    code = Paste("", 0, "split_layers", "").code(ROOT)
    (tmp_path / "file.py").write_text("import torch\n" + code + "\n" + MASKS)
    on_ranks(2, str(tmp_path / "file.py"))


#: Three ranks of the CPU, each with a stage: two steps, and the whole model in one process.
PIPELINE = """
import copy
import ctypes

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
whole = nn.Sequential(*(nn.Sequential(nn.Linear(8, 8), nn.Tanh()) for _ in range(3)))
rows, targets = torch.randn(12, 8), torch.randn(12, 8)
stage = copy.deepcopy(whole[rank])
step = pipeline(stage, dist.group.WORLD, 4, F.mse_loss)
for model in (whole, stage):
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    for _ in range(2):
        optimizer.zero_grad()
        if model is whole:
            loss = F.mse_loss(whole(rows), targets)
            loss.backward()
        else:
            losses = step(rows, targets)
        optimizer.step()
for mine, other in zip(stage.parameters(), whole[rank].parameters(), strict=True):
    torch.testing.assert_close(mine, other)
assert len(losses) == (4 if rank == 2 else 0)
if losses:
    torch.testing.assert_close(sum(losses) / 4, loss.detach())
for model in (whole, stage):  # gradients are added, and validation adds none
    model.zero_grad()
    for part in (slice(6), slice(6, 12)):
        more, expected = (rows.roll(1, 0), targets) if part.start else (rows, targets)
        if model is whole:
            F.mse_loss(whole(more), expected).backward()
        else:
            step(more, expected)
            with torch.no_grad():
                losses = step(more, expected, train=False)
for mine, other in zip(stage.parameters(), whole[rank].parameters(), strict=True):
    torch.testing.assert_close(mine.grad, other.grad)
if losses:
    torch.testing.assert_close(sum(losses) / 4, F.mse_loss(whole(more), expected).detach())
dist.barrier()
dist.destroy_process_group()
"""


def test_stages_train_as_the_whole_model_does(tmp_path, pasted):
    assert callable(pasted("pipeline")["pipeline"])
    code = Paste("", 0, "pipeline", "").code(ROOT)
    (tmp_path / "file.py").write_text(code + "\n" + PIPELINE)
    on_ranks(3, str(tmp_path / "file.py"))


#: Three ranks of the CPU; the embedding in the first stage and the head in the last are one weight.
TIED = """
import sys

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

dist.init_process_group("gloo")
rank, last = dist.get_rank(), 2
ends = dist.new_group([0, last])
torch.manual_seed(0)
whole = nn.Sequential(nn.Embedding(16, 8), nn.Linear(8, 8), nn.Linear(8, 16, bias=False))
whole[2].weight = whole[0].weight
torch.manual_seed(0)
stage = nn.Sequential(nn.Embedding(16, 8), nn.Linear(8, 8), nn.Linear(8, 16, bias=False))[rank]
stage.load_state_dict(whole[rank].state_dict())
step = pipeline(stage, dist.group.WORLD, 4, F.cross_entropy)
optimizers = [torch.optim.SGD(model.parameters(), lr=0.5) for model in (whole, stage)]
tokens = torch.arange(16)
for _ in range(3):
    F.cross_entropy(whole(tokens), tokens.roll(3)).backward()
    step(tokens, tokens.roll(3))
    if rank in (0, last) and sys.argv[1] == "added":
        dist.all_reduce(stage.weight.grad, group=ends)
    for optimizer in optimizers:
        optimizer.step()
        optimizer.zero_grad()
same = [torch.allclose(a, b, atol=1e-6) for a, b in zip(stage.parameters(), whole[rank].parameters())]
assert all(same) == (sys.argv[1] == "added")
weights = [None] * 3
dist.all_gather_object(weights, stage.weight.detach())
assert torch.allclose(weights[0], weights[last], atol=1e-6) == (sys.argv[1] == "added")
dist.barrier()
dist.destroy_process_group()
"""


@pytest.mark.parametrize("way", ["added", "left alone"])
def test_one_weight_of_two_stages_drifts_apart_unless_its_gradients_are_added(tmp_path, way):
    code = Paste("", 0, "pipeline", "").code(ROOT)
    (tmp_path / "file.py").write_text(code + "\n" + TIED)
    on_ranks(3, str(tmp_path / "file.py"), way)


#: Four ranks of the CPU, two pipelines of two stages; in each of two turns another part is frozen.
STAGES = """
import torch.distributed as dist
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

from snippets.training.clip_over_meshes import new_model

dist.init_process_group("gloo")
rank = dist.get_rank()
mesh = dist.device_mesh.init_device_mesh("cpu", (2, 2), mesh_dim_names=("tensor", "stages"))
torch.manual_seed(1)
rows = torch.randn(8, 16)
for frozen in ([], [0]):
    whole, model = new_model(), new_model()
    whole[frozen[0] if frozen else 1].norm.requires_grad_(False)
    for number in frozen:
        whole[number].requires_grad_(False)
    for mine, other in zip(model.parameters(), whole.parameters(), strict=True):
        mine.requires_grad_(other.requires_grad)
    for block in model:
        plan = {"up": ColwiseParallel(), "down": RowwiseParallel()}
        parallelize_module(block, mesh["tensor"], plan)
    for each in (whole, model):
        each(rows).square().mean().backward()
    given = [p.grad for p in whole.parameters() if p.grad is not None]
    limit = get_total_norm(given) / 2
    stage = rank % 2
    norm = clip_stages(model[stage].parameters(), float(limit), mesh.get_group("stages"))
    torch.testing.assert_close(norm, 2 * limit)
    torch.nn.utils.clip_grad_norm_(whole.parameters(), float(limit))
    for mine, other in zip(model[stage].parameters(), whole[stage].parameters(), strict=True):
        assert (mine.grad is None) == (other.grad is None)
        if other.grad is not None:
            grad = getattr(mine.grad, "full_tensor", mine.grad.clone)()
            torch.testing.assert_close(grad, other.grad)
dist.barrier()
dist.destroy_process_group()
"""


def test_stages_are_clipped_by_one_norm_and_a_frozen_one_adds_zero(tmp_path, pasted):
    assert callable(pasted("clip_stages")["clip_stages"])
    code = Paste("", 0, "clip_stages", "").code(ROOT)
    assert code.count('"cuda"') == 1
    (tmp_path / "file.py").write_text(code.replace('"cuda"', '"cpu"') + "\n" + STAGES)
    on_ranks(4, str(tmp_path / "file.py"))


class Asked(Dataset):
    """Rows as dicts, which say who asked; row 9 cannot be read."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    def __len__(self) -> int:
        return 10

    def __getitem__(self, index: int) -> dict:
        self.asked.append(index)
        time.sleep(0.002 * (index % 3))
        return {"x": torch.full((2,), float(index)), "y": 1 // (9 - index)}


def test_threads_make_the_rows_of_a_loader_in_its_order_and_two_batches_ahead(pasted):
    batches_in_threads = pasted("batches_in_threads")["batches_in_threads"]
    torch.manual_seed(3)
    shuffled = list(BatchSampler(RandomSampler(range(9)), 4, drop_last=False))
    data = Asked()
    expected = [batch["x"] for batch in DataLoader(data, batch_sampler=shuffled)]
    found = list(batches_in_threads(data, shuffled, threads=3))
    assert [len(batch["y"]) for batch in found] == [4, 4, 1]
    for batch, rows in zip(found, expected, strict=True):
        assert torch.equal(batch["x"], rows)
    data.asked.clear()
    early = batches_in_threads(data, [[place] for place in range(9)], threads=1, collate=len)
    assert next(early) == 1
    early.close()
    assert sorted(data.asked) == [0, 1, 2]
    assert list(batches_in_threads(data, [])) == []
    for places in ([[0], [9]], [[9], [0], [1], [2]]):
        with pytest.raises(ZeroDivisionError):
            list(batches_in_threads(data, places))


def test_each_box_is_tested_here():
    text = (ROOT / "tests/test_pastes.py").read_text()
    for path in (ROOT / "snippets/pastes").glob("*.py"):
        runs = rf'pasted\((?:"\w+", )*"{path.stem}"[,)]'
        assert re.search(runs, text), f"{path.stem}: write a test that runs it"


def test_all_that_the_driver_says_of_each_gpu_needs_no_context(pycuda, pasted):
    facts = pasted("about_gpus")["about_gpus"]()
    assert facts == [pycuda.ATTRIBUTES | {"name": "NVIDIA H200", "memory, bytes": 2**40}] * 2
    assert pycuda.retained == [] and pycuda.stack == []


def test_pycuda_works_in_torchs_context_of_the_gpu_that_is_named_and_leaves_it(pycuda, pasted):
    context = pasted("torch_context")["torch_context"]
    for index in (1, 0, 1):
        with pytest.raises(ZeroDivisionError), context(index) as driver:
            assert pycuda.stack == [index] and driver is pycuda.driver
            1 / 0  # noqa: B018
        assert pycuda.stack == []
    assert pycuda.retained == [1, 0], "to release one would leave it current"


def test_a_shared_stream_is_made_once_for_each_gpu_in_its_context_and_retains_no_other(
    pycuda, pasted, monkeypatch
):
    monkeypatch.setattr(torch.cuda, "ExternalStream", lambda handle, device: (handle, device))
    flags = []
    make = pycuda.driver.Stream
    monkeypatch.setattr(pycuda.driver, "Stream", lambda flag=0: flags.append(flag) or make())
    names = pasted("torch_context", "shared_stream")
    context, shared_stream = names["torch_context"], names["shared_stream"]
    for index, pushed in ((1, nullcontext()), (0, context(1)), (1, context(1))):
        with pushed:
            stream, shared = shared_stream(index)
        assert stream.context == index and shared == (stream.handle, index)
        assert pycuda.stack == [], "what stays pushed aborts the process"
    assert flags == [1, 1] and pycuda.retained == [1, 0], "one retained context for both boxes"
    with pytest.raises(TypeError):
        shared_stream(index=0)  # functools.cache would make another stream for this spelling


def test_what_pycuda_does_not_check_is_checked_before_a_launch(pycuda, pasted, monkeypatch):
    here = SimpleNamespace(gpu=-1, stream=0)  # a tensor on the CPU says that it is on GPU -1
    monkeypatch.setattr(torch.cuda, "current_device", lambda: here.gpu)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: SimpleNamespace(cuda_stream=here.stream))
    check, x = pasted("check_launch")["check_launch"], torch.ones(4, 4)
    check(None, (x, "float32"), writes=x)
    check(SimpleNamespace(handle=0), (x, "float32"), (x.double(), "float64"), writes=x)
    here.stream = 8
    check(SimpleNamespace(handle=8), (x, "float32"), writes=[])
    check(8, (x, "float32"), writes=[])
    pytorchs = SimpleNamespace(cuda_stream=8)  # the right stream, but pycuda takes only its own
    for stream in (None, 7, SimpleNamespace(handle=7), pytorchs):
        with pytest.raises(ValueError, match="PyTorch works in another stream, or this is not pycuda's"):
            check(stream, (x, "float32"), writes=x)
    here.stream = 0
    with pytest.raises(ValueError, match=r"no contiguous float32: torch.float64, strides \(4, 1\)"):
        check(None, (x, "float32"), (x.double(), "float32"), writes=x)
    with pytest.raises(ValueError, match=r"no contiguous float32: torch.float32, strides \(1, 4\)"):
        check(None, (x.T, "float32"), writes=x)
    imaginary = torch.tensor([1 + 2j]).conj().imag  # its memory has +2, PyTorch reads -2
    assert imaginary.is_contiguous() and imaginary.dtype == torch.float32
    conjugate = torch.tensor([1 + 2j]).conj()
    assert conjugate.is_contiguous() and conjugate.dtype == torch.complex64
    for view in (imaginary, conjugate):
        with pytest.raises(ValueError, match="resolve views"):
            check(None, (view, str(view.dtype)[6:]), writes=x)
    check(None, (conjugate.resolve_conj(), "complex64"), (imaginary.resolve_neg(), "float32"), writes=[])
    weights = torch.ones(4, requires_grad=True)
    with pytest.raises(ValueError, match="for a gradient use an autograd"):
        check(None, (x, "float32"), (weights, "float32"), writes=x)
    with torch.no_grad():
        check(None, (weights, "float32"), writes=[])
    here.gpu = 1
    with pytest.raises(ValueError, match="on cpu, not on GPU 1"):
        check(None, (x, "float32"), writes=x)
    assert x._version == 2, "autograd is told of what is launched, and of nothing that was refused"


def doubled_unseen(h):
    """What a kernel does: it writes into the memory of `h`, and PyTorch does not know."""
    torch.from_numpy(h.detach().numpy()).mul_(2)


def test_backward_refuses_what_a_kernel_overwrote_if_autograd_is_told(pasted, monkeypatch):
    monkeypatch.setattr(torch.cuda, "current_device", lambda: -1)  # as of a tensor on the CPU
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: SimpleNamespace(cuda_stream=0))
    check, w = pasted("check_launch")["check_launch"], torch.tensor([3.0], requires_grad=True)

    def loss(tells):
        x = torch.tensor([2.0])  # data, which needs no gradient
        y = (w * x).sum()  # the gradient of w is the x that was
        if tells:
            check(None, (x, "float32"), writes=x)
        doubled_unseen(x)
        return y

    assert torch.autograd.grad(loss(False), w)[0].item() == 4, "wrong: it is 2"
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss(True).backward()


class Doubles:
    """Stands for the boxes that `pycuda_function` calls: on the CPU, and in which contexts."""

    def __init__(self):
        self.pushed, self.indices = 0, []

    @contextmanager
    def torch_context(self, index):
        self.indices.append(index)
        self.pushed += 1
        try:
            yield
        finally:
            self.pushed -= 1

    def launch_double(self, x):
        assert self.pushed == 1 and x.is_contiguous() and not x.requires_grad
        torch.from_numpy(x.numpy()).mul_(2)  # PyTorch sees no write


def test_a_kernel_in_a_function_has_a_gradient_and_its_gradient(pasted):
    fake = Doubles()
    names = pasted("pycuda_function")
    names |= {"torch_context": fake.torch_context, "launch_double": fake.launch_double}
    double = names["Double"].apply
    x = torch.rand(4, 3, dtype=torch.float64).T.requires_grad_()
    before = x.detach().clone()
    assert torch.equal(double(x), 2 * x) and torch.equal(x, before), "x is not written"
    (double(x) ** 3).sum().backward()
    torch.testing.assert_close(x.grad, 24 * before**2)
    assert torch.autograd.gradgradcheck(double, (x,)) and torch.autograd.gradcheck(double, (x,))
    assert set(fake.indices) == {-1}, "each push names the tensor's GPU"


@pytest.mark.gpu
def test_a_kernel_in_a_function_has_pytorchs_gradient_on_a_gpu(pasted):
    pytest.importorskip("pycuda.driver", exc_type=ImportError)
    double = pasted("torch_context", "check_launch", "pycuda_double", "pycuda_function")["Double"].apply
    x = torch.rand(1000, 7, device="cuda").T.requires_grad_()
    (double(x) ** 3).sum().backward()  # in a thread of PyTorch's
    torch.testing.assert_close(x.grad, 24 * x.detach() ** 2)


def test_the_tile_that_transposes_is_the_one_that_was_timed():
    text = (ROOT / "docs/timing.md").read_text()
    shown = re.findall(r"^(__global__ void transpose_shared.*?^}$)", text, re.M | re.S)
    timed = (ROOT / "snippets/machine/pycuda_resources.py").read_text()
    assert len(shown) == 1 and shown[0] in timed


@pytest.mark.parametrize("elements", [0, 1, 256, 257])
def test_a_kernel_of_pycudas_gets_its_types_its_stream_and_enough_blocks(
    elements, pycuda, pasted, monkeypatch
):
    launches, prepared = [], []
    kernel = SimpleNamespace(prepared_async_call=lambda *args: launches.append(args))
    kernel.prepare = lambda types: prepared.append(types) or kernel
    module = SimpleNamespace(get_function=lambda name: {"twice": kernel}[name])
    monkeypatch.setattr(pycuda.compiler, "SourceModule", lambda source: module)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: -1)  # as of a tensor on the CPU
    double_ = pasted("check_launch", "pycuda_double")["launch_double"]
    assert prepared == [], "to import it compiles nothing"
    x, stream = torch.ones(elements), SimpleNamespace(handle=0)
    double_(x, stream)
    double_(x, stream)
    blocks = (1 if elements < 256 else 2, 1, 1)
    assert launches == [(blocks, (256, 1, 1), stream, x.data_ptr(), elements)] * 2
    assert x._version == 2, "autograd is told of each write"
    assert prepared == ["Pq"], "compiled once for each GPU; a pointer and a long long"
    for wrong, its in ((x.double(), stream), (torch.ones(4, 4).T, stream), (x, SimpleNamespace(handle=8))):
        with pytest.raises(ValueError, match=r"float64|strides|stream"):
            double_(wrong, its)
    double_(x)
    assert len(launches) == 3 and launches[-1][2] is None, "the default stream, in which PyTorch works here"


def test_a_formula_of_pycudas_is_built_once_and_refuses_what_it_would_misread(pycuda, pasted, monkeypatch):
    built, calls = [], []

    def elementwise(*of):
        built.append(of)
        return lambda *arrays, stream: calls.append((arrays, stream))

    for name, its in (
        ("elementwise", {"ElementwiseKernel": elementwise}),
        ("gpuarray", {"GPUArray": lambda shape, dtype, gpudata: (shape, dtype, gpudata)}),
    ):
        module = ModuleType(f"pycuda.{name}")
        vars(module).update(its)
        monkeypatch.setitem(sys.modules, f"pycuda.{name}", module)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: -1)  # as of a tensor on the CPU
    formula, (x, y, z) = pasted("check_launch", "pycuda_formula")["formula"], torch.rand(3, 4)
    assert built == [], "to import it compiles nothing"
    stream = SimpleNamespace(handle=0)
    formula(z, x, y)
    formula(z, x, y, stream)
    assert built == [("float *z, float *x, float *y", "z[i] = x[i] + 2 * y[i]")]
    arrays = tuple((z.shape, "float32", t.data_ptr()) for t in (z, x, y))
    assert calls == [(arrays, None), (arrays, stream)]
    assert z._version == 2, "autograd is told of each write"
    for wrong, says in (
        (y.double(), "float64"),
        (y[1:], r"shapes: \[4\], \[4\], \[3\]"),
        (y[:, None], r"shapes: \[4\], \[4\], \[4, 1\]"),
        (torch.ones(8)[::2], "strides"),
    ):
        with pytest.raises(ValueError, match=says):
            formula(z, x, wrong)
    with pytest.raises(ValueError, match="stream"):
        formula(z, x, y, SimpleNamespace(handle=8))  # PyTorch works in another: nothing orders the two
    assert len(calls) == 2


def test_the_page_calls_the_boxes_in_order(pycuda, pasted, monkeypatch):
    """The shared stream waits, the kernel runs in it and in the GPU's context, PyTorch's stream waits."""
    events, current = [], ["outside"]

    class Stream(SimpleNamespace):
        def wait_stream(self, other):
            events.append(f"{self.name} waits for {other.name}")

    @contextmanager
    def stream(its):
        current.append(its.name)
        yield
        current.pop()

    outside, shared = Stream(name="outside"), Stream(name="shared")
    monkeypatch.setattr(torch.cuda, "current_stream", lambda gpu=None: outside)
    monkeypatch.setattr(torch.cuda, "stream", stream)
    monkeypatch.setattr(torch.cuda, "ExternalStream", lambda handle, device: shared)

    def double_(x, its):
        events.append(f"{x} in {current[-1]}, GPU {pycuda.top()}, flag {its.handle - 7}")

    @contextmanager
    def graph(its, stream):
        assert its == "graph"
        events.append(f"captures in {stream.name}")
        current.append(stream.name)
        yield
        current.pop()

    monkeypatch.setattr(torch.cuda, "graph", graph)
    captured = type("Graph", (str,), {"replay": lambda its: events.append("replayed")})("graph")
    monkeypatch.setattr(torch.cuda, "CUDAGraph", lambda: captured)
    x = type("Tensor", (), {"device": "cuda:0", "__str__": lambda tensor: "x"})()
    twice = lambda gpu: events.append(f"compiled for {gpu} in GPU {pycuda.top()}'s context")  # noqa: E731
    names = pasted("torch_context", "shared_stream")
    names |= {"torch": torch, "x": x, "launch_double": double_, "twice": twice}
    text = (ROOT / "docs/pycuda.md").read_text()
    x.shape, x.data_ptr = (2,), lambda: 64
    its = lambda name: lambda *of: events.append((name, *of[:2])) or "host"  # noqa: E731
    monkeypatch.setattr(pycuda.driver, "pagelocked_empty", its("page-locked"), raising=False)
    monkeypatch.setattr(pycuda.driver, "memcpy_dtoh_async", its("copied"), raising=False)
    stream_of_pycuda = SimpleNamespace(handle=8, synchronize=lambda: events.append("waited"))
    monkeypatch.setattr(pycuda.driver, "Stream", lambda flag: stream_of_pycuda)
    _, _, code, in_graph, in_chunks = re.findall(r"^```{\.python .*?}\n(.*?)^```$", text, re.M | re.S)
    exec(compile(code, "docs/pycuda.md", "exec"), names)
    copied = [("copied", "host", 64), "outside waits for shared", "waited"]
    launched = ["shared waits for outside", "x in shared, GPU 0, flag 1"]
    assert events == [("page-locked", (2,), "float32"), *launched, *copied]
    events.clear()
    exec(compile(in_graph, "docs/pycuda.md", "exec"), names)
    before = ["compiled for 0 in GPU 0's context", "captures in shared"]
    assert events == [*before, "x in shared, GPU 0, flag 1", "replayed"]
    assert pycuda.stack == []
    given = []
    names |= {"both_ways": lambda *of: given.append((pycuda.top(), *of))}
    monkeypatch.setattr(pycuda.driver, "pagelocked_empty", np.empty)
    monkeypatch.setattr(pycuda.driver, "mem_alloc", lambda size: ("memory", size), raising=False)
    exec(compile(in_chunks, "docs/pycuda.md", "exec"), names)
    [(gpu, host, back, there, result, work, streams)] = given
    assert (gpu, work, streams) == (0, names["work"], [stream_of_pycuda] * 3)
    assert (host == 1).all() and host is not back and host.nbytes == back.nbytes == 4 * 2**26
    assert there == result == ("memory", host.nbytes)


def test_an_array_of_pycudas_has_the_tensors_memory_and_keeps_it(pycuda, pasted, monkeypatch):
    module = ModuleType("pycuda.gpuarray")
    made = lambda shape, dtype, **how: SimpleNamespace(shape=shape, dtype=dtype, **how)  # noqa: E731
    monkeypatch.setattr(module, "GPUArray", made, raising=False)
    monkeypatch.setitem(sys.modules, "pycuda.gpuarray", module)
    current = [-1]  # as of a tensor on the CPU
    monkeypatch.setattr(torch.cuda, "current_device", lambda: current[-1])
    names, x = pasted("gpu_array"), torch.arange(6.0).view(2, 3)
    array = names["as_array"](x)
    assert (array.shape, array.dtype) == ((2, 3), "float32")
    conjugate = torch.ones(2, dtype=torch.complex64).conj()
    negative = torch._neg_view(torch.ones(2))
    assert conjugate.is_contiguous() and negative.is_contiguous(), "this tells nothing of the sign"
    for wrong in (x.T, conjugate, negative):
        with pytest.raises(ValueError, match="not contiguous, or a conjugate or negative view"):
            names["as_array"](wrong)
    current.append(1)  # another GPU's context is pushed: a kernel there would read what it may not
    with pytest.raises(ValueError, match="on cpu, not on GPU 1"):
        names["as_array"](x)
    current.pop()
    weights = torch.ones(2, requires_grad=True)
    with pytest.raises(ValueError, match="no gradient"):
        names["as_array"](weights)
    with torch.no_grad():
        assert names["as_array"](weights).base is weights
    for right in (conjugate.resolve_conj(), negative.resolve_neg()):
        assert names["as_array"](right).base is right
    assert array.gpudata == x.data_ptr() and array.base is x
    asked = []
    monkeypatch.setattr(torch, "as_tensor", lambda array, device: asked.append((array, device)) or x)
    for gpu in (0, 1):
        current.append(gpu)
        assert names["as_tensor"](array) is x
    assert asked == [(array, "cuda:0"), (array, "cuda:1")], "elsewhere it would be copied"


def test_a_dependency_that_imports_autoinit_gets_the_shared_context(tmp_path, monkeypatch):
    """A stand-in for the package, whose `autoinit` must not run; both ways to import it are taken."""
    package = tmp_path / "pycuda"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "autoinit.py").write_text("raise RuntimeError('a second context')")
    (package / "autoprimaryctx.py").write_text("context, device = 'primary', 'GPU 0'")
    text = (ROOT / "docs/pycuda.md").read_text().partition('<a id="dependency">')[2]
    code = re.search(r"^```python\n(.*?)^```$", text, re.M | re.S).group(1)
    uses = (
        "import pycuda.autoinit\nfrom pycuda import autoinit\nfrom pycuda.autoinit import context, device\n"
    )
    uses += "print(pycuda.autoinit.context, autoinit.device, context, device)"
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    run = partial(subprocess.run, capture_output=True, text=True)
    assert "a second context" in run([sys.executable, "-c", uses]).stderr
    done = run([sys.executable, "-c", f"{code}\n{uses}"])
    assert done.stdout == "primary GPU 0 primary GPU 0\n", done.stderr


@pytest.mark.gpu
def test_a_dependency_that_imports_autoinit_gets_the_shared_context_on_a_gpu():
    pytest.importorskip("pycuda.driver", exc_type=ImportError)
    text = (ROOT / "docs/pycuda.md").read_text().partition('<a id="dependency">')[2]
    code = re.search(r"^```python\n(.*?)^```$", text, re.M | re.S).group(1)
    uses = """
import torch
x = torch.ones(8, device="cuda")
import pycuda.autoinit
import pycuda.driver as driver
assert pycuda.autoinit.context is pycuda.autoprimaryctx.context
host = driver.pagelocked_empty(8, "float32")
driver.memcpy_dtoh(host, x.data_ptr())
print(host.sum(), pycuda.autoinit.device == driver.Device(0))
"""
    done = subprocess.run([sys.executable, "-c", code + uses], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "8.0 True\n"), done.stderr


@pytest.mark.gpu
def test_the_page_s_check_of_an_installation_compiles_and_loads_a_kernel():
    pytest.importorskip("pycuda.driver", exc_type=ImportError)
    text = (ROOT / "docs/pycuda.md").read_text()
    checks = re.findall(r'^python -c "(.*)"$', text, re.M)
    assert len(checks) == 2
    for check in checks:
        done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr


@pytest.mark.gpu
def test_a_tensor_is_an_array_of_pycudas_and_a_tensor_again(pasted):
    pytest.importorskip("pycuda.driver", exc_type=ImportError)
    names, x = pasted("gpu_array"), torch.arange(6.0, device="cuda").view(2, 3)
    with pasted("torch_context")["torch_context"](0):
        again = names["as_tensor"](names["as_array"](x))
    assert again.data_ptr() == x.data_ptr() and torch.equal(again, x)


@pytest.mark.gpu
def test_the_page_calls_its_boxes_on_a_gpu(pasted, capsys):
    pytest.importorskip("pycuda.driver", exc_type=ImportError)
    names = pasted("torch_context", "check_launch", "pycuda_double", "shared_stream")
    text = (ROOT / "docs/pycuda.md").read_text()
    program, *codes, in_chunks = re.findall(r"^```{\.python .*?}\n(.*?)^```$", text, re.M | re.S)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "tensor(2097152., device='cuda:0')\n"), done.stderr
    for code in codes:
        exec(compile(code, "docs/pycuda.md", "exec"), names)
    assert capsys.readouterr().out == "tensor(2097152., device='cuda:0')\n"
    assert (torch.from_numpy(names["host"]) == 4).all()
    assert (names["x"] == 8).all(), "captured it did not run, replayed once it did"
    names |= pasted("both_ways")
    exec(compile(in_chunks, "docs/pycuda.md", "exec"), names)
    assert (names["back"] == 2).all()


@pytest.mark.gpu
def test_a_formula_of_pycudas_is_right_and_refuses_what_it_would_misread(pasted):
    pytest.importorskip("pycuda.driver", exc_type=ImportError)
    context = pasted("torch_context")["torch_context"]
    formula = pasted("check_launch", "pycuda_formula")["formula"]
    x, y, z = torch.rand(3, 1_000_001, device="cuda")
    with context(0):
        formula(z, x, y)
        for wrong in (y.double(), y[1:], y[::2], y.cpu()):
            with pytest.raises(ValueError, match=r"float32|shapes|strides|on cpu"):
                formula(z, x, wrong)
        with torch.cuda.stream(torch.cuda.Stream()), pytest.raises(ValueError, match="another stream"):
            formula(z, x, y)
    torch.testing.assert_close(z, x + 2 * y)


@pytest.mark.parametrize("elements", [0, 1, 15, 16, 17, 1000, 1003])
@pytest.mark.parametrize("dtype", [np.float32, np.complex128])
def test_chunks_both_ways_leave_nothing_out(elements, dtype, pycuda, pasted, monkeypatch):
    host, back = np.arange(elements).astype(dtype), np.zeros(elements, dtype)
    memory, diary, limit = bytearray(2 * host.nbytes), [], 16 + host.nbytes

    def place(address):
        assert 16 <= address <= limit + host.nbytes
        return address - 16

    def htod(address, array, stream):
        diary.append(("there", stream.name, array.size))
        memory[place(address) : place(address) + array.nbytes] = array.tobytes()

    def dtoh(array, address, stream):
        diary.append(("back", stream.name, array.size))
        array[:] = np.frombuffer(bytes(memory[place(address) : place(address) + array.nbytes]), dtype)

    def work(out, x, n, stream):
        diary.append(("work", stream.name, n))
        read = np.frombuffer(bytes(memory[place(x) : place(x) + n * host.itemsize]), dtype)
        memory[place(out) : place(out) + n * host.itemsize] = (2 * read).astype(dtype).tobytes()

    monkeypatch.setattr(pycuda.driver, "memcpy_htod_async", htod, raising=False)
    monkeypatch.setattr(pycuda.driver, "memcpy_dtoh_async", dtoh, raising=False)
    waited = []
    everything = SimpleNamespace(synchronize=lambda: waited.append(len(diary)))
    monkeypatch.setattr(pycuda.driver, "Context", everything, raising=False)
    streams = [SimpleNamespace(name=i) for i in range(3)]
    pasted("both_ways")["both_ways"](host, back, 16, limit, work, streams)
    np.testing.assert_array_equal(back, 2 * host)
    assert waited == [len(diary)], "once, behind all"
    rows = np.zeros((4, elements), dtype)
    other = np.zeros(elements, np.int16)
    for wrong in ((rows, rows), (rows, back), (host, np.zeros(elements + 1, dtype)), (host, other)):
        with pytest.raises(ValueError, match="one length and type"):
            pasted("both_ways")["both_ways"](*wrong, 16, limit, work, streams)
    steps = [diary[i : i + 3] for i in range(0, len(diary), 3)]
    assert len(steps) <= 16
    for i, step in enumerate(steps):
        assert [name for name, _, _ in step] == ["there", "work", "back"]
        assert {(stream, n) for _, stream, n in step} == {(i % 3, step[0][2])}, "in one stream, in order"


@pytest.mark.gpu
def test_chunks_both_ways_leave_nothing_out_on_a_gpu(pasted):
    pytest.importorskip("pycuda.driver", exc_type=ImportError)
    with pasted("torch_context")["torch_context"](0) as driver:
        twice = pasted("check_launch", "pycuda_double")["twice"](0)
        host = driver.pagelocked_empty(1_000_003, np.float32)
        back = driver.pagelocked_empty(1_000_003, np.float32)
        host[:], back[:] = np.arange(len(host)), 0
        there, result = (driver.mem_alloc(host.nbytes) for _ in range(2))
        streams = [driver.Stream(1) for _ in range(3)]

        def work(out, x, n, stream):
            driver.memcpy_dtod_async(out, x, 4 * n, stream)
            twice.prepared_async_call((n // 256 + 1, 1, 1), (256, 1, 1), stream, out, n)

        pasted("both_ways")["both_ways"](host, back, there, result, work, streams)
        np.testing.assert_array_equal(back, 2 * np.arange(len(host), dtype=np.float32))
        there.free()
        result.free()
        for array in (host, back):
            array.base.free()


@pytest.mark.gpu
def test_a_kernel_of_pycudas_refuses_a_tensor_of_another_stream_or_device(pasted):
    pytest.importorskip("pycuda.driver", exc_type=ImportError)
    context, as_array = pasted("torch_context")["torch_context"], pasted("gpu_array")["as_array"]
    double_ = pasted("check_launch", "pycuda_double")["launch_double"]
    x = torch.ones(4, device="cuda")
    with context(0):
        with torch.cuda.stream(torch.cuda.Stream()), pytest.raises(ValueError, match="another stream"):
            double_(x)
        for takes in (double_, as_array):
            with pytest.raises(ValueError, match="on cpu, not"):
                takes(x.cpu())
        double_(x)
    if torch.cuda.device_count() > 1:
        for takes in (double_, as_array):
            with context(1), pytest.raises(ValueError, match="on cuda:0, not"):
                takes(x)
    assert x.tolist() == [2, 2, 2, 2]


@pytest.mark.gpu
def test_pytorch_and_pycuda_are_in_order_in_one_stream(pasted):
    pytest.importorskip("pycuda.driver", exc_type=ImportError)
    context = pasted("torch_context")["torch_context"]
    double_ = pasted("check_launch", "pycuda_double")["launch_double"]
    x = torch.zeros(10_000_001, device="cuda")
    with context(0):
        stream, shared = pasted("torch_context", "shared_stream")["shared_stream"](0)
        shared.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(shared):
            double_(x, stream)  # compiled
            torch.cuda._sleep(50_000_000)
            x.fill_(3)
            double_(x, stream)
            assert bool((x == 6).all())
        torch.cuda.current_stream().wait_stream(shared)
        double_(x)  # in the default stream of both
        assert bool((x == 12).all())


@pytest.mark.parametrize("elements", [0, 1, 256, 257])
def test_a_kernel_of_ones_own_reaches_each_element(elements, pasted, monkeypatch):
    launches, compiled, current = [], [], []

    @contextmanager
    def device(gpu):
        current.append(gpu)
        yield
        current.pop()

    def compile_kernel(source, name):
        compiled.append(current[-1])
        return kernel

    def kernel(grid, block, args):
        x, n = args
        assert current == [x.device], "it is launched in the current stream of the current GPU"
        launches.append(grid)
        x.data.view(-1)[: min(n, grid[0] * block[0])] *= 2

    monkeypatch.setattr(torch.cuda, "_compile_kernel", compile_kernel)
    monkeypatch.setattr(torch.cuda, "device", device)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: -1)  # as of a tensor on the CPU
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: SimpleNamespace(cuda_stream=7))
    twice_ = pasted("check_launch", "own_kernel")["twice_"]
    assert compiled == [], "to import it starts no CUDA"
    x = torch.ones(elements)
    torch.testing.assert_close(twice_(x), torch.full((elements,), 2.0))
    assert x._version == 1, "autograd is told of the write"
    assert launches == [(1 if elements < 256 else 2, 1, 1)], "a grid without blocks is an error"
    twice_(torch.ones(2))
    assert compiled == [torch.device("cpu")], "once for each GPU"
    weight = torch.ones(4, requires_grad=True)
    for wrong in (torch.ones(4, dtype=torch.float64), torch.ones(4, 4).T[:2], weight):
        with pytest.raises(ValueError, match=r"no contiguous float32|for a gradient"):
            twice_(wrong)
    assert len(launches) == 2 and weight.tolist() == [1] * 4


@pytest.mark.gpu
def test_a_kernel_of_ones_own_doubles_in_pytorchs_stream(pasted):
    twice_, x = pasted("check_launch", "own_kernel")["twice_"], torch.zeros(10_000_001, device="cuda")
    with torch.cuda.stream(torch.cuda.Stream()):
        torch.cuda._sleep(50_000_000)
        assert bool((twice_(x.fill_(3)) == 6).all())


@pytest.mark.parametrize(("elements", "blocks"), [(0, 1), (255, 1), (257, 2)])
def test_cuda_core_is_told_pytorchs_stream_the_address_and_a_size_of_eight_bytes(
    elements, blocks, pasted, monkeypatch
):
    calls, compiled, gpu = [], [], [1]

    def program(code, kind):
        compiled.append((kind, gpu[-1]))
        kernel = SimpleNamespace(get_kernel=lambda name: f"{name} of GPU {gpu[-1]}")
        return SimpleNamespace(compile=lambda to: {"cubin": kernel}[to])

    core = SimpleNamespace(
        LaunchConfig=lambda grid, block: (grid, block),
        Program=program,
        Stream=SimpleNamespace(from_handle=lambda handle: ("stream", handle)),
        launch=lambda *passed: calls.append(passed),
    )
    monkeypatch.setitem(sys.modules, "cuda", SimpleNamespace(core=core))
    monkeypatch.setitem(sys.modules, "cuda.core", core)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: gpu[-1])
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: SimpleNamespace(cuda_stream=77))
    double_, x = pasted("check_launch", "core_kernel")["core_double"], torch.ones(elements)
    assert compiled == [], "to import it starts no CUDA"
    with pytest.raises(ValueError, match="on cpu, not"):
        double_(x)  # its address is one of the CPU
    monkeypatch.setattr(torch.Tensor, "get_device", lambda x: 0)
    with pytest.raises(ValueError, match="on cpu, not"):
        double_(x)  # it is on another GPU than the current one
    for number in (1, 0, 1):
        gpu.append(number)
        monkeypatch.setattr(torch.Tensor, "get_device", lambda x: gpu[-1])
        double_(x)
        *passed, size = calls[-1]
        assert passed == [("stream", 77), (blocks, 256), f"twice of GPU {number}", x.data_ptr()]
        assert size.value == elements and ctypes.sizeof(size) == 8
    assert compiled == [("c++", 1), ("c++", 0)], "once for each GPU"
    assert x._version == 3, "autograd is told of each write"
    for wrong in (x.double(), torch.ones(4, 4).T[:2]):
        with pytest.raises(ValueError, match=r"float64|strides"):
            double_(wrong)
    assert len(calls) == 3


@pytest.mark.gpu
def test_a_kernel_by_cuda_core_doubles_in_pytorchs_stream(pasted):
    pytest.importorskip("cuda.core", exc_type=ImportError)
    double_ = pasted("check_launch", "core_kernel")["core_double"]
    x = torch.zeros(10_000_001, device="cuda")
    with torch.cuda.stream(torch.cuda.Stream()):
        torch.cuda._sleep(50_000_000)
        x.fill_(3)
        double_(x)
        assert bool((x == 6).all())
    double_(torch.ones(0, device="cuda"))
    torch.cuda.synchronize()
    last = torch.cuda.device_count() - 1
    with torch.cuda.device(last):
        y = torch.ones(257, device="cuda")
        double_(y)
        assert y.sum().item() == 514
    if last:
        with pytest.raises(ValueError, match="tensor on cuda"):
            double_(y)  # the current GPU is another one


@pytest.mark.gpu
def test_pycuda_reads_a_tensor_in_the_box_and_attributes_beside_it(pasted):
    pytest.importorskip("pycuda.driver", exc_type=ImportError)
    import pycuda.driver as driver

    x, host = torch.arange(4.0, device="cuda"), np.empty(4, np.float32)
    with pasted("torch_context")["torch_context"](0):
        driver.memcpy_dtoh(host, x.data_ptr())
    assert host.tolist() == x.tolist()
    facts = pasted("about_gpus")["about_gpus"]()
    assert len(facts) == torch.cuda.device_count()
    assert facts[0]["MULTIPROCESSOR_COUNT"] == torch.cuda.get_device_properties(0).multi_processor_count


@pytest.mark.parametrize(("code", "rows"), [(0, 2), (0, 0), (3, 2)])
def test_the_limits_of_kernels_are_read_from_what_ncu_prints(code, rows, tmp_path, monkeypatch, pasted):
    names = pasted("kernel_limits")
    head = '"ID","Kernel Name",' + ",".join(f'"{peak}"' for peak in names["PEAKS"])
    lines = ["==PROF== Connected", head, '"","","%","%","%","%"']
    lines += [f'"{i}","f<int, {i}>",' + ",".join(f'"{10 * i + k}.5"' for k in range(4)) for i in range(rows)]
    (tmp_path / "said").write_text("\n".join(lines))
    tool = tmp_path / "ncu"
    tool.write_text(f'#!/bin/sh\necho "$@" > "{tmp_path}/asked"\ncat "{tmp_path}/said"\nexit {code}\n')
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    if code or not rows:
        with pytest.raises(RuntimeError, match=r"no kernel counted: ==PROF== Connected"):
            names["kernel_limits"]("python", "train.py")
        return
    found = names["kernel_limits"]("python", "train.py", kernels=2)
    assert found[1] == ("f<int, 1>", 10.5, 11.5, 12.5, 13.5)
    asked = (tmp_path / "asked").read_text().split()
    assert asked[-2:] == ["python", "train.py"] and asked[asked.index("-c") + 1] == "2"
    assert asked[asked.index("--clock-control") + 1] == "none", "the card's clock is not ours to set"


@pytest.mark.gpu
def test_ncu_tells_memory_from_arithmetic_on_a_gpu(pasted, tmp_path):
    if not shutil.which("ncu"):
        pytest.skip("needs ncu")
    program = tmp_path / "program.py"
    x = "import torch; x = torch.ones(2**26, device='cuda'); y = x.view(8192, 8192)"
    program.write_text(f"{x}\nx.add_(1)\ny @ y\n")
    fill, add, product = pasted("kernel_limits")["kernel_limits"](sys.executable, str(program))
    assert "Fill" in fill[0] and add[1] > 60 > add[4] and product[4] > 60
