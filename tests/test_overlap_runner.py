"""Runs: what is caught, what is contained, what a failure says, and that nothing is left behind."""

import os
import resource
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest

from overlap import OverlapError
from overlap.run import machine, runner
from overlap.run.runner import Capture, RunFailed, Runner

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
    "at_import": ("import no_such_module\n", ["failed with exit code 1", "No module named 'no_such_module'"]),
    "without_main": ("x = 1\n", ["failed with exit code 1", "has no attribute 'main'"]),
    "hangs": (main("print('begun')\nwhile True:\n    time.sleep(1)"), ["still ran after its limit of 1 s", "begun"]),
    "hangs_in_thread": (
        main("threading.Thread(target=time.sleep, args=[99]).start()\nreturn {}", "import threading, time"),
        ["still ran after its limit of 1 s", "(it printed nothing)"],
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
}


@pytest.mark.parametrize("name", FAILURES)
def test_a_failure_names_the_snippet_its_last_lines_and_how_to_run_it_alone(lab, name):
    code, expected = FAILURES[name]
    started = time.monotonic()
    with pytest.raises(RunFailed) as caught:
        lab.run(f"fail/{name}", code, "gpus = [0]\ntimeout = 1")
    message = str(caught.value)
    assert message.startswith(f"snippets/fail/{name}.py ")
    assert message.endswith(f"Run it alone: overlap run fail/{name}")
    assert "on the CPU" in message
    for part in expected:
        assert part in message
    assert time.monotonic() - started < 8


def test_output_is_cut_in_a_failure(lab):
    with pytest.raises(RunFailed) as caught:
        lab.run("fail/long", main("print('x' * 9000)\nfor i in range(50):\n    print(i)\nraise ValueError"))
    assert len(str(caught.value)) < 5000


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


def test_a_flood_is_cut_with_a_note_and_costs_neither_time_nor_memory(lab):
    before, started = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.monotonic()
    made = lab.run("out/flood", main("for _ in range(100):\n    os.write(1, b'x' * 999_999 + b'\\n')\nreturn {}"))
    assert time.monotonic() - started < 15
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 30_000  # KiB
    assert len(text(made)) < 70_000
    assert "\n[… 99,934,464 bytes of output left out …]\n" in text(made)


def test_what_is_printed_stays_as_it_is(lab):
    said = "<script>alert(1)</script>\x1b[31mred\x1b[0m\r10 %\r100 %\u2028end"
    made = lab.run("out/odd", main(f"print({said!r})\nos.write(1, b'\\xff\\xfe broken\\n')\nreturn {{}}"))
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
            lab.run("left/over", code, "gpus = [0]\ntimeout = 0.4")
    assert time.monotonic() - started < 5
    assert not alive(marker)


def test_a_child_that_ends_by_itself_may_finish_its_sentence(lab):
    made = lab.run("left/soon", main("subprocess.Popen('sleep 0.1; echo late', shell=True)\nreturn {}"))
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


def test_torchrun_on_the_cpu_is_one_rank(lab):
    made = lab.run("rank/one", main("print(os.environ['RANK'])\nreturn {}"), 'gpus = [0]\nlauncher = "torchrun"')
    assert made["outputs"] == [{"output_type": "stream", "name": "stdout", "text": ["0\n"], "rank": 0}]
    assert made["run"]["command"] == "torchrun --standalone --nproc-per-node 1 snippets/rank/one.py"


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
        lab.run("rank/bad", main("raise ValueError('boom')"), 'gpus = [0]\nlauncher = "torchrun"')
    assert str(caught.value).startswith("snippets/rank/bad.py failed with exit code 1")


def test_spawned_processes_find_the_functions_of_the_snippet(lab):
    made = lab.run(
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


def test_common_modules_work(lab):
    pytest.importorskip("matplotlib")
    made = lab.run("common/modules", COMMON)
    assert made["result"] == {"sum": 27_000_000.0, "backend": "agg"}
    assert text(made) == "bye Point(x=1)\n"


def test_a_snippet_uses_the_helper(lab):
    lab.snippet("timing/benchmark", "def measure():\n    return 42\n\n\ndef main():\n    return {}\n")
    made = lab.run(
        "helped/user", "from snippets.timing.benchmark import measure\n\n\ndef main():\n    return {'n': measure()}\n"
    )
    assert made["result"] == {"n": 42}
    assert set(made["inputs"]) == {"snippets/timing/benchmark.py"}


def test_a_recording_tells_no_local_paths(lab):
    code = main("print(os.getcwd(), __file__)\nwarnings.warn('look out')\nreturn {}", "import os, warnings")
    for launcher in ("python", "torchrun"):
        made = lab.run("local/paths", code, f'gpus = [0]\nlauncher = "{launcher}"')
        assert text(made).endswith("snippets/local/paths.py\n")
        assert "snippets/local/paths.py:13: UserWarning: look out" in text(made, "stderr")
        for path in (str(lab.root), "overlap-", "/tmp"):
            assert path not in str(made)


def test_gpus_that_are_not_there(lab):
    with pytest.raises(OverlapError, match=r"snippets/no/gpu.py: asked for 3 GPU\(s\), this machine shows 0"):
        lab.runner.run(lab.snippet("no/gpu", options="gpus = [3]"), 3)


def test_a_python_that_cannot_start_a_nursery(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with Runner(tmp_path) as broken:
        for _ in range(3):
            with pytest.raises(OverlapError, match="can this Python `import torch`"):
                broken.probe(0)


def test_a_snippet_that_kills_its_supervisor(lab):
    with pytest.raises(OverlapError, match="the process that runs snippets died"):
        lab.run("fail/supervisor", main("os.kill(os.getppid(), 9)\nreturn {}"))
    assert lab.run("fail/next")["result"] == {"n": 3}


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


def test_plots_are_drawn_from_data_alone(lab):
    pytest.importorskip("matplotlib")
    snippet = lab.snippet("plot/line", PLOT)
    drawn = lab.runner.draw(snippet, {"n": 3}, {"top": 9}, "plot-line-cpu")
    assert drawn["wide"].startswith("<svg") and drawn["narrow"].startswith("<svg")
    assert drawn["table"][0]["points"] == [[1.0, 3.0], [2.0, 9.0]]
    with pytest.raises(
        RunFailed, match=r"(?s)snippets/plot/line.py: plot\(results, ceilings\) failed on .*KeyError: 'n'"
    ):
        lab.runner.draw(snippet, {}, {}, "plot-line-cpu")


def test_without_rich_there_is_plain_progress(lab, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "rich.console", None)
    assert lab.runner.run_all([(lab.snippet("plain/progress"), 0)]) == []
    assert capsys.readouterr().err == "plain/progress\n"


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
