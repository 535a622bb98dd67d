"""Terminal output as HTML. It is data from outside: everything in it is text."""

import html
import re

from overlap.run.text import CONTROL, TURNING

_ESCAPES = re.compile(r"\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)")
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_CONTROL = re.compile(rf"(?!\x1b|\r)[{CONTROL}{TURNING}]")


def printable(text: str) -> str:
    """What a terminal shows: carriage returns overwrite, titles go, controls but colours are replaced."""
    text = _ESCAPES.sub("", text.replace("\r\n", "\n"))
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", "\n".join(map(_overwritten, text.split("\n"))))


def to_html(text: str) -> str:
    """Escaped HTML; ANSI colours become classes."""
    text = printable(text).rstrip()
    if "\x1b" not in text:
        return html.escape(text, quote=False)
    from nbconvert.filters import ansi2html  # slow to import, and rarely needed

    kept = _COLOUR.split(text)
    return ansi2html("".join(_without_escapes(kept, _COLOUR.findall(text))))


def _without_escapes(texts: list[str], colours: list[str]) -> list[str]:
    """What is no colour loses its escape character."""
    texts = [text.replace("\x1b", "\N{REPLACEMENT CHARACTER}") for text in texts]
    return [part for pair in zip(texts, [*colours, ""], strict=True) for part in pair]


def _overwritten(line: str) -> str:
    shown = ""
    for part in line.split("\r"):
        shown = part + shown[len(part) :] if part else shown
    return shown
