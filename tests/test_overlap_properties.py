"""Properties of what reads pages and recorded text, over inputs that hypothesis makes up."""

import re
import sys
from html.parser import HTMLParser

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from markdown import markdown

from overlap import OverlapError
from overlap.book import expression, page
from overlap.book.statistic import show
from overlap.run.text import plain, visible
from overlap.site.markdown import OverlapExtension
from overlap.site.pictures import Pictures
from overlap.site.view import Site

pytestmark = pytest.mark.usefixtures("on_cpu")


def examples(count: int) -> settings:
    """So many examples, always the same ones, nothing kept on disk."""
    lent = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
    return settings(
        max_examples=count, derandomize=True, database=None, deadline=None, suppress_health_check=lent
    )


TEXT = st.text(max_size=60)


def pieces(*groups: str) -> st.SearchStrategy:
    """One of the words between spaces."""
    return st.sampled_from([word for group in groups for word in group.split()])


def refused_in_words(error: OverlapError, origin: str) -> None:
    """A message names its origin and can be shown as it is."""
    assert str(error).startswith(origin) and len(str(error)) < 3_000
    assert plain(str(error)).encode()


WORDS = pieces(
    "n a data max sum range len str sorted x lost __class__ __import__ items", "if else and not in for 9 0"
)
SIGNS = pieces(". ( ) [ ] { } , : + - * / % < == := = lambda: ' \" f' \\ #") | st.sampled_from([" ", "\n"])
SOUP = st.lists(WORDS | SIGNS | TEXT, max_size=14).map("".join)
OPERATORS = pieces("+ - * / // % < >= == and in")
VIEWS = pieces("__class__ items() keys() x _items format")
TREES = st.recursive(
    pieces("n a data data.x a[0] 't' 9 0 1e308 None True lost"),
    lambda inner: st.one_of(
        st.tuples(inner, OPERATORS, inner).map(lambda t: f"({t[0]} {t[1]} {t[2]})"),
        st.tuples(pieces(*expression.FUNCTIONS), inner).map(lambda t: f"{t[0]}({t[1]})"),
        st.tuples(inner, inner).map(lambda t: f"[{t[0]} for x in {t[1]}]"),
        st.tuples(inner, inner, inner).map(lambda t: f"({t[0]} if {t[1]} else {t[2]})"),
        st.tuples(inner, inner).map(lambda t: f"{t[0]}[{t[1]}]"),
        st.lists(inner, max_size=3).map(lambda items: f"[{', '.join(items)}]"),
        st.tuples(inner, VIEWS).map(".".join),
    ),
    max_leaves=10,
)
SCOPE = {"n": 3, "a": [1.5, 2.5], "data": expression.Data({"x": {"y": 1}, "items": 2}, "data")}
#: What an evaluation may make the interpreter do; anything else would be a way out.
HARMLESS = {"compile", "exec", "builtins.id", "object.__getattr__"}
_events: list[str] | None = None


def _listen(event: str, arguments: tuple) -> None:
    if _events is not None:
        _events.append(event)


sys.addaudithook(_listen)


@examples(250)
@given(SOUP | TREES)
def test_an_expression_gives_data_or_is_refused_and_reaches_nothing(source):
    global _events
    _events = []
    try:
        value = expression.evaluate(source, SCOPE)
        text = show(value)
    except OverlapError as error:
        value, text = None, ""
        refused_in_words(error, "`")
    finally:
        events, _events = set(_events), None
    assert events <= HARMLESS, (source, events)
    assert text == visible(text)
    assert isinstance(value, (int, float, str, list, tuple, set, dict, type(None)))


BODY = pieces(
    "a/b limit: 4 name: x show: main | = 1 to 5 curve:", "{a/b:n} {claim:x} {printed:5} It is. # - > ` { }"
)
SPACES = st.sampled_from([" ", "\n", "\n\n", "    ", "\t", "\r", "\x0c", "\u2028"])
FENCE = pieces("``` ```` ~~~", *page.KINDS) | SPACES
MARKDOWN = st.lists(BODY | FENCE | st.text(max_size=8), max_size=24).map("".join)
BLOCKS = st.tuples(pieces(*page.KINDS), TEXT, MARKDOWN).map(lambda t: f"```{t[0]} {t[1]}\n{t[2]}\n```\n")


@examples(200)
@given(st.lists(MARKDOWN | BLOCKS, max_size=3).map("\n".join))
def test_a_page_is_taken_apart_without_a_loss_or_is_refused(text):
    lines = text.splitlines()
    try:
        blocks = page.parse(text, "p.md")
    except OverlapError as error:
        refused_in_words(error, "docs/p.md:")
        assert 1 <= int(re.match(r"docs/p\.md:(\d+): ", str(error))[1]) <= len(lines)
        return
    for block in blocks:
        assert 1 <= block.line <= len(lines)
        if isinstance(block, page.Text):
            of_block = block.text.split("\n") if block.text else [""]
            assert lines[block.line - 1 : block.line - 1 + len(of_block)] == of_block


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


HOSTILE = pieces("< > & \" ' ` * _ [ ] ( ) { } \\ <b> </span> <script> &lt; ]]> -->") | st.just("\n")
ANYTHING = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
RECORDED = st.lists(HOSTILE | ANYTHING, max_size=12).map("".join)
PAGE = "{a/b: said}\n\n```claim a/b\nsaid != 7\nname: so\nIt is.\n```\n\nSo {claim: so}.\n"


@examples(40)
@given(recorded=RECORDED)
def test_a_recorded_text_is_shown_as_text(small_book, template, recorded):
    small_book.snippet("a/b")
    small_book.page("a", PAGE)

    def shape(result: str) -> Shape:
        small_book.commit("a/b", template, {"said": result})
        book = small_book.book("never")
        return Shape(markdown(PAGE, extensions=[OverlapExtension(Site(book, Pictures(book)))]))

    made = shape(recorded)
    assert made.elements == shape("plain").elements
    assert re.sub(r"\s+", " ", show(recorded).strip()) in re.sub(r"\s+", " ", made.text)
