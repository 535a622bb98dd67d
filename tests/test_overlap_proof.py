"""Proof that a run used the GPUs it names: what is counted, what is refused, and that it never fails a run."""

import json
from types import SimpleNamespace

import pytest
import torch
from test_overlap_bad_input import FULL, ORIGIN

from overlap import OverlapError
from overlap.__main__ import main
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


class Ended:
    """A profiler that another one has ended."""

    def __init__(self, activities):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *error):
        raise RuntimeError("Can't disable Kineto profiler when it's not running")


def test_a_profiler_of_mains_own_leaves_no_count(monkeypatch, gpus):
    gpus(0)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda gpu: None)
    monkeypatch.setattr(torch.profiler, "profile", Ended)
    assert proof.kernels(lambda: None) == []

    def fails():
        raise RuntimeError("out of memory")

    with pytest.raises(RuntimeError):
        proof.kernels(fails)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda gpu: fails())  # what a kernel did wrong comes to light here
    with pytest.raises(RuntimeError):
        proof.kernels(lambda: None)


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


@pytest.mark.parametrize(("counts", "expected"), [([7], [7]), ([0], []), ([], []), (None, None), ([7, 7], None)])
def test_kernels_are_counted_in_a_run_of_their_own(on_one_gpu, small_book, monkeypatch, counts, expected):
    assert on_one_gpu([dict(USED)])["run"]["worked"] == [USED]
    monkeypatch.setattr(on_one_gpu.runner, "_job", lambda *_, **__: Outcome(0, False, 1.0, "", "", counts))
    snippet = small_book.book().snippet("a/b")
    if expected is None:
        with pytest.raises(RunFailed, match=r"kernels not counted: snippets/a/b.py did not tell its kernels"):
            on_one_gpu.runner.kernels(snippet, 1)
    else:
        assert on_one_gpu.runner.kernels(snippet, 1) == expected


def test_kernels_are_not_counted_on_gpus_that_torch_does_not_see(small_book, lab):
    with Runner(small_book.root) as runner:
        runner._probes[1] = lab.runner.probe(0)
        with pytest.raises(OverlapError, match=r"asked for 1 GPU\(s\), and torch .* sees 0"):
            runner.kernels(small_book.snippet("a/b", options="gpus = [1]"), 1)


def test_what_fails_beside_others_is_counted_alone(small_book, on_one_gpu, monkeypatch, capsys):
    """Of three, one fails while others use the memory, and one always."""
    items = [(small_book.snippet(f"a/{name}", options="gpus = [1]"), 1) for name in ("fine", "crowded", "broken")]
    tried, found, failures = [], {}, []

    def job(kind, folder, limit, gpus, path, proof) -> Outcome:
        tried.append(path.rpartition("/")[2])
        failed = tried[-1] == "broken.py" or (tried[-1] == "crowded.py" and tried.count("crowded.py") == 1)
        return Outcome(1, False, 1.0, "", "out of memory", None) if failed else Outcome(0, False, 1.0, "", "", [3])

    monkeypatch.setattr(on_one_gpu.runner, "_job", job)
    on_one_gpu.runner.count_all(items, lambda snippet, gpus, kernels: found.update({snippet.name: kernels}), failures)
    assert found == {"a/fine": [3], "a/crowded": [3]}
    (said,) = map(str, failures)
    assert (
        said.startswith("kernels not counted: snippets/a/broken.py failed with exit code 1") and "out of memory" in said
    )
    err = capsys.readouterr().err
    assert err.count("a/crowded") == 1 and "a/broken on 1 GPU: failed" in err and err.count("failed") == 1


@pytest.fixture
def made_on(small_book, template, monkeypatch):
    """A recording of a/b that was made on one H200 on this day; this machine has one, too, and counts twelve kernels."""
    monkeypatch.chdir(small_book.root)
    gpu = {"name": "NVIDIA H200", "memory_bytes": 150_000_000_000, "capability": "9.0"}
    here = machine.here() | {"gpus": [gpu["name"]], "host_gpus": 1}
    monkeypatch.setattr(machine, "here", lambda: here)
    monkeypatch.setattr(Runner, "kernels", lambda *_: [12])
    monkeypatch.setattr(Runner, "probe", lambda self, gpus: {"machine": {"gpus": []}, "software": {"torch": "2"}})
    small_book.snippet("a/b", "def main():\n    return {}\n", "gpus = [1]")
    small_book.page("a", "```snippet a/b\n```\n")
    told = template["machine"] | {"gpus": [gpu], "host_gpus": 1}

    def made(day: int, **software) -> dict:
        run = template["run"] | {"started": f"2026-01-0{day}T00:00:00+00:00", "worked": [dict(USED)]}
        more = {"machine": told, "run": run, "software": template["software"] | software}
        return recording.read(small_book.commit("a/b", template, {"us": day, "us_trials": [1, 2]}, gpus=1, **more))

    return made


def test_a_run_is_counted_by_the_command_that_made_it(small_book, made_on, monkeypatch, capsys):
    """Also where it takes the place of one with another CUDA."""
    new, old = made_on(2, cuda="13.0"), made_on(1, cuda="12.8")
    monkeypatch.setattr(Runner, "run_all", lambda self, wanted, keep, *_: keep(*wanted[0], new))
    path = small_book.path("a/b", "h200")
    for before in (None, old):
        path.unlink()
        if before:
            recording.write(path, recording.dump(before))
        assert main(["record", "--runs", "2"]) == 0
        assert "1 recorded, 0 failed" in (out := capsys.readouterr().out) and "kernels counted of 1" in out
        (run,) = recording.read(path).runs
        assert run["run"]["started"][9] == "2" and run["run"]["worked"] == [USED | {"kernels": 12}]


def test_what_cannot_be_counted_is_not_tried_again(small_book, made_on, monkeypatch, capsys):
    made_on(1)
    monkeypatch.setattr(Runner, "kernels", lambda *_: [])
    for tried in (1, 0):
        assert main(["record", "--runs", "0"]) == 0
        said = capsys.readouterr()
        assert said.err.count("a/b on 1 GPU") == tried and "kernels counted of 0" in said.out
    assert recording.read(small_book.path("a/b", "h200"))["run"]["worked"] == [USED | {"kernels": None}]


def test_a_count_finds_no_run_that_is_gone(small_book, made_on, monkeypatch):
    """While kernels are counted, another process has put new code's run in the place of the old one."""
    new, old = made_on(2, cuda="13.0"), made_on(1, cuda="12.8")
    path = small_book.path("a/b", "h200")
    monkeypatch.setattr(Runner, "kernels", lambda *_: recording.write(path, recording.dump(new)) or [12])
    assert main(["record", "--runs", "0"]) == 0
    assert recording.read(path) == new and old != new


def test_what_another_torch_made_is_not_counted_here(small_book, made_on, capsys):
    other = recording.sealed(made_on(1, torch="1.0") | {})
    small_book.path("a/b", "h200").unlink()
    bundle = small_book.root / "bundle.jsonl"
    bundle.write_text(json.dumps(other) + "\n")
    assert main(["record", "--runs", "0", "--bundle", str(bundle)]) == 0
    assert "kernels counted of 0" in capsys.readouterr().out
    made_on(2)
    bundle.write_text(json.dumps(recording.counted(other, [12])) + "\n")
    assert main(["import", str(bundle)]) == 0
    assert "replaced (2026-01-02T00:00:00+00:00 before): a/b" in capsys.readouterr().out


def test_kernels_are_counted_of_runs_that_are_recorded(small_book, made_on, monkeypatch, capsys):
    """Nothing is measured again; from a bundle the count finds its run, and other runs stay."""
    path, runs = small_book.path("a/b", "h200"), [made_on(1), made_on(2)]
    recording.write(path, recording.dump(recording.merged(*runs)))
    count = ["record", "--runs", "0"]
    assert main([*count, "--bundle", "bundle.jsonl"]) == 0
    assert "0 recorded, 0 failed" in (out := capsys.readouterr().out) and "kernels counted of 1" in out
    assert main([*count, "--bundle", "bundle.jsonl"]) == 0 and "kernels counted of 0" in capsys.readouterr().out
    assert "kernels" not in recording.read(path)["run"]["worked"][0]
    for more in (["--runs", "3"], ["a/b", "--runs", "1"]):
        assert main(["record", *more, "--bundle", "bundle.jsonl"]) == 1, "a counted copy is no new run"
        assert "asked for 1 GPU(s)" in capsys.readouterr().out
    for said in ("kernels counted: a/b", "unchanged: a/b"):
        assert main(["import", "bundle.jsonl"]) == 0 and said in capsys.readouterr().out
        whole = recording.read(path)
        assert [run["run"]["started"][9] for run in whole.runs] == ["2", "1"] and whole.intact
        assert whole["run"]["worked"] == [USED | {"kernels": 12}] and whole["others"][0]["run"]["worked"] == [USED]
    recording.write(path, recording.dump(recording.merged(*runs)))
    assert main(count) == 0
    assert recording.read(path) == whole, "here as through a bundle"


def test_a_disturbed_run_that_alone_says_what_it_did_is_counted():
    """It is not the whole one; its number is added among the others, and is not lost where both are merged."""

    def run(day: int, **more) -> dict:
        data = made([USED])
        del data["run"]["worked"]
        return recording.sealed(data | {"run": data["run"] | {"started": f"2026-01-0{day}T00:00:00+00:00"} | more})

    noise = FULL["run"]["noise"] | {"disturbed": True}
    calm, disturbed = run(1), run(2, noise=noise, worked=[dict(USED)])
    both = recording.merged(calm, disturbed)
    assert not recording.lacks_kernels(calm) and recording.lacks_kernels(both)
    assert both["run"]["started"] == calm["run"]["started"]
    counted = recording.counted(both, [12])
    assert counted["others"][0]["run"]["worked"] == [USED | {"kernels": 12}] and not recording.lacks_kernels(counted)
    assert recording.merged(both, counted) == recording.merged(counted, both) == counted
    assert recording.merged(both, recording.counted(disturbed, [12])) == counted, "the same run, whole"


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


def test_a_rank_that_fails_while_kernels_are_counted_gives_its_reason(small_book, lab):
    fails = "import os\n\nassert os.environ['RANK'] == '0', 'the real reason'\n\n\ndef main():\n    return {}\n"
    snippet = small_book.snippet("a/b", fails, 'gpus = [0]\nlauncher = "torchrun"\nranks = 2')
    with Runner(small_book.root) as runner:
        runner._probes[0] = lab.runner.probe(0)
        with pytest.raises(RunFailed, match=r"kernels not counted: snippets/a/b.py .*in rank 1(?s:.*)the real reason"):
            runner.kernels(snippet, 0)


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
        assert min(runner.kernels(snippet, 2)) >= 10


@pytest.mark.gpu
def test_on_a_gpu_the_work_is_proved(small_book, monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    machine.here.cache_clear()
    busy = "import torch\n\n\ndef main():\n    ones = torch.ones(1000, device='cuda')\n"
    busy += "    return {'n': [float((ones + 1).sum()) for _ in range(5)]}\n"
    with Runner(small_book.root) as runner:
        snippet = small_book.snippet("a/b", busy, "gpus = [1]")
        (work,) = runner.run(snippet, 1)["run"]["worked"]
        assert work["context"] and work["allocations"] >= 2 and work["bytes"] >= 4000
        assert runner.kernels(snippet, 1)[0] >= 10
        with pytest.raises(RunFailed, match="did nothing on GPU 0"):
            runner.run(small_book.snippet("a/idle", options="gpus = [1]"), 1)
