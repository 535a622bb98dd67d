"""`verify --all` and its file `mine.json`: it is gone on with, holds what pages ask for, and names nobody."""

import getpass
import json
import os
import platform
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import LIMIT_S, ROOT, SmallBook

from overlap import OverlapError
from overlap.cli import main
from overlap.commands import mine
from overlap.run import scrub
from overlap.site import machines
from overlap.site.pictures import Pictures

pytestmark = pytest.mark.usefixtures("on_cpu")

COUNTS = """import time
from snippets.pictures import sweep

def main():
    with open({ran!r}, "a") as file:
        file.write({name!r} + " ")
    time.sleep({rest})
    print("10%\\r50%\\r\\x1b[31mcounted\\x1b[0m", {n})
    return {{"n": {n}, "n_trials": [1, 2]}}

def plot(results):
    return sweep([1, 2, 3, 4], {{"n": [results["n"]] * 4}}, {{}}, xlabel="step", ylabel="count")
"""
PAGE = """# A

It counts to {a/one: n} of {a/one@cpu: n}, and {a/two: n:.1f}; {a/gpu: n}.

```snippet a/one
```

```claim a/one
n >= 3
name: much
Three, at least.
```

```claim a/two
n >= 4 for cores >= 1
Four, at least.
```

```headlines
count | s | a/one: n | -
```

```calculator a/two
n = n | 1 to 9 | how many
twice = n * 2 | twice as many
curve: n
```
"""


@pytest.fixture
def book(small_book, monkeypatch) -> SmallBook:
    """A book of two snippets that run here and one that does not; the working directory."""
    small_book.ran = small_book.root / "ran"
    for name, n, rest in (("one", 3, 0), ("two", 2, 0.2)):
        code = COUNTS.format(ran=str(small_book.ran), name=name, n=n, rest=rest)
        small_book.snippet(f"a/{name}", code.replace("plot(results)", "plot(results, ceilings)"))
    small_book.snippet("a/gpu", options="gpus = [1]")
    small_book.page("a", PAGE)
    monkeypatch.chdir(small_book.root)
    monkeypatch.setattr("os.getloadavg", lambda: (0.5, 0.5, 0.5))
    return small_book


def read(book: SmallBook) -> dict:
    return json.loads((book.root / mine.NAME).read_text())


def test_it_holds_what_pages_ask_for(book, capsys):
    assert main(["verify", "--all"]) == 0
    data = read(book)
    here = data["machines"]["cpu"]
    a = book.pages().on("a.md")
    by_kind = {block.kind: block for block in a}
    first, second = (block for block in a if block.kind == "claim")
    assert here["label"] == "your CPU"
    assert sorted(text for text, *_ in here["values"].values()) == ["2.0", "3"]
    assert all("on your CPU" in note for _, _, note in here["values"].values())
    assert here["claims"][first.key] == ["holds", "n = 3 ≥ 3", "", ""]
    assert here["claims"][second.key] == ["false", "n = 2, not ≥ 4", "", ""]
    assert here["tally"] == "1 of 2 holds" and here["counts"] == {
        "": [["holds", "1 holds"], ["false", "1 false"]],
        "a.md": [["holds", "1 holds"], ["false", "1 false"]],
    }
    rate, calculator = by_kind["headlines"].rows[0], by_kind["calculator"]
    assert here["blocks"] == {rate.key: ["3", "", "1 run"], calculator.key: {"n": 2}}
    one = here["snippets"]["a/one"]
    assert one["outputs"] == [["", "", "counted 3"]] and "torch" in one["provenance"]
    assert one["line"].startswith("your CPU · ")
    (table,) = one["pictures"][""]["tables"]
    assert table == {
        "headings": ["step", "count"],
        "rows": [["n"], ["1", "3"], ["2", "3"], ["3", "3"], ["4", "3"]],
    }
    assert data["lacks"] == {"a/gpu": "needs 1 GPU"}
    assert "drop it on the page" in capsys.readouterr().err


def test_what_asks_for_a_package_that_is_not_installed_is_no_failure(book, capsys):
    options = 'dependencies = ["torch", "abacus>=2"]\n[tool.overlap]\ngpus = [0]\n'
    header = "# /// script\n" + "".join(f"# {line}\n" for line in options.splitlines()) + "# ///\n"
    book.snippet("a/two", "import abacus\n\n\ndef main():\n    return {}\n", header=header)
    assert main(["verify", "--all", "--strict"]) == 0
    assert read(book)["lacks"]["a/two"] == "needs abacus, not installed here"
    out = capsys.readouterr().out
    assert "Not measured (needs abacus, not installed here): a/two" in out and "Traceback" not in out


def test_what_is_done_is_not_run_again(book, capsys):
    main(["verify", "--all", "a/one"])
    assert main(["verify", "--all"]) == 0
    assert book.ran.read_text().split() == ["one", "two"]
    assert "1 run afresh, 1 are in mine.json" in capsys.readouterr().err
    before = read(book)
    main(["verify", "--all", "--json"])
    assert book.ran.read_text().split() == ["one", "two"] and read(book) == before
    book.snippet("a/one", "def main():\n    return {'n': 4}\n")
    main(["verify", "--all"])
    assert [run["result"]["n"] for run in read(book)["recordings"]] == [2, 4]


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_it_can_be_stopped_and_goes_on(book, end):
    code = COUNTS.format(ran=str(book.ran), name="two", n=2, rest=9999)
    book.snippet("a/two", code)
    command = [sys.executable, "-m", "overlap", "verify", "--all"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    child = subprocess.Popen(command, cwd=book.root, env=environment, stderr=subprocess.PIPE, text=True)
    try:
        deadline = time.monotonic() + LIMIT_S
        while not (book.ran.exists() and "two" in book.ran.read_text()):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        child.send_signal(end)
        _, told = child.communicate(timeout=LIMIT_S)
    finally:
        child.kill()
    data = read(book)
    assert [run["snippet"] for run in data["recordings"]] == ["a/one"]
    assert data["lacks"]["a/two"] == "it has not run there yet"
    assert child.returncode == (-9 if end == signal.SIGKILL else 128 + end)
    if end != signal.SIGKILL:
        assert "1 runs are in mine.json" in told
        assert [text for text, *_ in data["machines"]["cpu"]["values"].values()] == ["3"]
    kept = mine.Mine(book.pages(), book.root / mine.NAME)
    assert [snippet.name for snippet, _ in kept.lacking(list(book.book().local.runnable()))] == ["a/two"]


#: What must not be in a file: planted where a snippet, a warning or a library may print or return it.
NAMES = ("marie-curie", "box-17.lab.example.org", "box-17")
SECRETS = {
    "/home/marie-curie/venv/site-packages/torch/x.py:12: UserWarning": "…/x.py:12: UserWarning",
    "~/secret plans": "… plans",
    "/mnt/data/curie": "…",
    "[box-17.lab.example.org:71] hello": "[…:71] hello",
    "marie-curie@box-17": "…@…",
    "GPU-0f1e2d3c-aaaa-bbbb-cccc-0123456789ab": "…",
    "at 10.11.12.13 or 00:1a:2b:3c:4d:5e": "at … or …",
}
HARMLESS = ["12.5 GB/s of 3/4", "127.0.0.1:29500", "/dev/shm/torch_1", "torch 2.11.0", "https://a.org/b/c"]


def test_no_name_no_path_and_no_serial_number_goes_in(book, monkeypatch):
    monkeypatch.setenv("HOME", "/home/marie-curie")
    monkeypatch.setenv("LOGNAME", "marie-curie")
    monkeypatch.setattr(platform, "node", lambda: "box-17.lab.example.org")
    texts = [*SECRETS, *HARMLESS]
    code = "import os\n\nTEXTS = " + repr([text[::-1] for text in texts])
    code += (
        "\n\ndef main():\n    texts = [text[::-1] for text in TEXTS] + [os.getcwd(), __file__, 'ok']\n"
        "    for text in texts:\n        print(text)\n"
        "    return {'texts': texts, 'deep': [{text: text for text in texts[:-3]}]}\n"
    )
    book.snippet("a/one", code)
    main(["verify", "--all", "a/one"])
    text = (book.root / mine.NAME).read_text()
    (run,) = json.loads(text)["recordings"]
    told = [*SECRETS.values(), *HARMLESS]
    lines = "".join(run["outputs"][0]["text"]).split("\n")
    assert run["result"]["texts"][: len(told)] == told == lines[: len(told)]
    assert list(run["result"]["deep"][0].values())[-1] == HARMLESS[-1]
    for secret in (*NAMES, "site-packages", str(book.root), "0f1e2d3c", "10.11.12", "00:1a"):
        assert secret not in text, secret


def test_what_really_runs_here_names_nobody_either(book):
    """The machine's own facts: its host, its user, this folder."""
    main(["verify", "--all"])
    text = (book.root / mine.NAME).read_text()
    for secret in {platform.node(), getpass.getuser(), str(book.root), str(Path.home()), sys.prefix}:
        if secret not in ("root", "/root"):
            assert not re.search(rf"(?<!\w){re.escape(secret)}(?!\w)", text), secret


def test_a_word_of_the_code_is_no_name(monkeypatch):
    monkeypatch.setattr(scrub, "_names", lambda: ["copy"])
    data = {"outputs": [], "result": {"copy": "a copy"}, "machine": {"system": "Linux copy", "links": []}}
    assert scrub.scrubbed(data, "def copy(): ...")["result"] == {"copy": "a copy"}
    clean = scrub.scrubbed(data, "def move(): ...")
    assert clean["result"] == {"…": "a …"} and clean["machine"]["system"] == "Linux …"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "cannot be read"),
        ("[]", "is not what `verify --all` writes"),
        ('{"overlap": 1, "recordings": [{}]}', "recording 1: not a recording"),
        ('{"overlap": 2}', "is not what `verify --all` writes"),
    ],
)
def test_a_damaged_file_is_refused_and_stays(book, text, why, capsys):
    (book.root / mine.NAME).write_text(text)
    assert main(["verify", "--all"]) == 1
    assert why in capsys.readouterr().err
    assert (book.root / mine.NAME).read_text() == text


def test_a_file_of_another_machine_is_refused(book, template, capsys):
    path = book.commit("a/gpu", template, {"n": 3}, gpus=1)
    data = {"overlap": mine.FORM, "recordings": [json.loads(path.read_text())]}
    (book.root / mine.NAME).write_text(json.dumps(data))
    assert main(["verify", "--all"]) == 1
    assert "has runs of another machine, 1 × H200; move it away" in capsys.readouterr().err


def test_its_runs_are_imported_as_those_of_a_bundle(book, capsys):
    main(["verify", "--all"])
    capsys.readouterr()
    assert main(["import", mine.NAME]) == 0
    assert "2 imported, 0 refused" in capsys.readouterr().out
    assert set(book.book("never").committed) == {"a/one", "a/two"}
    data = read(book)
    data["recordings"][0]["result"]["n"] = 9
    (book.root / mine.NAME).write_text(json.dumps(data))
    assert main(["import", mine.NAME]) == 1
    assert "recording 1: its digest does not match" in capsys.readouterr().out


def test_the_edition_follows_what_is_computed_and_no_word(book, monkeypatch):
    before = mine.digest_of_book(book.pages())
    with monkeypatch.context() as patch:
        patch.setattr(mine, "FORM", mine.FORM + 1)
        assert mine.digest_of_book(book.pages()) != before
    book.page("a", PAGE.replace("Three, at least", "At least three").replace("It counts", "They count"))
    assert mine.digest_of_book(book.pages()) == before
    for changed in (PAGE.replace("n >= 3", "n >= 2"), PAGE.replace("n:.1f", "n:.2f")):
        book.page("a", changed)
        assert mine.digest_of_book(book.pages()) != before
    book.page("a", PAGE)
    book.snippet("a/gpu", "def main():\n    return {'n': 1}\n", "gpus = [1]")
    assert mine.digest_of_book(book.pages()) != before


def test_a_machine_of_the_book_and_a_readers_own_have_one_form(template, small_book):
    """But for addresses and nearest machines, which a reader's has none of, and the text of pictures."""
    small_book.snippet(
        "a/one", COUNTS.format(ran="", name="", n=3, rest=0).replace("(results)", "(results, c)")
    )
    small_book.page("a", PAGE.replace("a/two", "a/one").replace("{a/gpu: n}", ""))
    small_book.commit("a/one", template, {"n": 3, "way": 0.5}, gpus=1)
    pages = small_book.pages("never")
    book = pages.book
    whole = machines.shown(pages, Pictures(book), "h200")
    own = machines.shown(pages, Pictures(book), "h200", machines.YOUR)
    assert whole["nearest"] == {} and "nearest" not in own
    assert (whole["label"], own["label"]) == ("1 × H200", "your 1 × H200")
    assert whole["blocks"] == own["blocks"] and len(own["blocks"]) == 2
    assert {name for name, part in own.items() if isinstance(part, dict)} == set(machines.PARTS)
    assert [claim[:3] for claim in whole["claims"].values()] == [
        claim[:3] for claim in own["claims"].values()
    ]
    assert {claim[3] for claim in whole["claims"].values()} == {"recordings/h200/a/one.json"}
    assert {claim[3] for claim in own["claims"].values()} == {""}
    theirs, ours = (each["snippets"]["a/one"] for each in (whole, own))
    assert theirs["outputs"] == ours["outputs"] and ours["raw"] == ""
    picture, drawn = theirs["pictures"][""], ours["pictures"][""]
    assert picture["tables"] == drawn["tables"] != [] and "wide" not in picture
    assert drawn["wide"].startswith("<svg") and drawn["narrow"].startswith("<svg")


def test_what_one_gpu_gave_is_that_of_more_and_the_nearest_gives_the_rest(template, small_book):
    for name, runs in {"cpu": [0], "one": [0, 1], "two": [0, 1, 2]}.items():
        small_book.snippet(f"a/{name}")
        for gpus in runs:
            small_book.commit(f"a/{name}", template, {"n": gpus}, gpus=gpus)
    small_book.page("a", "# A\n\n" + " ".join(f"{{a/{name}: n}}" for name in ("cpu", "one", "two")))
    pages = small_book.pages("never")
    book = pages.book
    snippets = {}
    for machine in ("cpu", "h200", "h200-x2", "h200-x4"):
        shown = machines.shown(pages, Pictures(book), machine)
        snippets[machine] = [run if isinstance(run, str) else machine for run in shown["snippets"].values()]
        sources = dict(zip(shown["snippets"], snippets[machine], strict=True)) | shown["nearest"]
        values = [text for text, *_ in shown["values"].values()]
        assert values == [str(book.recordings(name)[sources[name]].result["n"]) for name in sources]
        assert shown["nearest"] == ({"a/two": "h200-x2"} if machine == "h200-x4" else {})
    assert snippets == {
        "cpu": ["cpu", "cpu", "cpu"],
        "h200": ["cpu", "h200", "h200"],
        "h200-x2": ["cpu", "h200", "h200-x2"],
        "h200-x4": ["cpu", "h200"],
    }


def test_a_file_that_cannot_be_written_is_an_error_with_its_name(book):
    kept = mine.Mine(book.pages(), book.root / "no/such/../folder" / mine.NAME)
    (book.root / "no").write_text("a file")
    with pytest.raises((OSError, OverlapError), match=r"mine\.json"):
        kept.finish(lambda book, machine: {})
