"""Recordings and what the book makes of them: form, freshness, and how they can be wrong."""

import json
import re
from pathlib import Path

import pytest

from overlap import OverlapError
from overlap.book import select
from overlap.cli import main
from overlap.run import hardware, recording
from overlap.run.meaning import of_parts
from overlap.run.snippet import Snippet

ROOT = Path(__file__).resolve().parent.parent
pytestmark = pytest.mark.usefixtures("on_cpu")

PAGE = """# A

```snippet a/b
```

```claim a/b
n == 3
Three stays three.
```
"""


@pytest.fixture
def committed(small_book, template):
    """A book in order: one snippet, recorded, shown, with a claim on it."""
    small_book.snippet("a/b")
    small_book.page("a", PAGE)
    small_book.commit("a/b", template)
    assert small_book.check() == []
    return small_book


def test_the_form_of_a_recording(template):
    text = recording.dump(template)
    assert json.loads(text) == template == recording.parse(text, "here")
    assert text.endswith("}\n") and text.count("\n") > 40
    keys = [line.split('"')[1] for line in text.splitlines() if line.startswith(' "')]
    assert keys == sorted(keys) and len(keys) == 11
    assert '"three\\n"' in text
    assert recording.dump(recording.sealed(template)) == text


def edited(change):
    """A way to spoil a recording that leaves its digest as it was."""

    def spoil(data: dict) -> str:
        change(data)
        return recording.dump(data)

    return spoil


OF_ANOTHER = {"snippet": "a/c", "source": {"path": "snippets/a/c.py", "sha256": "0" * 64}}
GPU = {"name": "NVIDIA H200", "memory_bytes": 150_000_000_000, "capability": "9.0"}


def on_gpu(data: dict) -> dict:
    """What a recording says of its machine, if that had one H200."""
    return {"profile": "h200", "machine": data["machine"] | {"gpus": [GPU], "host_gpus": 1}}


UNREADABLE = {
    "truncated": (lambda data: recording.dump(data)[:400], "not JSON"),
    "other schema": (edited(lambda data: data.update(schema=2)), "not a recording of schema 1"),
    "no result": (edited(lambda data: data.pop("result")), "result: Field required"),
    "of another snippet": (
        edited(lambda data: data.update(OF_ANOTHER)),
        "says it is a/c on cpu; move or remove it",
    ),
    "of another machine": (
        edited(lambda data: data.update(on_gpu(data))),
        "says it is a/b on h200; move or remove",
    ),
}


@pytest.mark.parametrize("name", UNREADABLE)
def test_what_is_no_recording_is_an_error_with_file_and_remedy(committed, monkeypatch, capsys, name):
    spoil, expected = UNREADABLE[name]
    path = committed.path("a/b")
    text = spoil(recording.read(path))
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(OverlapError, match=r"docs/recordings/cpu/a/b\.json") as caught:
        committed.book().committed  # noqa: B018 - a build stops here
    assert expected in str(caught.value)
    assert any(remedy in str(caught.value) for remedy in ("record the snippet again", "move or remove it"))
    committed.page("worse", "```claim\n```\n")
    monkeypatch.chdir(committed.root)
    assert main(["check"]) == 1
    assert "\ndocs/worse.md:1: claim " in capsys.readouterr().out, "what cannot be read hides nothing else"


@pytest.mark.parametrize(
    ("path", "value", "reason"),
    [
        ("extra", 1, "extra: Extra inputs are not permitted"),
        ("snippet", "../x", "snippet: String should match pattern"),
        ("source.path", "snippets/a/c.py", "source.path is snippets/a/c.py, but the recording is of a/b"),
        ("machine.gpus", [], "profile is 'h200', but a run is of cpu or cpu-"),
        ("machine.cores", "8", "machine.cores: Input should be a valid integer"),
        ("machine.gpus.0.name", "h200-x4", "'h200-x4' is no name of a GPU"),
        ("machine.gpus.0.name", "h200-x1", "'h200-x1' is no name of a GPU"),
        ("run.started", 5, "run.started: Input should be a valid string"),
        ("run.started", "yesterday", "run.started: Value error, Invalid isoformat string: 'yesterday'"),
        ("run.exit", False, "run.exit: Input should be a valid integer"),
        ("schema", True, "not a recording of schema 1"),
        ("result.\ud800", 1, "not JSON ('utf-8' codec can't encode character"),
        ("result.text", "\udfff", "not JSON ('utf-8' codec can't encode character"),
    ],
)
def test_a_wrong_field_is_refused_with_its_path_and_reason(template, path, value, reason):
    data = json.loads(recording.dump(template | {"snippet": "a/b"} | on_gpu(template)))
    data["source"]["path"] = "snippets/a/b.py"
    assert recording.parse(json.dumps(data), "x.json") == data
    *way, last = path.split(".")
    node = data
    for step in way:
        node = node[int(step) if step.isdigit() else step]
    node[last] = value
    with pytest.raises(OverlapError) as caught:
        recording.parse(json.dumps(data), "x.json")
    message = str(caught.value)
    assert message.startswith("x.json: ") and reason in message
    assert message.endswith("restore the file from version control or record the snippet again")


def test_older_recordings_prove_their_work_and_are_read_over(template):
    run = template["run"] | {"worked": [{"context": True, "allocations": 7, "bytes": 4096, "kernels": 12}]}
    assert recording.parse(json.dumps(template | {"run": run}), "x.json")["run"] == run


def test_all_committed_recordings_are_whole_and_as_they_are_written():
    paths = sorted(ROOT.glob("docs/recordings/*/*/*.json"))
    assert len(paths) > 50
    for path in paths:
        data = recording.read(path)
        assert recording.is_intact(data) and recording.dump(data) == path.read_text(encoding="utf-8"), path


def test_a_recording_of_no_snippet_is_an_error(committed):
    committed.snippet("a/c", "def main():\n    return {}\n")
    (committed.root / "snippets/a/b.py").unlink()
    assert committed.check() == [
        "docs/recordings/cpu/a/b.json: there is no snippets/a/b.py; remove the recording"
    ]


def test_a_recording_edited_by_hand_is_found(committed):
    path = committed.path("a/b")
    path.write_text(path.read_text().replace("three", "four"))
    assert committed.check() == [
        "docs/recordings/cpu/a/b.json: edited by hand: its digest does not match; "
        "restore it or run `overlap record a/b`"
    ]


def test_a_digit_changed_makes_the_claim_false(committed):
    path = committed.path("a/b")
    path.write_text(path.read_text().replace('"n": 3', '"n": 4'))
    problems = committed.check()
    assert len(problems) == 2
    assert problems[0].startswith("docs/recordings/cpu/a/b.json: edited by hand")
    assert problems[1] == (
        "docs/a.md:6: claim is false: Three stays three. `n == 3`: n = 4, not == 3, "
        "in docs/recordings/cpu/a/b.json; claim what the data say, or record again"
    )


@pytest.mark.parametrize(
    ("old", "new", "stale"),
    [
        ('"""A test."""', '"""Another text."""', False),
        ("def main():", "# why\ndef main():", False),
        ("gpus = [0]", "gpus = [0]\n# timeout = 7", False),
        ('"n": 3', '"n": 4', True),
    ],
)
def test_freshness_is_of_meaning(committed, monkeypatch, capsys, old, new, stale):
    path = committed.root / "snippets/a/b.py"
    path.write_text(path.read_text().replace(old, new))
    message = (
        "docs/recordings/cpu/a/b.json: code changed: snippets/a/b.py or what it imports is not what ran; "
        "run `overlap record a/b`"
    )
    assert committed.check(remarks=False) == ([message] if stale else [])
    monkeypatch.chdir(committed.root)
    assert main(["list"]) == 0
    (row,) = capsys.readouterr().out.splitlines()[1:]
    assert row.split()[2:4] == (["-", "1"] if stale else ["1", "-"])


HELPER = """from statistics import mean, median

WARMUP, TRIALS = 2, 7
_CACHE = {}


def once(work):
    return work()


def measure(work, trials=TRIALS):
    WIDE = [once(work) for _ in range(trials)]
    return median(WIDE)


class Benchmark:
    def __enter__(self, spread=WARMUP):
        return mean([spread])


WIDE = 3
_CACHE["a"] = 1
if TRIALS > 100:
    print("patience")


def plot(results):
    return WIDE


def main(n=4):
    return {"n": measure(lambda: n)}


if __name__ == "__main__":
    main()
"""
USERS = {
    "timing/benchmark": HELPER,
    "a/measures": "from snippets.timing.benchmark import measure\n\n\n"
    "def main():\n    return {'n': measure(int)}\n",
    "a/both": "from snippets.timing.benchmark import Benchmark, measure as m\n\n\n"
    "def main():\n    return {}\n",
    "a/through": "from snippets.a.passes import work\n\n\ndef main():\n    return {'n': work()}\n",
    "a/passes": "def work():\n    from snippets.timing.benchmark import once\n    return once(int)\n\n\n"
    "def main():\n    return {}\n",
    "a/runs": "from snippets.timing.benchmark import main as other\n\n\ndef main():\n    return other()\n",
    "a/draws": "from snippets.timing.benchmark import Benchmark, once\n\n\n"
    "def main():\n    return {'n': once(int)}\n\n\n"
    "def plot(results, ceilings):\n    return Benchmark()\n",
    "a/alone": "def main():\n    return {'n': 3}\n",
}
MEASURE = {"a/measures", "a/both", "a/runs"}
ALL = {*MEASURE, "a/through", "a/passes", "a/draws"}


@pytest.mark.parametrize(
    ("old", "new", "stale"),
    [
        ("n=4", "n=5", {"a/runs"}),
        ("return WIDE", "return 2 * WIDE", set()),
        ("mean([spread])", "mean([spread, 1])", {"a/both"}),
        ("import mean, median", "import fmean as mean, median", {"a/both"}),
        ("import mean, median", "import mean, median, stdev", set()),
        ("WARMUP, TRIALS = 2, 7", "WARMUP, TRIALS = 2, 8", ALL),  # the `if` at the top reads it
        ("return work()", "return [work()]", ALL),
        ("WIDE = 3", "WIDE = 4", set()),
        ("_CACHE = {}", "_CACHE = dict()", ALL),
        ("def once(work):", '# why\ndef once(work):\n    """Once."""\n', set()),
        ('if __name__ == "__main__":\n    main()', "", set()),
    ],
)
def test_a_changed_helper_makes_exactly_its_users_stale(small_book, template, old, new, stale):
    for name in sorted(USERS, key=["timing/benchmark", "a/passes"].__contains__, reverse=True):
        small_book.snippet(name, USERS[name])
    for name in USERS:
        small_book.commit(name, template)
    helper = small_book.root / "snippets/timing/benchmark.py"
    assert old in helper.read_text()
    small_book.snippet("timing/benchmark", HELPER.replace(old, new, 1))
    book = small_book.book()
    grades = {name: book.committed[name]["cpu"].grade for name in USERS if name != "timing/benchmark"}
    assert {name for name, grade in grades.items() if grade == recording.CODE} == stale


def test_what_only_a_picture_takes_from_a_helper_changes_the_picture_and_nothing_else(small_book, template):
    for name in ("timing/benchmark", "a/draws"):
        small_book.snippet(name, USERS[name])
    small_book.commit("a/draws", template)

    def seen():
        book = small_book.book()
        (known,) = book.recordings("a/draws").values()
        return known.grade, of_parts(book.snippets["a/draws"].imported["timing/benchmark"])

    before = seen()
    small_book.snippet("timing/benchmark", HELPER.replace("mean([spread])", "mean([spread, 1])"))
    assert seen()[0] == before[0] == recording.FRESH
    assert seen()[1] != before[1]
    bare = USERS["a/draws"].replace("Benchmark, once", "once").partition("def plot")[0]
    small_book.snippet("a/draws", bare)
    assert small_book.book().committed["a/draws"]["cpu"].grade == recording.FRESH


HERE = {"versions": {"python": "3.12", "torch": "2.11.0", "numpy": "2.0", "triton": None, "pycuda": None}}
THERE = {"python": "3.11", "torch": "2.11.0+cu130", "numpy": "2.0", "triton": "3.5", "pycuda": None}


@pytest.mark.parametrize(
    ("changes", "machines", "grade"),
    [
        ({}, {"cpu"}, recording.FRESH),
        ({"torch": "2.12.0+cu130"}, {"cpu"}, recording.ENVIRONMENT),
        ({"numpy": "1.26"}, {"cpu"}, recording.ENVIRONMENT),
        ({"numpy": "1.26"}, {"h200"}, recording.OTHER),
    ],
)
def test_freshness_of_the_environment(small_book, template, changes, machines, grade):
    snippet = small_book.snippet("a/b")
    data = recording.read(small_book.commit("a/b", template, software=template["software"] | THERE | changes))
    assert recording.grade(data, snippet, HERE, machines) == grade


RANKS = 'gpus = [0, 1]\nranks = {}\nlauncher = "torchrun"'


def of_ranks(book, template, ranks: int, gpus: int = 0, day: int = 1):
    """A recording of so many processes."""
    run = template["run"] | {"started": f"2026-01-0{day}T00:00:00+00:00"}
    run["command"] = f"torchrun --nproc-per-node {gpus or ranks} snippets/a/b.py"
    return recording.read(book.commit("a/b", template, gpus=gpus, run=run))


def test_a_run_of_fewer_processes_is_not_what_ran_but_of_gpus_each_has_one(small_book, template):
    for ranks, grade in ((2, recording.FRESH), (3, recording.CODE)):
        snippet = small_book.snippet("a/b", options=RANKS.format(ranks))
        of_ranks(small_book, template, 2)
        of_ranks(small_book, template, 2, gpus=1)
        committed = small_book.book().committed["a/b"]
        assert committed["cpu"].grade == grade
        assert committed["h200"].grade == recording.OTHER
        assert snippet.digest == committed["h200"].data["source"]["sha256"]


def test_missing_recordings_and_their_excuses(small_book, template):
    small_book.page("a", "```snippet a/b\n```\n")
    small_book.snippet("a/b", options='gpus = [0, 1, 8]\nmissing = { 8 = "there was none" }')
    small_book.commit("a/b", template)
    assert small_book.check() == [
        "snippets/a/b.py: missing: no recording with 1 GPU; run `overlap record a/b` on such a machine"
    ]
    small_book.snippet("a/c", options='gpus = [1]\nmissing = { 1 = "not recorded yet" }')
    small_book.page("c", "```snippet a/c\n```\n")
    small_book.commit("a/b", template, gpus=1)
    assert small_book.check() == [
        "snippets/a/c.py: missing: no recording with 1 GPU; run `overlap record a/c` on such a machine"
    ]
    small_book.commit("a/c", template, gpus=1)
    small_book.snippet("a/c", options="gpus = [1]")
    assert small_book.check() == []
    small_book.commit("a/b", template, gpus=8)
    assert small_book.check() == [
        "snippets/a/b.py: is recorded with 8 GPUs, so drop `missing.8` from its header"
    ]
    assert list(small_book.book().recordings("a/b")) == ["cpu", "h200", "h200-x8"]
    assert select.of_snippet(small_book.book(), "a/b") == "h200"


@pytest.mark.parametrize(
    ("named", "recorded", "first"),
    [
        ([0, 1, 2, 4, 8], [0, 1, 2, 4, 8], "h200-x2"),
        ([1, 2, 4], [1, 2], "h200-x2"),
        ([1, 2], [1, 2], "h200"),
        ([0, 2, 4], [0, 2], "h200-x2"),
        ([0, 4], [0], "cpu"),
    ],
)
def test_what_is_for_many_gpus_is_shown_first_on_two(small_book, template, named, recorded, first):
    small_book.snippet("a/b", options=f"gpus = {named}")
    for gpus in recorded:
        small_book.commit("a/b", template, **({"gpus": gpus} if gpus else {}))
    for home in ("", "[tool.overlap]\nhome = {cpu = 1, h200 = 1, h200-x2 = 1}\n"):
        (small_book.root / "pyproject.toml").write_text(home)
        assert select.of_snippet(small_book.book(), "a/b") == first


@pytest.mark.parametrize(("home", "first"), [("h200 = 1, h100 = 2", "h200"), ("h100 = 1, h200 = 2", "h100")])
def test_of_two_machines_of_the_book_the_one_named_first_is_shown_first(small_book, template, home, first):
    small_book.snippet("a/b", options="gpus = [1]")
    path = small_book.commit("a/b", template, gpus=1)
    other = json.loads(path.read_text()) | {"profile": "h100"}
    other["machine"]["gpus"][0]["name"] = "NVIDIA H100"
    recording.write(small_book.path("a/b", "h100"), recording.dump(recording.sealed(other)))
    (small_book.root / "pyproject.toml").write_text(f"[tool.overlap]\nhome = {{{home}}}\n")
    assert select.of_snippet(small_book.book(), "a/b") == first


@pytest.mark.parametrize(
    ("wanted", "ran_on", "near"),
    [
        ("h200-x8", "cpu h100-x8 h200-x2 h200-x4", "h100-x8"),  # as many of another GPU
        ("h200-x8", "cpu h100-x4 h200-x2 h200-x4", "h200-x4"),  # of as many the same GPU
        ("h100-x2", "cpu h100-x4 h200-x2", "h200-x2"),
        ("h200", "cpu h200-x2 h200-x4", "h200-x2"),  # only with more
        ("h100-x4", "cpu h200 h200-x2 h200-x8", "h200-x2"),  # another GPU, with no more
        ("h200-x8", "cpu", "cpu"),
        ("cpu", "h200 h200-x2", None),
        ("cpu", "cpu h200-x2", "cpu"),
    ],
)
def test_where_a_machine_has_not_run_the_nearest_is_shown(wanted, ran_on, near):
    assert select.nearest(wanted, ran_on.split()) == near


def test_a_snippet_on_no_page_is_found(committed, template):
    committed.snippet("a/hidden")
    committed.commit("a/hidden", template)
    assert committed.check() == ["snippets/a/hidden.py: no page shows it; add a snippet block to docs/"]


def test_machines_of_the_book(committed, template):
    committed.commit("a/b", template, gpus=2)
    assert [(m["name"], m["label"], m["local"], m["first"]) for m in committed.book().machines()] == [
        ("cpu", "CPU", False, False),
        ("h200-x2", "2 × H200", False, True),
    ]


def test_the_cache_is_keyed_by_code_inputs_and_machine(small_book, monkeypatch):
    small_book.snippet("timing/benchmark", "def f():\n    return 1\n\n\ndef main():\n    return {}\n")
    small_book.snippet(
        "a/b", "from snippets.timing.benchmark import f\n\n\ndef main():\n    return {'n': f()}\n"
    )

    def path():
        return small_book.book().local.path(Snippet.read(small_book.root, "a/b"), 0)

    paths = [path(), path()]
    small_book.snippet("timing/benchmark", "def f():\n    return 2\n\n\ndef main():\n    return {}\n")
    paths.append(path())
    monkeypatch.setattr(hardware, "here", lambda: {"gpus": [], "cpu": "x", "cores": 2, "versions": {}})
    paths.append(path())
    assert paths[0] == paths[1] and len(set(paths)) == 3


def on_processor(template, cpu: str, cores: int) -> dict:
    """What is other in a recording of the CPU alone that was made on this processor."""
    return {"machine": template["machine"] | {"cpu": cpu, "cores": cores}}


def test_runs_on_another_processor_are_a_machine_of_their_own(committed, template, monkeypatch, capsys):
    monkeypatch.chdir(committed.root)
    books = committed.path("a/b")
    before = books.read_bytes()
    laptop = recording.read(books) | on_processor(template, "AMD Ryzen 9 7950X 16-Core Processor", 32)
    bundle = committed.root / "bundle.jsonl"
    bundle.write_text(json.dumps(recording.sealed(laptop)) + "\n")
    assert main(["import", str(bundle)]) == 0
    name = "cpu-ryzen-9-7950x-32"
    out = capsys.readouterr().out
    assert f"new: a/b on {name}, " in out and "(not the book's processor and number of cores)" in out
    assert books.read_bytes() == before
    assert recording.read(committed.path("a/b", name))["profile"] == name
    book = committed.book()
    assert committed.check() == []
    assert [machine["label"] for machine in book.machines()] == ["CPU", "CPU RYZEN 9 7950X, 32 cores"]
    assert select.of_snippet(book, "a/b") == "cpu"


def test_what_this_machine_runs_is_not_put_with_another_processor(small_book, template, monkeypatch, capsys):
    monkeypatch.chdir(small_book.root)
    small_book.snippet("a/b")
    small_book.commit("a/b", template, **on_processor(template, "AMD EPYC 7763", 64))
    here = hardware.here()
    own = hardware.cpu_name(here["cpu"], here["cores"])
    assert main(["record", "a/b"]) == 0
    assert "This CPU is a machine of its own" in capsys.readouterr().out
    assert recording.read(small_book.path("a/b", own))["result"] == {"n": 3}
    book = small_book.book()
    assert list(book.recordings("a/b")) == ["cpu", own]
    assert list(book.local.of("a/b")) == [own]
    small_book.commit("a/b", template)
    assert small_book.book().local.of("a/b") == {}, "here it is the book's processor now"
    assert book.committed["a/b"]["cpu"].grade == recording.OTHER
    assert book.committed["a/b"][own].grade == recording.FRESH


def test_runs_on_unlike_processors_are_not_merged(small_book, template):
    small_book.snippet("a/b")
    old, new = (
        recording.read(small_book.commit("a/b", template, **on_processor(template, cpu, cores)))
        for cpu, cores in (("AMD EPYC", 2), ("AMD EPYC", 4))
    )
    assert recording.merged(old, new) == new


def test_an_unknown_way_to_execute_is_refused(small_book):
    with pytest.raises(OverlapError, match="execute is auto or never, not 'sometimes'"):
        small_book.book("sometimes")


def test_one_thing_has_one_word_in_the_code():
    """A hash is a digest; a machine is no profile, but for the name of a field."""
    texts = {path: path.read_text(encoding="utf-8") for path in sorted((ROOT / "overlap").rglob("*.py"))}
    other = re.compile(r"fingerprint|\bedition|\bstamp|\bprofiles?\b", re.I)
    found = {(path.name, match[0]) for path, text in texts.items() for match in other.finditer(text)}
    assert len(texts) > 60 and found == {("hardware.py", "profile")}
