"""Snippets of the chapter on streams, on an imitated GPU that is as late and as unfair as CUDA allows."""

import contextlib
import os
import re
import subprocess
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from conftest import ROOT
from fake_cuda import imitated

from snippets.pictures import Dots, Spans
from snippets.streams import (
    branch_times,
    event_never_recorded,
    events_as_edges,
    forks_alone,
    freed_too_early_broken,
    freed_too_early_fixed,
    hardware_queues,
    kernel_waves,
    kernels_side_by_side,
    one_stream_is_serial,
    race_broken,
    race_fixed,
    race_under_sanitizer,
    record_stream_or_join,
    reserved_sms,
    stream_pool_wraps,
    stream_priority,
    three_blocks_broken,
    three_scores_broken,
    three_scores_fixed,
    three_streams_cka,
    when_streams_help,
)
from snippets.timing.take_turns import take_turns


def test_each_model_maps_images_to_features():
    models = three_streams_cka.three_models().values()
    assert [tuple(model(torch.rand(8, 3, 16, 16)).shape) for model in models] == [(8, 256)] * 3
    block = three_streams_cka.Residual(torch.nn.ReLU())
    torch.testing.assert_close(block(torch.tensor([-1.0, 2.0])), torch.tensor([-1.0, 4.0]))


def test_a_branch_is_timed_by_events_of_its_own_stream(gpu):
    gpu.launch_s = 0.001
    branches = [lambda: gpu.launch(0.002, lambda: torch.ones(1)) or torch.ones(1, device="cuda")] * 3
    times = branch_times.branch_times(branches, [torch.cuda.Stream() for _ in branches], 0)
    for begin, end in times:
        assert end - begin > 2
    assert times[0][1] < times[1][1] < times[2][1]


def test_events_of_branches_are_counted_from_the_fork(gpu):
    branch = lambda: torch.ones(1, device="cuda")  # noqa: E731
    ((begin, _),) = branch_times.branch_times([branch], [torch.cuda.Stream()], spin=2 * 10**9)
    assert begin < 1, "the spin, which lasts a second, ends before the fork"


def test_similarity_is_linear_cka():
    torch.manual_seed(0)
    x, y = torch.rand(2, 20, 5)
    rotation = torch.linalg.qr(torch.randn(5, 5)).Q
    a, b = ((z - z.mean(0)).double() for z in (x, y))
    expected = torch.trace(a @ a.T @ b @ b.T) / ((a @ a.T).norm() * (b @ b.T).norm())
    of_a_model = partial(three_streams_cka.similarity, torch.nn.Identity())
    for similarity in (one_stream_is_serial.similarity, of_a_model):
        torch.testing.assert_close(similarity(x, y).double(), expected, rtol=1e-4, atol=0)
        alike = similarity(x, 3 * x @ rotation + 1)
        torch.testing.assert_close(alike, torch.tensor(1.0), rtol=1e-4, atol=0)


def test_results_of_branches_may_be_used_at_once(unfair):
    x = torch.ones(3, device="cuda")
    streams = [torch.cuda.Stream() for _ in range(2)]
    results = three_streams_cka.fork_join([partial(torch.add, x, 1), partial(torch.add, x, 2)], streams)
    both = torch.add(*results)
    users = [result.block.users for result in results]
    del results
    spoiled = [torch.full((3,), -1.0, device="cuda") for _ in streams]
    assert both.tolist() == [5.0] * 3 and users == [[unfair.current]] * 2 and len(spoiled) == 2


def test_empty_branches_launch_nothing_and_are_forked_and_joined(gpu, monkeypatch):
    monkeypatch.setattr(forks_alone, "take_turns", lambda works, **how: {n: w() for n, w in works.items()})
    monkeypatch.setattr(forks_alone, "recorded", lambda results, unit: results)
    gpu.diary.clear()
    gpu.log.clear()
    results = forks_alone.empty_branches()
    assert gpu.diary[:3] == ["side waits for main"] * 3 and gpu.diary[3:6:2] == ["main waits for side"] * 2
    assert len(results["forked"]) == 3 and not any("mm" in row[1] for row in gpu.log)


def test_as_many_streams_as_branches(gpu):
    launched: list[int] = []
    with pytest.raises(ValueError, match="2 branches on 1 streams"):
        three_streams_cka.fork_join([lambda: launched.append(1)] * 2, [torch.cuda.Stream()])
    assert launched == []


def test_when_a_branch_raises_what_was_launched_is_joined(unfair):
    x, streams = torch.ones(3, device="cuda"), [torch.cuda.Stream() for _ in range(3)]

    def fails() -> torch.Tensor:
        raise torch.OutOfMemoryError("no memory left")

    branches = [partial(torch.add, x, 1), fails, partial(torch.add, x, 2)]
    unfair.diary.clear()
    with pytest.raises(torch.OutOfMemoryError, match="no memory left"):
        three_streams_cka.fork_join(branches, streams)
    assert unfair.diary == ["side waits for main"] * 2 + ["main waits for side"] * 2


def test_branches_may_give_lists_dicts_and_none(unfair):
    x, streams = torch.ones(3, device="cuda"), [torch.cuda.Stream() for _ in range(3)]
    branches: list[Callable[[], Any]] = [lambda: (x + 1, {"y": [x + 2]}), lambda: None, lambda: "text"]
    (first, second), *others = three_streams_cka.fork_join(branches, streams)
    users = [part.block.users for part in (first, second["y"][0])]
    assert others == [None, "text"] and users == [[unfair.current]] * 2
    assert (first + second["y"][0]).tolist() == [5.0] * 3


@pytest.mark.gpu
def test_after_a_branch_that_raised_the_current_stream_waits_for_the_others():
    streams, landed = [torch.cuda.Stream() for _ in range(2)], torch.zeros(1, device="cuda")

    def slow() -> torch.Tensor:
        torch.cuda._sleep(200_000_000)  # a tenth of a second
        return landed.add_(1)

    def fails() -> torch.Tensor:
        raise RuntimeError("no memory left")

    with pytest.raises(RuntimeError, match="no memory left"):
        three_streams_cka.fork_join([slow, fails], streams)
    assert (landed + 0).item() == 1, "the current stream did not wait"


@pytest.mark.gpu
def test_work_in_a_green_context_stays_on_its_sms():
    sms = torch.cuda.get_device_properties().multi_processor_count
    x = torch.ones(8, device="cuda")  # PyTorch's own context comes first
    context = reserved_sms.GreenContext.create(num_sms=8, device_id=0)
    limited = context.Stream()
    kernel = torch.cuda._compile_kernel(reserved_sms.SOURCE, "where")
    assert len(reserved_sms.sms_of(limited, kernel, sms)) == 8
    assert len(reserved_sms.sms_of(torch.cuda.current_stream(), kernel, sms)) == sms
    assert reserved_sms.in_stream(limited, lambda: torch.cuda.current_stream()) == limited
    assert torch.cuda.current_stream() != limited and x.sum().item() == 8
    del context
    with pytest.raises(RuntimeError, match="context is destroyed"):
        reserved_sms.sms_of(limited, kernel, sms)
    assert x.sum().item() == 8, "PyTorch's own context goes on"


@pytest.mark.gpu
def test_results_in_trees_are_not_overwritten_while_the_current_stream_reads_them():
    streams = [torch.cuda.Stream() for _ in range(2)]

    def filled(number: int) -> dict:
        return {"x": (torch.full((2**20,), float(number), device="cuda"),)}

    for number in range(20):
        branches = [partial(filled, number + i) for i in (0, 1)]
        results = three_streams_cka.fork_join(branches, streams)
        torch.cuda._sleep(1_000_000)
        both = results[0]["x"][0] + results[1]["x"][0]
        del results
        for stream in streams:
            with torch.cuda.stream(stream):  # their memory is free, as far as Python knows
                torch.full((2**20,), -1.0, device="cuda")
        assert torch.equal(both, torch.full_like(both, 2 * number + 1))


def test_no_branches_need_no_stream():
    assert three_streams_cka.fork_join([], []) == []


def test_each_branch_is_forked_from_the_stream_that_is_current_on_its_own_gpu(monkeypatch):
    diary = []

    def stream(name: str, gpu: int) -> SimpleNamespace:
        waits = lambda other: diary.append(f"{name} waits for {other.name}")  # noqa: E731
        return SimpleNamespace(name=name, device=torch.device("cuda", gpu), wait_stream=waits)

    mains = [stream(f"main {gpu}", gpu) for gpu in range(2)]
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device=None: mains[device.index])
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: contextlib.nullcontext())
    three_streams_cka.fork_join([int, int], [stream("a", 1), stream("b", 0)])
    joined = ["main 1 waits for a", "main 0 waits for b"]
    assert diary == ["a waits for main 1", "b waits for main 0", *joined]


def test_launches_are_dealt_out_between_a_fork_and_a_join(unfair):
    streams, launched = [torch.cuda.Stream() for _ in range(3)], []
    x = torch.ones(1, device="cuda")
    seen = [torch.zeros(1, device="cuda") for _ in streams]

    def launch(i: int) -> None:
        launched.append((i, unfair.current))
        torch.add(x, 0, out=seen[i])

    when_streams_help.spread(launch, 7, streams)
    assert launched == [(i % 3, streams[i % 3]) for i in range(7)]
    assert [each.item() for each in seen] == [1.0, 1.0, 1.0]  # item() waits for the main stream alone
    launched.clear()
    when_streams_help.spread(partial(kernels_side_by_side.chain, launch), 3, streams)
    assert launched == [(i, streams[i]) for i in range(3) for _ in range(40)]
    assert [each.item() for each in seen] == [1.0, 1.0, 1.0]


def test_products_fill_eight_places_and_a_wrong_one_is_noticed(gpu):
    launch, check = when_streams_help.product(6, torch.float32)
    with pytest.raises(AssertionError, match="not close"):
        check()
    for _ in range(2):
        for i in range(8):
            launch(i)
        check()
    with pytest.raises(AssertionError, match="not close"):
        check()


def test_speedup_is_over_the_first_of_the_same_round(gpu):
    one, two = iter([9.0, 8.0, 8.0, 8.0, 9.0, 9.0]), iter([9.0, 4.0, 4.0, 4.0, 3.0, 3.0])
    works = [lambda: gpu.sleep(next(one)), lambda: gpu.sleep(next(two))]
    row = when_streams_help.compared(works, 0.0)
    assert row["speedup_trials"] == [[1.0] * 5, pytest.approx([2.0] * 3 + [3.0] * 2)]
    assert row["speedup"] == pytest.approx([1, 2])


def test_kernel_time_and_lateness_leave_out_the_cpu():
    rows = [["CPU", 0, 90.0, "launch"], ["stream 7", 5, 3.0, "mm"], ["stream 13", 7, 4.0, "mm"]]
    rows.append(["stream 7", 9, 1.0, "mm"])
    assert kernels_side_by_side.on_gpu(rows) == {"kernel_us": 8.0, "late_us": 2}


@pytest.mark.parametrize(
    ("twin", "first", "wrong"), [(race_broken, "side", 50), (race_broken, "main", 0), (race_fixed, "side", 0)]
)
def test_only_the_broken_twin_can_sum_before_the_write(twin, first, wrong):
    with imitated(late=True, first=first, most=16):
        result = twin.main()
    assert (result["documented"]["wrong"], result["amplified"]["wrong"]) == (wrong, wrong)
    assert {lane for lane, *_ in result["events"]} == {"stream 7", "stream 8"}


@pytest.mark.parametrize(("first", "wrong"), [("side", 2), ("main", 0)])
def test_three_blocks_without_a_fork_can_read_too_early(first, wrong, monkeypatch):
    models = {name: torch.nn.Flatten() for name in "abc"}
    monkeypatch.setattr(three_blocks_broken, "three_models", lambda: models)
    monkeypatch.setattr(three_blocks_broken, "RUNS", 2)
    with imitated(late=True, first=first, most=16):
        result = three_blocks_broken.main()
    for form in ("as posted", "behind other work"):
        assert (result[form]["three_blocks"], result[form]["fork_join"]) == (wrong, 0)


@pytest.mark.parametrize(
    ("twin", "first", "wrong"),
    [(three_scores_broken, "side", 3), (three_scores_broken, "main", 0), (three_scores_fixed, "side", 0)],
)
def test_three_scores_need_a_fork(twin, first, wrong):
    with imitated(late=True, first=first, most=16):
        assert twin.main() == {"wrong": wrong}


def test_write_and_sum_are_drawn_in_their_lanes():
    names = {"write x": "void at::native::vectorized_elementwise_kernel<4"}
    names["sum x"] = "void at::native::reduce_kernel<5"
    events = [["stream 7", start, 2700.0, "void cutlass::Kernel2<cut"] for start in (0.0, 2750.0)]
    events += [["stream 7", 5500.0, 1.5, names["write x"]], ["stream 13", 90.0, 3.0, names["sum x"]]]
    whole, near = race_broken.plot({"events": events}, {}).panels
    spans = {(mark.name, mark.row): mark.spans for mark in whole.marks if isinstance(mark, Spans)}
    assert spans["matmuls", "main"] == [(0.0, 2.7), (2.75, 2.7)]
    dots = {mark.name: (mark.x, mark.y) for mark in whole.marks if isinstance(mark, Dots)}
    assert dots == {"write x": ([5.5], ["main"]), "sum x": ([0.09], ["side"])}
    starts = {(mark.name, mark.row): [start for start, _ in mark.spans] for mark in near.marks}
    assert starts["matmuls", "main"] == [-5500.0, -2750.0], "from the write on"
    assert starts["write x", "main"] == [0.0] and starts["sum x", "side"] == [-5410.0]


def test_the_fixed_race_has_one_line_more():
    texts = [(ROOT / f"snippets/streams/race_{twin}.py").read_text() for twin in ("broken", "fixed")]
    measured = [re.search(r"RUNS, N = .*?def main.*?(?=\n\n\ndef )", text, re.DOTALL)[0] for text in texts]
    broken, fixed = (text.splitlines() for text in measured)
    fork = "    side.wait_stream(torch.cuda.current_stream())"
    assert fork in fixed and [line for line in fixed if line != fork] == broken


@pytest.mark.parametrize(
    ("program", "first"), [("no_fork", "side"), ("no_join", "main"), ("freed_too_early", "main")]
)
def test_an_unfair_gpu_breaks_the_wrong_programs(program, first):
    with imitated(late=True, first=first):
        assert race_under_sanitizer.summed(program) != 10_000


def test_fork_and_join_is_right_on_any_gpu(unfair):
    assert race_under_sanitizer.summed() == 10_000


def test_sanitizer_reports_are_counted(monkeypatch):
    report = """==========
CSAN detected a possible data race on tensor with data pointer 139719969079296
Access by stream 94646435460352 during kernel:
aten::sum(Tensor self, *, ScalarType? dtype=None) -> Tensor
torch.cuda._sanitizer.CUDASanitizerErrors: detected 1 errors"""

    def run(command, env, **options):
        assert command[1] == race_under_sanitizer.__file__ and env["TORCH_CUDA_SANITIZER"] == "1"
        failed = command[-1] == "no_fork"
        return SimpleNamespace(returncode=int(failed), stderr=report if failed else "")

    monkeypatch.setattr(subprocess, "run", run)
    programs = race_under_sanitizer.main()["programs"]
    clean = {"races": 0, "exit_code": 0}
    assert programs == dict.fromkeys(race_under_sanitizer.PROGRAMS, clean) | {
        "no_fork": {"races": 1, "exit_code": 1}
    }


@pytest.mark.parametrize("edge", events_as_edges.EDGES)
def test_edges_hold(edge, unfair):
    values = {name: torch.zeros(3, device="cuda") for name in "abcd"} | {"x": torch.ones(3, device="cuda")}
    streams = unfair.current, torch.cuda.Stream(), torch.cuda.Stream()
    events_as_edges.diamond(events_as_edges.EDGES[edge], *streams, values)
    torch.cuda.synchronize()
    assert values["d"].tolist() == [8.0] * 3


def test_only_an_event_that_was_recorded_is_waited_for():
    with imitated(late=True, first="side"):
        result = event_never_recorded.main()
    assert result["unrecorded_is_done"] is True
    assert (result["recorded"]["wrong"], result["unrecorded"]["wrong"]) == (0, 10)


def test_a_dropped_tensor_is_overwritten_before_it_is_read(unfair, monkeypatch):
    for twin in (freed_too_early_broken, freed_too_early_fixed):
        monkeypatch.setattr(twin, "FLOATS", 1024)
    broken = freed_too_early_broken.main()["policies"]["just_drop"]["corrupted"]
    assert broken == (50 if unfair.first == "main" else 0)
    fixed = freed_too_early_fixed.main()["policies"]
    assert fixed == {name: {"corrupted": 0} for name in ("record_stream", "keep", "join")}


@pytest.mark.parametrize(
    ("name", "least", "most"),
    [("record_stream", 20, 22), ("keep", 20, 21), ("join", 1, 2), ("join_late", 2, 3)],
)
def test_policies_take_the_memory_that_they_need(name, least, most, monkeypatch):
    monkeypatch.setattr(record_stream_or_join, "FLOATS", 1024)
    with imitated(late=True, first="main"):
        record_stream_or_join.run(record_stream_or_join.HELD[name], torch.cuda.Stream())
        assert least <= torch.cuda.max_memory_reserved() / 4096 <= most


def test_streams_come_round_again(gpu):
    streams = [torch.cuda.Stream() for _ in range(40)]
    assert stream_pool_wraps.first_twins(streams) == [*range(1, 33), *range(1, 9)]


@pytest.mark.parametrize("work", [hardware_queues.two_each, hardware_queues.forked])
def test_streams_are_occupied_one_after_the_other(work, gpu, monkeypatch):
    spun = []
    monkeypatch.setattr(torch.cuda, "_sleep", lambda cycles: spun.append((gpu.current, cycles)))
    one, other = torch.cuda.Stream(), torch.cuda.Stream()
    work([one, other], 5)
    assert spun == [(one, 5), (one, 5), (other, 5), (other, 5)]


def test_the_number_of_queues_is_set_before_cuda_starts(gpu, monkeypatch):
    asked, new_stream = [], torch.cuda.Stream
    monkeypatch.setenv("CUDA_DEVICE_MAX_CONNECTIONS", "2")
    monkeypatch.setattr(
        torch.cuda, "Stream", lambda: asked.append(os.environ["CUDA_DEVICE_MAX_CONNECTIONS"]) or new_stream()
    )
    trials = hardware_queues.times_as_fast(8, hardware_queues.LONG)
    assert asked[:32] == ["8"] * 32
    for way in ("eager", "graph"):
        assert trials[way][0] == [1.0] * 5
    assert trials["eager"][5] == pytest.approx([32.0] * 5, rel=0.1), "this GPU has a queue for each stream"


def test_latency_is_from_the_launch_to_the_result_while_large_kernels_wait(gpu, monkeypatch):
    monkeypatch.setattr(stream_priority, "QUEUED", 3)
    same, urgent = torch.cuda.current_stream(), torch.cuda.Stream()
    small, large = partial(gpu.launch, 0.5), partial(gpu.launch, 100.0)
    behind = stream_priority.latency_s(same, small, large)
    assert behind == pytest.approx(3 * 100 + 0.5, rel=1e-3), "from the beginning of the second large kernel"
    assert stream_priority.latency_s(urgent, small, large) == pytest.approx(0.5, rel=1e-3)


@pytest.mark.parametrize(
    ("threads", "registers", "shared", "fit"),
    [
        (128, 16, 0, 16),  # threads decide
        (256, 122, 0, 2),  # registers decide: 128 of each thread are given out
        (256, 122, 49152, 2),
        (256, 32, 100_000, 2),  # shared memory decides
        (256, 255, 0, 1),
        (100, 16, 0, 16),  # a block takes whole warps
        (96, 33, 0, 16),  # a quarter of the registers for each quarter of an SM
    ],
)
def test_blocks_on_one_sm(threads, registers, shared, fit, gpu):
    assert kernel_waves.blocks_per_sm(threads, registers, shared) == fit


def test_waves_follow_from_blocks_and_what_fits(gpu, monkeypatch):
    kernel = {"grid": [64, 16, 1], "block": [256, 1, 1], "registers per thread": 122, "shared memory": 49152}
    monkeypatch.setattr(kernel_waves, "kernels_of", lambda work: [kernel])
    gpu.most = 16
    row = kernel_waves.main()["sum"][0]
    assert (row["blocks"], row["threads"], row["per_sm"], row["waves"]) == (1024, 256, 2, 4)


@pytest.mark.gpu
def test_three_streams_give_the_scores_of_one():
    x, noise = torch.rand(2, 64, 3, 16, 16, device="cuda")
    models = three_streams_cka.three_models().values()
    branches = [partial(three_streams_cka.similarity, model.cuda(), x, x + noise) for model in models]
    streams = [torch.cuda.Stream() for _ in branches]
    serial = torch.stack([branch() for branch in branches])
    again = three_streams_cka.captured(lambda: torch.stack(three_streams_cka.fork_join(branches, streams)))
    again().zero_()
    torch.testing.assert_close(again(), serial, rtol=1e-4, atol=0)
    for _ in range(20):
        forked = torch.stack(three_streams_cka.fork_join(branches, streams))
        torch.testing.assert_close(forked, serial, rtol=1e-4, atol=0)


@pytest.mark.gpu
def test_branches_overlap_if_all_is_launched_before_the_gpu_begins():
    result = branch_times.main()
    (_, first_end), (second_begin, _), _ = result["launched ahead"]["ms"]
    assert second_begin < first_end


@pytest.mark.gpu
def test_races_on_a_gpu():
    assert race_broken.main()["amplified"]["wrong"] >= 45
    assert race_fixed.main()["amplified"]["wrong"] == 0
    assert freed_too_early_broken.main()["policies"]["just_drop"]["corrupted"] >= 45
    assert not any(policy["corrupted"] for policy in freed_too_early_fixed.main()["policies"].values())
    assert event_never_recorded.main()["recorded"]["wrong"] == 0


@pytest.mark.gpu
@pytest.mark.program("streams/race_under_sanitizer", PROGRAMS=("no_fork", "no_join", "fork_and_join"))
def test_the_sanitizer_judges_the_order(returned):
    races = {name: verdict["races"] for name, verdict in returned["programs"].items()}
    assert races["no_fork"] >= 1 and races["no_join"] >= 1 and races["fork_and_join"] == 0


@pytest.mark.gpu
@pytest.mark.program("streams/stream_pool_wraps")
def test_the_pool_of_a_gpu_has_32_streams(returned):
    assert returned["first_twins"][32] == 1 and returned["different"] == 32


@pytest.mark.gpu
def test_spread_products_are_right_in_a_graph():
    launch, check = when_streams_help.product(128, torch.float32)
    streams = [torch.cuda.Stream() for _ in range(8)]
    replay = when_streams_help.captured(partial(when_streams_help.spread, launch, 40, streams))
    check()
    replay()
    check()


@pytest.mark.gpu
def test_priority_lets_a_small_kernel_through():
    x, numbers = torch.randn(512, 512, device="cuda"), torch.zeros(2**30, device="cuda")
    streams = {"urgent": torch.cuda.Stream(priority=-1), "same": torch.cuda.current_stream()}
    work, crowd = partial(torch.mm, x, x), partial(numbers.add_, 1)
    ways = {name: partial(stream_priority.latency_s, stream, work, crowd) for name, stream in streams.items()}

    def itself(work: Callable[[], Any], calls: int) -> float:
        return work()

    timings = take_turns(ways, trials=5, clock=itself)
    assert timings["urgent"].median < 0.5 * timings["same"].median


@pytest.mark.gpu
def test_a_kernel_of_one_block_is_one_wave():
    (kernel,) = kernel_waves.kernels_of(partial(torch.cuda._sleep, 1000))
    assert kernel["grid"] == [1, 1, 1] and kernel_waves.blocks_per_sm(1, 16, 0) >= 16
