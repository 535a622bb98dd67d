"""Chapters of two layers: rows of evidence, lines to paste, values in drawings."""

import html
import re
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("mkdocs")

from conftest import ROOT, SmallBook

from overlap import OverlapError
from overlap.blocks.page import parse
from overlap.site.contents import shorten
from overlap.site.layers import closed

pytestmark = pytest.mark.usefixtures("on_cpu")

CHAPTER = """# One

An answer of five words.

## Why

A reason.

## Evidence { #evidence }

## First { #first }

one

### Part

two

## Second

three

## You can now { #you-can-now }

four
"""


@pytest.fixture
def page(small_book):
    """`page(text)` is the HTML of a page of a small book."""
    return small_book.html


def write(small_book: SmallBook, name: str, code: str) -> None:
    folder = small_book.root / "snippets/pastes"
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.py").write_text(code)


def test_sections_of_evidence_are_closed_rows(page):
    before, evidence = page(CHAPTER).split('id="evidence"')
    assert "<details" not in before and "A reason." in before
    rows = re.findall(r'<details class="ov-row">\s*<summary>\s*<h2 id="(\w+)">.*?</details>', evidence, re.S)
    assert rows == ["first", "second"]
    first = evidence[evidence.index("<details") : evidence.index("</details>")]
    assert '<h3 id="part">' in first and "two" in first and "three" not in first
    assert "four" in evidence.rpartition("</details>")[2]


def test_a_heading_in_code_is_no_row_and_code_in_a_row_stays_code(page):
    fenced = "```text\n## Not one\n<details>\n```\n"
    made = page(CHAPTER.replace("one\n", f"{fenced}\n!!! note\n\n    More.\n", 1))
    assert made.count('<details class="ov-row">') == made.count("</details>") == 2
    assert "## Not one\n&lt;details&gt;" in made


def test_no_template_has_what_ends_a_paragraph_within_one():
    """Markdown in HTML ends it there: what stands in a row would come apart."""
    ends = r"<(?:output|div|form|details|figure|ul|ol|table|pre|svg|progress|canvas|h[1-6])\b"
    templates = sorted((ROOT / "overlap").glob("*/templates/*.html"))
    assert len(templates) > 20
    for path in templates:
        for paragraph in re.findall(r"<p\b(?:(?!</p>).)*", path.read_text(encoding="utf-8"), re.S):
            assert not re.search(ends, paragraph), path


def test_blocks_between_evidence_and_the_end_are_in_rows():
    parts = CHAPTER.replace("A reason.", "```snippet a/b\n```").replace("one\n", "```snippet a/c\n```\n")
    blocks: list[Any] = parse(parts.replace("four\n", "```snippet a/d\n```\n"), "one.md")
    lines = closed(blocks)
    assert [block.snippet for block in blocks if block.kind and block.line in lines] == ["a/c"]
    assert [block.snippet for block in blocks if block.kind] == ["a/b", "a/c", "a/d"]


def test_a_page_without_evidence_stays_as_it_is(page):
    assert "<details" not in page(CHAPTER.replace("Evidence { #evidence }", "More"))


def test_lines_to_paste_stand_whole_without_their_docstring(small_book, page):
    write(small_book, "wait", '"""Wait."""\n\nimport torch\n\n\ndef wait():\n    torch.cuda.synchronize()\n')
    made = page("# A\n\n```paste wait\n**Wait** for it.\n```\n")
    assert "<strong>Wait</strong> for it." in made
    code = re.sub("<[^>]+>", "", re.search(r'<div class="ov-paste">.*?</pre>', made, re.S)[0])
    assert html.unescape(code) == "import torch\n\ndef wait():\n    torch.cuda.synchronize()"


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("".join(f"a = {n}\n" for n in range(13)), "13 lines to paste; leave 12"),
        ("import numpy\n", "imports numpy, which a reader may not have"),
        ("from overlap.run import pure\n", "imports overlap, which"),
    ],
)
def test_what_a_reader_cannot_paste_is_not_in_order(small_book, code, reason):
    write(small_book, "it", code)
    small_book.page("a", "# A\n\n```paste it\n```\n")
    problems = [problem for problem in small_book.check() if "pastes/it" in problem]
    assert len(problems) == 1 and problems[0].startswith("snippets/pastes/it.py: ") and reason in problems[0]


@pytest.mark.parametrize(("code", "reason"), [("def (:\n", "cannot be read"), ("", "cannot be read")])
def test_a_file_that_is_no_python_is_named(small_book, page, code, reason):
    write(small_book, "it", code)
    with pytest.raises(OverlapError, match=rf"snippets/pastes/it\.py: {reason}"):
        page("# A\n\n```paste it\n```\n")


def test_an_unknown_name_tells_the_known_ones(small_book, page):
    write(small_book, "wait", "import torch\n")
    with pytest.raises(OverlapError, match=r"a\.md:3: no file 'wiat' in snippets/pastes/; there are wait"):
        page("# A\n\n```paste wiat\n```\n")


def test_all_files_to_paste_stand_on_a_page():
    pages = "\n".join(path.read_text() for path in ROOT.glob("docs/*.md"))
    for path in ROOT.glob("snippets/pastes/*.py"):
        assert f"```paste {path.stem}\n" in pages, path


def test_a_drawing_has_the_values_of_the_page(small_book, page, template):
    small_book.snippet("b/it")
    small_book.commit("b/it", template, {"n": 3})
    folder = small_book.root / "docs/assets/diagrams"
    folder.mkdir(parents=True)
    drawing = folder / "box.svg"
    drawing.write_text("<svg><text>{b/it: n * 2:.1f} s</text></svg>")
    text = "# A\n\n```diagram box\n```\n\n```snippet b/it\n```\n"
    small_book.page("a", text)
    assert re.search(
        r'<text><tspan class="ov-value"[^>]*data-key="\w+"[^>]*>6\.0</tspan> s</text>', page(text)
    )
    drawing.write_text("<svg><text>{b/it: m} s</text></svg>")
    assert any("diagrams/box.svg: " in problem and "m" in problem for problem in small_book.check())


def test_the_contents_keep_what_an_answer_has_below_its_headings_and_no_more_of_the_evidence():
    def titled(name, *children):
        return SimpleNamespace(id=name, children=list(children))

    def names(heading):
        return {each.id: names(each) for each in heading.children}

    take = titled("take-this", titled("take-install"), titled("take-context"))
    rows = [titled("install", titled("on-windows")), titled("you-can-now")]
    page = titled("page", titled("why"), take, titled("evidence"), *rows)
    shorten([page], "")
    within = {"take-install": {}, "take-context": {}}
    assert names(page) == {"why": {}, "take-this": within, "evidence": {"install": {}}, "you-can-now": {}}


def test_a_group_heads_its_rows_and_is_none(page):
    text = CHAPTER.replace("## First", "## Costs { #rows-costs }\n\n## First", 1)
    assert text != CHAPTER
    made = page(text).partition('id="evidence"')[2]
    rows = re.findall(r'<details class="ov-row">\s*<summary>\s*<h2 id="([\w-]+)">', made)
    assert rows == ["first", "second"] and '<h2 id="rows-costs">' in made.partition("<details")[0]
    sections = [
        SimpleNamespace(id=name, children=[]) for name in ("evidence", "rows-costs", "first", "you-can-now")
    ]
    shorten([SimpleNamespace(id="page", children=sections)], "")
    [group] = sections[0].children
    assert group.id == "rows-costs" and [row.id for row in group.children] == ["first"]
