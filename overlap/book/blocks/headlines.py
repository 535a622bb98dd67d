"""Headline rates: what a reader asks of a machine first, on all machines and beside their ceilings.

`overlap verify` measures them.
"""

import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from overlap import OverlapError
from overlap.book.blocks.block import Block, Source, read_template
from overlap.book.expression import Undecided, evaluate, parse
from overlap.book.statistic import Statistic, is_number, middle, show
from overlap.book.value import Value

_FORM = "write `label | unit | chapter/snippet: expression | expression of the ceiling, or -`"
_TIMES = ("ns", "µs", "us", "ms", "s")
#: What a ceiling is of, by its expression.
_CEILINGS = {"arithmetic": r"ceiling\.\w+_tflop_s", "memory": r"ceiling\.hbm_", "pcie": r"ceiling\.pcie_"}


class Headline(NamedTuple):
    """One row: what is measured, in which unit, and the expression of its ceiling; perhaps empty."""

    label: str
    unit: str
    here: Value
    ceiling: str

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

    def measured(self, scope: dict) -> tuple[float, float | None, float | None]:
        """Value, ceiling and share in one run; of a time the share is how much of it is needed.

        Undecided where there is no value.
        """
        value = self._amount(self.here.expression, scope)
        if not self.ceiling:
            return value, None, None
        try:
            ceiling = self._amount(self.ceiling, scope)
        except Undecided:
            return value, None, None
        return value, ceiling, ceiling / value if self.is_time else value / ceiling

    def over(self, scopes: Iterable[dict]) -> tuple[list[float], list[float], str]:
        """Values and shares in those runs that have them; or why there is none."""
        values = []
        shares = []
        why = "it has no recording"
        for scope in scopes:
            try:
                value, _, share = self.measured(scope)
            except Undecided as error:
                why = str(error)
                continue
            values.append(value)
            if share is not None:
                shares.append(share)
        return values, shares, why

    def _amount(self, expression: str, scope: dict) -> float:
        number = evaluate(expression, scope)
        if not is_number(number) or not 0 < number < math.inf:
            reason = f"`{expression}` is {show(number)}, no number above zero"
            raise OverlapError(f"{self.here.snippet}: {reason}; give a rate or a time")
        return number


class Cell(NamedTuple):
    """What a row says of one machine: the median, the range of runs with the share, and how many runs."""

    text: str = "–"
    more: str = ""
    origin: str = "did not run there"


@dataclass(frozen=True)
class Headlines(Block):
    """```` ```headlines ````: rows of `label | unit | snippet: expression | ceiling, or -`.

    Without rows it shows those of another page.
    """

    rows: tuple[Headline, ...]

    kind: ClassVar[str] = "headlines"
    template: ClassVar[str] = read_template("headlines")

    @classmethod
    def read(cls, source: Source) -> "Headlines":
        """Read the rows."""
        rows = []
        for line, text in enumerate(source.body, source.line + 1):
            if text.strip():
                rows.append(_headline(source._replace(line=line), text))
        return cls(source.page, source.line, tuple(rows))

    def board(self, book) -> "Headlines":
        """The block with the rows."""
        for block in [self, *book.blocks]:
            if isinstance(block, Headlines) and block.rows:
                return block
        raise OverlapError(f"{self.where}: headlines without rows; {_FORM}")

    def measured(self, book, row: Headline) -> dict[str, tuple[Statistic, Statistic]]:
        """Value and share of a row in all runs of each machine; nothing anywhere is an error."""
        statistics = {}
        why = "it has no recording"
        for profile, run in book.runs(book.snippet(row.here.snippet).name).items():
            values, shares, why = row.over(book.scopes(row.here.snippet, run))
            if values:
                statistics[profile] = Statistic(tuple(values), run.hosts), Statistic(tuple(shares), run.hosts)
        if not statistics:
            reason = f"`{row.label}` has no value on any machine: {why}"
            raise OverlapError(f"{self.where}: {reason}; mend it or record it")
        return statistics

    def check(self, book, margins: bool) -> Iterator[str]:
        """Whether there are rows, each with values above zero, and a ceiling where it names one."""
        if not book.library.lost_pages:
            self.board(book)
        for row in self.rows:
            statistics = self.measured(book, row)
            if row.ceiling and not any(shares.values for _, shares in statistics.values()):
                reason = f"`{row.label}`: `{row.ceiling}` is known of no machine"
                yield f"{self.where}: {reason}; write - or mend it"

    def table(self, book) -> tuple[list[str], list[tuple[str, dict[str, Cell]]]]:
        """The machines, and for each row its name and cells."""
        rows = {row: self.measured(book, row) for row in self.board(book).rows}
        everywhere = [machine["profile"] for machine in book.machines()]
        profiles = [profile for profile in everywhere if any(profile in row for row in rows.values())]
        table = []
        for row, statistics in rows.items():
            cells = {profile: _cell(statistics.get(profile)) for profile in profiles}
            table.append((f"{row.label}, {row.unit}", cells))
        return profiles, table

    def html(self, view) -> str:
        """A table with one column per machine."""
        profiles, rows = self.table(view.book)
        rows = [(view.inline(name), cells) for name, cells in rows]
        return view.render(self.template, profiles=profiles, table=rows)

    def cells(self, notebook) -> list[dict]:
        """The same table in Markdown."""
        profiles, rows = self.table(notebook.book)
        lines = [["measured", *map(notebook.label, profiles)], ["---"] * (1 + len(profiles))]
        for name, cells in rows:
            texts = [f"{cell.text} ({cell.more})" if cell.more else cell.text for cell in cells.values()]
            lines.append([name, *map(notebook.text, texts)])
        return [notebook.markdown("\n".join(f"| {' | '.join(line)} |" for line in lines))]


def _headline(place: Source, text: str) -> Headline:
    cells = [cell.strip() for cell in text.split("|")]
    if len(cells) != 4 or not all(cells) or ":" not in cells[2]:
        raise place.refuse("not a row of headlines", _FORM)
    label, unit, here, ceiling = cells
    name, expression = (part.strip() for part in here.split(":", 1))
    if ceiling == "-":
        ceiling = ""
    try:
        parse(expression)
        parse(ceiling or "1")
    except OverlapError as error:
        raise place.refuse(str(error), "mend the expression") from None
    return Headline(label, unit, Value(name, None, expression, ""), ceiling)


def _cell(statistics: tuple[Statistic, Statistic] | None) -> Cell:
    if not statistics:
        return Cell()
    values, shares = statistics
    parts = [values.range()]
    if shares.values:
        parts.append(f"{middle(shares.values):.0%}")
    more = " · ".join(part for part in parts if part)
    return Cell(show(values.middle), more, values.origin or "1 run")
