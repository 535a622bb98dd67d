"""Chapter `collectives`: what ranks tell each other, what it costs, and what ends a job that hangs."""

import json
import os
import pickle
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from conftest import LIMIT_S, ROOT, on_ranks
from torch.distributed.launcher.api import LaunchConfig
from torch.distributed.run import get_args_parser, parse_min_max_nnodes

from overlap.site import draw, layout
from snippets.collectives import (
    alpha_beta,
    bus_bandwidth,
    captured_all_reduces,
    collectives_zoo,
    flight_recorder,
    gloo_interface,
    graphs_not_mixed,
    held_beside_matmuls,
    links_off,
    nccl_hangs,
    nccl_says,
    nccl_shared_memory,
    overlap_with_compute,
    parameter_server,
    parameter_server_in_a_row,
    push_and_pull,
    rank_fails,
    ring_by_hand,
    two_nodes,
    work_wait,
)

PAGE = (ROOT / "docs/collectives.md").read_text()
FENCES = re.findall(r"^```(bash|yaml)[^\n]*\n(.*?)^```$", PAGE, re.M | re.S)
no_gpu = pytest.mark.skipif(torch.cuda.device_count() > 0, reason="ranks on the CPU")


THREE_RANKS = """
import json, os
import torch
import torch.distributed as dist
from snippets.collectives import bus_bandwidth, collectives_zoo, parameter_server, ring_by_hand
from snippets.collectives.parameter_server_in_a_row import proved, sharded

collectives_zoo.join()
rank, found = dist.get_rank(), {}
for shape in ((7,), (2, 3), (2,), (0,)):
    x = 10**rank * (1 + torch.arange(torch.Size(shape).numel()).reshape(shape))
    expected = x.clone()
    dist.all_reduce(expected)
    sent = ring_by_hand.ring_all_reduce(x)
    found[f"ring {shape}"] = [x.equal(expected), sent]
for way in (parameter_server.via_gpu0, parameter_server.in_parts):
    x = torch.full((6,), rank + 1.0)
    way(x, None)
    found[way.__name__] = x.tolist()
x = torch.full((6,), rank + 1.0)
sharded(x, None)
found["sharded"] = x.tolist()
proved({"sharded": lambda: sharded(x, None)}, x)
x, y = torch.zeros(2, 9, dtype=torch.int32)
for name, (factor, work, written, expected) in bus_bandwidth.five(x, y, None).items():
    x.fill_(rank + 1)
    work()
    found[name] = [factor, bool(written.eq(expected).all())]
held = collectives_zoo.after_each(10 * (rank + 1) + torch.arange(3))
found["held"] = {name: values.tolist() for name, values in held.items()}
dist.destroy_process_group()
with open(os.environ["FOUND"] + os.environ["RANK"], "w") as file:
    json.dump(found, file)
"""


@pytest.fixture(scope="module")
def three(tmp_path_factory) -> list[dict]:
    """What three ranks on the CPU found."""
    folder = tmp_path_factory.mktemp("three")
    (folder / "run.py").write_text(THREE_RANKS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FOUND", f"{folder}/")
        patch.setenv("CUDA_VISIBLE_DEVICES", "")
        on_ranks(3, str(folder / "run.py"))
    return [json.loads((folder / str(rank)).read_text()) for rank in range(3)]


@pytest.mark.parametrize(
    "shape, bytes_sent", [("(7,)", 8 * 28), ("(2, 3)", 8 * 24), ("(2,)", 8 * 8), ("(0,)", 0)]
)
def test_the_ring_is_an_all_reduce_for_any_shape(three, shape, bytes_sent):
    rows = [found[f"ring {shape}"] for found in three]
    assert all(equal for equal, _ in rows)
    assert sum(sent for _, sent in rows) == bytes_sent, "each part is sent 2(n-1) times in all"


@pytest.mark.parametrize("way", ["via_gpu0", "in_parts", "sharded"])
def test_each_way_leaves_the_sum_on_every_rank(three, way):
    assert [found[way] for found in three] == [[6.0] * 6] * 3


@pytest.mark.parametrize(
    "name, factor",
    [
        ("all_reduce", 4 / 3),
        ("all_gather", 2 / 3),
        ("reduce_scatter", 2 / 3),
        ("broadcast", 1),
        ("all_to_all", 2 / 3),
    ],
)
def test_the_five_write_what_they_should_and_count_as_nccl_tests_does(three, name, factor):
    assert all(right for _, right in (found[name] for found in three))
    assert three[0][name][0] == pytest.approx(factor)


ROWS = [[10, 11, 12], [20, 21, 22], [30, 31, 32]]
WHOLE, SUMS = [value for row in ROWS for value in row], [60, 63, 66]


@pytest.mark.parametrize(
    "name, expected",
    {
        "broadcast": [ROWS[0]] * 3,
        "reduce": [SUMS, [], []],
        "all_reduce": [SUMS] * 3,
        "scatter": [[10], [11], [12]],
        "gather": [WHOLE, [], []],
        "all_gather": [WHOLE] * 3,
        "reduce_scatter": [[60], [63], [66]],
        "all_to_all": [[10, 20, 30], [11, 21, 31], [12, 22, 32]],
    }.items(),
)
def test_each_collective_of_the_zoo_leaves_what_it_is_defined_to(three, name, expected):
    assert [found["held"][name] for found in three] == expected


def test_a_lone_rank_is_a_ring_that_sends_nothing(alone):
    x = torch.arange(5)
    assert ring_by_hand.ring_all_reduce(x) == 0 and x.tolist() == [0, 1, 2, 3, 4]
    told = work_wait.watched(torch.ones(4))
    assert 0 < told["call"] <= told["wait"] <= told["value"] and told["before"] == told["after"] == 1


def test_the_slowest_rank_decides(alone, monkeypatch):
    monkeypatch.setattr(bus_bandwidth, "wall_clock", lambda work, calls: 0.25)
    assert bus_bandwidth.slowest(None, 1) == 0.25


def test_the_cpu_adds_up_what_the_gpus_have():
    xs, rooms = [torch.full((3,), value) for value in (1.0, 2.0, 4.0)], [torch.zeros(3) for _ in range(3)]
    parameter_server.via_cpu(xs, rooms)
    assert [x.tolist() for x in xs] == [[7.0] * 3] * 3


def test_a_line_is_found_in_times_that_lie_on_one():
    sizes = [2**k for k in range(10, 30)]
    alpha, beta = alpha_beta.line(sizes, [2e-5 + size / 3e11 for size in sizes])
    assert (alpha, beta) == (pytest.approx(2e-5), pytest.approx(3e11))


def test_a_sum_that_lacks_a_rank_is_no_sum(alone):
    x = torch.zeros(4)
    parameter_server_in_a_row.proved({"kept": int}, x)  # the sum of one rank
    assert not x.any()
    with pytest.raises(AssertionError, match="doubled"):
        parameter_server_in_a_row.proved({"doubled": lambda: x.mul_(2)}, x)


def test_the_cpus_sum_is_proved_and_left_at_zero(gpu, monkeypatch):
    monkeypatch.setattr(torch, "set_num_threads", lambda count: None)
    work = parameter_server_in_a_row.on_the_cpu(torch.zeros(5, device="cuda"), 3)
    assert [x.tolist() for x in work.args[0]] == [[0.0] * 5] * 3
    monkeypatch.setattr(parameter_server_in_a_row, "via_cpu", lambda xs, rooms: None)
    with pytest.raises(AssertionError, match="cpu"):
        parameter_server_in_a_row.on_the_cpu(torch.zeros(5, device="cuda"), 3)


@pytest.fixture
def summing(gpu, alone, monkeypatch):
    """CUDA, imitated, where an all-reduce of one rank is a kernel of 5 µs."""
    gpu.kernel_s["mul_"] = 5e-6
    monkeypatch.setattr(dist, "all_reduce", lambda x, group=None: x.mul_(1))
    return gpu


def test_a_graph_of_all_reduces_is_one_launch_and_is_proved(summing, monkeypatch):
    monkeypatch.setattr(captured_all_reduces, "SIZES", [64, 256])
    xs = [torch.zeros(size // 4, device="cuda") for size in captured_all_reduces.SIZES]
    result = captured_all_reduces.both(xs, None)
    for way, launch in {"eager": 10, "graph": 0.5, "eager_beside_graphs": 10}.items():
        row = result[way]
        assert row["launch"]["us"] == pytest.approx([launch] * 2, rel=0.01)
        assert row["gpu"]["us"] == pytest.approx([5] * 2, rel=0.01)
        assert len(row["us_trials"][1]) == captured_all_reduces.TRIALS
    assert result["eager"]["us"] == pytest.approx([10] * 2, rel=0.05), "launches decide"
    assert result["graph"]["us"] == pytest.approx([5.5] * 2, rel=0.05)


def test_calls_that_are_left_out_are_seen(summing, monkeypatch):
    x = torch.zeros(4, device="cuda")
    monkeypatch.setattr(dist, "get_world_size", lambda: 2)
    with pytest.raises(AssertionError, match="not equal"):
        captured_all_reduces.prove(lambda: x.mul_(3), x)
    captured_all_reduces.prove(lambda: x.mul_(3 * 2.0**19), x)
    assert not x.any()


def test_a_gpu_that_overtakes_its_launches_spins_longer(summing, monkeypatch):
    x = torch.zeros(4, device="cuda")
    work = partial(captured_all_reduces.all_reduces, x, None)
    spins, spin = [], torch.cuda._sleep
    monkeypatch.setattr(torch.cuda, "_sleep", lambda cycles: spins.append(cycles) or spin(cycles))
    monkeypatch.setattr(captured_all_reduces, "SPIN_CYCLES", 300_000)  # 150 µs; the launches take 210
    launch, on_gpu = captured_all_reduces.launch_and_gpu(work, x, None)
    assert spins == [300_000, 600_000] and (launch, on_gpu) == pytest.approx((200e-6, 100e-6), rel=0.01)
    monkeypatch.setattr(captured_all_reduces, "SPIN_CYCLES", 1)
    with pytest.raises(RuntimeError, match="overtook"):
        captured_all_reduces.launch_and_gpu(work, x, None)


def test_nccl_is_told_before_it_begins_that_nothing_is_mixed(summing, monkeypatch, capsys):
    monkeypatch.setenv("NCCL_GRAPH_MIXING_SUPPORT", "1")
    told = []
    monkeypatch.setattr(
        graphs_not_mixed, "meet", lambda: told.append(os.environ["NCCL_GRAPH_MIXING_SUPPORT"])
    )
    monkeypatch.setattr(graphs_not_mixed, "SIZES", [64, 256])
    monkeypatch.setattr(dist, "destroy_process_group", lambda: None)
    result = graphs_not_mixed.main()
    assert told == ["0"]
    assert result["graph"]["us"][0] < result["eager"]["us"][0], "it is the graph that is one launch"
    assert capsys.readouterr().out.count("\n") == 4


def test_a_rank_takes_the_gpu_of_its_local_rank(monkeypatch):
    diary = []
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("LOCAL_RANK", "1")
    monkeypatch.setattr(dist, "init_process_group", diary.append)
    monkeypatch.setattr(dist, "new_group", lambda backend: diary.append(backend))
    monkeypatch.setattr(torch.cuda, "set_device", diary.append)
    captured_all_reduces.meet()
    assert diary == ["gloo", 1, "nccl"]


#: As NCCL 2.28.9 writes it, of two ranks; it has more columns, and more lines.
LOG = """
@ NCCL_DEBUG_SUBSYS set by environment to INIT,ENV,TUNING
@ NCCL version 2.28.9+cuda13.0
@ NCCL_NVLS_ENABLE set by environment to 0.
@   Algorithm   |                   Tree         |                  Ring          |
@   Protocol    |     LL |    LL128 |     Simple |     LL |    LL128 |     Simple |
@  Max NThreads |    512 |      640 |        512 |    512 |      640 |        512 |
@     Broadcast |0.0/ 0.0|  0.0/ 0.0|   0.0/ 0.0 |4.6/ 1.2|  9.0/ 9.0|   11.4/ 2.4|
@     AllReduce |6.2/10.0| 9.4/ 20.0|  56.8/ 23.0|5.4/12.0|11.5/301.0| 21.1/ 360.0|
@   Algorithm   |          CollNetChain          |                  NVLS          |
@   Protocol    |     LL |    LL128 |     Simple |     LL |    LL128 |     Simple |
@     AllReduce |0.0/ 0.0|  0.0/ 0.0|   0.0/ 0.0 |0.0/ 0.0|  0.0/ 0.0|  25.0/ 0.0 |
@ 24 coll channels, 24 collnet channels, 0 nvls channels, 32 p2p channels
@ Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM/read
@ Channel 00/0 : 1[1] -> 0[0] via P2P/CUMEM/read
@ AllReduce: 1024 Bytes -> Algo RING proto LL channel{Lo..Hi}={0..0}
@ AllReduce: 16777216 Bytes -> Algo RING proto SIMPLE channel{Lo..Hi}={0..23}
""".replace("@", "box:70:99 [0] NCCL INFO")


def test_the_log_of_nccl_is_read():
    told = nccl_says.read(LOG)
    assert (told["version"], told["channels"], told["nvls_channels"]) == ("2.28.9+cuda13.0", 24, 0)
    assert told["settings"] == {"NCCL_NVLS_ENABLE": "0"}
    assert told["says_nvls"] == ["NCCL_NVLS_ENABLE set by environment to 0."]
    assert told["links"] == {"P2P/CUMEM/read": 2}
    assert (told["bytes"], told["blocks"]) == ([1024, 2**24], [1, 24])
    assert (told["algorithm"], told["protocol"]) == (["RING", "RING"], ["LL", "SIMPLE"])
    assert told["latency_us"]["Ring LL"] == 5.4 and "NVLS Simple" not in told["latency_us"]
    nothing = nccl_says.read("")
    assert nothing["bytes"] == [] and nothing["settings"] == {} and "version" not in nothing


def test_every_rank_writes_a_log_and_an_error_is_raised(tmp_path, monkeypatch):
    file = tmp_path / "job.py"
    file.write_text(
        "import os\nname = os.environ['NCCL_DEBUG_FILE'].replace('%p', os.environ['RANK'])\n"
        "open(name, 'w').write(os.environ['RANK'] + os.environ['NCCL_DEBUG'])\n"
    )
    assert nccl_says.log_of(str(file), 2) == "0INFO1INFO"
    file.write_text("raise ValueError('no NCCL')")
    with pytest.raises(RuntimeError, match="no NCCL"):
        nccl_says.log_of(str(file), 1)


def test_what_nccl_says_is_told_with_torchs_version(monkeypatch, capsys):
    monkeypatch.setattr(nccl_says, "log_of", lambda file, ranks: LOG)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda.nccl, "version", lambda: (2, 28, 9))
    told = nccl_says.main()
    assert (told["ranks"], told["torch_has"]) == (2, "2.28.9")
    assert "NCCL_NVLS_ENABLE=0" in capsys.readouterr().out
    json.dumps(told)


class Sent:
    """Stands for the work of an all-reduce."""

    def __init__(self, diary: list):
        self.wait = lambda: diary.append("wait")


def test_what_comes_meanwhile_is_launched_before_anybody_waits(monkeypatch):
    diary = []
    monkeypatch.setattr(
        dist, "all_reduce", lambda x, **options: diary.append(options["async_op"]) or Sent(diary)
    )
    overlap_with_compute.exchange(torch.ones(1), None, lambda: diary.append("products"))
    assert diary == [True] * 4 + ["products"] + ["wait"] * 4


def test_the_gpus_time_is_told_apart():
    events = [
        ["CPU", 0.0, 9000.0, "cudaLaunchKernel"],
        ["stream 7", 1000.0, 2000.0, "nvjet_tst_256x128"],
        ["stream 20", 2500.0, 1500.0, "ncclDevKernel_AllReduce_Sum_f32"],
    ]
    assert overlap_with_compute.busy(events) == {"all_reduce": 1.5, "products": 2.0}


REPORT = """
  rank      : 0 (local_rank: 0)
  exitcode  : -15 (pid: 7)
Root Cause (first observed failure):
[0]:
  host      : localhost
  rank      : 1 (local_rank: 1)
  exitcode  : {code} (pid: 8)
  traceback : Traceback (most recent call last):
    raise ValueError("no")
  ValueError: no

============================================================
"""


def run_that_gives(monkeypatch, told: dict, report: str):
    """Let `subprocess.run` return this at once."""
    done = subprocess.CompletedProcess([], 1, f"noise\n{json.dumps(told)}\n", report)
    monkeypatch.setattr(subprocess, "run", lambda *args, **options: done)


def test_the_rank_that_failed_first_is_read_from_torchruns_report(monkeypatch):
    told = {name: {"seconds": 2.0, "says": "late"} for name in ("all_reduce", "monitored_barrier")}
    run_that_gives(monkeypatch, told | {"failed_at": 0.0}, REPORT.format(code=1))
    found = rank_fails.main()
    assert (found["rank"], found["exitcode"], found["says"], found["exit"]) == (1, 1, "ValueError: no", 1)


@pytest.mark.parametrize(
    ("facts", "item", "reached"), [({}, "nothing", False), ({"item": "2.0", "reached": True}, "2.0", True)]
)
def test_what_item_gave_before_the_watchdog_came_is_told(monkeypatch, facts, item, reached):
    facts |= {"returned_ms": 0.1, "failed_at": 0.0}
    run_that_gives(monkeypatch, facts, "Watchdog caught an ALLREDUCE timing out" + REPORT.format(code=-6))
    found = nccl_hangs.main()
    assert (found["item"], found["exitcode"], found["reached"]) == (item, -6, reached)


def test_what_nccl_says_of_a_small_shared_memory_is_read():
    error = "DistBackendError: NCCL error: unhandled system error (run with NCCL_DEBUG=INFO for details)"
    log = "host:1:2 [0] misc/shmutils.cc:88 NCCL WARN Error: failed to extend /dev/shm/nccl-a1 to 9 bytes\n"
    told = nccl_shared_memory.read(error, log)
    assert told["says"] == "unhandled system error" and not told["right"]
    assert told["warns"] == ["Error: failed to extend /dev/shm/nccl-… to 9 bytes"]
    assert nccl_shared_memory.read("the sum is right\n", "") == {"right": True, "says": "", "warns": []}
    assert nccl_shared_memory.read("no end within 50 s", "")["says"] == "no end within 50 s"
    with pytest.raises(RuntimeError, match="not permitted"):
        nccl_shared_memory.read("unshare: Operation not permitted", "")


@no_gpu
def test_ranks_run_with_a_shared_memory_of_their_own(tmp_path):
    file = tmp_path / "ranks.py"
    file.write_text("import os\nv = os.statvfs('/dev/shm')\nprint(v.f_blocks * v.f_frsize >> 20, 'MiB')\n")
    before = os.statvfs("/dev/shm").f_blocks
    printed, log = nccl_shared_memory.in_container(str(file), 3, {})
    assert printed.count("3 MiB") == 2 and log == ""
    assert os.statvfs("/dev/shm").f_blocks == before


@pytest.mark.gpu(2)
@pytest.mark.program("collectives/nccl_shared_memory")
def test_nccl_fails_with_little_shared_memory_through_sockets_too(returned):
    found = returned["found"]
    assert found["direct copies"]["right"] and found["through the host"]["right"]
    assert found["in /dev/shm, 1 GiB"]["right"]
    for name in ("in /dev/shm, 1 MiB", "through sockets"):
        assert not found[name]["right"] and found[name]["says"] == "unhandled system error"
        assert "failed to extend /dev/shm/nccl-…" in found[name]["warns"][0]


def test_a_call_that_must_fail_and_does_not_is_an_error():
    with pytest.raises(AssertionError, match="no rank was missing"):
        rank_fails.blocked(dict)

    def late():
        raise RuntimeError("[file.cc:1] Timed out\nmore")

    assert rank_fails.blocked(late)["says"] == "Timed out"

    def mute():
        raise RuntimeError

    assert rank_fails.blocked(mute)["says"] == ""


def torchrun_of(words: list[str]):
    """What torchrun's own parser makes of a command."""
    assert Path(words[0]).name == "torchrun"
    args = get_args_parser().parse_args(words[1:])
    host, _, port = args.rdzv_endpoint.rpartition(":")
    assert host and port.isdigit() and args.rdzv_backend == "c10d" and args.rdzv_id != "none"
    assert args.nproc_per_node == "gpu" and args.training_script == "train.py"
    least, most = parse_min_max_nnodes(args.nnodes)
    assert LaunchConfig(least, most, 8).max_nodes == 2
    return args


def test_the_shell_lines_of_the_page_are_taken_by_torchrun(tmp_path):
    """Each runs with stand-ins for what a cluster has; they print what they are asked."""
    stubs = {
        "srun": 'while [[ $1 == --* ]]; do shift; done; exec "$@"',
        "scontrol": "printf 'node7\\nnode8\\n'",
        "torchrun": "printf '%s\\n' torchrun \"$@\"",
    }
    for name, body in stubs.items():
        (tmp_path / name).write_text(f"#!/bin/bash\n{body}\n")
        (tmp_path / name).chmod(0o755)
    cluster = {"SLURM_JOB_NODELIST": "node[7-8]", "SLURM_NNODES": "2", "SLURM_JOB_ID": "5"}
    cluster["SLURM_CPUS_PER_TASK"] = "64"
    environment = os.environ | cluster | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    endpoints = []
    for text in (text for kind, text in FENCES if kind == "bash" and "--nnodes" in text):
        done = subprocess.run(
            ["bash", "-u"], input=text, env=environment, capture_output=True, text=True, check=True
        )
        assert not done.stderr
        endpoints.append(torchrun_of(done.stdout.splitlines()).rdzv_endpoint)
    assert endpoints == ["first-machine:29500", "node7:29500"]


def test_the_schedulers_of_the_page_wait_longer_than_torchrun():
    """Whose ranks have 300 s, as the page says; then it needs a moment to end itself."""
    (ranks,) = re.findall(r"pass `--shutdown-timeout (\d+)`", PAGE)
    (slurm,) = re.findall(r"^#SBATCH --signal=TERM@(\d+)$", PAGE, re.M)
    (pod,) = re.findall(r"^      terminationGracePeriodSeconds: (\d+)$", PAGE, re.M)
    assert slurm == pod and int(pod) >= int(ranks) + 30
    assert f"`--signal=TERM@{slurm}`" in PAGE and f"`terminationGracePeriodSeconds: {pod}`" in PAGE
    if "--shutdown-timeout" in get_args_parser().format_help():  # from PyTorch 2.13 on
        args = get_args_parser().parse_args(["--shutdown-timeout", ranks, "train.py"])
        assert args.shutdown_timeout == int(ranks)


def test_the_pods_of_the_page_find_each_other():
    yaml = pytest.importorskip("yaml")
    (text,) = (text for kind, text in FENCES if kind == "yaml")
    service, job = yaml.safe_load_all(text)
    pod = job["spec"]["template"]["spec"]
    name, domain = job["metadata"]["name"], service["metadata"]["name"]
    assert service["spec"]["clusterIP"] == "None" and service["spec"]["selector"] == {"job-name": name}
    assert pod["subdomain"] == domain and job["spec"]["completionMode"] == "Indexed"
    args = torchrun_of(pod["containers"][0]["command"])
    assert args.rdzv_endpoint.rpartition(":")[0] == f"{name}-0.{domain}"
    assert pod["terminationGracePeriodSeconds"] == 330
    assert job["spec"]["completions"] == job["spec"]["parallelism"] == int(args.nnodes)


def ip(*words: str, **options) -> subprocess.CompletedProcess:
    """Call `ip`."""
    return subprocess.run(["ip", *words], capture_output=True, text=True, check=True, **options)


@pytest.fixture
def two_networks():
    """Names of two network namespaces with a cable between them; each interface has the same name."""
    names = [f"ov{os.getpid() % 10**6}{end}" for end in "ab"]
    if not shutil.which("ip") or os.getuid() != 0:
        pytest.skip("network namespaces need root and `ip`")
    try:
        try:
            for name in names:
                ip("netns", "add", name)
        except subprocess.CalledProcessError as error:
            pytest.skip(f"no network namespaces here: {error.stderr.strip()}")
        first, second = names
        ip("link", "add", first, "netns", first, "type", "veth", "peer", "name", second, "netns", second)
        for number, name in enumerate(names, start=1):
            ip("-n", name, "addr", "add", f"10.77.0.{number}/24", "dev", name)
            for device in (name, "lo"):
                ip("-n", name, "link", "set", device, "up")
        yield names
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True)


@no_gpu
def test_two_network_namespaces_stand_for_two_machines(two_networks):
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    torchrun = f"{sys.executable} -m torch.distributed.run --nnodes=2 --nproc-per-node=1 --rdzv-id=7"
    torchrun += " --rdzv-backend=c10d --rdzv-endpoint=10.77.0.1:29500"
    agents = []
    for number, name in enumerate(two_networks, start=1):
        where = f"--local-addr=10.77.0.{number} --rdzv-conf=is_host={str(number == 1).lower()}"
        words = shlex.split(f"ip netns exec {name} {torchrun} {where} {two_nodes.__file__}")
        agents.append(
            subprocess.Popen(
                words,
                env=environment | {"GLOO_SOCKET_IFNAME": name},
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
        )
    try:
        lines = "".join(agent.communicate(timeout=LIMIT_S)[0] for agent in agents).splitlines()
    finally:
        for agent in agents:
            agent.terminate()
    found = sorted(map(json.loads, lines), key=lambda told: told["rank"])
    assert [told["group_rank"] for told in found] == [0, 1]
    assert all(told["sum"] == 1 and told["world_size"] == 2 for told in found)


@pytest.mark.gpu(2)
@pytest.mark.program("collectives/nccl_hangs")
def test_the_watchdog_of_nccl_ends_a_rank_that_waits_a_minute_after_the_timeout(returned):
    assert (returned["exitcode"], returned["rank"]) == (-6, 0)
    assert returned["ended_s"] >= returned["limit_s"] + 60


def test_what_two_ranks_hold_stands_side_by_side_on_a_phone():
    """An empty place has no words, so it is no wider than a number."""
    recorded = json.loads((ROOT / "docs/recordings/h200-x2/collectives/collectives_zoo.json").read_text())
    picture = collectives_zoo.plot(recorded["result"], {})
    rows = [row for panel in picture.panels for row in panel.marks[0].texts]
    assert set().union(*rows) == {"", "10", "11", "20", "21", "30", "32"}
    assert layout.Layout(picture, draw.WIDTHS["narrow"], []).columns == 2


@pytest.mark.gpu(2)
@pytest.mark.program("collectives/collectives_zoo", ranks=2)
def test_collectives_of_two_gpus_hold_what_is_said_of_them(returned):
    assert returned["before"] == [[10, 11], [20, 21]]
    assert returned["all_reduce"] == [[30, 32], [30, 32]] and returned["reduce"] == [[30, 32], []]
    assert returned["reduce_scatter"] == [[30], [32]] and returned["scatter"] == [[10], [11]]
    assert returned["all_to_all"] == [[10, 20], [11, 21]]


@pytest.mark.gpu(2)
@pytest.mark.program("collectives/ring_by_hand", ranks=2)
def test_the_ring_of_two_gpus_gives_the_sums_of_nccl(returned):
    assert returned["equal"] == {"int64": 1, "float32": 1} and returned["sent"] == pytest.approx(1, rel=1e-4)


@pytest.mark.gpu(2)
@pytest.mark.program("collectives/work_wait", ranks=2)
def test_a_value_that_was_waited_for_is_right_on_two_gpus(returned):
    assert returned["wrong"]["after"] == 0 and returned["reads"] == 15


@pytest.mark.gpu(2)
@pytest.mark.program("collectives/bus_bandwidth", ranks=2, quick=True, SIZES=[2**14, 2**20, 2**24])
def test_five_collectives_have_a_bandwidth_on_two_gpus(returned):
    assert len(returned["gb_s"]) == 5 and all(len(rates) == 3 for rates in returned["gb_s"].values())
    assert all(min(rates) > 0 for rates in returned["gb_s"].values())


@pytest.mark.gpu(2)
@pytest.mark.program("collectives/alpha_beta", ranks=2, quick=True, SIZES=[2**14, 2**20, 2**26])
def test_a_line_goes_through_the_times_of_two_gpus(returned):
    alpha_us, gb_s = returned["alpha_us"], returned["gb_s"]
    says = [alpha_us + size / gb_s / 1e3 for size in returned["bytes"]]
    off = [us / measured - 1 for us, measured in zip(says, returned["us"], strict=True)]
    assert returned["off"] == pytest.approx(off) and min(returned["us"]) > 0, "also where others are busy"


@pytest.mark.gpu(2)
@pytest.mark.program("collectives/overlap_with_compute", ranks=2, quick=True)
def test_an_exchange_beside_products_is_seen_on_two_gpus(returned):
    for ms in returned["busy_ms"].values():
        assert min(ms["all_reduce"], ms["products"]) > 0


@pytest.mark.gpu(2)
@pytest.mark.program("collectives/parameter_server", ranks=2, quick=True, BYTES=4_000_000)
def test_each_way_to_add_up_is_right_on_two_gpus(returned):
    assert set(returned["ms"]) == {"gpu0", "parts", "nccl", "cpu", "cpu_sum"}  # it checks the sums itself


@pytest.mark.gpu(2)
@pytest.mark.program("collectives/parameter_server_in_a_row", ranks=2, quick=True, BYTES=4_000_000)
def test_each_way_in_a_row_is_right_on_two_gpus(returned):
    assert set(returned["ms"]) == {"gpu0", "parts", "sharded", "nccl", "cpu"}  # it checks the sums itself


@pytest.mark.gpu(2)
@pytest.mark.program("collectives/captured_all_reduces", ranks=2, quick=True, SIZES=[2**10, 2**20], TRIALS=2)
def test_captured_exchanges_are_right_on_two_gpus(returned):
    for way in ("eager", "graph"):  # it checks the sums itself
        assert len(returned[way]["us"]) == 2 and min(returned[way]["us"]) > 0


CABLE = "ip link add left type veth peer name right"
SHAPED = "tc qdisc add dev left root tbf rate 400mbit burst 256kb latency 100ms"
SWITCH = f"PATH=$PATH:/usr/sbin:/sbin; {CABLE} && ip link add switch type bridge && {SHAPED}"


def may_make_hosts(joined: str) -> bool:
    """Whether this user may make network namespaces, joined so."""
    if not all(map(shutil.which, ("unshare", "nsenter", "bash"))):
        return False
    return subprocess.run(["unshare", "-rn", "sh", "-c", joined], capture_output=True).returncode == 0


@pytest.mark.skipif(not may_make_hosts(CABLE), reason="no network namespaces here")
@pytest.mark.parametrize(("case", "found"), [("unknown", "not_found"), ("cable", "added")])
def test_gloo_joins_two_hosts_by_the_interface_between_them(case, found):
    told = gloo_interface.on_two_hosts(*gloo_interface.CASES[case])
    empty = [{"own_address": ""}]
    result = gloo_interface.derive({"told": {"nothing": empty, case: told}})
    assert {key: result[key] for key in ("refused", "not_found", "added")} == {
        key: [case] if key == found else [] for key in ("refused", "not_found", "added")
    }


def test_without_two_hosts_gloo_interface_says_so(monkeypatch):
    monkeypatch.setattr(gloo_interface, "HOSTS", "exit 3")
    with pytest.raises(RuntimeError, match="no two hosts"):
        gloo_interface.on_two_hosts("", "")


@pytest.mark.skipif(not may_make_hosts(SWITCH), reason="no shaped links here")
def test_a_server_receives_what_all_others_push_and_leaves_the_same_weights(monkeypatch):
    monkeypatch.setenv("PATH", os.environ["PATH"] + ":/usr/sbin:/sbin")  # tc, of Debian
    monkeypatch.setenv("PYTHONPATH", str(ROOT))  # the ranks start in a file of the book
    told = push_and_pull.on_hosts(2)  # asserts the weights itself
    whole = {"bytes": push_and_pull.KEY_BYTES * len(push_and_pull.KEYS)}
    whole["link_mbit_s"] = push_and_pull.LINK_MBIT_S
    links = push_and_pull.derive({"of_2": told, "of_4": told} | whole)["links"]["of_2"]
    for way in ("server", "spread", "all_reduce"):
        assert links[way]["received"] == pytest.approx([1, 1], rel=0.05), way
        assert told["ms"][way] >= 0.9 * links[way]["link_ms"], way


def test_the_busiest_link_is_the_servers():
    mib = push_and_pull.KEY_BYTES
    server = {"received": 24 * mib, "sent": 24 * mib}
    worker = {"received": 8 * mib, "sent": 8 * mib}
    each = [{"server": server}, *[{"server": worker}] * 3]
    told = {"each": each, "ranks": 4}
    result = {"of_2": told, "of_4": told, "bytes": 8 * mib, "link_mbit_s": 400}
    link = push_and_pull.derive(result)["links"]["of_4"]["server"]
    assert link["received"] == [3, 1, 1, 1]
    assert link["most"] == 3
    assert link["link_ms"] == pytest.approx(24 * mib / 50e3)


#: A model's own parameters, as a reader has them; and one that cannot be sent.
PUSHED = """
import torch
import torch.distributed as dist
from snippets.collectives.push_and_pull import push_and_pull

dist.init_process_group("gloo")
rank = dist.get_rank()
model = torch.nn.Linear(2, 3)
with torch.no_grad():
    for parameter in model.parameters():
        parameter.fill_(1)
weights, server = dict(model.named_parameters()), {"weight": 0, "bias": 1}
gradients = {name: torch.full_like(weight, rank + 1.0) for name, weight in weights.items()}
before = dict(weights)
push_and_pull(weights, gradients, server, rate=0.5)
for name, weight in model.named_parameters():
    assert weight is before[name] is weights[name] and weight.requires_grad and weight.grad_fn is None
    assert (weight == 1 - 0.5 * 3).all(), name
weights["weight"] = torch.ones(2, 3).T
try:
    push_and_pull(weights, gradients, server, rate=0.5)
except ValueError as error:
    assert "weight is not contiguous" in str(error)
else:
    raise AssertionError("it was sent")
dist.barrier()
dist.destroy_process_group()
"""


def test_a_models_own_parameters_are_pushed_and_what_cannot_be_sent_is_refused(tmp_path):
    (tmp_path / "pushed.py").write_text(PUSHED)
    on_ranks(2, str(tmp_path / "pushed.py"))


def test_without_hosts_push_and_pull_says_so(monkeypatch):
    monkeypatch.setattr(push_and_pull, "HOSTS", "exit 3")
    with pytest.raises(RuntimeError, match="no hosts"):
        push_and_pull.on_hosts(2)


LINKS_IN_SMALL = """
import os
from snippets.collectives import links_off
links_off.SIZES = [1024, 4096]
links_off.LAYERS, links_off.WIDTH, links_off.ROWS, links_off.TRIALS = 2, 32, 8, 2
# A model that is freed after its group joins gloo's thread and holds Python's lock, which that may wait for.
links_off.dist.destroy_process_group = lambda: os._exit(0)
links_off.job()
"""


@no_gpu
def test_gradients_are_the_mean_over_ranks_whatever_joins_them(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))  # the ranks start in a file outside the book
    (tmp_path / "small.py").write_text(LINKS_IN_SMALL)
    told = links_off.measured(str(tmp_path / "small.py"), {}, 2)
    differ = told["differ_by"]
    assert set(differ) == {*(f"{mb} MB" for mb in links_off.BUCKETS_MB), "16-bit hook"}
    assert differ.pop("16-bit hook") < 0.01 and max(differ.values()) < 1e-5
    assert set(told["all_reduce"]["ms"]) == {"1024", "4096"}


PATIENT = """
import json, os
from pathlib import Path
from snippets.collectives import patient_group

patient_group.LIMIT_S, patient_group.ALONE_S = 1, 3
told = patient_group.main()
Path(os.environ["TOLD"] + os.environ["RANK"]).write_text(json.dumps(told))
"""


@no_gpu
def test_a_rank_waits_in_a_patient_group_and_not_in_a_short_one(tmp_path, monkeypatch):
    (tmp_path / "runner.py").write_text(PATIENT)
    monkeypatch.setenv("TOLD", str(tmp_path / "told"))
    on_ranks(2, str(tmp_path / "runner.py"))
    one, other = (json.loads((tmp_path / f"told{rank}").read_text()) for rank in range(2))
    assert one["rank_1"] == other["rank_1"], "both know what rank 1 saw"
    waits = one["rank_1"]
    assert waits["patient"]["says"] == "" and waits["patient"]["seconds"] >= 2.5
    assert "Timed out" in waits["short"]["says"] and waits["short"]["seconds"] < 2.5
    assert one["timeout_s"] == {"job": 120, "new": 1800, "patient": 7200}


#: Rank 0 of four leaves out a call in its row of a mesh; the page's lines have set the rows' timeout.
MESH = """
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

limit = timedelta(seconds=3)
dist.init_process_group("gloo", timeout=limit)
mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("copied", "split"))


def timeouts():
    backends = [group._get_backend(torch.device("cpu")) for group in mesh.get_all_groups()]
    return [each.options._timeout.total_seconds() for each in backends]


assert timeouts() == [1800, 1800]
dist.barrier()
for group in mesh.get_all_groups():
    dist.distributed_c10d._set_pg_timeout(limit, group)
assert timeouts() == [3, 3]
rank, start = dist.get_rank(), time.monotonic()
if rank == 1:
    try:
        dist.all_reduce(torch.ones(1), group=mesh.get_group("split"))
    except RuntimeError as error:
        assert "Timed out" in str(error) and 2.5 <= time.monotonic() - start <= 8
    else:
        raise SystemExit("no error")
elif rank == 0:
    time.sleep(9)
"""


@no_gpu
def test_groups_of_a_mesh_have_a_timeout_of_their_own_until_it_is_set(tmp_path):
    (tmp_path / "file.py").write_text(MESH)
    on_ranks(4, str(tmp_path / "file.py"))


#: Options of each dimension, as the page says; the job's own timeout stays.
OVERRIDE = """
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh


def options():
    new = dist.ProcessGroupGloo._Options()
    new._timeout = timedelta(seconds=5)
    return new


dist.init_process_group("gloo", timeout=timedelta(seconds=99))
given = {"copied": options(), "split": options()}
mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("copied", "split"), backend_override=given)
for group, seconds in [(dist.group.WORLD, 99), *((group, 5) for group in mesh.get_all_groups())]:
    assert group._get_backend(torch.device("cpu")).options._timeout.total_seconds() == seconds
    number = torch.ones(1)
    dist.all_reduce(number, group=group)
    assert number.item() == group.size()
dist.barrier()
"""


@no_gpu
def test_a_mesh_takes_the_timeout_of_its_options(tmp_path):
    (tmp_path / "file.py").write_text(OVERRIDE)
    on_ranks(4, str(tmp_path / "file.py"))


#: The page's loop, with a `train` that fails in the first start of one case, and a `save` of its own.
STEPS = """
import os, signal, sys, time

import torch
import torch.distributed as dist

folder, fails = sys.argv[1], sys.argv[2] == "fails"
dist.init_process_group("gloo")
rank, steps = dist.get_rank(), 6 if fails else 1000
first = int(open(f"{folder}/step").read()) + 1 if os.path.exists(f"{folder}/step") else 0
torch.Tensor.cuda = torch.Tensor.clone
open(f"{folder}/{rank}", "a").write(f"{first} ")


def train(step):
    time.sleep(0.02)
    if fails and step == 3 and rank == 1 and first == 0:
        raise ValueError("in the first start")
    if fails and step == 1:
        save(step)


def save(step):
    if rank == 0:
        open(f"{folder}/step", "w").write(str(step))


LINES
open(f"{folder}/{rank}", "a").write(f"{step} ")
dist.barrier()
dist.destroy_process_group()
"""


@no_gpu
@pytest.mark.parametrize("how", ["fails", "ends"])
def test_a_job_goes_on_from_its_last_step_and_stops_together(tmp_path, how):
    page = (ROOT / "docs/collectives.md").read_text()
    lines = page[page.index("asked = torch.zeros(1)") :].partition("```")[0]
    (tmp_path / "file.py").write_text(STEPS.replace("LINES", lines))
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    command = [*torchrun, "--max-restarts=1", str(tmp_path / "file.py"), str(tmp_path), how]
    environment = os.environ | {
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"
    }  # else ranks may take old addresses
    quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, env=environment, **quiet) as job:
        begun = [tmp_path / "0", tmp_path / "1"]
        while how == "ends" and job.poll() is None and not all(path.exists() for path in begun):
            time.sleep(0.1)
        if how == "ends":
            time.sleep(1)
            job.send_signal(signal.SIGTERM)
        code = job.wait(timeout=LIMIT_S)
    told = [path.read_text().split() for path in begun]
    if how == "fails":
        assert code == 0 and told == [["0", "2", "5"]] * 2
    else:
        assert code != 0 and told[0] == told[1] and told[0][0] == "0" and 0 <= int(told[0][1]) < 999
        assert (tmp_path / "step").read_text() == told[0][1]


def recorded_call(number: int, state: str) -> dict:
    """A call of the flight recorder, as NCCL's watchdog writes it."""
    return {
        "record_id": number - 1,
        "pg_id": 0,
        "process_group": ("0", "default_pg"),
        "collective_seq_id": number,
        "p2p_seq_id": 0,
        "op_id": number,
        "profiling_name": "nccl:all_reduce",
        "time_created_ns": number,
        "input_sizes": [[1]],
        "input_dtypes": ["Float"],
        "output_sizes": [[1]],
        "output_dtypes": ["Float"],
        "state": state,
        "time_discovered_started_ns": number,
        "time_discovered_completed_ns": number,
        "retired": state == "completed",
        "timeout_ms": 5000,
        "is_p2p": False,
        "frames": [],
    }


@pytest.fixture
def dumped(tmp_path) -> Path:
    """What two ranks write, of which the first made one call more."""
    group = {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}
    for rank, states in enumerate((["completed", "completed", "started"], ["completed", "completed"])):
        entries = [recorded_call(number, state) for number, state in enumerate(states, 1)]
        told = {
            "version": "2.10",
            "pg_config": {"0": group},
            "pg_status": {},
            "entries": entries,
            "rank": rank,
        }
        (tmp_path / f"rank_{rank}").write_bytes(pickle.dumps(told))
    return tmp_path


def test_the_calls_of_each_rank_are_read(dumped):
    rows = flight_recorder.calls(dumped)
    assert rows["rank_1"] == [[1, "nccl:all_reduce", "completed"], [2, "nccl:all_reduce", "completed"]]
    assert rows["rank_0"][-1] == [3, "nccl:all_reduce", "started"] and list(rows) == ["rank_0", "rank_1"]


def test_torchfrtrace_names_the_missing_rank(dumped):
    if not Path(sys.executable).with_name("torchfrtrace").exists():
        pytest.skip("no torchfrtrace beside this Python")
    said = flight_recorder.compared(dumped)
    assert re.findall(r"missing ranks: \{([\d, ]+)\}", said) == ["1"], said


def test_torchfrtrace_needs_the_files_of_all_ranks(dumped):
    tool = Path(sys.executable).with_name("torchfrtrace")
    if not tool.exists():
        pytest.skip("no torchfrtrace beside this Python")
    (dumped / "rank_1").unlink()
    assert "Missing dump files from ranks {1}" in flight_recorder.compared(dumped)
    command = [str(tool), str(dumped), "--allow-incomplete-ranks"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert "We cannot decide" in done.stdout + done.stderr and "missing ranks" not in done.stdout
    assert list(flight_recorder.calls(dumped)) == ["rank_0"]


def test_what_a_hung_job_told_is_put_together(monkeypatch, dumped, capsys):
    told = {"ended_at": 130.0, "failed_at": 100.0, "stderr": "", "exit": 1, "rank": 0, "exitcode": -6}
    monkeypatch.setattr(flight_recorder, "under_torchrun", lambda file: dict(told))
    monkeypatch.setattr(flight_recorder, "compared", lambda folder: "missing ranks: {1}")
    result = json.loads(json.dumps(flight_recorder.main()))
    for way in ("torchrun", "default"):
        assert result["ways"][way]["missing"] == ["1"] and result["ways"][way]["ended_s"] == 30
        assert result["ways"][way]["calls"] == {}, "the folder of this test is empty"
    assert "TORCH_FR_DUMP_TEMP_FILE" not in os.environ and "missing ranks 1" in capsys.readouterr().out


def test_matmuls_beside_held_sms_are_compared_with_those_alone():
    bursts = {
        way: [{"ms": ms + i, "tflop_s": 700.0} for i in range(3)] for way, ms in (("alone", 1), ("held", 3))
    }
    bursts["copied"] = [{"ms": 5.0, "tflop_s": 400.0, "copied_gb_s": 900.0, "mhz": 1500, "watt": 690.0}] * 3
    rows = {way: held_beside_matmuls.summary(each) for way, each in bursts.items()}
    assert rows["held"]["ms"] == 4 and rows["held"]["ms_trials"] == [3, 4, 5]
    rows["alone"] |= {"mhz": 1600}
    found = held_beside_matmuls.derive({"rows": rows, "blocks": 24, "multiprocessors": 132})
    assert found["of_alone"]["held"] == {"takes": 2} and found["fewer_sms"] == pytest.approx(132 / 108)
    assert found["of_alone"]["copied"] == {"takes": 2.5, "clock": 1500 / 1600}
    assert held_beside_matmuls.plot({"rows": rows}, {})


@pytest.mark.gpu
@pytest.mark.program("collectives/held_beside_matmuls", TRIALS=3)
def test_held_sms_are_missed(returned):
    rows = returned["rows"]
    assert rows["held"]["tflop_s"] < rows["alone"]["tflop_s"] and rows["copied"]["copied_gb_s"] > 10


@pytest.mark.parametrize(("second", "ends"), [("send recv", False), ("recv send", True)])
def test_two_ranks_that_both_send_first_wait_for_each_other(second, ends):
    """What the symptoms say; each rank is a thread with a group of its own."""
    store, limit = dist.HashStore(), timedelta(seconds=1)

    def exchanged(rank, order):
        group = dist.ProcessGroupGloo(store, rank, 2, timedelta(seconds=LIMIT_S))
        got = torch.empty(10)
        for call in order.split():
            tensor = torch.full((10,), float(rank)) if call == "send" else got
            getattr(group, call)([tensor], 1 - rank, 0).wait(limit)
        return got[0].item()

    with ThreadPoolExecutor(2) as pool:
        ranks = [pool.submit(exchanged, rank, order) for rank, order in enumerate(["send recv", second])]
    if ends:
        assert [rank.result() for rank in ranks] == [1.0, 0.0]
    else:
        said = [str(rank.exception()) for rank in ranks]
        assert any("Timed out waiting 1000ms for send" in text for text in said) and all(said), said
