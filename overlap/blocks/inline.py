"""What stands in braces in sentences: values, marks of claims, what sources printed; and numbers typed in."""

import re
from collections.abc import Callable
from functools import lru_cache

from overlap.book.statistic import is_format
from overlap.book.value import Value
from overlap.run.snippet import NAME

VALUE = re.compile(rf"\{{(?P<name>{NAME})(?:@(?P<machine>[\w+-]+))?:\s*(?P<expression>[^{{}}\n]+?)\}}")
CITED = re.compile(r"\{claim:\s*(?P<claim>[^{}\s]+)\s*\}")
PRINTED = re.compile(r"\{printed:\s*(?P<text>[^{}\n]+?)\s*\}")
#: What the book says of a source's statement; of these words.
VERDICT = re.compile(r"\{verdict:\s*(?P<words>[^{}\n]+?)\s*\}")
VERDICTS = ("holds", "holds with limits", "dated", "wrong")
#: Code: a fence, which may stand in a box or a list; a span of a paragraph.
CODE = (
    r"(?m:^)[ \t>]*(?P<fence>`{3,}|~{3,})[^\n`]*\n(?:[^\n]*\n)*?[ \t>]*(?P=fence)[`~]*[ \t]*(?m:$)"
    r"|(?<![`\\])(?P<ticks>`+)(?!`)(?:(?!\n[ \t]*\n)[\s\S])+?(?<!`)(?P=ticks)(?!`)"
)
_CODE_OR_VALUE = re.compile(f"{CODE}|{VALUE.pattern}")
_UNITS = (
    "ns|[µμ]s|us|ms|s|(?:milli|micro|nano)?seconds?|[kMGT]?B/s|[kMGT]iB|[kMG]?Hz|W|[MGT]FLOP(?:/s|S)"
    "|x faster|% of|times (?:as|faster|slower|longer|shorter)"
)
_TYPED = re.compile(rf"(?<![\w{{#/.,-])\d(?:[\d,.]*\d)?(?:(?:[\s\u202f\xa0]|&nbsp;)?(?:{_UNITS})|×)(?![\w/])")


def read_value(match: re.Match) -> Value:
    """Read a match of `VALUE`: the last colon begins the format."""
    source = match["expression"].strip()
    spec = ""
    head, colon, tail = source.rpartition(":")
    if colon and tail and is_format(tail):
        source = head.strip()
        spec = tail
    return Value(match["name"], match["machine"], source, spec)


def values(text: str) -> list[tuple[int, Value]]:
    """All values in a piece of Markdown with the line they stand in, counted from 0; code is left aside."""
    matches = [match for match in _CODE_OR_VALUE.finditer(text) if not _is_code(match)]
    return [(_line(text, match), read_value(match)) for match in matches]


def values_in_code(text: str) -> list[tuple[int, Value]]:
    """The values between backticks, where they stay as they are written; with their line counted from 0."""
    spans = [match for match in _CODE_OR_VALUE.finditer(text) if match["ticks"]]
    return [(_line(text, span), read_value(match)) for span in spans for match in VALUE.finditer(span[0])]


def replace_values(text: str, render: Callable[[Value], str]) -> str:
    """Replace each value outside code by `render(value)`."""
    return replace(VALUE.pattern, text, lambda match: render(read_value(match)))


def replace(pattern: str, text: str, render: Callable[[re.Match], str]) -> str:
    """Replace what matches outside code by `render(match)`."""
    found = re.compile(f"{pattern}|{CODE}")
    return found.sub(lambda match: match[0] if _is_code(match) else render(match), text)


def _is_code(match: re.Match) -> bool:
    return bool(match["fence"] or match["ticks"])


@lru_cache(maxsize=1024)  # each claim looks whose marks stand on its page
def cited(text: str) -> list[tuple[int, str]]:
    """Names of the claims whose marks stand in a piece of Markdown, with their line counted from 0."""
    prose = _without_code(text)
    return [(_line(prose, match), match["claim"]) for match in CITED.finditer(prose)]


def typed_numbers(text: str) -> list[tuple[int, str]]:
    """Numbers that look measured and stand in prose by hand, with their line counted from 0.

    A number that comes from a run is a value; one that a source printed is `{printed: 0.0049 s}`.
    """
    prose = PRINTED.sub("", _without_code(text))
    return [(_line(prose, match), match[0]) for match in _TYPED.finditer(prose)]


def _without_code(text: str) -> str:
    """The text with spaces for code and values; its lines stay what they are."""
    return _CODE_OR_VALUE.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), text)


def _line(text: str, match: re.Match) -> int:
    return text.count("\n", 0, match.start())
