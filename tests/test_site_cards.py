"""What the book shows elsewhere: a shared page's description and card, the README's picture."""

import re
import struct
import xml.etree.ElementTree as etree
from html.parser import HTMLParser
from pathlib import Path

import pytest

for name in ("mkdocs", "material", "matplotlib"):
    pytest.importorskip(name)

from conftest import ROOT, SmallBook  # noqa: E402
from mkdocs.commands.build import build as mkdocs_build  # noqa: E402
from mkdocs.config import load_config  # noqa: E402

from overlap.book.book import Book  # noqa: E402
from overlap.site import front  # noqa: E402
from overlap.site.cards import SIZE, Cards  # noqa: E402

pytestmark = pytest.mark.filterwarnings("default")  # MkDocs and its plugins warn of their own future

INDEX = """# Small and <fast>

**Look *twice*.** More.

- **[A](a.md)** Is "one" `enough`?

    No: take *two*.

    **{a/number: n:.1f} ms** of {a/number: 2 * n} {claim: three}
"""
CONFIG = f"""INHERIT: {ROOT}/mkdocs.yml
site_name: Small
extra_css: []
extra_javascript: []
nav: [index.md, a.md]
"""


class Metas(HTMLParser):
    """The metas of a page, by name."""

    def __init__(self, page: Path):
        super().__init__()
        self.by_name: dict[str, str] = {}
        self.feed(page.read_text())

    def handle_starttag(self, tag: str, attrs: list) -> None:
        names = dict(attrs)
        name = names.get("name") or names.get("property")
        if tag == "meta" and name:
            self.by_name[name] = names["content"]


@pytest.fixture
def shared(small_book, template) -> SmallBook:
    """A first page with an entry for its one chapter."""
    small_book.snippet("a/number")
    small_book.commit("a/number", template, {"n": 3})
    small_book.page("index", INDEX.replace(" {claim: three}", ""))
    small_book.page("a", "# A\n\n```snippet a/number\n```\n")
    return small_book


def test_an_entry_of_the_first_page_is_read_with_its_numbers_and_their_machine(shared):
    shared.page("index", INDEX)
    cards = Cards(shared.book("never"))
    assert cards.entries["a.md"] == {
        "title": "A",
        "question": 'Is "one" enough?',
        "answer": "No: take two.",
        "number": "3.0 ms",
        "words": "of 6",
        "where": "CPU",
        "above": "Overlap · Small and <fast>",
    }
    assert cards.entries["index.md"]["title"] == "Small and <fast>"
    assert cards.entries["index.md"]["number"] == "3.0 ms"
    assert cards.of("a.md") == "generated/cards/a.png"
    assert cards.of("other.md") == "generated/cards/index.png"


def test_a_page_that_says_what_it_is_has_a_card_with_its_title_and_its_sentence(shared):
    shared.page("words", '---\ndescription: "All words."\n---\n\n# Words { #words }\n')
    cards = Cards(shared.book("never"))
    assert cards.entries["words.md"]["title"] == "Words"
    assert cards.entries["words.md"]["question"] == cards.description("words.md") == "All words."
    assert cards.of("words.md") == "generated/cards/words.png"
    assert dict(cards.files())["cards/words.png"].startswith(b"\x89PNG")


def test_a_book_without_entries_has_no_cards(shared):
    shared.page("index", "# Small\n\n**Look.** More.\n")
    cards = Cards(shared.book("never"))
    assert cards.entries == {}
    assert cards.of("a.md") == ""
    assert dict(cards.files()) == {}


def test_a_card_is_a_picture_of_its_size_the_same_each_time_and_drawn_once(shared, monkeypatch):
    files = dict(Cards(shared.book("never")).files())
    assert set(files) == {"cards/a.png", "cards/index.png"}
    content = files["cards/a.png"]
    assert content.startswith(b"\x89PNG")
    assert struct.unpack(">II", content[16:24]) == SIZE
    (kept,) = (shared.root / ".cache/overlap/cards").glob("a-*.png")
    kept.unlink()
    assert dict(Cards(shared.book("never")).files()) == files
    monkeypatch.setattr("overlap.site.cards._draw", None)
    assert dict(Cards(shared.book("never")).files()) == files


@pytest.mark.parametrize("address", ["https://book.example/small/", ""])
def test_a_page_says_what_it_is_shared_with(shared, address, monkeypatch):
    (shared.root / "mkdocs.yml").write_text(CONFIG + f"site_url: '{address}'\n")
    monkeypatch.setenv("OVERLAP_EXECUTE", "never")
    monkeypatch.chdir(shared.root)
    config = load_config(str(shared.root / "mkdocs.yml"), strict=True, site_dir=str(shared.root / "site"))
    mkdocs_build(config)
    metas = Metas(shared.root / "site/a/index.html").by_name
    assert metas["description"] == metas["og:description"] == 'Is "one" enough? No: take two.'
    assert metas["og:title"] == "A"
    if not address:
        assert "og:image" not in metas
        assert metas["twitter:card"] == "summary"
        return
    assert metas["twitter:card"] == "summary_large_image"
    assert metas["og:url"] == f"{address}a/"
    assert metas["og:image"] == f"{address}generated/cards/a.png"
    assert (shared.root / "site/generated/cards/a.png").exists()
    assert "og:title" not in Metas(shared.root / "site/404.html").by_name


def test_each_page_of_the_book_has_a_description_of_its_own():
    book = Book(ROOT, "never")
    cards = Cards(book)
    descriptions = {}
    for path in book.pages:
        front = re.match(r'---\ndescription: "(.+)"\n', (ROOT / "docs" / path).read_text(encoding="utf-8"))
        descriptions[path] = front[1] if front else cards.description(path)
    assert len(set(descriptions.values())) == len(descriptions) > 20
    for path, description in descriptions.items():
        assert 40 <= len(description) <= 200, path
        assert not set(description) & set('"<>{}`*'), path


def test_each_chapter_of_the_book_has_a_card():
    book = Book(ROOT, "never")
    chapters = {f"{path.name}.md" for path in (ROOT / "snippets").iterdir() if path.is_dir()}
    chapters &= set(book.pages)
    assert len(chapters) >= 12
    entries = Cards(book).entries
    assert chapters <= set(entries)
    for entry in entries.values():
        assert len(entry["number"]) <= 16, entry
        assert len(entry["words"]) <= 72, entry


def test_the_readme_shows_the_bars_of_the_first_page_as_the_recordings_have_them():
    drawn = front.draw(Book(ROOT, "never"))
    committed = (ROOT / "docs" / front.PICTURE).read_text(encoding="utf-8")
    assert committed == drawn, "draw it anew: python -m overlap.site.front"
    first_screen = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()[:20]
    assert any(f"](docs/{front.PICTURE})" in line for line in first_screen)


def test_the_readmes_picture_has_each_bar_at_its_length(shared):
    rows = "long & <slow> | 4 * n | 0.25\nshort | n | 1"
    bars = f"```bars a/number\nunit: ms\nfilled: works\nempty: waits\n{rows}\n```\n"
    shared.page("index", f"# Small\n\n{bars}")
    picture = etree.fromstring(front.draw(shared.book("never")))
    name = "{http://www.w3.org/2000/svg}"
    texts = [text.text for text in picture.iter(f"{name}text")]
    assert texts[:5] == ["long & <slow>", "12 ms", "works 3 ms", "waits 9 ms", "short"]
    assert texts[-1] == "Measured on CPU."
    assert picture.findtext(f"{name}title") == "long & <slow>: 12 ms; short: 3 ms."
    widths = {}
    for box in picture.iter(f"{name}rect"):
        widths.setdefault(box.get("class"), []).append(float(box.get("width")))
    longest = widths["waits"][0]
    assert widths["waits"] == [longest, longest / 4]
    assert widths["works"] == [longest / 4, longest / 4]
    assert longest < widths["paper"][0]
