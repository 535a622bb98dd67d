"""Snippets of the chapter on transfers; without a GPU, on an imitation that does queued work as late as it may."""

import contextlib
import json
from functools import partial
from statistics import median
from types import SimpleNamespace

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import pytest
import torch
from torch.utils.data import DataLoader

from snippets.timing.benchmark import Timing
from snippets.transfers import (
    chunked_copy,
    d2h_too_early_broken,
    d2h_too_early_fixed,
    loader_workers,
    non_blocking_matrix,
    overlap_as_published,
    overlap_copy_compute_broken,
    overlap_copy_compute_fixed,
    pcie_bandwidth,
    pinning_costs,
    prefetcher,
    tensors_on_devices,
)

EARLY = [d2h_too_early_broken, d2h_too_early_fixed]
TWINS = [overlap_copy_compute_broken, overlap_copy_compute_fixed]
H200 = {"pcie_gb_s": 63, "fp32_tflop_s": 67}
MIB = 2**20
ORDERS = [("main", "side"), ("side", "main")]


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

    def wait_event(self, event: Event) -> None:
        passed = event.passed
        self.gpu.put(self.name, lambda: None, ready=lambda: bool(passed))

    def wait_stream(self, other: "Stream") -> None:
        self.gpu.diary.append(f"{self.name} waits for {other.name}")
        event = Event(self.gpu)
        event.record(other)
        self.wait_event(event)


def imitate(patch: pytest.MonkeyPatch, late: bool) -> Gpu:
    """Do on the CPU what the snippets ask of CUDA; random matrices have at most 64 rows and columns."""
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
    patch.setattr(torch, "randn", here(torch.randn, most=64))
    patch.setattr(torch, "mm", multiply)
    for name, method in {"copy_": copy_, "to": to, "pin_memory": pinned}.items():
        patch.setattr(torch.Tensor, name, method)
    patch.setattr(torch.Tensor, "cuda", lambda self: self)
    patch.setattr(torch.Tensor, "is_pinned", lambda self: getattr(self, "pinned", False))
    patch.setattr(torch.Tensor, "item", lambda self: gpu.run() or tensor["item"](self))
    patch.setattr(torch.Tensor, "record_stream", lambda self, stream: gpu.diary.append(f"used on {stream.name}"))
    patch.setattr(torch.cuda, "Event", lambda: Event(gpu))
    patch.setattr(torch.cuda, "Stream", lambda: Stream(gpu))
    patch.setattr(torch.cuda, "current_stream", lambda: Stream(gpu, "main"))
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


def plain_data(result: dict) -> dict:
    """The result, as it comes back from a recording."""
    return json.loads(json.dumps(result, allow_nan=False))


def medians(trials: dict[str, list[float]]) -> dict[str, float]:
    return {name: pytest.approx(median(values)) for name, values in trials.items()}


# tensors on devices


def test_softmax_without_dim_takes_another_one_for_three_dimensions():
    rows = [tensors_on_devices.implicit_softmax(dimensions) for dimensions in (1, 2, 3, 4)]
    assert [row["dim"] for row in rows] == [0, 1, 0, 1]
    assert all("Implicit dimension choice" in row["said"][0] for row in rows)


def test_old_calls_are_compared_by_value_type_and_device():
    pairs = {"torch.ones(2)": "torch.ones(2).double()", "torch.zeros(1)": "torch.ones(1)", "1 + 1": "2"}
    assert [row["same"] for row in tensors_on_devices.compared(pairs)] == [False, False, True]


def test_moving_a_tensor_gives_another_and_moving_a_model_moves_it():
    where = tensors_on_devices.places("meta")
    assert (where["tensor"], where["result"], where["model"]) == ("cpu", "meta", "meta")
    assert where["again_is_the_same_object"] and where["product"] == "meta"


def test_error_of_a_call_is_its_first_line():
    assert tensors_on_devices.error_of(lambda: torch.ones(2) + torch.ones(3)).startswith("RuntimeError: The size")
    assert tensors_on_devices.error_of(lambda: torch.ones(2)) == ""


def test_tensors_main_on_this_machine(capsys):
    result = plain_data(tensors_on_devices.main())
    assert all(row["same"] for row in result["rows"])
    assert result["device"] == result["where"]["result"] == result["where"]["model"]
    if result["device"] == "cuda":
        assert len(result["rows"]) == 8
        assert "Expected all tensors to be on the same device" in result["errors"]["mixed"]
        assert "can't convert cuda" in result["errors"]["numpy"]
    else:
        assert len(result["rows"]) == 5 and not any(result["errors"].values())
    told = capsys.readouterr().out
    assert "tensor of 3 dimensions: dim 0" in told and "\n\n" not in told


def test_recorded_tensors(recorded):
    for profile, result in recorded("transfers/tensors_on_devices").items():
        assert result["device"] == ("cpu" if profile == "cpu" else "cuda")
        assert len(result["rows"]) == (5 if profile == "cpu" else 8)
        assert [row["dim"] for row in result["softmax"]] == [0, 1, 0, 1]


# bandwidth


def test_rates_are_bytes_over_seconds_of_a_checked_copy(prompt, monkeypatch):
    monkeypatch.setattr(pcie_bandwidth, "measure", lambda work, **_: (work(), Timing([2e-6]))[1])
    to, source = torch.ones(1000, dtype=torch.uint8), torch.arange(1000).to(torch.uint8)
    assert pcie_bandwidth.gb_s(to, source) == pytest.approx(0.5)
    assert torch.equal(to, source)
    monkeypatch.setattr(pcie_bandwidth, "measure", lambda work, **_: Timing([1e-6]))
    with pytest.raises(AssertionError, match="not what was sent"):
        pcie_bandwidth.gb_s(to, source)


def test_ways_and_sizes_take_turns(monkeypatch):
    diary = []
    monkeypatch.setattr(pcie_bandwidth, "SIZES", (2, 4))
    monkeypatch.setattr(pcie_bandwidth, "gb_s", lambda to, source: diary.append((len(to), len(source))) or len(diary))
    trials = pcie_bandwidth.sweep({"a": (torch.ones(4), torch.ones(5)), "b": (torch.ones(4), torch.ones(5))})
    assert diary == [(2, 2), (4, 4)] * 18
    assert trials["b"][1] == list(range(4, 40, 4))


def test_both_ways_add_up_and_use_two_streams(prompt, monkeypatch):
    streams = []
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: streams.append(stream) or contextlib.nullcontext())
    monkeypatch.setattr(pcie_bandwidth, "measure", lambda work: work() or Timing([1e-6]))
    a, b, c, d = (torch.full((1000,), i, dtype=torch.uint8) for i in range(4))
    assert pcie_bandwidth.both_ways(a, b, c, d) == pytest.approx([2.0])
    assert len(set(map(id, streams))) == 2
    assert (int(a[0]), int(d[0])) == (1, 2), "the first from the second, the fourth from the third"


def test_bandwidth_main_in_small(prompt, monkeypatch, capsys):
    monkeypatch.setattr(pcie_bandwidth, "SIZES", (64, 256, 1024))
    result = plain_data(pcie_bandwidth.main())
    assert result["sizes"] == [64, 256, 1024] and set(result["gb_s"]) == set(pcie_bandwidth.WAYS)
    for way, rates in result["gb_s"].items():
        assert rates == [median(trials) for trials in result["gb_s_trials"][way]]
    assert result["both_gb_s"] == median(result["both_gb_s_trials"]) > 0
    assert "both ways at once" in capsys.readouterr().out


def bandwidth(rate: float) -> dict:
    sizes = pcie_bandwidth.SIZES
    rates = {way: [rate * (i + 1) for i in range(len(sizes))] for way in pcie_bandwidth.WAYS}
    return {"sizes": list(sizes), "gb_s": rates, "both_gb_s": 90.0}


def test_bandwidth_is_drawn_below_its_ceilings():
    (ax,) = pcie_bandwidth.plot(bandwidth(7.0), H200).axes
    lines = {line.get_label(): line for line in ax.get_lines()}
    assert list(lines["gpu to pinned"].get_ydata()) == pytest.approx([7.0 * (i + 1) for i in range(7)])
    assert lines["pinned to gpu"].get_xdata()[-1] == 256
    assert lines["both ways at once"].get_ydata()[0] == 90.0
    ceilings = [line.get_ydata()[0] for line in ax.get_lines() if line.get_color() == "gray"]
    assert ceilings == [63, 126]
    assert len(pcie_bandwidth.plot(bandwidth(7.0), {}).axes[0].get_lines()) == 5
    plt.close("all")


def test_recorded_bandwidth(recorded):
    for profile, result in recorded("transfers/pcie_bandwidth").items():
        for way, rates in result["gb_s"].items():
            assert rates == [pytest.approx(median(trials)) for trials in result["gb_s_trials"][way]], profile
        assert result["sizes"] == list(pcie_bandwidth.SIZES)
        assert len(pcie_bandwidth.plot(result, {}).axes[0].get_lines()) == 5
    plt.close("all")


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


def test_a_lost_tensor_is_noticed(late, monkeypatch):
    x, buffer = torch.arange(5.0), torch.zeros(5)
    monkeypatch.setattr(torch.Tensor, "cpu", lambda self: late.run() or self)
    assert pinning_costs.both_arrive(x, 2 * x, buffer, torch.cuda.Event())
    monkeypatch.setattr(Event, "synchronize", lambda self: None)
    assert not pinning_costs.both_arrive(x, 2 * x, buffer, torch.cuda.Event())


def test_refusal_is_what_pytorch_says(monkeypatch):
    def refuse(self):
        raise RuntimeError("cannot pin this\nreally")

    monkeypatch.setattr(torch.Tensor, "pin_memory", refuse)
    assert pinning_costs.refusal(torch.ones(1)) == "cannot pin this"
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda self: self)
    assert pinning_costs.refusal(torch.ones(1)) == ""


def test_pinning_main_in_small(prompt, monkeypatch, capsys):
    monkeypatch.setattr(pinning_costs, "ELEMENTS", 64)
    result = plain_data(pinning_costs.main())
    assert result["ms"] == medians(result["ms_trials"]) and set(result["ms"]) == set(pinning_costs.LABELS)
    assert all(len(trials) == 5 for trials in result["ms_trials"].values())
    assert result["is_pinned"] == {"fresh": False, "buffer": True} and result["bytes"] == 4 * 64
    assert "pin_memory(), new" in capsys.readouterr().out


def test_pinning_is_drawn_beside_the_least_time():
    results = {"bytes": 63 * 10**6, "ms": {way: float(i) for i, way in enumerate(pinning_costs.LABELS)}}
    (ax,) = pinning_costs.plot(results, H200).axes
    assert [bar.get_width() for bar in ax.patches] == list(map(float, range(7)))
    (least,) = ax.get_lines()
    assert least.get_xdata()[0] == pytest.approx(1.0) and least.get_color() == "gray"
    assert [tick.get_text() for tick in ax.get_yticklabels()][1] == "pin_memory(), new"
    assert not pinning_costs.plot(results, {}).axes[0].get_lines()
    plt.close("all")


def test_recorded_pinning(recorded):
    for result in recorded("transfers/pinning_costs").values():
        assert result["ms"] == medians(result["ms_trials"])
        assert len(pinning_costs.plot(result, {}).axes[0].patches) == len(result["ms"]) == 7
    plt.close("all")


# non_blocking


def test_eight_cells():
    assert len(set(non_blocking_matrix.CELLS)) == 8
    assert {"pageable_blocking_same", "pinned_non_blocking_side"} < set(non_blocking_matrix.CELLS)


def test_a_copy_is_queued_in_its_stream_only_if_it_need_not_block(late):
    gpu, host = torch.zeros(3), torch.ones(3)
    assert non_blocking_matrix.copy(gpu, host, True, Stream(late)) >= 0
    assert (len(late.queues["side"]), len(late.queues["main"])) == (1, 0) and not gpu.any()
    assert non_blocking_matrix.copy(gpu, host, False, Stream(late)) >= 0
    assert gpu.all() and late.current == "main"


def test_a_cell_runs_both_orders_and_drops_the_first_round(monkeypatch):
    diary, clock = [], iter(range(100))
    monkeypatch.setattr(
        non_blocking_matrix, "measure", lambda run, warmup, trials: (run() and None) or Timing([next(clock) / 1e3])
    )
    trials = non_blocking_matrix.cell(lambda: diary.append("copy") or 7.0, lambda: diary.append("products"))
    assert diary == ["copy", "products", "copy", "products", "products", "copy"] * 8
    assert trials["held"] == [7.0] * 7
    assert trials["transfer"] == pytest.approx(range(4, 32, 4))
    assert trials["products_first"] == pytest.approx(range(7, 35, 4))


def test_hidden_is_a_share_of_the_shorter_leg():
    trials = {"held": [1.0], "transfer": [4.0], "products": [10.0], "copy_first": [14.0], "products_first": [11.0]}
    found = non_blocking_matrix.summary(trials)
    assert found["hidden"] == {"copy_first": 0.0, "products_first": 0.75} and found["held_share"] == 0.25
    assert found["hidden_trials"]["products_first"] == [0.75]


def test_matrix_main_in_small(prompt, monkeypatch, capsys):
    monkeypatch.setattr(non_blocking_matrix, "BYTES", 256)
    result = plain_data(non_blocking_matrix.main())
    assert list(result["cells"]) == non_blocking_matrix.CELLS
    for row in result["cells"].values():
        assert row["ms"] == medians(row["ms_trials"])
        assert {len(trials) for trials in row["ms_trials"].values()} == {7}
    assert "pinned_non_blocking_side" in capsys.readouterr().out


def test_matrix_is_drawn_with_its_numbers():
    hidden = {name: {"copy_first": i / 10, "products_first": 1.0} for i, name in enumerate(non_blocking_matrix.CELLS)}
    results = {"cells": {name: {"hidden": shares} for name, shares in hidden.items()}}
    left, right = non_blocking_matrix.plot(results, {}).axes
    assert [text.get_text() for text in left.texts] == [f"{i}0%" if i else "0%" for i in range(8)]
    assert left.collections[0].get_array().ravel().tolist() == pytest.approx([i / 10 for i in range(8)])
    assert {text.get_text() for text in right.texts} == {"100%"} and right.get_title() == "products first"
    labels = [tick.get_text() for tick in left.get_yticklabels()]
    assert labels == ["pageable\nblocking", "pageable\nnon_blocking", "pinned\nblocking", "pinned\nnon_blocking"]
    plt.close("all")


def test_recorded_matrix(recorded):
    for profile, result in recorded("transfers/non_blocking_matrix").items():
        for name, row in result["cells"].items():
            assert row["ms"] == medians(row["ms_trials"]), (profile, name)
            again = non_blocking_matrix.summary(row["ms_trials"])["hidden"]
            assert row["hidden"] == pytest.approx(again), (profile, name)
        assert len(non_blocking_matrix.plot(result, {}).axes[0].texts) == 8
    plt.close("all")


# too early


@pytest.mark.parametrize(("module", "stale"), list(zip(EARLY, (6, 0), strict=True)))
def test_only_the_broken_twin_reads_too_early(late, monkeypatch, module, stale, capsys):
    monkeypatch.setattr(module, "ELEMENTS", 64)
    monkeypatch.setattr(module, "STRIDE", 8)
    monkeypatch.setattr(module, "TRIES", 6)
    result = plain_data(module.main())
    assert result["counts"] == {"stale": stale, "stale_later": 0, "item": 0, "pinned": 6}
    assert (result["old_elements"], result["looked_at"]) == (stale * 8, 6 * 8)
    assert result["read_ms"] == median(result["read_ms_trials"]) and len(result["read_ms_trials"]) == 6
    assert f"wrong in {stale} of 6 tries" in capsys.readouterr().out


def test_pinned_memory_is_soiled(monkeypatch):
    seen = []
    monkeypatch.setattr(torch, "full", lambda *args, **options: seen.append((args, options)))
    for module in EARLY:
        module.leave_behind(-1.0)
    assert seen == [(((16 * MIB,), -1.0), {"pin_memory": True})] * 2


def test_recorded_tries(recorded):
    for module in EARLY:
        for result in recorded("transfers/" + module.__name__.rpartition(".")[2]).values():
            assert result["read_ms"] == pytest.approx(median(result["read_ms_trials"]))
            assert len(result["read_ms_trials"]) == result["tries"] == module.TRIES
            assert result["looked_at"] == module.TRIES * module.ELEMENTS // module.STRIDE
            assert result["old_elements"] <= result["looked_at"]


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


def test_landing_places_are_filled_in_turn():
    landing = [torch.zeros(1) for _ in range(2)]
    overlap_copy_compute_fixed.copies([torch.full((1,), float(i)) for i in range(5)], landing)
    assert [host.item() for host in landing] == [4.0, 3.0]


@pytest.mark.parametrize("module", TWINS)
def test_works_take_turns_after_a_round_to_warm_up(monkeypatch, module):
    diary = []
    monkeypatch.setattr(module, "measure", lambda run, warmup, trials: run() or Timing([len(diary) / 1e3]))
    trials = module.in_turn({"a": lambda: diary.append("a"), "b": lambda: diary.append("b")})
    assert diary == ["a", "b"] * 6
    assert trials == {"a": pytest.approx([3, 5, 7, 9, 11]), "b": pytest.approx([4, 6, 8, 10, 12])}


def profiled(device: str, stream: int, start: float, end: float, name: str) -> SimpleNamespace:
    span = SimpleNamespace(start=start, end=end, elapsed_us=lambda: end - start)
    return SimpleNamespace(
        device_type=SimpleNamespace(name=device), device_resource_id=stream, time_range=span, name=name
    )


@pytest.mark.parametrize("module", TWINS)
def test_timeline_has_calls_products_and_copies(monkeypatch, module):
    events = [
        profiled("CPU", 1, 90.0, 95.0, "aten::mm"),
        profiled("CPU", 1, 100.0, 104.04, "cudaLaunchKernelExC"),
        profiled("CUDA", 7, 106.0, 109.0, "sm80_gemm"),
        profiled("CPU", 1, 110.0, 111.0, "cudaMemcpyAsync"),
        profiled("CUDA", 13, 112.0, 118.0, "Memcpy DtoH (Device -> Pinned)"),
        profiled("CPU", 1, 113.0, 119.0, "cudaDeviceSynchronize"),
    ]
    options, work = [], []
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: work.append("wait"))
    profiler = contextlib.nullcontext(SimpleNamespace(events=lambda: events))
    monkeypatch.setattr(torch.profiler, "profile", lambda **given: options.append(given) or profiler)
    assert module.timeline(lambda: work.append("work")) == [
        ["CPU", -6.0, 4.0, "call"],
        ["stream   7", 0.0, 3.0, "product"],
        ["CPU", 4.0, 1.0, "call"],
        ["stream  13", 6.0, 6.0, "copy"],
        ["CPU", 7.0, 6.0, "call"],
    ]
    assert work == ["work", "wait"] and options == [{"acc_events": True}]


@pytest.mark.parametrize("module", TWINS)
def test_overlap_main_in_small(prompt, monkeypatch, module, capsys):
    monkeypatch.setattr(module, "N", 16)
    monkeypatch.setattr(module, "ROUNDS", 6)
    monkeypatch.setattr(module, "timeline", lambda work: work() or [["CPU", 0.0, 1.0, "call"]])
    result = plain_data(module.main())
    ms = result["ms"]
    assert ms == medians(result["ms_trials"]) and list(ms) == ["products", "copies", "together"]
    rounds = list(zip(*(result["ms_trials"][name] for name in ms), strict=True))
    shares = [(one + other - both) / min(one, other) for one, other, both in rounds]
    assert result["hidden_trials"] == pytest.approx(shares) and result["hidden"] == pytest.approx(median(shares))
    assert (result["bytes"], result["flop"]) == (6 * 4 * 16**2, 6 * 2 * 16**3)
    assert "of the shorter leg" in capsys.readouterr().out
    monkeypatch.setattr(module, "copies", lambda results, landing: None)
    monkeypatch.setattr(torch.Tensor, "copy_", lambda *args, **options: None)
    with pytest.raises(AssertionError, match="not close"):
        module.main()


@pytest.mark.parametrize("module", TWINS)
def test_timeline_is_drawn_with_the_longer_leg(module):
    events = [["CPU", -500.0, 9.0, "call"], ["stream   7", 0.0, 5000.0, "product"]]
    events += [["stream   7", 5000.0, 1000.0, "product"], ["stream  13", 5000.0, 2000.0, "copy"]]
    (ax,) = module.plot({"events": events}, {}).axes
    spans = {bars.get_label(): [path.get_extents().x0 for path in bars.get_paths()] for bars in ax.collections}
    assert spans == {"product": [0.0, 5.0], "copy": [5.0], "call": [-0.5]}
    assert [tick.get_text() for tick in ax.get_yticklabels()] == ["CPU", "stream   7", "stream  13"]
    (line,) = ax.get_lines()
    assert line.get_xdata()[0] == pytest.approx(6.0) and line.get_color() == "gray"
    assert ax.yaxis_inverted(), "the CPU is on top"
    plt.close("all")


def test_recorded_overlap(recorded):
    for module in TWINS:
        for result in recorded("transfers/" + module.__name__.rpartition(".")[2]).values():
            assert result["ms"] == medians(result["ms_trials"])
            assert all(len(trials) == 5 for trials in result["ms_trials"].values())
            kinds = [kind for *_, kind in result["events"]]
            assert kinds.count("product") >= 6 and kinds.count("copy") == 6 and len(kinds) <= 400
            lanes = {lane for lane, *_, kind in result["events"] if kind != "call"}
            assert len(lanes) == 1 + (module is overlap_copy_compute_fixed)
            assert module.plot(result, {}).axes[0].collections
    plt.close("all")


def test_published_form_makes_pinned_memory_unless_it_blocks(prompt):
    results = [torch.ones(2), torch.zeros(2)]
    for non_blocking in (False, True):
        landed = overlap_as_published.to_cpu(results, non_blocking)
        assert [host.is_pinned() for host in landed] == [non_blocking] * 2
        assert all(torch.equal(host, result) for host, result in zip(landed, results, strict=True))


def test_published_main_in_small(prompt, monkeypatch, capsys):
    monkeypatch.setattr(overlap_as_published, "N", 16)
    times = [1e-3, 2e-3, 3e-3, 9e-3, 5e-3]
    monkeypatch.setattr(overlap_as_published, "measure", lambda work, warmup, trials: (work(), Timing(times))[1])
    result = plain_data(overlap_as_published.main())
    assert result["is_pinned"] == {"blocking": False, "non_blocking": True}
    for name, trials in result["round_ms_trials"].items():
        assert trials == pytest.approx([0.2, 0.4, 0.6, 1.8, 1.0]), "five products in a call"
        assert result["round_ms"][name] == median(trials)
    assert (result["bytes"], result["flop"]) == (4 * 16**2, 2 * 16**3)
    assert "both new" in capsys.readouterr().out


def test_recorded_published_form(recorded):
    for result in recorded("transfers/overlap_as_published").values():
        assert result["round_ms"] == medians(result["round_ms_trials"])


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
    x, w = torch.randn(64, 32).bfloat16(), torch.randn(32, 32).bfloat16()
    x = x.repeat(4, 1)
    gpu, host = torch.zeros(256, 32).bfloat16(), torch.zeros(256, 32).bfloat16()
    chunked_copy.check(x, w, gpu, host, 4, Stream(prompt))
    monkeypatch.setattr(chunked_copy, "in_pieces", lambda *args: None)
    with pytest.raises(AssertionError, match="not close"):
        chunked_copy.check(x, w, gpu, host, 4, Stream(prompt))


def test_pieces_main_in_small(prompt, monkeypatch, capsys):
    monkeypatch.setattr(chunked_copy, "ROWS", 64)
    monkeypatch.setattr(chunked_copy, "N", 32)
    monkeypatch.setattr(chunked_copy, "check", lambda *args: chunked_copy.in_pieces(*args))
    result = plain_data(chunked_copy.main())
    assert result["ms"] == [pytest.approx(median(trials)) for trials in result["ms_trials"]]
    assert result["leg_ms"] == medians(result["leg_ms_trials"]) and result["pieces"][0] == 1
    assert (result["bytes"], result["flop"]) == (2 * 64 * 32, 2 * 64 * 32**2)
    assert "in 64" in capsys.readouterr().out


def test_pieces_are_drawn_beside_the_rule():
    results = {"pieces": [1, 2, 4], "ms": [8.0, 7.0, 6.0], "leg_ms": {"product": 3.0, "transfer": 5.0}}
    (ax,) = chunked_copy.plot(results, {}).axes
    measured, rule, leg = ax.get_lines()
    assert list(measured.get_ydata()) == [8.0, 7.0, 6.0] and list(rule.get_ydata()) == [8.0, 6.5, 5.75]
    assert leg.get_ydata()[0] == 5.0 and leg.get_color() == "gray"
    plt.close("all")


def test_recorded_pieces(recorded):
    for result in recorded("transfers/chunked_copy").values():
        assert result["ms"] == [pytest.approx(median(trials)) for trials in result["ms_trials"]]
        assert result["pieces"] == list(chunked_copy.PIECES)
        assert len(chunked_copy.plot(result, {}).axes[0].get_lines()) == 3
    plt.close("all")


# prefetching


@pytest.mark.parametrize("order", ORDERS)
def test_every_step_sees_its_own_batch(late, order):
    late.order = order
    seen = []

    def step(batch: torch.Tensor) -> int:
        late.launch(lambda: seen.append(batch.tolist()))
        return len(seen)

    batches = [torch.full((2,), float(i)) for i in range(7)]
    assert len(prefetcher.prefetched(batches, step)) == 7
    assert not seen, "nothing but queues so far: the CPU did not wait"
    assert late.diary[0] == "side waits for main", "the memory of the buffers may still be in use"
    torch.cuda.synchronize()
    assert seen == [batch.tolist() for batch in batches]


def test_a_batch_is_copied_ahead_of_the_work_on_the_one_before(late):
    done = []
    late.order = ("side", "main")
    batches = [torch.full((1,), float(i)) for i in range(4)]
    buffers = []
    prefetcher.prefetched(batches, lambda batch: buffers.append(batch) or late.launch(lambda: done.append(1)))
    first, second = buffers[:2]
    assert (buffers[2] is first, buffers[3] is second) == (True, True) and first is not second
    late.run(until=lambda: bool(second.any()))
    assert not done, "the second batch has arrived and the first is not worked on yet"


def test_work_is_the_last_product(prompt):
    batch, w = torch.randn(4, 8), torch.randn(8, 2)
    torch.testing.assert_close(prefetcher.work(batch, w, 3), (batch @ w)[0].sum())


def test_prefetcher_main_in_small(prompt, monkeypatch, capsys):
    for name, small in (("ROWS", 8), ("N", 16), ("OUT", 4)):
        monkeypatch.setattr(prefetcher, name, small)
    result = plain_data(prefetcher.main())
    assert [row["products"] for row in result["rows"]] == list(prefetcher.PRODUCTS)
    for row in result["rows"]:
        assert row["ms"] == medians(row["ms_trials"])
        assert list(row["ms"]) == ["transfer", "work", "plain", "prefetched"]
        assert {len(trials) for trials in row["ms_trials"].values()} == {5}
    assert result["bytes"] == 2 * 8 * 16
    assert "ms per step" in capsys.readouterr().out
    monkeypatch.setattr(prefetcher, "plain", lambda batches, step: [torch.zeros(()) for _ in batches])
    with pytest.raises(AssertionError, match="not close"):
        prefetcher.main()


def test_gain_is_drawn_below_what_is_possible():
    rows = [
        {"transfer": 1.0, "work": work, "plain": 1.0 + work, "prefetched": max(1.0, work) + min(1.0, work) / 2}
        for work in (0.5, 1.0, 2.0)
    ]
    (ax,) = prefetcher.plot({"steps": 2, "rows": [{"ms": ms} for ms in rows]}, {}).axes
    measured, best = ax.get_lines()
    assert list(measured.get_xdata()) == [0.5, 1.0, 2.0]
    assert list(measured.get_ydata()) == list(best.get_ydata()) == [1.2, 4 / 3, 1.2]
    assert best.get_color() == "gray"
    plt.close("all")


def test_recorded_prefetcher(recorded):
    for result in recorded("transfers/prefetcher").values():
        for row in result["rows"]:
            assert row["ms"] == medians(row["ms_trials"])
        (ax,) = prefetcher.plot(result, {}).axes
        assert len(ax.get_lines()[0].get_xdata()) == len(prefetcher.PRODUCTS)
    plt.close("all")


# loading


@pytest.mark.parametrize(("workers", "ms"), [(0, 16.0), (1, 12.0), (2, 6.0), (4, 4.0), (8, 4.0)])
def test_expected_step(workers, ms):
    assert loader_workers.expected(12.0, 4.0, workers) == ms


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("workers", [0, 2])
def test_batches_come_in_order_with_and_without_workers(monkeypatch, workers):
    monkeypatch.setattr(loader_workers, "LOAD_S", 0.001)
    monkeypatch.setattr(loader_workers, "SHAPE", (2, 3))
    monkeypatch.setattr(loader_workers, "BATCHES", 5)
    batches = list(loader_workers.loader(workers, pin=False))
    assert [batch.tolist() for batch in batches] == [[[float(i)] * 3] * 2 for i in range(5)]


def test_epoch_drops_the_first_window(prompt, monkeypatch):
    monkeypatch.setattr(loader_workers.time, "perf_counter", iter(range(100)).__next__)
    x, batches = torch.randn(4, 4), [torch.full((3,), float(i)) for i in range(32)]
    assert loader_workers.epoch(batches, x) == [1000.0] * 3
    with pytest.raises(AssertionError, match="not the batch"):
        loader_workers.epoch(batches[::-1], x)


def test_loader_main_in_small(prompt, monkeypatch, capsys):
    monkeypatch.setattr(loader_workers, "LOAD_S", 0.0005)
    monkeypatch.setattr(loader_workers, "WORKERS", (0, 2))
    loaders = []

    def unpinned(workers: int, pin: bool) -> DataLoader:
        loaders.append((workers, pin))
        return DataLoader(loader_workers.SlowBatches(), batch_size=None)

    monkeypatch.setattr(loader_workers, "loader", unpinned)
    result = plain_data(loader_workers.main())
    assert loaders == [(0, True), (2, True), (0, False), (0, True)]
    assert result["step_ms"] == medians(result["step_ms_trials"]) and len(result["step_ms_trials"]["2"]) == 5
    alone = result["alone_ms"]
    assert alone == medians(result["alone_ms_trials"]) and alone["load"] >= 0.5
    assert result["expected_ms"]["0"] == alone["load"] + alone["step"]
    assert "2 workers" in capsys.readouterr().out


def test_workers_are_drawn_with_the_step_alone():
    results = {"workers": [0, 4], "step_ms": {"0": 16.0, "4": 4.5}, "alone_ms": {"step": 4.0}}
    (ax,) = loader_workers.plot(results, {}).axes
    assert [bar.get_height() for bar in ax.patches] == [16.0, 4.5]
    assert ax.get_lines()[0].get_ydata()[0] == 4.0
    plt.close("all")


def test_recorded_loader(recorded):
    for result in recorded("transfers/loader_workers").values():
        assert result["step_ms"] == medians(result["step_ms_trials"])
        assert result["alone_ms"] == medians(result["alone_ms_trials"])
        assert len(loader_workers.plot(result, {}).axes[0].patches) == len(result["workers"])
    plt.close("all")


# on a real GPU


@pytest.mark.gpu
def test_a_copy_is_read_too_early_and_in_time():
    x, on_gpu = torch.randn(4096, 4096, device="cuda"), torch.empty(d2h_too_early_fixed.ELEMENTS, device="cuda")
    for module, stale in zip(EARLY, (True, False), strict=True):
        module.attempt(0, on_gpu, x)
        outcomes = [module.attempt(number, on_gpu, x) for number in range(1, 6)]
        assert {outcome["stale"] for outcome in outcomes} == {stale}
        assert not any(outcome["item"] or outcome["stale_later"] for outcome in outcomes)
        assert all(outcome["pinned"] for outcome in outcomes)


@pytest.mark.gpu
def test_pinned_memory_is_faster_and_tensors_on_a_gpu_are_not_pinned():
    gpu = pcie_bandwidth.random_bytes(64 * MIB)
    pageable = gpu.cpu()
    pinned, unpinned = (
        median([pcie_bandwidth.gb_s(gpu, host) for _ in range(5)]) for host in (pageable.pin_memory(), pageable)
    )
    assert pinned > 1.3 * unpinned
    assert "only dense CPU tensors can be pinned" in pinning_costs.refusal(gpu)


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
    ways = prefetcher.plain, prefetcher.prefetched
    torch.testing.assert_close(*(torch.stack(way(batches, partial(prefetcher.work, w=w, products=9))) for way in ways))
