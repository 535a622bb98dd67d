"""The first use of a term on a page leads to the glossary, and tells its meaning under the pointer.

Markdown's own abbreviations would mark every use of `stream` and `event`, and in one spelling only.
"""

import re
import xml.etree.ElementTree as etree
from collections.abc import Callable

from markdown import Markdown
from markdown.extensions.toc import slugify
from markdown.treeprocessors import Treeprocessor

from overlap.book.blocks.block import HOUSE_RULES
from overlap.book.book import Book

FILE = "glossary.md"
#: A term, with its translation and its anchor where it has them, and the first paragraph below.
_ENTRY = re.compile(r"^## (.+?)(?: · .+)?\n+((?:[^#\n].*\n?)*)", re.M)
#: Where text is prose: a term in a heading, in code, in a link or in a value is left alone.
_PROSE = {"p", "li", "dd", "em", "strong", "blockquote", "ul", "ol", "dl", "div", "root"}


def terms(book: Book) -> dict[str, str]:
    """Headings of the glossary, and the first paragraph below each, without marks and addresses."""
    meanings = {}
    for term, meaning in _ENTRY.findall(book.pages[FILE].text if FILE in book.pages else ""):
        meanings[term] = " ".join(re.sub(r"\]\([^)]*\)|[`*\[]", "", meaning).split())
    return meanings


class Glossary(Treeprocessor):
    """Links each term once, in reading order; `page()` is the page's path."""

    def __init__(self, md: Markdown, book: Callable[[], Book], page: Callable[[], str]):
        super().__init__(md)
        self._book = book
        self._page = page

    def run(self, root: etree.Element) -> None:
        """Link what is there to be linked."""
        page = self._page()
        if page == FILE:
            for heading in root.iter("h2"):
                heading.set("translate", "no")  # a browser that translates leaves terms alone
        if page in ("", FILE, HOUSE_RULES):
            return
        meanings = terms(self._book())
        if meanings:
            words = "|".join(map(re.escape, sorted(meanings, key=len, reverse=True)))
            self._pattern = re.compile(rf"(?<![\w/-])({words})s?(?![\w-])", re.I)
            self._left = {term.lower(): (term, meaning) for term, meaning in meanings.items()}
            self._walk(root)

    def _walk(self, element: etree.Element) -> None:
        if "admonition-title" in element.get("class", ""):
            return
        self._link(element, 0)
        at = 0
        while at < len(element):  # a link that is put in is the next child
            if element[at].tag in _PROSE:
                self._walk(element[at])
            at += 1
            self._link(element, at)

    def _link(self, parent: etree.Element, at: int) -> None:
        """Put a link at the first term of the text before the child at this place; the rest follows it."""
        before = parent[at - 1] if at else None
        text = (parent.text if before is None else before.tail) or ""
        for match in self._pattern.finditer(text):
            if match[1].lower() in self._left:
                link = self._linked(match)
                link.tail = text[match.end() :]
                parent.insert(at, link)
                if before is None:
                    parent.text = text[: match.start()]
                else:
                    before.tail = text[: match.start()]
                return

    def _linked(self, match: re.Match) -> etree.Element:
        term, meaning = self._left.pop(match[1].lower())
        link = etree.Element("a", {"href": f"{FILE}#{slugify(term, '-')}"})
        if meaning:
            link.set("title", meaning)
        link.set("translate", "no")
        link.text = match[0]
        return link
