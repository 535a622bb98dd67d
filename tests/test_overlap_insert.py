"""What is inserted into pages, and what is left alone; the folder for other builders."""

import ast
import html
import os
import re
import subprocess
import sys
from dataclasses import replace

import pytest
from conftest import ROOT, committed

pytest.importorskip("mkdocs")

from overlap.blocks.inline import cited, values
from overlap.blocks.page import parse
from overlap.blocks.paste import Paste
from overlap.cli import main
from overlap.site.files import Files
from overlap.site.insert import reading_minutes
from overlap.site.pictures import Pictures
from overlap.site.unbroken import unbroken
from overlap.site.view import Site

pytestmark = pytest.mark.usefixtures("on_cpu")

CLAIM = "```snippet a/it\n```\n\n```claim a/it\nn > 8\nname: large\nIt is large.\n```\n"
BRACES = "{a/it: n} {claim: large} {printed: 5 s} {verdict: dated}"
PLACES = {
    "a fence": f"```text\n{BRACES}\n```",
    "a fence of tildes": f"~~~\n{BRACES}\n~~~",
    "a longer fence": f"````text\n```snippet a/it\n```\n{BRACES}\n````",
    "a fence in a list": f"- one\n\n    ```text\n    {BRACES}\n    ```",
    "a fence in a box": f"!!! note\n\n    ```text\n    {BRACES}\n    ```",
    "a span": f"It says `{BRACES}` there.",
    "a span of two ticks": f"It says ``a ` and {BRACES}`` there.",
    "a span over a line's end": f"It says `{BRACES}\n{BRACES}` there.",
}


@pytest.fixture
def book(small_book, template):
    """A number that is 9, and its claim on the page that shows it."""
    (small_book.root / "pyproject.toml").write_text("[tool.overlap]\nhome = {cpu = 1}\n")
    small_book.snippet("a/it")
    small_book.commit("a/it", template, {"n": 9})
    small_book.page("index", "---\ntitle: The first\n---\n# One\n\nIt is {a/it: n}.\n")
    small_book.page("glossary", "# Glossary\n\n```glossary\n```\n")
    small_book.entries("glossary", widget={"term": "Widget", "zh": "部件", "meaning": "A `thing`."})
    small_book.page("a", f"# A\n\n{CLAIM}")
    return small_book


@pytest.mark.parametrize("place", PLACES)
def test_code_stays_as_it_is_written(book, place):
    made = book.html(f"# A\n\n{PLACES[place]}\n\n{CLAIM}")
    text = html.unescape(re.sub("<[^>]+>", "", made))
    assert BRACES in text and "<data" not in made and "ov-printed" not in made
    assert not cited(PLACES[place]) and not values(PLACES[place])


def test_a_tick_alone_hides_nothing_of_the_next_paragraph(book):
    made = book.html(f"# A\n\nA tick ` alone.\n\nIt is {{a/it: n}}.\n\nOne more ` tick.\n\n{CLAIM}")
    assert re.search(r"It is <data[^>]*>9</data>\.", made)


def test_what_stands_in_sentences_is_text_for_markdown(book, template):
    book.commit("a/it", template, {"n": 9, "said": "*a* _b_ `c` [d](e) | {f} <g>"})
    made = book.html("# A\n\n| x |\n|---|\n| **{a/it: said}** |\n")
    assert "*a* _b_ `c` [d](e) | {f} <g>" in html.unescape(re.sub("<[^>]+>", "", made))
    assert made.count("<td>") == 1 and "<strong><data" in made


def test_a_mark_stays_with_the_word_before_and_the_sign_behind(book):
    for before, shown in {"9": "9", "`x()`": "<code>x()</code>", "{a/it: n}×": None}.items():
        made = book.html(f"# A\n\nIt took {before} {{claim: large}}, so.\n\n{CLAIM}")
        words = re.search(r'It took (.*)\u00a0<a class="ov-mark[^<]*</a>, so', made)[1]
        assert words == shown if shown else re.fullmatch(r"<data[^>]*>9</data>×", words), made


def test_output_is_no_markdown(book, template):
    said = "a\n\n\n```text\n\tb\n~~~\n    *c*\n\n- d\n"
    outputs = [{"output_type": "stream", "name": "stdout", "rank": 0, "text": [said]}]
    book.commit("a/it", template, {"n": 9}, outputs=outputs)
    made = book.html(f"# A\n\n{CLAIM}\n\n**After.**\n")
    assert said.rstrip("\n") in html.unescape(re.sub("<[^>]+>", "", made))
    assert "<p><strong>After.</strong></p>" in made


def test_the_first_use_of_a_term_is_a_link(book):
    text = """# The widget

A [widget](index.md) in a link, `widget` in code, <b title="widget">in a tag</b>.

| widget |
|---|
| widget |

??? note "widget"

    A widget.

A widget, and a second widget.
"""
    made = book.html(text)
    link = '<a href="../glossary/#widget" title="A thing." translate="no">widget</a>'
    assert made.count("translate=") == 1 and f"A {link}, and a second widget." in made
    closed = "# A\n\n## Evidence { #evidence }\n\n## One\n\nA widget.\n\n"
    made = book.html(f"{closed}## You can now {{ #you-can-now }}\n\nWidgets.\n")
    assert made.partition("you-can-now")[2].count("translate=") == 1


def test_a_term_beside_chinese_is_a_link(book):
    link = '<a href="../glossary/#widget" title="A thing." translate="no">Widget</a>'
    made = book.html("# 甲\n\nWidgetry、my-Widget 和 Widget-x 不是；一个Widget是什么？\n")
    assert made.count("translate=") == 1 and f"一个{link}是什么" in made


def build(book, folder) -> int:
    """`overlap build` of a book, from its recordings."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OVERLAP_EXECUTE", "never")
        return main(["build", str(folder)], book.root)


@pytest.mark.parametrize("exists", [True, False])
def test_a_folder_for_other_builders_has_all(book, tmp_path, exists):
    folder = tmp_path / "deep/er/made"
    if exists:
        folder.mkdir(parents=True)
    assert build(book, folder) == 0
    page = (folder / "index.md").read_text()
    assert page.startswith("---\ntitle: The first\n---\n# One\n") and re.search(
        r"It is <data.*>9</data>\.", page
    )
    assert "{a/it" not in page and "```snippet" not in (folder / "a.md").read_text()
    assert (folder / "generated/downloads/a/it.py").exists()
    assert (folder / "recordings/cpu/a/it.json").read_bytes() == book.path("a/it").read_bytes()
    assert [path.name for path in folder.parent.iterdir()] == ["made"]


def test_a_folder_that_cannot_be_made_is_refused_and_nothing_is_lost(book, tmp_path, capsys):
    full = tmp_path / "full"
    full.mkdir()
    (full / "mine").write_text("mine")
    file = tmp_path / "file"
    file.write_text("mine")
    for folder, reason in {
        full: "is there and not empty; name a new folder",
        file: "is there and not empty; name a new folder",
        book.root / "docs/made": "is within docs/, of which it is made; name a folder elsewhere",
        book.root / "docs": "is within docs/",
        file / "made": f"nothing can be written to {file}; name another folder",
    }.items():
        assert build(book, folder) == 1
        assert f"{folder}: {reason}" in capsys.readouterr().err
    assert (full / "mine").read_text() == file.read_text() == "mine"
    assert not (book.root / "docs/made").exists() and (book.root / "docs/a.md").exists()


def test_a_checkout_that_cannot_be_written_is_told_before_any_run(book, tmp_path, capsys, monkeypatch):
    generated = book.root / "docs/generated"
    monkeypatch.setattr("overlap.site.folder.is_writable", lambda folder: folder != generated)
    monkeypatch.setattr("overlap.site.build.prepare", lambda site: pytest.fail("a run was begun"))
    assert build(book, tmp_path / "made") == 1
    assert f"nothing can be written to {generated}; make its folder writable" in capsys.readouterr().err
    assert not (tmp_path / "made").exists()


def test_a_page_that_cannot_be_made_leaves_no_folder(book, tmp_path, capsys):
    book.page("a", f"# A\n\n{CLAIM}\n\n{{claim: lost}}\n")
    assert build(book, tmp_path / "made") == 1
    assert "no claim of this page is named 'lost'" in capsys.readouterr().err
    book.page("a", f"# A\n\n{CLAIM}\n\n{{verdict: holdz}}\n")
    assert build(book, tmp_path / "made") == 1
    assert "docs/a.md: 'holdz' is no verdict" in capsys.readouterr().err
    assert not [name for name in os.listdir(tmp_path) if name.startswith((".overlap", "made"))]


def test_short_code_with_a_hyphen_is_marked_and_no_other():
    whole = '<code class="ov-whole">{}</code>'.format
    for text in ("--gpus all", "--x=&lt;a&gt;-&lt;b&gt;", "-" * 24):
        assert unbroken(f"Set <code>{text}</code>.") == f"Set {whole(text)}."
    for other in (
        f"<code>{'-' * 25}</code>",
        "<code>item</code> - <code>copy</code>",
        "<pre><code>--gpus</code></pre>",
        '<a href="--gpus">x</a>',
    ):
        assert unbroken(other) == other


def test_minutes_count_words_pictures_and_lines_to_paste(tmp_path):
    folder = tmp_path / "snippets/pastes"
    folder.mkdir(parents=True)
    (folder / "six.py").write_text('"""Six."""\n\n' + "x = 1\n" * 6)
    text = f"{'word ' * 128}{{a/it: n * 2}} end {{claim: mark}}\n\n```paste six\n```\n\n```diagram a\n```\n\n"
    blocks = parse(f"{text}## More {{ #evidence }}\n\n{'word ' * 260}\n", "a.md")
    answer, evidence = reading_minutes(tmp_path, blocks)
    assert answer == pytest.approx(1 + 6 / 30 + 0.25 + 2 / 130)  # the heading: two words
    assert evidence == pytest.approx(2)


def test_a_box_stands_below_those_that_it_needs():
    pages = committed()
    box = next(block for block in pages.on("pycuda.md") if getattr(block, "name", "") == "pycuda_double")
    assert list(box.check(pages)) == []
    [said] = replace(box, line=1).check(pages)
    assert "docs/pycuda.md:1: snippets/pastes/pycuda_double.py uses what the box check_launch defines" in said


def test_the_boxes_of_each_page_are_one_module_in_which_no_name_is_missing(tmp_path):
    pages = committed()
    made = Files(Site(pages, Pictures(pages.book)))
    chapters = [
        page
        for path, page in pages.by_path.items()
        if "/" not in path and any(type(block) is Paste for block in page.blocks)
    ]
    assert len(chapters) >= 15
    for page in chapters:
        text = made.make(f"downloads/{page.name}_boxes.py").decode()
        assert text.startswith(f"# From the book Overlap, docs/{page.path}, MIT licence")
        for box in (block for block in page.blocks if type(block) is Paste):
            assert box.code(ROOT) in text
        tree = ast.parse(text).body
        names = [node.name for node in tree if isinstance(node, ast.FunctionDef | ast.ClassDef)]
        assert len(names) == len(set(names)), f"{page.path}: one box hides another"
        (tmp_path / f"{page.name}_boxes.py").write_text(text)
    ruff = [sys.executable, "-m", "ruff", "check", "--isolated", "--select", "F821,E9", str(tmp_path)]
    done = subprocess.run(ruff, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
