"""Text: what came from outside made safe, and tables for a terminal."""

import re
from collections.abc import Iterator

#: Characters as they stand between the brackets of a regular expression: control characters but tab and
#: newline, and halves of characters; marks that turn the direction of what follows; what cannot be seen.
CONTROL = "\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff"
TURNING = "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
INVISIBLE = (
    "\u00ad\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028\u2029\u2060-\u206f\u2800\u3164\ufe00-\ufe0f\ufeff\uffa0"
    "\ufff9-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
_UNSAFE = re.compile(f"[{CONTROL}{TURNING}]")
_UNSEEN = re.compile(f"[{CONTROL}{TURNING}{INVISIBLE}]")


def plain(text: str) -> str:
    """The text with U+FFFD for what a terminal or a page should not get: see `CONTROL` and `TURNING`."""
    return _UNSAFE.sub("\ufffd", text)


def visible(text: str) -> str:
    """The text for a name or a value within a sentence: without what cannot be seen, too."""
    return _UNSEEN.sub("\ufffd", text)


def aligned(rows: list[tuple[str, ...]]) -> Iterator[str]:
    """The lines of a table, its columns below each other."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        yield "  ".join(cells).rstrip()
