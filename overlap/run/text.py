"""Text: what came from outside made safe, numbers with their noun, tables for a terminal."""

import json
import re
from collections.abc import Iterable, Iterator

#: Characters as they stand between the brackets of a regular expression: control characters but tab and
#: newline, and halves of characters; marks that turn the direction of what follows.
CONTROL = "\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff"
TURNING = "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
_UNSAFE = re.compile(f"[{CONTROL}{TURNING}]")
#: Commands to a terminal: colours, moves of the cursor, titles of windows, links.
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\))")

#: The folder where packages are installed: recordings of older releases name it in warnings.
_INSTALLED = re.compile(r"[\w./+-]*/(?:site|dist)-packages/")


def plain(text: str) -> str:
    """The text with U+FFFD for what a terminal or a page should not get."""
    return _UNSAFE.sub("\ufffd", text)


def printable(text: str) -> str:
    """What a terminal shows of a program's output, as plain text.

    Carriage returns overwrite, commands to the terminal go, other controls are replaced. A warning keeps the
    file that it comes from, without the folder where packages are installed.
    """
    text = _ESCAPES.sub("", text.replace("\r\n", "\n"))
    text = _INSTALLED.sub("…/", text)
    lines = [_overwritten(line) for line in text.split("\n")]
    return plain("\n".join(lines))


def _overwritten(line: str) -> str:
    """What is left of a line after its carriage returns."""
    visible = ""
    for part in line.split("\r"):
        visible = part + visible[len(part) :]
    return visible


def plural(count: int, noun: str) -> str:
    """`1 run`, `3 runs`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def aligned(rows: list[tuple[str, ...]]) -> Iterator[str]:
    """The lines of a table, its columns below each other."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        yield "  ".join(cells).rstrip()


def unfit(value: object, place: str) -> str:
    """The place of the innermost thing in a value that JSON cannot hold."""
    parts: Iterable = ()
    if isinstance(value, dict):
        parts = value.items()
    elif isinstance(value, (list, tuple)):
        parts = enumerate(value)
    for key, inner in parts:
        try:
            json.dumps(inner, allow_nan=False)
        except (TypeError, ValueError):
            return unfit(inner, f"{place}[{key!r}]")
    return place
