"""Chapter `devices`: feeding many GPUs from one process and from several."""

import json
import os
import sys
import threading
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial
from multiprocessing import get_context
from subprocess import PIPE, Popen
from typing import Any

import pytest
import torch

from snippets.devices import auto_parallel_original as original
from snippets.devices import auto_parallel_scaled as scaled
from snippets.devices import (
    backward_on_two,
    copy_pairs,
    copy_ways,
    cross_device,
    ensemble,
    every_way,
    launch_groups,
    module_threads,
    network_graph,
    one_gpu_first,
    p2p_copy,
    replays_in_a_row,
    two_gpus_broken,
    two_gpus_fixed,
    visible_devices,
    worker_per_gpu,
    workers_alone,
)
from snippets.devices import launch_bound_crossover as crossover


@pytest.fixture
def products(monkeypatch) -> list:
    """The operand of every torch.mm, in order."""
    operands, mm = [], torch.mm

    def spy(x, *args, **kwargs):
        operands.append(x)
        return mm(x, *args, **kwargs)

    monkeypatch.setattr(torch, "mm", spy)
    return operands


@pytest.mark.parametrize("module", [original, scaled])
def test_run_finishes_one_tensor_before_the_next(products, module):
    a, b = torch.rand(2, 2), torch.rand(2, 2)
    module.run(a, b, calls=3)
    assert [x is a for x in products] == [True] * 3 + [False] * 3


def test_as_printed_waits_for_the_first_gpu_only(two_gpus, products, monkeypatch):
    monkeypatch.setitem(original.run.__kwdefaults__, "calls", 5)
    seconds = original.as_printed(*torch.rand(2, 4, 4, device="cuda"))
    assert list(seconds) == ["first", "second", "both"] and min(seconds.values()) > 0
    assert set(two_gpus.diary) == {"wait 0"}, "the article never waits for the second GPU"
    assert len(products) == 5 + 5 + 10


def test_only_the_fixed_loop_alternates_and_waits_for_both_gpus(two_gpus, products, monkeypatch):
    monkeypatch.setattr(torch, "set_num_threads", lambda count: None)  # the tests after it keep theirs
    monkeypatch.setattr(two_gpus_broken, "CALLS", 3)
    monkeypatch.setattr(two_gpus_fixed, "CALLS", 3)
    two_gpus_broken.main()
    assert [x is products[0] for x in products[-6:]] == [True] * 3 + [False] * 3
    assert set(two_gpus.diary) == {"wait 0"}
    products.clear()
    two_gpus_fixed.main()
    assert [x is products[0] for x in products[-6:]] == [True, False] * 3
    assert set(two_gpus.diary) == {"wait 0", "wait 1"}


def test_one_device_is_taken_twice_where_there_are_no_two():
    assert two_gpus_broken.two_devices() == ["cpu", "cpu"]


def test_an_ensemble_is_the_mean_of_its_models():
    models = [torch.nn.Linear(4, 2).eval() for _ in range(3)]
    x = torch.rand(5, 4)
    mean = ensemble.ensemble(models, x)
    expected = (models[0](x) + models[1](x) + models[2](x)) / 3
    torch.testing.assert_close(mean, expected)
    torch.testing.assert_close(ensemble.copy_by_copy(models, x), expected)
    assert mean.shape == (5, 2) and not mean.requires_grad


def test_an_ensemble_returns_to_the_device_of_its_batch():
    models = [torch.nn.Linear(4, 2, device="meta").eval() for _ in range(2)]
    assert ensemble.ensemble(models, torch.rand(5, 4, device="meta")).device.type == "meta"


def test_an_ensemble_refuses_a_model_that_trains():
    models = [torch.nn.Linear(4, 2).eval(), torch.nn.BatchNorm1d(4)]
    with pytest.raises(ValueError, match="eval"):
        ensemble.ensemble(models, torch.rand(5, 4))
    assert models[1].num_batches_tracked == 0, "and it has learned nothing"
    inside = torch.nn.Sequential(torch.nn.Linear(4, 2), torch.nn.Dropout()).eval()
    inside[1].train()
    with pytest.raises(ValueError, match="eval"):
        ensemble.ensemble([inside], torch.rand(5, 4))
    with pytest.raises(ValueError, match="no model"):
        ensemble.ensemble([], torch.rand(5, 4))


def test_a_model_without_parameters_takes_its_part_in_an_ensemble():
    x, models = torch.rand(5, 4), [torch.nn.Identity().eval(), torch.nn.Linear(4, 4).eval()]
    torch.testing.assert_close(ensemble.ensemble(models, x), (x + models[1](x)) / 2)


def test_an_ensemble_is_timed_beside_copies_in_turn(monkeypatch):
    monkeypatch.setattr(ensemble, "LARGE", 8)
    result = ensemble.timed(["cpu", "cpu"])
    trials = result["ms_trials"]
    slower = [a / b for a, b in zip(trials["copy_by_copy"], trials["ensemble"], strict=True)]
    assert result["slower_trials"] == pytest.approx(slower) and len(slower) == 11


def test_launches_are_timed_behind_a_busy_gpu(two_gpus):
    costs = original.launch_us(torch.rand(4, 4, device="cuda"), launches=20, trials=3)
    assert costs == pytest.approx([10] * 3, rel=0.01), "the kernels begin later"


def test_taking_turns_is_compared_round_by_round(two_gpus, monkeypatch):
    two_gpus.most, two_gpus.kernel_s["mm"] = 16, 1e-3
    monkeypatch.setitem(original.run.__kwdefaults__, "calls", 50)
    monkeypatch.setattr(original, "CALLS", 50)
    result = original.main()
    assert result["in_turn_s_trials"] == [sum(turns) for turns in zip(*result["alone_s_trials"], strict=True)]
    assert result["us_per_call"] == pytest.approx(1000, rel=0.01), "this imitation runs one after the other"
    monkeypatch.setitem(scaled.run.__kwdefaults__, "calls", 50)
    result = scaled.main()
    assert result["speedup_trials"] == pytest.approx([1] * 5, rel=0.01)
    assert result["launched_ms"] == pytest.approx(1, rel=0.01) and result["s"]["gpu_1"] > 0.05


def test_feed_takes_turns(products):
    first, second = ((torch.rand(4, 4), torch.zeros(4, 4)) for _ in range(2))
    crossover.feed([first, second], 3)
    assert [x is first[0] for x in products] == [True, False] * 3
    torch.testing.assert_close(second[1], second[0] @ second[0])


def test_a_graph_is_proved_before_it_is_used(two_gpus, monkeypatch):
    x, out = torch.rand(4, 4, device="cuda"), torch.zeros(4, 4, device="cuda")
    graph = crossover.graph_of(x, out, 2)
    out.zero_()
    graph.replay()
    assert torch.allclose(out, x @ x)
    monkeypatch.setattr(crossover, "feed", lambda jobs, count: None)
    with pytest.raises(AssertionError, match="not close"):
        crossover.graph_of(x, out, 2)


def test_graphs_are_replayed_in_turns_and_proved(two_gpus, monkeypatch):
    replays = []
    graphs = [torch.cuda.CUDAGraph() for _ in range(2)]
    for graph in graphs:
        monkeypatch.setattr(graph, "replay", lambda graph=graph: replays.append(graph))
    replays_in_a_row.in_a_row(graphs, 2)
    assert replays == graphs * 2, "each round launches on both before the next"
    monkeypatch.setattr(replays_in_a_row, "PRODUCTS", 1)
    monkeypatch.setattr(replays_in_a_row, "N", 16)
    result = replays_in_a_row.main()
    one, both = (result[f"{crowd}_ms_trials"]["8"] for crowd in ("one", "all"))
    assert result["speedup_trials"]["8"] == pytest.approx([2 * a / b for a, b in zip(one, both, strict=True)])
    monkeypatch.setattr(replays_in_a_row, "replay", lambda graphs: None)
    with pytest.raises(AssertionError):
        replays_in_a_row.main()


def test_the_crossover_compares_a_loop_with_graphs(two_gpus, monkeypatch):
    two_gpus.kernel_s["mm"] = 2e-6
    row = crossover.compared(16, 40, 2)
    assert row["one_ms"]["one_thread"] == pytest.approx(0.4, rel=0.05), "launches decide"
    assert row["one_ms"]["graphs"] == pytest.approx(0.09, rel=0.05), "one launch, and the kernels"
    assert row["speedup"]["one_thread"] == pytest.approx(1, rel=0.05)
    assert row["launch_us"] == pytest.approx(10, rel=0.01)
    columns: Any = crossover.columns([row, row])
    assert columns["all_ms"]["graphs"] == [row["all_ms"]["graphs"]] * 2


def test_a_call_goes_to_each_worker_and_the_answers_come_in_order():
    a, b = ThreadPoolExecutor(1), ThreadPoolExecutor(1)
    with a, b:
        assert worker_per_gpu.on_all([a, b], max, 3, 5) == [5, 5]
        with pytest.raises(ZeroDivisionError):
            worker_per_gpu.on_all([a, b], divmod, 1, 0)


def test_each_worker_has_its_own_device(monkeypatch):
    devices = []
    monkeypatch.setattr(torch.cuda, "set_device", devices.append)
    pools = worker_per_gpu.workers(ThreadPoolExecutor, 3)
    for pool in pools:
        pool.submit(int).result()
        pool.shutdown()
    assert devices == [0, 1, 2]


def test_a_process_does_the_job_and_says_how_far_it_is_off():
    with ProcessPoolExecutor(1, get_context("spawn")) as process:
        assert worker_per_gpu.on_all([process], worker_per_gpu.job, 32, 2, "cpu")[0] < 1e-3
    assert worker_per_gpu.job(32, 0, "cpu") > 0.1, "without products the room is empty"


def test_what_is_not_computed_is_not_proved():
    jobs = [(torch.rand(3, 4, 4), torch.zeros(3, 4, 4)) for _ in range(2)]
    every_way.prove(lambda: every_way.batch(jobs), jobs)
    with pytest.raises(AssertionError):
        every_way.prove(lambda: every_way.batch(jobs[:1]), jobs)


def test_each_way_is_compared_with_itself_on_one_gpu(gpu):
    works = {("one", way): lambda: gpu.sleep(1.0) for way in every_way.WAYS}
    works |= {("all", way): lambda: gpu.sleep(2.0) for way in every_way.WAYS}
    speedup = every_way.compared(works, 4)["speedup"]
    assert speedup == pytest.approx(dict.fromkeys(every_way.WAYS, 2))


@pytest.mark.parametrize(
    ("block", "order"), [(1, "abababab"), (2, "aabbaabb"), (3, "aaabbbab"), (4, "aaaabbbb"), (9, "aaaabbbb")]
)
def test_blocks_of_launches_go_to_the_gpus_in_turn(products, block, order):
    jobs = [(torch.rand(2, 2), torch.zeros(2, 2)) for _ in range(2)]
    one_gpu_first.in_blocks(jobs, block, calls=4)
    assert ["a" if x is jobs[0][0] else "b" for x in products] == list(order)


def test_what_a_busy_gpu_accepts_is_counted(two_gpus):
    two_gpus.room = 300
    job = (torch.rand(4, 4, device="cuda"), torch.zeros(4, 4, device="cuda"))
    assert one_gpu_first.accepted(job, launches=400) == 299, "the spin is in the queue, too"


@pytest.mark.parametrize(
    ("gpus", "calls", "queue", "speedup"),
    [(2, 20_000, 1021, 40_000 / 38_979), (2, 900, 1021, 2), (4, 1000, 0, 1), (4, 2000, 1000, 1.6)],
)
def test_a_queue_gives_a_head_start(gpus, calls, queue, speedup):
    assert one_gpu_first.predicted(gpus, calls, queue) == pytest.approx(speedup)


def test_each_order_is_compared_with_taking_turns(two_gpus, monkeypatch):
    two_gpus.most, two_gpus.room, two_gpus.kernel_s["mm"] = 8, 40, 50e-6
    monkeypatch.setattr(one_gpu_first, "CALLS", 60)
    monkeypatch.setattr(one_gpu_first, "FEWER", 30)
    result = one_gpu_first.main()
    assert result["accepted"] == 39
    assert result["predicted"] == {
        "one_gpu_first": pytest.approx(120 / 81),
        "fewer_one_gpu_first": pytest.approx(2),
    }
    one_queue_for_both = pytest.approx(dict.fromkeys(result["speedup"], 1), rel=0.02)
    assert result["speedup"] == one_queue_for_both, "this imitation has one stream for both GPUs"
    monkeypatch.setattr(one_gpu_first, "in_blocks", lambda *how: None)
    with pytest.raises(AssertionError, match="not close"):
        one_gpu_first.main()


def test_workers_in_turn_do_what_they_do_together(monkeypatch):
    diary = []
    pools = [ThreadPoolExecutor(1), ThreadPoolExecutor(1)]
    assert workers_alone.turns(pools, lambda: diary.append("begins") or diary.append("ends") or 7) == [7, 7]
    assert diary == ["begins", "ends"] * 2
    started = []

    def threads(kind, gpus, **options):
        started.append(kind)
        return [ThreadPoolExecutor(1) for _ in range(gpus)]

    monkeypatch.setattr(workers_alone, "workers", threads)
    monkeypatch.setattr(workers_alone, "job", lambda n, products: 1e-6)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    result = workers_alone.main()
    assert started == [ThreadPoolExecutor, ProcessPoolExecutor]
    for kind in ("threads", "processes"):
        names = [f"{kind}_in_turn", f"{kind}_in_turn_again", kind, f"{kind}_again"]
        rounds = zip(*(result["ms_trials"][name] for name in names), strict=True)
        ratios = [(a + b) / (c + d) for a, b, c, d in rounds]
        assert result["speedup_trials"][kind] == pytest.approx(ratios)
    monkeypatch.setattr(workers_alone, "job", lambda n, products: 0.5)
    with pytest.raises(AssertionError, match=r"0\.5"):
        workers_alone.main()


def test_a_backward_pass_over_two_devices_has_the_gradients_of_each(monkeypatch):
    monkeypatch.setattr(backward_on_two, "two_devices", lambda: ["cpu", "cpu"])
    sizes = {name: (2, 16, 8, 2) for name in backward_on_two.SIZES}
    monkeypatch.setattr(backward_on_two, "SIZES", sizes)
    monkeypatch.setattr(backward_on_two, "TRIALS", 1)
    monkeypatch.setattr(backward_on_two, "lanes", lambda work: work())
    result = backward_on_two.main()
    for name in sizes:
        row = result[name]
        assert set(row["differ_by"]) == {"in a row", "one thread", "autograd", "threads"}
        assert max(row["differ_by"].values()) < 1e-4
        assert set(row["backward"]["ms"]) == {"one gpu", "one thread", "autograd"}
        assert row["gain"]["in a row"] == 1
    parts = [backward_on_two.OneGpu("small", "cpu") for _ in range(2)]
    backward_on_two.in_a_row(parts)
    right = [[gradient + 0.1 for gradient in part.gradients()] for part in parts]
    with pytest.raises(ValueError, match="gradients differ"):
        backward_on_two.differ_by(partial(backward_on_two.together, parts), parts, right)


def test_the_graph_of_a_training_step_knows_who_waits_for_whom(no_cuda, capsys):
    result = network_graph.main()
    found = network_graph.derive(result)
    names = [row["name"] for row in result["operations"]]
    assert capsys.readouterr().out.count("\n") == len(names)
    assert names.count("mm") == 10
    assert found["crossing"] == ["copy_"]
    for number, row in enumerate(result["operations"]):
        if row["name"] == "relu":
            assert row["needs"] == [number - 1]
            assert result["operations"][number - 1]["name"] == "mm"
            assert result["operations"][number - 1]["place"] == row["place"]


def test_a_write_waits_for_readers_and_a_view_is_no_operation():
    numbers = torch.ones(4)
    with network_graph.Graph() as graph:
        numbers.add_(1)
        total = numbers.view(2, 2).sum()
        numbers.mul_(2)
        torch.add(total, 1)
    needs = {row["name"]: row["needs"] for row in graph.operations}
    assert needs == {"add_": [], "sum": [0], "mul_": [0, 1], "add": [1]}


def test_only_backward_is_timed_and_in_so_many_threads(monkeypatch):
    diary: list[object] = []

    class Loss:
        def backward(self) -> None:
            diary.append(torch.autograd.is_multithreading_enabled())

    monkeypatch.setattr(backward_on_two, "wait_for", lambda: diary.append("wait"))
    for enabled in (False, True):
        backward_on_two.only_backward(Loss, enabled)
    assert diary == ["wait", False, "wait", "wait", True, "wait"]


def test_two_threads_launch_at_once_where_their_spans_meet():
    rows = [["CPU", 0, 5, "cudaLaunchKernel"], ["CPU 2", 10, 5, "cudaLaunchKernel"]]
    rows += [["CPU 3", 20, 5, "cudaLaunchKernelExC"], ["CPU 2", 30, 10, "cudaLaunchKernel"]]
    rows += [["CPU 3", 33, 20, "cudaLaunchKernel"], ["CPU 2", 90, 5, "cudaDeviceSynchronize"]]
    assert backward_on_two.launch_lanes(rows) == {"CPU": 1, "CPU 2": 2, "CPU 3": 2}
    assert backward_on_two.overlap_us(rows) == 20
    assert backward_on_two.overlap_us(rows[:1]) == 0


class WorkerOnCpu(module_threads.Worker):
    """A thread with its network, where no GPU is needed."""

    def begin(self) -> None:
        torch.manual_seed(0)
        self.net, self.x = module_threads.network(), torch.ones(module_threads.WIDTH, module_threads.WIDTH)


@pytest.fixture
def no_cuda(monkeypatch):
    monkeypatch.setattr(torch.nn.Module, "cuda", lambda net: net)


def test_two_threads_do_the_same_jobs_in_turn_and_together(no_cuda, monkeypatch):
    monkeypatch.setattr(module_threads, "Worker", WorkerOnCpu)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    waits: list[int] = []
    monkeypatch.setattr(torch.cuda, "synchronize", waits.append)
    for name, value in {"LAYERS": 3, "WIDTH": 4, "STEPS": 2, "MATMULS": 3}.items():
        monkeypatch.setattr(module_threads, name, value)
    result = module_threads.main()
    assert waits == [0, 1] * 3, "each GPU is waited for before its numbers are believed"
    assert set(result["gain"]) == {"matmuls", "forward", "passes"}
    assert all(len(trials) == 18 for trials in result["gain_trials"].values())
    monkeypatch.setattr(module_threads, "forward", lambda net, x: torch.rand(3))
    with pytest.raises(AssertionError, match="not close"):
        module_threads.main()


def test_in_turn_one_worker_waits_for_the_other_and_together_it_does_not(no_cuda):
    diary: list[str] = []
    workers = [WorkerOnCpu(0, 1), WorkerOnCpu(1, 1)]

    def job(net, x) -> None:
        diary.append("begins")
        time.sleep(0.01)
        diary.append("ends")

    module_threads.in_turn(workers, job)
    assert diary == ["begins", "ends"] * 2
    both = threading.Barrier(2, timeout=60)  # it opens only if both are there at the same time
    module_threads.together(workers, lambda net, x: both.wait())


@pytest.mark.parametrize(
    ("groups", "share"), [(["a", "a", "b", "b"], 1), (["a", "b", "a", "b"], 0), (["a", "b", "b", "b"], 1 / 3)]
)
def test_what_groups_explain(groups, share):
    assert launch_groups.explained([1.0, 1.0, 3.0, 3.0], groups) == pytest.approx(share)


def test_a_spread_leaves_out_the_tenths_at_both_ends():
    assert launch_groups.spread([5.0] * 30) == 1
    assert launch_groups.spread([0.001, *[1.0] * 28, 1000.0]) == 1
    assert launch_groups.spread([1.0] * 20 + [2.0] * 10) == 2


def test_launches_are_taken_apart_on_the_cores_that_are_asked_for(monkeypatch):
    where, product = [], launch_groups.product
    everywhere = os.sched_getaffinity(0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(os, "sched_setaffinity", lambda pid, cores: where.append(cores))
    monkeypatch.setattr(launch_groups, "product", lambda device, n: product("cpu", 4))
    monkeypatch.setattr(launch_groups, "SAMPLES", 12)
    result = launch_groups.main()
    assert where[:12] == [everywhere] * 12 and where[-1] == everywhere
    assert {len(cores) for cores in where[12:-1]} == {1}
    for plan in ("free", "one_core", "each_core"):
        row = result[plan]
        assert len(row["launch_us_trials"]) == len(row["cpu_us_trials"]) >= 12
        assert 0 <= row["by_gpu"] <= 1 and row["spread"] >= 1
    assert result["one_core"]["by_core"] == 0


@pytest.mark.parametrize("way", ["direct", "pieces", "pinned", "pageable"])
def test_a_copy_arrives_by_every_way_and_a_missing_one_is_seen(two_gpus, way):
    x = torch.randint(1, 256, (1000,), dtype=torch.uint8, device="cuda:0")
    y = torch.zeros(1000, dtype=torch.uint8, device="cuda:1")
    pinned, pageable = torch.zeros(1000, dtype=torch.uint8, pin_memory=True), torch.zeros_like(y).cpu()
    assert copy_ways.arrives(copy_ways.ways(x, y, pinned, pageable)[way], y, x)
    assert not copy_ways.arrives(lambda: None, y, x)


def test_pieces_fill_the_whole(unfair):
    x, y = torch.rand(1000, device="cuda"), torch.zeros(1000, device="cuda")
    room = torch.zeros(1000, pin_memory=True)
    copy_ways.in_pieces(x, room, y, piece=300)
    torch.cuda.synchronize()
    assert torch.equal(y, x)
    with pytest.raises(ValueError, match="argument"):
        copy_ways.in_pieces(x, room, y[:100], piece=300)


def test_a_rate_is_of_one_copy_and_an_unfinished_one_is_no_rate(monkeypatch):
    sent = []
    monkeypatch.setattr(copy_pairs, "send", lambda x, y, streams: sent.append(streams) or y.copy_(x))
    routes = [(torch.ones(8), torch.zeros(8), name) for name in ("first", "second")]
    assert len(copy_pairs.rates(routes)) == 9
    assert sent == ["first", "second"] * (2 + 9 * 4)
    monkeypatch.setattr(copy_pairs, "send", lambda x, y, streams: None)
    with pytest.raises(AssertionError):
        copy_pairs.rates([(torch.ones(8), torch.zeros(8), None)])


#: In place of `torch`, where there is no GPU: what a child would be asked.
SAYS = """
import json, os
print(json.dumps({"gpus": os.environ["CUDA_VISIBLE_DEVICES"].split(","), "more": False}))
"""


def test_a_child_sees_the_variable_and_answers_in_our_numbers():
    early = visible_devices.python("b", code=SAYS)
    late = visible_devices.python("b", after="pass", code=SAYS)
    hidden = visible_devices.python("c,a", code=SAYS)
    answers = [visible_devices.seen(child, ["a", "b"])["gpus"] for child in (early, late, hidden)]
    assert answers == [[1], [1], [0]]
    ends = Popen([sys.executable, "-c", "exit('no GPU here')"], stdout=PIPE, stderr=PIPE, text=True)
    with pytest.raises(RuntimeError, match="no GPU here"):
        visible_devices.seen(ends, [])


def test_hidden_gpus_stay_hidden(two_gpus, monkeypatch):
    asked = []

    class Child:
        returncode = 0

        def communicate(self, timeout):
            return json.dumps({"gpus": ["uuid-1"], "more": True}), ""

    def python(value, after="", code="", **env):
        asked.append(value)
        return Child()

    monkeypatch.setattr(visible_devices, "python", python)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,7")
    rows = visible_devices.main()["rows"]
    assert {number for value in asked for number in value.split(",")} == {"5", "7", "99", "", "GPU-uuid-1"}
    assert {tuple(row["gpus"]) for row in rows.values()} == {(1,)}


def test_an_outcome_is_a_device_or_the_first_line_of_an_error():
    assert cross_device.outcome(lambda: torch.ones(1)) == "cpu"
    mixed = cross_device.outcome(lambda: torch.ones(2) + torch.ones(2, device="meta"))
    assert mixed.startswith("RuntimeError: ") and "\n" not in mixed
    a, b = torch.zeros(2, 2), torch.ones(2, 2)
    assert cross_device.assigned(a, b).sum() == 2 and a.sum() == 0


@pytest.mark.gpu
def test_a_replayed_graph_computes_what_eager_mode_computes():
    last = f"cuda:{torch.cuda.device_count() - 1}"
    x, out = torch.rand(128, 128, device=last), torch.zeros(128, 128, device=last)
    graph = crossover.graph_of(x, out, 3)
    out.zero_()
    graph.replay()
    torch.testing.assert_close(out, x @ x, rtol=1e-4, atol=1e-4)


@pytest.mark.gpu
def test_threads_with_networks_of_their_own_compute_alike(monkeypatch):
    monkeypatch.setattr(module_threads, "LAYERS", 5)
    result = module_threads.main()
    assert 0.3 < result["gain"]["forward"] < 2.5 and result["visible_gpus"] == torch.cuda.device_count()


@pytest.mark.gpu(2)
def test_a_sent_tensor_arrives_by_every_way():
    x = torch.rand(1000, device=0)
    for streams in ([torch.cuda.default_stream(i) for i in (0, 1)], [torch.cuda.Stream(i) for i in (0, 1)]):
        torch.cuda.synchronize(0)
        y = torch.zeros(1000, device=1)
        torch.cuda.synchronize(1)
        p2p_copy.send(x, y, streams)
        torch.cuda.synchronize(1)
        assert torch.equal(y.cpu(), x.cpu())


@pytest.mark.gpu(2)
def test_one_thread_parallelises_large_products_only():
    small, large = original.main(), scaled.main()
    assert small["in_turn_s"] / small["together_s"] < 1.3
    assert large["speedup"] > 0.9 * torch.cuda.device_count()


@pytest.mark.gpu(2)
def test_operands_on_two_gpus_are_an_error_and_copies_are_not():
    rows = cross_device.main()["rows"]
    assert rows["a + b"].startswith("RuntimeError")
    assert rows["a.copy_(b)"] == "cuda:0" and rows["b @ b"] == "cuda:1"


@pytest.mark.gpu(2)
@pytest.mark.program("devices/visible_devices")
def test_a_setting_counts_before_the_first_use_of_cuda_only(returned):
    rows = returned["rows"]
    assert rows["second"] == rows["after_import"] == {"gpus": [1], "more": False}
    assert rows["after_a_tensor"]["gpus"][0] == 0
