"""Properties of what reads data from outside, over inputs that a machine thinks up: the same ones each time, in a few seconds."""

import json
import math
import re
import string
import sys
import time
from html.parser import HTMLParser

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from markdown import markdown
from test_overlap_bad_input import FIELDS, FULL, ORIGIN, changed

from overlap import OverlapError
from overlap.book import expression, page
from overlap.run import recording, snippet
from overlap.run.bundle import Bundle
from overlap.run.text import plain, visible
from overlap.site.markdown import OverlapExtension
from overlap.site.pictures import Pictures
from overlap.site.view import Site

pytestmark = pytest.mark.usefixtures("on_cpu")


def budget(examples: int) -> settings:
    """So many examples, always the same ones, nothing kept on disk."""
    lent = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
    return settings(max_examples=examples, derandomize=True, database=None, deadline=None, suppress_health_check=lent)


TEXT = st.text(max_size=60)
ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
)


def in_words(error: OverlapError, origin: str) -> None:
    """A message names its origin and can be shown as it is."""
    assert str(error).startswith(origin) and len(str(error)) < 3_000
    assert plain(str(error)).encode()


# Expressions

_WORDS = [
    "n",
    "a",
    "data",
    "max",
    "sum",
    "range",
    "len",
    "str",
    "sorted",
    "x",
    "lost",
    "__class__",
    "__import__",
    "items",
]
_JOINTS = [
    ".",
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    ",",
    " ",
    ":",
    "+",
    "-",
    "*",
    "**",
    "/",
    "%",
    "<",
    "==",
    " for x in ",
    " if ",
]
_JOINTS += [
    " else ",
    " and ",
    " not ",
    " in ",
    "lambda: ",
    ":=",
    "=",
    "'",
    '"',
    "f'",
    "{",
    "9",
    "1e9",
    "10**9",
    "0",
    "\\",
    "#",
    "\n",
]
SOUP = st.lists(st.sampled_from(_WORDS + _JOINTS) | TEXT, max_size=14).map("".join)
LEAVES = st.sampled_from(
    ["n", "a", "data", "data.x", "a[0]", "'t'", "9", "0", "1e308", "10**6", "None", "True", "lost"]
)
TREES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.tuples(
            inner, st.sampled_from(["+", "-", "*", "/", "//", "%", "**", "<", ">=", "==", "and", "in"]), inner
        ).map(lambda t: f"({t[0]} {t[1]} {t[2]})"),
        st.tuples(st.sampled_from(sorted(expression.FUNCTIONS)), inner).map(lambda t: f"{t[0]}({t[1]})"),
        st.tuples(inner, inner).map(lambda t: f"[{t[0]} for x in {t[1]}]"),
        st.tuples(inner, inner, inner).map(lambda t: f"({t[0]} if {t[1]} else {t[2]})"),
        st.tuples(inner, inner).map(lambda t: f"{t[0]}[{t[1]}]"),
        st.lists(inner, max_size=3).map(lambda parts: f"[{', '.join(parts)}]"),
        st.tuples(inner, st.sampled_from(["__class__", "items()", "keys()", "x", "_items", "format"])).map(".".join),
    ),
    max_leaves=10,
)
SCOPE = {"n": 3, "a": [1.5, 2.5], "data": expression.Data({"x": {"y": 1}, "items": 2}, "data")}
#: What an evaluation may make the interpreter do, and what a tracer does to each call; anything else would be a way out.
HARMLESS = {"compile", "exec", "builtins.id", "object.__getattr__"}
_seen: list[str] | None = None


def _listen(event: str, arguments: tuple) -> None:
    if _seen is not None:
        _seen.append(event)


sys.addaudithook(_listen)


@budget(250)
@given(SOUP | TREES)
def test_an_expression_gives_data_or_is_refused_in_time_and_reaches_nothing(source):
    global _seen
    started, _seen = time.monotonic(), []
    try:
        value = expression.evaluate(source, SCOPE)
        text = expression.show(value)
    except OverlapError as error:
        value, text = None, ""
        in_words(error, "`")
    finally:
        events, _seen = set(_seen), None
    assert events <= HARMLESS, (source, events)
    assert time.monotonic() - started < expression.SECONDS + 3
    assert text == visible(text)
    assert isinstance(value, (int, float, str, list, tuple, set, dict, type(None), expression.Data))
    assert not isinstance(value, float) or math.isfinite(value)


# Recordings and bundles


@budget(250)
@given(st.sampled_from(FIELDS), ANY)
def test_a_recording_is_read_as_it_was_written_or_refused(path, value):
    text = json.dumps(changed(path, lambda node, key: node.__setitem__(key, value)))
    try:
        data = recording.parse(text, ORIGIN)
    except OverlapError as error:
        in_words(error, ORIGIN)
    else:
        assert recording.parse(recording.dump(data), ORIGIN) == data == json.loads(text)


@budget(150)
@given(
    st.binary(max_size=80)
    | TEXT.map(lambda text: text.encode("utf-8", "surrogatepass"))
    | ANY.map(lambda data: json.dumps(data).encode())
)
def test_what_is_no_recording_is_refused(raw):
    with pytest.raises(OverlapError) as caught:
        recording.parse(raw, ORIGIN)
    in_words(caught.value, ORIGIN)


GOOD = json.dumps(recording.sealed(FULL), sort_keys=True).encode()
LINES = st.sampled_from([GOOD, b"", b"  ", GOOD[:200], GOOD[:5], b"{}", b"\xff", b"notes"]) | st.binary(max_size=30)


@budget(150)
@given(st.lists(LINES, max_size=4), st.booleans())
def test_a_bundle_opens_with_all_it_has_or_stays_as_it_is(tmp_path, lines, ended):
    path = tmp_path / "bundle"
    raw = b"\n".join(lines) + b"\n" * ended
    path.write_bytes(raw)
    try:
        bundle = Bundle(path)
    except OverlapError as error:
        assert path.read_bytes() == raw
        in_words(error, str(path))
        return
    whole = [line for line in raw.split(b"\n") if line.strip() and line == GOOD]
    assert [dict(each) for each in bundle.recordings] == [json.loads(line) for line in whole]
    bundle.add(json.loads(GOOD))
    assert len(Bundle(path).recordings) == len(whole) + 1
    assert path.read_bytes().startswith(raw) or bundle.mended or not raw.endswith(b"\n")


# Headers


def toml(value) -> str:
    """A value as TOML; what TOML cannot say becomes something else that is wrong."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)} = {toml(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    return json.dumps(value) if isinstance(value, (bool, int, str)) else str(value).lower()


KEYS = st.sampled_from(["gpus", "timeout", "exclusive", "launcher", "missing", "ranks", "gpu", "tool", "x y"])
ROWS = st.tuples(KEYS, ANY | st.lists(st.integers(0, 9), max_size=3)).map(lambda row: f"{row[0]} = {toml(row[1])}")
ODD = st.text(string.printable, max_size=40)


@budget(200)
@given(st.lists(ROWS | ODD, max_size=4))
def test_a_header_is_a_table_of_options_or_is_refused(rows):
    lines = "\n".join(["[tool.overlap]", *rows]).split("\n")
    header = "".join(f"# {line}\n" for line in ["/// script", *lines, "///"])
    try:
        options = snippet.facts(f"{header}\ndef main():\n    return {{}}\n", "snippets/a/b.py")["options"]
    except OverlapError as error:
        in_words(error, "snippets/a/b.py")
        return
    assert options["gpus"] and all(type(count) is int and count >= 0 for count in options["gpus"])
    assert 0 < options["timeout"] <= 3600 and type(options["exclusive"]) is bool
    assert options["launcher"] in ("python", "torchrun")


# Pages

_PIECES = [
    "```",
    "````",
    "~~~",
    "snippet",
    "claim",
    "figure",
    "calculator",
    "scoreboard",
    "headlines",
    "tally",
    "diagram",
    " ",
    "\n",
    "\n\n",
    "    ",
]
_PIECES += [
    "a/b",
    "n == 3",
    "limit: n of 4",
    "name: x",
    "show: main",
    "| 1 to 5 |",
    "= n |",
    "curve: x",
    "{a/b: n}",
    "{claim: x}",
    "{printed: 5 ms}",
]
_PIECES += ["It is.", "# A", "- ", "> ", "| a | b |", "\t", "\r", "\x0c", "\u2028", "{", "}", "`"]
MARKDOWN = st.lists(st.sampled_from(_PIECES) | st.text(max_size=8), max_size=24).map("".join)
FENCES = st.tuples(st.sampled_from(sorted(page.KINDS)), TEXT, MARKDOWN).map(
    lambda t: f"```{t[0]} {t[1]}\n{t[2]}\n```\n"
)


@budget(200)
@given(st.lists(MARKDOWN | FENCES, max_size=3).map("\n".join))
def test_a_page_is_taken_apart_without_a_loss_or_is_refused(text):
    try:
        blocks = page.parse(text, "p.md")
    except OverlapError as error:
        in_words(error, "docs/p.md:")
        assert 1 <= int(re.match(r"docs/p\.md:(\d+): ", str(error))[1]) <= len(text.splitlines())
        return
    lines = text.splitlines()
    for block in blocks:
        assert 1 <= block.line <= len(lines)
        if isinstance(block, page.Text):
            said = block.text.split("\n") if block.text else [""]
            assert lines[block.line - 1 : block.line - 1 + len(said)] == said


# Escaping


class Shape(HTMLParser):
    """The elements of a page with their attributes' names, and its text."""

    def __init__(self, html: str):
        super().__init__()
        self.elements, self.text = [], ""
        self.feed(html)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, *(name for name, _ in attributes)))

    def handle_data(self, data):
        self.text += data


HOSTILE = st.sampled_from(
    [
        "<",
        ">",
        "&",
        '"',
        "'",
        "`",
        "*",
        "_",
        "[",
        "]",
        "(",
        ")",
        "{",
        "}",
        "\n",
        "\\",
        "<b>",
        "</span>",
        "<script>",
        "&lt;",
        "]]>",
        "-->",
    ]
)
SAID = st.lists(HOSTILE | st.text(max_size=6), max_size=12).map("".join)
SHOWN = "{a/b: said}\n\n```claim a/b\nsaid != 7\nname: so\nIt is.\n```\n\nSo {claim: so}.\n"


@budget(40)
@given(said=SAID)
def test_a_recorded_text_is_shown_as_text(small_book, template, said):
    small_book.snippet("a/b")
    small_book.page("a", SHOWN)

    def shape(result: str) -> Shape:
        small_book.commit("a/b", template, {"said": result})
        book = small_book.book("never")
        return Shape(markdown(SHOWN, extensions=[OverlapExtension(Site(book, Pictures(book)))]))

    if any(0xD800 <= ord(c) <= 0xDFFF for c in said):
        return
    made = shape(said)
    assert made.elements == shape("plain").elements
    assert re.sub(r"\s+", " ", expression.show(said).strip()) in re.sub(r"\s+", " ", made.text)
