"""The first use of a term on a page leads to the glossary, and tells its meaning under the pointer.

Markdown's own abbreviations would mark every use of `stream` and `event`, and in one spelling only.
"""

import re
import xml.etree.ElementTree as etree
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from markdown import Markdown
from markdown.extensions.toc import slugify
from markdown.treeprocessors import Treeprocessor

from overlap.blocks.block import HOUSE_RULES
from overlap.blocks.pages import Pages

FILE = "glossary.md"
#: Where text is prose: a term in a heading, in code, in a link or in a value is left alone.
_PROSE = {"p", "li", "dd", "em", "strong", "blockquote", "ul", "ol", "dl", "div", "root"}


@dataclass(frozen=True)
class Term:
    """A heading of the glossary before its Chinese words, and the first paragraph below it, as plain text."""

    name: str
    anchor: str
    meaning: str


def terms(pages: Pages) -> Iterator[Term]:
    """All that the glossary explains."""
    for section in pages.by_path[FILE].sections if FILE in pages.by_path else ():
        if section.depth == 2:
            name = section.title.partition(" · ")[0]
            paragraph = "\n".join(section.lines).strip().partition("\n\n")[0]
            meaning = " ".join(re.sub(r"\]\([^)]*\)|[`*\[]", "", paragraph).split())
            yield Term(name, section.anchor or slugify(section.title, "-"), meaning)


class Glossary(Treeprocessor):
    """Links each term once, in reading order; `page()` is the page's path."""

    def __init__(self, md: Markdown, pages: Callable[[], Pages], page: Callable[[], str]):
        super().__init__(md)
        self._pages = pages
        self._page = page

    def run(self, root: etree.Element) -> None:
        """Link what is there to be linked."""
        page = self._page()
        if page == FILE:
            for heading in root.iter("h2"):
                heading.set("translate", "no")  # a browser that translates leaves terms alone
        if page in ("", FILE, HOUSE_RULES):
            return
        self._left = {term.name.lower(): term for term in terms(self._pages())}
        if self._left:
            words = "|".join(map(re.escape, sorted(self._left, key=len, reverse=True)))
            self._pattern = re.compile(rf"(?<![\w/-])({words})s?(?![\w-])", re.I)
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
        term = self._left.pop(match[1].lower())
        link = etree.Element("a", {"href": f"{FILE}#{term.anchor}"})
        if term.meaning:
            link.set("title", term.meaning)
        link.set("translate", "no")
        link.text = match[0]
        return link
