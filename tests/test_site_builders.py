"""Two builders make the same book: MkDocs, which the README uses, and Zensical, its theme's successor.

Zensical has nothing of the plugin: it builds the folder that `overlap build` writes.
"""

import os
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import urldefrag, urljoin

import pytest

pytest.importorskip("zensical")
pytest.importorskip("mkdocs")

from conftest import ROOT


class Article(HTMLParser):
    """What a reader finds in the article of a page, whatever is around it."""

    def __init__(self, page: Path, site: Path):
        super().__init__()
        self.address = f"http://site/{page.parent.relative_to(site).as_posix()}/".replace("/./", "/")
        self.headings: list[str] = []
        self.links: set[str] = set()
        self.pictures: list[str] = []
        self.words: list[str] = []
        self._depth = 0
        self._silent = 0
        self._sign = False
        self.feed(page.read_text(encoding="utf-8"))

    @property
    def text(self) -> str:
        """All words, but for the one link that leads to a page of mkdocs-jupyter; blank space is left out.

        What is squeezed has fewer tags, and so other ends of words.
        """
        return "".join(self.words).replace("notebook:readit,downloadit", "notebook:downloadit")

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        if tag == "article":
            self._depth += 1
        if not self._depth:
            return
        if tag in ("script", "style", "template"):
            self._silent += 1
        if re.fullmatch("h[1-4]", tag) and "id" in attributes:
            self.headings.append(attributes["id"])
        if tag == "img":
            self.pictures.append(urljoin(self.address, attributes["src"]))
        self._sign = attributes.get("class") == "headerlink"
        if self._sign:  # MkDocs leaves it out where a heading opens what is below it
            return
        if tag == "a" and attributes.get("href") and "md-content__button" not in attributes.get("class", ""):
            self.links.add(urljoin(self.address, attributes["href"]))

    def handle_endtag(self, tag):
        self._sign &= tag != "a"
        if tag == "article":
            self._depth -= 1
        if self._depth and tag in ("script", "style", "template"):
            self._silent -= 1

    def handle_data(self, data):
        if self._depth and not self._silent and not self._sign:
            self.words += data.split()


@pytest.fixture(scope="module")
def sites(tmp_path_factory) -> dict[str, Path]:
    """The book, from its recordings: MkDocs with the plugin, Zensical of what `overlap build` made."""
    environment = os.environ | {
        "OVERLAP_EXECUTE": "never",
        "CUDA_VISIBLE_DEVICES": "",
        "PYTHONPATH": str(ROOT),
    }
    folder = tmp_path_factory.mktemp("book")

    def run(*command: str, cwd: Path = ROOT) -> None:
        done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, done.stdout + done.stderr

    made = {"mkdocs": Path(os.environ.get("OVERLAP_SITE", folder / "mkdocs"))}
    if not made["mkdocs"].exists():
        run(sys.executable, "-m", "mkdocs", "build", "--site-dir", str(made["mkdocs"]))
    run(sys.executable, "-m", "overlap", "build", str(folder / "docs"))
    shutil.copy(ROOT / "mkdocs.yml", folder)
    run("zensical", "build", cwd=folder)
    made["zensical"] = folder / "site"
    return made


def test_zensical_makes_the_same_articles(sites):
    docs = ROOT / "docs"
    pages = sorted([*docs.glob("*.md"), *docs.glob("zh/*.md")])
    assert pages
    for page in pages:
        address = page.relative_to(docs).with_suffix("")
        name = "index.html" if page.stem == "index" else f"{address}/index.html"
        one, other = (Article(site / name, site) for site in sites.values())
        assert other.words and one.text == other.text, name
        assert one.headings == other.headings, name
        assert one.pictures == other.pictures, name
        assert {link for link in one.links if "/generated/notebooks/" not in link} == other.links, name


def test_what_zensical_leads_to_is_there(sites):
    site = sites["zensical"]
    for page in site.glob("**/index.html"):
        article = Article(page, site)
        for address in [*article.links, *article.pictures]:
            path = urldefrag(address)[0].removeprefix("http://site/")
            if address.startswith("http://site/"):
                there = site / path
                assert there.is_file() or (there / "index.html").is_file(), f"{page}: {address}"
