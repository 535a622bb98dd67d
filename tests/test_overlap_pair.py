"""Twins shown together: what changed in their code, one scale for their pictures, what a page gets wrong."""

import html
import json
import re

import pytest

pytest.importorskip("mkdocs")


from overlap import OverlapError
from overlap.site.pictures import Pictures

pytestmark = pytest.mark.usefixtures("on_cpu")

PLOT = """

def plot(results, ceilings):
    from snippets.pictures import sweep

    return sweep([0, 1], {"y": [0, results["n"]]}, {}, xlabel="x")
"""
TWO_PANELS = """

def plot(results, ceilings):
    from snippets.pictures import timelines

    return timelines({"one": [["CPU", 0, 1, "x"]], "two": [["CPU", 0, results["n"], "x"]]})
"""
BROKEN = """WAITS = False


def work(n: int) -> int:
    n += 1
    return n


def shared() -> int:
    return 7


def main():
    print("broken: three")
    return {"n": 3}
"""
FIXED = """from snippets.a.it_broken import shared


def work(n: int) -> int:
    n += 1  # noqa: X1
    print("waits")
    return n


def main():
    print("fixed: nine")
    return {"n": shared()}
"""


@pytest.fixture
def twins(small_book, template):
    """A book with two twins that ran on the CPU, of which the fixed one ran on an H200, too."""
    (small_book.root / "pyproject.toml").write_text("[tool.overlap]\n")
    (small_book.root / "mkdocs.yml").write_text("site_name: Small\n")
    small_book.snippet("a/it_broken", BROKEN + PLOT.replace("{label}", "ms"))
    small_book.snippet("a/it_fixed", FIXED + PLOT.replace("{label}", "ms"))
    small_book.commit("a/it_broken", template, {"n": 3})
    small_book.commit("a/it_fixed", template, {"n": 9})
    small_book.commit("a/it_fixed", template, {"n": 8}, gpus=1)
    return small_book


PAIR = "```pair a/it\nshow: work, shared\ncaption: Both.\n```\n"


def test_the_code_shows_what_changed_and_the_fixed_code_is_copied(twins):
    article = twins.html(PAIR)
    lines = re.findall(r'<(span class="ov-same"|del|ins)>(.*?)\n</', article, re.S)
    texts = [(kind, html.unescape(re.sub("<[^>]+>", "", line))) for kind, line in lines]
    changed = [text for kind, text in texts if kind != 'span class="ov-same"']
    assert changed == ['    print("waits")'], "a comment for linters is no change, nor a borrowed function"
    same = [text for kind, text in texts if kind == 'span class="ov-same"']
    assert same[0] == "def work(n: int) -> int:" and "def shared() -> int:" in same
    copied = html.unescape(re.search(r'data-copy="([^"]*)"', article)[1])
    assert 'print("waits")' in copied and "noqa" not in copied and "def shared" in copied


def test_what_both_gave_stands_together(twins):
    article = twins.html(PAIR)
    (run,) = article.split('<div class="ov-run"')[1:]
    assert ' data-machine="cpu" data-machines="cpu">' in run, "the H200 ran one of them only"
    assert run.count("three") == 2, "each twin printed what the template did"
    for anchor in ("snippet-a-it_broken", "snippet-a-it_fixed", "figure-a-it_broken"):
        assert article.count(f'id="{anchor}"') == 1
    assert article.count("ov-file") == 1


def test_twins_that_no_machine_ran_both_are_an_error(twins):
    twins.path("a/it_fixed", "cpu").unlink()
    with pytest.raises(OverlapError, match="no machine has recordings of a/it_broken and a/it_fixed; run"):
        twins.html(PAIR)


def test_without_output_the_code_has_both_places(twins):
    article = twins.html(PAIR.replace("caption: Both.", "output: no"))
    assert "three" not in article and "<ins>" in article
    for anchor in ("snippet-a-it_broken", "snippet-a-it_fixed"):
        assert article.count(f'id="{anchor}"') == 1


def test_twins_are_drawn_on_one_scale_if_their_axes_show_the_same(twins):
    book = twins.book("never")
    twins.html(PAIR)
    pictures = Pictures(book)
    broken, fixed = (book.recordings(f"a/it_{end}")["cpu"] for end in ("broken", "fixed"))
    ticks = [re.findall(r">(\d+)</text>", pictures.svg(each, "", "wide")) for each in (broken, fixed)]
    assert ticks[0] == ticks[1] and "8" in ticks[0]
    (series,) = pictures.of(broken)["tables"][0]["series"]
    assert series["points"][-1] == [1.0, 3.0], "the numbers are its own"
    twins.snippet("a/it_fixed", FIXED + TWO_PANELS)
    other = Pictures(twins.book("never"))
    alone = other.svg(other.book.recordings("a/it_broken")["cpu"], "", "wide")
    assert "8" not in re.findall(r">(\d+)</text>", alone)


BAD = {
    "no twin": (
        "```pair a/lost\nshow: work\n```",
        "docs/a.md:1: a pair needs two twins, and there is no snippets/a/lost_broken.py; write it, or show",
    ),
    "no such function": (
        "```pair a/it\nshow: wrok\n```",
        "docs/a.md:1: neither twin has a function wrok; they have work, shared, main, plot",
    ),
    "no caption": (
        "```pair a/it\nshow: work\n```",
        "docs/a.md:1: the picture of a/it_broken has no caption; say",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_what_a_page_gets_wrong_of_a_pair(twins, name):
    text, expected = BAD[name]
    twins.page("a", text)
    assert [problem for problem in twins.check() if expected in problem]


def test_a_pair_without_one_twin_stops_the_page(twins):
    (twins.root / "snippets/a/it_fixed.py").unlink()
    for path in twins.root.glob("docs/recordings/*/a/it_fixed.json"):
        path.unlink()
    with pytest.raises(
        OverlapError, match=r":1: a pair needs two twins, and there is no snippets/a/it_fixed\.py; write"
    ):
        twins.html(PAIR)


def test_a_notebook_has_both(twins):
    from overlap.site.notebook import Notebook

    twins.page("a", f"# A\n\n{PAIR}")
    pages = twins.pages("never")
    twins.html(PAIR)
    cells = json.loads(Notebook(pages, Pictures(pages.book)).build(pages.by_path["a.md"]))["cells"]
    codes = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    assert len(codes) == 2 and "waits" not in codes[0] and "waits" in codes[1]
