"""A page of the book: its Markdown, taken apart into text and blocks."""

import difflib
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from overlap import OverlapError
from overlap.book.blocks import KINDS, Block, Source, Text
from overlap.book.value import NAME

_FENCE = re.compile(r"^(?P<indent> *)(?P<marks>`{3,}|~{3,})(?P<info>[^`]*)$")


@dataclass(frozen=True)
class Page:
    """A file of docs/, by its path there."""

    path: str
    text: str

    @classmethod
    def read(cls, path: Path, docs: Path) -> "Page":
        """Read one page; a file that is no text in UTF-8 is an error with its place."""
        name = path.relative_to(docs).as_posix()
        if path.exists() and not path.is_file() and not path.is_dir():
            raise OverlapError(f"docs/{name}: is no file; mend or remove it")
        try:
            return cls(name, path.read_text(encoding="utf-8-sig"))
        except UnicodeDecodeError as error:
            line = error.object.count(b"\n", 0, error.start) + 1
            raise OverlapError(
                f"docs/{name}:{line}: not UTF-8 ({error.reason}); save it as UTF-8 text"
            ) from None
        except OSError as error:
            raise OverlapError(f"docs/{name}: cannot be read ({error.strerror}); mend or remove it") from None

    @cached_property
    def blocks(self) -> list[Block]:
        """What the page is made of, in order."""
        return parse(self.text, self.path)

    @property
    def name(self) -> str:
        """Path without its ending: also the name of the chapter."""
        return self.path.removesuffix(".md")


def parse(text: str, page: str) -> list[Block]:
    """Take Markdown apart; `page` is its path below docs/, for messages."""
    blocks, plain, first = [], [], 1
    lines, i = text.splitlines(), 0
    while i < len(lines):
        fence = _FENCE.match(lines[i])
        if not fence:
            plain.append(lines[i])
            i += 1
            continue
        end = i + 1
        while end < len(lines) and not re.fullmatch(rf" *{re.escape(fence['marks'])}+ *", lines[end]):
            end += 1
        kind, _, argument = fence["info"].strip().partition(" ")
        if kind in KINDS:
            where = f"docs/{page}:{i + 1}"
            if fence["indent"]:
                raise OverlapError(
                    f"{where}: a {kind} block starts at the beginning of the line; take the spaces away"
                )
            if end == len(lines):
                raise OverlapError(f"{where}: the {kind} block is not closed; end it with {fence['marks']}")
            if plain:
                blocks.append(Text(page, first, "\n".join(plain)))
            blocks.append(KINDS[kind].read(Source(kind, argument.strip(), lines[i + 1 : end], page, i + 1)))
            plain, first = [], end + 2
        else:
            near = difflib.get_close_matches(kind.lower(), KINDS, 1, 0.8)
            if near and re.fullmatch(NAME, argument.strip()):
                raise OverlapError(f"docs/{page}:{i + 1}: `{kind}` is no block; did you mean {near[0]}?")
            plain += lines[i : end + 1]
        i = end + 1
    return [*blocks, Text(page, first, "\n".join(plain))] if plain else blocks
