"""What every kind of block can do, and the one that is no fence: text."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, NamedTuple

from overlap import OverlapError
from overlap.book import value as values

#: The page that explains the syntax; its numbers are examples.
HOUSE_RULES = "contributing.md"


def read_template(name: str) -> str:
    """The text of a template that stands beside this file."""
    return Path(__file__).with_name("templates").joinpath(f"{name}.html").read_text(encoding="utf-8")


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

    def rows(self) -> list[str]:
        """Lines of the body that are not empty."""
        return [row.strip() for row in self.body if row.strip()]

    def refuse(self, reason: str, remedy: str) -> OverlapError:
        """The error that says where, why, and what to write."""
        return OverlapError(f"docs/{self.page}:{self.line}: {reason}; {remedy}")


@dataclass(frozen=True)
class Block:
    """Part of a page.

    It draws itself with `view`, a `View` of overlap.site.view, and `notebook`, a `Notebook` of overlap.site.
    """

    page: str
    line: int

    #: The word that opens the fence.
    kind: ClassVar[str] = ""
    #: Headings of this kind's index, the first ones if the book adds more; without any there is none.
    columns: ClassVar[tuple[str, ...]] = ()
    #: Whether the rows of the index are cards on a phone, and no matrix.
    cards: ClassVar[bool] = True

    @classmethod
    def read(cls, source: Source) -> "Block":
        """Make the block of a fence; what is written wrongly is an error with its place."""
        raise NotImplementedError

    @property
    def where(self) -> str:
        """Its place, for messages."""
        return f"docs/{self.page}:{self.line}"

    @property
    def prose(self) -> "Text | None":
        """Markdown that readers read in it."""
        return None

    def check(self, book, margins: bool) -> Iterator[str]:
        """What is wrong with it; `margins`: also what is right by a hair."""
        yield from ()

    def markdown(self, view) -> str:
        """What stands in its place in the page's Markdown."""
        return f"\n{view.put(self.html(view))}\n"

    def html(self, view) -> str:
        """How it looks on the page."""
        raise NotImplementedError

    def cells(self, notebook) -> list[dict]:
        """Its cells in the notebook."""
        raise NotImplementedError

    def key(self) -> object:
        """What makes it one entry of the index: blocks of one key share it."""
        return self

    def listed(self, book) -> bool:
        """Whether the index leads here, of the blocks of one key to the first that says so."""
        return True

    def row(self, view) -> list[str]:
        """Its cells in the index, as HTML."""
        raise NotImplementedError

    @classmethod
    def headings(cls, view) -> list[str]:
        """Headings of the index, as HTML."""
        return list(cls.columns)

    @classmethod
    def overview(cls, view, sections: dict[str, list["Block"]]) -> str:
        """What stands above the index, as HTML; `sections` are the blocks by the name of their page."""
        return ""


@dataclass(frozen=True)
class Text(Block):
    """Markdown that is passed on as it is, but for the values in it."""

    text: str

    @property
    def prose(self) -> "Text":
        """All of it."""
        return self

    def check(self, book, margins: bool) -> Iterator[str]:
        """Numbers that are typed in, values that nothing gives, marks of claims that there are not."""
        for offset, value in values.values(self.text):
            try:
                book.value(value)
            except OverlapError as error:
                yield f"{self._at(offset)}: {error}"
        if self.page == HOUSE_RULES:
            return
        for offset, number in values.typed_numbers(self.text):
            remedy = "take it from a run as a value, or write {printed: …} if a source printed it"
            yield f"{self._at(offset)}: `{number.strip()}` is typed in by hand; {remedy}"
        claims = {
            getattr(block, "name", "") for block in book.pages[self.page].blocks if block.kind == "claim"
        }
        named = ", ".join(sorted(claims - {""}))
        for offset, name in values.cited(self.text):
            if name not in claims:
                known = f"named are {named}" if named else "none has a name yet"
                yield f"{self._at(offset)}: no claim of this page is named {name!r}; {known}"

    def _at(self, offset: int) -> str:
        return f"docs/{self.page}:{self.line + offset}"

    def markdown(self, view) -> str:
        """The text; the Markdown extension takes care of its values."""
        return self.text

    def cells(self, notebook) -> list[dict]:
        """One cell with the values of one machine."""
        return [notebook.prose(self.text)] if self.text.strip() else []
