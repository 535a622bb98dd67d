"""Bars: a few values of one snippet on one scale, each with the share that is filled; words stand on them."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from overlap import OverlapError
from overlap.book import select
from overlap.book.blocks.block import Block, Source, markdown_table, read_template
from overlap.book.evaluation import speaks_of
from overlap.book.statistic import is_number, show
from overlap.book.value import Value, key

if TYPE_CHECKING:
    from overlap.book.book import Book
    from overlap.site.notebook import Notebook
    from overlap.site.view import View

_FORM = (
    "write `unit: …`, `filled: …` and `empty: …`, then rows of `label | expression | expression of the share`"
)
_OPTIONS = ("unit", "filled", "empty")


class Bar(NamedTuple):
    """One row: what it is, how long it is, and how much of it is filled."""

    label: str
    length: Value
    share: Value


@dataclass(frozen=True)
class Bars(Block):
    """```` ```bars chapter/snippet ````, perhaps `for` a condition: a unit, two words, rows.

    A row is `label | expression | expression of the share that is filled`.
    """

    snippet: str
    condition: str
    unit: str
    filled: str
    empty: str
    rows: tuple[Bar, ...]

    kind: ClassVar[str] = "bars"

    @classmethod
    def read(cls, source: Source) -> "Bars":
        """Read the words and the rows."""
        snippet, condition = source.conditioned
        words, others = source.options(*_OPTIONS)
        rows = []
        for row in others:
            cells = [cell.strip() for cell in row.split("|")]
            if len(cells) != 3 or not all(cells):
                raise source.refuse(f"`{row}` is no line of bars", _FORM)
            length, share = (Value(snippet, None, cell, "") for cell in cells[1:])
            rows.append(Bar(cells[0], length, share))
        if not rows or len(words) < len(_OPTIONS):
            raise source.refuse("bars without rows, a unit or words", _FORM)
        return cls(source.page, source.line, snippet, condition, **words, rows=tuple(rows))

    @property
    def key(self) -> str:
        """Identifies them among all bars."""
        return key(self.snippet, self.condition, [(str(row.length), str(row.share)) for row in self.rows])

    def check(self, book: "Book") -> Iterator[str]:
        """Whether each row has a length, and a share of it."""
        yield from super().check(book)
        self.lengths(book)

    def lengths(self, book: "Book") -> dict[str, list[tuple[str, float, float]]]:
        """Label, length and share of each row, by machine that the condition speaks of and that has all."""
        machines = {}
        recordings = book.recordings(self.snippet)
        for profile, numbers in book.table([value for row in self.rows for value in row[1:]]).items():
            if not speaks_of(self.condition, recordings[profile]):
                continue
            machines[profile] = []
            for row, length, share in zip(self.rows, numbers[::2], numbers[1::2], strict=True):
                if not is_number(length) or not is_number(share) or length <= 0 or not 0 <= share <= 1:
                    reason = f"`{row.label}` is {length}, of which {share}, on {profile}"
                    raise OverlapError(f"{reason}; give a length above zero and a share of it")
                machines[profile].append((row.label, length, share))
        if not machines:
            raise OverlapError("no machine has all of these bars; mend them or the condition")
        return machines

    def html(self, view: "View") -> str:
        """A tab for each machine."""
        machines = self.lengths(view.book)
        tabs = {}
        for profile, rows in machines.items():
            longest = max(length for _, length, _ in rows)
            names = {"profile": profile, "rows": rows, "longest": longest, "words": self}
            tabs[profile] = view.render(read_template("bars"), **names)
        return view.tabs(tabs, view.first(machines, self.snippet))

    def cells(self, notebook: "Notebook") -> list[dict]:
        """The lengths on one machine, as a table."""
        machines = self.lengths(notebook.book)
        profile = select.of_values(notebook.book, machines, self.snippet)
        rows = [["", f"{self.unit}, {notebook.label(profile)}", self.filled]]
        rows += [[label, show(length), f"{share:.0%}"] for label, length, share in machines[profile]]
        return [notebook.markdown(markdown_table(rows))]
