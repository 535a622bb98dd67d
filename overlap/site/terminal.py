"""What a terminal shows of a program's output, as plain text."""

import re

from overlap.run.text import plain

#: Titles of windows, links, and colours.
_ESCAPES = re.compile(r"\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b\[[0-9;]*m")


def printable(text: str) -> str:
    """Carriage returns overwrite, colours and titles go, other controls are replaced."""
    text = _ESCAPES.sub("", text.replace("\r\n", "\n"))
    lines = [_overwritten(line) for line in text.split("\n")]
    return plain("\n".join(lines))


def _overwritten(line: str) -> str:
    """What is left of a line after its carriage returns."""
    visible = ""
    for part in line.split("\r"):
        visible = part + visible[len(part) :]
    return visible
