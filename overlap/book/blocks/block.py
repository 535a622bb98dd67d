"""What every kind of block can do, and the one that is no fence: text.

A kind reads its fence (`read`), says what is wrong with it (`check`, `remarks`), stands in a page as Markdown
(`markdown`), mostly as HTML that a template makes (`html`), and in the notebook (`cells`).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from overlap import OverlapError
from overlap.book import value as values
from overlap.run.derived import NotDerived

if TYPE_CHECKING:
    from overlap.book.blocks.snippet import SnippetBlock
    from overlap.book.book import Book
    from overlap.site.notebook import Notebook
    from overlap.site.view import View

#: The page that explains the syntax; its numbers are examples.
HOUSE_RULES = "contributing.md"


@cache
def read_template(name: str) -> str:
    """The text of a template that stands beside this file."""
    return Path(__file__).with_name("templates").joinpath(f"{name}.html").read_text(encoding="utf-8")


def markdown_table(rows: list[list[str]]) -> str:
    """Rows of cells as a table in Markdown; the first one has the headings."""
    headings, *others = rows
    lines = [headings, ["---"] * len(headings), *others]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


class Source(NamedTuple):
    """A fence as it is written: ```` ```kind argument ````, then the lines of its body."""

    kind: str
    argument: str
    body: list[str]
    page: str
    line: int

    @property
    def snippet(self) -> str:
        """The snippet that the argument names."""
        return self.argument.removesuffix(".py")

    @property
    def conditioned(self) -> tuple[str, str]:
        """Snippet and condition of the argument `chapter/snippet for CONDITION`; perhaps empty."""
        snippet, _, condition = self.argument.partition(" for ")
        return snippet, condition

    def rows(self) -> list[str]:
        """Lines of the body that are not empty."""
        return [row.strip() for row in self.body if row.strip()]

    def options(self, *names: str) -> tuple[dict[str, str], list[str]]:
        """The rows `name: text` of these names, the first of each; and the other rows."""
        options: dict[str, str] = {}
        others = []
        for row in self.rows():
            name, colon, text = row.partition(":")
            if colon and name.strip() in names and name.strip() not in options:
                options[name.strip()] = text.strip()
            else:
                others.append(row)
        return options, others

    def numbered_rows(self) -> Iterator[tuple["Source", list[str]]]:
        """The cells between `|` of each line that is not empty, each with its own place for messages."""
        for line, row in enumerate(self.body, self.line + 1):
            if row.strip():
                yield self._replace(line=line), [cell.strip() for cell in row.split("|")]

    def paragraphs(self) -> Iterator["Source"]:
        """What empty lines part in the body, each with its own place for messages."""
        lines = enumerate(self.body, self.line + 1)
        for filled, paragraph in groupby(lines, lambda line: bool(line[1].strip())):
            if filled:
                numbers, body = zip(*paragraph, strict=True)
                yield self._replace(line=numbers[0], body=list(body))

    def refuse(self, reason: str, remedy: str) -> OverlapError:
        """The error that says where, why, and what to write."""
        return OverlapError(f"docs/{self.page}:{self.line}: {reason}; {remedy}")


@dataclass(frozen=True)
class Block:
    """Part of a page."""

    page: str
    line: int

    #: The word that opens the fence.
    kind: ClassVar[str] = ""

    @classmethod
    def read(cls, source: Source) -> "Block":
        """Make the block of a fence that has neither argument nor body; other kinds read theirs."""
        if source.argument or source.rows():
            raise source.refuse(f"{source.kind} has no argument and no body", "leave them out")
        return cls(source.page, source.line)

    @classmethod
    def read_all(cls, source: Source) -> list["Block"]:
        """The blocks of a fence: of most kinds it holds one."""
        return [cls.read(source)]

    @property
    def where(self) -> str:
        """Its place, for messages."""
        return f"docs/{self.page}:{self.line}"

    @property
    def prose(self) -> "Text | None":
        """Markdown that readers read in it."""
        return None

    def values_in(self, book: "Book") -> list[values.Value]:
        """The values in it: of its prose, where it has some."""
        return [value for _, value in values.values(self.prose.text)] if self.prose else []

    @property
    def snippets(self) -> tuple["SnippetBlock", ...]:
        """The snippets that it shows."""
        return ()

    def check(self, book: "Book") -> Iterator[str]:
        """What is wrong with it, so that no build goes on."""
        if self.prose:
            yield from self.prose.check(book)

    def remarks(self, book: "Book") -> Iterator[str]:
        """What its author should mend, and what stops no build."""
        yield from ()

    def markdown(self, view: "View") -> str:
        """What stands in its place in the page's Markdown."""
        return f"\n{view.stash(self.html(view))}\n"

    def html(self, view: "View") -> str:
        """How it looks on the page."""
        raise NotImplementedError

    def cells(self, notebook: "Notebook") -> list[dict]:
        """Its cells in the notebook: its prose, if it has some; or none."""
        return self.prose.cells(notebook) if self.prose else []


@dataclass(frozen=True)
class Text(Block):
    """Markdown that is passed on as it is, but for the values in it."""

    text: str

    @property
    def prose(self) -> "Text":
        """This block: all of its text is for readers."""
        return self

    def check(self, book: "Book") -> Iterator[str]:
        """Numbers that are typed in, values without data, marks of unknown claims."""
        for offset, value in values.values(self.text):
            try:
                book.statistics(value)
            except NotDerived:
                continue  # `overlap check` says it once
            except OverlapError as error:
                yield f"{self._at(offset)}: {error}"
        if self.page == HOUSE_RULES:
            return
        for offset, number in values.typed_numbers(self.text):
            remedy = "take it from a run as a value, or write {printed: …} if a source printed it"
            yield f"{self._at(offset)}: `{number.strip()}` is typed in by hand; {remedy}"
        names = [block.name for block in book.pages[self.page].blocks if block.kind == "claim" and block.name]
        for offset, name in values.cited(self.text):
            if name not in names:
                known = f"there are {', '.join(sorted(names))}" if names else "none has a name yet"
                yield f"{self._at(offset)}: no claim of this page is named {name!r}; {known}"

    def _at(self, offset: int) -> str:
        return f"docs/{self.page}:{self.line + offset}"

    def markdown(self, view: "View") -> str:
        """The text; the Markdown extension takes care of its values."""
        return self.text

    def cells(self, notebook: "Notebook") -> list[dict]:
        """One cell with the values of one machine."""
        return [notebook.prose(self.text)] if self.text.strip() else []
