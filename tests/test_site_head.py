"""What the book shows elsewhere: a shared page's description and picture, the README's picture."""

import struct
from html.parser import HTMLParser
from pathlib import Path

import pytest

for name in ("mkdocs", "material"):
    pytest.importorskip(name)

from conftest import ROOT, SmallBook  # noqa: E402
from mkdocs.commands.build import build as mkdocs_build  # noqa: E402
from mkdocs.config import load_config  # noqa: E402
from mkdocs.utils.meta import get_data  # noqa: E402

from overlap.book.book import Book  # noqa: E402
from overlap.site import build, svg  # noqa: E402
from overlap.site.pictures import Pictures  # noqa: E402
from overlap.site.view import Site  # noqa: E402

pytestmark = pytest.mark.filterwarnings("default")  # MkDocs and its plugins warn of their own future

#: A program with a second picture.
FAULTS = """
from snippets.pictures import bars


def main():
    return {"n": 3}


def plot(results, ceilings):
    return bars(results, {}, "ms"), {"steps": bars(results, {}, "ms")}
"""
CONFIG = f"""INHERIT: {ROOT}/mkdocs.yml
site_name: Small
extra_css: []
extra_javascript: []
nav: [index.md, Letter A: a.md, snippets.md]
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
    """A first page, a chapter that says what it is, and an index of it."""
    small_book.snippet("a/number")
    small_book.commit("a/number", template, {"n": 3})
    small_book.page("index", "# Small\n")
    small_book.page(
        "a", '---\ndescription: "Is one enough? No: take two."\n---\n\n# A\n\n```snippet a/number\n```\n'
    )
    small_book.page("snippets", "# Snippets\n\n```snippets\n```\n")
    return small_book


@pytest.mark.parametrize("address", ["https://book.example/small/", ""])
def test_a_page_says_what_it_is_shared_with(shared, address, monkeypatch):
    (shared.root / "mkdocs.yml").write_text(CONFIG + f"site_url: '{address}'\n")
    monkeypatch.setenv("OVERLAP_EXECUTE", "never")
    monkeypatch.chdir(shared.root)
    config = load_config(str(shared.root / "mkdocs.yml"), strict=True, site_dir=str(shared.root / "site"))
    config.plugins["overlap"].config["notebook_page"] = "a"
    mkdocs_build(config)
    metas = Metas(shared.root / "site/a/index.html").by_name
    assert metas["description"] == metas["og:description"] == "Is one enough? No: take two."
    assert metas["og:title"] == "Letter A"
    first = Metas(shared.root / "site/index.html").by_name
    assert first["description"] == first["og:description"] == config.site_description
    notebook = Metas(shared.root / "site/generated/notebooks/a/index.html").by_name
    assert notebook["description"] == notebook["og:description"] == metas["description"]
    assert notebook["og:title"] == "Letter A: the notebook"
    assert '<h2 id="letter-a">' in (shared.root / "site/snippets/index.html").read_text()
    assert "og:title" not in Metas(shared.root / "site/404.html").by_name
    if not address:
        assert "og:image" not in metas
        assert metas["twitter:card"] == "summary"
        return
    assert metas["twitter:card"] == "summary_large_image"
    assert metas["og:url"] == f"{address}a/"
    assert metas["og:image"] == f"{address}{config.extra['image']}"
    image = (ROOT / "docs" / config.extra["image"]).read_bytes()
    assert image.startswith(b"\x89PNG")
    size = struct.unpack(">II", image[16:24])
    assert size == (int(metas["og:image:width"]), int(metas["og:image:height"])) == (1200, 630)


def test_each_page_of_the_book_has_a_description_of_its_own():
    descriptions = {}
    docs = ROOT / "docs"
    for path in [*docs.glob("*.md"), *docs.glob("zh/*.md")]:
        _, front = get_data(path.read_text(encoding="utf-8"))
        descriptions[path.relative_to(docs)] = front.get("description", "")
    assert len(set(descriptions.values())) == len(descriptions) > 20
    for name, description in descriptions.items():
        assert 50 <= len(description) <= 160, name
        assert not set(description) & set('"<>{}`*'), name


def test_a_build_writes_the_readmes_picture(small_book, template):
    small_book.snippet("clinic/six_faults", FAULTS)
    small_book.commit("clinic/six_faults", template, {"n": 3}, gpus=1)
    site = Site(small_book.pages("never"), Pictures(small_book.book("never")))
    picture = small_book.root / "docs/assets/first-page.svg"
    assert build.show_in_readme(site) and "<svg" in picture.read_text()
    assert not build.show_in_readme(site)
    picture.write_text("another")
    assert build.show_in_readme(site) and "<svg" in picture.read_text()


def test_the_readme_shows_the_picture_that_the_last_build_wrote():
    book = Book(ROOT, "never")
    picture = Pictures(book).svg(book.recordings("clinic/six_faults")["h200"], "steps", "wide")
    made = (ROOT / "docs/assets/first-page.svg").read_text(encoding="utf-8")
    assert made == svg.in_file(picture), "build the book, and commit what it has written"
    first_screen = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()[:20]
    assert any("](docs/assets/first-page.svg)" in line for line in first_screen)
