"""Runs: what is caught, what is contained, what a failure says, and that nothing is left behind."""

import contextlib
import io
import os
import re
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from pathlib import Path

import pytest
from conftest import Lab, SmallBook

from overlap import OverlapError
from overlap.run import machine, runner
from overlap.run.runner import Capture, Nursery, RunFailed, Runner

pytestmark = pytest.mark.usefixtures("on_cpu")


@pytest.fixture(autouse=True)
def deadline():
    """A test that waits for ever fails instead."""

    def late(*_):
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(40)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """A place to run snippets on a system where there can be no nursery, as on macOS."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delattr(socket, "SOCK_SEQPACKET")
        started = Runner(tmp_path_factory.mktemp("plain"))
    with started:
        yield Lab(started.root, started)


@pytest.fixture(params=["nursery", "plain"])
def either(request, lab):
    """Both ways to run a snippet, which must do the same."""
    return lab if request.param == "nursery" else request.getfixturevalue("plain")


def main(body: str, imports: str = "import os, subprocess, sys, time") -> str:
    """A snippet whose main() has these lines."""
    return f"{imports}\n\n\ndef main():\n" + "".join(f"    {line}\n" for line in body.strip("\n").splitlines())


def text(recording: dict, name: str = "stdout") -> str:
    return "".join("".join(output["text"]) for output in recording["outputs"] if output["name"] == name)


def alive(marker: str) -> list[str]:
    """Command lines of living processes that carry the marker."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes()
        except OSError:
            continue
        if marker.encode() in line:
            found.append(line)
    return found


FAILURES = {
    "raises": (
        main("print('begun')\nraise ValueError('boom')"),
        ["failed with exit code 1", "begun", "ValueError: boom"],
    ),
    "at_import": (
        main("return {}", "import no_such_module"),
        ["failed with exit code 1", "No module named 'no_such_module'"],
    ),
    "without_main": (
        main("return {}") + "\n\ndel main\n",
        ["failed with exit code 1", "snippets/fail/without_main.py has no main(); write `def main() -> dict`"],
    ),
    "hangs": (
        main("print('begun')\nwhile True:\n    time.sleep(1)"),
        ["still ran after 1 s and was stopped (if it needs longer, raise `timeout = 1` in its header)", "begun"],
    ),
    "hangs_in_thread": (
        main("threading.Thread(target=time.sleep, args=[99]).start()\nreturn {}", "import threading, time"),
        ["still ran after 1 s", "(it printed nothing)"],
    ),
    "killed": (main("print('begun')\nos.kill(os.getpid(), 9)"), ["was killed by signal 9", "begun"]),
    "crashes": (main("os.kill(os.getpid(), 11)"), ["was killed by signal 11", "(it printed nothing)"]),
    "stops": (main("sys.exit('no luck today')"), ["failed with exit code 1", "no luck today"]),
    "stops_with_code": (main("sys.exit(7)"), ["failed with exit code 7"]),
    "stops_well": (main("sys.exit()"), ["returned no dict from main()"]),
    "returns_none": (main("pass"), ["returned no dict from main()"]),
    "returns_list": (main("return [1]"), ["returned no dict from main()"]),
    "returns_nan": (
        main("return {'x': float('nan')}"),
        ["main() must return plain JSON data without NaN", "not JSON compliant"],
    ),
    "returns_tensor": (
        main("return {'x': torch.ones(2)}", "import torch"),
        ["main() must return plain JSON data", "type Tensor is not JSON serializable"],
    ),
    "returns_tuple_keys": (main("return {(1, 2): 3}"), ["main() must return plain JSON data", "keys must be str"]),
    "raises_like_json": (main("raise TypeError('mine')"), ["exit code 1", "TypeError: mine"]),
    "deletes_its_folder": (
        main("import shutil\nshutil.rmtree(os.path.dirname(os.getcwd()))\nprint('gone')\nreturn {}"),
        [
            "failed with exit code 1",
            "gone",
            "its result cannot be kept (No such file or directory: ./result.json); let",
        ],
    ),
    "says_a_key_twice": (
        main("return {1: 'one', '1': 'other'}"),
        ["says_a_key_twice.py: 1 stands twice in its object; let main() return less, and plain data"],
    ),
    "half_a_result": (
        main("open('../result.json', 'w').write('{\"a\": ')\nos._exit(0)"),
        ["returned no dict from main()"],
    ),
    "kills_its_supervisor": (
        main("print('begun')\nos.kill(os.getppid(), 9)\ntime.sleep(30)"),
        ["ended without a word: the process that watches over it was killed", "begun"],
    ),
    "closes_its_pipes": (main("os.closerange(0, 99)\nprint(1)\nreturn {}"), ["failed with exit code 1"]),
    "closes_its_pipes_and_hangs": (main("os.closerange(0, 99)\ntime.sleep(99)"), ["still ran after 1 s"]),
}


@pytest.mark.parametrize("name", FAILURES)
def test_a_failure_names_the_snippet_and_its_last_lines(either, name):
    code, expected = FAILURES[name]
    limit = 60 if "tensor" in name and either.runner._starter.__class__ is runner.Plain else 1  # importing torch
    started = time.monotonic()
    with pytest.raises(RunFailed) as caught:
        either.run(f"fail/{name}", code, f"gpus = [0]\ntimeout = {limit}")
    message = str(caught.value)
    assert message.startswith(f"snippets/fail/{name}.py ")
    assert "on the CPU" in message
    for part in expected:
        assert part in message
    assert time.monotonic() - started < 20


def test_a_failure_says_how_to_run_it_alone_unless_it_just_ran_so(lab):
    bad = [(lab.snippet(f"fail/{name}", main("raise ValueError('boom')")), 0) for name in ("one", "two")]
    assert [str(failure).splitlines()[-1].strip() for failure in lab.runner.run_all(bad)] == [
        "Run it alone: overlap run fail/one",
        "Run it alone: overlap run fail/two",
    ]
    assert str(lab.runner.run_all(bad[1:])[0]).endswith("Run it alone: PYTHONPATH=. python snippets/fail/two.py")


def test_output_is_cut_in_a_failure(lab):
    with pytest.raises(RunFailed) as caught:
        lab.run("fail/long", main("print('x' * 9000)\nfor i in range(50):\n    print(i)\nraise ValueError"))
    assert len(str(caught.value)) < 5000


def test_streams_are_caught_at_the_file_descriptors(either):
    made = either.run(
        "out/descriptors",
        main("""
print("python out"); print("python err", file=sys.stderr)
os.write(1, b"fd out\\n"); os.write(2, b"fd err\\n")
subprocess.run("echo child out; echo child err >&2", shell=True)
print(repr(sys.stdin.read()))
return {"cwd": os.listdir("."), "argv": len(sys.argv), "cuda": os.environ["CUDA_VISIBLE_DEVICES"]}
"""),
    )
    assert text(made) == "python out\nfd out\nchild out\n''\n"
    assert text(made, "stderr") == "python err\nfd err\nchild err\n"
    assert made["result"] == {"cwd": [], "argv": 1, "cuda": ""}


def test_a_flood_is_cut_with_a_note_and_costs_neither_time_nor_memory(either):
    before, started = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.monotonic()
    made = either.run("out/flood", main("for _ in range(100):\n    os.write(1, b'x' * 999_999 + b'\\n')\nreturn {}"))
    assert time.monotonic() - started < 15
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 30_000  # KiB
    assert len(text(made)) < 70_000
    assert "\n[… 99,934,464 bytes of output left out …]\n" in text(made)


def test_what_is_printed_stays_as_it_is(either):
    said = "<script>alert(1)</script>\x1b[31mred\x1b[0m\r10 %\r100 %\u2028end"
    made = either.run("out/odd", main(f"print({said!r})\nos.write(1, b'\\xff\\xfe broken\\n')\nreturn {{}}"))
    assert text(made) == f"{said}\n\ufffd\ufffd broken\n"


def test_capture_keeps_both_ends():
    capture = Capture()
    for chunk in (b"", b"a" * 10, b"b" * runner.HEAD, b"c" * runner.TAIL, b"end"):
        capture.add(chunk)
    kept = capture.text()
    assert kept.startswith("a" * 10 + "b") and kept.endswith("cend") and "13 bytes" in kept


SLEEPER = "[sys.executable, '-c', 'import time; time.sleep(300)', {marker!r}]"
LEFTOVERS = {
    "child": "subprocess.Popen({sleeper}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)",
    "holds_the_pipe": "subprocess.Popen({sleeper})",
    "own_session": "subprocess.Popen({sleeper}, start_new_session=True)",
    "daemon": """
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execv(sys.executable, {sleeper})
    os._exit(0)
os.wait()
""",
    "stubborn": "subprocess.Popen(['sh', '-c', 'trap \"\" TERM HUP INT; sleep 300; sleep 300', {marker!r}])",
}


@pytest.mark.parametrize(
    ("name", "ending"),
    [(name, "return {}") for name in LEFTOVERS]
    + [(name, ending) for name in ("daemon", "stubborn") for ending in ("time.sleep(99)", "os.kill(os.getpid(), 9)")],
)
def test_no_process_is_left_behind(lab, name, ending):
    marker = f"marker-{uuid.uuid4()}"
    body = LEFTOVERS[name].replace("{sleeper}", SLEEPER).format(marker=marker)
    code = main(f"{body}\nprint('begun', flush=True)\n{ending}")
    started = time.monotonic()
    if ending == "return {}":
        assert text(lab.run("left/over", code)) == "begun\n"
    else:
        with pytest.raises(RunFailed, match="begun"):
            lab.run("left/over", code, "gpus = [0]\ntimeout = 2")
    assert time.monotonic() - started < 10
    assert not alive(marker)


@pytest.mark.parametrize("name", ["child", "holds_the_pipe", "stubborn"])
@pytest.mark.parametrize("ending", ["return {}", "time.sleep(99)", "os.kill(os.getpid(), 9)"])
def test_no_process_of_the_group_is_left_behind_by_a_plain_process(plain, name, ending):
    test_no_process_is_left_behind(plain, name, ending)


def test_ranks_of_a_plain_torchrun_are_not_left_behind(plain):
    marker = f"marker-{uuid.uuid4()}"
    code = main(f"open({str(plain.root / 'begun')!r}, 'w').close()\nos.execv('/bin/sleep', ['{marker}', '99'])")
    limit = RANKS_S * 2 // 3
    signal.alarm(5 * limit)
    with pytest.raises(RunFailed, match=f"still ran after {limit} s"):
        plain.runner.run(torchrun(plain, "left/ranks", code, ranks=1, timeout=limit), 0)
    assert (plain.root / "begun").exists() and not alive(marker)


def test_a_child_that_ends_by_itself_may_finish_its_sentence(either):
    made = either.run("left/soon", main("subprocess.Popen('sleep 0.1; echo late', shell=True)\nreturn {}"))
    assert text(made) == "late\n"


SPAN = main("start = time.time()\ntime.sleep(0.4)\nreturn {'span': [start, time.time()]}")


def overlaps(a: list, b: list) -> bool:
    return a[0] < b[1] and b[0] < a[1]


def test_measurements_run_alone_and_the_rest_side_by_side(lab):
    wanted = []
    for i, exclusive in zip("abcdef", ["true", "false", "true", "false", "true", "false"], strict=True):
        wanted.append((lab.snippet(f"side/{i}", SPAN, f"gpus = [0]\nexclusive = {exclusive}"), 0))
    spans = {}
    assert (
        lab.runner.run_all(wanted, lambda snippet, gpus, made: spans.update({snippet.name[-1]: made["result"]["span"]}))
        == []
    )
    assert sorted(spans) == list("abcdef")
    for one in "ace":
        assert not any(overlaps(spans[one], spans[other]) for other in spans if other != one)
    assert any(overlaps(spans[a], spans[b]) for a, b in ("bd", "bf", "df"))


@pytest.mark.parametrize("exclusive", ["true", "false"])
def test_one_failure_does_not_stop_the_others(lab, exclusive):
    options, done = f"gpus = [0]\nexclusive = {exclusive}", []
    wanted = [
        (lab.snippet("some/bad", main("raise ValueError('boom')"), options), 0),
        (lab.snippet("some/good", options=options), 0),
    ]
    failures = lab.runner.run_all(wanted, lambda snippet, gpus, made: done.append(snippet.name))
    assert done == ["some/good"]
    assert ["boom" in str(failure) for failure in failures] == [True]


def test_who_stops_a_record_still_hears_what_had_failed(lab):
    wanted = [(lab.snippet("early/bad", main("raise ValueError('boom')")), 0), (lab.snippet("early/good"), 0)]
    failures = []

    def stop(*made):
        raise KeyboardInterrupt

    with Runner(lab.root) as own, pytest.raises(KeyboardInterrupt):
        own.run_all(wanted, stop, failures=failures)
    assert ["boom" in str(failure) for failure in failures] == [True]


RANK = main(
    """
print("rank", os.environ["RANK"], "of", os.environ["WORLD_SIZE"])
print("err", file=sys.stderr)
os.write(1, b"raw\\n")
dist.init_process_group("gloo")
total = torch.ones(1)
dist.all_reduce(total)
dist.destroy_process_group()
return {"sum": total.item(), "rank": os.environ["RANK"]}
""",
    "import os, sys\nimport torch\nimport torch.distributed as dist",
)


def torchrun(lab, name: str, code: str = RANK, gpus: list[int] = (0,), **options):
    """A snippet for torchrun; its header asks for two GPUs before its options are changed."""
    snippet = lab.snippet(name, code, 'gpus = [2]\nlauncher = "torchrun"')
    snippet.options.update(gpus=list(gpus), **options)
    return snippet


def test_two_ranks_on_the_cpu_sum_over_both(either):
    made = either.runner.run(torchrun(either, "rank/cpu", ranks=2), 0)
    assert made["result"] == {"sum": 2.0, "rank": "0"}
    assert made["run"]["command"] == "torchrun --nproc-per-node 2 snippets/rank/cpu.py"
    assert {output["rank"] for output in made["outputs"]} == {0, 1}


def test_torchrun_on_the_cpu_asks_for_a_number_of_ranks(lab):
    with pytest.raises(OverlapError, match=r"snippets/rank/cpu.py: torchrun on the CPU needs .*add `ranks = 2`"):
        lab.runner.run(torchrun(lab, "rank/cpu"), 0)


@pytest.mark.parametrize(
    ("options", "gpus", "count", "line"),
    [
        ({"launcher": "python"}, 0, 1, "python f.py"),
        ({"launcher": "python"}, None, 1, "python f.py"),
        ({"gpus": [2, 4]}, 4, 4, "torchrun --nproc-per-node 4 f.py"),
        ({"gpus": [2, 4]}, None, None, "torchrun --nproc-per-node gpu f.py"),
        ({"gpus": [0, 2], "ranks": 3}, 0, 3, "torchrun --nproc-per-node 3 f.py"),
        ({"gpus": [0, 2], "ranks": 3}, 2, 2, "torchrun --nproc-per-node 2 f.py"),
        ({"gpus": [0, 2], "ranks": 3}, None, None, "torchrun --nproc-per-node 3 f.py"),
    ],
)
def test_what_a_reader_types(lab, options, gpus, count, line):
    snippet = torchrun(lab, "rank/typed", **options)
    assert runner.command(snippet, "f.py", gpus) == line
    assert count is None or runner.ranks(snippet, gpus or 0) == count


def test_two_ranks(lab, monkeypatch):
    """A machine of two GPUs, as far as the runner knows; the snippet itself uses none."""
    gpu = {"name": "NVIDIA H200", "memory_bytes": 1, "capability": "9.0"}
    probed = {
        "machine": lab.runner.probe(0)["machine"] | {"gpus": [gpu, gpu]},
        "software": lab.runner.probe(0)["software"],
    }
    monkeypatch.setitem(lab.runner._probes, 2, probed)
    made = lab.runner.run(lab.snippet("rank/two", RANK, 'gpus = [2]\nlauncher = "torchrun"'), 2)
    assert [(o["rank"], o["name"], "".join(o["text"])) for o in made["outputs"]] == [
        (0, "stdout", "rank 0 of 2\nraw\n"),
        (0, "stderr", "err\n"),
        (1, "stdout", "rank 1 of 2\nraw\n"),
        (1, "stderr", "err\n"),
    ]
    assert (made["profile"], made["result"]) == ("h200-x2", {"sum": 2.0, "rank": "0"})


def test_a_failing_rank_is_reported(lab):
    with pytest.raises(RunFailed, match="boom") as caught:
        lab.runner.run(torchrun(lab, "rank/bad", main("raise ValueError('boom')"), ranks=1), 0)
    assert str(caught.value).startswith("snippets/rank/bad.py failed with exit code 1")


#: Two ranks, of which the second fails; alone, or while the other waits for it in a collective.
ALONE = """
import os
import signal
import sys
import time


def main():
    print(os.environ["MARKER"], "joined", os.environ["RANK"], flush=True)
    if os.environ["RANK"] == "1":
        {body}
    return {{}}
"""
JOINED = ALONE.replace("import time\n", "import time\n\nimport torch\nimport torch.distributed as dist\n")
JOINED = JOINED.replace("main():\n", "main():\n    dist.init_process_group('gloo')\n")
JOINED = JOINED.replace("    return", "    dist.all_reduce(torch.ones(1))\n    return")
LATE = r"still ran after \d+ s and was stopped .*, in rank (0 and )?1, on the CPU"
FLOOD = "os.write({}, b'flood' * 9999 + bytes([10]))"
#: What that rank does, what is said, and its last lines.
RANKS = {
    "dies": ("os.kill(os.getpid(), signal.SIGKILL)", "was killed by signal 9, in rank 1, on the CPU", "joined 1"),
    "leaves": ("sys.exit(7)", "failed with exit code 7, in rank 1, on the CPU", "joined 1"),
    "raises": ("raise ValueError('boom')", "failed with exit code 1, in rank 1, on the CPU", "ValueError: boom"),
    "hangs": ("time.sleep(999)", LATE, "joined 1"),
    "floods": (f"while True: {FLOOD.format(1)}", LATE, "flood"),
    "floods_and_dies": (f"[{FLOOD.format(2)} for _ in range(9999)]; sys.exit(7)", "exit code 7, in rank 1", "flood"),
}
#: Seconds that such a run may take, several times as long where the machine has other work.
RANKS_S = int(12 * float(os.environ.get("OVERLAP_PATIENCE", "1")))


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        ("dies", ALONE),
        *(pytest.param(fault, JOINED, marks=pytest.mark.slow, id=f"{fault}-joined") for fault in RANKS),
    ],
)
def test_a_rank_that_fails_ends_the_run_and_is_named(lab, fault, code, monkeypatch, tmp_path):
    """Within the limit; its last lines are shown, nothing is left, and what it prints fills no disk."""
    signal.alarm(20 * RANKS_S)
    (body, why, last), marker = RANKS[fault], f"marker-{uuid.uuid4()}"
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setenv("MARKER", marker)
    monkeypatch.setattr(tempfile, "tempdir", None)
    with Runner(lab.root) as own:
        own.probe(0)
        started, sizes = time.monotonic(), []
        watching = threading.Thread(target=lambda: sizes.append(most(tmp_path, lambda: not sizes)))
        watching.start()
        try:
            with pytest.raises(RunFailed) as caught:
                own.run(torchrun(lab, f"rank/{fault}", code.format(body=body), ranks=2, timeout=RANKS_S), 0)
        finally:
            took = time.monotonic() - started
            sizes.append(0)
            watching.join()
        assert list(tmp_path.glob("*/*")) == []
    first, *rest = str(caught.value).splitlines()
    assert re.search(why, first)
    assert any(line.startswith("    rank 1: ") and last in line for line in rest)
    assert took < RANKS_S * 1.3 and max(sizes) < 10 << 20
    assert not alive(marker) and list(tmp_path.iterdir()) == []


def most(folder: Path, going) -> int:
    """The most bytes that lie in a folder while it is going."""
    found = 0
    while going():
        with contextlib.suppress(OSError):
            found = max(found, sum(path.lstat().st_size for path in folder.rglob("*")))
        time.sleep(0.1)
    return found


def test_spawned_processes_find_the_functions_of_the_snippet(either):
    made = either.run(
        "spawn/pool",
        "import multiprocessing\n\n\ndef square(n):\n    return n * n\n\n\ndef main():\n"
        "    with multiprocessing.get_context('spawn').Pool(1) as pool:\n        return {'squares': pool.map(square, [2, 3])}\n\n\n"
        "if __name__ == '__main__':\n    main()\n",
    )
    assert made["result"] == {"squares": [4, 9]}


COMMON = """
import atexit
from dataclasses import dataclass

import matplotlib.pyplot as plt
import torch


@dataclass
class Point:
    x: int


def main():
    atexit.register(print, "bye", Point(1))
    plt.figure().savefig("picture.png")
    product = torch.ones(300, 300) @ torch.ones(300, 300)
    return {"sum": product.sum().item(), "backend": plt.get_backend().lower()}
"""


def test_common_modules_work(either):
    pytest.importorskip("matplotlib")
    made = either.run("common/modules", COMMON)
    assert made["result"] == {"sum": 27_000_000.0, "backend": "agg"}
    assert text(made) == "bye Point(x=1)\n"


def test_a_snippet_ends_what_it_began_and_not_what_torch_began(lab):
    code = (
        "global kept\nkept = type('Kept', (), {})()\ntheirs = sum(each.atexit for each in weakref.finalize._registry)\n"
    )
    made = lab.run(
        "ends/own", main(code + "weakref.finalize(kept, print, 'ended')\nreturn {'n': theirs}", "import weakref")
    )
    assert (made["result"], text(made)) == ({"n": 0}, "ended\n")


def test_a_snippet_uses_the_helper(either):
    either.snippet("timing/benchmark", "def measure():\n    return 42\n\n\ndef main():\n    return {}\n")
    made = either.run(
        "helped/user", "from snippets.timing.benchmark import measure\n\n\ndef main():\n    return {'n': measure()}\n"
    )
    assert made["result"] == {"n": 42}
    assert set(made["inputs"]) == {"snippets/timing/benchmark.py"}


def test_a_recording_tells_no_local_paths(lab):
    code = main("print(os.getcwd(), __file__)\nwarnings.warn('look out')\nreturn {}", "import os, warnings")
    for made in (lab.run("local/paths", code), lab.runner.run(torchrun(lab, "local/paths", code, ranks=1), 0)):
        assert text(made).endswith("snippets/local/paths.py\n")
        assert re.search(r"snippets/local/paths.py:\d+: UserWarning: look out", text(made, "stderr"))
        for path in (str(lab.root), "overlap-", "/tmp"):
            assert path not in str(made)


def test_gpus_that_are_not_there(lab):
    message = r"snippets/no/gpu.py: asked for 3 GPU\(s\), and torch 2\S+ sees 0; install a torch that fits"
    with pytest.raises(OverlapError, match=message):
        lab.runner.run(lab.snippet("no/gpu", options="gpus = [3]"), 3)


def test_a_python_that_cannot_start_a_nursery(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with Runner(tmp_path) as broken:
        for _ in range(3):
            with pytest.raises(OverlapError, match=r"`/bin/false -m .*` ended with exit code 1 before it began"):
                broken.probe(0)


@pytest.mark.parametrize("possible", [True, False])
def test_a_python_without_torch(tmp_path, monkeypatch, possible):
    (tmp_path / "torch.py").write_text("raise ImportError('libfoo.so is missing')\n")
    monkeypatch.setattr(Nursery, "possible", lambda: possible)
    with Runner(tmp_path) as broken, pytest.raises(OverlapError) as caught:
        broken.probe(0)
    expected = f"    {sys.executable} cannot `import torch`: ImportError: libfoo.so is missing"
    assert str(caught.value) == f"cannot tell what this machine is:\n{expected}"


def test_a_snippet_that_kills_its_supervisor(lab):
    marker = f"marker-{uuid.uuid4()}"
    sleeper = f"subprocess.Popen({SLEEPER.format(marker=marker)}, start_new_session=True)"
    snippet = lab.snippet("fail/supervisor", main(f"{sleeper}\nos.kill(os.getppid(), 9)\ntime.sleep(30)\nreturn {{}}"))
    with Runner(lab.root) as own:
        own.probe(0)
        started = time.monotonic()
        with pytest.raises(RunFailed, match=r"snippets/fail/supervisor.py ended without a word: the process that wat"):
            own.run(snippet, 0)
        assert time.monotonic() - started < 3
        assert own.run(lab.snippet("fail/next"), 0)["result"] == {"n": 3}
    assert not alive(marker)


KILLS_THE_NURSERY = """
with open(f"/proc/{os.getppid()}/stat") as stat:
    nursery = int(stat.read().rpartition(")")[2].split()[1])
os.kill(nursery, 9)
time.sleep(30)
return {}
"""


def test_a_snippet_that_kills_the_nursery_does_not_stop_the_others(lab):
    done, options = [], "gpus = [0]\nexclusive = false"
    codes = {"kills": main(KILLS_THE_NURSERY), "beside": main("time.sleep(0.5)\nreturn {}"), "after": main("return {}")}
    wanted = [(lab.snippet(f"nursery/{name}", code, options), 0) for name, code in codes.items()]
    with Runner(lab.root) as own:
        failures = own.run_all(wanted, lambda snippet, gpus, made: done.append(snippet.name))
    assert ["snippets/nursery/kills.py ended without a word" in str(failure) for failure in failures] == [True]
    assert sorted(done) == ["nursery/after", "nursery/beside"]


@pytest.mark.parametrize("possible", [True, False])
@pytest.mark.parametrize("exclusive", ["true", "false"])
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_stop_ends_all_that_runs_at_once(tmp_path, monkeypatch, possible, exclusive, number, code):
    book, marker = SmallBook(tmp_path / "book"), f"marker-{uuid.uuid4()}"
    sleeper = f"subprocess.Popen({SLEEPER.format(marker=marker)})"
    for name in "xy":
        book.snippet(f"stop/{name}", main(f"{sleeper}\ntime.sleep(99)"), f"gpus = [0]\nexclusive = {exclusive}")
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    force = "" if possible else "import socket; del socket.SOCK_SEQPACKET; "
    line = f"{force}import sys; from overlap.__main__ import main; sys.exit(main(['run']))"
    run = subprocess.Popen([sys.executable, "-c", line], cwd=book.root, stderr=subprocess.PIPE, stdout=subprocess.PIPE)
    wait_until(lambda: alive(marker), 30)
    started = time.monotonic()
    run.send_signal(number)
    out, err = run.communicate()
    assert (run.returncode, out, err) == (code, b"", b"")
    assert time.monotonic() - started < 5
    assert not alive(marker) and not alive(str(tmp_path)) and not list((tmp_path / "tmp").iterdir())


def test_when_the_build_dies_its_runs_die(lab, tmp_path):
    """A runner killed with SIGKILL takes the nursery, and that one its jobs, with it."""
    marker = f"marker-{uuid.uuid4()}"
    lab.snippet("left/orphan", main(f"subprocess.Popen({SLEEPER.format(marker=marker)})\ntime.sleep(99)"))
    code = """
import sys
from pathlib import Path
from overlap.run.runner import Runner
from overlap.run.snippet import Snippet
root = Path(sys.argv[1])
Runner(root).run(Snippet.read(root, "left/orphan"), 0)
"""
    build = subprocess.Popen([sys.executable, "-c", code, str(lab.root)])
    wait_until(lambda: alive(marker), 30)
    build.kill()
    build.wait()
    wait_until(lambda: not alive(marker), 10)


GONE_MEANWHILE = """
import os, socket, sys, time
from overlap.run import nursery
forked, fork, children = [], os.fork, nursery._children

def forks():
    if pid := fork():
        forked.append(pid)
    return pid

def listed():
    found = children()
    while forked:
        found.append(forked.pop())
        while os.path.exists(f"/proc/{found[-1]}"):
            time.sleep(0.01)
    return found

os.fork, nursery._children = forks, listed
nursery.serve(socket.socket(fileno=int(sys.argv[1])), sys.argv[2:])
"""


@pytest.mark.skipif(sys.platform != "linux", reason="where there is a nursery")
def test_a_job_that_ends_while_the_nursery_looks_for_it_leaves_nothing(tmp_path):
    """Its supervisor is listed as running, and is gone when it is to be told."""
    folder = tmp_path / "folder"
    folder.mkdir()
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs, ours, open(os.devnull, "w") as nothing:
        nursery = subprocess.Popen(
            [sys.executable, "-c", GONE_MEANWHILE, str(theirs.fileno()), str(folder)],
            pass_fds=[theirs.fileno()],
            stderr=subprocess.PIPE,
            text=True,
        )
        socket.send_fds(ours, [f"snippet {tmp_path}/no.json".encode()], [nothing.fileno()] * 3)
    _, said = nursery.communicate(timeout=60)
    assert nursery.returncode == 0 and "ProcessLookupError" not in said
    assert not folder.exists()


def wait_until(condition, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


PLOT = """
def plot(results, ceilings):
    import matplotlib.pyplot as plt
    figure, axes = plt.subplots()
    axes.plot([1, 2], [results["n"], ceilings.get("top", 0)], label="line")
    return figure


def main():
    return {"n": 3}
"""


CALLS = {
    "import time\ntime.sleep(9)": "was stopped after 1 s",
    "import sys\nsys.exit(0)": "gave nothing",
    "pass": "gave nothing",
    "import sys\nsys.exit('no')": r"failed with exit code 1.*\n    no$",
    "return object()": "failed with exit code 1.*not JSON serializable",
    "import os\nos.kill(os.getpid(), 9)": "was killed by signal 9",
}


@pytest.mark.parametrize("body", CALLS)
def test_a_call_that_gives_nothing_is_an_error(either, body):
    (either.root / "calls.py").write_text("def give(module, **more):\n    return module.give(**more)\n")
    snippet = either.snippet("call/bad", main(body).replace("main()", "give(n)") + main("return {}"))
    with pytest.raises(RunFailed, match=rf"(?s)^snippets/call/bad.py: calls:give {CALLS[body]}"):
        either.runner.call("calls:give", snippet, 1, n=1)


def test_matplotlib_is_imported_by_the_first_call_only(lab):
    modules = "import sys\n\n\ndef main():\n    return {'n': 'matplotlib' in sys.modules}\n"
    with Runner(lab.root) as own:
        snippet = lab.snippet("call/modules", modules)
        assert own.run(snippet, 0)["result"] == {"n": False}
        assert own.call("builtins:bool", snippet) is True
        assert own.run(snippet, 0)["result"] == {"n": True}


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("terminal", "rich"), [(True, True), (True, False), (False, True)])
def test_progress(lab, template, monkeypatch, terminal, rich):
    """A bar on a terminal, where rich is installed, else a line per snippet with an estimate from recordings."""
    monkeypatch.setattr(sys, "stderr", Terminal() if terminal else io.StringIO())
    if not rich:
        monkeypatch.setitem(sys.modules, "rich.console", None)
    bad = lab.snippet("progress/bad", main("raise ValueError"))
    lab.commit("progress/bad", template, run=template["run"] | {"seconds": 200})
    wanted = [(lab.snippet(f"progress/{name}"), 0) for name in ("good", "new")]
    assert len(lab.runner.run_all([wanted[0], (bad, 0), wanted[1]])) == 1
    if terminal and rich:
        assert "3/3" in sys.stderr.getvalue() and "progress/good: " not in sys.stderr.getvalue()
    else:
        first, second, third = sys.stderr.getvalue().splitlines()
        assert re.fullmatch(r"1/3 progress/good: 0\.\d s, about 5 min left", first)
        assert re.fullmatch(r"2/3 progress/bad: failed, about 100 s left", second) or "2 min left" in second
        assert re.fullmatch(r"3/3 progress/new: 0\.\d s", third)


def test_provenance(lab):
    made = lab.run("any/run")
    assert made["machine"].keys() >= {"gpus", "host_gpus", "driver", "links", "cpu", "cores", "system"}
    assert made["software"].keys() >= {
        "python",
        "torch",
        "torch_git",
        "cuda",
        "cudnn",
        "nccl",
        "triton",
        "numpy",
        "pycuda",
    }
    assert made["run"].keys() == {"command", "started", "seconds", "exit"}
    assert made["source"].keys() == {"path", "sha256"}
    assert made["profile"] == "cpu" and made["machine"]["gpus"] == []
    assert made["machine"]["cores"] == machine.here()["cores"] == len(os.sched_getaffinity(0))
