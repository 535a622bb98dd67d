"""The first use of a term on a page becomes a link to the glossary, which tells its meaning under the pointer."""

import re
import xml.etree.ElementTree as etree
from pathlib import Path

from markdown.extensions.toc import slugify
from markdown.treeprocessors import Treeprocessor

from overlap.book.blocks.block import HOUSE_RULES

FILE = "glossary.md"
#: Where text is prose: a term in a heading, in code, in a link or in a value is left alone.
_PROSE = {"p", "li", "dd", "em", "strong", "blockquote", "ul", "ol", "dl", "div", "root"}


def terms(docs: Path) -> dict[str, tuple[str, str]]:
    """Headings of docs/glossary.md with their anchors and what stands below them, up to the first empty line; longest first."""
    path = docs / FILE
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    found = re.findall(r"^## (.+)\n+((?:[^#\n].*\n?)*)", text, flags=re.M)
    found.sort(key=lambda entry: len(entry[0]), reverse=True)
    return {term: (slugify(term, "-"), _bare(meaning)) for term, meaning in found}


def _bare(markdown: str) -> str:
    """Text without emphasis, code marks and addresses."""
    return " ".join(re.sub(r"\]\([^)]*\)|[`*\[]", "", markdown).split())


class Glossary(Treeprocessor):
    """Walks a page in reading order and links each term once; `page()` is its path."""

    def __init__(self, md, docs, page):
        super().__init__(md)
        self._docs, self._page = docs, page

    def run(self, root: etree.Element) -> None:
        """Link what is there to be linked."""
        anchors = {} if self._page() in ("", FILE, HOUSE_RULES) else terms(self._docs())
        if anchors:
            words = "|".join(map(re.escape, anchors))
            self._pattern = re.compile(rf"(?<![\w/-])({words})s?(?![\w-])", re.I)
            self._left = {term.lower(): entry for term, entry in anchors.items()}
            self._walk(root)

    def _walk(self, element: etree.Element) -> None:
        if "admonition-title" in element.get("class", ""):
            return
        self._link(element, element.text, 0)
        at = 0
        while at < len(element):
            child = element[at]
            if child.tag in _PROSE:
                self._walk(child)
            self._link(element, child.tail, at + 1, child)
            at += 1

    def _link(self, parent: etree.Element, text: str | None, at: int, before: etree.Element | None = None) -> None:
        """Put a link at the first term in a text; the rest of the text becomes its tail, which the walk then reads."""
        for match in self._pattern.finditer(text or ""):
            entry = self._left.pop(match[1].lower(), None)
            if entry:
                anchor, meaning = entry
                link = etree.Element("a", {"href": f"{FILE}#{anchor}"} | ({"title": meaning} if meaning else {}))
                link.text, link.tail = match[0], text[match.end() :]
                parent.insert(at, link)
                if before is None:
                    parent.text = text[: match.start()]
                else:
                    before.tail = text[: match.start()]
                return
