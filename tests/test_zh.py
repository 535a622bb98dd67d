"""Pages in Chinese: each has the data, marks, code and places of the English page's answer."""

import re
from dataclasses import fields
from types import SimpleNamespace

import pytest
from conftest import ROOT

pytest.importorskip("mkdocs")
from markdown.extensions.toc import slugify

from overlap.blocks.block import Text
from overlap.blocks.entries import Term
from overlap.blocks.inline import cited, values
from overlap.blocks.page import Page, parse
from overlap.site.chinese import Told, labels
from overlap.site.glossary import Glossary
from overlap.site.insert import reading_minutes
from overlap.site.languages import languages

DOCS = ROOT / "docs"
PAGES = sorted(path.name for path in DOCS.glob("zh/*.md"))
#: What is text in a block, and where it stands.
WORDS = {"page", "line", "caption", "question", "answer", "text", "choices"}


def answer(path: str, end: str) -> Page:
    """A page from its title to the heading of this id."""
    whole = Page.read(DOCS / path, DOCS)
    text, found, _ = whole.text.partition(f"{{ #{end} }}")
    assert found, f"docs/{path}: no heading has the id {end}"
    text = text.rpartition("\n## ")[0]
    return Page(path, text, parse(text, path))


@pytest.fixture(params=PAGES)
def both(request) -> tuple[Page, Page]:
    """The answer in English, and the same in Chinese."""
    return answer(request.param, "evidence"), answer(f"zh/{request.param}", "in-english")


def inserted(page: Page) -> list:
    """The blocks with all that is no text of them; of a guess, also when each choice is right."""
    blocks = [block for block in page.blocks if not isinstance(block, Text)]
    items = []
    for block in blocks:
        names = [field.name for field in fields(block) if field.name not in WORDS]
        rights = [choice[1:] for choice in getattr(block, "choices", ())]
        items.append((block.kind, *(getattr(block, name) for name in names), rights))
    return items


def links(page: Page) -> list[str]:
    """The places that it links to, from the folder of the English pages."""
    found = re.findall(r"\]\(([^)\s]+)\)", page.text)
    name = page.path.removeprefix("zh/")
    return sorted(link.removeprefix("../").removeprefix(name) for link in found)


def test_there_are_pages_in_chinese():
    assert PAGES


def test_blocks_values_and_marks_are_those_of_the_english_answer(both):
    english, chinese = both
    assert inserted(chinese) == inserted(english) != []
    for found in (values, cited):
        of_english = sorted(str(item) for _, item in found(english.text))
        assert sorted(str(item) for _, item in found(chinese.text)) == of_english != []


def test_anchors_links_and_code_are_those_of_the_english_answer(both):
    english, chinese = both
    anchors = [section.anchor or slugify(section.title, "-") for section in english.sections]
    assert [section.anchor for section in chinese.sections] == anchors
    assert links(chinese) == links(english) != []
    code = [sorted(re.findall(r"`[^`\n]+`", page.text)) for page in both]
    assert code[0] == code[1] != []


@pytest.mark.parametrize("path", sorted(DOCS.glob("assets/diagrams/zh/*.svg")), ids=lambda path: path.stem)
def test_a_diagram_in_chinese_has_the_shapes_and_values_of_the_english_one(path):
    drawings = [file.read_text(encoding="utf-8") for file in (path, path.parent.parent / path.name)]
    shapes = [re.sub(r"(?<=>)[^<]+", "", drawing) for drawing in drawings]
    assert shapes[0] == shapes[1]
    asked = [sorted(re.findall(r"{[^}]*}", drawing)) for drawing in drawings]
    assert asked[0] == asked[1]
    assert re.search("[\u4e00-\u9fff]", drawings[0])


def test_an_answer_takes_about_as_long_to_read_in_both_languages(both):
    minutes = [reading_minutes(ROOT, page.blocks)[0] for page in both]
    assert 0.75 <= minutes[1] / minutes[0] <= 1.25


@pytest.mark.parametrize("name", PAGES)
def test_the_way_to_the_evidence_is_there(name):
    assert f"](../{name}#evidence)" in (DOCS / "zh" / name).read_text(encoding="utf-8").rpartition("\n## ")[2]


def test_the_menu_leads_to_the_same_page_or_else_to_the_guide():
    urls = {"index.md": "./", "a.md": "a/", "b.md": "b/", "zh.md": "zh/", "zh/a.md": "zh/a/"}
    menus = {path: [(each.url, each.is_same) for each in languages(path, urls)] for path in urls}
    assert menus == {
        "index.md": [("./", False), ("zh/", False)],
        "a.md": [("a/", True), ("zh/a/", True)],
        "b.md": [("b/", False), ("zh/", False)],
        "zh.md": [("./", False), ("zh/", False)],
        "zh/a.md": [("a/", True), ("zh/a/", True)],
    }


def test_a_mark_of_the_english_claim_has_its_evidence_beside_the_page(small_book, template):
    small_book.snippet("a/it")
    small_book.commit("a/it", template, {"n": 9})
    small_book.page(
        "a", "# A\n\n```snippet a/it\n```\n\n```claim a/it\nn > 8\nname: large\nIt is large.\n```\n"
    )
    (small_book.root / "docs/zh").mkdir()
    small_book.page("zh/a", "# 甲\n\n它很大，非常大 {claim: large}。\n")
    assert small_book.check(remarks=False) == []
    assert len(small_book.pages().claims) == 1
    made = small_book.html(small_book.pages().by_path["zh/a.md"].text, "zh/a.md")
    assert re.search(r'它很大，非常大\u00a0<a class="ov-mark[^>]*>✓.*?</a>。', made)
    assert "数字来自" in made
    small_book.page("zh/a", "# 甲\n\n它很大 {claim: larger}。\n")
    (problem,) = small_book.check(remarks=False)
    assert "docs/zh/a.md:3: no claim of this page is named 'larger'; there are large" in problem


def scripts() -> str:
    """The book's own scripts but the table of words; texts that are joined over lines are whole."""
    files = sorted(path for path in DOCS.glob("assets/*.js") if path.name != "words.js")
    return re.sub(r'"\n\s*\+ "', "", "\n".join(path.read_text(encoding="utf-8") for path in files))


def test_each_text_of_a_script_is_in_the_table_of_words_with_its_values():
    table = (DOCS / "assets/words.js").read_text(encoding="utf-8").partition("const LABELS")[0]
    words = dict(re.findall(r'^ {6}"(.+)":\s+"(.+)",$', table, re.M))
    asked = set(re.findall(r'translated\("([^"]+)"', scripts()))
    asked |= set(re.findall(r'\bbutton\("([^"]*[A-Za-z][^"]*)"', scripts()))
    asked |= set(re.findall(r'\bbutton\("[^"]+", "([^"]+)"', scripts()))
    assert asked
    assert asked - words.keys() == set()
    assert [text for text in words if f'"{text}"' not in scripts()] == []
    for english, chinese in words.items():
        places = [sorted(set(re.findall(r"{\d}", text))) for text in (english, chinese)]
        assert places[0] == places[1], english
        assert re.search("[\u3001-\u9fff，；。]", chinese), english


def test_a_picture_is_told_in_chinese_by_the_table_of_labels():
    known = labels(DOCS)
    assert known["launched"] == "已启动" and labels(DOCS / "zh") == {}
    for english, chinese in (
        ("copies: 2.5 ms in 1 part", "拷贝：2.5 ms，共 1 段"),
        (
            "launched: µs for a step 3 at 1 number, 1,200 streams at 8",
            "已启动：1 个数 时 µs for a step 3，8 时 1,200 个流",
        ),
        ("from Python 1.5, in a graph 2 streams", "由 Python 启动 1.5，在图中 2（流的数量）"),
        ("CUDA graphs · long, 3 streams: 1 to 2", "CUDA 图 · long，3 个流：1–2"),
        (
            "Python, 1 stream 3.1, graph, 3 streams 0.32 ms",
            "Python，一个流 3.1，图，三个流 0.32（ms）",
        ),
        ("copies: 1; and m …", "拷贝：1；…"),
    ):
        told = Told(known).picture(f"What it shows. Measured on your 1 × H100. {english}")
        assert told == f"图中的数值，在 你的 1 × H100 上测得。{chinese}"
    assert Told(known).picture("no picture of data") == "no picture of data"


def test_what_a_pointer_shows_of_a_term_on_a_page_in_chinese_is_chinese():
    """In English its meaning; in Chinese that in Chinese, or else the name."""
    terms = {
        "widget": Term("Widget", "A *thing*.", "部件", zh_meaning="一种*东西*。"),
        "gadget": Term("Gadget", "A tool.", "小工具"),
        "gizmo": Term("Gizmo", "A toy."),
    }
    told = titles_of("zh.md", "Widget、gadget、gizmo。", terms)
    assert told == {"Widget": "一种东西。", "gadget": "小工具", "gizmo": ""}
    told = titles_of("a.md", "A widget and a gadget.", terms)
    assert told == {"widget": "A thing.", "gadget": "A tool."}


def titles_of(path: str, text: str, terms: dict[str, Term]) -> dict[str, str]:
    """What a pointer shows of the terms in a page's text."""
    view = SimpleNamespace(path=path, pages=SimpleNamespace(glossary=terms))
    view.page = "{}#{}".format
    view.put = str
    linked = Glossary(view).linked(text)
    found = re.findall(r'<a href="glossary.md#[^"]*"(?: title="([^"]*)")?[^>]*>([^<]*)', linked)
    return {term: title for title, term in found}
