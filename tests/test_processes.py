"""Chapter `processes`: what travels between processes, and what only seems to."""

import json
import multiprocessing
import os
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import Pipe, active_children
from multiprocessing.pool import ThreadPool
from threading import Thread
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from conftest import LIMIT_S, run_alone

from snippets.processes import (
    cuda_ipc,
    exit_codes,
    fork_after,
    hogwild_broken,
    hogwild_fixed,
    ipc_lifetime,
    loop_in_threads,
    one_gpu_mps,
    one_gpu_shared,
    pickling_stages,
    pool_and_process,
    queue_and_array,
    share_memory,
    shared_model,
    start_methods,
    threads_per_process,
)

#: Children here compute nothing, so a fork of a process with threads does no harm.
forks = pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")


@pytest.fixture(scope="module", autouse=True)
def quick_spawn():
    """What a snippet spawns is forked from a server that has imported torch, which is quicker."""
    mp = torch.multiprocessing
    mp.get_context("forkserver").set_forkserver_preload(["torch"])
    methods = {"spawn": "forkserver"}
    get_context, start = mp.get_context, mp.start_processes
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mp, "get_context", lambda method: get_context(methods.get(method, method)))
        patch.setattr(mp, "spawn", partial(start, start_method="forkserver"))
        yield


@pytest.fixture(scope="module")
def result() -> dict:
    """One run of the whole snippet, on small messages."""
    threads = torch.get_num_threads()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(share_memory, "SIZES_KIB", [1, 256])
        result = share_memory.main()
    torch.set_num_threads(threads)
    return result


def test_no_child_is_left(result):
    assert not active_children()


def test_the_array_travels_and_the_tensor_does_not(result):
    small, large = result["rows"]
    assert small["array_payload_bytes"] > 1024 and large["array_payload_bytes"] > 256 * 1024
    assert max(row["shared_payload_bytes"] for row in result["rows"]) < 1000
    assert abs(small["shared_payload_bytes"] - large["shared_payload_bytes"]) <= 16


def test_the_childs_write_is_seen_in_shared_memory_only(result):
    assert [row["shared_write_seen"] for row in result["rows"]] == [True, True]
    assert [row["array_write_seen"] for row in result["rows"]] == [False, False]


def test_a_plain_tensor_moves_to_shared_memory_when_sent(result):
    assert (result["plain_shared_before"], result["plain_shared_after"]) == (False, True)


def test_a_child_that_dies_is_noticed():
    with (
        pytest.raises(RuntimeError, match="exit code 1"),
        share_memory.child(share_memory.receive) as connection,
    ):
        connection.send_bytes(b"this is no pickle")
        connection.recv()
    assert not active_children()


def end_early(connection) -> None:
    connection.send("enough")


def test_a_child_that_ends_early_is_noticed():
    with pytest.raises(RuntimeError, match="exit code 0"), share_memory.child(end_early) as connection:
        assert connection.recv() == "enough"
        connection.recv()
    with pytest.raises(RuntimeError, match="exit code 0"), share_memory.child(end_early) as connection:
        assert connection.recv() == "enough"
        while active_children():
            time.sleep(0.01)  # it is told to stop when it has gone


def test_an_error_of_ones_own_is_told_as_it_is():
    with pytest.raises(ZeroDivisionError), share_memory.child(answer_with_double) as connection:
        connection.send(1 / 0)
    assert not active_children()


class Wire:
    """A connection whose other end answers each message with its first element and its size."""

    def send_bytes(self, payload):
        self.payload = payload

    def recv(self):
        return float(share_memory.ForkingPickler.loads(self.payload)[0]), len(self.payload)


def test_the_child_answers_each_message_until_told_to_stop():
    ours, theirs = Pipe()
    message = bytes(share_memory.ForkingPickler.dumps([4.0, 5.0, 6.0]))
    for payload in (message, message, b""):
        ours.send_bytes(payload)
    share_memory.receive(theirs)
    assert [ours.recv() for _ in range(2)] == [(4.0, len(message))] * 2 and not ours.poll()


def test_a_wrong_answer_is_an_error(monkeypatch):
    assert share_memory.send(Wire(), torch.tensor([2.0, 3.0])) > 0
    monkeypatch.setattr(Wire, "recv", lambda wire: (2.0, 99))
    with pytest.raises(AssertionError):
        share_memory.send(Wire(), torch.tensor([1.0, 3.0]))


def answer_with_double(connection) -> None:
    for payload in iter(connection.recv_bytes, b""):
        connection.send(2 * share_memory.ForkingPickler.loads(payload))


def test_a_borrower_starts_a_child_of_his_own():
    with share_memory.child(answer_with_double) as connection:
        connection.send(21)
        assert connection.recv() == 42
    assert not active_children()


def test_stages_of_a_message_follow_each_other():
    ours, theirs = Pipe()
    child = Thread(target=pickling_stages.receive, args=(theirs,))
    child.start()
    rows = [pickling_stages.send(ours, np.arange(100_000.0)) for _ in range(2)]
    ours.send_bytes(b"")
    child.join()
    for row in rows:
        assert min(row["dumps"], row["pipe"], row["loads"]) > 0
    assert rows[1]["pages"] >= rows[0]["pages"] > 0


def test_new_memory_is_counted_by_message(monkeypatch):
    asked = []

    def run(command, env, stdout, check):
        asked.append({name: value for name, value in env.items() if name.startswith("MALLOC_")})
        kept = bool(asked[-1])
        times = {"dumps": 2.0, "pipe": 3.0, "loads": 1.0, "copy": 0.5}
        pages = [0 if kept else 1000 * i for i in range(pickling_stages.TRIALS)]
        return SimpleNamespace(stdout=json.dumps([{"pages": each} | times for each in pages]))

    monkeypatch.setattr(pickling_stages, "run", run)
    result = pickling_stages.main()
    assert asked == [{}, pickling_stages.KEEP]
    mib = round(1000 * pickling_stages.getpagesize() / 2**20)
    assert result["new_mib"] == {"as it is": mib, "memory kept": 0}
    assert result["ms"]["as it is"] == {"dumps": 2, "pipe": 3, "loads": 1, "copy": 0.5}
    *stages, copy = pickling_stages.plot(result, {}).panels[0].marks
    starts = [list(stage.starts.values()) for stage in stages]
    assert starts == [[0, 0], [2, 2], [5, 5]], "one stage after the other"
    assert copy.at == 0.5


@forks
@pytest.mark.parametrize(
    ("start", "how", "said"),
    [
        (exit_codes.process, "returns", "exit code 0"),
        (exit_codes.process, "raises", "exit code 1"),
        (exit_codes.process, "sys.exit(3)", "exit code 3"),
        (exit_codes.process, "killed", "exit code -9"),
        (exit_codes.pool, "returns", "done"),
        (exit_codes.pool, "raises", "ValueError: invalid literal"),
        (exit_codes.pool, "killed", "TimeoutError: (no text)"),
        (exit_codes.executor, "returns", "done"),
        (exit_codes.executor, "sys.exit(3)", "SystemExit: 3"),
        (exit_codes.executor, "killed", "BrokenProcessPool: "),
        (exit_codes.torch_spawn, "returns", "returned"),
        (exit_codes.torch_spawn, "raises", "ProcessRaisedException: ValueError: "),
        (exit_codes.torch_spawn, "killed", "ProcessExitedException: "),
    ],
)
def test_what_a_parent_is_told(start, how, said):
    assert exit_codes.told(start, how).startswith(said)
    assert not active_children()


def sleep() -> None:
    time.sleep(30)


def divide() -> float:
    return 1 / 0


@forks
def test_a_child_answers_fails_or_is_killed():
    assert fork_after.child(os.getppid, limit_s=LIMIT_S) == os.getpid()
    assert fork_after.child(divide, limit_s=LIMIT_S) == "ZeroDivisionError: division by zero"
    assert fork_after.child(sleep, limit_s=1) == "no answer in 1 s"
    assert fork_after.child(partial(os._exit, 7), limit_s=1) == "no answer in 1 s"
    assert not active_children()


@forks
def test_the_parent_touches_before_the_child_uses():
    touched = []
    assert fork_after.after(lambda: touched.append(1), lambda: len(touched)) == 1, (
        "a fork has what its parent has"
    )


@forks
def test_each_case_has_a_parent_of_its_own(monkeypatch):
    case = (os.getpid, lambda: str(os.getppid()))
    monkeypatch.setattr(fork_after, "CPU_CASES", {"a | b": case, "c | d": case})
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    found = fork_after.main()["found"]
    assert len({*found.values(), str(os.getpid())}) == 3


def test_products_of_a_child_are_checked(monkeypatch):
    threads = torch.get_num_threads()
    assert fork_after.product() == fork_after.product_in_one_thread() == "works"
    torch.set_num_threads(threads)
    ones = torch.ones
    monkeypatch.setattr(torch, "ones", lambda *shape: 2 * ones(*shape))
    assert fork_after.product() == "wrong"


def test_a_child_tells_when_it_began_and_what_it_has():
    ours, theirs = Pipe()
    start_methods.begin(theirs)
    began, mib = ours.recv()
    assert began <= time.perf_counter() and mib > 10, "this process has imported torch itself"


@forks
def test_a_start_is_timed_until_the_child_runs():
    ms, mib = start_methods.started("fork")
    assert 0 < ms < 1000 * LIMIT_S and 0 < mib < 1000
    assert not active_children()


def test_a_python_that_fails_is_an_error():
    assert start_methods.python_ms("pass") > 0
    with pytest.raises(subprocess.CalledProcessError):
        start_methods.python_ms("import sys; sys.exit(1)")


@pytest.mark.parametrize("has_gpu", [False, True])
def test_a_parent_that_used_cuda_is_compared_where_there_is_cuda(monkeypatch, has_gpu):
    starts = iter(range(1000))
    monkeypatch.setattr(start_methods, "started", lambda method: (float(next(starts)), 2.0))
    monkeypatch.setattr(start_methods, "python_ms", lambda code: 10.0 * len(code))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: has_gpu)
    ones = torch.ones
    monkeypatch.setattr(torch, "ones", lambda n, device: ones(n))
    result = start_methods.main()
    assert result["alone_ms"] == {"python": 40, "python and torch": 120}
    assert result["first_forkserver_ms"] == 0 and ("used_cuda" in result) is has_gpu
    assert result["fresh"]["ms_trials"]["fork"] == [1, 2, 3, 4, 5, 6, 7], "the first forkserver is apart"


@pytest.fixture
def numbers() -> np.ndarray:
    return np.arange(12).reshape(4, 3)


def test_every_way_squares_all(numbers):
    with ThreadPool(2) as pool:
        np.testing.assert_array_equal(pool_and_process.by_pool(pool, numbers), numbers**2)
    for way in (pool_and_process.square_all, pool_and_process.by_new_pool, pool_and_process.by_new_processes):
        np.testing.assert_array_equal(way(numbers), numbers**2)
    assert not active_children()


def _load_in_a_worker(workers):
    return sum(len(batch) for batch in torch.utils.data.DataLoader(range(4), num_workers=workers))


def test_a_pools_worker_may_not_start_a_loaders_workers():
    """What the symptoms quote; and what they advise."""
    context = multiprocessing.get_context("spawn")
    with context.Pool(1) as pool:
        with pytest.raises(AssertionError, match=r"^daemonic processes are not allowed to have children$"):
            pool.apply(_load_in_a_worker, [1])
        assert pool.apply(_load_in_a_worker, [0]) == 4
    with ProcessPoolExecutor(1, mp_context=context) as executor:
        assert executor.submit(_load_in_a_worker, 1).result(timeout=LIMIT_S) == 4


@pytest.mark.skipif(sys.version_info < (3, 11, 5), reason="Python said so first in 3.11.5")
def test_a_queue_of_fork_is_refused_by_spawn():
    """What the symptoms quote."""
    queue = multiprocessing.get_context("fork").Queue()
    child = multiprocessing.get_context("spawn").Process(target=print, args=(queue,))
    with pytest.raises(RuntimeError, match=r"^A SemLock created in a fork context is being shared with a"):
        child.start()


#: In a process of its own: a heap that others have used may have kept room for the tensor.
MOVED = """
import pathlib
import torch

def mapped(address):
    lines = pathlib.Path("/proc/self/maps").read_text().splitlines()
    ranges = [[int(end, 16) for end in line.split()[0].split("-")] for line in lines]
    return any(start <= address < end for start, end in ranges)

tensor = torch.ones(2**26, dtype=torch.uint8)  # so large that glibc maps it alone
old = tensor.numpy().ctypes.data
assert tensor.data_ptr() == old and mapped(old)
tensor.share_memory_()
assert tensor.data_ptr() != old and not mapped(old)
"""


def test_an_array_stays_behind_when_its_tensor_moves_into_shared_memory():
    """The tensor's memory is freed, here given back to the system; an array's own is kept."""
    done = subprocess.run([sys.executable, "-c", MOVED], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr

    array = np.ones(64)
    tensor = torch.from_numpy(array)
    tensor.share_memory_()
    tensor[0] = 2
    assert (array == 1).all() and tensor[0] == 2 and tensor.data_ptr() != array.ctypes.data


def _put_and_leave(queue, opened, leave):
    queue.put(torch.ones(3))
    opened.wait(LIMIT_S)
    leave(0)


@pytest.mark.parametrize(
    ("leave", "error"), [(sys.exit, FileNotFoundError), (os._exit, ConnectionRefusedError)]
)
def test_a_tensor_of_a_sender_that_left_cannot_be_opened(leave, error):
    """What the symptoms quote: whether the sender could take its socket with it."""
    context = multiprocessing.get_context("spawn")
    queue, opened = context.Queue(), context.Event()
    child = context.Process(target=_put_and_leave, args=(queue, opened, leave))
    child.start()
    assert queue._poll(LIMIT_S)  # type: ignore[attr-defined]  # the message is in the pipe
    opened.set()
    child.join()
    with pytest.raises(error):
        queue.get(timeout=LIMIT_S)


def test_no_grad_does_not_reach_a_thread_or_a_spawned_process():
    """What the symptoms say of inference in a thread or process of its own."""
    with torch.no_grad(), ThreadPool(1) as pool:
        assert not torch.is_grad_enabled()
        assert pool.apply(torch.is_grad_enabled)
        with multiprocessing.get_context("spawn").Pool(1) as processes:
            assert processes.apply(torch.is_grad_enabled)


def test_a_second_job_with_the_same_port_is_refused():
    """What the symptoms quote."""
    first = torch.distributed.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    with pytest.raises(torch.distributed.DistNetworkError, match=r"(?s)has failed to listen .*EADDRINUSE"):
        torch.distributed.TCPStore("localhost", first.port, is_master=True, wait_for_workers=False)


def test_a_dead_process_is_noticed():
    with pytest.raises(EOFError):
        pool_and_process.by_new_processes(np.array([[1, 2], ["a", 4]], dtype=object))


def test_a_wrong_square_is_an_error(monkeypatch):
    monkeypatch.setattr(pool_and_process, "by_new_pool", lambda numbers: numbers)
    monkeypatch.setattr(pool_and_process, "by_new_processes", pool_and_process.square_all)
    with ThreadPool(2) as pool, pytest.raises(AssertionError):
        pool_and_process.compared(pool, 1000)


@pytest.fixture
def one_worker(monkeypatch):
    """One child, and the threads and stderr of this process as they were."""
    threads, stderr = torch.get_num_threads(), sys.stderr
    for twin in (hogwild_broken, hogwild_fixed):
        monkeypatch.setattr(twin, "WORKERS", 1)
    yield
    torch.set_num_threads(threads)
    sys.stderr = stderr


def test_the_broken_twin_has_the_error_of_no_training(one_worker):
    torch.manual_seed(1)
    untrained = hogwild_broken.network()
    result = hogwild_broken.main()
    assert result == {"workers": 1, "error": hogwild_broken.error(untrained), "exit_codes": [1]}
    with pytest.raises(NameError, match="loss_fn"):
        hogwild_broken.train(untrained)


def test_the_fixed_twin_raises_and_trains(one_worker):
    result = hogwild_fixed.main()
    assert result["raised"] == "TypeError: 'NoneType' object is not callable"
    assert result["error_before"] > 0.4 and max(result["error"], result["error_alone"]) < 0.2
    assert result["error"] == pytest.approx(result["error_alone"], abs=0.02), "one process writes alone"


def test_the_error_is_the_share_of_wrong_rows():
    x, y = hogwild_broken.rows()
    assert x.shape == (10_000, 20) and 0.4 < y.mean() < 0.6
    assert hogwild_broken.error(lambda rows: y) == 0
    assert hogwild_broken.error(lambda rows: 1 - y) == 1
    assert hogwild_broken.network()(x).shape == y.shape


def test_training_takes_the_threads_it_is_given():
    threads = torch.get_num_threads()
    threads_per_process.train(1, 1)
    assert torch.get_num_threads() == 1
    torch.set_num_threads(threads)


def test_threads_are_shared(monkeypatch):
    trained = []

    class Pool(ThreadPool):
        def apply(self, work, *_):
            assert vars(self)["_processes"] == 4
            return 12

    context = SimpleNamespace(Pool=Pool, set_forkserver_preload=id)
    monkeypatch.setattr(multiprocessing, "get_context", lambda method: context)
    monkeypatch.setattr(threads_per_process.mp, "get_context", lambda method: context)
    monkeypatch.setattr(threads_per_process, "train", lambda threads, steps: trained.append((threads, steps)))
    result = threads_per_process.main()
    assert result["threads"] == {"default": 12, "share": 3, "alone": 12}
    assert {*trained} == {(12, 10), (3, 10), (12, 40)} and len(trained) == 8 * (4 + 4 + 1)


def test_the_way_through_the_host_is_a_copy_and_a_send():
    x, room = torch.full((64,), 3.0), torch.zeros(64).share_memory_()
    assert cuda_ipc.through_host(Wire(), x, room) < 1024
    assert (room == 3).all()


class Inline:
    """An executor that works at once, in this process, until it is shut down."""

    def __init__(self, workers, context):
        self.open = True

    def submit(self, work, *arguments):
        if not self.open:
            raise RuntimeError("cannot schedule after shutdown")
        value = work(*arguments)
        return SimpleNamespace(result=lambda: value)

    def shutdown(self):
        self.open = False


def test_the_steps_of_a_case_follow_each_other_until_one_fails(monkeypatch):
    def make() -> bytes:
        ipc_lifetime.held["x"] = torch.ones(4)
        return bytes(share_memory.ForkingPickler.dumps(torch.full((4,), 5.0)))

    monkeypatch.setattr(ipc_lifetime, "ProcessPoolExecutor", Inline)
    monkeypatch.setattr(ipc_lifetime, "make", make)
    outcome = {"open": None, "clone": None, "exit": None, "read": [5.0, 5.0]}
    assert ipc_lifetime.tried("open clone exit read") == outcome
    refused = {"exit": None, "free": "RuntimeError: cannot schedule after shutdown"}
    assert ipc_lifetime.tried("exit free read") == refused
    ipc_lifetime.held.clear()


@pytest.mark.gpu
@pytest.mark.program("processes/cuda_ipc", FLOATS=2**22)
def test_a_handle_is_small_and_what_is_queued_arrives(returned):
    assert returned["payload_bytes"] < 2000 and returned["queued"] == 2


CASES = ["open overwrite read", "open free read", "open exit read", "exit open read"]


@pytest.mark.gpu
@pytest.mark.program("processes/ipc_lifetime", CASES=CASES)
def test_a_tensor_lives_while_another_process_has_opened_it(returned):
    found = returned["found"]
    assert found["open overwrite read"]["read"] == [9, 9]
    assert found["open free read"]["read"] == found["open exit read"]["read"] == [1, 1]
    assert "Error" in found["exit open read"]["open"]


@pytest.mark.gpu
@pytest.mark.program("processes/fork_after", CPU_CASES={})
def test_a_forked_child_cannot_use_the_gpu_that_its_parent_has_used(returned):
    refused = fork_after.derive(returned)["refused"]
    assert refused == ["is_available | use GPU", "use GPU | use GPU"]
    others = {said for case, said in returned["found"].items() if case not in refused}
    assert len(returned["found"]) == 7 and others == {"works"}


@pytest.mark.gpu
@pytest.mark.program(
    "processes/start_methods", TRIALS={"fork": 2, "forkserver": 2, "spawn": 1}, CODES={"python": "pass"}
)
def test_a_spawned_child_imports_and_a_forked_one_does_not(returned):
    for parent in ("fresh", "used_cuda"):
        ms = returned[parent]["ms"]
        assert max(ms["fork"], ms["forkserver"]) < ms["spawn"]


def test_a_childs_write_is_seen_in_tensors_and_in_an_array():
    result = queue_and_array.main()
    assert result["seen"] == {
        "Queue": {"tensor": True, "numpy": False},
        "Pipe": {"tensor": True, "numpy": False},
        "Array": {"tensor": True, "numpy": True},
    }
    assert result["absent"] == [] and result["same_queue"]


def test_a_shared_array_is_a_tensor_without_a_copy():
    array: Any = multiprocessing.Array("f", [1.0, 2.0])
    tensor = queue_and_array.as_tensor(array)
    tensor[1] = 5
    assert list(array) == [1.0, 5.0]


@pytest.fixture
def small_models(monkeypatch):
    monkeypatch.setattr(one_gpu_shared, "MODELS", {"small": (8, 2, 1), "large": (16, 2, 4)})


@pytest.mark.parametrize("way", ["alone", "threads", "batch", "graph"])
def test_a_server_answers_for_as_long_as_it_was_told(way, small_models, gpu):
    run = one_gpu_shared.server("large", way)
    latencies = run(0.001)
    clients = {"threads": 0, "batch": one_gpu_shared.CLIENTS}.get(way, 1)
    assert latencies and all(latency > 0 for latency in latencies)
    if way == "batch":
        assert len(latencies) % clients == 0 and latencies[: len(latencies) // clients] * clients == latencies


def test_a_batch_has_the_rows_of_all_requests(small_models, gpu):
    _, x = one_gpu_shared.network("large", 3)
    assert x.shape == (12, 16) and torch.equal(x[:4], x[8:]) and x.dtype == torch.bfloat16
    assert one_gpu_shared.flop("large") == 2 * 4 * 2 * 16**2


def test_each_process_serves_when_the_others_do(monkeypatch):
    diary = []
    monkeypatch.setattr(one_gpu_shared, "server", lambda model, way: lambda seconds: [seconds])
    meet = SimpleNamespace(wait=lambda limit: diary.append("meet"))
    one_gpu_shared.serve("small", "alone", meet, SimpleNamespace(put=diary.append))
    assert diary == ["meet", [one_gpu_shared.WINDOW_S]] * one_gpu_shared.WINDOWS + ["meet"]


def serve_nothing(model, way, meet, results):
    """A process that says that it served, without a GPU."""
    for _ in range(one_gpu_shared.WINDOWS):
        meet.wait(60)
        results.put([0.001, 0.002, 0.003])
    meet.wait(60)


def test_answers_of_all_processes_are_added(monkeypatch):
    monkeypatch.setattr(one_gpu_shared, "serve", serve_nothing)
    row = one_gpu_shared.served("small", "alone", 2)
    assert row["requests_s"] == 6 / one_gpu_shared.WINDOW_S and len(row["requests_s_trials"]) == 3
    assert row["latency_us"] == pytest.approx(2000) and row["latency_95_us"] > 2900


def test_ways_to_share_are_compared_with_one_process(monkeypatch, capsys):
    rates = {1: 100.0, 2: 150.0, 4: 160.0}

    def served(model, way, processes):
        rate = rates[processes] * (1 if way == "alone" else 3)
        return {"requests_s": rate, "latency_us": 10.0, "latency_95_us": 20.0, "tflop_s": 1.0}

    monkeypatch.setattr(one_gpu_shared, "served", served)
    result = json.loads(json.dumps(one_gpu_shared.main()))
    gain = one_gpu_shared.derive(result)["gain"]
    assert gain["small"]["processes_4"] == 1.6 and gain["large"]["batch"] == 3
    assert one_gpu_shared.plot(result | {"gain": gain}, {})
    assert capsys.readouterr().out.count("answers a second") == 12


@pytest.mark.gpu
def test_a_batch_answers_more_than_one_process_alone():
    models = run_alone("processes/one_gpu_shared", PROCESSES=(1,), ALONE=("batch",), WINDOWS=2, WINDOW_S=0.1)[
        "models"
    ]
    for rows in models.values():
        assert rows["batch"]["requests_s"] > 0.9 * rows["processes_1"]["requests_s"]


def test_mps_that_is_not_there_is_said_in_words(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(one_gpu_mps.shutil, "which", lambda name: None)
    rate = {count: {"requests_s": 5.0} for count in ("1", "4")}
    monkeypatch.setattr(one_gpu_mps, "rates", lambda env: {"small": rate, "large": rate})
    result = json.loads(json.dumps(one_gpu_mps.main()))
    assert result["refusal"].endswith("is not installed") and result["shared"] == {}
    assert "MPS does not start here" in capsys.readouterr().out and one_gpu_mps.plot(result, {})


@pytest.mark.parametrize("code", [0, 1])
def test_the_control_daemon_is_asked_to_end_if_it_began(code, monkeypatch, tmp_path):
    diary = []

    def run(command, **options):
        assert options["env"]["CUDA_MPS_PIPE_DIRECTORY"] == str(tmp_path / "pipes")
        diary.append(options.get("input", "-d"))
        return SimpleNamespace(returncode=code, stdout="words\n", stderr="")

    monkeypatch.setattr(one_gpu_mps.shutil, "which", lambda name: name)
    monkeypatch.setattr(subprocess, "run", run)
    with one_gpu_mps.mps(str(tmp_path)) as (_, words):
        assert words == ("words" if code else "") and (tmp_path / "logs").is_dir()
    assert diary == (["-d"] if code else ["-d", "quit -t 5\n"])


def test_rates_of_processes_that_fail_are_their_last_words(monkeypatch):
    child = SimpleNamespace(returncode=1, stdout="", stderr="Traceback\nRuntimeError: CUDA error\n")
    monkeypatch.setattr(subprocess, "run", lambda *args, **options: child)
    assert one_gpu_mps.rates({}) == {"error": "RuntimeError: CUDA error"}

    def hang(command, timeout, **options):
        raise subprocess.TimeoutExpired(command, timeout)

    monkeypatch.setattr(subprocess, "run", hang)
    assert "no answer" in one_gpu_mps.rates({})["error"]


@pytest.mark.gpu
def test_mps_starts_or_says_why_not():
    result = run_alone("processes/one_gpu_mps", PROCESSES=(1,), MODELS={"small": (256, 24, 1)})
    assert bool(result["refusal"]) != bool(result["shared"]) and "small" in result["in_turn"]


def test_a_parent_sees_what_a_child_changes_in_place(monkeypatch):
    monkeypatch.setattr(shared_model, "SIZE", 8)
    messages = []

    class Connection:
        """The child on this side of the pipe: what it rebuilds is the same memory."""

        def send_bytes(self, payload):
            name, model = shared_model.ForkingPickler.loads(payload)
            shared_model.CHANGES[name](model)
            messages.append(name)

        def recv(self):
            return messages[-1]

    rows = {name: shared_model.seen_here(Connection(), name) for name in shared_model.CHANGES}
    assert messages == list(shared_model.CHANGES)
    assert shared_model.derive({"rows": rows}) == {
        "weights": ["in_place", "load_state", "optimizer_step"],
        "buffers": ["forward"],
        "nothing": ["backward", "double", "replaced"],
    }
    assert rows["in_place"]["changed"] == ["0.weight", "0.bias", "1.weight", "1.bias"]
    assert all(row["gradients"] == 0 for row in rows.values())


def test_two_threads_do_half_the_work_as_printed(monkeypatch, capsys):
    monkeypatch.setattr(loop_in_threads, "ROWS", 8)
    monkeypatch.setattr(loop_in_threads, "COLUMNS", 20)
    result = loop_in_threads.main()
    assert result["squared"] == {
        "as printed, loop": 64,
        "as printed, threads": 32,
        "all, loop": 160,
        "all, threads": 160,
    }
    assert all(len(trials) == 7 for trials in result["ms_trials"].values())
    assert capsys.readouterr().out.count(" elements ") == 4
    ns = loop_in_threads.derive({"squared": {"all": 100}, "ms": {"all": 0.5}})["ns"]
    assert ns == {"all": 5000}
