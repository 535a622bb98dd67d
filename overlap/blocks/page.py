"""A page of the book: its Markdown, taken apart into text and blocks."""

import difflib
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path

from overlap import OverlapError
from overlap.blocks.block import Block, Source, Text
from overlap.blocks.kinds import KINDS
from overlap.book.limits import BY_NAME

#: The page that a reader sees first.
FIRST = "index.md"
#: What a builder reads at the top of a page: what the page is, and how much it weighs in a search.
_FRONT = re.compile(r"\A---\n.*?\n---\n", re.S)
_LIMIT = re.compile(r"(?<!`)\{limit:\s*([^{}\n]*?)\s*\}")
_FENCE = re.compile(r"^(?P<indent> *)(?P<marks>`{3,}|~{3,})(?P<info>[^`]*)$")
_HEADING = re.compile(r"(?P<marks>#{1,6}) +(?P<title>.+?)(?: *\{[^{}#]*#(?P<anchor>[\w-]+)[^{}]*\})?")


@dataclass(frozen=True)
class Section:
    """A heading: how deep it is, its words, its id if it states one; and the lines up to the next heading."""

    depth: int
    title: str
    anchor: str
    lines: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Page:
    """A file of docs/, by its path there, and what it is made of, in order."""

    path: str
    text: str
    blocks: list[Block]
    #: What it says to a builder, as it is written; its text has empty lines there.
    front: str = ""

    @classmethod
    def read(cls, path: Path, docs: Path) -> "Page":
        """Read one page; what cannot be read or taken apart is an error with its place."""
        name = path.relative_to(docs).as_posix()
        try:
            text = path.read_text(encoding="utf-8-sig")
        except UnicodeDecodeError as error:
            raise OverlapError(f"docs/{name}: not UTF-8 ({error.reason}); save it as UTF-8 text") from None
        front = _FRONT.match(text)
        if front:  # lines keep their numbers
            text = "\n" * front[0].count("\n") + text[front.end() :]
        return cls(name, text, parse(text, name), front[0] if front else "")

    @property
    def name(self) -> str:
        """Path without its ending: also the name of the chapter."""
        return self.path.removesuffix(".md")

    @cached_property
    def sections(self) -> list[Section]:
        """In order; what stands above the first heading, and in code, is in none of them."""
        sections: list[Section] = []
        lines = self.text.splitlines()
        for i in outside_code(lines):
            if section := heading(lines[i]):
                sections.append(section)
            elif sections:
                sections[-1].lines.append(lines[i])
        return sections


def heading(line: str) -> Section | None:
    """The section that a line heads."""
    match = _HEADING.fullmatch(line)
    return Section(len(match["marks"]), match["title"], match["anchor"] or "") if match else None


def outside_code(lines: list[str]) -> Iterator[int]:
    """The numbers of the lines that stand in no fence."""
    i = 0
    while i < len(lines):
        if fence := _FENCE.match(lines[i]):
            i = _end(lines, i, fence["marks"])
        else:
            yield i
        i += 1


def parse(text: str, page: str) -> list[Block]:
    """Take Markdown apart; `page` is its path below docs/, for messages."""
    blocks: list[Block] = []
    lines = []
    for number, line in enumerate(text.splitlines(), 1):
        lines.append(_LIMIT.sub(partial(_limit, f"docs/{page}:{number}"), line))
    plain: list[str] = []
    first = 1
    i = 0
    while i < len(lines):
        fence = _FENCE.match(lines[i])
        if not fence:
            plain.append(lines[i])
            i += 1
            continue
        end = _end(lines, i, fence["marks"])
        if _opens_block(fence, f"docs/{page}:{i + 1}", end < len(lines)):
            if plain:
                blocks.append(Text(page, first, "\n".join(plain)))
            kind, _, argument = fence["info"].strip().partition(" ")
            source = Source(kind, argument.strip(), lines[i + 1 : end], page, i + 1)
            blocks += KINDS[kind].read_all(source)
            plain = []
            first = end + 2
        else:
            plain += lines[i : end + 1]
        i = end + 1
    if plain:
        blocks.append(Text(page, first, "\n".join(plain)))
    return blocks


def _limit(where: str, match: re.Match) -> str:
    """A limit of the code, as a factor."""
    name = match[1]
    if name not in BY_NAME:
        raise OverlapError(f"{where}: no limit is named {name!r}; write one of {', '.join(BY_NAME)}")
    return f"{BY_NAME[name]:g}"


def _end(lines: list[str], start: int, marks: str) -> int:
    """Number of the line that closes a fence; the number of lines where none does."""
    for number in range(start + 1, len(lines)):
        if re.fullmatch(rf" *{re.escape(marks)}+ *", lines[number]):
            return number
    return len(lines)


def _nearest(word: str) -> str:
    """The kind that a word is nearly, or begins like; no language that code is highlighted in does."""
    likely = [kind for kind in KINDS if word.startswith(kind) or (len(word) > 3 and kind.startswith(word))]
    return next(iter(likely + difflib.get_close_matches(word, KINDS, 1, 0.8)), "")


def _opens_block(fence: re.Match, where: str, closed: bool) -> bool:
    """Whether a fence is a block of ours; one that is nearly one is an error."""
    kind, *_ = fence["info"].strip().split(" ")
    if kind not in KINDS:
        if near := _nearest(kind.lower()):
            raise OverlapError(f"{where}: `{kind}` is no block; did you mean {near}?")
        return False
    if fence["indent"]:
        remedy = "take the spaces away"
        raise OverlapError(f"{where}: a {kind} block starts at the beginning of the line; {remedy}")
    if not closed:
        raise OverlapError(f"{where}: the {kind} block is not closed; end it with {fence['marks']}")
    return True
