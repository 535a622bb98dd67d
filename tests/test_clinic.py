"""Chapter `clinic`: a training step that falls ill, and how to see of what."""

import itertools
import json
from functools import partial
from pathlib import Path
from typing import Any
from weakref import WeakSet

import pytest
import torch
import torch.distributed as dist
from conftest import ROOT, on_ranks
from torch import nn

from snippets.clinic import (
    account_of,
    labelled_operations,
    larger_batch,
    one_fault,
    patient,
    photos,
    rank_by_rank,
    resnet_epoch,
    roofline_map,
    six_faults,
    slower_each_step,
    uncounted_change,
    unequal_rows,
    where_time_goes,
    which_bound,
)
from snippets.pictures import Note, Spans
from snippets.timing.benchmark import Timing

CPU, SIZES = torch.device("cpu"), (8, 16, 64, 1)


@pytest.fixture
def sources(monkeypatch):
    """Batches that come at once; no worker is started."""
    monkeypatch.setattr(photos, "READ_S", 0)
    torch.manual_seed(0)
    batches = iter(photos.Photos(*SIZES[:2]))
    return {True: batches, False: batches}


def test_the_patient_learns(sources):
    model = patient.Classifier(*SIZES[1:])
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    losses = [patient.step(model, optimizer, sources[False], CPU).item() for _ in range(8)]
    assert losses[-1] < losses[0]


@pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")  # four workers, fewer cores
def test_workers_read_the_same_photos(monkeypatch):
    monkeypatch.setattr(photos, "READ_S", 0.001)
    data = photos.Photos(3, 2)
    for pixels, labels in itertools.islice(photos.read_ahead(data, pin=False), 6):
        assert torch.equal(pixels, data.pixels) and labels.tolist() == [-1, 0, 1]


def test_one_by_one_is_what_the_batch_gives_at_once():
    pixels = torch.randint(256, (4, 16, photos.PATCH), dtype=torch.uint8)
    torch.testing.assert_close(one_fault.one_by_one(pixels), patient.normalised(pixels))


def test_no_fault_changes_what_is_learned(sources):
    ways = {fault: {fault} for fault in one_fault.FAULTS} | {"all": set(one_fault.FAULTS), "healthy": set()}
    steps = {name: one_fault.training(way, sources, SIZES, CPU) for name, way in ways.items()}
    losses = one_fault.first_losses(steps)
    assert losses.keys() == ways.keys() and losses["healthy"][2] < losses["healthy"][0]
    assert isinstance(steps["item"](), float) and isinstance(steps["healthy"](), torch.Tensor)


def test_a_step_that_learns_something_else_is_noticed():
    with pytest.raises(AssertionError):
        one_fault.first_losses({"ill": lambda: 1.0, "healthy": lambda: 2.0})


def test_wrapping_is_left_to_who_has_ranks(sources):
    step: Any = one_fault.training({"straggler"}, sources, SIZES, CPU, nn.DataParallel)
    assert isinstance(step.args[1], nn.DataParallel) and step() > 0


ROWS = [
    ["CPU", 0.0, 2.0, "cudaLaunchKernel"],
    ["CPU", 3.0, 1.0, "cudaMemcpyAsync"],
    ["CPU 2", 100.0, 7.0, "cudaStreamSynchronize"],
    ["stream 7", 10.0, 10.0, "gemm"],
    ["stream 7", 22.0, 2.0, "add"],
    ["stream 7", 60.0, 5.0, "Memcpy HtoD (Pageable -> Device)"],
    ["stream 20", 15.0, 15.0, "ncclDevKernel_AllReduce_Sum_f32"],
]


CLOSING = [["CPU", 120.0, 9.0, "cudaDeviceSynchronize"], ["CPU", 140.0, 1.0, "cudaDeviceSynchronize"]]


def test_the_waits_at_the_end_of_a_profile_are_nobodys():
    assert where_time_goes.without_closing_waits(ROWS + CLOSING) == ROWS


def test_the_account_of_some_work_is_without_the_waits_of_its_profile(monkeypatch):
    monkeypatch.setattr(account_of, "lanes", lambda work: [*work(), *CLOSING])
    assert account_of.account_of(lambda: ROWS) == where_time_goes.account(ROWS)


def test_waits_for_a_batch_leave_the_steps_out(monkeypatch):
    clock = itertools.count()
    monkeypatch.setattr(photos.time, "perf_counter", lambda: next(clock))
    monkeypatch.setattr(photos.time, "sleep", lambda s: [next(clock) for _ in range(s)])
    assert photos.waited_s(iter(range(photos.LOOP)), 5) == 1


def test_the_account_of_a_step():
    found = where_time_goes.account(ROWS)
    expected = {
        "compute": 12,
        "copies": 5,
        "all_reduce": 15,
        "launches": 2,
        "CPU_copies": 1,
        "CPU_waits": 7,
        "calls": 0,
    }
    assert found.pop("kernel_count") == 2
    # beside the all-reduce nothing runs from 20 to 22 and from 24 to 30
    assert found == pytest.approx({name: us / 1e3 for name, us in (expected | {"exposed": 8}).items()})


def test_time_is_counted_once():
    rows = [["a", 0.0, 10.0, ""], ["b", 2.0, 3.0, ""], ["a", 9.0, 3.0, ""], ["a", 20.0, 1.0, ""]]
    assert where_time_goes.union_us(rows) == 13 and where_time_goes.union_us([]) == 0


def test_neighbours_are_joined_and_gaps_are_kept():
    spans = [row[:3] for row in where_time_goes.joined(ROWS)]
    assert spans == [
        ["CPU", 0.0, 2.0],
        ["CPU copies", 3.0, 1.0],
        ["compute", 10.0, 14.0],
        ["all-reduce", 15.0, 15.0],
        ["copies", 60.0, 5.0],
        ["CPU waits", 100.0, 7.0],
    ]
    assert len(where_time_goes.joined(ROWS, gap_us=1.0)) == 7


@pytest.mark.parametrize(
    ("least_us", "wall_us", "gpu_us", "binds"),
    [
        ({"memory": 0.002}, 6.5, 1.2, "launch"),
        ({"copy": 0.01}, 5.0, 1.0, "launch"),
        ({"memory": 1.3, "compute": 0.1}, 7.5, 2.7, "launch"),  # a roof explains a sixth of the call
        ({"memory": 5.2}, 8.0, 5.5, "launch"),  # the kernel is at its roof, and the GPU idle for a third
        ({"memory": 5.2}, 7.5, 5.5, "memory"),
        ({"compute": 5, "memory": 500}, 510, 509, "memory"),
        ({"compute": 2700, "memory": 50}, 2750, 2740, "compute"),
        ({"copy": 1200}, 1250, 1240, "copy"),
        ({"memory": 51, "compute": 3}, 102, 100, "memory"),
        ({"memory": 49, "compute": 3}, 102, 100, "none"),  # the kernel takes twice what memory asks
        ({"compute": 270, "memory": 2}, 2750, 2740, "none"),  # busy, at a tenth of a roof
        ({"copy": 1200}, 9900, 9000, "none"),  # pageable: the host copies, too
    ],
)
def test_what_binds_an_operation(least_us, wall_us, gpu_us, binds):
    least_s = {name: us / 1e6 for name, us in least_us.items()}
    assert which_bound.bound(least_s, wall_us / 1e6, gpu_us / 1e6) == binds


#: Made-up machines: a launch takes microseconds; memory moves GB/s, a copy over the bus too.
@pytest.mark.parametrize(("launch_us", "memory", "bus"), [(7.0, 4000, 55), (14.0, 3000, 55), (5.0, 900, 25)])
def test_larger_tensors_lead_from_launch_to_memory_and_copy(launch_us, memory, bus):
    def verdict(what: str, kib: int, rate: float) -> str:
        least_us = kib * 2**10 / rate / 1e3
        gpu_us = 1.5 + least_us  # no kernel is shorter
        return which_bound.bound({what: least_us}, max(launch_us, gpu_us + 1), gpu_us)

    for what, rate in (("memory", memory), ("copy", bus)):
        sizes = [2**i for i in range(22)]
        verdicts = [verdict(what, kib, rate) for kib in sizes]
        assert verdicts == sorted(verdicts, key=["launch", what].index) and set(verdicts) == {"launch", what}
        first = sizes[verdicts.index(what)]
        assert 0.25 * launch_us <= first * 2**10 / rate / 1e3 <= 1.5 * launch_us


def test_all_are_timed_before_one_is_profiled(monkeypatch):
    """Launches are slower after a profile."""
    diary: list[str] = []

    def measure(work, **how):
        diary.append(f"time {work()}")
        return Timing([2e-6, 4e-6, 3e-6])

    monkeypatch.setattr(which_bound, "measure", measure)
    monkeypatch.setattr(which_bound, "gpu_busy_s", lambda work: diary.append(f"profile {work()}") or 2.9e-6)
    works = {"a": (lambda: "a", {"memory": 2e-6}), "b": (lambda: "b", {"memory": 1e-6, "copy": 0.0})}
    rows = which_bound.judged(works)
    assert diary == ["time a", "time b", "profile a", "profile b"]
    assert [row["bound"] for row in rows.values()] == ["memory", "none"]
    assert rows["b"]["wall_us"] == pytest.approx(3) and rows["b"]["least_us"]["memory"] == pytest.approx(1)


def test_the_gpu_is_busy_with_kernels_and_copies(monkeypatch):
    calls = []
    monkeypatch.setattr(which_bound, "lanes", lambda work: (work(), ROWS)[1])
    busy_s = which_bound.gpu_busy_s(partial(calls.append, 1))
    assert busy_s * which_bound.CALLS == pytest.approx(32e-6) and len(calls) == which_bound.CALLS


def test_a_result_is_let_go_before_the_next_but_one(monkeypatch):
    made, alive = WeakSet(), []

    def work():
        alive.append(len(made))
        x = torch.ones(2)
        made.add(x)
        return x

    monkeypatch.setattr(which_bound, "lanes", lambda work: (work(), ROWS)[1])
    which_bound.gpu_busy_s(work)
    assert max(alive) <= 1


def test_verdicts_are_compared_with_labels(monkeypatch):
    verdicts = {"launch": "launch", "memory": "memory", "compute": "memory", "copy": "copy", "none": "none"}

    def made(label: str):
        def some(best: dict) -> dict:
            return {f"add, {label}": (verdicts[label], best)}

        some.__name__ = f"{label}_bound"
        return some

    for label in verdicts:
        monkeypatch.setattr(labelled_operations, f"{label}_bound", made(label))
    monkeypatch.setattr(labelled_operations, "unlabelled", lambda best: {"either": ("copy", best)})
    monkeypatch.setattr(labelled_operations, "measured_ceilings", dict)
    monkeypatch.setattr(
        labelled_operations,
        "judged",
        lambda works: {name: {"bound": work[0]} for name, work in works.items()},
    )
    monkeypatch.setattr(labelled_operations, "queued_us", lambda work: {"queued_us": 1.0})
    result = labelled_operations.main()
    assert result["rows"]["add, compute"] == {"bound": "memory", "label": "compute", "queued_us": 1.0}
    assert result["rows"]["either"] == {"bound": "copy"}
    assert result["right"] == 4 and result["labelled"] == 5


def test_places_on_the_roofline(precision):
    op = roofline_map.by_row(torch.neg, torch.ones(8, 4), 3, 2)
    assert (op.flop, op.moved) == (96, 256) and torch.equal(op.work(), -torch.ones(8, 4))
    seen = []
    plain = op._replace(work=lambda: seen.append(precision.fp32_precision))
    roofline_map.with_tf32(plain).work()
    assert seen == ["tf32"] and precision.fp32_precision == "ieee"
    with pytest.raises(ZeroDivisionError):
        roofline_map.with_tf32(op._replace(work=lambda: 1 / 0)).work()
    assert precision.fp32_precision == "ieee"


def test_the_slowest_rank_decides(alone, monkeypatch):
    monkeypatch.setattr(six_faults, "wall_clock", lambda work, calls: 0.25)
    assert six_faults.slowest_s(None, 1) == 0.25


def test_ranks_begin_the_steps_that_are_kept_together(monkeypatch):
    done = []
    monkeypatch.setattr(six_faults, "lanes", lambda work: [work(), done.append("kept"), work(), ROWS][-1])
    monkeypatch.setattr(dist, "barrier", lambda: done.append("barrier"))
    assert six_faults.two_steps(lambda: done.append("step")) == ROWS
    assert done == ["kept", "barrier", "step", "step"]


@pytest.mark.parametrize(("ranks", "rank", "lags"), [(1, 0, True), (2, 0, False), (2, 1, True)])
def test_one_fault_after_the_other_is_taken_out(monkeypatch, ranks, rank, lags):
    made = []
    monkeypatch.setattr(six_faults, "loaders", lambda sizes, pin: {})
    monkeypatch.setattr(six_faults, "training", lambda faults, *rest: made.append(faults))
    monkeypatch.setattr(dist, "new_group", lambda backend: None)
    names = list(six_faults.treated(rank, ranks))
    assert names == ["all", "loader", "copy", "kernels", "straggler", "mask", "item"]
    assert made[-1] == set() and made[1] == made[0] - {"loader"}
    assert ("straggler" in made[0]) == lags and "straggler" not in made[4]


def test_resnet_has_eighteen_layers_and_learns():
    torch.manual_seed(0)
    model = resnet_epoch.resnet()
    deep = [m for m in model.modules() if isinstance(m, (nn.Conv2d, nn.Linear))]
    shortcuts = [m for m in deep if getattr(m, "kernel_size", None) == (1, 1)]
    assert (len(deep) - len(shortcuts), len(shortcuts)) == (18, 3)
    before = model[-1].bias.detach().clone()
    resnet_epoch.train(model, torch.randn(2, 1, 28, 28), torch.tensor([1, 2]))
    torch.testing.assert_close(model[-1].bias, before - 0.1 * model[-1].bias.grad)


SMALL: dict[str, Any] = {
    "SIZES": (8, 4, 64, 2),
    "PATCHES": 4,
    "ROWS": 8,
    "MOST": 12,
    "READ_S": 0.3,
    "STEPS": 3,
}
#: `rank_by_rank` in small, in each of the ranks of a file's name.
SMALL_RANKS = """
import json, os, sys
from functools import partial
from pathlib import Path
from snippets.clinic import rank_by_rank as module
from snippets.timing.take_turns import take_turns

vars(module).update(json.loads(sys.argv[2]))
module.take_turns = lambda works, **how: take_turns(works, 0, 2, 1, clock=how["clock"])
module.dist.destroy_process_group = lambda: None
with open(f"{sys.argv[1]}/{os.environ['RANK']}", "w") as file:
    json.dump(module.main(), file, allow_nan=False)
sys.stdout.flush()
os._exit(0)
"""


@pytest.mark.skipif(torch.cuda.device_count() > 0, reason="two ranks on the CPU")
def test_each_rank_says_what_it_does_and_the_slow_loader_is_found(tmp_path):
    runner = tmp_path / "runner.py"
    runner.write_text(SMALL_RANKS)
    on_ranks(2, str(runner), str(tmp_path), json.dumps(SMALL))
    first, second = (json.loads((tmp_path / str(rank)).read_text()) for rank in range(2))
    assert first["by_rank_ms"] == second["by_rank_ms"], "every rank knows all"
    assert first["rows"] == [4, 12] and set(first["ms"]) == {"more_rows", "slow_loader", "cured"}
    latest = first["latest"]["slow_loader"]
    assert (latest["rank"], latest["part"]) == (1, "loader")
    waits = first["by_rank_ms"]["slow_loader"]["all_reduce"]
    assert waits[0] > waits[1], "who comes last waits least"


#: A model with a frozen layer and one that the loss does not use; rank 0 has a batch more than rank 1.
UNEQUAL = """
import os, sys
import torch, torch.distributed as dist, torch.distributed.nn
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from snippets.clinic.rank_by_rank import by_rank, own_parts

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
net = nn.ModuleDict({"frozen": nn.Linear(3, 3), "used": nn.Linear(3, 1), "unused": nn.Linear(3, 1)})
net["frozen"].requires_grad_(False)
net.register_buffer("count", torch.zeros(1))  # as BatchNorm's: DDP sends rank 0's to all in a forward pass
net.forward = lambda x: net["used"](net["frozen"](x))
ddp = DistributedDataParallel(net, find_unused_parameters=True)
loss_of = lambda model, batch: model(batch).square().mean()
batches = [torch.full((2, 3), 1.0 + i + rank) for i in range(3 - rank)]

expected = []
for value in (1.0, 2.0):
    net["used"].zero_grad()
    loss_of(net.forward, torch.full((2, 3), value)).backward()
    expected.append(net["used"].weight.grad.clone())
source = iter(batches)
steps = [own_parts(ddp, source, loss_of)]
torch.testing.assert_close(net["used"].weight.grad, sum(expected) / 2)
assert net["frozen"].weight.grad is None and not net["unused"].weight.grad.any()
steps.append(own_parts(ddp, source, loss_of))
try:
    left = net["used"].weight.grad.clone()
    own_parts(ddp, source, loss_of)
except StopIteration as end:
    stops = str(end)
assert torch.equal(net["used"].weight.grad, left) and left.any(), "no gradient of a step that was none"
assert len(by_rank(steps)["loader"]) == 2
try:
    by_rank([])
except ValueError as error:
    with open(f"{sys.argv[1]}/{rank}", "w") as file:
        file.write(f"{stops}; {error}")
os._exit(0)
"""


@pytest.mark.skipif(torch.cuda.device_count() > 0, reason="two ranks on the CPU")
def test_frozen_and_unused_parameters_and_unequal_batches_hang_no_rank(tmp_path):
    runner = tmp_path / "runner.py"
    runner.write_text(UNEQUAL)
    on_ranks(2, str(runner), str(tmp_path))
    for rank in range(2):
        told = (tmp_path / str(rank)).read_text()
        assert told == "a rank has no batch left; there is no step to take the median of"


def test_the_latest_rank_is_named_with_what_sets_it_apart():
    ms = {"loader": [1.0, 9.0, 1.0], "passes": [10.0, 6.0, 10.0], "all_reduce": [5.0, 1.0, 5.0]}
    assert rank_by_rank.latest(ms) == {"rank": 1, "part": "loader", "late_ms": 4.0}
    ms["passes"][2] = 20.0
    assert rank_by_rank.latest(ms) == {"rank": 2, "part": "passes", "late_ms": 10.0}


@pytest.mark.parametrize(
    ("ranks", "expected"), [(2, [64, 192]), (4, [107, 107, 106, 192]), (8, [119] * 6 + [118, 192])]
)
def test_all_rows_are_shared(ranks, expected):
    assert rank_by_rank.shares(128 * ranks, ranks, 192) == expected


@pytest.mark.gpu(2)
@pytest.mark.program("clinic/rank_by_rank", ranks=2, quick=True, **SMALL)
def test_ranks_are_told_apart_on_gpus(returned):
    latest, waits = returned["latest"]["slow_loader"], returned["by_rank_ms"]["slow_loader"]["all_reduce"]
    assert (latest["rank"], latest["part"]) == (1, "loader") and waits[0] > waits[1]


@pytest.mark.gpu
@pytest.mark.program("clinic/account_of")
def test_who_reads_a_loss_waits_on_a_gpu(returned):
    waits = {name: ms["CPU_waits"] for name, ms in returned.items()}
    assert waits["reads its loss"] > waits["as it is"] and returned["as it is"]["copies"] > 0


@pytest.mark.gpu
@pytest.mark.program("clinic/photos", LOOP=4)
def test_photos_come_pinned_beside_a_gpu(returned):
    assert returned["is_pinned"] and returned["ms"]["when_asked"] >= returned["read_ms"]


@pytest.mark.gpu
@pytest.mark.program("clinic/patient", quick=True)
def test_the_patient_makes_steps_on_a_gpu(returned):
    assert returned["ms"]["step"] > 0


@pytest.mark.gpu
@pytest.mark.program("clinic/one_fault", quick=True)
def test_no_fault_changes_what_is_learned_on_a_gpu(returned):
    for losses in returned["loss"].values():
        assert losses == pytest.approx(returned["loss"]["healthy"], rel=0.01)
        assert losses[-1] < losses[0]


@pytest.mark.gpu
@pytest.mark.program("clinic/where_time_goes")
def test_an_account_counts_small_kernels_on_a_gpu(returned):
    account = returned["account"]
    assert account["kernel_count"] > 400 and min(account["copies"], account["CPU_waits"]) > 0


@pytest.mark.gpu
def test_the_bound_of_a_small_and_a_large_tensor_on_a_gpu():
    bounds = {name: row["bound"] for name, row in which_bound.main()["rows"].items()}
    assert bounds == {"1,024 floats": "launch", "268 million": "memory"}


@pytest.mark.gpu
def test_a_matmul_with_more_flop_a_byte_is_faster_on_a_gpu():
    rows = roofline_map.main()["rows"]
    assert rows["32,768 × 64"]["tflop_s"] < rows["2,048 × 256"]["tflop_s"]


@pytest.mark.gpu
def test_a_network_has_rows_of_two_counts_on_a_gpu():
    assert min(unequal_rows.main()["ns_per_row"].values()) > 0  # it compares CPU and GPU itself


@pytest.mark.gpu
def test_all_operations_are_judged_as_labelled():
    result = labelled_operations.main()
    assert result["labelled"] == len(result["rows"]) - 2
    assert result["right"] >= result["labelled"] - 1  # a busy host delays the CPU


def test_the_picture_of_the_faults_names_each_of_them_and_shades_what_the_gpu_gives_away():
    def timeline(wait: float) -> list[list]:
        """Two steps; in the second the kernels begin after `wait` µs."""
        rows = []
        for begin in (0.0, 100e3):
            sent, ends = begin + wait, begin + wait + 20e3
            rows += [["copies", sent, 10.0, ""], ["compute", sent + 10, 20e3, ""]]
            rows += [["CPU", sent, 15e3, ""], ["CPU waits", ends, 10.0, ""]]
        return rows

    faults = list(six_faults.FAULTS)
    names = ["all", *faults]
    timelines = {name: timeline(5e3 * (len(faults) - i)) for i, name in enumerate(names)}
    ms = dict.fromkeys(names, 42.0)
    results = {"faults": faults, "ms": ms, "timelines": timelines, "ranks": 1}
    results["account"] = {name: {"compute": 20.0 - 5 * (name == "straggler")} for name in names}
    picture, parts = six_faults.plot(results | {"busy": dict.fromkeys(names, 0.5)}, {})
    works, waits, data = parts["steps"].panels[0].marks
    assert works.values == waits.values == waits.starts == dict.fromkeys(works.values, 21.0)
    assert [*data.texts.values(), *waits.texts.values()] == ["42 ms"] * 6
    words = " ".join(mark.text for panel in picture.panels for mark in panel.marks if isinstance(mark, Note))
    assert "nobody reads ahead" in words and "validation in each step,\na boolean mask,\n.item()" in words
    assert "strip-straggler" not in parts, "one GPU has none"
    (clocked,) = parts["strip-clock"].panels
    bars = {
        mark.row: mark.spans for mark in clocked.marks if isinstance(mark, Spans) and mark.color == "muted"
    }
    assert bars == {"with profiler": [(0.0, pytest.approx(100))], "without": [(0.0, 42.0)]}
    with_fault, without = parts["strip-loader"].panels
    for panel in (with_fault, without):
        (waits,) = [m for m in panel.marks if getattr(m, "row", "") == "GPU" and m.color == "data"]
        ends = max(sum(span) for mark in panel.marks for span in getattr(mark, "spans", ()))
        assert ends == pytest.approx(42), "as long as without the profiler"
        assert waits.spans == [(0, pytest.approx(42 - 20))], "the gap is shortened, and the kernel is not"
        assert waits.name == "the GPU waits for data"
        assert panel.x.high == with_fault.x.high, "equal times are equally long"
    (reads,) = [mark for mark in with_fault.marks if getattr(mark, "name", "") == "reads"]
    assert reads.row == "Python" and reads.hollow and not reads.light, "pale is what is not meant"
    assert reads.spans[0][0] == 0 < reads.spans[0][1] <= 42 - 20, (
        "until its first call; then the GPU has work"
    )
    assert not [mark for mark in without.marks if getattr(mark, "name", "") == "reads"]
    (step,) = parts["strip-Python"].panels
    looks = {(mark.row, mark.light) for mark in step.marks if getattr(mark, "spans", ())}
    assert {("Python", False), ("GPU", True), ("copies", True)} == looks
    frames, seconds = {}, {}
    for panel in parts["faults"].panels:
        for mark in panel.marks:
            if mark.name == "frame":
                (frames[panel.title],) = mark.spans
            if mark.name == "second":
                (seconds[panel.title],) = mark.spans
    assert list(frames) == ["all", *faults[:-1]], "of each step with a fault"
    assert frames["all"] == pytest.approx((50.01, 79.99)), "the longest gap"
    assert list(seconds) == names and seconds["all"] == pytest.approx((50.01, 100)), "the second step"
    assert frames["kernels"] == pytest.approx((130.01, 5)), "the validation: the last kernels"
    # a step begins where the GPU's work of the one before it ended
    assert picture.panels[0].title == "six faults: 42 ms, profiled 100"
    assert picture.panels[-1].title == "healthy: 42 ms, profiled 100"
    marks = [mark for mark in picture.panels[0].marks if getattr(mark, "name", "") == "compute waits"]
    assert [mark.spans for mark in marks] == [[(0, pytest.approx(80))]]  # ms


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_wait_of_the_step_has_the_colour_of_its_cause(ranks):
    """Data is what the first two repairs bring; on several GPUs the fourth ends the wait for a late one."""
    machine = {1: "h200", 2: "h200-x2"}[ranks]
    path = Path(__file__).parents[1] / f"docs/recordings/{machine}/clinic/six_faults.json"
    results = json.loads(path.read_text(encoding="utf-8"))["result"]
    _, parts = six_faults.plot(results, {})
    marks = {mark.color: mark for mark in parts["steps"].panels[0].marks}
    assert list(marks) == (["gpu", "python", "data"] if ranks == 1 else ["muted", "peer", "data"])
    ms, ends = results["ms"], dict.fromkeys(marks[next(iter(marks))].values, 0.0)
    for mark in marks.values():
        for title, length in mark.values.items():
            assert length >= 0 and mark.starts[title] == pytest.approx(ends[title])
            ends[title] += length
    order = ["all", "loader", "copy", "kernels", "straggler", "item"]
    assert list(ends.values()) == pytest.approx([ms[name] for name in order])
    lengths = list(marks["data"].values.values())
    assert len(lengths) == 2 and lengths[0] - lengths[1] == pytest.approx(ms["all"] - ms["loader"], abs=1)
    if ranks > 1:
        assert list(marks["peer"].values.values()) == pytest.approx([ms["kernels"] - ms["straggler"]] * 4)


def test_the_second_step_of_the_first_trace_is_as_long_as_its_drawing_says():
    path = Path(__file__).parents[1] / "docs/recordings/h200/clinic/six_faults.json"
    results = json.loads(path.read_text(encoding="utf-8"))["result"]
    picture, _ = six_faults.plot(results, {})
    derived = six_faults.derive(results)
    ms = derived["profiled_ms"]["all"]
    assert picture.panels[0].title.endswith(f"profiled {ms:.0f}")
    assert picture.panels[-1].title.endswith(f"profiled {derived['profiled_ms']['item']:.0f}")
    assert ms > results["ms"]["all"], "the profiler makes it slower"
    for name, works in derived["works_ms"].items():
        assert 0.9 * results["busy"][name] * results["ms"][name] < works < derived["profiled_ms"][name]


@pytest.mark.parametrize("machine", ["h200", "h200-x2", "h100-80gb-hbm3"])
def test_a_zoom_shows_the_gaps_that_a_whole_step_is_too_long_for(machine):
    """Of small kernels as large a share as in all; of waits, the GPU has gaps behind one of them."""
    path = Path(__file__).parents[1] / f"docs/recordings/{machine}/clinic/six_faults.json"
    results = json.loads(path.read_text(encoding="utf-8"))["result"]
    _, parts = six_faults.plot(results, {})

    def busy(part: str) -> tuple[dict[str, float], float]:
        """Of the zoom: for how long each lane works, and waits; how long it is."""
        whole, zoom = parts[f"strip-{part}"].panels
        lanes = {mark.row for mark in [*whole.marks, *zoom.marks] if isinstance(mark, Spans)}
        assert lanes - {"repaired"} == {"Python", "GPU"}, "lanes of a zoom"
        ms: dict[str, float] = {"waits": 0.0, "idle": 0.0}
        for mark in zoom.marks:
            key = "waits" if "waits" in mark.name else mark.row
            key = "idle" if mark.name == "the GPU waits for Python" else key
            ms[key] = ms.get(key, 0.0) + sum(length for _, length in mark.spans)
            assert all(0 <= at < at + length <= zoom.x.high + 1e-9 for at, length in mark.spans)
        return ms, zoom.x.high

    ms, high = busy("kernels")
    assert 1 - ms["GPU"] / high == pytest.approx(
        six_faults.derive(results)["small_kernels"]["idle"], abs=0.05
    )
    assert ms["Python"] > 0.95 * high, "Python never stops"
    ms, high = busy("waits")
    assert high == 6 and ms["waits"] > 1.5, "the wait is a large part of the zoom"
    assert high - ms["GPU"] > 1, "and the GPU has little to do after it"
    assert 0.6 < ms["idle"] / (high - ms["GPU"]) <= 1, "most of the gaps say what the GPU waits for"
    rows = {getattr(mark, "row", None): mark for mark in parts["strip-waits"].panels[0].marks}
    assert rows["repaired"].spans == [(0.0, results["ms"]["item"])]


def test_before_its_first_kernel_the_gpu_waits_for_a_copy_and_else_for_python():
    """For the copy as long as the CPU is in its call; with pinned bytes there is hardly a wait."""
    path = Path(__file__).parents[1] / "docs/recordings/h200/clinic/six_faults.json"
    results = json.loads(path.read_text(encoding="utf-8"))["result"]
    _, parts = six_faults.plot(results, {})
    lanes = []
    for panel in parts["strip-copy"].panels:
        spans: dict[str, list[tuple[float, float]]] = {}
        for mark in panel.marks:
            if mark.row == "GPU":
                spans.setdefault(mark.name, []).extend(mark.spans)
        copy, python = spans["the GPU waits for the copy"], spans["the GPU waits for Python"]
        works = min(start for start, _ in spans["GPU"])
        lanes.append({"copy": sum(ms for _, ms in copy), "python": sum(ms for _, ms in python)})
        assert sum(lanes[-1].values()) == pytest.approx(works), "it waits until its first kernel"
    floats, sent = lanes
    assert floats["copy"] == pytest.approx(results["account"]["loader"]["CPU_copies"], rel=0.1)
    assert floats["python"] > 3 and sum(sent.values()) < 1.5


def test_an_all_reduce_is_hatched_while_a_rank_is_late_and_the_gpu_where_it_has_no_other_work():
    """Of the all-reduce only its last part is plain; without a late rank, none is hatched."""
    path = Path(__file__).parents[1] / "docs/recordings/h200-x2/clinic/six_faults.json"
    results = json.loads(path.read_text(encoding="utf-8"))["result"]
    _, parts = six_faults.plot(results, {})
    late, equal = parts["strip-straggler"].panels
    lanes = []
    for panel in (late, equal):
        spans = {}
        for mark in panel.marks:
            if isinstance(mark, Spans) and mark.row in ("GPU", "all-reduce"):
                spans.setdefault((mark.row, "waits" in mark.name), []).extend(mark.spans)
        lanes.append(spans)
    ms = [{key: sum(ms for _, ms in spans) for key, spans in lane.items()} for lane in lanes]
    assert ms[0]["all-reduce", True] > 20 and 1 < ms[0]["GPU", True] < 10
    assert ms[0]["all-reduce", False] < 3, "only its own part is work"
    for at, long in lanes[0]["GPU", True]:
        works = [min(at + long, start + ms) - max(at, start) for start, ms in lanes[0]["GPU", False]]
        assert max(works) < 1e-6, "nothing else runs there"
    assert ms[1]["all-reduce", True] == 0 < ms[1]["all-reduce", False] < 3


def test_a_kept_graph_slows_each_step_and_only_plain_adam_says_so(monkeypatch):
    monkeypatch.setattr(slower_each_step, "STEPS", 30)
    monkeypatch.setattr(slower_each_step, "WIDTH", 64)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    result = slower_each_step.main()
    first, last = result["ms"]["state with its graph"]
    assert last > first, "thirty times the work: no busy machine hides it"
    assert result["counted"] == {"plain": 1, "fused": 0}
    assert "modified by an inplace operation" in result["error"]
    lines = slower_each_step.plot(result, {}).panels[0].marks
    assert [len(line.y) for line in lines] == 3 * [28]


def test_plain_adam_stops_a_stale_graph_and_fused_adam_gives_the_new_weight():
    plain, fused = uncounted_change.main().values()
    assert plain["first"] == fused["first"] == 2 and plain["weight"] == pytest.approx(1.5)
    assert "modified by an inplace operation" in plain["error"] and "second" not in plain
    if "error" not in fused:  # a newer PyTorch may count the change
        assert fused["second"] == fused["weight"] == pytest.approx(1.5)


def test_a_hook_stays_from_each_step(monkeypatch):
    cell = torch.nn.GRUCell(2, 2)
    for _ in range(3):
        slower_each_step.hook_in_each_step(cell, torch.zeros(1, 2))
    cell(torch.zeros(1, 2))
    assert len(cell._forward_hooks) == 3


@pytest.mark.gpu
def test_a_kept_graph_keeps_memory_and_a_hook_none(monkeypatch):
    monkeypatch.setattr(slower_each_step, "STEPS", 30)
    held = slower_each_step.main()["held_mb"]
    assert held["state with its graph"][1] > held["state with its graph"][0] + 1
    for way in ("state.detach()", "a hook in each step"):
        assert held[way][1] == pytest.approx(held[way][0], abs=0.1)


def test_larger_batches_make_fewer_steps_unless_epochs_grow(monkeypatch, capsys):
    monkeypatch.setattr(larger_batch, "ROWS", 512)
    monkeypatch.setattr(larger_batch, "TESTED", 256)
    monkeypatch.setattr(larger_batch, "EPOCHS", 6)
    monkeypatch.setattr(larger_batch, "BATCHES", [64, 2048])
    monkeypatch.setattr(larger_batch, "SEEDS", 2)
    with monkeypatch.context() as patch:
        patch.setattr(torch, "set_num_threads", lambda _: None)
        result = larger_batch.main()
    small, large = result["epochs_trials"]["same rate"]
    assert small == result["epochs_trials"]["rate scaled"][0] == result["epochs_trials"]["same steps"][0]
    assert len(large) == 2 and all(len(trial) == 5 for trial in large)
    assert result["accuracy"]["same rate"][0] > result["accuracy"]["same rate"][1]
    assert len(result["epochs_trials"]["same steps"]) == 1  # not for the largest batch
    assert capsys.readouterr().out.count("accuracy") == 5


def test_a_network_learns_the_classes_of_another(monkeypatch):
    monkeypatch.setattr(larger_batch, "ROWS", 4096)
    x, y = larger_batch.labelled(4096 + 1024)
    assert x.shape == (5120, 20) and y.unique().tolist() == list(range(10))
    first = larger_batch.train(x, y, 64, 0.1, 0, 5)
    assert first == larger_batch.train(x, y, 64, 0.1, 0, 5)  # the same seed, the same numbers
    assert first[-1] > max(0.4, first[0])


def test_falls_and_moves_of_the_accuracy_are_derived():
    short = {"accuracy": {"same rate": [0.75, 0.5, 0.25]}}
    assert larger_batch.derive(short) == {"falls": [0.25, 0.25]}
    trials = {"same rate": [[[0.5, 0.75], [0.25, 0.5, 1.0]]]}
    assert larger_batch.derive(short | {"epochs_trials": trials})["swing"] == {"same rate": [0.75]}


def test_the_box_that_was_recorded_is_the_box_that_readers_paste(recorded):
    box = (ROOT / "snippets/pastes/full_lanes.py").read_text(encoding="utf-8")
    runs = recorded("clinic/lanes_of_a_step")
    assert runs and all(result["box"] == box for result in runs.values()), "record it again"
