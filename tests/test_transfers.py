"""Snippets of the chapter on transfers, on an imitated GPU that does queued work as late as it may."""

import contextlib
import json
import os
import random
import subprocess
import sys
from collections import OrderedDict, UserDict, defaultdict, namedtuple
from dataclasses import InitVar, dataclass, field
from enum import Enum
from functools import partial
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from conftest import ROOT, on_ranks, run_alone
from torch.nn.utils.rnn import pack_sequence
from torch.utils.data import DataLoader, Dataset

from overlap.run import download
from overlap.run.snippet import Snippet
from snippets.timing.benchmark import Timing
from snippets.transfers import (
    any_batch,
    chunked_copy,
    d2h_too_early_broken,
    d2h_too_early_fixed,
    fetch_later,
    loader_decodes,
    loader_gpu_tensors,
    loader_kept_batches,
    loader_new_workers,
    loader_own_memory,
    loader_ranks,
    loader_scales,
    loader_seeds,
    loader_workers,
    many_small_copies,
    non_blocking_matrix,
    overlap_as_published,
    overlap_copy_compute_broken,
    overlap_copy_compute_fixed,
    pinning_costs,
    pinning_threads,
    prefetcher,
    prefetcher_gain,
    rows_of_ranks,
)

EARLY = [d2h_too_early_broken, d2h_too_early_fixed]
TWINS = [overlap_copy_compute_broken, overlap_copy_compute_fixed]


# several GPUs


def test_an_event_is_recorded_on_the_gpu_of_the_tensor(monkeypatch):
    x, asked = torch.ones(2), []
    event = SimpleNamespace(synchronize=lambda: None, record=lambda stream: None)
    stream = SimpleNamespace(
        record_event=lambda: event, wait_stream=lambda other: None, device=torch.device("cpu")
    )
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device=None: asked.append(device) or stream)
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: contextlib.nullcontext())
    monkeypatch.setattr(torch.Tensor, "record_stream", lambda self, stream: None)
    d2h_too_early_fixed.fetch(x)
    fetch_later.fetch_later(x, stream)
    pinning_costs.send(x, x.clone(), x.clone(), event)
    assert asked == [x.device] * 3


# many small copies


def test_packed_tensors_arrive_in_their_shapes(late):
    tensors = [torch.randn(3, 4), torch.tensor(2.0), torch.randn(0, 5), torch.arange(6.0).view(2, 3).T]
    arrived = many_small_copies.send_packed(tensors)
    for on_gpu, tensor in zip(arrived, tensors, strict=True):
        assert on_gpu.shape == tensor.shape and torch.equal(on_gpu, tensor)


def test_what_cannot_be_packed_is_refused():
    with pytest.raises(TypeError, match="tensors of one type make one copy"):
        many_small_copies.pack([torch.ones(2), torch.ones(2).int()])
    for tensors in ([], [torch.ones(2, device="meta")]):
        with pytest.raises(ValueError, match="no tensor to pack, or one is not on the CPU"):
            many_small_copies.pack(tensors)


def test_each_type_is_sent_by_a_copy_of_its_own_and_the_order_stays(late):
    tensors = [torch.ones(2), torch.tensor([3, 4]), torch.full((2, 1), 5.0), torch.tensor(True)]
    late.log.clear()
    arrived = many_small_copies.send_packed(tensors)
    assert [row[1] for row in late.log if row[0] != "CPU"].count("Memcpy") == 3
    for on_gpu, tensor in zip(arrived, tensors, strict=True):
        assert on_gpu.dtype == tensor.dtype and on_gpu.shape == tensor.shape and torch.equal(on_gpu, tensor)


def test_packed_tensors_go_to_the_gpu_that_is_named(monkeypatch):
    monkeypatch.setattr(many_small_copies, "pack", torch.cat)
    (arrived,) = many_small_copies.send_packed([torch.ones(2)], "meta")
    assert arrived.device.type == "meta"


def test_nothing_and_parameters_can_be_packed(late):
    assert many_small_copies.send_packed([]) == []
    layer = torch.nn.Linear(3, 2)
    arrived = many_small_copies.send_packed(list(layer.parameters()))
    assert all(map(torch.equal, arrived, layer.parameters()))
    assert not any(part.requires_grad for part in arrived)


# pinning


def test_the_buffer_is_not_refilled_before_it_has_left(unfair):
    x, buffer, sent = torch.arange(5.0), torch.zeros(5, pin_memory=True), torch.cuda.Event()
    first, second = torch.zeros(2, 5, device="cuda")
    pinning_costs.send(x, buffer, first, sent)
    assert unfair.current.queue, "this GPU is late"
    pinning_costs.send(2 * x, buffer, second, sent)
    torch.cuda.synchronize()
    assert torch.equal(first, x) and torch.equal(second, 2 * x)


def test_refusal_is_what_pytorch_says(monkeypatch):
    def refuse(self):
        raise RuntimeError("cannot pin this\nreally")

    monkeypatch.setattr(torch.Tensor, "pin_memory", refuse)
    assert pinning_costs.refusal(torch.ones(1)) == "cannot pin this"
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda self: self)
    assert pinning_costs.refusal(torch.ones(1)) == ""


@pytest.mark.parametrize(("threads", "register", "n"), [(0, False, 1), (1, True, 1), (8, True, 8)])
def test_threads_are_asked_for_in_the_words_of_the_allocator(monkeypatch, threads, register, n):
    said = []
    monkeypatch.setattr(torch._C, "_accelerator_setAllocatorSettings", said.append)
    pinning_threads.choose(threads)
    assert said == [f"pinned_use_cuda_host_register:{register},pinned_num_register_threads:{n}"]


# non_blocking


def test_a_copy_is_queued_in_its_stream_only_if_it_need_not_block(late):
    gpu, host, side = torch.empty(3, device="cuda"), torch.ones(3, pin_memory=True), torch.cuda.Stream()
    assert non_blocking_matrix.copy(gpu, host, True, side) >= 0
    assert len(side.queue) == 1 and not late.streams[0].queue
    assert non_blocking_matrix.copy(gpu, host, False, side) >= 0
    assert not side.queue and gpu.tolist() == [1, 1, 1] and late.current.name == "main"


def test_a_cell_runs_both_orders_and_drops_the_first_round():
    diary = []
    row = non_blocking_matrix.cell(lambda: diary.append("copy") or 7.0, lambda: diary.append("products"))
    assert diary == ["copy", "products", "copy", "products", "products", "copy"] * 8
    assert row["ms_trials"]["held"] == [7000.0] * 7


def test_hidden_is_a_share_of_the_shorter_leg():
    copying, multiplying = Timing([4.0, 9.0]), Timing([10.0, 3.0])
    assert non_blocking_matrix.hidden(copying, multiplying, Timing([14.0, 9.75])) == [0.0, 0.75]


# too early


@pytest.mark.parametrize(("module", "stale"), list(zip(EARLY, (6, 0), strict=True)))
def test_only_the_broken_twin_reads_too_early(late, monkeypatch, module, stale):
    for name, small in {"ELEMENTS": 64, "STRIDE": 8, "TRIES": 6}.items():
        monkeypatch.setattr(d2h_too_early_broken, name, small)
    late.most = 64
    counts = {"stale": stale, "old_looks": 8 * stale, "stale_later": 0, "item": 0, "pinned": 6}
    assert module.main()["counts"] == counts


def test_a_later_fetch_holds_nobody_and_is_right_after_its_event(unfair):
    side, on_gpu = torch.cuda.Stream(), torch.zeros(4, device="cuda")
    on_gpu.fill_(3)
    unfair.diary.clear()
    on_host, landed = fetch_later.fetch_later(on_gpu, side)
    assert not (on_host == 3).any(), "nothing has run, and nobody waited"
    landed.synchronize()
    assert (on_host == 3).all() and unfair.diary == ["side waits for main", "used on side"]


def test_a_loss_that_was_fetched_later_holds_no_graph(unfair):
    loss = torch.ones(2, device="cuda", requires_grad=True).sum()
    on_host, landed = fetch_later.fetch_later(loss, torch.cuda.Stream())
    landed.synchronize()
    assert on_host.item() == 2 and on_host.grad_fn is None and not on_host.requires_grad


def test_a_stream_of_another_gpu_fetches_nothing(gpu):
    gpu.diary.clear()
    with pytest.raises(ValueError, match="tensor is on meta, the stream on cpu"):
        fetch_later.fetch_later(torch.ones(2, device="meta"), torch.cuda.Stream())
    assert gpu.diary == []


# overlap


@pytest.mark.parametrize("module", TWINS)
def test_what_lands_has_been_computed(unfair, module):
    x, landing = torch.randn(4, 4, device="cuda"), [torch.zeros(4, 4, pin_memory=True) for _ in range(3)]
    module.together(x, landing, 3)
    torch.cuda.synchronize()
    assert all(torch.equal(host, x @ x) for host in landing)


def test_twins_differ_in_the_stream_of_the_copies(late):
    x, landing = torch.randn(4, 4, device="cuda"), [torch.zeros(4, 4, pin_memory=True)]
    overlap_copy_compute_broken.together(x, landing, 2)
    assert late.diary == [] and len(late.streams) == 1
    overlap_copy_compute_fixed.together(x, landing, 2)
    assert late.diary == ["side waits for main", "used on side"] * 2 + ["main waits for side"]


def test_published_form_makes_pinned_memory_unless_it_blocks(gpu):
    results = [torch.ones(2, device="cuda"), torch.zeros(2, device="cuda")]
    for non_blocking in (False, True):
        landed = overlap_as_published.to_cpu(results, non_blocking)
        assert [host.is_pinned() for host in landed] == [non_blocking] * 2
        assert all(torch.equal(host, result) for host, result in zip(landed, results, strict=True))


# pieces


@pytest.mark.parametrize("pieces", [1, 4])
def test_each_piece_is_copied_after_it_is_computed(unfair, pieces):
    x, w = torch.randn(8, 4, device="cuda"), torch.randn(4, 4, device="cuda")
    gpu, host = torch.zeros(8, 4, device="cuda"), torch.zeros(8, 4, pin_memory=True)
    side = torch.cuda.Stream()
    for scale in (1.0, 2.0):  # the second round must not overwrite what the first one still copies
        chunked_copy.product_in_pieces(scale * x, w, gpu, host, pieces, side)
    torch.cuda.synchronize()
    torch.testing.assert_close(host, 2 * x @ w)
    assert unfair.diary == (["side waits for main", "used on side"] * pieces + ["main waits for side"]) * 2


def test_pieces_may_be_made_anew_and_dropped_and_have_a_graph(unfair):
    x, side = torch.arange(8.0, device="cuda", requires_grad=True), torch.cuda.Stream()
    host = torch.zeros(8, pin_memory=True)
    chunked_copy.in_pieces((2 * rows for rows in x.chunk(4)), host.chunk(4), side)
    side.synchronize()
    assert torch.equal(host, 2 * x.detach()) and not host.requires_grad


@pytest.mark.parametrize(
    ("sizes", "rooms", "reason"),
    [
        ([2, 1], [2, 2], r"a piece is \(1,\) on cpu, not \(2,\) on cpu"),
        ([2], [2, 2], "longer"),
        ([2, 2], [2], "shorter"),
    ],
)
def test_a_piece_without_its_room_is_refused_and_what_was_launched_is_waited_for(gpu, sizes, rooms, reason):
    pieces = [torch.ones(size, device="cuda") for size in sizes]
    host = [torch.zeros(room, pin_memory=True) for room in rooms]
    gpu.diary.clear()
    with pytest.raises(ValueError, match=reason):
        chunked_copy.in_pieces(pieces, host, torch.cuda.Stream())
    assert gpu.diary == ["side waits for main", "used on side", "main waits for side"]


def test_a_piece_that_is_missing_is_noticed(gpu, monkeypatch):
    for name, small in {"ROWS": 256, "N": 32}.items():
        monkeypatch.setattr(chunked_copy, name, small)
    monkeypatch.setattr(chunked_copy, "product_in_pieces", lambda *args: None)
    with pytest.raises(AssertionError, match="not close"):
        chunked_copy.main()


# the loop of the page with buffers of your own


LOOP = (ROOT / "docs/transfers.md").read_text().split("{ #own-buffers }")[1]
LOOP = LOOP.split("```python\n")[1].split("```")[0]
GUARD = "    sent.synchronize()\n"


def looped(code: str, numbers: range, size: int, work) -> list[torch.Tensor]:
    """Its results on batches that hold one number each, in memory that is used again."""
    batch = torch.full((size,), float(numbers[0]))
    pinned = batch.pin_memory()
    names = {
        "torch": torch,
        "work": work,
        "batches": (batch.fill_(number) for number in numbers[1:]),
        "pinned": pinned,
        "on_gpu": pinned.cuda(),
        "free": torch.empty_like(pinned, device="cuda"),
        "working": torch.cuda.current_stream(),
        "copying": torch.cuda.Stream(),
        "sent": torch.cuda.Event(),
        "results": [],
    }
    exec(code, names)
    return names["results"]


def test_the_loop_of_the_page_sees_each_batch_and_needs_its_wait(unfair):
    right = [[number] * 2 for number in range(6)]
    results = looped(LOOP, range(6), 2, lambda on_gpu: on_gpu + 0)
    assert torch.stack(results).tolist() == right
    assert GUARD in LOOP
    unguarded = looped(LOOP.replace(GUARD, ""), range(6), 2, lambda on_gpu: on_gpu + 0)
    assert torch.stack(unguarded).tolist() != right


def test_the_loop_of_the_page_copies_beside_the_work(late):
    done = []

    def work(on_gpu: torch.Tensor) -> torch.Tensor:
        late.launch(work=lambda: done.append(1))
        return on_gpu

    looped(LOOP, range(2), 2, work)
    late.streams[1].run()
    assert not done, "the copy in the side stream waits for no work of this round"


# prefetching


WAYS = {
    "prefetched": lambda batches, step: [step(batch) for batch in prefetcher.prefetched(batches)],
    "two_buffers": prefetcher_gain.two_buffers,
}


@pytest.mark.parametrize("way", WAYS)
def test_every_step_sees_its_own_batch(unfair, way):
    seen = []

    def step(batch: torch.Tensor) -> int:
        place = batch.detach()
        unfair.launch(work=lambda: seen.append(place.tolist()))
        return len(seen)

    batches = [torch.full((2,), float(i), pin_memory=True) for i in range(7)]
    assert len(WAYS[way](batches, step)) == 7
    assert not seen, "nothing but queues so far: the CPU did not wait"
    assert unfair.diary[-1] == "main waits for side" and "side waits for main" in unfair.diary
    torch.cuda.synchronize()
    assert seen == [[float(i)] * 2 for i in range(7)]


@pytest.mark.parametrize("way", WAYS)
def test_a_batch_is_copied_ahead_of_the_work_on_the_one_before(late, way):
    done, used = [], []

    def step(batch: torch.Tensor) -> None:
        used.append(batch)
        late.launch(work=lambda: done.append(1))

    WAYS[way]([torch.full((1,), float(i + 1), pin_memory=True) for i in range(4)], step)
    side = late.streams[1]
    with torch._C.DisableTorchFunction():  # only looked at, not waited for
        while side.queue and float(used[1]) != 2:
            side.queue.popleft()()
        assert float(used[1]) == 2 and not done, "the second batch is there and the first not worked on yet"


Pair = namedtuple("Pair", "x y")


def test_batches_of_any_form_may_be_kept(unfair):
    forms = [
        torch.ones(2),
        (torch.ones(1), torch.zeros(2)),
        {"x": torch.ones(3), "parts": [torch.zeros(1), ()]},
        Pair(torch.ones(1), torch.full((2, 2), 7)),
        {"x": torch.ones(1), "name": "cat.jpg", "label": 3, "mask": None},
    ]
    kept = list(prefetcher.prefetched(iter(forms)))
    torch.cuda.synchronize()
    assert str(kept) == str(forms) and type(kept[3]) is Pair
    assert kept[0] is not forms[0]


class Tokens(UserDict):
    """As a tokenizer's batch: a mapping whose entries are attributes, too."""

    def __getattr__(self, name):
        if name == "data":
            raise AttributeError(name)
        return self.data[name]


@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_mappings_keep_their_kind(late, device):
    given: list[Any] = [
        Tokens(x=torch.ones(2)),
        OrderedDict(x=torch.ones(2)),
        defaultdict(list, x=torch.ones(2)),
    ]
    arrived = list(prefetcher.prefetched(given, device))
    torch.cuda.synchronize()
    assert [type(batch) for batch in arrived] == [Tokens, OrderedDict, defaultdict]
    assert all(torch.equal(batch["x"], torch.ones(2)) for batch in arrived)
    assert arrived[0].x is arrived[0]["x"] and arrived[2].default_factory is list
    assert all(a is not b for a, b in zip(arrived, given, strict=True))
    (plain,) = prefetcher.prefetched([MappingProxyType({"x": torch.ones(2)})], device)
    assert type(plain) is dict


PACKED = pack_sequence([torch.tensor([1.0]), torch.tensor([3.0, 4.0, 5.0])], enforce_sorted=False)


def test_a_packed_sequence_keeps_its_sizes_on_the_cpu_and_its_order(late):
    (batch,) = prefetcher.prefetched([PACKED])
    torch.cuda.synchronize()
    assert type(batch) is type(PACKED) and batch.data is not PACKED.data
    assert batch.batch_sizes is PACKED.batch_sizes
    for moved, given in zip(batch, PACKED, strict=True):
        assert torch.equal(moved, given)
    (sorted_,) = prefetcher.prefetched([pack_sequence([torch.ones(2), torch.ones(1)])])
    assert sorted_.sorted_indices is None


@dataclass
class Sample:
    x: torch.Tensor
    name: str
    factor: InitVar[float]
    seen: list = field(init=False, default_factory=list)

    def __post_init__(self, factor):
        self.x = self.x * factor  # again would be wrong


@dataclass(frozen=True, slots=True)
class Frozen:
    x: torch.Tensor


def test_a_dataclass_keeps_its_kind_and_each_field_and_batches_their_order(late):
    batches = [Sample(torch.full((2,), i), f"{i}.jpg", 2) for i in range(3)]
    batches[1].seen.append("by the loader")
    given: list[Any] = [*batches, Frozen(torch.ones(2))]
    *moved, frozen = prefetcher.prefetched(given)
    torch.cuda.synchronize()
    assert [type(batch) for batch in moved] == [Sample] * 3
    assert [(batch.x.tolist(), batch.name) for batch in moved] == [
        ([2 * i] * 2, f"{i}.jpg") for i in range(3)
    ]
    assert [batch.seen for batch in moved] == [[], ["by the loader"], []]
    assert all(a.x is not b.x for a, b in zip(moved, batches, strict=True))
    assert type(frozen) is Frozen and frozen.x.tolist() == [1, 1]


def test_other_kinds_without_a_gpu(capsys):
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    result = any_batch.main()
    assert result["kinds"] == ["PackedSequence", "Sample", "Tensor", "dict", "UserDict"]
    assert capsys.readouterr().out.count("on cpu") == 5


class Graph:
    """As a batch of graphs: an object that moves itself."""

    def __init__(self, x: torch.Tensor):
        self.x = x

    def to(self, device) -> "Graph":
        return Graph(self.x.to(device))


class Colour(Enum):
    RED = 1


@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_what_is_no_batch_is_passed_on_and_what_moves_itself_moves_itself(late, device):
    plain = [Path("a.png"), Colour.RED, range(3), {1}, slice(3), np.bool_(True), np.int64(3), np.ones(2), 1j]
    batch: list[Any] = [Graph(torch.ones(2)), plain]
    (arrived,) = prefetcher.prefetched([batch], device)
    assert all(a is b for a, b in zip(arrived[1], plain, strict=True))
    assert type(arrived[0]) is Graph and arrived[0] is not batch[0]


class Row(tuple):
    """A tuple that is not made of its parts."""

    def __new__(cls, first, second):
        return super().__new__(cls, (first, second))


class Named(Pair):
    """A named tuple with a constructor of its own."""

    def __new__(cls, x):
        return super().__new__(cls, x, 2 * x)


class Optional(tuple):
    """One that can be made of its parts, and then is another."""

    def __new__(cls, first, second=None):
        return super().__new__(cls, (first, second))


def test_tuples_of_other_kinds_are_kept_or_refused_by_name(late):
    largest = torch.tensor([[1.0, 3.0]]).max(1)
    size, named, moved = prefetcher.prefetched([torch.Size([2]), Named(torch.ones(1)), largest])
    torch.cuda.synchronize()
    assert type(size) is torch.Size and size == (2,) and type(named) is Named and named.y.tolist() == [2]
    assert type(moved) is type(largest) and moved.values.tolist() == [3] and moved.indices.tolist() == [1]
    says = "Optional is made otherwise: hand over a named tuple"
    for kind, error in {Row: r"Row.__new__\(\) missing 1 required", Optional: says}.items():
        with pytest.raises(TypeError, match=error):
            list(prefetcher.prefetched([kind(torch.ones(1), 2)], "cpu"))


def test_a_batch_that_contains_itself_is_refused():
    batch = {"x": [torch.ones(1)]}
    batch["x"].append(batch)
    with pytest.raises(ValueError, match="a dict of the batch contains itself"):
        list(prefetcher.prefetched([batch], "cpu"))
    twice = [torch.ones(1)]
    assert list(prefetcher.prefetched([(twice, twice)], "cpu")) == [(twice, twice)]


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors is in prototype stage:UserWarning")
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_sparse_and_nested_tensors_arrive(device):
    layouts = [torch.jagged, torch.strided]
    rows = [torch.ones(2), torch.full((3,), 2.0)]
    nested = [torch.nested.nested_tensor(rows, layout=layout) for layout in layouts]
    sparse, *arrived = prefetcher.prefetched([torch.eye(3).to_sparse(), *nested], device)
    assert sparse.device.type == device and torch.equal(sparse.cpu().to_dense(), torch.eye(3))
    for batch in arrived:
        assert batch.device.type == device
        assert [part.tolist() for part in batch.unbind()] == [[1, 1], [2, 2, 2]]


def test_a_batch_that_was_fetched_comes_before_the_error_of_its_source(late):
    def source():
        yield torch.ones(1)
        yield torch.zeros(1)
        raise OSError("the disk is gone")

    for device in ("cuda", "cpu"):
        arrived = []
        with pytest.raises(OSError, match="the disk is gone"):
            for batch in prefetcher.prefetched(source(), device):
                arrived.append(batch)
        torch.cuda.synchronize()
        assert [batch.tolist() for batch in arrived] == [[1], [0]]
    assert late.diary[-1] == "main waits for side"


KEEPER = """
import resource, sys
from prefetcher import prefetched
import torch
from torch.utils.data import DataLoader, Dataset

if __name__ == "__main__":
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (128, limit))
    data = [{"x": torch.full((3,), float(i))} for i in range(300)]
    loader = DataLoader(data, batch_size=1, num_workers=1, multiprocessing_context="fork")
    kept = list(prefetched(loader, "cpu"))
    print(len(kept), any(batch["x"].is_shared() for batch in kept), kept[-1]["x"].tolist())
"""


def test_on_the_cpu_kept_batches_of_a_worker_hold_no_files_open(tmp_path):
    (tmp_path / "prefetcher.py").write_text(download.program(Snippet.read(ROOT, "transfers/prefetcher")))
    (tmp_path / "keeper.py").write_text(KEEPER)
    done = subprocess.run(
        [sys.executable, "keeper.py"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.stdout == "300 False [[299.0, 299.0, 299.0]]\n", done.stderr


@pytest.mark.parametrize("batches", [[], [torch.ones(1)]])
def test_none_or_one_batch(late, batches):
    kept = list(prefetcher.prefetched(batches))
    torch.cuda.synchronize()
    assert kept == batches


@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_after_a_batch_that_is_refused_what_was_sent_is_joined(late, device):
    arrived = []
    with pytest.raises(TypeError, match="Row"):
        for batch in prefetcher.prefetched([torch.ones(1), [torch.ones(1), Row(1, 2)]], device):
            arrived.append(batch)
    assert len(arrived) == 1 and (device == "cpu" or late.diary[-1] == "main waits for side")


def test_who_stops_early_is_joined_with_the_copy_ahead(late):
    batches = prefetcher.prefetched([torch.ones(1)] * 3)
    next(batches)
    before = len(late.diary)
    batches.close()
    assert late.diary[before:] == ["main waits for side"]


BORROWER = """
from prefetcher import prefetched
import torch
from torch.utils.data import DataLoader, Dataset

data = [{"x": torch.full((3,), float(i)), "label": i} for i in range(10)]
device = "cuda" if torch.cuda.is_available() else "cpu"
loader = DataLoader(data, batch_size=4, pin_memory=device == "cuda")
kept = [batch for batch in prefetched(loader, device)]
for batch in kept:
    print(batch["x"].device.type, batch["x"].sum().item(), batch["label"].tolist())
"""


def borrowed(name: str, folder: Path, program: str) -> str:
    """What a program prints that finds the download in its folder, and nothing else of the book."""
    folder.joinpath(f"{name}.py").write_text(download.program(Snippet.read(ROOT, f"transfers/{name}")))
    folder.joinpath("program.py").write_text(program)
    return subprocess.run(
        [sys.executable, "-I", "-c", "import sys; sys.path.insert(0, '.'); import program"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    ).stdout


def test_a_borrower_wraps_a_loader(tmp_path):
    device = "cuda" if torch.cuda.is_available() else "cpu"
    expected = [(18.0, [0, 1, 2, 3]), (66.0, [4, 5, 6, 7]), (51.0, [8, 9])]
    told = borrowed("prefetcher", tmp_path, BORROWER)
    assert told.splitlines() == [f"{device} {total} {labels}" for total, labels in expected]


def test_without_cuda_a_prefetcher_for_it_says_so():
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    with pytest.raises((AssertionError, RuntimeError), match=r"(?i)cuda|nvidia"):
        next(prefetcher.prefetched([torch.ones(1)]))


def test_work_is_the_last_product():
    batch, w = torch.randn(4, 8), torch.randn(8, 2)
    torch.testing.assert_close(prefetcher_gain.work(batch, w, 3), (batch @ w)[0].sum())


# loading


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("workers", [0, 2])
def test_batches_come_in_order_with_and_without_workers(monkeypatch, workers):
    monkeypatch.setattr(loader_workers, "LOAD_S", 0.001)
    monkeypatch.setattr(loader_workers, "SHAPE", (2, 3))
    monkeypatch.setattr(loader_workers, "BATCHES", 5)
    batches = list(loader_workers.loader(workers, pin=False))
    assert [batch.tolist() for batch in batches] == [[[float(i)] * 3] * 2 for i in range(5)]


def test_epoch_drops_the_first_window(gpu, monkeypatch):
    monkeypatch.setattr(loader_workers, "BATCHES", 32)
    monkeypatch.setattr(loader_workers.time, "perf_counter", iter(range(100)).__next__)
    x, batches = torch.randn(4, 4, device="cuda"), [torch.full((3,), float(i)) for i in range(32)]
    found = loader_workers.epoch(batches, x)
    assert (found["step"].trials, found["wait"].trials) == ([2.0] * 3, [1.0] * 3)
    with pytest.raises(AssertionError, match="not the batch"):
        loader_workers.epoch(batches[::-1], x)


def test_only_the_last_loader_does_not_pin(gpu, monkeypatch):
    for name, small in {"LOAD_S": 0.0005, "WORKERS": (0, 2), "N": 16}.items():
        monkeypatch.setattr(loader_workers, name, small)
    loaders = []

    def unpinned(workers: int, pin: bool) -> DataLoader:
        loaders.append((workers, pin))
        return DataLoader(loader_workers.SlowBatches(), batch_size=None)

    monkeypatch.setattr(loader_workers, "loader", unpinned)
    loader_workers.main()
    assert loaders == [(0, True), (2, True), (0, True), (0, False)]


# a loader that decodes


def test_a_picture_is_decoded_cropped_and_normalised(monkeypatch):
    pixels = loader_decodes.picture(3)
    file = loader_decodes.encode(pixels)
    assert len(file) < 0.8 * pixels.nbytes
    assert np.array_equal(loader_decodes.decode(file), pixels)
    monkeypatch.setattr(torch, "randint", lambda end, shape: torch.tensor([2, 5, 1]))
    side = loader_decodes.CROP
    square = loader_decodes.crop_and_flip(pixels)
    assert square.shape == (3, side, side) and square.dtype == torch.uint8
    assert square[1, 4, 0] == pixels[2 + 4, 5 + side - 1, 1], "mirrored"
    monkeypatch.setattr(torch, "randint", lambda end, shape: torch.tensor([2, 5, 0]))
    assert loader_decodes.crop_and_flip(pixels)[1, 4, 0] == pixels[2 + 4, 5, 1]
    grey = torch.full((3, 2, 2), 124, dtype=torch.uint8)
    assert loader_decodes.normalise(grey)[:, 0, 0].tolist() == pytest.approx([0, 8 / 57, 20 / 57])


def test_threads_give_the_batches_of_a_loader_in_order():
    data = [torch.tensor([i]) for i in range(7)]
    batches = list(loader_decodes.in_threads(data, 3, 2))
    expected = list(DataLoader(data, batch_size=3))
    assert [batch.tolist() for batch in batches] == [batch.tolist() for batch in expected]
    for batch, threads in ((0, 2), (3, 0)):
        with pytest.raises(ValueError, match=r"zero|greater than 0"):
            next(loader_decodes.in_threads(data, batch, threads))
    assert list(loader_decodes.in_threads(data, -1, 2)) == []
    again = loader_decodes.Threads(data, 2)
    assert len(list(again)) == len(list(again)) == 1


def test_each_way_to_load_is_timed(monkeypatch):
    small = {"EPOCH": 8, "BATCH": 4, "PICTURES": 2, "WORKERS": (0, 1), "THREADS": (2,)}
    for name, value in small.items():
        monkeypatch.setattr(loader_decodes, name, value)
    result = json.loads(json.dumps(loader_decodes.main()))
    assert list(result["images_per_s"]) == ["workers_0", "workers_1", "threads_2"]
    assert result["gain"]["workers_0"] == 1
    assert result["sent_bytes"] == 4 * 3 * loader_decodes.CROP**2
    assert list(result["image"]["ms"]) == ["decode", "crop_and_flip", "normalise"]


# ranks with a loader each


@pytest.mark.parametrize(("ranks", "workers"), [(1, 0), (2, 0), (2, 1)])
def test_ranks_read_each_row_once_and_need_fewer_iterations(ranks, workers):
    rows = list(range(4 * loader_decodes.BATCH))
    loaders = [loader_ranks.loader(rows, ranks, rank, workers) for rank in range(ranks)]
    parts = [[batch.tolist() for batch in each] for each in loaders]
    batches = [batch for part in parts for batch in part]
    assert sorted(row for batch in batches for row in batch) == rows
    assert {len(part) for part in parts} == {4 // ranks}


def test_ranks_are_timed_together_and_end_with_the_program():
    found = run_alone("transfers/loader_ranks", quick=True, WORKERS=(0, 1))
    names = {f"ranks_{ranks}_workers_{workers}" for ranks in (1, 2) for workers in (0, 1)}
    assert set(found["images_per_s"]) == names
    assert found["iterations"] == {"ranks_1": 6, "ranks_2": 3}


def test_an_iteration_of_two_ranks_has_two_batches():
    told: dict = {"usable_cores": 3, "batch": 16, "images_per_s": {}}
    for ranks, rate in ((1, 200.0), (2, 320.0)):
        told["images_per_s"] |= {f"ranks_{ranks}_workers_{workers}": rate for workers in (0, 1)}
    derived = loader_ranks.derive(told)
    assert derived["iteration_ms"]["ranks_1_workers_1"] == pytest.approx(80)
    assert derived["iteration_ms"]["ranks_2_workers_1"] == pytest.approx(100)
    assert derived["limit_images_per_s"] == {"one_worker": 600, "no_workers": 600}


# on a real GPU


def test_a_kept_batch_is_an_open_file():
    """In a process of its own: children are forked there, and it has few other files open."""
    found = run_alone("transfers/loader_kept_batches")["found"]
    says = {"kept": "Too many open files", "kept from a queue": "0 items of ancdata"}
    for case, told in found.items():
        assert says.get(case, "") in told["says"] and bool(told["says"]) == (case in says)
        least = loader_kept_batches.FILES - 30 if case in says else loader_kept_batches.ROWS
        assert least <= told["kept"] <= (loader_kept_batches.FILES if case in says else least)


def test_a_child_that_dies_is_no_answer():
    with pytest.raises(EOFError):
        loader_kept_batches.in_child(lambda connection: os._exit(1))


def test_the_rows_of_a_tensor_are_the_names_of_the_list(monkeypatch):
    monkeypatch.setattr(loader_own_memory, "ROWS", 11)
    rows, names = loader_own_memory.as_tensor(), loader_own_memory.as_list()
    assert [bytes(row.tolist()).decode() for row in rows] == names == loader_own_memory.as_array().tolist()


def test_memory_that_is_written_to_is_a_process_s_own():
    before = loader_own_memory.own_mib()
    block = bytearray(b"x" * 2**25)
    assert 25 <= loader_own_memory.own_mib() - before <= 80
    del block


@pytest.mark.parametrize(
    ("workers", "options", "starts", "reads"),
    [(0, {}, 0, 16), (2, {}, 6, 48), (2, {"persistent_workers": True}, 2, 16)],
)
def test_workers_that_stay_keep_what_they_have_read(workers, options, starts, reads):
    assert loader_new_workers.count(workers, **options) == {"starts": starts, "reads": reads}


@pytest.mark.parametrize(("name", "in_all"), [("a Generator of the Dataset", 1), ("own_generator()", 6)])
def test_a_generator_of_its_own_gives_each_worker_other_numbers(name, in_all):
    torch_state, numpy_state, state = torch.get_rng_state(), np.random.get_state(), random.getstate()
    told = loader_seeds.count(loader_seeds.DRAWS[name])
    torch.set_rng_state(torch_state)
    np.random.set_state(numpy_state)
    random.setstate(state)
    assert told["in_all"] == in_all and told["same_in_two_runs"]


class Noisy(Dataset):
    """Two numbers for each row, from two calls."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> tuple[float, float]:
        return loader_seeds.own_generator().random(), loader_seeds.own_generator().random()


@pytest.mark.parametrize("options", [{}, {"num_workers": 2}, {"num_workers": 2, "persistent_workers": True}])
def test_each_row_of_each_epoch_has_numbers_of_its_own_and_a_run_repeats_them(options):
    state = torch.get_rng_state()
    runs = []
    for _ in range(2):
        torch.manual_seed(7)
        loader = DataLoader(Noisy(), batch_size=None, **options)
        rows = [row for _ in range(2) for row in loader]
        runs.append([number for row in rows for number in row])
    torch.set_rng_state(state)
    assert runs[0] == runs[1] and len(set(runs[0])) == 2 * 4 * 2


def test_a_generator_is_made_whatever_the_default_device_is():
    state = torch.get_rng_state()
    with torch.device("meta"):
        assert 0 <= loader_seeds.own_generator().random() < 1
    torch.set_rng_state(state)


@pytest.mark.gpu
def test_a_copy_is_read_too_early_and_in_time():
    x = torch.randn(4096, 4096, device="cuda")
    on_gpu = torch.empty(d2h_too_early_broken.ELEMENTS, device="cuda")
    for module, stale in zip(EARLY, (True, False), strict=True):
        d2h_too_early_broken.attempt(module.fetch, 0, on_gpu, x)
        outcomes = [d2h_too_early_broken.attempt(module.fetch, number, on_gpu, x) for number in range(1, 6)]
        assert {outcome["stale"] for outcome in outcomes} == {stale}
        assert not any(outcome["item"] or outcome["stale_later"] for outcome in outcomes)
        assert all(outcome["pinned"] for outcome in outcomes)
    on_host, landed = fetch_later.fetch_later(on_gpu, torch.cuda.Stream())
    landed.synchronize()
    assert torch.equal(on_host, on_gpu.cpu())


@pytest.mark.gpu
def test_the_loop_of_the_page_on_a_gpu():
    x = torch.randn(4096, 4096, device="cuda")

    def work(on_gpu: torch.Tensor) -> torch.Tensor:
        for _ in range(8):
            torch.mm(x, x)
        return torch.stack([on_gpu.min(), on_gpu.max()])

    right = [[number] * 2 for number in range(20)]
    assert torch.stack(looped(LOOP, range(20), 2**22, work)).tolist() == right


@pytest.mark.gpu
def test_a_loss_is_fetched_later_without_its_graph_and_pieces_are_made_anew():
    copying = torch.cuda.Stream()
    loss = torch.ones(4, device="cuda", requires_grad=True).sum()
    on_host, landed = fetch_later.fetch_later(loss, copying)
    landed.synchronize()
    assert on_host.item() == 4 and on_host.grad_fn is None and on_host.is_pinned()
    with pytest.raises(ValueError, match="the tensor is on cpu, the stream on cuda:0"):
        fetch_later.fetch_later(torch.ones(1), copying)
    x, host = torch.randn(64, 2**16, device="cuda"), torch.zeros(64, 2**16, pin_memory=True)
    for _ in range(3):  # each piece is freed at once, and its memory is used for the next
        chunked_copy.in_pieces((rows + 1 for rows in x.chunk(16)), host.chunk(16), copying)
        copying.synchronize()
        assert torch.equal(host, x.cpu() + 1)
        host.zero_()


@pytest.mark.gpu
def test_tensors_on_a_gpu_are_not_pinned_and_small_ones_are_packed():
    assert "only dense CPU tensors can be pinned" in pinning_costs.refusal(torch.ones(1, device="cuda"))
    tensors = [torch.randn(n, 3) for n in range(1, 40)]
    for _ in range(20):  # memory that comes back from the cache has left before
        arrived = many_small_copies.send_packed(tensors)
        tensors = [tensor + 1 for tensor in tensors]
    torch.testing.assert_close([on_gpu.cpu() + 1 for on_gpu in arrived], tensors)
    number, mask = many_small_copies.send_packed([torch.tensor(3), torch.ones(2, dtype=torch.bool)], "cuda:0")
    assert number.item() == 3 and mask.tolist() == [True, True]
    with pytest.raises(ValueError, match="one is not on the CPU"):
        many_small_copies.send_packed([mask])


@pytest.mark.gpu
def test_overlapped_results_are_those_of_one_stream():
    x = torch.randn(1024, 1024, device="cuda")
    for module in TWINS:
        landing = [torch.zeros(1024, 1024, pin_memory=True) for _ in range(3)]
        module.together(x, landing, 3)
        torch.cuda.synchronize()
        for host in landing:
            torch.testing.assert_close(host.cuda(), x @ x)
    batches = [torch.randn(256, 512).bfloat16().pin_memory() for _ in range(6)]
    w = torch.randn(512, 64, device="cuda").bfloat16()
    step = partial(prefetcher_gain.work, w=w, products=9)
    plain = torch.stack(prefetcher_gain.plain(batches, step))
    for way in WAYS.values():
        torch.testing.assert_close(torch.stack(way(batches, step)), plain)


@pytest.mark.gpu
@pytest.mark.parametrize("pin", [True, False])
def test_what_a_step_keeps_stays_right_while_memory_is_used_again(pin):
    batches = [{"x": torch.full((2**22,), float(i), pin_memory=pin)} for i in range(12)]
    x, kept = torch.randn(2048, 2048, device="cuda"), []
    for i, batch in enumerate(prefetcher.prefetched(batches)):
        torch.mm(x, x)
        if i % 3 == 0:
            kept.append((i, batch["x"]))
        batch["x"].add_(0)
    assert [bool((on_gpu == i).all()) for i, on_gpu in kept] == [True] * 4


# rows of ranks


@pytest.mark.parametrize("equal", [False, True])
@pytest.mark.parametrize(
    ("ranks", "workers", "count"), [(1, 0, 5), (2, 2, 11), (4, 2, 30), (3, 1, 2), (2, 3, 12)]
)
def test_each_row_is_dealt_to_one_worker(monkeypatch, ranks, workers, count, equal):
    """The processes of a loader, one after the other; without workers each rank reads by itself."""
    given: dict[int, list[int]] = {rank: [] for rank in range(ranks)}
    for rank in range(ranks):
        rows = rows_of_ranks.Dealt(range(count), rank, ranks, equal)
        for number in range(max(1, workers)):
            info = SimpleNamespace(num_workers=workers, id=number) if workers else None
            monkeypatch.setattr(rows_of_ranks, "get_worker_info", lambda info=info: info)
            given[rank] += list(rows)
            assert len(set(list(rows)) & set(given[rank])) == len(list(rows)), "each epoch the same"
    every = [row for rows in given.values() for row in rows]
    assert len(every) == len(set(every)) and set(every) <= set(range(count))
    sizes = {len(rows) for rows in given.values()}
    readers = ranks * max(1, workers)
    if equal:
        assert len(sizes) == 1 and len(every) == count - count % readers
    else:
        assert len(every) == count


def test_a_stream_that_ends_for_ever_is_refused():
    with pytest.raises(ValueError, match="one epoch only"):
        rows_of_ranks.Dealt(iter(range(3)), 0, 1)


FOUR_RANKS = """
import json, os
from pathlib import Path
from snippets.transfers import rows_of_ranks

told = rows_of_ranks.main()
if os.environ["RANK"] == "0":
    Path(os.environ["TOLD"]).write_text(json.dumps(told))
"""


def test_a_sampler_by_a_mesh_gives_partners_the_same_rows(tmp_path, monkeypatch):
    (tmp_path / "runner.py").write_text(FOUR_RANKS)
    monkeypatch.setenv("TOLD", str(tmp_path / "told"))
    on_ranks(4, str(tmp_path / "runner.py"))
    told = json.loads((tmp_path / "told").read_text())
    assert told["samplers"]["mesh"] == {"alike": True, "least": 1, "most": 1, "of_ranks": [15, 15]}
    assert not told["samplers"]["default"]["alike"]
    assert [told["streams"][way]["most"] for way in ("as it is", "by rank", "dealt")] == [8, 2, 1]
    assert told["streams"]["dealt, equal"]["of_ranks"] == [6, 6, 6, 6]


@pytest.mark.parametrize("case", [case for case in loader_gpu_tensors.CASES if "spawned" not in case])
def test_without_a_gpu_each_dataset_gives_its_rows(case, tmp_path):
    told = loader_gpu_tensors.load(case, "cpu", str(tmp_path))
    assert (told["rows"], told["device"], told["says"]) == (loader_gpu_tensors.ROWS, "cpu", "")


def test_the_last_error_of_a_traceback_is_told():
    words = "Caught RuntimeError in DataLoader worker process 0.\nOriginal Traceback\n  File\n"
    assert loader_gpu_tensors.last_error(words + "RuntimeError: Cannot re-initialize CUDA") == (
        "Cannot re-initialize CUDA"
    )
    assert loader_gpu_tensors.last_error("DataLoader timed out\nmore") == "DataLoader timed out"


def test_errors_of_workers_are_told_by_how_rows_came_to_the_gpu():
    told = {"rows": 8, "device": "cuda", "says": "", "taken_mib": 1000, "first_s": 1.0}
    found = {case: told | {"says": case} for case in loader_gpu_tensors.CASES}
    derived = loader_gpu_tensors.derive({"found": found, "workers": 2})
    assert derived["holds"] == "holds GPU rows, forked" and derived["pinned"].endswith("pinned")
    assert derived["each_mib"] == 500 and derived["spawned_rows"] == [8, 8]


@pytest.mark.gpu
def test_a_forked_worker_cannot_use_the_gpu():
    found = run_alone("transfers/loader_gpu_tensors")["found"]
    assert found["CPU rows, forked"]["rows"] == found["loads to the CPU, forked"]["rows"] == 8
    assert "Cannot re-initialize CUDA" in found["makes GPU rows, forked"]["says"]
    assert found["holds GPU rows, forked"]["rows"] == 0


def test_each_number_of_workers_loads_as_many_batches_a_worker(monkeypatch, capsys):
    monkeypatch.setattr(loader_scales, "WORKERS", (0, 1, 2))
    monkeypatch.setattr(loader_scales, "BATCHES", 1)
    loaded = []

    def take_turns(works, **how):
        for work in works.values():
            loaded.append([len(batch) for batch in work.args[0]])
        return {name: SimpleNamespace(trials=[1.0, 2.0, 4.0]) for name in works}

    monkeypatch.setattr(loader_scales, "take_turns", take_turns)
    result = loader_scales.main()
    assert loaded == [[16], [16], [16, 16]] and result["images_per_s"] == [8, 8, 16]
    assert "2 workers" in capsys.readouterr().out
    found = loader_scales.derive(result)
    assert found == {"gain": {"1": 1, "2": 2}, "each": {"1": 1, "2": 1}}
