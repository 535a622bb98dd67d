"""A chapter's Markdown, taken apart into text, snippet blocks and claims."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from overlap import OverlapError
from overlap.book.claim import Claim

_FENCE = re.compile(r"^(?P<indent> *)(?P<marks>`{3,}|~{3,})\s*(?P<info>[^`]*?)\s*$")
_NAME = r"[a-z][a-z0-9_]*/[a-z][a-z0-9_]*"
VALUE = re.compile(rf"\{{(?P<name>{_NAME})(?:@(?P<profile>[\w-]+))?:\s*(?P<expression>[^{{}}\n]+?)\}}")
_SPEC = re.compile(r"^[-+,_.\d]*[bcdeEfFgGnosxX%]?$")
_CODE_OR_VALUE = re.compile(rf"(?<!`)(?P<ticks>`+)(?!`).+?(?<!`)(?P=ticks)(?!`)|{VALUE.pattern}", re.S)
PRINTED = re.compile(r"\{printed:\s*(?P<text>[^{}\n]+?)\s*\}")
_UNITS = "ns|µs|us|ms|s|[kMGT]?B/s|[kMGT]iB|[MGT]FLOP/s|x faster|% of"
_TYPED = re.compile(rf"(?<![\w{{#/.,-])\d(?:[\d,.]*\d)?(?:[\s\u202f\xa0]?(?:{_UNITS})|×)(?![\w/])")
_OPTIONS = {"show", "output", "code", "plot"}


@dataclass(frozen=True)
class Text:
    """Markdown that is passed on as it is, but for the values in it."""

    text: str
    line: int


@dataclass(frozen=True)
class Block:
    """A snippet shown here: which functions, and whether with its code, output and plot."""

    snippet: str
    show: tuple[str, ...]
    code: bool
    output: bool
    plot: bool
    line: int


@dataclass(frozen=True)
class Insert:
    """Something generated: the table of all claims, the index of snippets, a diagram by name, or a scoreboard."""

    kind: str
    name: str
    body: str
    line: int


@dataclass(frozen=True)
class Value:
    """An expression in a sentence; `profile` pins it to one machine."""

    snippet: str
    profile: str | None
    expression: str
    spec: str

    @classmethod
    def parse(cls, match: re.Match) -> "Value":
        """Read a match of `VALUE`: the last colon begins the format."""
        expression, spec = match["expression"].strip(), ""
        head, colon, tail = expression.rpartition(":")
        if colon and tail and _SPEC.match(tail):
            expression, spec = head.strip(), tail
        return cls(match["name"], match["profile"], expression, spec)


def values(text: str) -> list[tuple[int, Value]]:
    """All values in a piece of Markdown with the line they stand in, counted from 0; code is left aside."""
    found = (match for match in _CODE_OR_VALUE.finditer(text) if not match["ticks"])
    return [(text.count("\n", 0, match.start()), Value.parse(match)) for match in found]


def replace_values(text: str, render: Callable[[Value], str]) -> str:
    """Replace each value outside code by `render(value)`."""
    return _CODE_OR_VALUE.sub(lambda match: match[0] if match["ticks"] else render(Value.parse(match)), text)


@dataclass(frozen=True)
class Score:
    """One row of a scoreboard, in milliseconds: what a source printed, what it takes here, what it can take at best."""

    label: str
    printed: float
    here: Value
    limit: Value | None


def scores(part: Insert, page: str) -> list[Score]:
    """Rows `label | printed ms | snippet: expression | expression of the limit, or -`."""
    rows = []
    for number, row in enumerate(filter(str.strip, part.body.splitlines()), part.line + 1):
        cells = [cell.strip() for cell in row.split("|")]
        try:
            label, printed, here, limit = cells
            name, _, expression = here.partition(":")
            values = [
                Value(name.strip(), None, text.strip(), "") if text != "-" else None for text in (expression, limit)
            ]
            if float(printed) <= 0:
                raise ValueError(printed)
            rows.append(Score(label, float(printed), *values))
        except ValueError:
            remedy = "write `label | milliseconds | chapter/snippet: expression | limit or -`"
            raise OverlapError(f"docs/{page}:{number}: not a row of a scoreboard: {remedy}") from None
    return rows


def typed_numbers(text: str) -> list[tuple[int, str]]:
    """Measured-looking numbers that stand in prose by hand, with their line counted from 0.

    A number that comes from a run is a value; one that a source or a datasheet printed is `{printed: 0.0049 s}`.
    """
    bare = _CODE_OR_VALUE.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), text)
    bare = PRINTED.sub("", bare)
    return [(bare.count("\n", 0, match.start()), match[0]) for match in _TYPED.finditer(bare)]


def parse(text: str, page: str) -> list[Text | Block | Claim | Insert]:
    """Take a page apart; `page` is its path below docs/, for messages."""
    parts, plain, plain_line = [], [], 1
    lines, i = text.splitlines(), 0

    def flush(next_line: int) -> None:
        nonlocal plain, plain_line
        if plain:
            parts.append(Text("\n".join(plain), plain_line))
        plain, plain_line = [], next_line

    while i < len(lines):
        fence = _FENCE.match(lines[i])
        if not fence:
            plain.append(lines[i])
            i += 1
            continue
        end = i + 1
        while end < len(lines) and not re.fullmatch(rf" *{re.escape(fence['marks'])}+ *", lines[end]):
            end += 1
        kind, _, argument = fence["info"].partition(" ")
        where = f"docs/{page}:{i + 1}"
        if kind in ("snippet", "claim", "claims", "snippets", "diagram", "scoreboard"):
            if fence["indent"]:
                raise OverlapError(f"{where}: a {kind} block starts at the beginning of the line")
            if end == len(lines):
                raise OverlapError(f"{where}: the {kind} block is not closed")
            flush(end + 2)
            body, name = "\n".join(lines[i + 1 : end]), argument.strip().removesuffix(".py")
            if kind == "snippet":
                parts.append(_block(name, body, where, i + 1))
            else:
                parts.append(
                    Claim.parse(name, body, page, i + 1) if kind == "claim" else Insert(kind, name, body, i + 1)
                )
        else:
            plain += lines[i : end + 1]
        i = end + 1
    flush(len(lines))
    return parts


def _block(name: str, body: str, where: str, line: int) -> Block:
    options = {"show": "", "code": "yes", "output": "yes", "plot": "yes"}
    for row in filter(str.strip, body.splitlines()):
        key, colon, value = row.partition(":")
        if not colon or key.strip() not in _OPTIONS:
            raise OverlapError(f"{where}: unknown option `{row.strip()}`; known are {', '.join(sorted(_OPTIONS))}")
        options[key.strip()] = value.strip()
    show = tuple(part.strip() for part in options["show"].split(",") if part.strip())
    return Block(name, show, *(options[key] != "no" for key in ("code", "output", "plot")), line)


def read(path: Path, docs: Path) -> list:
    """Parse one page of docs/."""
    return parse(path.read_text(encoding="utf-8"), path.relative_to(docs).as_posix())
