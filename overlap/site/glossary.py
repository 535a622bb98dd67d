"""The first use of a term on a page leads to the glossary, and tells its meaning under the pointer.

Markdown's own abbreviations would mark every use of `stream` and `event`, and in one spelling only.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from html import escape

from markdown.extensions.toc import slugify

from overlap.blocks.block import HOUSE_RULES
from overlap.blocks.inline import CODE, replace
from overlap.blocks.pages import Pages
from overlap.site.layers import EVIDENCE, OPEN
from overlap.site.tables import heading_cells
from overlap.site.view import View

FILE = "glossary.md"
#: What is no letter of a term's script: Chinese has no spaces between words.
_BESIDE = r"[^\W\u3400-\u9fff]"
#: What is no prose: headings, tables, titles of boxes, HTML, what is folded, links, braces.
_NOT_PROSE = "|".join(
    (
        CODE,
        r"(?m:^)(?P<heading>#+ .*)",
        r"(?m:^)[ ]*\?\?\?.*\n(?:(?: {4}.*|[ ]*)\n)*",
        r"(?m:^)(?P<table>\|.*\n(?:\|.*\n)*)",
        r"(?m:^)[ ]*(?:!!!|<(?!span|small|b\b|a\b)).*",
        # the word that a mark stays with
        r"[^\s*_`\[\]()<>\u3000-\u9fff\uff00-\uffef]{0,20}\u00a0\ue000\d+\ue001",
        r"<[^<>]*>",
        r"!?\[(?:[^\[\]]|\[[^\[\]]*\])*\](?:\((?:[^()]|\([^()]*\))*\)|\[[^\[\]]*\])?",
        r"\{[^{}\n]*\}",
    )
)


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


class Glossary:
    """Links each term of a page once, in reading order."""

    def __init__(self, view: View):
        self._view = view
        self._left: dict[str, Term] = {}
        if view.path not in (FILE, HOUSE_RULES):
            self._left = {term.name.lower(): term for term in terms(view.pages)}
        #: Whether what is read is closed at first: nobody looks for a meaning there.
        self._closed = False

    def linked(self, text: str) -> str:
        """The text with links. In the glossary itself a browser that translates leaves terms alone."""
        if self._view.path == FILE:
            return replace(r"(?m:^)## (?P<title>.+?)(?: *\{(?P<braces>.*)\} *)?(?m:$)", text, _as_it_is)
        if not self._left:
            return text
        words = "|".join(map(re.escape, sorted(self._left, key=len, reverse=True)))
        self._found = re.compile(
            rf"{_NOT_PROSE}|(?i:(?<!{_BESIDE})(?<![/-])(?P<term>{words})s?(?!{_BESIDE}|-))"
        )
        return self._found.sub(self._link, text)

    def _link(self, match: re.Match) -> str:
        heading = match["heading"]
        if heading and heading.startswith("## "):
            self._closed = f"#{EVIDENCE}" in heading or (self._closed and f"#{OPEN}" not in heading)
        if match["table"]:
            return self._in_entries(match["table"])
        if not match["term"] or self._closed:
            return match[0]
        term = self._left.pop(match["term"].lower(), None)
        if term is None:
            return match[0]
        title = f' title="{escape(term.meaning)}"' if term.meaning else ""
        href = self._view.page(FILE, term.anchor)
        return self._view.put(f'<a href="{href}"{title} translate="no">{match[0]}</a>')

    def _in_entries(self, table: str) -> str:
        """A table; where its rows become entries, their prose has links, too."""
        rows = table.split("\n")
        heading = 1 + heading_cells([cell.strip() for cell in rows[0].strip("| ").split("|")])
        if heading == 1:
            return table
        for i in range(2, len(rows)):
            cells = rows[i].split("|")
            cells[heading:] = [self._found.sub(self._link, cell) for cell in cells[heading:]]
            rows[i] = "|".join(cells)
        return "\n".join(rows)


def _as_it_is(match: re.Match) -> str:
    """A heading that no browser translates."""
    braces = match["braces"] or f" #{slugify(match['title'], '-')} "
    return f"## {match['title']} {{{braces.rstrip()} translate=no }}"
