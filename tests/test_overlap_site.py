"""The built site of a small book, with the real mkdocs.yml: what is on the pages, and what stops a build."""

import html
import itertools
import json
import logging
import os
import re
import shutil
import socket
import subprocess
import sys
import zipfile
from pathlib import Path
from types import SimpleNamespace

import pytest

for name in ("mkdocs", "material", "mkdocs_jupyter"):
    pytest.importorskip(name)
nbformat = pytest.importorskip("nbformat")

from conftest import ROOT, SmallBook  # noqa: E402
from mkdocs.commands.build import build as mkdocs_build  # noqa: E402
from mkdocs.config import load_config  # noqa: E402
from mkdocs.exceptions import Abort  # noqa: E402

from overlap import OverlapError  # noqa: E402
from overlap.blocks.index import Questions, Weakened, in_reading_order  # noqa: E402
from overlap.blocks.snippet import opening  # noqa: E402
from overlap.cli import main  # noqa: E402
from overlap.run import recording  # noqa: E402
from overlap.site import background, plugin  # noqa: E402
from overlap.site.background import Background, refuse_taken_port  # noqa: E402
from overlap.site.build import prepare  # noqa: E402
from overlap.site.insert import insert  # noqa: E402
from overlap.site.navigation import read_nav, titles  # noqa: E402
from overlap.site.pictures import Pictures  # noqa: E402
from overlap.site.view import Site, View  # noqa: E402

pytestmark = [
    pytest.mark.usefixtures("on_cpu"),
    pytest.mark.filterwarnings("default"),  # MkDocs and its plugins warn of their own future
]

CONFIG = f"""INHERIT: {ROOT}/mkdocs.yml
site_name: Small
extra_css: []
extra_javascript: []
nav: [index.md, a.md, claims.md, glossary.md]
"""
HOSTILE = r"""
import os


def main():
    print("<script>alert(1)</script> & <b>bold</b>")
    print("\x1b[31mred\x1b[0m \x1b]0;title\x07\x1b[2Jcleared")
    print("loading 10 %\rloading 99 %")
    os.write(1, b"broken \xff\xfe utf\n")
    for _ in range(200):
        os.write(1, b"x" * 9_999 + b"\n")
    print("{a/number: n} *not emphasis* ```", "end")
    return {"said": "<script>alert(2)</script>"}
"""
NUMBER = """
def times(n: int) -> int:
    return 2 * n


def plot(results, ceilings):
    from snippets.pictures import sweep

    return sweep([0, 1], {"n < 9": [0, results["n"]]}, {}, xlabel="time & tide")


def main():
    open(COUNTER, "a").write("x")
    print("three")
    return {"n": 3, "events": [["stream 1", 0, 2.5, "copy"], ["CPU", 1, 1, "launch"]]}
"""
INDEX = """# Small

The number is {a/number: n:.1f}, on two GPUs {a/number@h200-x2: n}, and `{its/number: n}` is code. \
It said {a/hostile: said}.
A source printed {printed: 5 <ms>}: {verdict: holds with limits} once. A widget waits for the other widget.

```diagram lanes
```

```snippets
```
"""
PAGE = """# A

```snippet a/number
show: times
caption: Up to {a/number: n}, and **never** less {claim: not-less}.
```

```claim a/number
n >= 3
limit: n of ceiling.sms for gpus
Three, *at least*.
```

```claim a/number
n >= 2
name: not-less
Two, at least.
```

```snippet a/hostile
code: no
```

```figure a/number
The same again.
```
""".replace(" for gpus\nThree", "\nThree").replace("n >= 3\n", "n >= 3 for gpus >= 1\n")


def build(
    book: SmallBook, execute: str, extra: str = "", folder: str = "site", notebook_page: str = ""
) -> Path:
    """Build with MkDocs, strictly; return the folder of the site."""
    (book.root / "mkdocs.yml").write_text(CONFIG + extra)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OVERLAP_EXECUTE", execute)
        patch.chdir(book.root)
        config = load_config(str(book.root / "mkdocs.yml"), strict=True, site_dir=str(book.root / folder))
        config.plugins["overlap"].config["notebook_page"] = notebook_page
        try:
            mkdocs_build(config)
        finally:
            config.plugins.on_shutdown()
    return book.root / folder


def machines(site: Path) -> list[dict]:
    """What the script of the machine picker is given."""
    first, *_ = (site / "generated/machines.js").read_text().splitlines()
    return json.loads(first.partition(" = ")[2])


def contents(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()
    }


def write_book(root: Path, template: dict) -> SmallBook:
    book = SmallBook(root)
    book.snippet("a/hostile", HOSTILE)
    book.snippet(
        "a/number", f"COUNTER = {str(root / 'ran')!r}\n" + NUMBER, 'gpus = [0, 1, 2]\ntake = ["times"]'
    )
    for name, text in {"index": INDEX, "a": PAGE, "claims": "# Claims\n\n```claims\n```\n"}.items():
        book.page(name, text)
    book.page("glossary", "# Glossary\n\n```glossary\n```\n")
    meaning = "A *thing*, of [some](a.md) kind."
    book.entries("glossary", widget={"term": "widget", "zh": "小部件", "meaning": meaning, "also": "More."})
    (root / "docs/assets/diagrams").mkdir(parents=True)
    (root / "docs/assets/diagrams/lanes.svg").write_text("<svg>lanes</svg>")
    outputs = [
        {"output_type": "stream", "name": "stdout", "text": [f"I am {rank}\n"], "rank": rank}
        for rank in (0, 1)
    ]
    book.commit("a/hostile", template, {"said": "<script>alert(2)</script>"})
    book.commit("a/number", template, {"n": 3})
    book.commit("a/number", template, {"n": 4}, gpus=1)
    book.commit("a/number", template, {"n": 5}, gpus=2, outputs=outputs)
    return book


@pytest.fixture(scope="module")
def built(on_cpu, template, tmp_path_factory):
    """The small book, built live."""
    book = write_book(tmp_path_factory.mktemp("site"), template)
    book.site = build(book, "auto")
    return book


def test_indexes_have_the_pages_as_the_navigation_has_them(small_book):
    small_book.snippet("a/number")
    for name in ("index", "z", "a", "other"):
        small_book.page(name, f"# {name}\n")
    (small_book.root / "mkdocs.yml").write_text(
        "site_url: !ENV URL\nextra: {quiet: !!python/name:no.such.NAME }\n"
        "nav:\n  - Start: [First: index.md, z.md]\n  - The end: a.md\n  - gone.md\n"
    )
    nav = read_nav(small_book.root)
    assert nav == [{"Start": [{"First": "index.md"}, "z.md"]}, {"The end": "a.md"}, "gone.md"]
    pages = small_book.pages("never")
    order = in_reading_order(View(Site(pages, None, titles=titles(nav))))
    found = [(title, blocks[0].page.removesuffix(".md")) for title, blocks in order.items()]
    assert found == [("First", "index"), ("z", "z"), ("The end", "a"), ("other", "other")]
    (small_book.root / "mkdocs.yml").unlink()
    order = in_reading_order(View(Site(pages, None, titles=titles(read_nav(small_book.root)))))
    assert list(order) == ["a", "index", "other", "z"]


def test_open_questions_and_weakened_claims_of_all_pages_are_listed(small_book):
    small_book.snippet("a/number")
    claim = "n > 1\nname: more\nweakened: It said *two*.\nMore than one.\n\nn > 0\nMore than none."
    question = "- *Why?* See [b](#b), [z](z.md#c)."
    small_book.page(
        "a",
        f"# A\n\n```claim a/number\n{claim}\n```\n\n## Open {{ #open-questions }}\n\n{question}\n\n## End\n",
    )
    small_book.page("z", "# Z\n\n## Open { #open-questions }\n\nNothing of its own.\n")
    view = View(Site(small_book.pages("never"), None, titles={"a.md": "First"}), "z.md")
    text = Questions("z.md", 1).markdown(view)
    assert text.split("\n\n")[1:-1] == [
        "**[First](a.md#open-questions)**",
        "- *Why?* See [b](a.md#b), [z](z.md#c).",
    ]
    html = Weakened("z.md", 1).html(view)
    assert html.count("<li>") == 1 and "<b>First</b>" in html and "<b>z</b>" not in html
    assert '<a href="../a/#claim-more">More than one.</a> <em>It said <em>two</em>.</em>' in html


@pytest.fixture
def page(built) -> str:
    return (built.site / "a/index.html").read_text()


@pytest.fixture
def folds(built) -> str:
    """What the marks and folds of the page open."""
    return folds_of(built.site)


def folds_of(site: Path) -> str:
    return (site / "generated/folds/a.html").read_text()


def test_a_second_build_executes_nothing(built):
    assert (built.root / "ran").read_text() == "x"
    before = contents(built.site)
    assert contents(build(built, "auto", folder="site2")) == before
    assert (built.root / "ran").read_text() == "x"


def test_what_is_printed_is_shown_as_text(page):
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt; &amp; &lt;b&gt;bold&lt;/b&gt;" in page
    assert "\nred cleared" in page
    assert "\x1b" not in page and "\x07" not in page
    assert "\nloading 99 %\n" in page and "loading 10 %" not in page
    assert "broken \ufffd\ufffd utf" in page
    assert "characters of output left out" in page and len(page) < 250_000
    assert "{a/number: n} *not emphasis* &#96;&#96;&#96; end" in page


def test_a_page_has_one_machine_and_a_file_has_each(built):
    index = (built.site / "index.html").read_text()
    spans = r'<data value=(?:[^>]* data-on="([^"]+)")?[^>]*>([^<]*)</data>'
    assert re.findall(spans, index) == [
        ("", "4.0"),
        ("2 × H200", "5"),
        ("CPU", "&lt;script&gt;alert(2)&lt;/script&gt;"),
    ]
    (key,) = re.findall(r'<data value="(\w+)"[^>]*>4.0<', index)
    files = sorted((built.site / "generated/machines").iterdir())
    assert [file.name for file in files] == ["cpu.json", "h200-x2.json", "h200.json"]
    shown = {file.stem: json.loads(file.read_text()) for file in files}
    texts = {machine: data["values"][key][0] for machine, data in shown.items()}
    assert texts == {"cpu": "3.0", "h200": "4.0", "h200-x2": "5.0"}
    run = shown["h200"]["snippets"]["a/number"]
    assert run["raw"] == "recordings/h200/a/number.json" and (built.site / run["raw"]).is_file()
    local = shown["cpu"]["snippets"]["a/number"]
    assert (built.site / local["raw"]).is_file() and (built.site / local["trace"]).is_file()
    assert local["provenance"].count("run by this build") == 1
    assert shown["h200"]["snippets"]["a/hostile"] == "cpu", "what ran on the CPU alone counts everywhere"
    assert (
        shown["h200"]["snippets"]["a/number"]["outputs"]
        != shown["h200-x2"]["snippets"]["a/number"]["outputs"]
    )
    assert "<code>{its/number: n}</code>" in index


def test_what_else_is_inserted(built):
    index = (built.site / "index.html").read_text()
    assert re.search('<span class="ov-printed"[^>]*>5 &lt;ms&gt;</span>', index)
    assert '<span class="ov-chip ov-limits">holds with limits</span> once.' in index
    assert (
        index.count('<a href="glossary/#widget" title="A thing, of some kind." translate="no">widget</a>')
        == 1
    )
    assert "<svg>lanes</svg>" in index
    assert 'href="a/#snippet-a-number"' in index and "A test." in re.sub(r"<[^>]+>", "", index)


def test_a_link_to_a_snippet_leads_above_its_code(page):
    assert page.count('id="snippet-a-number"') == 1
    place, file = page.index('id="snippet-a-number"'), page.index("ov-file")
    assert place < file < page.index('<span class="filename">snippets/a/number.py')


def test_below_the_title_stands_what_a_page_holds(page):
    text = " ".join(re.sub(r"<[^>]+>", " ", page).split())
    line = r"A (¶|&para;) 1 minute · measured on 1 × H200 · Notebook"
    assert re.search(line, text)
    assert page.index("<h1") < page.index('class="ov-head"') < page.index('class="ov-snippet')


def test_a_claim_is_a_mark_that_opens_its_evidence(page, folds):
    mark = r'<a class="ov-mark ov-holds[^"]*" id="([^"]+)" href="../generated/folds/a.html#([^"]+)"'
    marks = re.findall(mark, page)
    assert [name for name, _ in marks if "-not-" in name] == ["claim-not-less"] and len(marks) == 2
    for name, evidence in marks:
        assert (
            re.fullmatch(r"[a-z2-7]{8}", evidence)
            and folds.count(f'id="{evidence}"') == page.count(f'id="{name}"') == 1
        )
    assert "Three, <em>at least</em>.\u00a0<a " in page  # no mark in the prose: the sentence itself
    assert "Two, at least." not in page and folds.count("Two, at least.") == 1, "the prose has its mark"
    evidence = folds[folds.index(f'id="{dict(marks)["claim-not-less"]}"') :].partition("</div>")[0]
    told = [
        evidence.index(part) for part in ("<b>Checked:</b>", "<svg", "<li", "<details", "<code>n &gt;= 2")
    ]
    assert told == sorted(told) and "<details open" not in evidence
    assert re.search(
        r'<p class="ov-caption".*?never</strong> less\u00a0<a [^>]*id="claim-not-less"',
        page,
        re.S,
    )


def test_figures_are_numbered_and_say_where_they_come_from(page):
    captions = re.findall(
        r'<p class="ov-caption" id="([^"]+)"><strong>(Figure \d\.)</strong>(.*?)¶</a>', page, re.S
    )
    assert [(anchor, number) for anchor, number, _ in captions] == [
        ("figure-a-number", "Figure 1."),
        ("figure-2", "Figure 2."),
    ]
    assert "ov-how" not in captions[0][2] and 'href="#snippet-a-number">How it was measured' in captions[1][2]
    for variant in ("wide", "narrow"):
        assert page.count(f"h200/a/number-{variant}.svg") == 2


LINES = [f"line_{i} = {i}" for i in range(40)]
BODY = [f"    a = {i}" for i in range(9)]
OPENED = {
    "no function": (LINES, 40),
    "two functions": (["def f():", *BODY, "", "", "def g():", *BODY], 10),
    "one long function": (["def f():", *BODY, *BODY, *BODY], 28),
    "a long one first": (["def f():", *BODY, *BODY, *BODY, "", "", "def g():", *BODY], 28),
}


@pytest.mark.parametrize("name", OPENED)
def test_a_page_shows_whole_functions_before_it_folds(name):
    lines, shown = OPENED[name]
    first, rest = opening("\n".join(lines))
    assert first.split("\n") == lines[:shown] and rest.split() == "\n".join(lines[shown:]).split()


def test_a_page_shows_code_output_and_claims_of_its_machine(page, folds):
    text = re.sub(r"<[^>]+>", "", page + folds)
    assert "def times(n: int)" in text and "def main" not in text
    assert "n = 4 ≥ 3 · 3% of 132 (ceiling SMs)" in text and "n = 5 ≥ 3" not in text
    assert "holds on 2 of 2 machines" in text, "the others are counted"
    assert "<svg" in page and "n &lt; 9" in page and "time &amp; tide" in page
    assert page.count('data-machine="h200" data-machines="cpu h200 h200-x2"') == 2
    assert page.count('data-machine="cpu" data-machines="cpu"') == 1
    article, _, copied = page.partition("<template")
    assert "Did not run on" in copied and "Did not run on" not in article


def test_what_a_reader_can_take_home(built):
    home = built.site / "generated"
    assert (home / "downloads/a/number.py").exists() and (
        built.site / "recordings/h200/a/number.json"
    ).exists()
    page = (built.site / "a/index.html").read_text()
    link = '<a href="../generated/downloads/a/number/times.py" download><code>times</code> with what it needs'
    assert link in page
    piece = (home / "downloads/a/number/times.py").read_text()
    assert piece.startswith("# From the book Overlap, snippets/a/number.py, MIT licence")
    assert piece.endswith("\n\n\ndef times(n: int) -> int:\n    return 2 * n\n") and piece.count("def ") == 1
    assert recording.read(home / "local/cpu/a/number.json")["result"]["n"] == 3
    trace = json.loads((home / "traces/cpu/a/number.json").read_text())["traceEvents"]
    assert {"ph": "X", "pid": 0, "tid": 1, "ts": 0, "dur": 2.5, "name": "copy"} in trace
    with zipfile.ZipFile(home / "downloads/overlap.zip") as everything:
        programs = ["overlap/programs/a/hostile.py", "overlap/programs/a/number.py"]
        function = "overlap/functions/a/number/times.py"
        assert everything.namelist() == ["overlap/README.md", function, *programs]
        readme = everything.read("overlap/README.md").decode()
        assert "has 2 programs" in readme and "has 1 function " in readme
        assert "\n- `functions/a/number/times.py`\n" in readme
        assert everything.read(function).decode() == piece
    notebook = nbformat.read(home / "downloads/a.ipynb", as_version=4)
    nbformat.validate(notebook)
    printed = [output.get("text", "") for cell in notebook.cells for output in cell.get("outputs", ())]
    assert any("three" in text for text in printed)
    claims = (built.site / "claims/index.html").read_text()
    assert re.search(r'href="\.\./a/#claim-a-number-[0-9a-f]{6}">Three, <em>at least</em>', claims)
    machines = re.findall(r'<th scope="col" data-machine="([^"]+)"', claims)
    keys, figures = [], []
    for key, row in re.findall(r'<tr data-key="(\w+)"(.*?)(?=<tr|</table>)', claims, re.S):
        keys.append(key)
        _, *cells = row.split("<td>")
        for machine, cell in zip(machines, cells, strict=True):
            shown = json.loads((home / f"machines/{machine}.json").read_text())["claims"]
            assert ("ov-holds" in cell) == (key in shown)
            if key in shown:
                figures.append((keys.index(key), machine, shown[key][1]))
    assert figures == [
        (0, "h200", "n = 4 ≥ 3 · 3% of 132 (ceiling SMs)"),
        (0, "h200-x2", "n = 5 ≥ 3 · 4% of 132 (ceiling SMs)"),
        (1, "cpu", "n = 3 ≥ 2"),
        (1, "h200", "n = 4 ≥ 2"),
        (1, "h200-x2", "n = 5 ≥ 2"),
    ]


def test_one_notebook_is_a_page(built, page):
    site = build(built, "auto", folder="notebook", notebook_page="a")
    notebook = (site / "generated/notebooks/a/index.html").read_text()
    assert "three" in notebook and "def times" in notebook
    read_it = '<a href="../generated/notebooks/a/">read it</a>'
    assert read_it in (site / "a/index.html").read_text() and read_it not in page
    index = json.loads((site / "search/search_index.json").read_text())
    assert not [entry for entry in index["docs"] if "notebooks" in entry["location"]]


def test_without_running_the_bytes_are_the_same(built):
    """Also in another process."""
    first = contents(build(built, "never", folder="never1"))
    shutil.rmtree(built.root / "docs/generated")
    environment = os.environ | {"OVERLAP_EXECUTE": "never", "PYTHONHASHSEED": "1"}
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", "never2"]
    subprocess.run(command, cwd=built.root, env=environment, check=True, timeout=300)
    second = contents(built.root / "never2")
    assert first.keys() == second.keys()
    assert [path for path in first if first[path] != second[path]] == []
    assert not any("local/" in path for path in first)
    assert b"run by this build" not in first["a/index.html"]


def test_a_page_of_its_own_text_is_what_it_says_by_its_path(built):
    article = built.html(INDEX + PAGE, execute="auto")
    assert '<data value="@h200-x2"' in article and "&lt;script&gt;alert(1)" in article
    assert "<script>" not in article
    twice = built.html("```snippet a/number\n```\n\n" * 2, execute="auto")
    assert twice.count("ov-file") == 2, "links lead to the first place"
    assert twice.count('id="snippet-a-number"') == 1


def test_a_thin_claim_stops_an_author_and_no_build(small_book, template):
    small_book.snippet("a/number")
    runs = []
    for second, n in enumerate((9.0, 10.0, 11.0)):
        run = template["run"] | {"started": f"2026-01-31T12:00:0{second}+00:00"}
        path = small_book.commit("a/number", template, {"n": n}, run=run)
        runs.append(json.loads(path.read_text()))
    together = recording.merged(recording.merged(runs[0], runs[1]), runs[2])
    recording.write(path, recording.dump(together))
    for name in ("index", "glossary", "claims"):
        small_book.page(name, "# Page\n")
    small_book.page(
        "a", "# A\n\n```snippet a/number\n```\n\n```claim a/number\nn > 8\nMore than eight.\n```\n"
    )
    (problem,) = small_book.check()
    assert "claim holds by less than 3 times the spread of `n > 8`" in problem
    html = (build(small_book, "never") / "a/index.html").read_text()
    assert "More than eight." in html
    assert html.count("Printed by one of <span>3</span> runs.") == 1


def edit(path: str, old: str, new: str):
    def change(book: SmallBook) -> None:
        text = (book.root / path).read_text()
        assert old in text
        (book.root / path).write_text(text.replace(old, new))

    return change


NUMBER_JSON = "docs/recordings/h200/a/number.json"
STOPPED = {
    "false claim": (
        edit(NUMBER_JSON, '"n": 4', '"n": 2'),
        [
            "docs/a.md:8: claim is false: Three, *at least*. `n >= 3`: n = 2, not ≥ 3",
            f"in {NUMBER_JSON}",
            f"{NUMBER_JSON}: edited by hand",
        ],
    ),
    "not JSON": (
        edit(NUMBER_JSON, "{", "("),
        ["recordings/h200/a/number.json: not JSON"],
    ),
    "code changed": (edit("snippets/a/number.py", "2 * n", "3 * n"), ["code changed: snippets/a/number.py"]),
}


@pytest.mark.parametrize("name", STOPPED)
def test_what_is_wrong_stops_the_build(template, tmp_path, name):
    change, expected = STOPPED[name]
    book = write_book(tmp_path, template)
    change(book)
    with pytest.raises(Abort) as caught:
        build(book, "never")
    for part in expected:
        assert part in str(caught.value)


def test_a_failing_run_stops_the_build(template, tmp_path):
    book = write_book(tmp_path, template)
    book.snippet("a/hostile", "def main():\n    raise ValueError('boom')\n")
    book.commit("a/hostile", template, {"said": ""})
    with pytest.raises(Abort, match=r"(?s)snippets/a/hostile.py failed with exit code 1.*boom"):
        build(book, "auto")


def test_a_claim_false_on_what_this_build_ran_is_listed(template, tmp_path, caplog):
    """An honest difference of another machine is shown and listed, and stops no build."""
    book = write_book(tmp_path, template)
    book.snippet("a/number", 'def times():\n    pass\n\n\ndef main():\n    return {"n": 2}\n')
    without_pictures = re.sub(r"(?s)caption: .*?\n|```figure.*", "", PAGE)
    book.page("a", without_pictures.replace(" for gpus >= 1\nlimit: n of ceiling.sms", ""))
    for path in book.root.glob("docs/recordings/h200*/a/number.json"):
        path.unlink()
    book.page("index", "# Small\n")
    book.commit("a/number", template, {"n": 3})
    with caplog.at_level(logging.INFO, "mkdocs.plugins.overlap"):
        folds = folds_of(build(book, "auto"))
    assert 'class="ov-false" data-machine="cpu"' in folds
    expected = "docs/a.md:7: claim is false here: Three, *at least*. `n >= 3`: n = 2, not ≥ 3, "
    assert f"{expected}in .cache/overlap/runs/a-number-0-" in caplog.text
    assert ".json; this machine may differ; `overlap run a/number` runs it again" in caplog.text


def test_what_is_false_with_another_torch_names_both(template, tmp_path, caplog):
    book = write_book(tmp_path, template)
    book.snippet("a/number", 'def times():\n    pass\n\n\ndef main():\n    return {"n": 2}\n')
    claims = "```claim a/number\nn >= 3\nThree.\n```\n```claim a/number\nn >= 2\nTwo.\n```\n"
    book.page("a", f"```snippet a/number\n```\n```snippet a/hostile\n```\n{claims}")
    for path in book.root.glob("docs/recordings/h200*/a/number.json"):
        path.unlink()
    book.page("index", "# Small\n")
    book.commit("a/number", template, {"n": 3}, software=template["software"] | {"torch": "2.9.1+cpu"})
    with caplog.at_level(logging.INFO, "mkdocs.plugins.overlap"):
        folds = folds_of(build(book, "auto"))
    both = f"torch {template['software']['torch']} here, 2.9.1+cpu recorded"
    assert f".json; {both}; `overlap run a/number` runs it again" in caplog.text
    assert "may differ" not in caplog.text
    assert html.unescape(folds).count(both) == 1


@pytest.mark.usefixtures("noisy")
def test_a_busy_machine_is_named_beside_what_is_false_on_it_and_once(template, tmp_path, monkeypatch, caplog):
    monkeypatch.setattr("os.getloadavg", lambda: (8.5, 8.0, 7.0))
    jiffies = itertools.cycle([(0, 0, 0), (1000, 0, 10_000)])
    monkeypatch.setattr("overlap.run.noise.jiffies", lambda: next(jiffies))
    book = write_book(tmp_path, template)
    book.snippet("a/number", 'def times():\n    pass\n\n\ndef main():\n    return {"n": 2}\n')
    shown = "```snippet a/number\n```\n```snippet a/hostile\n```\n"
    book.page("a", f"{shown}```claim a/number\nn >= 3\nThree.\n```\n")
    for path in book.root.glob("docs/recordings/h200*/a/number.json"):
        path.unlink()
    book.page("index", "# Small\n")
    book.commit("a/number", template, {"n": 3})
    book.book("auto").run(["a/number"])
    served = plugin.OverlapPlugin()
    served.load_config({})
    served.site = Site(book.pages("auto"), None)
    with caplog.at_level(logging.INFO, "mkdocs.plugins.overlap"):
        for _ in range(3):
            served.on_post_build(SimpleNamespace(site_dir=tmp_path / "site"))
    busy = "this machine was busy (other processes took 90% of the CPU's time"
    (line,) = [line for line in caplog.text.splitlines() if "claim is false here" in line]
    assert f"{busy}): repeat it when calm; `overlap run a/number` runs" in line
    assert "claim what the data say" not in line
    assert busy in html.unescape(folds_of(build(book, "auto")))


def test_what_fails_behind_a_served_book_is_told_and_its_page_shows_the_recording(template, tmp_path, capfd):
    book = write_book(tmp_path, template)
    book.commit("a/number", template, {"n": 3})
    fails = 'def times():\n    pass\n\n\ndef main():\n    raise ValueError("oops")\n'
    book.snippet("a/number", fails)
    book.snippet("a/new", 'def main():\n    return {"n": 1}\n')
    served = Background(book.root, "auto")

    def build_again() -> Site:
        now = book.pages("auto")
        site = Site(now, Pictures(now.book))
        served.prepare(site)
        return site

    try:
        site = build_again()
        assert "built again when all have run" in site.status and site.book.recordings("a/new")
        served.start()
        served._thread.join(120)
        assert "ValueError: oops" in capfd.readouterr().err
        assert build_again().status == ""
        book.snippet("a/number", fails.replace("oops", "edited"))
        with pytest.raises(OverlapError, match="ValueError: edited"):  # its author waits for it
            build_again()
    finally:
        served.close()


DRAWS = """
from snippets.pictures import bars


def main():
    return {"n": 3}


def plot(results, ceilings):
    return bars({"n": results["n"]}, {}, "ms")
"""


def write_drawn(root: Path, template) -> SmallBook:
    """A book of one page with a recorded picture."""
    book = SmallBook(root)
    book.snippet("a/number", DRAWS)
    book.page("index", "# Small\n\n```snippet a/number\ncaption: A bar.\n```\n")
    book.commit("a/number", template, {"n": 3})
    return book


def test_a_served_book_makes_what_pages_lead_to_when_it_is_asked_for(template, tmp_path, monkeypatch):
    book = write_drawn(tmp_path, template)
    now = book.pages("never")
    site = Site(now, Pictures(now.book))
    prepare(site)
    generated = book.root / "docs/generated"
    whole = {file.relative_to(generated).as_posix(): file.read_bytes() for file in generated.rglob("*.*")}
    page = insert(site, "index.md", now.by_path["index.md"].text)
    served = Background(book.root, "never")
    served.prepare(site)
    assert insert(site, "index.md", now.by_path["index.md"].text) == page and "cpu/a/number-wide.svg" in page
    assert not list(generated.rglob("*.svg")) and not list(generated.rglob("*.json"))

    asked, watched = [], []
    server = SimpleNamespace(mount_path="/book/", watch=lambda path, **kw: watched.append(path), unwatch=id)
    server.get_app = lambda: lambda environ, start: [b"by MkDocs"]
    server.set_app = asked.append
    served.join(server, book.root / "docs")
    served.show(site)
    said = []

    def answer(path: str) -> bytes:
        return b"".join(
            asked[0]({"PATH_INFO": path}, lambda status, headers: said.append((status, *headers)))
        )

    assert str(generated) not in watched and str(book.root / "snippets") in watched
    for path, content in whole.items():
        is_there = path.endswith((".css", ".js", ".py", ".pyz", ".zip"))
        if path != ".digest":
            assert answer(f"/book/generated/{path}") == (b"by MkDocs" if is_there else content), path
    length = len(whole["pictures/cpu/a/number-wide.svg"])
    kinds = [("Content-Type", "image/svg+xml"), ("Content-Length", str(length))]
    assert ("200 OK", *kinds) in said
    for path in (
        "/book/",
        "/book/generated/machines/none.json",
        "/book/generated/pictures/cpu/a/none-wide.svg",
    ):
        assert answer(path) == b"by MkDocs"

    book.snippet("a/number", DRAWS.replace('results["n"]', 'results["m"]'))
    now = book.pages("never")
    site = Site(now, Pictures(now.book))
    told: list[object] = []
    monkeypatch.setattr(background, "_tell", told.append)
    served.prepare(site)
    served.show(site)
    assert told == []  # nothing is drawn until somebody asks
    assert answer("/book/generated/pictures/cpu/a/number-wide.svg") == b"by MkDocs"
    assert len(told) == 1 and "snippets/a/number.py:" in str(told[0])
    assert any("snippets/a/number.py:" in problem for problem in site.pictures.problems())


def test_a_claim_false_on_what_this_build_did_not_run_is_shown_alone(template, tmp_path, caplog):
    book = write_book(tmp_path, template)
    book.commit("a/number", template, {"n": 2}, gpus=1)
    (book.root / "pyproject.toml").write_text("[tool.overlap]\nhome = {cpu = 1}\n")
    with caplog.at_level(logging.INFO, "mkdocs.plugins.overlap"):
        folds = folds_of(build(book, "never"))
    assert 'class="ov-false" data-machine="h200"' in folds and "claim is false" not in caplog.text


def test_what_inserted_markdown_needs_must_be_in_mkdocs_yml(template, tmp_path):
    with pytest.raises(Abort, match=r"add md_in_html to markdown_extensions"):
        build(write_book(tmp_path, template), "never", extra="markdown_extensions: [attr_list]\n")


@pytest.mark.parametrize(
    ("text", "expected"),
    {
        "snippet": ("```snippet a/lost\n```", "snippets/a/lost.py: there is no such file"),
        "diagram": ("\n```diagram lost\n```", "2: no diagram 'lost' in docs/assets/diagrams/"),
        "verdict": ("{verdict: holdz}", "'holdz' is no verdict; write one of holds, holds with limits"),
        "leaving": ("```diagram ../overlap\n```", "1: no diagram '../overlap' in docs/assets/diagrams/"),
        "not recorded": (
            "```snippet a/rare\n```",
            "a/rare.py: nothing recorded and nothing ran here; it needs 8 GPUs: run `overlap record",
        ),
    }.values(),
)
def test_what_cannot_be_inserted(built, text, expected):
    built.snippet("a/rare", options="gpus = [8]")
    with pytest.raises(OverlapError) as caught:
        built.html(text)
    (built.root / "snippets/a/rare.py").unlink()
    assert expected in str(caught.value)


def test_the_site_loads_nothing_from_elsewhere(built):
    for path, content in contents(built.site).items():
        if path.endswith(".html"):
            loaded = re.findall(rb'<(?:script|link|img|iframe)[^>]+(?:src|href)="(https?:[^"]+)', content)
            assert [url for url in loaded if b"canonical" not in url] == [], path


def test_the_picker_knows_the_machines(built):
    assert [machine["name"] for machine in machines(built.site)] == ["cpu", "h200", "h200-x2"]


def test_a_page_saved_while_the_book_is_built_loses_no_anchor(on_cpu, template, tmp_path, monkeypatch):
    book = write_book(tmp_path, template)
    (book.root / "docs/index.md").write_text("# Small\n\n[The number](a.md#snippet-a-number)\n")
    before = plugin.OverlapPlugin.on_pre_build

    def then_saved(self, config):
        before(self, config)
        page = book.root / "docs/a.md"
        page.write_text(page.read_text() + "\nOne more sentence.\n")

    monkeypatch.setattr(plugin.OverlapPlugin, "on_pre_build", then_saved)
    site = build(book, "auto")  # strict: a warning of a lost anchor is an error
    assert "One more sentence." in (site / "a/index.html").read_text()


def test_a_taken_port_is_told_before_anything_is_made():
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        refuse_taken_port("127.0.0.1", port)  # nobody listens there yet, and nobody else gets it
        taken.listen()
        with pytest.raises(OverlapError, match=f"cannot serve on 127.0.0.1:{port} .* name another port"):
            refuse_taken_port("127.0.0.1", port)


def test_check_and_build_name_a_plot_that_cannot_be_drawn(template, tmp_path, monkeypatch, capsys):
    book = write_drawn(tmp_path, template)
    monkeypatch.chdir(book.root)
    assert main(["check"]) == 0
    now = book.pages("never")
    prepare(Site(now, Pictures(now.book)))
    assert (book.root / "docs/generated/pictures/cpu/a/number-wide.svg").exists()
    book.snippet("a/number", DRAWS.replace('results["n"]', 'results["m"]'))
    capsys.readouterr()
    assert main(["check"]) == 1
    assert "plot() cannot be drawn: KeyError: 'm'" in capsys.readouterr().out
    now = book.pages("never")
    with pytest.raises(OverlapError, match=r"not in order:\n.*number.py:\d+: plot\(\) cannot be drawn"):
        prepare(Site(now, Pictures(now.book)))
