"""A thousand bad inputs, made by table: what each says. `python -m pytest tests/test_overlap_bad_input.py -rP` prints how many.

Whatever is wrong must be refused, in a sentence that names the file (and the line or the key), the reason and the remedy.
"""

import contextlib
import copy
import io
import json
import math
import re
from collections.abc import Iterator

import pytest

from overlap import OverlapError
from overlap.__main__ import main
from overlap.book.expression import evaluate
from overlap.run import recording, snippet

pytestmark = pytest.mark.usefixtures("on_cpu")

ORIGIN = "docs/recordings/h200/a/b.json"
GPU = {
    **{"name": "NVIDIA H200", "memory_bytes": 150_109_880_320, "capability": "9.0", "sms": 132, "clock_mhz": 1980},
    **{
        "clock_max_mhz": 1980.5,
        "memory_clock_mhz": 3201,
        "memory_bus_bits": 6144,
        "l2_bytes": 62_914_560,
        "nvlinks": 18,
    },
    **{"pcie_generation": 5, "pcie_width": 16, "pcie_width_max": 16, "power_limit_w": 700},
}
RUN = {
    "command": "python snippets/a/b.py",
    "started": "2026-01-31T12:00:00+00:00",
    "seconds": 1.5,
    "exit": 0,
    "noise": {"dispatch_us": [1.5, 2], "least_us": 1.5, "steal": 0.5, "load": 1.5, "disturbed": False},
}
MACHINE = {
    **{"gpus": [GPU], "host_gpus": 4, "driver": "580.1", "links": ["\tGPU0"], "cpu": "Some CPU @ 2 GHz", "cores": 8},
    **{"system": "Linux 6", "virtual": True, "host": "0123abcd"},
}
SOFTWARE = {"python": "3.12.3", "torch": "2.11.0", "cudnn": 91900} | dict.fromkeys(
    ["torch_git", "cuda", "nccl", "numpy", "triton", "pycuda"], "13.0"
)
FULL = {
    "schema": 1,
    "snippet": "a/b",
    "profile": "h200",
    "digest": "0" * 64,
    "source": {"path": "snippets/a/b.py", "sha256": "1" * 64},
    "inputs": {"snippets/timing/benchmark.py": "2" * 64},
    "run": RUN,
    "machine": MACHINE,
    "software": SOFTWARE,
    "outputs": [{"output_type": "stream", "name": "stdout", "text": ["three\n"], "rank": 0}],
    "result": {"n": 3},
    "others": [{"digest": "3" * 64, "run": RUN, "machine": MACHINE, "software": SOFTWARE, "result": {"n": 3}}],
}
#: Wrong values by what they are.
WRONG = {
    **{"nothing": None, "true": True, "whole": 7, "part": 0.25, "negative": -1, "large": 10**400, "beyond": math.inf},
    **{
        "words": "some words",
        "empty": "",
        "half": "\ud800",
        "escape": "\x1b[1m",
        "turned": "a\u202eb",
        "unseen": "a\u200bb",
    },
    **{"long": "x" * 2000, "list": [], "numbers": [7], "table": {}, "tables": [{}]},
}
#: What a field takes of these: by the last key, or else by the whole path.
PLAIN = {"words"}
COUNT, RATE = {"whole"}, {"whole", "part"}
TAKES = {
    **dict.fromkeys(["driver", "torch_git", "cuda", "nccl", "numpy", "triton", "pycuda"], PLAIN | {"nothing", "empty"}),
    **dict.fromkeys(["cpu", "system", "links[0]"], PLAIN | {"empty"}),
    **dict.fromkeys(["python", "torch", "command"], PLAIN),
    **dict.fromkeys(["cores", "rank", "memory_bytes", "host_gpus", "allocations", "bytes"], COUNT),
    **dict.fromkeys(["cudnn", "nvlinks", "sms", "memory_bus_bits", "l2_bytes", "pcie_generation"], COUNT | {"nothing"}),
    **dict.fromkeys(["pcie_width", "pcie_width_max"], COUNT | {"nothing"}),
    **dict.fromkeys(["clock_mhz", "clock_max_mhz", "memory_clock_mhz", "power_limit_w"], RATE | {"nothing"}),
    **dict.fromkeys(["seconds", "least_us", "dispatch_us[0]", "dispatch_us[1]"], RATE),
    **{
        "steal": {"part", "nothing"},
        "load": RATE | {"nothing"},
        "disturbed": {"true"},
        "virtual": {"true", "nothing"},
    },
    **{"noise": {"nothing"}, "host": {"nothing"}, "others": {"nothing"}},
    **{
        "name": PLAIN,
        "inputs": {"table"},
        "outputs": {"list"},
        "links": {"list"},
        "result": {"table"},
        "text": {"list"},
    },
    "text[0]": PLAIN | {"empty", "escape", "turned", "unseen", "long"},
    "result.n": set(WRONG) - {"half", "large", "beyond"},
    "others[0].result.n": set(WRONG) - {"half", "large", "beyond"},
    "outputs[0].name": set(),
}
OPTIONAL = {"virtual", "host", "noise", "others", *(GPU.keys() - {"name", "memory_bytes", "capability"})}


def paths(node, path: str = "") -> Iterator[str]:
    """All fields of a recording, as messages name them."""
    for key, value in node.items() if isinstance(node, dict) else enumerate(node):
        here = f"{path}[{key}]" if isinstance(key, int) or not key.isidentifier() else f"{path}.{key}".lstrip(".")
        yield here
        if isinstance(value, (dict, list)):
            yield from paths(value, here)


def way(path: str) -> list[str | int]:
    """The steps of a path."""
    return [int(step) if step.isdigit() else step for step in re.findall(r"\w+", path)]


def changed(path: str, change) -> dict:
    """The full recording, of which `change` was told the node and the key that a path leads to."""
    data = copy.deepcopy(FULL)
    *steps, last = way(path)
    node = data
    for step in steps:
        node = node[step]
    change(node, last)
    return data


def takes(path: str, name: str) -> bool:
    last = path.rpartition(".")[2]
    return name in TAKES.get(path, TAKES.get(last, set()))


FIELDS = [path for path in paths(FULL) if "snippets/" not in path]
TABLES = ["", *(path for path in FIELDS if path.rpartition(".")[2] not in ("inputs", "result"))]


def recordings() -> Iterator[tuple[str, str, str]]:
    """(what was done, where a message must point, the text) of bad recordings: each field × each wrong value, gone, or with company."""
    for path in FIELDS:
        for name, value in WRONG.items():
            if not takes(path, name):
                data = changed(path, lambda node, key, value=value: node.__setitem__(key, value))
                yield f"{path} is {name}", path, json.dumps(data)
        if isinstance(way(path)[-1], str) and path.rpartition(".")[2] not in OPTIONAL | {"n"}:
            yield f"{path} is gone", path, json.dumps(changed(path, lambda node, key: node.pop(key)))
    for path in TABLES:
        data = copy.deepcopy(FULL)
        node = data
        for step in way(path) if path else ():
            node = node[step]
        if isinstance(node, dict):
            node["surplus"] = 1
            yield f"{path or 'the whole'} has a surplus key", f"{path}.surplus".lstrip("."), json.dumps(data)


#: Lines of `[tool.overlap]` and of the header around it: the key, and values it does not take.
_NUMBERS = [
    "-1",
    "-0.5",
    "nan",
    "inf",
    "-inf",
    "true",
    '"abc"',
    '""',
    "[]",
    "{}",
    "2026-01-31",
    "12:00:00",
    "2026-01-31T12:00:00Z",
]
_TEXTS = ["1", "1.5", "true", "[]", "{}", '""', '"  "', '"a\\u001b[1m"', '"a\\u202eb"', '"a\\nb"', "nan", "2026-01-31"]
OPTIONS = {
    "gpus": [*_NUMBERS, "0", "[-1]", "[0.5]", "[true]", '["0"]', "[[0]]", "[0, 0]", "[nan]", "[2026-01-31]", "[{}]"],
    "timeout": [*_NUMBERS, "[60]", "0", "3601", "1e9"],
    "exclusive": ["0", "1", '"no"', '"yes"', "[]", "{}", "nan", "2026-01-31", "[true]"],
    "launcher": [*_TEXTS, '"mpirun"', '"Python"', '"torchrun "'],
    "missing": [
        "5",
        "true",
        '"x"',
        "[]",
        '["x"]',
        "nan",
        "{ 0 = 1 }",
        '{ 9 = "x" }',
        '{ x = "y" }',
        *(f"{{ 0 = {text} }}" for text in _TEXTS),
    ],
    "ranks": [*_NUMBERS, "0", "1.0", "2", "1025"],
    "gpu": ["[0]"],
    "timeuot": ["1"],
}


def headers() -> Iterator[tuple[str, str, str]]:
    """Bad headers: each key × each wrong value, and headers that are none."""
    for key, values in OPTIONS.items():
        for value in values:
            lines = [f"{key} = {value}"] + ["gpus = [0]"] * (key != "gpus")
            body = "".join(f"# {line}\n" for line in ["[tool.overlap]", *lines])
            yield (
                f"{key} = {value}",
                key if not (key == "ranks" and value == "2") else "torchrun",
                f"# /// script\n{body}# ///\n",
            )
    whole = [
        "tool = 1",
        "tool = []",
        "tool.overlap = []",
        "tool.overlap = 1",
        "[[tool.overlap]]",
        "[tool]",
        "[tool.other]",
        "",
        "tool",
        "= 1",
        "[tool.overlap",
    ]
    whole += [
        f"dependencies = {value}\n# [tool.overlap]\n# gpus = [0]"
        for value in ["1", '"torch"', "[1]", "{}", '[""]', "nan"]
    ]
    whole += [f"requires-python = {value}\n# [tool.overlap]\n# gpus = [0]" for value in _TEXTS]
    whole += [
        "authors = []\n# [tool.overlap]\n# gpus = [0]",
        "[tool.overlap]\n# gpus = [0]\n# gpus = [0]",
        "[tool.overlap]\n# gpus = [0]\n# ///\n\n# /// script",
    ]
    for line in whole:
        yield line, "header", f"# /// script\n# {line}\n# ///\n"


BLOCKS = {
    "snippet": (
        ["a/lost", "../a", "a", "A/B", "a/b/c", "/etc/passwd", "a/../b", ""],
        ["show: lost", "shoe: f", "f", "code: off", "output:", "plot: maybe", "show: ../x"],
    ),
    "figure": (["a/lost", "../a", "", "a/b"], ["", "It says.\n{a/b: lost}", "{a/b: n:.999f}"]),
    "claim": (
        ["a/lost", "../a", ""],
        [
            *(
                "",
                "n == 3",
                "n >\nIt is.",
                "lost > 1\nIt is.",
                "n == 3 for cpus > 1\nIt is.",
                "n == 3 for gpus >\nIt is.",
            ),
            *(
                "n == 3\nlimit: n\nIt is.",
                "n == 3\nlimits: n of 4\nIt is.",
                "n == 3\nname: No Name\nIt is.",
                "n == 3\nlimit: n of 4",
            ),
            *(
                "n == 3\nlimit: n+ of 4\nIt is.",
                "n == 4\nIt is.",
                "().__class__\nIt is.",
                "n == 3\nlimit: n of 2\nIt is.",
            ),
            *(
                "'a' > 1\nIt is.",
                "n / 0 > 1\nIt is.",
                "n[0] > 1\nIt is.",
                f"{'1+' * 20_000}1 > 1\nIt is.",
                "import os\nIt is.",
                "n.x > 1\nIt is.",
            ),
        ],
    ),
    "scoreboard": (
        ["", "x"],
        [
            *(
                "",
                "x",
                "||||||",
                *(
                    f"a | ms | {printed} | a/b: n | - | - | holds"
                    for printed in ("0", "NaN", "x", "-1", "inf", "1e999", "-")
                ),
            ),
            *(
                f"a | ms | 1 | a/b: {its_way} | - | - | holds"
                for its_way in ("0", "'x'", "n > 1", "lost", "n +", "1e300 * 1e300")
            ),
            *(
                f"a | ms | 1 | a/b: n | {right_way} | - | holds"
                for right_way in ("0", "a/lost: n", "a/b@h900: n", "a/b: }", "{")
            ),
            *(f"a | ms | 1 | a/b: n | - | {ceiling} | holds" for ceiling in ("0", "-1", "n +", "a/lost: 1")),
            *(
                "a | ms | 1 | a/lost: n | - | - | holds",
                "a | ms | 1 | - | a/b: n | - | holds",
                "a | ms | 1 | n | - | - | holds",
                "a | ms | 1 | a/b: n | - | - | in 5 ms",
                "a | ms | 1 | a/b: n | - | - | | holds",
                "a | ms | 1 | a/b: n | - | -",
            ),
        ],
    ),
    "headlines": (
        [""],
        [
            "",
            "x",
            "a | GB/s | a/b: lost | -",
            "a | GB/s | a/b: n + | -",
            "a | GB/s | a/lost: n | -",
            "a | GB/s | a/b: 0 | -",
            "a | GB/s | a/b: 'x' | -",
            "|||",
        ],
    ),
    "calculator": (
        ["a/b"],
        [
            *(
                "",
                "x",
                "curve: x",
                "x = n | 1 to 5 | x",
                "x = n | 1 to 5 | x\ny = x | y",
                "x = n | 5 to 1 | x\ny = x | y\ncurve: x",
            ),
            *(
                "x = n | a to b | x\ny = x | y\ncurve: x",
                "x = n | 1 to 5 | x\ny = z | y\ncurve: x",
                "x = n | 1 to 5 | x\ny = x.x | y\ncurve: x",
            ),
            *(
                "x = 'a' | 1 to 5 | x\ny = x | y\ncurve: x",
                "x = n | 4 to 5 | x\ny = x | y\ncurve: x",
                "x = lost | 1 to 5 | x\ny = x | y\ncurve: x",
            ),
            *(
                "x = n | -1 to 5 | x\ny = 1 / x | y\ncurve: x",
                "x = n | 1 to 5 | x\ny = -x | y\ncurve: x",
                "x = n | 1 to 1e99 | x\ny = x | y\ncurve: x",
            ),
            *(
                "x = n | nan to 5 | x\ny = x | y\ncurve: x",
                "x = n | 1 to 5 | x\nx = n | 1 to 5 | x\ny = x | y\ncurve: x",
                "x = n | 1 to 5 | x\ny = x | y\ncurve: y",
            ),
        ],
    ),
    "diagram": (["lost", "../x", "", "a b"], ["", "x"]),
    "claims": (["a/b"], ["", "x"]),
    "snippets": (["a/b"], ["", "x"]),
    "tally": (["a/b"], ["", "x"]),
}
PROSE = [
    *(
        "It takes 5 ms.",
        "It is 3.5× as fast.",
        "At 20 GB/s.",
        "{a/b: lost}",
        "{a/lost: n}",
        "{a/b: n +}",
        "{a/b: ().__class__}",
    ),
    *(
        "{a/b@h900: n}",
        "{a/b: n:.999f}",
        "{a/b: n / 0}",
        "{a/b: 'x':.2f}",
        "Large {claim: lost}.",
        "{a/b: n.x}",
        "{a/b: n[7]}",
    ),
]


def pages() -> Iterator[tuple[str, str]]:
    """Bad pages: each kind of block with each wrong argument and each wrong body, not closed, or indented; and wrong prose."""
    fine = {
        "snippet": "",
        "figure": "It shows.",
        "claim": "n == 3\nIt is.",
        "scoreboard": "a | ms | 1 | a/b: n | - | - | holds",
        "headlines": "a | GB/s | a/b: n | -",
    }
    for kind, (arguments, bodies) in BLOCKS.items():
        good = "" if kind in ("scoreboard", "headlines", "claims", "snippets", "tally", "diagram") else "a/b"
        for argument in arguments:
            if argument or kind not in ("scoreboard", "headlines"):
                yield f"{kind} {argument}", f"```{kind} {argument}\n{fine.get(kind, '')}\n```\n"
        for body in bodies:
            if body or kind not in ("claims", "snippets", "tally", "snippet", "diagram"):
                yield f"{kind}: {body[:40]}", f"```{kind} {good}\n{body}\n```\n"
        yield f"{kind} not closed", f"# A\n\n```{kind} {good}\n{fine.get(kind, '')}\n"
        yield f"{kind} indented", f"- x\n\n    ```{kind} {good}\n    {fine.get(kind, '')}\n    ```\n"
    for text in PROSE:
        yield text, f"# A\n\n{text}\n"


NAMED = [
    "__class__",
    "__globals__",
    "__self__",
    "__dict__",
    "__init__",
    "__subclasses__",
    "__builtins__",
    "__import__",
    "__code__",
    "__mro__",
    "__getattribute__",
    "_items",
    "_load",
    "gi_frame",
    "func_globals",
]
BASES = [
    "()",
    "[]",
    "{}",
    "''",
    "1",
    "n",
    "a",
    "data",
    "other",
    "max",
    "median",
    "a[0]",
    "(1,)",
    "{1:2}",
    "[x",
    "for",
    "x",
    "in",
    "a]",
    "(max)",
    "data.keys()",
    "str(n)",
    "zip(a)",
    "range(3)",
]
CALLS = [
    *(
        "open('x')",
        "exec('1')",
        "eval('1')",
        "compile('1')",
        "getattr(n, 'x')",
        "vars()",
        "globals()",
        "print(1)",
        "input()",
        "type(n)",
        "format(n)",
        "map(abs, a)",
    ),
    *(
        "n()",
        "a.append(1)",
        "a.sort()",
        "'x'.upper()",
        "'{}'.format(n)",
        "data.get('x')",
        "max(*a)",
        "max(**data)",
        "lambda: 1",
        "(x := 1)",
        "f'{n}'",
        "b'x'",
        "1j",
    ),
    *(
        "...",
        "await n",
        "yield n",
        "n is a",
        "~1",
        "1 @ 1",
        "1 << 9",
        "1 >> 1",
        "1 | 2",
        "1 & 2",
        "1 ^ 2",
        "[*a]",
        "x = 1",
        "import os",
        "del n",
        "pass",
        "1; 2",
    ),
    *(
        "(-1) ** 0.5",
        "1e308 * 10",
    ),
    *(
        "n / 0",
        "n % 0",
        "n // 0",
        "a[99]",
        "n[0]",
        "'a' + 1",
        "max([])",
        "median([])",
        "sum('ab')",
        "round('a')",
        "range('a')",
        "zip(1)",
        "sorted(1)",
        "len(1)",
        "lost",
    ),
]


def expressions() -> Iterator[str]:
    """Hostile and broken expressions: each base × each name that leads out, and calls, operators and bounds."""
    yield from (f"{base}.{name}" for base in BASES for name in NAMED)
    yield from (f"{base}.{name}()" for base in ("()", "n", "max") for name in NAMED)
    yield from CALLS


COMMANDS = ["list", "run", "record", "import", "check", "compare", "verify"]
STRAY = ["a/lost", "../x", "/etc/passwd", "a//b", "A/B", "\x1b[1m", "a\nb", "é", "\udcff", " ", "x" * 5000]


def arguments() -> Iterator[list[str]]:
    """Bad arguments of the commands."""
    for command in COMMANDS:
        yield [command, "--surplus"]
        yield [command, "--gpus" if command != "record" else "--quick", "0"]
        yield from ([command, stray] for stray in STRAY if command != "import" or stray not in (" ",))
    yield from (
        ["record", f"--gpus={text}"]
        for text in ["99", "-1", "", "x", "1,", ",", "0,99", "0 0", "0x0", "１", "9" * 5000, "0;1", "nan"]
    )
    yield from (
        ["record", f"--runs={text}"] for text in ["-0", "-1", "", "x", "11", "1.5", "２", "9" * 5000, "nan", "1e1"]
    )
    yield from (
        ["record", "a", "--bundle", name]
        for name in [".", "no/such/bundle", "mkdocs.yml/x", "/dev/null", "/dev/full", "docs", "a\0b", "x" * 300]
    )
    yield from (
        ["import", name]
        for name in [".", "no/such", "/dev/null", "/dev/zero", "/dev/full", "docs", "a\0b", "", "x" * 300]
    )
    yield from ([], ["dance"], ["--surplus"], [""], ["Record"], ["list "])


def sound(message: str, origin: str, *names: str) -> bool:
    """Whether a message names its origin and one of the names, gives a remedy, and is short and printable."""
    remedy = re.search(r"; \w|see docs/|\(write |did you mean|use ", message)
    lines = message.split("\n")
    named = not names or any(name in message for name in names)
    return bool(
        message.startswith(origin) and remedy and named and len(message) < 2500 and all(map(str.isprintable, lines))
    )


def refused(origin: str, call, *names: str, sound=sound) -> str:
    """Empty where a call is refused as it should be; else what it does."""
    try:
        found = call()
    except OverlapError as error:
        return "" if sound(str(error), origin, *names) else f"says {error}"
    except BaseException as error:
        return f"ends in {type(error).__name__}: {error}"
    return f"is taken, and gives {str(found)[:200]}"


COUNTS: dict[str, int] = {}


def all_refused(kind: str, least: int, found: Iterator[tuple[str, str]]) -> None:
    """Each of these (what it is, what is wrong with how it was refused) is fine, and there are as many as there were."""
    every = list(found)
    COUNTS[kind] = len(every)
    print(f"{len(every)} bad {kind}")
    bad = [each for each in every if each[1]]
    assert not bad, "\n".join(f"{what}: {said}" for what, said in bad)
    assert len(every) >= least


def test_the_full_recording_is_good():
    assert recording.parse(json.dumps(FULL), ORIGIN) == FULL
    for path in FIELDS:  # what the table says a field takes, it takes
        for name in sorted(TAKES.get(path, TAKES.get(path.rpartition(".")[2], set()))):
            data = changed(path, lambda node, key, name=name: node.__setitem__(key, WRONG[name]))
            recording.parse(json.dumps(data), ORIGIN)


def test_recordings():
    all_refused(
        "recordings",
        1400,
        (
            (
                what,
                refused(
                    f"{ORIGIN}: ",
                    lambda text=text: recording.parse(text, ORIGIN),
                    *{path, path.rpartition(".")[0] or path, path.partition(".")[2]} - {""},
                ),
            )
            for what, path, text in recordings()
        ),
    )


def test_headers():
    code = '"""A test."""\n\n\ndef main():\n    return {}\n'
    all_refused(
        "headers",
        120,
        (
            (what, refused("snippets/a/b.py:", lambda text=text: snippet.facts(text + code, "snippets/a/b.py"), key))
            for what, key, text in headers()
        ),
    )


@pytest.fixture
def measured(small_book, template):
    """A book of one snippet, recorded on the CPU."""
    small_book.snippet("a/b")
    small_book.commit("a/b", template, {"n": 3})
    return small_book


def test_pages(measured):
    every = list(pages())
    for number, (_, text) in enumerate(every):
        measured.page(f"p{number:03d}", text)
    found = measured.book("never").check()

    def problem(number: int) -> str:
        said = [text for text in found if re.match(rf"docs/p{number:03d}\.md:\d+: ", text)]
        return "" if said and all(sound(text, "docs/") for text in said[:1]) else f"says {said}"

    all_refused("pages", 120, ((what, problem(number)) for number, (what, _) in enumerate(every)))


def test_expressions():
    scope = {"n": 3, "a": [1, 2], "data": {"x": 1}, "other": {"b": {"x": 1}}}
    all_refused(
        "expressions",
        400,
        (
            (text, refused(f"`{text}`", lambda text=text: evaluate(text, scope), sound=str.startswith))
            for text in expressions()
        ),
    )


def test_arguments(measured, monkeypatch):
    monkeypatch.chdir(measured.root)
    measured.page("a", "```snippet a/b\n```\n")

    def said(given: list[str]) -> str:
        errors, out = io.StringIO(), io.TextIOWrapper(io.BytesIO())
        with contextlib.redirect_stderr(errors), contextlib.redirect_stdout(out):
            try:
                code = main(given)
            except SystemExit as stop:
                code = stop.code
            except BaseException as error:
                return f"ends in {type(error).__name__}: {error}"
        text = errors.getvalue()
        fine = code in (1, 2) and all(map(str.isprintable, text.split("\n"))) and len(text) < 6000
        named = re.search(r"^overlap( \w+)?: ", text, re.M) or out.buffer.getvalue().endswith(b" refused\n")
        return "" if fine and named and "Traceback" not in text else f"{code}: {text[:300]}"

    all_refused("arguments", 120, (([text[:40] for text in given], said(given)) for given in arguments()))
    assert not list(measured.root.glob("docs/recordings/*/*/*.tmp"))


def test_lines_of_a_bundle(measured, monkeypatch, capsys):
    monkeypatch.chdir(measured.root)
    good = json.loads(measured.path("a/b").read_text())
    lines = []
    for path in paths(good):
        if "result" in path or "outputs" in path or "snippets/" in path:
            continue
        for value in (None, True, -1, "some words", [], {}):
            data = copy.deepcopy(good)
            node = data
            *steps, last = way(path)
            for step in steps:
                node = node[step]
            if type(node[last]) is not type(value) and not (
                value is None and last in (*SOFTWARE, "driver", "host", "virtual", "noise")
            ):
                node[last] = value
                lines.append(json.dumps(data))
    whole = json.dumps(good)
    lines += [
        "x",
        "{",
        "[]",
        "1",
        "null",
        "NaN",
        '"x"',
        "{}",
        "[" * 200_000,
        whole[:-1],
        whole[1:],
        whole * 2,
        whole.replace('"n": 3', '"n": 4'),
        "\x1b[1m",
    ]
    odd = [b"\xff\xfe", whole.encode("utf-16"), b"\xef\xbb\xbf" + whole.encode(), b"\xed\xa0\x80", b"\x00" * 100]
    measured.path("a/b").unlink()
    raw = [*(line.encode() for line in lines), *(line.replace(b"\n", b"") for line in odd)]
    (measured.root / "bundle").write_bytes(b"\n".join([*raw, whole.encode()]) + b"\n")
    assert main(["import", "bundle"]) == 1
    out = capsys.readouterr().out
    assert out.endswith(f"1 imported, {len(raw)} refused\n"), out[-3000:]
    told = {int(number): text for number, text in re.findall(r"^bundle:(\d+): (.*(?:\n  .*)*)", out, re.M)}
    all_refused(
        "lines",
        150,
        ((line[:60], "" if "; " in told.get(i, "") else told.get(i, "nothing")) for i, line in enumerate(raw, 1)),
    )
    assert [path.name for path in measured.root.glob("docs/recordings/**/*.*")] == ["b.json"]


def test_there_are_a_thousand():
    """Counted where all of the above ran in this process."""
    if len(COUNTS) < 6:
        pytest.skip("the others did not run here")
    print(f"{sum(COUNTS.values()):,} bad inputs: {COUNTS}")
    assert sum(COUNTS.values()) >= 2000
