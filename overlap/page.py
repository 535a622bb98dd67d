"""A chapter's Markdown, taken apart into text, snippet blocks and claims."""

import re
from dataclasses import dataclass
from pathlib import Path

from overlap import OverlapError
from overlap.claim import Claim

_FENCE = re.compile(r"^(?P<indent> *)(?P<marks>`{3,}|~{3,})\s*(?P<info>.*?)\s*$")
_VALUE = re.compile(r"\{(?P<name>[a-z_]+/[a-z_]+)(?:@(?P<profile>[\w-]+))?:\s*(?P<expression>[^{}\n]+?)\}")
_SPEC = re.compile(r"^[-+,_.\d]*[bcdeEfFgGnosxX%]?$")
_CODE = re.compile(r"(`+)(?!`).+?(?<!`)\1(?!`)", re.S)
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
class Table:
    """The table of all claims, or another generated list."""

    kind: str
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


VALUE = _VALUE


def values(text: str) -> list[Value]:
    """All values in a piece of Markdown, code left aside."""
    return [Value.parse(match) for match in _VALUE.finditer(_CODE.sub("", text))]


def replace_values(text: str, render) -> str:
    """Replace each value outside code by `render(value)`."""
    parts, last = [], 0
    for code in _CODE.finditer(text):
        parts += [_VALUE.sub(lambda m: render(Value.parse(m)), text[last : code.start()]), code.group()]
        last = code.end()
    return "".join([*parts, _VALUE.sub(lambda m: render(Value.parse(m)), text[last:])])


def parse(text: str, page: str) -> list[Text | Block | Claim | Table]:
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
        if kind in ("snippet", "claim", "claims"):
            if fence["indent"]:
                raise OverlapError(f"{where}: a {kind} block starts at the beginning of the line")
            if end == len(lines):
                raise OverlapError(f"{where}: the {kind} block is not closed")
            flush(end + 2)
            body, name = "\n".join(lines[i + 1 : end]), argument.strip().removesuffix(".py")
            if kind == "snippet":
                parts.append(_block(name, body, where, i + 1))
            else:
                parts.append(Claim.parse(name, body, page, i + 1) if kind == "claim" else Table(kind, i + 1))
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
