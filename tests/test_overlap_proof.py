"""Proof that a run used the GPUs it names: what is counted, what is refused, and that it never fails a run."""

import json
from types import SimpleNamespace

import pytest
import torch
from test_overlap_bad_input import FULL, ORIGIN

from overlap import OverlapError
from overlap.run import machine, proof, recording
from overlap.run.runner import Outcome, RunFailed, Runner

pytestmark = pytest.mark.usefixtures("on_cpu")


@pytest.fixture
def gpus(monkeypatch):
    """Two GPUs, of which this process uses the ones that are asked for."""

    def use(*used: int) -> None:
        stats = {"allocation.all.allocated": 5, "allocated_bytes.all.peak": 4096}
        monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
        monkeypatch.setattr(torch.cuda, "is_initialized", lambda: bool(used))
        monkeypatch.setattr(torch.cuda, "memory_stats", lambda gpu: stats if gpu in used else {})
        monkeypatch.setattr(torch._C, "_cuda_hasPrimaryContext", lambda gpu: gpu in used, raising=False)

    return use


USED, IDLE = {"context": True, "allocations": 5, "bytes": 4096}, {"context": False, "allocations": 0, "bytes": 0}
#: GPUs that are used, whether there are other processes, what is left to read.
WRITTEN = [
    ((0, 1), False, [USED, USED]),
    ((0, 1), True, [USED, USED]),
    ((0,), False, [USED, IDLE]),
    ((0,), True, None),
    ((), True, None),
    ((), False, [IDLE, IDLE]),
]


@pytest.mark.parametrize(("used", "others", "expected"), WRITTEN)
def test_what_a_process_did_on_each_gpu(tmp_path, monkeypatch, gpus, used, others, expected):
    monkeypatch.setattr(proof, "_had_children", lambda: False)
    gpus(*used)
    proof.write(tmp_path, 0, others)
    assert proof.read(tmp_path, 1) == expected


def test_ranks_prove_together(tmp_path, monkeypatch, gpus):
    monkeypatch.setattr(proof, "_had_children", lambda: False)
    for rank in (0, 1):
        assert proof.read(tmp_path, 2) is None, "one of them says nothing yet"
        gpus(rank)
        proof.write(tmp_path, rank, False)
    assert proof.read(tmp_path, 2) == [USED, USED]


def test_a_probe_that_fails_fails_no_run(tmp_path, monkeypatch):
    def broken(*_):
        raise RuntimeError("no driver")

    monkeypatch.setattr(torch.cuda, "device_count", broken)
    proof.write(tmp_path, 0, False)
    assert list(tmp_path.iterdir()) == [] and proof.read(tmp_path, 1) is None
    (tmp_path / proof.FILES.format(0)).write_text("[1]")
    assert proof.read(tmp_path, 1) is None


def event(name: str, gpu: int = 0, kind: str = "DeviceType.CUDA", annotation: bool = False) -> SimpleNamespace:
    said = {"name": name, "device_index": gpu, "device_type": kind, "is_user_annotation": annotation}
    return SimpleNamespace(**{key: lambda value=value: value for key, value in said.items()})


def test_kernels_are_counted_and_nothing_else():
    events = [
        event("gemm"),
        event("Memcpy HtoD"),
        event("Memset"),
        event("mark", annotation=True),
        event("aten::mm", kind="DeviceType.CPU"),
    ]
    assert [proof._is_kernel(each) for each in events] == [True, False, False, False, False]


def made(worked, gpus: int = 1) -> dict:
    """A recording that says this of what it did."""
    here = FULL["machine"] | {"gpus": FULL["machine"]["gpus"] * gpus}
    data = {key: value for key, value in FULL.items() if key != "others"}
    return data | {"machine": here, "run": FULL["run"] | {"worked": worked}}


REFUSED = [
    ([IDLE], 1, "nothing was done on GPU 0"),
    ([USED, IDLE], 2, "nothing was done on GPU 1"),
    ([USED], 2, "run.worked is of 1 GPUs, but machine.gpus names 2"),
]


@pytest.mark.parametrize(("worked", "gpus", "expected"), REFUSED)
def test_a_recording_that_says_it_did_nothing_is_refused(worked, gpus, expected):
    assert recording.parse(json.dumps(made([USED] * gpus, gpus)), ORIGIN)
    with pytest.raises(OverlapError, match=expected):
        recording.parse(json.dumps(made(worked, gpus)), ORIGIN)


@pytest.fixture
def on_one_gpu(small_book, lab, monkeypatch):
    """Run a snippet as on one GPU that is none: what it left as proof, and how its kernels are counted, are given."""
    runner = Runner(small_book.root)
    runner._starter, runner._again = lab.runner._starter, lab.runner._again
    here = json.loads(json.dumps(lab.runner.probe(0)))
    here["machine"] |= {"gpus": FULL["machine"]["gpus"], "host_gpus": 1}
    runner._probes[1] = here
    monkeypatch.setattr("overlap.run.machine.visible_devices", lambda count: "")

    def run(said, more: str = "") -> dict:
        monkeypatch.setattr(proof, "read", lambda folder, ranks: said)
        return runner.run(small_book.snippet("a/b", options=f"gpus = [1]\n{more}"), 1)

    run.runner = runner
    return run


def test_a_run_that_leaves_a_gpu_alone_is_refused(on_one_gpu):
    with pytest.raises(
        RunFailed, match=r"snippets/a/b.py did nothing on GPU 0 of the 1 that it names; let main\(\) use"
    ):
        on_one_gpu([IDLE])
    assert "worked" not in on_one_gpu(None)["run"], "where nothing can be said, nothing is"
    assert "worked" not in on_one_gpu([IDLE], "idle = true")["run"], "it describes the GPU"


@pytest.mark.parametrize(("ended", "expected"), [((0, [7]), 7), ((0, [0]), None), ((0, []), None), ((1, None), None)])
def test_kernels_are_counted_once_in_a_run_of_their_own(on_one_gpu, monkeypatch, ended, expected):
    assert on_one_gpu([dict(USED)])["run"]["worked"] == [USED]
    runner, kinds = on_one_gpu.runner, []
    job = runner._job

    def counted(kind: str, *arguments, **more) -> Outcome:
        kinds.append(kind)
        code, counts = ended
        return Outcome(code, False, 1.0, "", "", counts) if kind == "kernels" else job(kind, *arguments, **more)

    monkeypatch.setattr(runner, "_job", counted)
    runner.counts_kernels = True
    for _ in range(2):
        (work,) = on_one_gpu([dict(USED)])["run"]["worked"]
        assert work.get("kernels") == expected
    assert kinds.count("kernels") == 1


def test_kernels_of_all_ranks_are_added_up(tmp_path):
    for rank, counts in enumerate(([3, 0], [0, 4])):
        (tmp_path / proof.KERNELS.format(rank)).write_text(json.dumps(counts))
    assert proof.read_kernels(tmp_path, 2) == [3, 4]
    assert proof.read_kernels(tmp_path, 3) == [], "a rank says nothing"
    (tmp_path / proof.KERNELS.format(1)).write_text("[1]")
    assert proof.read_kernels(tmp_path, 2) == [], "one of them sees fewer GPUs"


def test_each_rank_of_a_torchrun_says_its_kernels(small_book, on_one_gpu, tmp_path):
    snippet = small_book.snippet("a/b", options='gpus = [0]\nlauncher = "torchrun"\nranks = 2')
    ended = on_one_gpu.runner._torchrun(snippet, 0, tmp_path / "ranks", 60, "--kernels")
    assert ended.exit == 0, ended.stderr
    assert {file.name: json.loads(file.read_text()) for file in tmp_path.glob("kernels-*")} == {
        "kernels-0.json": [],
        "kernels-1.json": [],
    }


@pytest.mark.gpu(2)
def test_under_torchrun_the_kernels_of_both_gpus_are_counted(small_book, monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    machine.here.cache_clear()
    busy = (
        "import os\nimport torch\n\n\ndef main():\n    ones = torch.ones(1000, device=f\"cuda:{os.environ['RANK']}\")\n"
    )
    busy += "    return {'n': [float((ones + 1).sum()) for _ in range(5)]}\n"
    snippet = small_book.snippet("a/b", busy, 'gpus = [2]\nlauncher = "torchrun"')
    with Runner(small_book.root) as runner:
        runner.counts_kernels = True
        assert all(work["kernels"] >= 10 for work in runner.run(snippet, 2)["run"]["worked"])


@pytest.mark.gpu
def test_on_a_gpu_the_work_is_proved(small_book, monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    machine.here.cache_clear()
    busy = "import torch\n\n\ndef main():\n    ones = torch.ones(1000, device='cuda')\n"
    busy += "    return {'n': [float((ones + 1).sum()) for _ in range(5)]}\n"
    with Runner(small_book.root) as runner:
        runner.counts_kernels = True
        (work,) = runner.run(small_book.snippet("a/b", busy, "gpus = [1]"), 1)["run"]["worked"]
        assert work["context"] and work["allocations"] >= 2 and work["bytes"] >= 4000 and work["kernels"] >= 10
        with pytest.raises(RunFailed, match="did nothing on GPU 0"):
            runner.run(small_book.snippet("a/idle", options="gpus = [1]"), 1)
