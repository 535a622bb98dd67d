"""Pages in Chinese: each has the data, marks, code and places of the English page's answer."""

import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import fields
from types import SimpleNamespace

import pytest
from conftest import ROOT, committed

pytest.importorskip("mkdocs")
from markdown.extensions.toc import slugify

from overlap.blocks.block import Text
from overlap.blocks.entries import Term
from overlap.blocks.inline import cited, values
from overlap.blocks.language import in_chinese
from overlap.blocks.page import Page, parse
from overlap.book.statistic import Statistic
from overlap.site.chinese import FILE, Labels, Translator, labels
from overlap.site.draw import is_wait, placed
from overlap.site.files import Files
from overlap.site.glossary import Glossary
from overlap.site.insert import reading_minutes
from overlap.site.languages import languages
from overlap.site.machines import run, shown
from overlap.site.numbers import UNIT, in_words, read
from overlap.site.pictures import Pictures
from overlap.site.view import Site
from snippets.pictures import Axis, Cells, Line, Panel, Picture, Rule, Spans

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
    table = (DOCS / "assets/words.js").read_text(encoding="utf-8")
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


#: What else stays as it is: whose stream it is, an API, a kind of number, and symbols of a formula.
OTHER_NAMES = {"NCCL", "CUDA", "bf", "log"}


def in_both(pictures: Pictures) -> Iterator[tuple[str, dict, dict, list[str], list[str]]]:
    """Each picture of a page in Chinese: where it is from, the picture and its SVGs in both languages."""
    for name, part in sorted(committed().pictures_in_chinese):
        for machine, recording in pictures.book.recordings(name).items():
            picture = run(pictures, recording)["pictures"].get(part)
            if picture:
                drawings = [
                    [pictures.svg(recording, part, variant, is_chinese) for variant in ("wide", "narrow")]
                    for is_chinese in (False, True)
                ]
                yield f"{name} {part} on {machine}", picture, picture["zh"], *drawings


def english(text: str) -> list[str]:
    """Words of a text that are no names and no units."""
    known = labels(ROOT).names | OTHER_NAMES
    text = re.sub("|".join(sorted(map(re.escape, known), key=len, reverse=True)), " ", text)
    return re.findall("[A-Za-z]{2,}", re.sub(rf"(?<![A-Za-z]){UNIT}", " ", text))


def numbers_of(text: str) -> list[str]:
    return sorted(re.findall(r"\d+(?:[.,]\d+)*", text))


def test_pictures_on_pages_in_chinese_say_no_english_but_names():
    """What is drawn and what a pointer shows; the colours and numbers are those of the English one."""
    pictures = Pictures(committed().book, committed().pictures_in_chinese)
    seen = set()
    for where, picture, chinese, *drawings in in_both(pictures):
        seen.add(where.partition(" on ")[0])
        assert chinese["alt"].startswith("图中的数值，在 ") and english(chinese["alt"]) == [], where
        assert set(numbers_of(chinese["alt"])) <= set(numbers_of(picture["alt"])) or "…" in picture["alt"]
        for one, other in zip(*drawings, strict=True):
            assert english(" ".join(re.findall(">([^<]+)<", other))) == [], where
            colors = [re.findall(r"var\(--ov-(?!ink|paper|grid)[\w-]+\)", text) for text in (one, other)]
            assert colors[0] == colors[1] != [], where
            if "段" not in chinese["alt"]:  # short spans are joined otherwise
                told = [re.findall("<title>([^<]*)", text) for text in (one, other)]
                for pair in zip(*told, strict=True):
                    numbers, same = (set(numbers_of(text)) for text in pair)
                    assert same <= numbers and same, where
    assert len(seen) == len(committed().pictures_in_chinese) > 5


def test_timelines_on_pages_in_chinese_say_no_english_but_names():
    """Title, lanes and axis; the events are those of the English one."""
    pictures = Pictures(committed().book, committed().pictures_in_chinese)
    found = 0
    for name in sorted(name for name, part in committed().pictures_in_chinese if not part):
        for recording in pictures.book.recordings(name).values():
            both = [pictures.timelines(recording), pictures.timelines_in_chinese(recording)]
            for one, other in zip(*(each.get("", []) for each in both), strict=True):
                found += 1
                drawn = [re.sub("<[^>]*>", " ", form["svg"]) for form in other["forms"].values()]
                lanes = [lane["name"] for lane in other["lanes"]]
                assert english(" ".join([other["title"], *lanes, *drawn])) == [], name
                parts = [[(lane["cpu"], lane["parts"]) for lane in each["lanes"]] for each in (one, other)]
                assert parts[0] == parts[1] != [], name
    assert found >= 6


def test_a_timeline_has_its_title_its_lanes_and_its_axis_in_chinese(small_book, template):
    """In its file. On the book's own pages in Chinese every lane has a name that stays."""
    code = "from snippets.pictures import timelines\n\n\ndef plot(results, ceilings):\n"
    code += "    return timelines({'two streams': results['events']}, 'µs (profiled)')\n"
    small_book.snippet("a/one", code + "\n\ndef main():\n    return {}\n")
    small_book.commit("a/one", template, {"events": [["CPU", 0, 10, "launch"], ["copies", 5, 10, "copy"]]})
    (small_book.root / "docs/zh").mkdir()
    small_book.page("a", "# A\n\n```snippet a/one\n```\n")
    small_book.page("zh/a", "# 甲\n\n```figure a/one\n两个流。\n```\n")
    words = {"two streams": "两个流", "copies": "拷贝", "µs (profiled)": "µs（开着性能分析器）"}
    rows = [f'"{label}" = "{chinese}"\n' for label, chinese in words.items()]
    (small_book.root / FILE).write_text(f'names = ["CPU"]\n\n[labels]\n{"".join(rows)}')
    pages = small_book.pages("never")
    pictures = Pictures(pages.book, pages.pictures_in_chinese)
    files = Files(Site(pages, pictures))
    for end, declared in {"": [*words], ".zh": [*words.values()]}.items():
        title, lane, axis = declared
        (timeline,) = json.loads(files.make(f"timelines/cpu/a/one{end}.json"))[""]
        assert timeline["title"] == title
        assert [each["name"] for each in timeline["lanes"]] == ["CPU", lane]
        names = [list(part["spans"]) for each in timeline["lanes"] for part in each["parts"]]
        assert names == [["launch"], ["copy"]], "as recorded"
        for form in timeline["forms"].values():
            drawn = re.findall(">([^<]+)<", form["svg"])
            assert lane in drawn and axis in drawn and title not in drawn


def test_the_table_of_labels_has_no_line_too_many():
    """Each label stands in a picture of a page in Chinese, and has the places of its numbers."""
    table = labels(ROOT)
    asked = Counter()

    class Asking(dict):
        def get(self, label, default=None):
            asked[label] += 1
            return super().get(label, default)

    translator = Translator(Labels(table.names, Asking(table.by_english)))
    pictures = Pictures(committed().book)
    for name, part in committed().pictures_in_chinese:
        for recording in pictures.book.recordings(name).values():
            whole, parts = pictures.declared(recording)
            if not part or part in parts:
                translator.picture(parts[part] if part else whole)
    assert translator.missing == {}
    assert [label for label in [*table.by_english, *table.names] if not asked[label]] == []
    for label, chinese in table.by_english.items():
        assert label.count("{}") == chinese.count("{}"), label
        assert re.search("[\u4e00-\u9fff]", chinese), label


def test_a_label_without_chinese_is_named_with_the_file_that_lacks_it(small_book, template):
    code = "from snippets.pictures import bars\n\n\ndef plot(results, ceilings):\n"
    code += "    return bars({'3 streams': results['n'], 'CPU': 2.5, '4 MiB': 3}, {}, 'time of a run, ms')\n"
    small_book.snippet("a/one", code + "\n\ndef main():\n    return {}\n")
    small_book.commit("a/one", template, {"n": 9})
    (small_book.root / "docs/zh").mkdir()
    small_book.page("a", "# A\n\n```snippet a/one\n```\n")
    table = small_book.root / FILE
    table.write_text('names = ["CPU"]\n\n[labels]\n"{} streams" = "{} 个流"\n')

    def problems() -> list[str]:
        pages = small_book.pages("never")
        return Pictures(pages.book, pages.pictures_in_chinese).problems()

    assert problems() == []
    small_book.page("zh/a", "# 甲\n\n```figure a/one\n三个流。\n```\n")
    (problem,) = problems()
    assert problem == (
        "snippets/a/one.py: plot() has the label 'time of a run, ms', and a page in Chinese shows it; "
        "add its Chinese to snippets/labels.zh.toml"
    )
    table.write_text(table.read_text() + '"time of a run, ms" = "一次运行的时间，ms"\n')
    assert problems() == []
    pages = small_book.pages("never")
    pictures = Pictures(pages.book, pages.pictures_in_chinese)
    recording = pages.book.recordings("a/one")["cpu"]
    told = re.findall("<title>([^<]*)", pictures.svg(recording, "", "wide", in_chinese=True))
    assert told == [
        "3 个流 · 一次运行的时间：9 ms",
        "CPU · 一次运行的时间：2.5 ms",
        "4 MiB · 一次运行的时间：3 ms",
    ]
    assert "3 streams" in pictures.svg(recording, "", "wide")
    own = run(pictures, recording, "your ")["pictures"][""]
    assert "3 个流" in own["zh"]["wide"] and "3 streams" in own["wide"]
    assert "在 你的 CPU" in own["zh"]["alt"]
    page = small_book.html(pages.by_path["zh/a.md"].text, "zh/a.md")
    assert "3 个流 9，CPU 2.5，4 MiB 3（一次运行的时间，ms）" in page and "Measured on" not in page
    assert "Measured on" in small_book.html(pages.by_path["a.md"].text)


def test_a_machine_that_lacks_a_picture_is_named_in_the_language_of_the_page(small_book, template):
    """The note of the page, and what its script makes notes of for another machine."""
    for name, gpus in {"a/one": 1, "a/two": 2}.items():
        code = "from snippets.pictures import bars\n\n\ndef plot(results, ceilings):\n"
        code += "    return bars({'CPU': results['n']}, {}, 'ms')\n\n\ndef main():\n    return {}\n"
        small_book.snippet(name, code, f"gpus = [{gpus}]")
        small_book.commit(name, template, {"n": 9}, gpus)
    text = "".join(f"\n```figure {name}\nn\n```\n" for name in ("a/one", "a/two"))
    (small_book.root / "docs/zh").mkdir()
    told = {}
    for path in ("a.md", "zh/a.md"):
        small_book.page(path.removesuffix(".md"), f"# A\n{text}")
        html = small_book.html(f"# A\n{text}", path)
        notes = re.findall('<p class="ov-elsewhere".*?</p>', html)
        told[path] = [*(re.sub("<.*?>", "", note) for note in notes), *re.findall('data-ran="(.*?)"', html)]
    assert told["a.md"] == [
        "Did not run on 1 × H200; shown: 2 × H200.",
        "Did not run on ; shown: .",
        "None on ",
    ]
    chinese = ["没有运行：1 × H200；这里显示 2 × H200。", "没有运行：；这里显示 。", "没有这张图："]
    assert told["zh/a.md"] == chinese


@pytest.mark.parametrize("machine", ["1 × H100", "2 × H200", "4 × RTX 4090"])
def test_a_label_with_any_machine_has_one_line(machine):
    """A rebuilder's GPUs need no line of their own."""
    translator = Translator(Labels(frozenset(), {"on {machine}: {} ms": "{machine}：{} ms"}))
    assert translator.label(f"on {machine}: 2.5 ms") == f"{machine}：2.5 ms" and translator.missing == {}


def test_each_kind_of_mark_is_told_in_chinese():
    picture = Picture(
        [
            Panel([Line([1, 8], [3.0, 0.5], "measured"), Rule("y", 2.0, "limit")], Axis("n"), Axis("speed")),
            Panel([Spans("GPU", [(0, 200), (500, 1), (502, 1)], "GPU", names=["raw name"] * 3)], Axis("ms")),
            Panel([Cells(["1", "2"], ["row"], [[1.0, 2.5]], "speed")], Axis("n")),
            Panel([Spans("GPU", [(0, 2)], "GPU waits")], Axis("ms")),
        ]
    )
    chinese = {"measured": "实测", "limit": "上限", "speed": "速度", "row": "行", "GPU waits": "GPU 等待"}
    translator = Translator(Labels(frozenset({"GPU", "n"}), chinese))
    translated = translator.picture(picture)
    assert translator.missing == {}
    drawing = placed(translated, 504)
    told = re.findall("<title>([^<]*)", drawing.svg)
    assert told == [
        "上限 · 速度：2",
        "实测 · n：1 · 速度：3",
        "实测 · n：8 · 速度：0.5",
        "GPU · 0–200 ms · 持续 200 ms",
        "GPU · 500–503 ms · 2 个合计 2 ms",
        "行，1（n） · 速度：1",
        "行，2（n） · 速度：2.5",
        "GPU 等待 · 0–2 ms · 持续 2 ms",
    ]
    assert in_words(read(translated)) == (
        "实测：n：1 时 速度：3，n：8 时 速度：0.5；上限：2；GPU：202 ms，共 3 段；1–2.5；"
        "GPU 等待：2 ms，共 1 段"
    )
    assert translated.panels[1].marks[0].names == ["raw name"] * 3 and picture.panels[0].y.label == "speed"
    (wait,) = translated.panels[3].marks
    assert is_wait(wait) and not is_wait(translated.panels[1].marks[0])


def test_where_a_value_is_from_is_told_in_both_languages(small_book, template):
    small_book.snippet("a/one")
    small_book.commit("a/one", template, {"n": 9})
    (small_book.root / "docs/zh").mkdir()
    small_book.page("a", "# A\n\n```snippet a/one\n```\n\n{a/one: n + 1} and {a/one: n + 2}\n")
    small_book.page("zh/a", "# 甲\n\n{a/one: n + 1}\n")
    pages = small_book.pages("never")
    machine = shown(pages, Pictures(pages.book), "cpu")
    ((key, note),) = machine["zh"].items()
    assert machine["values"][key][2].startswith("a/one on CPU") and note.startswith("a/one，在 CPU")
    assert note.endswith("上测得") and len(machine["values"]) == 2
    values = Statistic((60, 70, 106), 2, disturbed=1)
    assert values.note == "60 to 106, 3 runs on 2 hosts, 1 of them disturbed"
    assert values.told(in_chinese) == "60–106，2 台主机上 3 次运行，其中 1 次受到干扰"
    assert Statistic((7, 7), 1).told(in_chinese) == "同一台主机上 2 次运行"


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
