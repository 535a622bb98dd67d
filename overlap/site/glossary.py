"""The first use of a term on a page leads to the glossary, and tells its meaning under the pointer.

Markdown's own abbreviations would mark every use of `stream` and `event`, and in one spelling only.
"""

import re
from functools import cache
from html import escape, unescape

from markdown import markdown

from overlap.blocks.block import HOUSE_RULES
from overlap.blocks.inline import CODE
from overlap.blocks.language import is_chinese
from overlap.site.layers import EVIDENCE, OPEN
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
        r"(?m:^)\|.*\n(?:\|.*\n)*",
        r"(?m:^)[ ]*(?:!!!|<(?!span|small|b\b|a\b)).*",
        # the word that a mark stays with
        r"[^\s*_`\[\]()<>\u3000-\u9fff\uff00-\uffef]{0,20}\u00a0\ue000\d+\ue001",
        r"<[^<>]*>",
        r"!?\[(?:[^\[\]]|\[[^\[\]]*\])*\](?:\((?:[^()]|\([^()]*\))*\)|\[[^\[\]]*\])?",
        r"\{[^{}\n]*\}",
    )
)


@cache
def plain(text: str) -> str:
    """A sentence of Markdown without its marks and links."""
    return unescape(re.sub("<[^>]*>", "", markdown(text)))


class Glossary:
    """Links each term of a page once, in reading order."""

    def __init__(self, view: View):
        self._view = view
        #: Terms that the page has not used yet: where each is explained.
        self._left: dict[str, str] = {}
        if view.path not in (FILE, HOUSE_RULES):
            self._left = {term.term.lower(): anchor for anchor, term in view.pages.glossary.items()}
        #: Whether what is read is closed at first: nobody looks for a meaning there.
        self._closed = False

    def linked(self, text: str) -> str:
        """The text with links."""
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
        if not match["term"] or self._closed:
            return match[0]
        anchor = self._left.pop(match["term"].lower(), None)
        if anchor is None:
            return match[0]
        term = self._view.pages.glossary[anchor]
        meaning = term.zh_meaning or term.zh if is_chinese(self._view.path) else term.meaning
        title = f' title="{escape(plain(meaning))}"' if meaning else ""
        href = self._view.page(FILE, anchor)
        return self._view.put(f'<a href="{href}"{title} translate="no">{match[0]}</a>')
