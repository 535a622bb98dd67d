"""Runs: what is caught, what is contained, what a failure says, and that nothing is left behind."""

import os
import re
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Sequence
from pathlib import Path

import pytest
from conftest import LIMIT_S, SmallBook

from overlap import OverlapError
from overlap.run import runner, worker
from overlap.run.noise import is_disturbed
from overlap.run.runner import Interrupted, RunFailed, Runner, grouped

pytestmark = pytest.mark.usefixtures("on_cpu")
#: Seconds after which a snippet that hangs is stopped. It must have begun by then: on a machine with other
#: work that takes several times as long.
PATIENCE = float(os.environ.get("OVERLAP_PATIENCE", "1"))
HANGS_S, RANKS_S = int(4 * PATIENCE), int(15 * PATIENCE)


def main(body: str, imports: str = "import os, subprocess, sys, time") -> str:
    """A snippet whose main() has these lines."""
    return f"{imports}\n\n\ndef main():\n" + "".join(
        f"    {line}\n" for line in body.strip("\n").splitlines()
    )


def text(recording: dict, name: str = "stdout") -> str:
    return "".join("".join(output["text"]) for output in recording["outputs"] if output["name"] == name)


def alive(marker: str) -> list[bytes]:
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
    "hangs": (
        main("print('begun')\nwhile True:\n    time.sleep(1)"),
        [
            f"still ran after {HANGS_S} s and was stopped"
            f" (if it needs longer, raise `timeout = {HANGS_S}` in its header)",
            "begun",
        ],
    ),
    "killed": (main("print('begun')\nos.kill(os.getpid(), 9)"), ["was killed by signal 9", "begun"]),
    "stops": (main("sys.exit('no luck today')"), ["failed with exit code 1", "no luck today"]),
    "returns_none": (main("pass"), ["returned no dict from main()"]),
    "returns_tensor": (
        main("return {'x': torch.ones(2)}", "import torch"),
        [
            "failed with exit code 1",
            "the result of main()['x'] is no plain data: ",
            "type Tensor is not JSON serializable",
        ],
    ),
    "returns_nan": (
        main("return {'rows': [{'ms': 1.0}, {'ms': float('nan')}]}"),
        ["the result of main()['rows'][1]['ms'] is no plain data: Out of range float values"],
    ),
}


@pytest.mark.parametrize("name", FAILURES)
def test_a_failure_names_the_snippet_and_its_last_lines(lab, name):
    code, expected = FAILURES[name]
    limit_s = HANGS_S if name == "hangs" else LIMIT_S
    with pytest.raises(RunFailed) as caught:
        lab.run(f"fail/{name}", code, f"gpus = [0]\ntimeout = {limit_s}")
    message = str(caught.value)
    assert message.startswith(f"snippets/fail/{name}.py ")
    assert "on the CPU" in message
    for part in expected:
        assert part in message


def test_streams_are_caught_at_the_file_descriptors(lab):
    made = lab.run(
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


def test_what_is_long_is_cut_with_a_note(lab):
    made = lab.run(
        "out/long", main("for _ in range(100):\n    os.write(1, b'x' * 999_999 + b'\\n')\nreturn {}")
    )
    assert len(text(made)) < 70_000
    assert "\n[… 99,934,464 characters of output left out …]\n" in text(made)


SLEEPER = "[sys.executable, '-c', 'import time; time.sleep(9999)', {marker!r}]"
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
    "stubborn": "subprocess.Popen(['sh', '-c', 'trap \"\" TERM HUP INT; sleep 999; sleep 9999', {marker!r}])",
}


@pytest.mark.parametrize(
    ("name", "ending"),
    [(name, "return {}") for name in LEFTOVERS]
    + [
        (name, ending)
        for name in ("daemon", "stubborn")
        for ending in ("time.sleep(9999)", "os.kill(os.getpid(), 9)")
    ],
)
def test_no_process_is_left_behind(lab, name, ending):
    marker = f"marker-{uuid.uuid4()}"
    body = LEFTOVERS[name].replace("{sleeper}", SLEEPER).format(marker=marker)
    code = main(f"{body}\nprint('begun', flush=True)\n{ending}")
    if ending == "return {}":
        assert text(lab.run("left/over", code)) == "begun\n"
    else:
        with pytest.raises(RunFailed, match="begun"):
            lab.run("left/over", code, f"gpus = [0]\ntimeout = {HANGS_S}")
    assert not alive(marker)


#: The child has long begun when it is told to speak, and then `main` returns.
SOON = """
child = subprocess.Popen(
    "echo up >&2; read word; echo late", shell=True, stdin=subprocess.PIPE, stderr=subprocess.PIPE
)
child.stderr.readline()
child.stdin.write(b"now\\n")
child.stdin.flush()
return {}
"""


def test_a_child_that_ends_by_itself_may_finish_its_sentence(lab):
    made = lab.run("left/soon", main(SOON))
    assert text(made) == "late\n"


#: What runs alone takes a while; the others wait for one another: two of them must run at once.
SPANS = {
    "true": "time.sleep(0.2)",
    "false": """
open(f"{folder}/{start}", "w").close()
while len(os.listdir("{folder}")) < 2:
    time.sleep(0.01)
""",
}


def overlaps(a: list, b: list) -> bool:
    return a[0] < b[1] and b[0] < a[1]


def test_measurements_run_alone_and_the_rest_side_by_side(lab, tmp_path):
    wanted = []
    for i, exclusive in zip("abcdef", ["true", "false", "true", "false", "true", "false"], strict=True):
        body = SPANS[exclusive].replace("{folder}", str(tmp_path)).replace("{start}", i)
        code = main(f"start = time.time()\n{body}\nreturn {{'span': [start, time.time()]}}")
        options = f"gpus = [0]\nexclusive = {exclusive}\ntimeout = {int(60 * PATIENCE)}"
        wanted.append((lab.snippet(f"side/{i}", code, options), 0))
    spans = {}
    assert (
        lab.runner.run_all(
            wanted, lambda snippet, gpus, made: spans.update({snippet.name[-1]: made["result"]["span"]})
        )
        == []
    )
    assert sorted(spans) == list("abcdef")
    for one in "ace":
        assert not any(overlaps(spans[one], spans[other]) for other in spans if other != one)
    assert any(overlaps(spans[a], spans[b]) for a, b in (("b", "d"), ("b", "f"), ("d", "f")))


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


def test_what_fails_for_one_reason_is_told_once(lab):
    bodies = ["raise RuntimeError('no kernel')"] * 6 + ["assert 1 == 2, 'two'"] * 2 + ["raise KeyError"]
    options = "gpus = [0]\nexclusive = false"
    wanted = [(lab.snippet(f"alike/s{i}", main(body), options), 0) for i, body in enumerate(bodies)]
    texts = grouped(lab.runner.run_all(wanted))
    assert len(texts) == 4, texts
    (alike,) = [text for text in texts if "no kernel" in text]
    assert re.search(r"\n  The same reason: (snippets/alike/s\d.py, ){3}\S+ and 1 more$", alike)
    assert sum("AssertionError: two" in text for text in texts) == 2, "what is asserted is a snippet's own"


def test_gpus_that_torch_does_not_see_are_one_reason(lab):
    wanted = [(lab.snippet(f"unseen/s{i}", options="gpus = [3]"), 3) for i in range(5)]
    (text,) = grouped(lab.runner.run_all(wanted))
    assert text.count("asked for 3 GPUs, and torch") == 1 and "s4.py" in text


@pytest.mark.usefixtures("noisy")
def test_others_are_seen_while_a_measurement_runs(lab):
    code = "print(flush=True)\nwhile True: pass"
    command = [sys.executable, "-c", code]
    others = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(os.cpu_count())]
    try:
        for other in others:
            other.stdout.readline()  # it is at work
        made = lab.run("busy/sleep", main("time.sleep(1)\nreturn {}"))
    finally:
        for other in others:
            other.kill()
            other.communicate()
    noise = made["run"]["noise"]
    assert noise["others"] > 0.5 and is_disturbed(noise, made["machine"]["cores"])
    assert "noise" not in lab.run("busy/beside", options="gpus = [0]\nexclusive = false")["run"]


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


def torchrun(lab, name: str, code: str = RANK, gpus: Sequence[int] = (0,), **options):
    """A snippet for torchrun; its header asks for two GPUs before its options are changed."""
    snippet = lab.snippet(name, code, 'gpus = [2]\nlauncher = "torchrun"')
    snippet.options.update(gpus=list(gpus), **options)
    return snippet


def test_two_ranks_on_the_cpu_sum_over_both(lab):
    made = lab.runner.run(torchrun(lab, "rank/cpu", ranks=2), 0)
    assert made["result"] == {"sum": 2.0, "rank": "0"}
    assert made["run"]["command"] == "torchrun --nproc-per-node 2 snippets/rank/cpu.py"
    assert {output["rank"] for output in made["outputs"]} == {0, 1}


@pytest.mark.parametrize(
    ("options", "gpus", "count", "line"),
    [
        ({"launcher": "python"}, None, 1, "python f.py"),
        ({"gpus": [2, 4]}, 4, 4, "torchrun --nproc-per-node 4 f.py"),
        ({"gpus": [2, 4]}, None, None, "torchrun --nproc-per-node gpu f.py"),
        ({"gpus": [0, 2], "ranks": 3}, 0, 3, "torchrun --nproc-per-node 3 f.py"),
        ({"gpus": [0, 2], "ranks": 3}, None, None, "torchrun --nproc-per-node 3 f.py"),
    ],
)
def test_what_a_reader_types(lab, options, gpus, count, line):
    snippet = torchrun(lab, "rank/typed", **options)
    assert runner.command(snippet, "f.py", gpus) == line
    assert count is None or runner.ranks(snippet, gpus or 0) == count


#: What the second of two ranks does, how the run ends, and what is said.
RANKS = {
    "dies": ("os.kill(os.getpid(), 9)", "failed with exit code 1, on the CPU", "Signal 9 (SIGKILL)"),
    "raises": (
        "raise ValueError('boom')",
        "failed with exit code 1, on the CPU",
        "    rank 1: ValueError: boom",
    ),
    "hangs": ("time.sleep(999)", r"still ran after \d+ s and was stopped", "    rank 1: joined 1"),
}
SECOND = """
print("joined", os.environ["RANK"], flush=True)
if os.environ["RANK"] == "1":
    marker = "{marker}"
    {body}
return {{}}
"""


@pytest.mark.parametrize("fault", RANKS)
def test_a_rank_that_fails_ends_the_run_and_says_why(lab, fault):
    body, why, last = RANKS[fault]
    marker = f"marker-{uuid.uuid4()}"
    limit_s = RANKS_S if fault == "hangs" else LIMIT_S
    snippet = torchrun(
        lab, f"rank/{fault}", main(SECOND.format(body=body, marker=marker)), ranks=2, timeout=limit_s
    )
    with pytest.raises(RunFailed) as caught:
        lab.runner.run(snippet, 0)
    first, *rest = str(caught.value).splitlines()
    assert re.search(why, first)
    assert any(last in line for line in rest)
    assert not alive(f"rank/{fault}.py")


def test_spawned_processes_find_the_functions_of_the_snippet(lab):
    made = lab.run(
        "spawn/pool",
        "import multiprocessing\n\n\ndef square(n):\n    return n * n\n\n\ndef main():\n"
        "    with multiprocessing.get_context('spawn').Pool(1) as pool:\n"
        "        return {'squares': pool.map(square, [2, 3])}\n\n\n"
        "if __name__ == '__main__':\n    main()\n",
    )
    assert made["result"] == {"squares": [4, 9]}


def test_a_recording_tells_no_local_paths(lab):
    code = main("print(os.getcwd(), __file__)\nwarnings.warn('look out')\nreturn {}", "import os, warnings")
    for made in (
        lab.run("local/paths", code),
        lab.runner.run(torchrun(lab, "local/paths", code, ranks=1), 0),
    ):
        assert text(made).endswith("snippets/local/paths.py\n")
        assert re.search(r"snippets/local/paths.py:\d+: UserWarning: look out", text(made, "stderr"))
        for path in (str(lab.root), "overlap-", "/tmp"):
            assert path not in str(made)


@pytest.fixture
def server(monkeypatch):
    """A fork server of its own."""
    server = worker.ForkServer()
    monkeypatch.setattr(worker, "SERVER", server)
    yield server
    server.close()


def test_a_python_without_torch(tmp_path, server, monkeypatch):
    (tmp_path / "torch.py").write_text("raise ImportError('libfoo.so is missing')\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    with pytest.raises(OverlapError, match=r"(?s)probe\(\) failed with exit code 1.*libfoo.so is missing"):
        Runner(tmp_path).probe(0)


KILLS_THE_FORK_SERVER = """
with open(f"/proc/{os.getppid()}/stat") as stat:
    os.kill(int(stat.read().rpartition(")")[2].split()[1]), 9)
return {"n": 1}
"""


def test_a_snippet_that_kills_the_fork_server_stops_nobody(lab, server):
    assert lab.run("server/kills", main(KILLS_THE_FORK_SERVER))["result"] == {"n": 1}
    wait_until(lambda: server._process.poll() is not None)
    assert lab.run("server/after")["result"] == {"n": 3}


@pytest.mark.parametrize("exclusive", ["true", "false"])
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_stop_ends_all_that_runs_at_once(tmp_path, monkeypatch, exclusive, number, code):
    book, marker = SmallBook(tmp_path / "book"), f"marker-{uuid.uuid4()}"
    sleeper = f"subprocess.Popen({SLEEPER.format(marker=marker)})"
    for name in "xy":
        book.snippet(
            f"stop/{name}", main(f"{sleeper}\ntime.sleep(9999)"), f"gpus = [0]\nexclusive = {exclusive}"
        )
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    command = [sys.executable, "-m", "overlap", "run"]
    run = subprocess.Popen(command, cwd=book.root, stderr=subprocess.PIPE, stdout=subprocess.PIPE)
    wait_until(lambda: alive(marker))
    run.send_signal(number)
    out, err = run.communicate(timeout=LIMIT_S)
    assert (run.returncode, out, err) == (code, b"", b"overlap: interrupted\n")
    assert not alive(marker) and not alive(str(tmp_path)) and not list((tmp_path / "tmp").iterdir())


def test_when_the_build_is_killed_its_runs_die(lab, tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    marker = f"marker-{uuid.uuid4()}"
    lab.snippet("left/orphan", main(f"subprocess.Popen({SLEEPER.format(marker=marker)})\ntime.sleep(9999)"))
    code = """
import sys
from pathlib import Path
from overlap.run.runner import Runner
from overlap.run.snippet import Snippet
root = Path(sys.argv[1])
Runner(root).run(Snippet.read(root, "left/orphan"), 0)
"""
    build = subprocess.Popen([sys.executable, "-c", code, str(lab.root)])
    wait_until(lambda: alive(marker))
    build.kill()
    build.wait()
    wait_until(lambda: not alive(marker) and not list(tmp_path.iterdir()))


def wait_until(condition) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_progress(lab, capsys):
    """A line per snippet with an estimate."""
    bad = lab.snippet("progress/bad", main("raise ValueError"))
    assert len(lab.runner.run_all([(lab.snippet("progress/good"), 0), (bad, 0)])) == 1
    first, second = capsys.readouterr().err.splitlines()
    assert re.fullmatch(r"1/2 progress/good: \d+\.\d s, about \d:\d\d:\d\d left", first)
    assert second == "2/2 progress/bad: failed"


def test_what_waits_when_a_runner_is_closed_has_not_failed(lab, monkeypatch, capfd):
    wanted = [(lab.snippet(f"wait/{name}", options="gpus = [0]\nexclusive = false"), 0) for name in "abcdef"]
    with Runner(lab.root) as own, pytest.raises(Interrupted):
        own.run_all(wanted, lambda *made: own.close())
    assert "failed" not in capfd.readouterr().err
