"""The command line, from outside: what it prints, writes and returns."""

import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import time

import pytest
from conftest import ROOT

from overlap.cli import main
from overlap.run import noise, recording
from overlap.run.text import plain, printable

pytestmark = pytest.mark.usefixtures("on_cpu")


@pytest.fixture
def here(small_book, monkeypatch):
    """A small book as the working directory; its snippets note each time they run in the file `ran`."""
    monkeypatch.chdir(small_book.root)
    note = f"open({str(small_book.root / 'ran')!r}, 'a').write(__file__[-4] + '\\n')\n"
    small_book.snippet(
        "a/b", f"def main():\n    {note}    print('three')\n    return {{'n': 3, 'deep': {{'er': 0}}}}\n"
    )
    small_book.snippet(
        "a/c", f"def main():\n    {note}    return {{'n': 1}}\n", "gpus = [0, 1]\nexclusive = false"
    )
    small_book.page("a", "```snippet a/b\n```\n```snippet a/c\n```\n```claim a/b\nn == 3\nThree.\n```\n")
    return small_book


def ran(book) -> str:
    path = book.root / "ran"
    text = path.read_text() if path.exists() else ""
    path.unlink(missing_ok=True)
    return "".join(sorted(text.split()))


def test_run_executes_once(here, capsys):
    assert main(["run"]) == 0
    assert ran(here) == "bc"
    assert capsys.readouterr().out == "2 runs; what had run before was left alone\n"
    assert main(["run"]) == 0
    assert ran(here) == ""
    assert capsys.readouterr().out == "0 runs; what had run before was left alone\n"
    assert main(["run", "snippets/a/b.py"]) == 0
    assert ran(here) == "b"
    assert capsys.readouterr().out == "1 run\n\na/b on CPU\nthree\n"
    here.snippet("a/c", here.MAIN + "# changed\n")
    assert here.book().local.of("a/c") == {}
    assert here.book("never").local.of("a/b") == {} and here.book("never").run() == 0
    assert not list(here.root.glob("docs/recordings/**/*.json"))


def test_record_then_list_check_and_compare(here, template, capsys):
    assert main(["record", "--gpus", "0"]) == 0
    out = capsys.readouterr().out
    assert "a/b on cpu: 0." in out and "2 of 2 recorded, 0 failed; 0 were fresh already" in out
    assert ran(here) == "bc"
    assert recording.read(here.path("a/b"))["result"] == {"n": 3, "deep": {"er": 0}}
    assert (
        here.book("auto").local.of("a/b")["cpu"].data["digest"]
        == here.book("auto").committed["a/b"]["cpu"].data["digest"]
    )
    assert not here.book("auto").recordings("a/b")["cpu"].is_local, "it is the recording, which is committed"

    assert main(["check"]) == 1
    assert capsys.readouterr().out == (
        "snippets/a/c.py: missing: no recording with 1 GPU; run `overlap record a/c` on such a machine\n"
    )
    here.commit("a/c", template, gpus=1)
    assert main(["check"]) == 0
    assert capsys.readouterr().out == "2 snippets, 1 claims: all in order\n"

    assert main(["record"]) == 0
    assert capsys.readouterr().out == "0 of 0 recorded, 0 failed; 2 were fresh already\n"
    assert ran(here) == ""

    assert main(["list"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "SNIPPET  GPUS  FRESH  CODE  SOFTWARE  OTHER",
        "a/b      0     1      -     -         -",
        "a/c      0,1   1      -     -         1",
    ]
    assert main(["list", "a/c"]) == 0
    assert capsys.readouterr().out.splitlines()[1:] == ["a/c      0,1   1      -     -         1"]

    result = (
        "{'n': 3, 'deep': {'er': 5, 'same': 7}, 'rows': [{'ms': 2, 'ms_trials': [1]}, [4]], 'n_trials': {}}"
    )
    code = f"def main():\n    return {result}\n"
    here.snippet("a/b", code)
    other = {
        "n": 2,
        "deep": {"er": 0, "other": 1, "same": 7},
        "rows": [{"ms": 4, "ms_trials": [2]}, [2, 9]],
        "n_trials": {"a": 1},
    }
    here.commit("a/b", template, other | {"name": "x", "ok": True})
    assert main(["compare", "a/b"]) == 0
    assert [line.split() for line in capsys.readouterr().out.splitlines()] == [
        ["SNIPPET", "VALUE", "HERE", "RECORDED", "RATIO"],
        ["a/b", "(cpu", ":", "cpu)", "deep.er", "5", "0", "–"],
        ["a/b", "(cpu", ":", "cpu)", "n", "3", "2", "1.50"],
        ["a/b", "(cpu", ":", "cpu)", "rows[0].ms", "2", "4", "0.50"],
        ["a/b", "(cpu", ":", "cpu)", "rows[1][0]", "4", "2", "2.00"],
    ]
    here.snippet("a/c", "def main():\n    raise ValueError('boom')\n")
    assert main(["compare"]) == 1
    printed = capsys.readouterr()
    assert "a/b (cpu : cpu)  n " in printed.out and "ValueError: boom" in printed.err


def test_what_is_recorded_names_nobody(small_book, monkeypatch, tmp_path):
    monkeypatch.chdir(small_book.root)
    code = 'def main():\n    print("read /home/ada/x.py")\n    return {"file": "/home/ada/d"}\n'
    small_book.snippet("a/b", code)
    small_book.page("a", "```snippet a/b\n```\n")
    assert main(["record", "a/b", "--bundle", str(tmp_path / "bundle.jsonl")]) == 0
    assert main(["record", "a/b"]) == 0
    (recorded,) = (small_book.root / "docs/recordings").rglob("b.json")
    for text in (recorded.read_text(), (tmp_path / "bundle.jsonl").read_text()):
        data = json.loads(text)
        assert data["outputs"][0]["text"] == ["read …/x.py\n"] and data["result"] == {"file": "…"}


def test_list_tells_what_runs_here(here, capsys):
    here.snippet("a/gpu", options="gpus = [1, 2, 4, 8]")
    assert main(["list", "--here"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["SNIPPET", "a/b", "a/c"]


@pytest.mark.parametrize("grade", ["as it is", recording.CODE, recording.ENVIRONMENT, recording.OTHER])
def test_the_books_list_fits_a_terminal_however_fresh_it_is(grade, monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    if grade != "as it is":
        grades = itertools.cycle([grade, recording.OTHER])
        monkeypatch.setattr("overlap.book.library.grade", lambda *args: next(grades))
    assert main(["list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80 and len(lines) > 200


@pytest.mark.parametrize("grade", ["FRESH", "CODE", "SOFTWARE", "OTHER"])
def test_list_counts_recordings_by_what_has_changed(here, template, capsys, grade):
    changes = {
        "FRESH": {},
        "CODE": {"source": {"path": "snippets/a/b.py", "sha256": "0" * 64}},
        "SOFTWARE": {"software": template["software"] | {"torch": "2.9.1"}},
        "OTHER": {"gpus": 1},
    }
    here.commit("a/b", template, {"n": 3}, **changes[grade])
    assert main(["list", "a/b"]) == 0
    header, row = capsys.readouterr().out.splitlines()
    counts = dict(zip(header.split()[2:], row.split()[2:], strict=True))
    assert counts == {"FRESH": "-", "CODE": "-", "SOFTWARE": "-", "OTHER": "-"} | {grade: "1"}


def test_version(capsys):
    with pytest.raises(SystemExit):
        main(["--version"])
    assert re.fullmatch(r"overlap \d+\.\d+\.\d+\n", capsys.readouterr().out)


def test_failures_are_reported_after_all_had_their_turn(here, capsys):
    here.snippet("a/bad", "def main():\n    raise ValueError('boom')\n")
    for arguments in (["record", "a/b", "a/bad"], ["run"]):
        assert main(arguments) == 1
        printed = "".join(capsys.readouterr())
        assert "snippets/a/bad.py failed with exit code 1" in printed and "boom" in printed
    assert here.path("a/b").exists() and not here.path("a/bad").exists()
    assert set(here.book().local.of("a/b")) == set(here.book().local.of("a/c")) == {"cpu"}


def test_a_spoilt_recording_can_be_recorded_again(here, capsys):
    here.path("a/b").parent.mkdir(parents=True)
    here.path("a/b").write_text("{")
    assert main(["record"]) == 1
    assert "not JSON" in capsys.readouterr().err
    assert main(["record", "a/b"]) == 0
    assert recording.read(here.path("a/b"))["snippet"] == "a/b"


@pytest.fixture
def bundle(here, template):
    """A file of recordings that were made elsewhere: a/b on the CPU, a/c on one H200."""
    path = here.root / "bundle.jsonl"
    odd = [{"output_type": "stream", "name": "stdout", "text": ["odd \u2028 \x85 line\n"], "rank": 0}]
    for name, gpus in (("a/b", 0), ("a/c", 1)):
        made = here.commit(name, template, {"n": 3}, gpus=gpus, outputs=odd)
        with open(path, "a") as file:
            file.write(json.dumps(recording.read(made), sort_keys=True) + "\n")
        made.unlink()
    return path


def test_bundle_and_import(here, capsys):
    bundle = here.root / "bundle.jsonl"
    here.snippet("a/b", "def main():\n    print('odd \\u2028 \\x85 line')\n    return {'n': 3}\n")
    for names in (["a/b"], ["a/c"]):
        assert main(["record", *names, "--bundle", str(bundle)]) == 0
    assert not list(here.root.glob("docs/recordings/**/*.json"))
    assert main(["import", str(bundle)]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "2 imported, 0 refused"
    assert recording.read(here.path("a/b"))["outputs"][0]["text"][0].startswith("odd ")
    assert here.check() == [
        "snippets/a/c.py: missing: no recording with 1 GPU; run `overlap record a/c` on such a machine"
    ]


@pytest.mark.parametrize("names", [[], ["a"]])
def test_record_goes_on_where_a_bundle_ends(here, capsys, names):
    bundle = here.root / "bundle.jsonl"
    assert main(["record", *names, "--bundle", str(bundle)]) == 0
    ran(here)
    first, second = bundle.read_bytes().splitlines(keepends=True)
    again = json.loads(second)["snippet"][-1]
    bundle.write_bytes(first.removesuffix(b"\n"))
    capsys.readouterr()
    assert main(["record", *names, "--bundle", str(bundle)]) == 0
    out = capsys.readouterr().out
    assert "1 of 1 recorded, 0 failed; 1 were fresh already" in out
    assert ran(here) == again
    assert len(bundle.read_text().splitlines()) == 2
    assert main(["record", *names, "--bundle", str(bundle)]) == 0
    assert ran(here) == ""
    here.snippet(f"a/{again}", "def main():\n    return {}\n")
    assert main(["record", *names, "--bundle", str(bundle)]) == 0
    assert "1 of 1 recorded" in capsys.readouterr().out
    assert len(bundle.read_text().splitlines()) == 3


@pytest.mark.parametrize("content", ["my notes", '{"mine": 1}\n'])
def test_a_file_that_is_no_bundle_stays_as_it_is(here, capsys, content):
    notes = here.root / "notes"
    notes.write_text(content)
    assert main(["record", "--bundle", str(notes)]) == 1
    assert f"overlap: {notes}:1: not " in capsys.readouterr().err
    assert notes.read_text() == content and ran(here) == ""


def test_import_says_what_is_new_what_is_replaced_and_which_claims_turn(here, bundle, template, capsys):
    here.page(
        "a",
        "```claim a/b\nn == 3\nThree.\n```\n```claim a/c\nn == 3\nC.\n```\n```claim a/b\nx > 1\nX.\n```\n"
        "```claim a/c\nn == 3\nlimit: n of 2\nToo much.\n```\n",
    )
    then = {"run": template["run"] | {"started": "2020-02-02T00:00:00+00:00"}}
    then["source"] = {"path": "snippets/a/b.py", "sha256": "0" * 64}
    here.commit("a/b", template, {"n": 2, "x": 2}, **then)
    assert main(["import", str(bundle)]) == 0
    today = template["run"]["started"]
    assert capsys.readouterr().out.splitlines() == [
        f"replaced (2020-02-02T00:00:00+00:00 before): a/b on cpu, {today}",
        f"new: a/c on h200, {today}",
        "docs/a.md:1 on cpu: false -> holds: Three.",
        "docs/a.md:9 on cpu: holds -> open: X.",
        "docs/a.md:13 on h200: new: false: Too much. n = 3 · 150% of 2 — beats its ceiling",
        "1 × H200 is new: 1 claim holds",
        "2 imported, 0 refused",
    ]
    assert main(["import", str(bundle)]) == 0
    assert capsys.readouterr().out.splitlines()[:2] == [
        f"unchanged: a/b on cpu, {today}",
        f"unchanged: a/c on h200, {today}",
    ]
    here.path("a/b").write_text("{")
    assert main(["import", str(bundle)]) == 0
    assert f"replaced: a/b on cpu, {today}\n" in capsys.readouterr().out


def resealed(**changes):
    """A way to change a line of a bundle so that only one thing is wrong with it."""
    return lambda line: json.dumps(recording.sealed(json.loads(line) | changes))


REFUSED = {
    "truncated": (lambda line: line[: len(line) // 2], "not JSON"),
    "a key twice": (
        lambda line: line.replace('"n": 3', '"n": 3, "n": 3'),
        "not JSON (the key 'n' stands twice in one object)",
    ),
    "changed by hand": (
        lambda line: line.replace('"n": 3', '"n": 4'),
        "its digest does not match its content",
    ),
    "other code": (
        resealed(source={"path": "snippets/a/c.py", "sha256": "0" * 64}),
        "snippets/a/c.py has changed since it was recorded",
    ),
    "other profile": (
        resealed(profile="h200-x8"),
        "profile is 'h200-x8', but a run is of h200",
    ),
    "another path": (resealed(snippet="../x"), "snippet: String should match"),
    "no result": (resealed(result={}), "its result has nothing; record it again"),
}


def test_editors_mark_at_the_beginning_of_a_bundle_is_no_recording(bundle, capsys):
    """PowerShell writes such marks; in UTF-16 it writes no UTF-8 at all, which is said."""
    text = bundle.read_text()
    bundle.write_text(text, encoding="utf-8-sig")
    assert main(["import", str(bundle)]) == 0
    assert "2 imported, 0 refused" in capsys.readouterr().out
    bundle.write_text(text, encoding="utf-16")
    assert main(["import", str(bundle)]) == 1
    told = capsys.readouterr().err
    assert f"{bundle}: is text in UTF-16, as PowerShell writes it; save it as UTF-8" in told


@pytest.mark.parametrize("text", ["", "\n \n", "# A page\n\nof text", '{"overlap": 1, "recordings": []}'])
def test_a_file_without_a_recording_is_named(here, capsys, tmp_path, text):
    bundle = tmp_path / "bundle.jsonl"
    bundle.write_text(text)
    assert main(["import", str(bundle)]) == 1
    assert f"{bundle}: holds no recording; copy the file here again" in capsys.readouterr().err


@pytest.mark.parametrize("name", REFUSED)
def test_import_refuses_a_wrong_line_and_takes_the_rest(here, bundle, capsys, name):
    spoil, expected = REFUSED[name]
    first, second = bundle.read_text().splitlines()
    bundle.write_text(f"nonsense\n{spoil(second)}\n{first}\n")
    assert main(["import", str(bundle)]) == 1
    out = capsys.readouterr().out
    assert f"\n{bundle}:1: not JSON" in out
    assert f"\n{bundle}:2: " in out and expected in out and out.endswith("1 imported, 2 refused\n")
    assert [path.relative_to(here.root).as_posix() for path in here.root.glob("docs/recordings/**/*.*")] == [
        "docs/recordings/cpu/a/b.json"
    ]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["run", "a/lost"], "overlap: a/lost: no such chapter or snippet; `overlap list` shows"),
        (["run", "snippets/processes/share_memry.py"], "did you mean processes/share_memory?"),
        (["record", "gpu"], "gpu/one needs 1 GPU; gpu/two needs 2 or 4 GPUs; this"),
        (["record", "--gpus", "many"], "argument --gpus: 'many' is not a list of GPU counts, as in 0,1"),
    ],
)
def test_wrong_arguments(here, capsys, arguments, expected):
    for name, gpus in (("gpu/one", [1]), ("gpu/two", [2, 4]), ("processes/share_memory", [0])):
        here.snippet(name, options=f"gpus = {gpus}")
    try:
        code: object = main(arguments)
    except SystemExit as stop:
        code = stop.code
    assert code in (1, 2)
    assert expected in capsys.readouterr().err


def test_what_can_run_is_recorded_and_the_rest_named(here, capsys):
    here.snippet("a/gpu", options="gpus = [1]")
    assert main(["record", "a", "a/b"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("a/gpu needs 1 GPU; ") and "2 of 2 recorded" in out
    assert ran(here) == "bc"


def test_a_terminal_gets_no_control_characters(here, capsys):
    here.snippet("a/b", "def main():\n    print('\\x1b[2Jx\\x9b\\ty\\r\\x07')\n    return {}\n")
    assert main(["run", "a/b"]) == 0
    here.snippet("a/b", "def main():\n    print('\\x1b]0;x')\n    raise ValueError('\\x9b')\n")
    assert main(["run", "a/b"]) == 1
    printed = capsys.readouterr()
    assert "\ufffd[2Jx\ufffd\ty\ufffd\ufffd\n" in printed.out and "\ufffd]0;x" in printed.err
    assert not set(printed.out + printed.err) & {"\x1b", "\x9b", "\r", "\x07"}
    assert printable("10%\r50%\r100%") == "100%"
    assert printable("\x1b[1mdone\x1b[0m\x1b[K\r\nnext\x07") == "done\nnext\ufffd"
    warning = "/opt/torch/.venv/lib/python3.12/site-packages/torch/cuda/graphs.py:126: UserWarning"
    assert printable(f"{warning}\n") == "…/torch/cuda/graphs.py:126: UserWarning\n"
    assert plain("a\tb\n\ud800\x00\x7f\x85é中") == "a\tb\n\ufffd\ufffd\ufffd\ufffdé中"


def overlap(*arguments: str, **more) -> subprocess.Popen:
    """The command as a process."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen([sys.executable, "-m", "overlap", *arguments], **(pipes | more))


def test_a_reader_who_has_enough_is_no_error(here):
    read, write = os.pipe()
    os.close(read)
    listing = overlap("list", stdout=write)
    os.close(write)
    assert (listing.communicate()[1], listing.returncode) == ("", 141)


def test_a_recording_that_is_stopped_keeps_what_is_done_and_says_so(here):
    here.snippet("a/c", "import time\n\n\ndef main():\n    open('../../begun', 'w')\n    time.sleep(99)\n")
    here.snippet("a/d")
    made = overlap("record", env=os.environ | {"TMPDIR": str(here.root)})
    while not (here.root / "begun").exists():
        assert made.poll() is None
        time.sleep(0.05)
    made.terminate()
    out, err = made.communicate()
    assert "1 of 3 recorded, 0 failed; 0 were fresh already" in out.splitlines()
    assert out.startswith("a/b on cpu: ") and re.fullmatch(
        r"1/3 a/b: \d+\.\d s, about \d:\d\d:\d\d left\noverlap: interrupted\n", err
    )
    assert made.returncode == 143
    assert here.path("a/b").exists() and set(here.book().local.of("a/b")) == {"cpu"}
    assert not list(here.root.glob("overlap-*"))


@pytest.mark.parametrize("command", ["verify --quick", "run timing/wait_for", "record timing/wait_for"])
def test_what_measures_says_without_torch_how_to_get_it(tmp_path, command):
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['torch'] = None\n")
    environment = os.environ | {"PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}
    typed = [sys.executable, "-m", "overlap", *command.split()]
    done = subprocess.run(typed, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 1 and done.stdout == "", done.stdout
    assert "has no PyTorch" in done.stderr and "Traceback" not in done.stderr


def test_the_first_snippet_of_contributing_runs_and_its_test_passes(tmp_path):
    text = (ROOT / "docs/contributing.md").read_text()
    shutil.copytree(ROOT / "snippets/timing", tmp_path / "snippets/timing")
    shutil.copy(ROOT / "snippets/pictures.py", tmp_path / "snippets")
    code, test = re.findall(r"^```python\n(.*?)^```$", text, re.M | re.S)
    file = re.search(r"\*\*Write\*\* `(snippets/timing/\w+\.py)`", text)[1]
    (tmp_path / file).write_text(code)
    (tmp_path / "test_it.py").write_text(test)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_it.py"]
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0 and "1 passed" in done.stdout, done.stdout + done.stderr


@pytest.mark.usefixtures("noisy")
def test_a_busy_machine_is_told_where_it_records_and_where_it_imports(here, monkeypatch, capsys):
    monkeypatch.setattr("os.getloadavg", lambda: (8.5, 8.0, 7.0))
    jiffies = itertools.cycle([(0, 0, 0), (1000, 0, 10_000)])
    monkeypatch.setattr(noise, "jiffies", lambda: next(jiffies))
    here.page("a", "```claim a/b\nn > 3\nMany.\n```\n")
    bundle = here.root / "bundle.jsonl"
    assert main(["record", "a/b", "--gpus", "0", "--bundle", str(bundle)]) == 0
    out = capsys.readouterr().out
    busy = "other processes took 90% of the CPU's time"
    assert f" s, while the machine was busy: {busy}" in out
    assert f"This machine was busy in 1 of 1 run; when it is calm, remove {bundle} and repeat them" in out
    assert main(["import", str(bundle)]) == 0
    assert f"new: false: Many. n = 3, not > 3; the host was busy ({busy}" in capsys.readouterr().out
    assert main(["check"]) == 1
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "claim is false: Many." in line]
    assert "repeat it when calm" in line and "claim what the data say" not in line
