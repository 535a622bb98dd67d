"""Symptoms, terms and statements: from their source come the page, the search and the pointer's words."""

import re
import tomllib

import pytest

pytest.importorskip("mkdocs")

from conftest import ROOT

from overlap import OverlapError
from overlap.blocks import entries
from overlap.site.glossary import plain

pytestmark = pytest.mark.usefixtures("on_cpu")

SLOW = {
    "symptom": "It is `slow`",
    "also": ["step takes __long__", "too long"],
    "zh": "慢",
    "why": "[The GPU waits](a.md#why), or [not](a.md)",
    "do": "Look",
}
ROW = "| A1 | `x` is 1 | {verdict: holds} so |"
TABLE = f"```statements\n| id | what it says | verdict |\n|---|---|---|\n{ROW}\n```\n"


@pytest.fixture
def book(small_book):
    """A page of symptoms, and a glossary of two terms."""
    small_book.page("a", "# A\n\n```symptoms waits\n```\n")
    small_book.page("glossary", "# Glossary\n\n```glossary\n```\n")
    small_book.entries("symptoms", waits__it_is__slow=SLOW)
    (small_book.root / "docs/symptoms.toml").write_text(
        (small_book.root / "docs/symptoms.toml").read_text().replace("it_is.slow", "it-__is__-slow")
    )
    small_book.entries(
        "glossary",
        widget={"term": "Widget", "zh": "部件", "meaning": "A `thing`.", "also": "See [it](a.md)."},
        bee={"term": "bee", "meaning": "It *hums*."},
    )
    return small_book


def test_a_symptom_is_a_heading_that_leads_to_its_cause(book):
    made = book.html("# A\n\n```symptoms waits\n```\n")
    heading = re.search(r'<h3 data-label="symptom" id="it-__is__-slow">(.*?)</h3>', made)[1]
    assert heading == (
        '<a href="a.md#why" tabindex="-1">It is <code>slow</code>'
        '<span class="ov-words"> · step takes <strong>long</strong></span>'
        '<span class="ov-words"> · too long</span><span class="ov-words" lang="zh"> · 慢</span></a>'
    )
    assert '<p data-label="why"><a href="a.md#why">The GPU waits</a>, or <a href="a.md">not</a></p>' in made
    assert '<p data-label="do this">Look</p>' in made
    assert book.pages().entries("a.md") == {"it-__is__-slow"} and book.check() == []


def test_several_remedies_are_a_list(book):
    book.entries("symptoms", waits__slow=SLOW | {"do": ["Look at `x`", "Read [this](a.md)"]})
    made = book.html("# A\n\n```symptoms waits\n```\n")
    (listed,) = re.findall(r'<div data-label="do this">\s*(<ul>.*?</ul>)\s*</div>', made, re.DOTALL)
    items = re.findall(r"<li>(.*?)</li>", listed)
    assert items == ["Look at <code>x</code>", 'Read <a href="a.md">this</a>']
    assert '<p data-label="why">' in made and book.check() == []


def test_a_term_is_a_section_that_no_browser_translates(book):
    made = book.html("# Glossary\n\n```glossary\n```\n", "glossary.md")
    assert re.findall(r'<h2 id="([^"]*)" translate="no">(.*?)</h2>', made) == [
        ("widget", 'Widget · <span lang="zh">部件</span>'),
        ("bee", "bee"),
    ]
    assert (
        "<p>A <code>thing</code>.</p>" in made and '<p class="ov-also">See <a href="a.md">it</a>.</p>' in made
    )
    assert book.pages().entries("glossary.md") == {"widget", "bee"}


def test_a_statement_is_headed_by_its_id(book):
    made = book.html(f"# A\n\n{TABLE}")
    assert '<h3 data-label="what it says" id="a1">A1 · <code>x</code> is 1</h3>' in made
    assert re.search(r'<p data-label="verdict"><span class="ov-chip ov-holds">holds</span> so</p>', made)
    assert "<table" not in made and book.pages().entries("a.md") == {"it-__is__-slow"}
    chinese = book.html(f"# A\n\n{TABLE}", "zh.md")
    assert 'A1 · <span lang="zh"><code>x</code> is 1</span></h3>' in chinese


def test_statements_are_a_table_of_equal_rows(book):
    with pytest.raises(OverlapError, match=r"a\.md:3: statements are a table; give its rows as many cells"):
        book.html(f"# A\n\n{TABLE.replace(' so |', ' | so |')}")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"do": None}, r"symptoms\.toml: .* lacks, or has besides, do; an entry has symptom, why, do"),
        ({"todo": "x"}, r"symptoms\.toml: .* lacks, or has besides, todo"),
        ({"why": ["[a](a.md)", "b"]}, r"symptoms\.toml: slow has a list in why; write one text"),
        ({"why": "No link"}, r"symptoms\.toml: `why` of .* has no link"),
    ],
)
def test_a_symptom_that_lacks_something_is_named(book, change, message):
    fields = {key: value for key, value in (SLOW | change).items() if value is not None}
    book.entries("symptoms", waits__slow=fields)
    with pytest.raises(OverlapError, match=message):
        entries.symptoms(book.root / "docs")


def test_what_no_page_shows_and_what_is_not_there_is_not_in_order(book):
    book.entries("symptoms", waits__slow=SLOW, other__slow2=SLOW | {"do": "Wait 5 ms, {a/it: ms}."})
    assert book.check() == ["docs/symptoms.toml: no page shows other; add a symptoms block"]
    book.page("a", "# A\n\n```symptoms other\n```\n\n```symptoms wait\n```\n")
    problems = book.check()
    assert [problem.partition(": ")[0] for problem in problems] == [
        "docs/symptoms.toml:7",
        "docs/symptoms.toml:7",
        "docs/symptoms.toml",
        "docs/a.md:6",
    ]
    assert "a/it" in problems[0] and "`5 ms` is typed in" in problems[1]
    assert "has no section 'wait'; there are waits, other" in problems[3]


def test_two_symptoms_have_no_id_in_common_and_a_slip_has_its_place(book):
    book.entries("symptoms", waits__slow=SLOW, other__slow=SLOW)
    with pytest.raises(OverlapError, match="two symptoms have the id 'slow'"):
        entries.symptoms(book.root / "docs")
    (book.root / "docs/glossary.toml").write_text("[widget]\nterm = Widget\n")
    with pytest.raises(OverlapError, match=r"docs/glossary\.toml: no TOML \(.*line 2.*\); mend it"):
        entries.glossary(book.root / "docs")


def test_a_value_of_an_entry_is_one_of_the_pages(book):
    book.entries("symptoms", waits__slow=SLOW | {"do": "It took {a/it: ms} ms."})
    assert [value.expression for value in book.pages().values] == ["ms"]


def test_what_a_pointer_shows_has_no_marks():
    assert (
        plain("A *thing* of `a < b`, as [this](a.md#x) & [`that`](b.md).")
        == "A thing of a < b, as this & that."
    )


def test_the_books_own_entries_have_both_languages():
    """Chinese stands where it is marked as such, and nowhere else."""
    chinese = re.compile("[\u4e00-\u9fff]")
    for file, words in (("symptoms", 100), ("glossary", 60)):
        data = tomllib.loads((ROOT / f"docs/{file}.toml").read_text(encoding="utf-8"))
        found = (
            [entry for section in data.values() for entry in section.values()]
            if file == "symptoms"
            else data.values()
        )
        assert sum(bool(entry.get("zh")) for entry in found) > words
        for entry in found:
            assert chinese.search(entry["zh"]) if "zh" in entry else True
            others = {key: text for key, text in entry.items() if key in ("symptom", "term", "also")}
            assert not chinese.search(re.sub('<span lang="zh">.*?</span>', "", str(others))), entry
