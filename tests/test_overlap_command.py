"""The command line, from outside: what it prints, writes and returns."""

import json

import pytest

from overlap import __main__ as command
from overlap.__main__ import main
from overlap.run import recording

pytestmark = pytest.mark.usefixtures("on_cpu")


@pytest.fixture
def here(small_book, monkeypatch):
    """A small book as the working directory; its snippets note each time they run in the file `ran`."""
    monkeypatch.chdir(small_book.root)
    note = f"open({str(small_book.root / 'ran')!r}, 'a').write(__file__[-4] + '\\n')\n"
    small_book.snippet(
        "a/b", f"def main():\n    {note}    print('three')\n    return {{'n': 3, 'deep': {{'er': 0}}}}\n"
    )
    small_book.snippet("a/c", f"def main():\n    {note}    return {{'n': 1}}\n", "gpus = [0, 1]\nexclusive = false")
    small_book.page("a", "```snippet a/b\n```\n```snippet a/c\n```\n```claim a/b\nn == 3\nThree.\n```\n")
    return small_book


def ran(book) -> str:
    path = book.root / "ran"
    text = path.read_text() if path.exists() else ""
    path.unlink(missing_ok=True)
    return "".join(sorted(text.split()))


def test_run_executes_once(here, warm, capsys):
    assert main(["run"]) == 0
    assert ran(here) == "bc"
    assert capsys.readouterr().out == "2 runs; what had run before was left alone\n"
    assert main(["run"]) == 0
    assert ran(here) == ""
    assert capsys.readouterr().out == "0 runs; what had run before was left alone\n"
    assert main(["run", "snippets/a/b.py"]) == 0
    assert ran(here) == "b"
    assert capsys.readouterr().out == "1 runs\n\na/b on CPU\nthree\n"
    here.snippet("a/c", here.MAIN + "# changed\n")
    assert here.book().live("a/c") == {}
    assert here.book("never").live("a/b") == {} and here.book("never").run() == 0
    assert not list(here.root.glob("docs/recordings/**/*.json"))


def test_record_then_list_check_and_compare(here, warm, template, capsys):
    assert main(["record", "--gpus", "0"]) == 0
    out = capsys.readouterr().out
    assert "a/b on cpu: 0." in out and "2 recorded, 0 failed, 0 left as they were" in out
    assert ran(here) == "bc"
    assert recording.read(here.path("a/b"))["result"] == {"n": 3, "deep": {"er": 0}}

    assert main(["check"]) == 1
    assert capsys.readouterr().out == (
        "snippets/a/c.py: missing: no recording with 1 GPUs; run `overlap record a/c` where they are\n"
    )
    here.commit("a/c", template, gpus=1)
    assert main(["check"]) == 0
    assert capsys.readouterr().out == "2 snippets, 1 claims: all in order\n"

    assert main(["record", "--gpus", "1,2"]) == 0
    assert "0 recorded, 0 failed, 0 left as they were" in capsys.readouterr().out
    assert main(["record"]) == 0
    assert "0 recorded, 0 failed, 2 left as they were" in capsys.readouterr().out
    assert ran(here) == ""

    assert main(["list", "a"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "SNIPPET  GPUS  RECORDED                           SUMMARY",
        "a/b      0     cpu (fresh)                        A test.",
        "a/c      0,1   cpu (fresh), h200 (other machine)  A test.",
    ]

    here.commit("a/b", template, {"n": 2, "deep": {"er": 0, "other": 1}, "trials": [1], "name": "x", "ok": True})
    assert main(["compare", "a/b"]) == 0
    assert [line.split() for line in capsys.readouterr().out.splitlines()] == [
        ["SNIPPET", "VALUE", "HERE", "RECORDED", "RATIO"],
        ["a/b", "(cpu", ":", "cpu)", "deep.er", "0", "0", "–"],
        ["a/b", "(cpu", ":", "cpu)", "n", "3", "2", "1.50"],
    ]
    assert ran(here) == "b"


def test_failures_are_reported_after_all_had_their_turn(here, warm, capsys):
    here.snippet("a/bad", "def main():\n    raise ValueError('boom')\n")
    for arguments in (["record", "a/b", "a/bad"], ["run"]):
        assert main(arguments) == 1
        printed = "".join(capsys.readouterr())
        assert "snippets/a/bad.py failed with exit code 1" in printed and "boom" in printed
    assert here.path("a/b").exists() and not here.path("a/bad").exists()
    assert set(here.book().live("a/b")) == set(here.book().live("a/c")) == {"cpu"}


def test_a_spoilt_recording_can_be_recorded_again(here, warm, capsys):
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


def test_bundle_and_import(here, warm, capsys):
    bundle = here.root / "bundle.jsonl"
    here.snippet("a/b", "def main():\n    print('odd \\u2028 \\x85 line')\n    return {'n': 3}\n")
    for names in (["a/b"], ["a/c"]):
        assert main(["record", *names, "--bundle", str(bundle)]) == 0
    assert not list(here.root.glob("docs/recordings/**/*.json"))
    assert main(["import", str(bundle)]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "2 imported, 0 refused"
    assert recording.read(here.path("a/b"))["outputs"][0]["text"][0].startswith("odd ")
    assert here.book().check() == [
        "snippets/a/c.py: missing: no recording with 1 GPUs; run `overlap record a/c` where they are"
    ]


def resealed(**changes):
    """A way to change a line of a bundle so that only one thing is wrong with it."""
    return lambda line: json.dumps(recording.sealed(json.loads(line) | changes))


REFUSED = {
    "truncated": (lambda line: line[: len(line) // 2], "not JSON"),
    "changed by hand": (lambda line: line.replace('"n": 3', '"n": 4'), "its digest does not match its content"),
    "other code": (resealed(source={"path": "x", "sha256": "0"}), "snippets/a/c.py has changed since it was recorded"),
    "other inputs": (
        resealed(inputs={"snippets/timing/benchmark.py": "0"}),
        "snippets/a/c.py has changed since it was recorded",
    ),
    "other profile": (resealed(profile="h200-x8"), "'h200-x8' is not the machine it describes"),
    "leaving the folder": (resealed(profile="../../.."), "'../../..' is not the machine it describes"),
    "another path": (resealed(snippet="../x"), "inside snippets/"),
    "no such snippet": (resealed(snippet="a/lost"), "there is no such file"),
    "other schema": (resealed(schema=0), "not a recording of schema 1"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_import_refuses_a_wrong_line_and_takes_the_rest(here, bundle, capsys, name):
    spoil, expected = REFUSED[name]
    first, second = bundle.read_text().splitlines()
    bundle.write_text(f"{first}\n{spoil(second)}")
    assert main(["import", str(bundle)]) == 1
    out = capsys.readouterr().out
    assert out.startswith(f"{bundle}:2: ") and expected in out and out.endswith("1 imported, 1 refused\n")
    assert [path.relative_to(here.root).as_posix() for path in here.root.glob("docs/recordings/**/*.json")] == [
        "docs/recordings/cpu/a/b.json"
    ]


@pytest.mark.parametrize("content", [None, b"\xff\xff"])
def test_import_of_a_file_that_cannot_be_read(here, capsys, content):
    path = here.root / "bundle"
    if content:
        path.write_bytes(content)
    assert main(["import", str(path)]) == 1
    assert "cannot be read" in capsys.readouterr().err


def test_nothing_to_compare(here, monkeypatch, capsys):
    monkeypatch.setattr(command.Book, "run", lambda *_: 0)
    assert main(["compare"]) == 1
    assert "nothing to compare" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["run", "a/lost"], "overlap: snippets/a/lost.py: there is no such file"),
        (["list", "../x"], "overlap: '../x': a snippet is named"),
        (["record", "--gpus", "many"], "argument --gpus: invalid"),
        (["dance"], "invalid choice: 'dance'"),
        ([], "the following arguments are required: COMMAND"),
    ],
)
def test_wrong_arguments(here, capsys, arguments, expected):
    try:
        code = main(arguments)
    except SystemExit as stop:
        code = stop.code
    assert code in (1, 2)
    assert expected in capsys.readouterr().err


def test_outside_of_a_book(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["list"]) == 1
    assert "run inside a checkout of the book" in capsys.readouterr().err


def test_an_interrupt_is_no_traceback(here, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(command.Book, "check", interrupted)
    assert main(["check"]) == 130
