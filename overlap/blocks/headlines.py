"""Headline rates: what a reader asks of a machine first, on all machines and beside their ceilings.

`overlap verify` measures them.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from overlap import OverlapError
from overlap.blocks.block import Block, Notebook, Pages, Source, View, markdown_table, read_template
from overlap.book.book import Book
from overlap.book.expression import over, parse
from overlap.book.recording import Recording, disturbed, hosts
from overlap.book.statistic import Statistic, is_number, middle, show
from overlap.book.value import key

_FORM = "write `label | unit | chapter/snippet: expression | expression of the ceiling, or -`"
_TIMES = ("ns", "µs", "us", "ms", "s")
#: What a ceiling is of, by its expression.
_CEILINGS = {"arithmetic": r"ceiling\.\w+_tflop_s", "memory": r"ceiling\.hbm_", "pcie": r"ceiling\.pcie_"}


class Rate(NamedTuple):
    """What is measured on one machine, as text: median, range, share of which ceiling, how many runs."""

    text: str
    range: str
    share: str
    origin: str

    @property
    def more(self) -> str:
        """Range and share."""
        return " · ".join(part for part in (self.range, self.share) if part)

    @property
    def for_scripts(self) -> list[str]:
        """What a cell of the table shows: its text, what is below, and where it is from."""
        return [self.text, self.more, self.origin]


#: Where a machine has no value.
NO_RATE = Rate("–", "", "", "did not run there")


class Headline(NamedTuple):
    """One row: what is measured, in which unit, and the expression of its ceiling; perhaps empty."""

    label: str
    unit: str
    snippet: str
    expression: str
    ceiling: str

    @classmethod
    def read(cls, place: Source, cells: list[str]) -> "Headline":
        """Read a row."""
        if len(cells) != 4 or not all(cells) or ":" not in cells[2]:
            raise place.refuse("not a row of headlines", _FORM)
        label, unit, here, ceiling = cells
        snippet, expression = (part.strip() for part in here.split(":", 1))
        try:
            parse(expression)
            if ceiling != "-":
                parse(ceiling)
        except OverlapError as error:
            raise place.refuse(str(error), "mend the expression") from None
        return cls(label, unit, snippet, expression, ceiling.removeprefix("-"))

    @property
    def key(self) -> str:
        """Identifies it among all rows."""
        return key(self.snippet, self.expression, self.ceiling, self.unit)

    @property
    def title(self) -> str:
        """What it is called in a table."""
        return f"{self.label}, {self.unit}"

    @property
    def is_time(self) -> bool:
        """Whether less is better: the unit says so."""
        return self.unit in _TIMES

    @property
    def bound_by(self) -> str | None:
        """What the ceiling is of: `arithmetic`, `memory`, `pcie`, or `other`; None where there is none."""
        if not self.ceiling:
            return None
        return next((kind for kind, form in _CEILINGS.items() if re.search(form, self.ceiling)), "other")

    @property
    def share(self) -> str:
        """The expression of how much of the ceiling is reached."""
        return f"({self.expression}) / ({self.ceiling})" if self.ceiling else ""

    def amounts(self, expression: str, scopes: Iterable[dict]) -> list[float]:
        """What one of its expressions gives in those runs that have data for it, each above zero."""
        numbers = over(expression, scopes) if expression else []
        for number in numbers:
            if not is_number(number) or number <= 0:
                reason = f"`{expression}` is {show(number)}, no number above zero"
                raise OverlapError(f"{self.snippet}: {reason}; give a rate or a time")
        return numbers

    def measured(self, book: Book, recording: Recording) -> tuple[list[float], list[float], list[float]]:
        """Values, ceilings and shares of the ceiling, each of those runs that have data for it."""
        scopes = book.scopes(recording)
        values = self.amounts(self.expression, scopes)
        return values, self.amounts(self.ceiling, scopes), self.amounts(self.share, scopes)

    def by_machine(self, book: Book) -> dict[str, Rate]:
        """What is measured on each machine that has it."""
        rates = {}
        for machine, recording in book.recordings(self.snippet).items():
            values, ceilings, shares = self.measured(book, recording)
            if values:
                runs = recording.runs
                statistic = Statistic(tuple(values), hosts(runs), disturbed=disturbed(runs))
                share = f"{middle(shares):.0%} of {show(ceilings[0])}" if shares else ""
                origin = statistic.origin or "1 run"
                rates[machine] = Rate(statistic.text, statistic.range, share, origin)
        return rates

    def of_machine(self, book: Book, machine: str) -> list[str] | None:
        """What is measured on one machine, for scripts."""
        rate = self.by_machine(book).get(machine)
        return rate.for_scripts if rate else None


@dataclass(frozen=True)
class Headlines(Block):
    """```` ```headlines ````: rows of `label | unit | snippet: expression | ceiling, or -`.

    Without rows it shows those of all pages.
    """

    rows: tuple[Headline, ...]

    kind: ClassVar[str] = "headlines"

    @classmethod
    def read(cls, source: Source) -> "Headlines":
        """Read the rows."""
        rows = tuple(Headline.read(place, cells) for place, cells in source.numbered_rows())
        if source.argument:
            raise source.refuse(f"headlines have no argument {source.argument!r}", "leave it out")
        return cls(source.page, source.line, rows)

    @property
    def of_machines(self) -> tuple[Headline, ...]:
        """Its rows."""
        return self.rows

    def shown(self, pages: Pages) -> list[Headline]:
        """Its rows, or those of all pages."""
        return list(self.rows) or all_headlines(pages)

    def check(self, pages: Pages) -> Iterator[str]:
        """Whether there are rows, each with values above zero, and a ceiling where it names one."""
        if not self.shown(pages) and not pages.unreadable:
            yield f"{self.where}: headlines without rows; {_FORM}"
        for row in self.rows:
            scopes = []
            for recording in pages.book.recordings(row.snippet).values():
                scopes += pages.book.scopes(recording)
            if not row.amounts(row.expression, scopes):
                reason = f"`{row.label}`: `{row.expression}` has no value on any machine"
                yield f"{self.where}: {reason}; mend it or record it"
            elif row.ceiling and not row.amounts(row.ceiling, scopes):
                reason = f"`{row.label}`: `{row.ceiling}` is known of no machine"
                yield f"{self.where}: {reason}; write - or mend it"

    def table(self, pages: Pages) -> tuple[list[str], dict[str, dict[str, Rate]]]:
        """The machines that have a value; what is measured, by row and machine."""
        table = {row.title: row.by_machine(pages.book) for row in self.shown(pages)}
        everywhere = [machine["name"] for machine in pages.book.machines()]
        machines = [machine for machine in everywhere if any(machine in cells for cells in table.values())]
        for cells in table.values():
            for machine in machines:
                cells.setdefault(machine, NO_RATE)
        return machines, table

    def html(self, view: View) -> str:
        """A table with one column per machine."""
        machines, table = self.table(view.pages)
        keys = {row.title: row.key for row in self.shown(view.pages)}
        names = {"view": view, "machines": machines, "table": table, "keys": keys}
        return view.render(read_template("headlines"), **names)

    def cells(self, notebook: Notebook) -> list[dict]:
        """The table in Markdown."""
        machines, table = self.table(notebook.pages)
        rows = [["measured", *map(notebook.label, machines)]]
        for name, cells in table.items():
            row = [name]
            for machine in machines:
                more = f" ({cells[machine].more})" if cells[machine].more else ""
                row.append(notebook.text(cells[machine].text + more))
            rows.append(row)
        return [notebook.markdown(markdown_table(rows))]


def all_headlines(pages: Pages) -> list[Headline]:
    """The rows of all pages."""
    rows = []
    for block in pages.of_kind(Headlines):
        rows += block.rows
    return rows
