"""HTML that stands in Markdown, written so that no builder takes part of it for Markdown."""

import re

#: Where a reader of Markdown looks for fences, tabs and the end of a block.
_IN_BLOCK = re.compile(r"`|~(?=~~)|\t|(?<=\n)[ ]*\n")
#: Where it looks for emphasis, links, columns and attributes.
_IN_SENTENCE = re.compile(r"[`\\*{}\[\]|~]|(?<!\w)_|_(?!\w)")


def block(html: str) -> str:
    """HTML that begins with the tag of a block, on lines of its own: none of them is empty."""
    return _IN_BLOCK.sub(_written, html.strip())


def sentence(html: str) -> str:
    """HTML within a sentence, a heading or a cell: on one line."""
    return _IN_SENTENCE.sub(_written, " ".join(html.split("\n")).strip())


def _written(match: re.Match) -> str:
    """A character as a number; an empty line as its end."""
    return f"&#{ord(match[0][-1])};"
