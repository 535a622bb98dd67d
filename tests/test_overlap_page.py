"""Pages: how they are taken apart, values in sentences, claims over recorded data."""

import itertools
import re

import pytest
from conftest import ROOT

from overlap.blocks import inline, page
from overlap.blocks.block import Text
from overlap.blocks.calculator import Calculator
from overlap.blocks.claim import Claim
from overlap.blocks.figure import Diagram
from overlap.blocks.index import ClaimIndex
from overlap.blocks.snippet import SnippetBlock
from overlap.book import limits
from overlap.book.verdict import DECISIVE, State, Tally
from overlap.cli import main
from overlap.run import recording

pytestmark = pytest.mark.usefixtures("on_cpu")

LONGER = "````markdown\n```snippet a/b\nshow: nothing\n```\n{a/b: x}\n````"
PLAIN = [
    "Only text.\n\nTwo paragraphs.",
    LONGER,
    "- a list\n\n    ```python\n    x = 1\n    ```",
    "```python\nnever closed",
    "````markdown\n```clam a/b\nx > 1\nText.\n```\n````",
]


def test_a_page_knows_its_headings_and_what_stands_below_them(tmp_path):
    file = tmp_path / "a.md"
    file.write_text(
        "---\ndescription: No # heading.\n---\n\n# A: `x`\nOne.\n\n```python\n# no heading\n```\n"
        "## B {a/b: n} { #b data-search-exclude }\n\nTwo.\n### C · 丙 {: #c }\n#no heading\n"
    )
    sections = page.Page.read(file, tmp_path).sections
    assert [(item.depth, item.title, item.anchor) for item in sections] == [
        (1, "A: `x`", ""),
        (2, "B {a/b: n}", "b"),
        (3, "C · 丙", "c"),
    ]
    assert [item.lines for item in sections] == [["One.", ""], ["", "Two."], ["#no heading"]]


@pytest.mark.parametrize("text", PLAIN)
def test_what_is_no_block_is_left_as_it_is(text):
    (part,) = page.parse(text, "a.md")
    assert part == Text("a.md", 1, text)


def test_a_page_is_taken_apart():
    text = (
        "# A\n\n```snippet a/b.py\nshow: f, g\noutput: no\n```\ntext\n"
        "~~~ claim a/b\nx > 1 for gpus >= 2\nlimit: x of y\nIt\nis.\n~~~\n"
        "```claims\n```\n```diagram two_lanes\n```"
    )
    assert page.parse(text, "a.md") == [
        Text("a.md", 1, "# A\n"),
        SnippetBlock("a.md", 3, "a/b", ("f", "g"), True, False, True),
        Text("a.md", 7, "text"),
        Claim("a.md", 8, "a/b", "x > 1", "gpus >= 2", (("x", "y"),), "It is."),
        ClaimIndex("a.md", 14),
        Diagram("a.md", 16, "two_lanes"),
    ]


def test_a_fence_may_hold_several_claims():
    text = (
        "```claim a/b\nx > 1\nSo.\n\n  \ny > 2 for gpus >= 2\nname: large\nlimit: x of y\nweakened: Was 3.\n"
        "It\nis.\n\nz\nThen.\n\n```\n```claim a/c\n\nx\nElse.\n```"
    )
    assert page.parse(text, "a.md") == [
        Claim("a.md", 1, "a/b", "x > 1", "", (), "So."),
        Claim("a.md", 6, "a/b", "y > 2", "gpus >= 2", (("x", "y"),), "It is.", "large", "Was 3."),
        Claim("a.md", 13, "a/b", "z", "", (), "Then."),
        Claim("a.md", 17, "a/c", "x", "", (), "Else."),
    ]


def has_remedy(problem: str) -> bool:
    """Whether a message names its place, says what to do, and can be shown as it is."""
    remedy = re.search(r"; \w|see docs/|did you mean", problem)
    return bool(
        re.match(r"docs/\w+\.md:\d+: ", problem) and remedy and problem.isprintable() and len(problem) < 2500
    )


BAD_PAGES = {
    "unclosed": ("text\n\n```snippet a/b\nshow: f\n", "docs/a.md:3: the snippet block is not closed"),
    "indented": (
        "- x\n    ```snippet a/b\n    ```",
        "docs/a.md:2: a snippet block starts at the beginning of the line",
    ),
    "option": (
        "```snippet a/b\nshoe: f\n```",
        "docs/a.md:1: unknown option `shoe: f`; there are caption, code, output, plot, show",
    ),
    "no sentence": (
        "```claim a/b\nx > 1\n```",
        "docs/a.md:1: claim a/b needs an expression and a sentence; write",
    ),
    "an empty line in a claim": (
        "```claim a/b\nx > 1\nname: large\n\nIt is large.\n```",
        "docs/a.md:5: `It is large.` is not an expression (invalid syntax); an empty line ends a claim",
    ),
    "an empty line in a sentence": (
        "```claim a/b\nx > 1\nIt\n\nis.\nSo.\n```",
        "docs/a.md:5: `is.` is not an expression (invalid syntax); an empty line ends a claim: take it away",
    ),
    "an empty line after a name": (
        "```claim a/b\nx > 1\nSo.\n\nname: large\n\ny > 1\nThen.\n```",
        "docs/a.md:5: `name: large` is not an expression (invalid syntax); an empty line ends a claim",
    ),
    "a word alone": (
        "```claim a/b\nx > 1\nIt is\n\nlarge\n```",
        "docs/a.md:5: claim a/b needs an expression and a sentence; write the one, then the other, with",
    ),
    "limit": (
        "```claim a/b\nx\nlimit: x\nText.\n```",
        "`limit: x` is no option of a claim; write one `name: no-gain-from-python`, and `limit: VALUE of",
    ),
    "a claim's name": (
        "```claim a/b\nx\nname: No Gain\nText.\n```",
        "docs/a.md:1: `name: No Gain` is no option of a claim; write one `name: no-gain",
    ),
    "headlines of a kind": (
        "```headlines list\n```",
        "docs/a.md:1: headlines have no argument 'list'; leave it out",
    ),
    "a limit of the code": (
        "Some\ntext: {limit: nearly}.\n",
        "docs/a.md:2: no limit is named 'nearly'; write one of near, far, above",
    ),
    "nearly a block": (
        "text\n\n```clam a/b\nx > 1\nText.\n```",
        "docs/a.md:3: `clam` is no block; did you mean claim?",
    ),
    "the beginning of a block": (
        "text\n\n```snip\na/b\n```",
        "docs/a.md:3: `snip` is no block; did you mean snippet?",
    ),
    "a pair of one twin": (
        "```pair a/b_broken\nshow: f\n```",
        "docs/a.md:1: a pair is named without _broken or _fixed; write `pair chapter/name` for",
    ),
    "a pair without functions": (
        "```pair a/b\n```",
        "docs/a.md:1: a pair shows code of both; say in `show: …` which functions",
    ),
}


def test_a_page_takes_limits_from_the_code(monkeypatch):
    monkeypatch.setitem(limits.BY_NAME, "near", 0.6)
    (text,) = page.parse("Below {limit: near} times; `{limit: near}` writes it.", "a.md")
    assert text.prose.text == "Below 0.6 times; `{limit: near}` writes it."


def test_limits_are_not_typed():
    """`docs/check.md` alone says what is LOW, by the code's own numbers; *The machine* leads there."""
    for file, names in {"check": ["near", "far", "above"], "machine": ["above"]}.items():
        text = (ROOT / f"docs/{file}.md").read_text()
        assert all(f"{{limit: {name}}}" in text for name in names), file
        assert "(check.md#verdicts)" in text or file == "check"
        low = " ".join(line for line in text.splitlines() if "LOW" in line)
        numbers = [f"{scale * limits.BY_NAME[name]:g}" for name in names for scale in (1, 100)]
        assert not re.search(rf"(?<![\d.])({'|'.join(map(re.escape, numbers))})(?![\d.])", low), file


def test_the_script_decides_of_a_readers_machines_as_the_book_of_its_own():
    script = (ROOT / "docs/assets/machines.js").read_text()
    assert "decisive.find(name => verdicts.includes(name))" in script
    words = [state.word for state in DECISIVE]
    for there in itertools.product([False, True], repeat=len(State)):
        tally = Tally(*(["a machine"] if is_one else [] for is_one in there))
        on = {state.word for state, is_one in zip(State, there, strict=True) if is_one}
        if on:
            assert next(word for word in words if word in on) == tally.state.word, on


@pytest.mark.parametrize("name", BAD_PAGES)
def test_a_bad_page_is_an_error_with_its_place(small_book, name):
    text, expected = BAD_PAGES[name]
    small_book.page("a", text)
    (problem,) = small_book.check()
    assert expected in problem and has_remedy(problem)


def test_a_value_that_no_reader_would_see_is_refused(small_book, template):
    """Between backticks, or in a claim's sentence; code of something else stays code."""
    small_book.snippet("a/it")
    small_book.commit("a/it", template, {"n": 9})
    block = "```snippet a/it\n```\n\n"
    code = "Nothing is asked of `{other/name: n}`.\n\nIt is `{a/it: n:.1f}`, or {a/it: n}.\n"
    small_book.page("a", f"# A\n\n{block}{code}")
    (problem,) = small_book.check(remarks=False)
    assert problem.startswith("docs/a.md:8: the value `a/it: n:.1f` stands in code") and has_remedy(problem)
    claim = "```claim a/it\nn > 8\nIt is {a/it: n}.\n```\n"
    small_book.page("a", f"# A\n\n{block}{claim}")
    (problem,) = small_book.check(remarks=False)
    assert problem.startswith("docs/a.md:6: a value in a claim's sentence is not shown")


def test_a_page_that_is_no_text_is_an_error(small_book):
    (small_book.root / "docs/a.md").write_bytes("# A\n\ncaf\u00e9\n".encode("latin-1"))
    small_book.page("d", "It took 5 ms.\n")
    small_book.page("e", "```claim a/b\n```\n")
    found = small_book.check()
    assert [problem.partition(";")[0] for problem in found] == [
        "docs/a.md: not UTF-8 (invalid continuation byte)",
        "docs/e.md:1: claim a/b needs an expression and a sentence",
        "docs/d.md:1: `5 ms` is typed in by hand",
    ], "what cannot be read hides nothing else"


def test_a_page_that_cannot_be_taken_apart_is_one_message(measured):
    """What other pages and snippets need of it is not told as missing."""
    measured.page("other", "```figure a/b\nIt is {a/b: x}.\n```\n")
    measured.snippet("a/b", f"{PLOT}\n\ndef main():\n    return {{}}\n", "gpus = [0]")
    measured.page("shown", "```snippet a/b\n```\n```snippet c/other\ncaptoin: x\n```\n")
    problems = [problem for problem in measured.check() if "code changed" not in problem]
    assert [problem.partition(";")[0] for problem in problems] == [
        "docs/shown.md:3: unknown option `captoin: x`"
    ]


PLOT = "def plot(results, ceilings):\n    return None\n"
BORROWS = "from snippets.c.other import f\n\n\ndef main():\n    return f()\n"
#: A snippet of which a reader would miss something, and what `check` says; it stops no build.
MISSED = {
    f'"""It draws."""\n\n\n{PLOT}\n\ndef main():\n    return {{}}\n': (
        "docs/a.md:1: the picture of a/new has no caption; say in"
    ),
    "def main():\n    return {}\n": "snippets/a/new.py: says nothing of itself; begin it with a docstring",
    f'"""It borrows."""\n\n{BORROWS}': "snippets/a/new.py: imports c/other of another chapter; import from",
    '"""It is slow."""\n\n\ndef main():\n    return {}\n': (
        "snippets/a/new.py: took 25 s on cpu, more than a third of its limit of 60 s; write"
    ),
}


@pytest.mark.parametrize("code", MISSED)
def test_check_says_what_a_reader_would_miss(measured, template, code):
    path = measured.root / "snippets/a/new.py"
    path.write_text(measured.HEADER.format("# gpus = [0]\n") + code)
    measured.page("a", "```snippet a/new\n```\n")
    seconds = 25.0 if "slow" in code else 20.0
    measured.commit("a/new", template, {}, run=template["run"] | {"seconds": seconds})
    (problem,) = measured.check()
    assert problem.startswith(MISSED[code])
    assert measured.check(remarks=False) == []


def test_what_claims_say_elsewhere_is_a_finding(measured, template, capsys, monkeypatch):
    monkeypatch.chdir(measured.root)
    (measured.root / "pyproject.toml").write_text("[tool.overlap]\nhome = {cpu = 1, h200 = 1}\n")
    for second, x in enumerate((8.0, 9.0, 10.0)):
        later = template["run"] | {"started": f"2031-01-01T00:00:0{second}+00:00"}
        old = recording.read(measured.path("a/b", "h200-x2"))
        measured.commit("a/b", template, RESULT | {"x": x}, gpus=2, run=later)
        new = recording.read(measured.path("a/b", "h200-x2"))
        recording.write(measured.path("a/b", "h200-x2"), recording.dump(recording.merged(old, new)))
    claims = {"x < 8": "Small.", "x < 11": "Thin.", "c.other.x > 0": "Other.", "x > 0": "Some."}
    blocks = [f"```claim a/b\n{expression}\n{text}\n```\n" for expression, text in claims.items()]
    measured.page("a", "".join(blocks))
    machine = "2 × H200, not one of the book's own"
    count = f"{machine}: 2 claims hold, 1 of them too narrowly, 1 is false, 1 is open"
    assert main(["check"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "2 snippets, 4 claims: all in order",
        f"{count}; `overlap check --all` says which",
    ]
    assert main(["check", "--all"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "2 snippets, 4 claims: all in order",
        count,
        "  false: docs/a.md:1: Small. x = 8.5, not < 8",
        "  open: docs/a.md:9: Other. `c.other.x > 0`: no run of c/other on h200-x2",
        "  too narrow: docs/a.md:5: claim holds by less than 3 times the spread of `x < 11` over its runs",
    ]


def test_what_is_false_elsewhere_with_another_torch_names_both(measured, template, capsys, monkeypatch):
    monkeypatch.chdir(measured.root)
    (measured.root / "pyproject.toml").write_text("[tool.overlap]\nhome = {cpu = 1, h200 = 1}\n")
    measured.commit("a/b", template, RESULT | {"x": 8.0}, gpus=1)
    newer = template["software"] | {"torch": "2.99.0+cu130"}
    measured.commit("a/b", template, RESULT | {"x": 7.0}, gpus=2, software=newer)
    measured.page("a", "```claim a/b\nx >= 8 for gpus >= 1\nLarge.\n```\n")
    assert main(["check", "--all"]) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "false: " in line]
    both = f"torch 2.99.0+cu130 there, {template['software']['torch']} recorded"
    assert line == f"  false: docs/a.md:1: Large. x = 7, not ≥ 8; {both}"


NAMED = "\n```claim a/b\nx > 1\nname: large\nIt is large.\n```\n"
SHOWN = "```snippet a/b\n```\n"
#: What only shows when the snippet and the rest of the page are known: the page and its problem.
BAD_TOGETHER = {
    "mark": (
        f"{SHOWN}Large {{claim: lage}}.\n{NAMED}",
        "docs/a.md:3: no claim of this page is named 'lage'; there are large",
    ),
    "marks": (
        f"{SHOWN}{{claim: large}} {{claim: large}}\n{NAMED}",
        "docs/a.md:5: {claim: large} stands on the page more than once; leave",
    ),
    "names": (
        f"{SHOWN}{NAMED}{NAMED.replace('It is', 'How')}",
        "docs/a.md:10: the claim of line 4 has this name, or says the same; change one",
    ),
    "caption": ("```snippet a/b\ncaption: Look.\n```", "docs/a.md:1: a caption, but no picture of a/b here"),
    "caption's value": (
        "```snippet a/b\ncaption: {a/b: lost}\n```",
        "docs/a.md:1: a/b: `lost` has no value on",
    ),
    "figure": (f"{SHOWN}```figure a/b\nLook.\n```", "docs/a.md:3: a/b draws no picture; write a `plot`"),
    "figure alone": (
        "```figure c/other\nLook.\n```",
        "docs/a.md:1: no page shows how c/other was measured; add a `snippet c/other`",
    ),
}


@pytest.mark.parametrize("name", BAD_TOGETHER)
def test_what_a_page_gets_wrong_of_its_own_blocks(measured, name):
    text, expected = BAD_TOGETHER[name]
    measured.page("a", text)
    measured.page("shown", "```snippet a/b\n```\n")
    problems = [problem for problem in measured.check() if expected in problem]
    assert problems and all(map(has_remedy, problems))


RESULT = {
    "x": 2.0,
    "ms": {"mm": 10.0},
    "ms_trials": {"mm": [9.0, 10.0, 11.0]},
    "n": 1234567,
    "big": 98765.4,
    "trials": [1.5, 2.5, 9],
    "sizes": {"small": 1, "deep": {"er": 7}, "1024": 3},
    "name": "stream",
    "ok": True,
    "zero": 0,
}


@pytest.fixture
def measured(small_book, template):
    """A snippet measured on the CPU (x = 2), on one H200 (x = 4) and on two (x = 8, with y).

    Another one is measured on the CPU and on one H200.
    """
    for name in ("a/b", "c/other"):
        small_book.snippet(name, "def f():\n    pass\n\n\ndef main():\n    return {}\n", "gpus = [0]")
        small_book.commit(name, template, RESULT)
        small_book.commit(name, template, RESULT | {"x": 4.0}, gpus=1)
    small_book.commit("a/b", template, RESULT | {"x": 8.0, "y": 3}, gpus=2)
    small_book.page("shown", "```snippet a/b\n```\n```snippet c/other\n```\n")
    return small_book


VALUES = {
    "{a/b: x}": {"cpu": "2", "h200": "4", "h200-x2": "8"},
    "{a/b: x:.2f}": {"cpu": "2.00", "h200": "4.00", "h200-x2": "8.00"},
    "{a/b: x / 3:.1%}": {"cpu": "66.7%", "h200": "133.3%", "h200-x2": "266.7%"},
    "{a/b@h200: x:.0f}": {"h200": "4"},
    "{a/b@h200-x2: x + gpus}": {"h200-x2": "10"},
    "{a/b: y}": {"h200-x2": "3"},
    "{a/b@cpu: n}": {"cpu": "1,234,567"},
    "{a/b@cpu: name}": {"cpu": "stream"},
    "{a/b@cpu: x / 1e3:time}": {"cpu": "2 ms"},
    "{a/b@cpu: ok}": {"cpu": "True"},
    "{a/b@cpu: trials}": {"cpu": "[1.5, 2.5, 9]"},
    "{a/b@cpu: trials * 30}": {"cpu": "[1.5, 2.5, 9, 1.5, 2.5, 9, 1.5, 2.5, 9, 1.5, 2.5, 9, 1.5,…"},
    "{a/b@cpu: max(t for t in trials if t > x)}": {"cpu": "9"},
    "{a/b@cpu: sizes.deep.er}": {"cpu": "7"},
    "{a/b@h200: ceiling.hbm_gb_s}": {"h200": "4,814"},
    "{a/b: x / ceiling.hbm_gb_s:.4f}": {"h200": "0.0008", "h200-x2": "0.0017"},
    "{a/b: x / c.other.x}": {"cpu": "1", "h200": "1"},
}


@pytest.mark.parametrize("text", VALUES)
def test_values(measured, text):
    ((line, found),) = inline.values(f"Some {{ .attribute }} and {{unrelated: text}}\n\na {text} b")
    assert line == 2
    statistics = measured.book().statistics(found)
    assert {machine: item.text for machine, item in statistics.items() if item.values} == VALUES[text]


BAD_VALUES = {
    "{a/b: lost}": (
        "a/b: `lost` has no value on cpu, h200, h200-x2 "
        "(`lost`: name 'lost' is not defined; there are a, big, c,"
    ),
    "{a/b: c.lost.x}": "no run of c/lost on h200-x2",
    "{a/b@h200-x8: x}": "a/b: `x` has no value on h200-x8; run `overlap record a/b` on one",
    "{a/b: x +}": "`x +` is not an expression",
    "{a/b: name:.2f}": "`name:.2f`: Unknown format code",
    "{a/b: open(1)}": "`open` is none of the functions there are",
}


@pytest.mark.parametrize("text", BAD_VALUES)
def test_a_bad_value_is_an_error_with_page_and_line(measured, text):
    measured.page("a", f"# A\n\n```text\nplain\n```\n\nFirst {{a/b: x}},\nthen {text}.\n")
    (problem,) = measured.check()
    assert problem.startswith("docs/a.md:8: ") and has_remedy(problem)
    assert BAD_VALUES[text] in problem


@pytest.mark.parametrize(
    "code",
    ["`{a/b: x}`", "``{a/b: x} ` ``", "```text\n{a/b: x}\n```", LONGER, "`one` and `{a/b: x}` and `two`"],
)
def test_code_is_left_alone(code):
    assert inline.values(code) == []
    text = f"{{a/b: x}} {code} {{a/b: y}}"
    assert inline.replace_values(text, lambda found: f"<{found.expression}>") == f"<x> {code} <y>"


def claim(text: str) -> Claim:
    (part,) = page.parse(f"```claim a/b\n{text}\nThe sentence.\n```", "a.md")
    assert isinstance(part, Claim)
    return part


BEATS = " — beats its ceiling"
CLAIMS = {
    "x >= 2": {"cpu": (True, "x = 2 ≥ 2"), "h200": (True, "x = 4 ≥ 2"), "h200-x2": (True, "x = 8 ≥ 2")},
    "x > 2 for gpus >= 1": {"h200": (True, "x = 4 > 2"), "h200-x2": (True, "x = 8 > 2")},
    "x > 2 for gpus in (0, 2)": {"cpu": (False, "x = 2, not > 2"), "h200-x2": (True, "x = 8 > 2")},
    "1 < x < 3 for gpus == 0": {"cpu": (True, "1 < x = 2 < 3")},
    "x != 2 and ok for gpus < 1": {"cpu": (False, "x = 2, not ≠ 2, ok: True")},
    "all(t > -1 for t in trials) for gpus == 0": {"cpu": (True, "true")},
    "y > 2": {
        "cpu": (None, "`y > 2`: name 'y' is not defined"),
        "h200": (None, "`y > 2`: name 'y' is not defined"),
        "h200-x2": (True, "y = 3 > 2"),
    },
    "c.other.x == x": {
        "cpu": (True, "c other x = 2 == 2 (x)"),
        "h200": (True, "c other x = 4 == 4 (x)"),
        "h200-x2": (None, "no run of c/other on h200-x2"),
    },
    "x > 1 for gpus == 1\nlimit: x of 3.99": {"h200": (False, f"x = 4 > 1 · 100% of 3.99{BEATS}")},
    "x > 1 for gpus == 1\nlimit: ms.mm of 8 + 0 * ceiling.sms": {
        "h200": (False, f"x = 4 > 1 · mm = 10 ms: 125% of 8 (8 + 0 × ceiling SMs){BEATS}")
    },
    "x > 1 for gpus == 1\nlimit: 1100 of ceiling.bf16_tflop_s": {
        # a clock passes its highest
        "h200": (True, "x = 4 > 1 · 1,100: 103% of 1,071 TFLOP/s (ceiling bf16)")
    },
    "x > 1 for gpus == 1\nlimit: 1110 of ceiling.bf16_tflop_s": {
        "h200": (False, f"x = 4 > 1 · 1,110: 104% of 1,071 TFLOP/s (ceiling bf16){BEATS}")
    },
    "x > 1 for gpus == 1\nlimit: 4900 of ceiling.hbm_gb_s": {
        "h200": (False, f"x = 4 > 1 · 4,900: 102% of 4,814 GB/s (ceiling HBM){BEATS}")
    },
    "x > 2 for capability >= 9 and model == 'h200' and ceiling.sms > 1": {
        "h200": (True, "x = 4 > 2"),
        "h200-x2": (True, "x = 8 > 2"),
    },
    "x > 2 for ceiling.sms > 1": {
        "cpu": (None, "ceiling of the CPU has no 'sms'"),
        "h200": (True, "x = 4 > 2"),
        "h200-x2": (True, "x = 8 > 2"),
    },
    "x > 1 and ok for gpus == 1\nlimit: x of ceiling.sms": {
        "h200": (True, "x = 4 > 1, ok: True · x = 4: 3% of 132 (ceiling SMs)"),
    },
    "x > 1\nlimit: x of ceiling.sms": {
        "cpu": (True, "x = 2 > 1 · x = 2 of a ceiling that is not known"),
        "h200": (True, "x = 4 > 1 · 3% of 132 (ceiling SMs)"),
        "h200-x2": (True, "x = 8 > 1 · 6% of 132 (ceiling SMs)"),
    },
}


@pytest.mark.parametrize("text", CLAIMS)
def test_verdicts(measured, text):
    found = {verdict.machine: verdict for verdict in measured.book().verdicts(claim(text))}
    states = {True: State.HOLDS, False: State.FALSE, None: State.OPEN}
    assert {machine: verdict.state for machine, verdict in found.items()} == {
        machine: states[holds] for machine, (holds, _) in CLAIMS[text].items()
    }
    for machine, (holds, figures) in CLAIMS[text].items():
        assert figures in found[machine].figures if holds is None else figures == found[machine].figures
        assert found[machine].recording.path == f"docs/recordings/{machine}/a/b.json"


CHECKED = {
    "x >": [
        "claim a/b: `x >` is not an expression (invalid syntax), in docs/recordings/cpu/a/b.json; mend the"
    ],
    "x > 1 for cpus > 1": [
        "claim a/b: no data decide it: `cpus > 1`: name 'cpus' is not defined; there are capa"
    ],
    "x >= 2": [],
    "x >= 4": ["claim is false: The sentence. `x >= 4`: x = 2, not ≥ 4, in docs/recordings/cpu/a/b.json"],
    "x > 1\nlimit: x of 5": [
        "claim is false: The sentence. `x > 1`: x = 8 > 1 · 160% of 5 — beats its ceiling, in"
    ],
    "x > 1 for gpus >= 4": ["claim a/b: no data decide it: it speaks of no machine that has a recording"],
    "lost > 1": [
        "claim a/b: no data decide it: `lost > 1`: name 'lost' is not defined; there are a, big, c, capa"
    ],
}


@pytest.mark.parametrize("text", CHECKED)
def test_claims_are_checked_on_every_recording(measured, text):
    measured.page("a", f"# A\n\n```claim a/b\n{text}\nThe sentence.\n```\n")
    problems = [each for each in measured.check()]
    assert len(problems) == len(CHECKED[text])
    for problem, expected in zip(problems, CHECKED[text], strict=True):
        assert problem.startswith(f"docs/a.md:3: {expected}") and has_remedy(problem)
    assert measured.check(remarks=False) == [each for each in problems if "by less than" not in each]


@pytest.mark.parametrize(
    ("ceiling", "known"), [("ceiling.sms", True), ("ceiling.sm", False), ("lost.x", False)]
)
def test_a_limit_that_no_machine_knows_is_a_problem(measured, ceiling, known):
    measured.page(
        "a", f"# A\n\n```claim a/b\nx > 1\nlimit: x of {ceiling}\nlimit: x of ceiling.sms\nSo.\n```\n"
    )
    problem = f"docs/a.md:3: no machine knows the limit `{ceiling}`; mend it, or take it away"
    assert [each for each in measured.check()] == [problem] * (not known)


def test_a_claim_within_a_fence_is_named_by_its_own_line(measured):
    measured.page("a", "# A\n\n```claim a/b\nx > 1\nSo.\n\nx > 5 for gpus == 0\nname: large\nLarge.\n```\n")
    (problem,) = measured.check()
    assert problem.startswith("docs/a.md:7: claim is false: Large. `x > 5`: x = 2, not > 5, in docs/")


def test_a_claims_anchor_stays_where_lines_are_inserted(measured):
    claim = "```claim a/b\nx > 1\nThe sentence.\n```\n"
    for above in ("", "One more line.\n\n"):
        measured.page("a", above + claim)
        assert [found.anchor for found in measured.pages().claims] == ["claim-a-b-7713e3"]
    measured.page("a", claim + claim.replace("x > 1", "x >= 1"))
    assert "docs/a.md:5: the claim of line 1 has this name, or says the same; change one" in "".join(
        measured.check()
    )


TYPED = {
    "5 ms": [(0, "5 ms")],
    "it takes 0.5 ms, then\n1.2 GB/s.": [(0, "0.5 ms"), (1, "1.2 GB/s")],
    "3× faster": [(0, "3×")],
    "20 times as long, squared 50 times": [(0, "20 times as")],
    "`5 ms`, {printed: 5 ms}, {a/b: x} ms, {a/b: x:.1f} ms, 8192 rows, v1.5 s, 5 msec": [],
    "```\n5 ms\n```\n\n7 µs": [(4, "7 µs")],
    "at 1,980 MHz and 700 W": [(0, "1,980 MHz"), (0, "700 W")],
}


@pytest.mark.parametrize("text", TYPED)
def test_measured_looking_numbers_that_are_typed_in(measured, text):
    assert inline.typed_numbers(text) == TYPED[text]
    measured.page("a", f"# A\n\n{text}\n")
    assert [problem[:12] for problem in measured.check()] == [
        f"docs/a.md:{3 + line}:"[:12] for line, _ in TYPED[text]
    ]
    measured.page("contributing", f"{text}\n")
    assert not any("contributing" in problem for problem in measured.check())


def test_what_a_builder_reads_at_the_top_of_a_page_is_none_of_its_text(measured):
    measured.page("a", "---\nsearch:\n  boost: 2\n---\n\n# A\n\nIt takes 7 ms.\n")
    pages = measured.pages()
    assert pages.by_path["a.md"].text.strip().startswith("# A")
    (problem,) = measured.check()
    assert problem.startswith("docs/a.md:8: `7 ms` is typed in by hand")


CALCULATOR = """launch = x | 1 to 100 | a launch, µs
gpus = 4 | 1 to 8 | GPUs
faster = gpus * launch / max(launch, 2) | times
curve: launch"""
BAD_CALCULATORS = {
    "": "a calculator needs inputs, one result, and a curve along an input",
    CALCULATOR.replace(
        "1 to 100", "1 to many"
    ): "`launch = x | 1 to many | a launch, µs` is no line of a calculator; write",
    CALCULATOR.replace("1 to 100", "3 to 100"): "launch is 2 on cpu, outside 3 to 100; widen its bounds",
    CALCULATOR.replace("= x |", "= lost |"): "`lost` has no value on",
    CALCULATOR.replace(
        "max(launch, 2)", "sum(launch)"
    ): "`sum(launch)` cannot be computed by a page; write plain arithmetic",
    CALCULATOR.replace("max(launch, 2)", "other"): "name 'other' is not defined; there are gpus, launch",
    f"{CALCULATOR}\nlimit = sum(gpus) | all": "`sum(gpus)` cannot be computed by a page",
    f"{CALCULATOR}\nsay = gpus > 1 | {{sum(gpus)}}": "`sum(gpus)` cannot be computed by a page",
    f"{CALCULATOR}\nsay = lost > 1 | So.": "name 'lost' is not defined",
    f"{CALCULATOR}\nlimit = gpus - 4 | all": "its limit is not above 0 on cpu; mend the limit",
    CALCULATOR.replace("max(launch, 2)", "(0 - launch)"): "the result falls to -4 on cpu; narrow the bounds",
}


def test_a_calculator_begins_at_what_each_machine_measured(measured):
    measured.page("a", f"```calculator a/b\n{CALCULATOR}\n```\n")
    pages = measured.pages()
    assert measured.check() == []
    (found,) = (block for block in pages.blocks if isinstance(block, Calculator))
    starts = found.starts(pages.book)
    assert starts["cpu"] == {"launch": 2.0, "gpus": 4} and starts["h200"] == {"launch": 4.0, "gpus": 4}
    assert found.result(starts["h200"]) == 4.0
    launch, gpus = found.inputs
    assert launch.stops()[32] == pytest.approx(10) and gpus.stops()[32] == 4.5
    assert (launch.unit, gpus.unit, launch.step(2.0), gpus.step(4)) == ("µs", "", "any", 1)


def test_a_calculator_may_have_a_limit(measured):
    measured.page("a", f"```calculator a/b\n{CALCULATOR}\nlimit = 2 * gpus | busy\n```\n")
    pages = measured.pages()
    assert measured.check() == []
    (found,) = (block for block in pages.blocks if isinstance(block, Calculator))
    assert (found.limit, found.limit_label) == ("2 * gpus", "busy") and found.formula != found.limit


def test_a_calculator_may_have_choices_parts_and_sentences(measured):
    rows = ["way = one of plain; fast | the way", "let half = gpus / (2 - way)", "limit = gpus | all"]
    rows += ["say = result > limit | Wait: {result - limit} more.", "say = way == 1 | It is fast."]
    measured.page("a", f"```calculator a/b\n{CALCULATOR}\n{chr(10).join(rows)}\n```\n")
    pages = measured.pages()
    assert measured.check() == []
    (found,) = (block for block in pages.blocks if isinstance(block, Calculator))
    assert found.inputs[-1].choices == ("plain", "fast") and found.inputs[-1].step(0) == 1
    assert found.lets == (("half", "gpus / (2 - way)"),)
    result = found.result({"launch": 9, "gpus": 4, "way": 1})
    assert found.said({"launch": 9, "gpus": 4, "way": 1})[-1] == "It is fast."
    waits = found.said({"launch": 9, "gpus": 4, "way": 0})
    assert waits == ([f"Wait: {result - 4:.3g} more."] if result > 4 else [])


@pytest.mark.parametrize("body", BAD_CALCULATORS)
def test_a_bad_calculator(measured, body):
    measured.page("a", f"```calculator a/b\n{body}\n```\n")
    problems = measured.check()
    assert problems and problems[0].startswith("docs/a.md:1: ")
    assert BAD_CALCULATORS[body] in problems[0]


def test_an_unknown_function_or_snippet_to_show(measured):
    measured.page("a", "```snippet a/b\nshow: f, lost\n```\n```snippet a/lost\n```\n```snippet ../x\n```\n")
    assert [problem.partition(";")[0] for problem in measured.check()] == [
        "docs/a.md:1: snippets/a/b.py: no function lost",
        "docs/a.md:4: snippets/a/lost.py: there is no such file",
        "docs/a.md:6: '../x': a snippet is named <chapter>/<snippet>, lower case, inside snippets/",
    ]
