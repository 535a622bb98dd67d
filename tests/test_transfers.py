"""Snippets of the chapter on transfers; without a GPU, on an imitation that does queued work as late as it may."""

import contextlib
import json
import subprocess
import sys
from collections import UserDict, namedtuple
from functools import partial
from pathlib import Path
from statistics import median
from types import SimpleNamespace

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader

from overlap.run.snippet import Snippet
from snippets.timing.benchmark import Timing
from snippets.transfers import (
    chunked_copy,
    d2h_too_early_broken,
    d2h_too_early_fixed,
    fetch_later,
    loader_workers,
    many_small_copies,
    non_blocking_matrix,
    overlap_as_published,
    overlap_copy_compute_broken,
    overlap_copy_compute_fixed,
    pageable_copies,
    pcie_bandwidth,
    pinning_costs,
    pinning_threads,
    prefetcher,
    prefetcher_gain,
    tensors_left_behind,
    tensors_on_devices,
)

ROOT = Path(__file__).resolve().parent.parent
EARLY = [d2h_too_early_broken, d2h_too_early_fixed]
TWINS = [overlap_copy_compute_broken, overlap_copy_compute_fixed]
ORDERS = [("main", "side"), ("side", "main")]
LANES = [["CPU", 0.0, 4.0, "cudaLaunchKernel"], ["stream 7", 5.0, 9.0, "gemm"]]
#: Each snippet that needs a GPU, with what makes it small.
SMALL = {
    chunked_copy: {"ROWS": 256, "N": 32},
    d2h_too_early_broken: {"ELEMENTS": 64, "STRIDE": 8, "TRIES": 6},
    d2h_too_early_fixed: {},
    fetch_later: {"N": 16, "ELEMENTS": 64},
    many_small_copies: {"COUNT": 5, "SIZES": [1, 4, 16]},
    non_blocking_matrix: {"BYTES": 256, "N": 16},
    overlap_as_published: {"N": 16},
    overlap_copy_compute_broken: {"N": 16, "ROUNDS": 6, "lanes": lambda work: work() or LANES},
    overlap_copy_compute_fixed: {},
    pageable_copies: {"SIZES": [1024, 4096]},
    pcie_bandwidth: {"SIZES": [64, 256, 1024]},
    pinning_costs: {"ELEMENTS": 64},
    pinning_threads: {"BYTES": 64, "choose": lambda threads: None},
    prefetcher_gain: {"ROWS": 8, "N": 16, "OUT": 4},
}
#: The module whose constants a twin uses.
MEASURED_BY = {d2h_too_early_fixed: d2h_too_early_broken, overlap_copy_compute_fixed: overlap_copy_compute_broken}
CEILINGS = {"pcie_gb_s": 63.0, "pcie_payload_gb_s": 58.0}


class Gpu:
    """Two streams. What is put into them runs at once, or, if this GPU is late, when somebody waits for it."""

    def __init__(self, late: bool):
        self.late, self.current, self.order = late, "main", ("main", "side")
        self.queues, self.diary = {"main": [], "side": []}, []

    def put(self, stream: str, work, ready=lambda: True) -> None:
        self.queues[stream].append((ready, work))
        if not self.late:
            self.run()

    def launch(self, work) -> None:
        self.put(self.current, work)

    def run(self, until=lambda: False) -> None:
        """Run what is ready, of the first stream in `order` if it has any."""
        while not until():
            ready = [queue for queue in map(self.queues.get, self.order) if queue and queue[0][0]()]
            if not ready:
                return
            ready[0].pop(0)[1]()


class Event:
    def __init__(self, gpu: Gpu):
        self.gpu, self.passed = gpu, [True]  # never recorded: there is nothing to wait for

    def record(self, stream=None) -> None:
        self.passed = passed = []
        self.gpu.put(stream.name if stream else self.gpu.current, lambda: passed.append(True))

    def synchronize(self) -> None:
        self.gpu.run(until=lambda: bool(self.passed))


class Stream:
    def __init__(self, gpu: Gpu, name: str = "side"):
        self.gpu, self.name = gpu, name

    def record_event(self) -> Event:
        event = Event(self.gpu)
        event.record(self)
        return event

    def wait_event(self, event: Event) -> None:
        passed = event.passed
        self.gpu.put(self.name, lambda: None, ready=lambda: bool(passed))

    def wait_stream(self, other: "Stream") -> None:
        self.gpu.diary.append(f"{self.name} waits for {other.name}")
        self.wait_event(other.record_event())


def imitate(patch: pytest.MonkeyPatch, late: bool) -> Gpu:
    """Do on the CPU what the snippets ask of CUDA; random matrices have at most 256 rows and columns."""
    gpu = Gpu(late)
    tensor = {name: getattr(torch.Tensor, name) for name in ("copy_", "item", "to", "clone")}
    mm = torch.mm

    def here(create, most: int | None = None):
        def made(*args, device=None, pin_memory=False, **options):
            made = create(*(min(n, most) if most else n for n in args), **options)
            made.pinned = pin_memory
            return made

        return made

    def copy_(to, source, non_blocking=False):
        if non_blocking:
            gpu.launch(lambda: tensor["copy_"](to, source))
            return to
        return tensor["copy_"](to, source)

    def to(self, *args, non_blocking=False, **options):
        if args not in (("cpu",), ("cuda",)):
            return tensor["to"](self, *args, **options)
        copy = pinned(self, args == ("cpu",) and non_blocking)
        if copy.pinned:
            copy.fill_(-1)
            gpu.launch(lambda: tensor["copy_"](copy, self))
        return copy

    def pinned(self, pinned=True):
        copy = tensor["clone"](self)
        copy.pinned = pinned
        return copy

    def multiply(a, b, out=None):
        out = torch.zeros(len(a), b.shape[1], dtype=a.dtype) if out is None else out
        gpu.launch(lambda: mm(a, b, out=out))
        return out

    @contextlib.contextmanager
    def on(stream):
        before, gpu.current = gpu.current, stream.name
        yield
        gpu.current = before

    for name in ("empty", "zeros", "full", "ones", "tensor", "empty_like", "zeros_like"):
        patch.setattr(torch, name, here(getattr(torch, name)))
    patch.setattr(torch, "randn", here(torch.randn, most=256))
    patch.setattr(torch, "mm", multiply)
    for name, method in {"copy_": copy_, "to": to, "pin_memory": pinned}.items():
        patch.setattr(torch.Tensor, name, method)
    patch.setattr(torch.Tensor, "cuda", lambda self: self)
    patch.setattr(torch.Tensor, "is_pinned", lambda self: getattr(self, "pinned", False))
    patch.setattr(torch.Tensor, "item", lambda self: gpu.run() or tensor["item"](self))
    patch.setattr(torch.Tensor, "record_stream", lambda self, stream: gpu.diary.append(f"used on {stream.name}"))
    patch.setattr(torch.cuda, "Event", lambda: Event(gpu))
    patch.setattr(torch.cuda, "Stream", lambda *device: Stream(gpu))
    patch.setattr(torch.cuda, "current_stream", lambda *device: Stream(gpu, "main"))
    patch.setattr(torch.cuda, "stream", on)
    patch.setattr(torch.cuda, "synchronize", gpu.run)
    return gpu


@pytest.fixture
def late(monkeypatch):
    """A GPU that does nothing before it must."""
    return imitate(monkeypatch, late=True)


@pytest.fixture
def prompt(monkeypatch):
    """A GPU that does everything at once."""
    return imitate(monkeypatch, late=False)


def shrink(patch: pytest.MonkeyPatch, module) -> None:
    """Make a snippet small."""
    module = MEASURED_BY.get(module, module)
    for name, small in SMALL[module].items():
        patch.setattr(module, name, small)


def plain_data(result: dict) -> dict:
    """The result, as it comes back from a recording."""
    return json.loads(json.dumps(result, allow_nan=False))


def check_medians(item) -> int:
    """How many numbers stand beside their trials; each must be their median."""
    if isinstance(item, list):
        return sum(map(check_medians, item))
    if not isinstance(item, dict):
        return 0
    found = sum(check_medians(part) for part in item.values())
    return found + sum(compare(item[key.removesuffix("_trials")], item[key]) for key in item if key.endswith("_trials"))


def compare(value, trials) -> int:
    if isinstance(value, dict):
        assert value.keys() == trials.keys()
        return sum(compare(value[key], trials[key]) for key in value)
    if isinstance(value, list):
        return sum(compare(*pair) for pair in zip(value, trials, strict=True))
    assert value == pytest.approx(median(trials)) and len(trials) >= 5
    return 1


@pytest.fixture
def one_thread_at_most():
    """A snippet may set the number of threads; what comes after has its own again."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("one_thread_at_most")
@pytest.mark.parametrize("module", SMALL, ids=lambda module: module.__name__.rpartition(".")[2])
def test_main_in_small_returns_data_that_can_be_drawn(prompt, monkeypatch, capsys, module):
    shrink(monkeypatch, module)
    result = plain_data(module.main())
    assert check_medians(result) >= (module not in EARLY)  # which only count
    assert capsys.readouterr().out.count("\n") >= 3
    for ceilings in (CEILINGS, {}):
        if hasattr(module, "plot"):
            assert module.plot(result, ceilings).axes
    plt.close("all")


@pytest.mark.parametrize("module", [*SMALL, prefetcher, loader_workers], ids=lambda m: m.__name__.rpartition(".")[2])
def test_recorded(recorded, module):
    for result in recorded(module.__name__.removeprefix("snippets.").replace(".", "/")).values():
        assert check_medians(result) >= (module not in EARLY)
        if hasattr(module, "plot"):
            assert module.plot(result, {}).axes
    plt.close("all")


# tensors on devices


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


def test_tensors_main_on_this_machine(capsys):
    result = plain_data(tensors_on_devices.main())
    assert all(row["same"] for row in result["rows"])
    assert result["device"] == result["where"]["result"] == result["where"]["model"]
    assert len(result["rows"]) == (8 if result["device"] == "cuda" else 5)
    assert "DIFFERS" not in capsys.readouterr().out


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


def test_left_behind_main_on_this_machine(capsys):
    result = plain_data(tensors_left_behind.main())
    assert (result["strays"], result["strays_mended"]) == (["1.by"], [])
    assert result["errors"]["mixed"] and not result["errors"]["mended"]
    assert "can't convert" in result["errors"]["numpy"]
    assert "['1.by']" in capsys.readouterr().out


# several GPUs


def test_an_event_is_recorded_on_the_gpu_of_the_tensor(monkeypatch):
    x, asked = torch.ones(2), []
    event = SimpleNamespace(synchronize=lambda: None, record=lambda stream: None)
    stream = SimpleNamespace(record_event=lambda: event, wait_stream=lambda other: None)
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
        many_small_copies.send_packed([torch.ones(2), torch.ones(2).int()])


def test_nothing_and_parameters_can_be_packed(late):
    assert many_small_copies.send_packed([]) == []
    layer = torch.nn.Linear(3, 2)
    arrived = many_small_copies.send_packed(list(layer.parameters()))
    assert all(map(torch.equal, arrived, layer.parameters())) and not any(part.requires_grad for part in arrived)


# pinning


@pytest.mark.parametrize("order", ORDERS)
def test_the_buffer_is_not_refilled_before_it_has_left(late, order):
    late.order = order
    x, buffer, sent = torch.arange(5.0), torch.zeros(5, pin_memory=True), torch.cuda.Event()
    first, second = torch.zeros(5), torch.zeros(5)
    pinning_costs.send(x, buffer, first, sent)
    assert not first.any(), "this GPU is late"
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
    gpu, host = torch.zeros(3), torch.ones(3)
    assert non_blocking_matrix.copy(gpu, host, True, Stream(late)) >= 0
    assert (len(late.queues["side"]), len(late.queues["main"])) == (1, 0) and not gpu.any()
    assert non_blocking_matrix.copy(gpu, host, False, Stream(late)) >= 0
    assert gpu.all() and late.current == "main"


def test_a_cell_runs_both_orders_and_drops_the_first_round():
    diary = []
    row = non_blocking_matrix.cell(lambda: diary.append("copy") or 7.0, lambda: diary.append("products"))
    assert diary == ["copy", "products", "copy", "products", "products", "copy"] * 8
    assert row["ms_trials"]["held"] == [7000.0] * 7 and list(row["hidden"]) == list(non_blocking_matrix.ORDERS)


def test_hidden_is_a_share_of_the_shorter_leg():
    copying, multiplying = Timing([4.0, 9.0]), Timing([10.0, 3.0])
    assert non_blocking_matrix.hidden(copying, multiplying, Timing([14.0, 9.75])) == [0.0, 0.75]


def test_matrix_main_has_eight_cells_each_way(prompt, monkeypatch):
    monkeypatch.setattr(non_blocking_matrix, "BYTES", 256)
    monkeypatch.setattr(non_blocking_matrix, "N", 16)
    result = non_blocking_matrix.main()
    assert list(result["cells"]) == list(result["back"]) == non_blocking_matrix.CELLS
    assert len(set(non_blocking_matrix.CELLS)) == 8 and "pinned_non_blocking_side" in result["cells"]


# too early


@pytest.mark.parametrize(("module", "stale"), list(zip(EARLY, (6, 0), strict=True)))
def test_only_the_broken_twin_reads_too_early(late, monkeypatch, module, stale, capsys):
    shrink(monkeypatch, module)
    result = plain_data(module.main())
    counts = {"stale": stale, "old_looks": 8 * stale, "stale_later": 0, "item": 0, "pinned": 6}
    assert result["counts"] == counts and result["looks"] == 6 * 8
    assert f"wrong in {stale} of 6" in capsys.readouterr().out


@pytest.mark.parametrize("order", ORDERS)
def test_a_later_fetch_holds_nobody_and_is_right_after_its_event(late, order):
    late.order = order
    side, on_gpu = Stream(late), torch.zeros(4)
    late.launch(lambda: on_gpu.fill_(3))
    on_host, landed = fetch_later.fetch_later(on_gpu, side)
    assert not (on_host == 3).any(), "nothing has run, and nobody waited"
    landed.synchronize()
    assert (on_host == 3).all() and late.diary == ["side waits for main", "used on side"]


# overlap


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("module", TWINS)
def test_what_lands_has_been_computed(late, module, order):
    late.order = order
    x, landing = torch.randn(4, 4), [torch.zeros(4, 4) for _ in range(3)]
    module.together(x, landing, 3)
    torch.cuda.synchronize()
    assert all(torch.equal(host, x @ x) for host in landing)


def test_twins_differ_in_the_stream_of_the_copies(late):
    x, landing = torch.randn(4, 4), [torch.zeros(4, 4)]
    overlap_copy_compute_broken.together(x, landing, 2)
    assert late.diary == [] and not late.queues["side"]
    late.queues["main"].clear()
    overlap_copy_compute_fixed.together(x, landing, 2)
    assert late.diary == ["side waits for main", "used on side"] * 2 + ["main waits for side"]
    assert len(late.queues["side"]) == 2 * 2 + 1, "a wait and a copy each, and the last record"


def test_published_form_makes_pinned_memory_unless_it_blocks(prompt):
    results = [torch.ones(2), torch.zeros(2)]
    for non_blocking in (False, True):
        landed = overlap_as_published.to_cpu(results, non_blocking)
        assert [host.is_pinned() for host in landed] == [non_blocking] * 2
        assert all(torch.equal(host, result) for host, result in zip(landed, results, strict=True))


# pieces


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("pieces", [1, 4])
def test_each_piece_is_copied_after_it_is_computed(late, order, pieces):
    late.order = order
    x, w, gpu, host = torch.randn(8, 4), torch.randn(4, 4), torch.zeros(8, 4), torch.zeros(8, 4)
    for scale in (1.0, 2.0):  # the second round must not overwrite what the first one still copies
        chunked_copy.in_pieces(scale * x, w, gpu, host, pieces, Stream(late))
    torch.cuda.synchronize()
    torch.testing.assert_close(host, 2 * x @ w)
    assert late.diary == (["side waits for main"] * pieces + ["main waits for side"]) * 2


def test_a_piece_that_is_missing_is_noticed(prompt, monkeypatch):
    for name, small in SMALL[chunked_copy].items():
        monkeypatch.setattr(chunked_copy, name, small)
    monkeypatch.setattr(chunked_copy, "in_pieces", lambda *args: None)
    with pytest.raises(AssertionError, match="not close"):
        chunked_copy.main()


def test_as_many_pieces_are_run_as_are_named():
    rows = torch.empty(chunked_copy.ROWS, 1)
    assert [len(rows.chunk(n)) for n in chunked_copy.PIECES] == list(chunked_copy.PIECES)


# prefetching


WAYS = {
    "prefetched": lambda batches, step: [step(batch) for batch in prefetcher.prefetched(batches)],
    "two_buffers": prefetcher_gain.two_buffers,
}


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("way", WAYS)
def test_every_step_sees_its_own_batch(late, order, way):
    late.order = order
    seen = []

    def step(batch: torch.Tensor) -> int:
        late.launch(lambda: seen.append(batch.tolist()))
        return len(seen)

    batches = [torch.full((2,), float(i)) for i in range(7)]
    assert len(WAYS[way](batches, step)) == 7
    assert not seen, "nothing but queues so far: the CPU did not wait"
    assert late.diary[-1] == "main waits for side" and "side waits for main" in late.diary
    torch.cuda.synchronize()
    assert seen == [batch.tolist() for batch in batches]


@pytest.mark.parametrize("way", WAYS)
def test_a_batch_is_copied_ahead_of_the_work_on_the_one_before(late, way):
    done, used = [], []
    late.order = ("side", "main")

    def step(batch: torch.Tensor) -> None:
        used.append(batch)
        late.launch(lambda: done.append(1))

    WAYS[way]([torch.full((1,), float(i + 1)) for i in range(4)], step)
    late.run(until=lambda: bool(used[1] == 2))
    assert used[1] == 2 and not done, "the second batch has arrived and the first is not worked on yet"


Pair = namedtuple("Pair", "x y")


@pytest.mark.parametrize("order", ORDERS)
def test_batches_of_any_form_may_be_kept(late, order):
    late.order = order
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


def test_a_mapping_becomes_a_dict(late):
    (batch,) = prefetcher.prefetched([UserDict(x=torch.ones(2))])
    torch.cuda.synchronize()
    assert type(batch) is dict and torch.equal(batch["x"], torch.ones(2))


@pytest.mark.parametrize("batches", [[], [torch.ones(1)]])
def test_none_or_one_batch(late, batches):
    kept = list(prefetcher.prefetched(batches))
    torch.cuda.synchronize()
    assert kept == batches


@pytest.mark.parametrize("batch", [{1}, (torch.ones(1), object()), {"x": slice(3)}])
@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_what_is_no_batch_is_refused_and_what_was_sent_is_joined(late, batch, device):
    batches = prefetcher.prefetched([torch.ones(1), batch], device)
    with pytest.raises(TypeError, match=r"a batch holds tensors, tuples, lists or dicts, not (set|object|slice)"):
        list(batches)
    assert device == "cpu" or late.diary[-1] == "main waits for side"


def test_who_stops_early_is_joined_with_the_copy_ahead(late):
    batches = prefetcher.prefetched([torch.ones(1)] * 3)
    next(batches)
    before = len(late.diary)
    batches.close()
    assert late.diary[before:] == ["main waits for side"]


BORROWER = """
from prefetcher import prefetched
import torch
from torch.utils.data import DataLoader

data = [{"x": torch.full((3,), float(i)), "label": i} for i in range(10)]
device = "cuda" if torch.cuda.is_available() else "cpu"
loader = DataLoader(data, batch_size=4, pin_memory=device == "cuda")
kept = [batch for batch in prefetched(loader, device)]
for batch in kept:
    print(batch["x"].device.type, batch["x"].sum().item(), batch["label"].tolist())
"""


def borrowed(name: str, folder: Path, program: str) -> str:
    """What a program prints that finds the download in its folder, and nothing else of the book."""
    folder.joinpath(f"{name}.py").write_text(Snippet.read(ROOT, f"transfers/{name}").download)
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


def test_a_borrower_finds_what_stayed_behind(tmp_path):
    program = "from tensors_left_behind import Scale, strays\nprint(strays(Scale().to('meta'), 'meta'))"
    assert borrowed("tensors_left_behind", tmp_path, program) == "['by']\n"


def test_without_cuda_a_prefetcher_for_it_says_so():
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    with pytest.raises((AssertionError, RuntimeError), match=r"(?i)cuda|nvidia"):
        next(prefetcher.prefetched([torch.ones(1)]))


def test_prefetcher_main_on_this_machine(capsys):
    result = plain_data(prefetcher.main())
    assert list(result["ms"]) == ["copy", "work", "plain", "prefetched"] and check_medians(result) == 4
    assert "prefetched" in capsys.readouterr().out


def test_work_is_the_last_product(prompt):
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


def test_epoch_drops_the_first_window(prompt, monkeypatch):
    monkeypatch.setattr(loader_workers, "BATCHES", 32)
    monkeypatch.setattr(loader_workers.time, "perf_counter", iter(range(100)).__next__)
    x, batches = torch.randn(4, 4), [torch.full((3,), float(i)) for i in range(32)]
    found = loader_workers.epoch(batches, x)
    assert (found["step"].trials, found["wait"].trials) == ([2.0] * 3, [1.0] * 3)
    with pytest.raises(AssertionError, match="not the batch"):
        loader_workers.epoch(batches[::-1], x)


def test_loader_main_in_small(prompt, monkeypatch, capsys):
    monkeypatch.setattr(loader_workers, "LOAD_S", 0.0005)
    monkeypatch.setattr(loader_workers, "WORKERS", (0, 2))
    monkeypatch.setattr(loader_workers, "N", 16)
    loaders = []

    def unpinned(workers: int, pin: bool) -> DataLoader:
        loaders.append((workers, pin))
        return DataLoader(loader_workers.SlowBatches(), batch_size=None)

    monkeypatch.setattr(loader_workers, "loader", unpinned)
    result = plain_data(loader_workers.main())
    assert loaders == [(0, True), (2, True), (0, True), (0, False)]
    assert check_medians(result) == 6 and result["alone_ms"]["load"] >= 0.5
    assert result["wait_ms"]["0"] <= result["step_ms"]["0"]
    assert "workers 2 " in capsys.readouterr().out
    assert loader_workers.plot(result, {}).axes
    plt.close("all")


# on a real GPU


@pytest.mark.gpu
def test_a_copy_is_read_too_early_and_in_time():
    x, on_gpu = torch.randn(4096, 4096, device="cuda"), torch.empty(d2h_too_early_broken.ELEMENTS, device="cuda")
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
def test_tensors_on_a_gpu_are_not_pinned_and_small_ones_are_packed():
    assert "only dense CPU tensors can be pinned" in pinning_costs.refusal(torch.ones(1, device="cuda"))
    tensors = [torch.randn(n, 3) for n in range(1, 40)]
    for _ in range(20):  # memory that comes back from the cache has left before
        arrived = many_small_copies.send_packed(tensors)
        tensors = [tensor + 1 for tensor in tensors]
    torch.testing.assert_close([on_gpu.cpu() + 1 for on_gpu in arrived], tensors)


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
