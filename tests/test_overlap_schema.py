"""The schema: what recordings, lines of bundles and headers may hold, and the memo that spares reading them twice."""

import copy
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from overlap import OverlapError
from overlap.run import recording, snippet, strict
from overlap.run.memo import Memo
from overlap.run.snippet import Snippet, discover

ROOT = Path(__file__).resolve().parent.parent
GPU = {"name": "NVIDIA H200", "memory_bytes": 150_109_880_320, "capability": "9.0"}
GOOD = {
    "schema": 1,
    "snippet": "a/b",
    "profile": "h200-x2",
    "digest": "0" * 64,
    "source": {"path": "snippets/a/b.py", "sha256": "1" * 64},
    "inputs": {"snippets/timing/benchmark.py": "2" * 64},
    "run": {"command": "python snippets/a/b.py", "started": "2026-01-31T12:00:00+00:00", "seconds": 1.5, "exit": 0},
    "machine": {
        "gpus": [GPU, GPU | {}],
        "host_gpus": 4,
        "driver": "580.1",
        "links": ["\tGPU0\tGPU1", "GPU0\t X "],
        "cpu": "Some CPU @ 2 GHz",
        "cores": 8,
        "system": "Linux 6",
    },
    "software": {
        "python": "3.12.3",
        "torch": "2.11.0+cu130",
        "torch_git": None,
        "cuda": "13.0",
        "cudnn": 91900,
        "nccl": None,
        "numpy": "2.0",
        "triton": None,
        "pycuda": None,
    },
    "outputs": [{"output_type": "stream", "name": "stdout", "text": ["\x1b[1mred\x1b[0m\n"], "rank": 0}],
    "result": {"n": 3, "ms_trials": [1.5, 2], "deep": {"of": [None, True, "x"]}},
}
GONE = object()


def changed(path: str, value) -> dict:
    """The good recording with one thing changed, named as messages name it; GONE takes it away."""
    data = copy.deepcopy(GOOD)
    *way, last = [int(step) if step.isdigit() else step for step in re.findall(r"[\w-]+", path)]
    node = data
    for step in way:
        node = node[step]
    if value is GONE:
        del node[last]
    else:
        node[last] = value
    return data


HASH, MOMENT, NAME = "must be a SHA-256 of 64 hex digits", "must be date, time and zone", "must be <chapter>/<snippet>"
WHOLE, NUMBER, TEXT, TABLE = "must be a whole number", "must be a number", "must be text", "must be a table of keys"
PRINTABLE, WORDS = "must be one line of printable text, without ", "must be `cpu` or lower-case words"
NOT_ONE = "not a recording of schema 1"
BAD_FIELDS = [
    ("schema", GONE, NOT_ONE),
    ("schema", 2, NOT_ONE),
    ("schema", 1.0, NOT_ONE),
    ("schema", True, NOT_ONE),
    ("schema", "1", NOT_ONE),
    *((key, GONE, "is missing") for key in sorted(GOOD.keys() - {"schema"})),
    *((f"machine.{key}", GONE, "is missing") for key in GOOD["machine"]),
    *((f"software.{key}", GONE, "is missing") for key in GOOD["software"]),
    *((f"run.{key}", GONE, "is missing") for key in GOOD["run"]),
    *((f"outputs[0].{key}", GONE, "is missing") for key in GOOD["outputs"][0]),
    *((f"machine.gpus[1].{key}", GONE, "is missing") for key in GPU),
    ("source.sha256", GONE, "is missing"),
    ("extra", 1, "is unknown; known are schema, snippet, profile"),
    ("outputz", [], "is unknown, did you mean outputs?"),
    ("run.second", 1, "is unknown, did you mean seconds?"),
    ("machine.gpus[0].nam", "x", "is unknown, did you mean name?"),
    ("software.torchvision", "1", "is unknown"),
    ("snippet", 1, TEXT),
    ("snippet", "a", NAME),
    ("snippet", "../x", NAME),
    ("snippet", "A/b", NAME),
    ("snippet", "a/b\n", NAME),
    ("snippet", "a/" + "b" * 300, "must have at most 200 characters"),
    ("profile", None, TEXT),
    ("profile", "", WORDS),
    ("profile", "../../..", WORDS),
    ("profile", "H200", WORDS),
    ("profile", "h200--x2", WORDS),
    ("profile", "-x2", WORDS),
    ("profile", "h200 x2", WORDS),
    ("profile", "h" * 101, "must have at most 100 characters"),
    ("digest", "0" * 63, HASH),
    ("digest", "G" * 64, HASH),
    ("digest", "A" * 64, HASH),
    ("digest", 0, TEXT),
    ("source", 5, TABLE),
    ("source.sha256", "x", HASH),
    ("source.path", "/etc/passwd", "must be snippets/<chapter>/<snippet>.py"),
    ("inputs", [], TABLE),
    ("inputs", {"../x.py": "0" * 64}, "inputs['../x.py'] must be snippets/<chapter>/<snippet>.py"),
    ("inputs", {"snippets/a/c.py": "0"}, HASH),
    ("inputs", {"snippets/a/c.py": None}, TEXT),
    ("run", [], TABLE),
    ("run.command", "", "must not be empty"),
    ("run.command", "python\nrm", PRINTABLE + r"\n"),
    ("run.started", "", MOMENT),
    ("run.started", "2026-01-31", MOMENT),
    ("run.started", "2026-01-31T12:00:00", MOMENT),
    ("run.started", "2026-13-31T12:00:00+00:00", MOMENT),
    ("run.started", 1_700_000_000, TEXT),
    ("run.seconds", -0.1, "must be greater than or equal to 0, not -0.1"),
    ("run.seconds", "1", NUMBER),
    ("run.seconds", True, NUMBER),
    ("run.seconds", None, NUMBER),
    ("run.seconds", float("nan"), "is nan, but NaN, Infinity"),
    ("run.seconds", float("-inf"), "is -inf, but NaN, Infinity"),
    ("run.exit", 0.0, WHOLE),
    ("run.exit", False, WHOLE),
    ("run.exit", None, WHOLE),
    ("machine", None, TABLE),
    ("machine.gpus", {}, "must be a list"),
    ("machine.gpus", [1], TABLE),
    ("machine.gpus", [], "profile is 'h200-x2', but machine.gpus names 0 GPUs"),
    ("profile", "cpu", "profile is 'cpu', but machine.gpus names 2 GPUs"),
    ("machine.gpus", [GPU] * 5, "host_gpus is 4, but the run saw 5 GPUs"),
    ("machine.host_gpus", 1, "host_gpus is 1, but the run saw 2 GPUs"),
    ("machine.host_gpus", -1, "must be greater than or equal to 0"),
    ("machine.host_gpus", "4", WHOLE),
    ("machine.gpus[1].name", "", "must not be empty"),
    ("machine.gpus[1].name", "NVIDIA", "must name a machine"),
    ("machine.gpus[1].name", "é", "must name a machine"),
    ("machine.gpus[1].name", "CPU", "must name a machine"),
    ("machine.gpus[1].name", "H200-x4", "must name a machine"),
    ("machine.gpus[1].name", "H200\x1b[1m", "must be printable"),
    ("machine.gpus[1].name", "H" * 101, "must have at most 100 characters"),
    ("machine.gpus[1].name", 200, TEXT),
    ("machine.gpus[1].memory_bytes", 0, "must be greater than 0"),
    ("machine.gpus[1].memory_bytes", 1.5, WHOLE),
    ("machine.gpus[1].capability", "9", "must be a compute capability such as '9.0'"),
    ("machine.gpus[1].capability", 9.0, TEXT),
    ("machine.driver", 580, TEXT),
    ("machine.driver", "580\x00", PRINTABLE + r"\x00"),
    ("machine.driver", "9" * 1001, "must have at most 1000 characters"),
    ("machine.links", "GPU0", "must be a list"),
    ("machine.links", ["a\nb"], PRINTABLE + r"\n"),
    ("machine.links", [None], TEXT),
    ("machine.cpu", "a\u202eb", PRINTABLE + r"\u202e"),
    ("machine.cpu", None, TEXT),
    ("machine.cores", 0, "must be greater than or equal to 1"),
    ("machine.cores", "8", WHOLE),
    ("machine.system", "Linux\x7f", PRINTABLE + r"\x7f"),
    ("software", "torch", TABLE),
    ("software.torch", None, TEXT),
    ("software.torch", " ", "must be some words"),
    ("software.cudnn", "9", WHOLE),
    ("software.cuda", 13, TEXT),
    ("software.triton", "3\r", PRINTABLE + r"\r"),
    ("outputs", {}, "must be a list"),
    ("outputs", ["three"], TABLE),
    ("outputs[0].output_type", "display_data", "must be 'stream'"),
    ("outputs[0].name", "log", "must be 'stdout' or 'stderr', not 'log'"),
    ("outputs[0].text", "three", "must be a list"),
    ("outputs[0].text[0]", 3, TEXT),
    ("outputs[0].text[0]", "\ud800", "is no text"),
    ("outputs[0].rank", -1, "must be greater than or equal to 0"),
    ("outputs[0].rank", "0", WHOLE),
    ("result", [1], TABLE),
    ("result", None, TABLE),
    ("result.n", float("inf"), "is inf, but NaN, Infinity"),
    ("result.n", 10**400, "is too large for a number"),
    ("result.deep.of", ["\udfff"], "result.deep.of[0] is no text"),
    ("result", {"\ud800": 1}, "its key has half a character"),
    ("snippet", "a/c", "source.path is snippets/a/b.py, but the recording is of a/c"),
]


def test_the_good_recording_is_good():
    text = json.dumps(GOOD)
    assert recording.parse(text, "here") == recording.parse(text.encode(), "here") == GOOD
    plus = changed("profile", "h200+rtx-4090")
    assert recording.parse(json.dumps(plus), "here") == plus


@pytest.mark.parametrize(
    ("path", "value", "expected"), BAD_FIELDS, ids=[f"{p}-{i}" for i, (p, *_) in enumerate(BAD_FIELDS)]
)
def test_a_wrong_field_is_refused_with_its_path_and_reason(path, value, expected):
    with pytest.raises(OverlapError) as caught:
        recording.parse(json.dumps(changed(path, value)), "docs/x.json")
    message = str(caught.value)
    assert message.startswith("docs/x.json: ") and expected in message
    assert "restore the file from version control or record the snippet again" in message
    if expected.startswith(("is ", "must ")):
        assert f"{path} {expected}" in message or f"{path}[" in message or f"{path}." in message
    assert len(message) < 400 and message.isprintable()


DEEP = "nested deeper than 100 levels"
BAD_TEXTS = {
    "empty": ("", "not JSON"),
    "prose": ("hello", "not JSON"),
    "truncated": (json.dumps(GOOD)[:200], "not JSON"),
    "two values": ('{"a": 1} {}', "not JSON (Extra data"),
    "list": ("[]", NOT_ONE),
    "number": ("1", NOT_ONE),
    "nothing": ("null", NOT_ONE),
    "NaN alone": ("NaN", "is nan"),
    "one key twice": ('{"schema": 1, "schema": 1}', "schema stands twice in its object"),
    "deep key twice": ('{"run": [{"a": 1, "a": 2}]}', "run[0].a stands twice"),
    "200,000 lists": ("[" * 200_000, DEEP),
    "200,000 closed lists": ("[" * 200_000 + "]" * 200_000, DEEP),
    "200,000 objects": ('{"a":' * 200_000, DEEP),
    "101 lists": ("[" * 101 + "]" * 101, DEEP),
    "overflow": (json.dumps(GOOD).replace("1.5,", "1e999,"), "is inf"),
    "5,000 digits": ('{"n": ' + "9" * 5000 + "}", "not JSON"),
    "byte order mark": (b"\xef\xbb\xbf{}", "begins with a byte order mark"),
    "UTF-16": (json.dumps(GOOD).encode("utf-16"), ":1: byte 0xff is not UTF-8"),
    "a bad byte": (b'{\n"a":\n"\xe9"}', ":3: byte 0xe9 is not UTF-8"),
    "encoded surrogate": (b'"\xed\xa0\x80"', ":1: byte 0xed is not UTF-8"),
    "control character": ('{"a": "\x01"}', "not JSON (Invalid control character"),
    "trailing comma": ('{"a": 1,}', "not JSON"),
}


@pytest.mark.parametrize("name", BAD_TEXTS)
def test_what_is_no_strict_json_is_refused(tmp_path, name):
    text, expected = BAD_TEXTS[name]
    path = tmp_path / "x.json"
    path.write_bytes(text if isinstance(text, bytes) else text.encode("utf-8"))
    for read in (recording.read, lambda path: recording.read(path, Memo(tmp_path / "memo.json"))):
        with pytest.raises(OverlapError, match="or record the snippet again") as caught:
            read(path)
        assert str(caught.value).startswith(f"{path}:") and expected in str(caught.value)


def test_a_hundred_levels_are_allowed():
    deep = json.loads("[" * 98 + "]" * 98)
    assert recording.parse(json.dumps(changed("result.n", deep)), "here")["result"]["n"] == deep


def test_what_is_no_file_is_no_recording(tmp_path):
    (tmp_path / "x.json").mkdir()
    os.mkfifo(tmp_path / "y.json")
    for name, expected in {"x": "is no file; remove it", "y": "is no file; remove it", "z": "cannot be read"}.items():
        with pytest.raises(OverlapError, match=rf"/{name}.json: {expected}"):
            recording.read(tmp_path / f"{name}.json")


def test_a_file_too_large_is_not_even_read(tmp_path):
    path = tmp_path / "x.json"
    with path.open("wb") as file:
        file.truncate(strict.MAX_BYTES + 1)
    with pytest.raises(OverlapError, match=r"x\.json: larger than 64 MiB; restore"):
        recording.read(path)
    with pytest.raises(OverlapError, match="line 3: larger than 64 MiB; restore"):
        recording.parse(" " * (strict.MAX_BYTES + 1), "line 3")


def test_several_problems_are_told_at_once_and_many_are_counted():
    data = changed("run.exit", "0") | {"snippet": 1, "extra": 1}
    with pytest.raises(OverlapError) as caught:
        recording.parse(json.dumps(data), "f")
    first, *listed = str(caught.value).split("\n")
    assert first.startswith("f: 3 problems; restore") and [line.split()[0] for line in listed] == [
        "snippet",
        "run.exit",
        "extra",
    ]
    with pytest.raises(OverlapError) as caught:
        recording.parse(json.dumps(changed("machine.gpus", [{}] * 4)), "f")
    assert str(caught.value).startswith("f: 12 problems; ") and str(caught.value).endswith("\n  and 7 more")
    assert str(caught.value).count("\n") == 6


def test_a_long_value_is_cut_in_the_message():
    with pytest.raises(OverlapError) as caught:
        recording.parse(json.dumps(changed("profile", list(range(10**5)))), "f")
    assert len(str(caught.value)) < 200


RECORDINGS = sorted(ROOT.glob("docs/recordings/*/*/*.json"))


def test_all_committed_recordings_are_valid_and_as_they_are_written():
    assert len(RECORDINGS) > 50
    for path in RECORDINGS:
        data = recording.read(path)
        assert data.intact and recording.dump(data) == path.read_text(encoding="utf-8"), path


def test_what_is_sealed_is_strict_json():
    for result, expected in [
        ({"a": "\ud800"}, "result.a is no text"),
        ({"a": float("nan")}, "result.a is nan"),
        ({"a": {1}}, "no plain JSON"),
    ]:
        with pytest.raises(OverlapError, match=f"^a/b: .*{expected}"):
            recording.sealed(GOOD | {"result": result})


HEADER = "# /// script\n# [tool.overlap]\n{}\n# ///\n"
MAIN = "def main():\n    return {}\n"
RANKED = 'gpus = [0]\nlauncher = "torchrun"\nranks = '
BAD_OPTIONS = [
    ("", "tool.overlap.gpus is missing (write the counts, for instance gpus = [0, 1])"),
    ("gpus = []", "tool.overlap.gpus must not be empty"),
    ("gpus = 1", "tool.overlap.gpus must be a list, not 1"),
    ('gpus = "0"', "tool.overlap.gpus must be a list, not '0'"),
    ("gpus = [-1]", "tool.overlap.gpus[0] must be greater than or equal to 0, not -1"),
    ("gpus = [0, true]", "tool.overlap.gpus[1] must be a whole number, not True"),
    ("gpus = [1.0]", "tool.overlap.gpus[0] must be a whole number, not 1.0"),
    ('gpus = ["1"]', "tool.overlap.gpus[0] must be a whole number, not '1'"),
    ("gpus = [[1]]", "tool.overlap.gpus[0] must be a whole number, not [1]"),
    ("gpus = [1, 2, 1]", "tool.overlap: gpus has a count twice: [1, 2, 1]"),
    ("gpus = [0]\ngpu_count = [0]", "tool.overlap.gpu_count is unknown"),
    ("gpus = [0]\ntimeuot = 5", "tool.overlap.timeuot is unknown, did you mean timeout?"),
    ("gpus = [0]\nruns = 5", "tool.overlap.runs is unknown"),
    ("gpus = [0]\ntimeout = -1", "tool.overlap.timeout must be greater than 0, not -1"),
    ("gpus = [0]\ntimeout = 0", "tool.overlap.timeout must be greater than 0, not 0"),
    ("gpus = [0]\ntimeout = 3601", "tool.overlap.timeout must be less than or equal to 3600, not 3601"),
    ("gpus = [0]\ntimeout = true", "tool.overlap.timeout must be a number, not True"),
    ("gpus = [0]\ntimeout = nan", "tool.overlap.timeout must be"),
    ("gpus = [0]\ntimeout = inf", "tool.overlap.timeout must be"),
    ('gpus = [0]\ntimeout = "abc"', "tool.overlap.timeout must be a number, not 'abc'"),
    ("gpus = [0]\ntimeout = 2026-01-31", "tool.overlap.timeout must be a number, not datetime.date(2026, 1, 31)"),
    ("gpus = [0]\ntimeout = [60]", "tool.overlap.timeout must be a number"),
    ('gpus = [0]\nexclusive = "no"', "tool.overlap.exclusive must be true or false, not 'no'"),
    ("gpus = [0]\nexclusive = 0", "tool.overlap.exclusive must be true or false, not 0"),
    ('gpus = [0]\nlauncher = "mpirun"', "tool.overlap.launcher must be 'python' or 'torchrun', not 'mpirun'"),
    ("gpus = [0]\nlauncher = 1", "tool.overlap.launcher must be 'python' or 'torchrun', not 1"),
    ('gpus = [0]\nmissing = "none"', "tool.overlap.missing must be a table of keys, not 'none'"),
    ("gpus = [0]\nmissing = { 0 = 1 }", "tool.overlap.missing.0 must be text, not 1"),
    ('gpus = [0]\nmissing = { 0 = "" }', "tool.overlap.missing.0 must not be empty"),
    ('gpus = [0]\nmissing = { 0 = "  " }', "tool.overlap.missing.0 must be some words"),
    ('gpus = [0]\nmissing = { 0 = "a\\u001bb" }', "missing.0 must be one line of printable text, without \\x1b"),
    ('gpus = [0]\nmissing = { 8 = "none" }', "tool.overlap: missing excuses '8' GPUs, which gpus does not name"),
    ('gpus = [8]\nmissing = { 08 = "none" }', "tool.overlap: missing excuses '08' GPUs"),
    ('gpus = [8]\nmissing = { eight = "none" }', "tool.overlap: missing excuses 'eight' GPUs"),
    ('gpus = [0, 2]\nlauncher = "torchrun"', "torchrun on the CPU needs to know how many processes: add ranks = 2"),
    (RANKED + "0", "tool.overlap.ranks must be greater than or equal to 1, not 0"),
    (RANKED + "true", "tool.overlap.ranks must be a whole number, not True"),
    (RANKED + "2.0", "tool.overlap.ranks must be a whole number, not 2.0"),
    ("gpus = [0]\nranks = 2", "ranks are processes of torchrun"),
]
BAD_HEADERS = [
    *(
        (HEADER.format("\n".join(f"# {line}" for line in options.split("\n"))), expected)
        for options, expected in BAD_OPTIONS
    ),
    ("", "no `# /// script` header; see docs/contributing.md, 'A snippet'"),
    ("# /// script\n# [tool.overlap]\n# gpus = [0]\n", "no `# /// script` header"),
    (HEADER.format("# gpus = [0]") * 2, "a/b.py:5: a second `# /// script` header; keep one"),
    (HEADER.format("# gpus = [0"), "the header is not TOML"),
    (HEADER.format("# gpus = [0]\n# gpus = [1]"), "the header is not TOML"),
    ("# /// script\n# tool = 1\n# ///\n", "header: tool must be a table of keys, not 1"),
    ("# /// script\n# tool.overlap = []\n# ///\n", "header: tool.overlap must be a table of keys, not []"),
    ("# /// script\n# [[tool.overlap]]\n# gpus = [0]\n# ///\n", "header: tool.overlap must be a table of keys"),
    ("# /// script\n# dependencies = []\n# ///\n", "header: tool is missing (write [tool.overlap])"),
    ("# /// script\n# [tool.uv]\n# ///\n", "header: tool.overlap is missing"),
    ("# /// script\n# dependency = []\n# [tool.overlap]\n# gpus = [0]\n# ///\n", "did you mean dependencies?"),
    ('# /// script\n# dependencies = "torch"\n# [tool.overlap]\n# gpus = [0]\n# ///\n', "dependencies must be a list"),
    (
        "# /// script\n# dependencies = [1]\n# [tool.overlap]\n# gpus = [0]\n# ///\n",
        "dependencies[0] must be text, not 1",
    ),
    ("# /// script\n# requires-python = 3.11\n# [tool.overlap]\n# gpus = [0]\n# ///\n", "requires-python must be text"),
]
FINE = HEADER.format("# gpus = [0]")
BAD_CODE = [
    ("x = 1\n", "has no main() to run; write `def main() -> dict`"),
    ("async def main():\n    return {}\n", "has no main() to run"),
    ("def main(n):\n    return {}\n", "has no main() to run"),
    ("def main(*, n):\n    return {}\n", "has no main() to run"),
    ("class main:\n    pass\n", "has no main() to run"),
    ("def other():\n    def main(): return {}\n", "has no main() to run"),
    ("def main(:\n", "a/b.py:5: invalid syntax; mend this line"),
    ("x = '\x00'\n" + MAIN, "a/b.py"),
    ("x = " + "(" * 5000 + ")" * 5000 + "\n" + MAIN, "a/b.py"),
    ("x = " + "-" * 20_000 + "1\n" + MAIN, "a/b.py"),
    ('"""A \\x1b[1mbold\\x1b[0m line."""\n' + MAIN, "the first line of its docstring has \\x1b; write plain text"),
    ('"""A \\ud800 line."""\n' + MAIN, "the first line of its docstring has \\ud800"),
    ("from .c import x\n" + MAIN, "a/b.py:5: import a snippet as `from snippets.chapter.snippet import name`"),
    ("from snippets import a\n" + MAIN, "a/b.py:5: import a snippet as"),
]
BAD_FILES = [*((header + MAIN, why) for header, why in BAD_HEADERS), *((FINE + code, why) for code, why in BAD_CODE)]


@pytest.mark.parametrize(("text", "expected"), BAD_FILES, ids=range(len(BAD_FILES)))
def test_a_bad_snippet_is_refused_with_file_reason_and_remedy(tmp_path, text, expected):
    path = tmp_path / "snippets/a/b.py"
    path.parent.mkdir(parents=True)
    path.write_text(text, encoding="utf-8")
    for memo in (None, Memo(tmp_path / "memo.json")):
        with pytest.raises(OverlapError) as caught:
            discover(tmp_path, memo)
        message = str(caught.value)
        assert message.startswith("snippets/a/b.py:") and expected in message
        assert len(message) < 400 and message.isprintable()


def test_there_are_enough_bad_inputs():
    """A table that lost half of its rows would still pass."""
    assert len(BAD_FIELDS) + len(BAD_TEXTS) + len(BAD_FILES) >= 200


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("gpus = [0, 1]", {}),
        ("gpus = [0]\ntimeout = 0.5\nexclusive = false", {"timeout": 0.5, "exclusive": False}),
        ("gpus = [1, 8]\nmissing = { 8 = \"none – yet\" }", {"gpus": [1, 8], "missing": {"8": "none – yet"}}),
        (RANKED + "2", {"gpus": [0], "launcher": "torchrun", "ranks": 2}),
        ('gpus = [2]\nlauncher = "torchrun"', {"gpus": [2], "launcher": "torchrun"}),
    ],
)  # fmt: skip
def test_a_good_header(options, expected):
    lines = "\n".join(f"# {line}" for line in options.split("\n"))
    header = HEADER.format(lines).replace(
        "# [tool", '# requires-python = ">=3.11"\n# dependencies = ["torch"]\n# [tool.uv]\n# x = 1\n# [tool'
    )
    given = Snippet(Path("/"), "a/b", header + MAIN).options
    defaults = {
        "timeout": 60,
        "exclusive": True,
        "launcher": "python",
        "missing": {},
        "ranks": None,
    }
    assert given == defaults | {"gpus": json.loads(options.split("\n")[0].removeprefix("gpus = "))} | expected


def test_what_is_no_file_is_refused(tmp_path):
    folder = tmp_path / "snippets/a"
    folder.mkdir(parents=True)

    def refusal() -> str:
        with pytest.raises(OverlapError) as caught:
            discover(tmp_path)
        return str(caught.value)

    (folder / "x.py").mkdir()
    assert refusal() == "snippets/a/x.py: is no file; a name that ends in .py is a snippet, so rename it"
    (folder / "x.py").rmdir()
    os.mkfifo(folder / "x.py")
    assert refusal() == "snippets/a/x.py: is no file; a name that ends in .py is a snippet, so rename it"
    (folder / "x.py").unlink()
    for target in ("nowhere.py", "x.py"):
        (folder / "x.py").symlink_to(target)
        assert refusal() == "snippets/a/x.py: is a link to nothing; remove it, or let it point to a file in snippets/"
        (folder / "x.py").unlink()
    (folder / "x.py").write_bytes(FINE.encode() + b"\n# \xe9\n")
    assert refusal() == "snippets/a/x.py:6: byte 0xe9 is not UTF-8; save it as UTF-8 text"
    (folder / "x.py").write_bytes(b"\xef\xbb\xbf" + (FINE + MAIN).encode())
    assert "begins with a byte order mark" in refusal()
    (folder / "x.py").write_bytes((FINE + MAIN).replace("\n", "\r\n").encode())
    assert discover(tmp_path)["a/x"].text == FINE + MAIN


BARE = """
import sys
sys.modules["pydantic"] = None
from pathlib import Path
from overlap import OverlapError
from overlap.run import recording
from overlap.run.memo import Memo
from overlap.run.snippet import discover
root = Path(sys.argv[1])
for memo in (None, Memo(root / "memo.json")):
    for read in (lambda: discover(root, memo)["a/b"].options["gpus"], lambda: recording.read(root / "x.json", memo)["snippet"]):
        try:
            print(read())
        except OverlapError as error:
            print(error)
    memo and memo.save()
"""


@pytest.mark.parametrize(
    ("header", "text", "expected"),
    [
        (FINE, json.dumps(GOOD), ["[0]", "a/b"]),
        (FINE, json.dumps(changed("run.seconds", "long")), ["[0]", "a/b"]),
        (FINE.replace("[0]", "[true]"), json.dumps(changed("run.exit", GONE)), ["gpus must be counts", "run.exit is missing"]),
        (FINE.replace("gpus", "gpsu"), '{"a": 1, "a": 1}', ["tool.overlap.gpsu is unknown", "a stands twice"]),
        ("# /// script\n# tool = 1\n# ///\n", json.dumps(changed("source", 1)), ["tool.overlap is missing, or no", "source is missing or"]),
        (FINE.replace("[0]", '[0]\n# launcher = "x"'), "[" * 200_000, ["launcher must be 'python' or", "nested deeper"]),
    ],
)  # fmt: skip
def test_without_pydantic_json_is_as_strict_and_what_must_be_there_is(tmp_path, header, text, expected):
    (tmp_path / "snippets/a").mkdir(parents=True)
    (tmp_path / "snippets/a/b.py").write_text(header + MAIN)
    (tmp_path / "x.json").write_text(text)
    ask = [sys.executable, "-c", BARE, str(tmp_path)]
    done = subprocess.run(ask, capture_output=True, text=True, env={"PYTHONPATH": str(ROOT)})
    lines = done.stdout.replace("\n  ", " ").splitlines()
    assert done.stderr == "" and len(lines) == 4
    assert all(part in line for part, line in zip(expected * 2, lines, strict=True)), lines


@pytest.fixture
def shelf(tmp_path):
    """A root with a snippet and a recording, and the memo they are read through."""
    (tmp_path / "snippets/a").mkdir(parents=True)
    (tmp_path / "snippets/a/b.py").write_text(FINE + MAIN)
    (tmp_path / "x.json").write_text(recording.dump(recording.sealed(GOOD)))
    return tmp_path


def read_all(root: Path, memo: Memo | None = None):
    read = discover(root, memo)["a/b"]
    data = recording.read(root / "x.json", memo)
    return read.facts, data, data.intact


def no_work(*_):
    raise AssertionError("this is known already")


def test_what_did_not_change_is_neither_parsed_nor_validated_again(shelf, monkeypatch):
    memo = Memo(shelf / "cache/memo.json")
    first = read_all(shelf, memo)
    memo.save()
    assert first == read_all(shelf) and first[2]
    monkeypatch.setattr(snippet, "facts", no_work)
    monkeypatch.setattr(strict, "schema", no_work)
    monkeypatch.setattr(recording, "digest", no_work)
    assert read_all(shelf, Memo(memo.path)) == first
    (shelf / "x.json").write_text((shelf / "x.json").read_text() + "\n")
    with pytest.raises(AssertionError, match="known already"):
        read_all(shelf, Memo(memo.path))


def test_pydantic_is_not_imported_where_nothing_is_validated(shelf):
    ask = """
import sys
from pathlib import Path
from overlap.run import recording
from overlap.run.memo import Memo
from overlap.run.snippet import discover
memo = Memo(Path("memo.json"))
assert "pydantic" not in sys.modules
discover(Path("."), memo), recording.read(Path("x.json"), memo)
memo.save()
print("pydantic" in sys.modules)
"""
    run = [sys.executable, "-c", ask]
    said = [subprocess.check_output(run, cwd=shelf, env={"PYTHONPATH": str(ROOT)}, text=True) for _ in range(2)]
    assert said == ["True\n", "False\n"]


def test_the_memo_remembers_that_a_digest_is_wrong(shelf):
    path = shelf / "x.json"
    path.write_text(path.read_text().replace('"n": 3', '"n": 4'))
    memo = Memo(shelf / "memo.json")
    assert not recording.read(path, memo).intact
    memo.save()
    assert not recording.read(path, Memo(memo.path)).intact and not recording.read(path).intact


@pytest.mark.parametrize("damage", [b"", b"\n", b"{}", b"\xff\xfe", b"0" * 64 + b"\n{}", "cut", "turned"])
def test_a_damaged_memo_is_ignored(shelf, damage):
    memo = Memo(shelf / "memo.json")
    first = read_all(shelf, memo)
    memo.save()
    whole = memo.path.read_bytes()
    wrong = {"cut": whole[:-9], "turned": whole.replace(b"true", b"fals")}.get(damage, damage)
    assert wrong != whole
    memo.path.write_bytes(wrong)
    again = Memo(memo.path)
    assert read_all(shelf, again) == first
    again.save()
    assert memo.path.read_bytes() == whole


def test_a_memo_that_cannot_be_written_is_ignored(shelf):
    (shelf / "file").write_text("")
    for path in (shelf / "file/memo.json", shelf / "snippets"):
        memo = Memo(path)
        assert read_all(shelf, memo) == read_all(shelf)
        memo.save()
    assert sorted(path.name for path in shelf.iterdir()) == ["file", "snippets", "x.json"]


def test_the_memo_drops_what_is_no_longer_used_and_errors_are_not_kept(tmp_path):
    def saved(*asked) -> Memo:
        memo = Memo(tmp_path / "memo.json")
        for kind, content in asked:
            memo.get(kind, content, lambda: f"of {content}")  # noqa: B023
        memo.save()
        return Memo(memo.path)

    saved(("a", "1"), ("a", "2"), ("b", "3"))
    memo = saved(("a", "2"), ("a", "4"))
    assert [memo.get(*asked, no_work) for asked in (("a", "2"), ("a", "4"), ("b", "3"))] == ["of 2", "of 4", "of 3"]
    with pytest.raises(AssertionError):
        memo.get("a", "1", no_work)
    assert memo.get("a", "1", lambda: "again") == "again"


def test_other_code_or_another_python_starts_the_memo_anew(tmp_path, monkeypatch):
    memo = Memo(tmp_path / "memo.json")
    memo.get("a", "1", lambda: 1)
    memo.save()
    assert Memo(memo.path).get("a", "1", no_work) == 1
    monkeypatch.setattr(sys, "version_info", (3, 99))
    assert Memo(memo.path).get("a", "1", lambda: 2) == 2


def test_a_memo_that_is_used_again_and_again_keeps_what_was_used_last(tmp_path):
    memo = Memo(tmp_path / "memo.json")
    for turn in ("1", "2", "3"):
        memo.get("a", "same", lambda: 0)
        memo.get("a", turn, lambda: 1)
        memo.turn()
        assert memo.get("a", "same", no_work) == 0
    memo.get("a", "2", lambda: "new")
    memo.save()
    assert Memo(memo.path).get("a", "2", no_work) == "new"


def test_two_hundred_of_each_are_read_at_once(tmp_path):
    (tmp_path / "snippets/a").mkdir(parents=True)
    for i in range(200):
        (tmp_path / f"snippets/a/s{i}.py").write_text(FINE + f'"""Number {i}."""\n' + MAIN * 3)
        recording.write(tmp_path / f"x/{i}.json", recording.dump(recording.sealed(GOOD | {"result": {"n": i}})))

    def seconds() -> float:
        memo = Memo(tmp_path / "memo.json")
        start = time.perf_counter()
        discover(tmp_path, memo), [recording.read(path, memo) for path in tmp_path.glob("x/*.json")]
        took = time.perf_counter() - start
        memo.save()
        return took

    cold, warm = seconds(), min(seconds() for _ in range(3))
    assert warm < cold / 2 and warm < 0.5
