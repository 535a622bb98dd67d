"""Headline rates: what a reader asks of a machine first, on all machines and beside their ceilings. `overlap verify` measures them."""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from overlap import OverlapError
from overlap.book.blocks.block import Block, Source
from overlap.book.expression import Undecided, evaluate, parse
from overlap.book.statistic import Statistic, is_number, middle, show
from overlap.book.value import Value

_FORM = "write `label | unit | chapter/snippet: expression | expression of the ceiling, or -`"
_TIMES = ("ns", "µs", "us", "ms", "s")


class Headline(NamedTuple):
    """One row: what is measured, in which unit, and the expression of what it cannot pass; empty where there is none."""

    label: str
    unit: str
    here: Value
    ceiling: str

    @property
    def is_time(self) -> bool:
        """Whether less is better: the unit says so."""
        return self.unit in _TIMES

    def snippets(self, book) -> set[str]:
        """The snippets that give it."""
        return {self.here.snippet} | book.reads(self.here.expression) | book.reads(self.ceiling)

    def measured(self, scope: dict) -> tuple[float, float | None, float | None]:
        """Value, ceiling and share in one run; of a time the share is how much of it is needed. Undecided where there is no value."""
        value = evaluate(self.here.expression, scope)
        if not is_number(value) or not 0 < value < math.inf:
            raise OverlapError(
                f"{self.here.snippet}: `{self.here.expression}` is {show(value)}, no number above zero; give a rate or a time"
            )
        try:
            ceiling = evaluate(self.ceiling, scope) if self.ceiling else None
        except Undecided:
            ceiling = None
        if ceiling is None:
            return value, None, None
        if not is_number(ceiling) or not 0 < ceiling < math.inf:
            raise OverlapError(
                f"{self.here.snippet}: `{self.ceiling}` is {show(ceiling)}, no number above zero; give a rate or a time"
            )
        return value, ceiling, ceiling / value if self.is_time else value / ceiling

    @property
    def bound_by(self) -> str | None:
        """What the ceiling is of: `arithmetic`, `memory`, `pcie`, or `other`; None where there is none."""
        kinds = {"arithmetic": r"ceiling\.\w+_tflop_s", "memory": r"ceiling\.hbm_", "pcie": r"ceiling\.pcie_"}
        found = (kind for kind, form in kinds.items() if re.search(form, self.ceiling))
        return next(found, "other") if self.ceiling else None


@dataclass(frozen=True)
class Headlines(Block):
    """```` ```headlines ````: rows of `label | unit | snippet: expression | expression of the ceiling, or -`."""

    rows: tuple[Headline, ...]

    kind: ClassVar[str] = "headlines"
    template: ClassVar[str] = """
<table>
<thead><tr><th>measured</th>{% for profile in profiles %}<th>{{ label(profile) }}</th>{% endfor %}</tr></thead>
<tbody>
{% for row, cells in table %}
<tr><td>{{ row }}</td>{% for profile in profiles %}<td data-machine="{{ profile }}" title="{{ cells[profile].origin }}">
{{- cells[profile].text }}{% if cells[profile].more %}<br><small>{{ cells[profile].more }}</small>{% endif %}</td>{% endfor %}</tr>
{% endfor %}
</tbody>
</table>"""

    @classmethod
    def read(cls, source: Source) -> "Headlines":
        """Read the rows."""
        rows = []
        for number, text in enumerate(source.body, source.line + 1):
            if text.strip():
                rows.append(
                    cls._row(source._replace(line=number), [cell.strip() for cell in text.split("|")])
                )
        if not rows:
            raise source.refuse("headlines without rows", _FORM)
        return cls(source.page, source.line, tuple(rows))

    @staticmethod
    def _row(place: Source, cells: list[str]) -> Headline:
        if len(cells) != 4 or not all(cells) or ":" not in cells[2]:
            raise place.refuse("not a row of headlines", _FORM)
        label, unit, here, ceiling = cells
        name, expression = (part.strip() for part in here.split(":", 1))
        ceiling = "" if ceiling == "-" else ceiling
        for each in filter(None, (expression, ceiling)):
            try:
                parse(each)
            except OverlapError as error:
                raise place.refuse(str(error), "mend the expression") from None
        return Headline(label, unit, Value(name, None, expression, ""), ceiling)

    def snippets(self, book) -> set[str] | None:
        """Snippets that the rows name, also in their expressions."""
        return set().union(*(row.snippets(book) for row in self.rows))

    def measured(self, book, row: Headline) -> dict[str, tuple[Statistic, Statistic]]:
        """Value and share of a row in all runs of each machine; nothing anywhere is an error."""
        found, why = {}, "it has no recording"
        for profile, run in book.runs(book.snippet(row.here.snippet).name).items():
            given = []
            for scope in book.scopes(row.here.snippet, run):
                try:
                    given.append(row.measured(scope))
                except Undecided as error:
                    why = str(error)
            if given:
                shares = tuple(share for _, _, share in given if share is not None)
                found[profile] = (
                    Statistic(tuple(value for value, _, _ in given), run.hosts),
                    Statistic(shares, run.hosts),
                )
        if not found:
            raise OverlapError(
                f"{self.where}: `{row.label}` has no value on any machine: {why}; mend it or record it"
            )
        return found

    def check(self, book, margins: bool) -> Iterator[str]:
        """Whether each row has values above zero, and a ceiling where it names one."""
        for row in self.rows:
            found = self.measured(book, row)
            if row.ceiling and not any(shares.values for _, shares in found.values()):
                yield f"{self.where}: `{row.label}`: `{row.ceiling}` is known of no machine; write - or mend it"

    @staticmethod
    def _cell(figures: tuple[Statistic, Statistic] | None) -> dict[str, str]:
        """What one machine's cell says: the median, the range of runs with the share, and how many runs."""
        if not figures:
            return {"text": "–", "more": "", "origin": "did not run there"}
        value, shares = figures
        more = (value.range(), f"{middle(shares.values):.0%}" if shares.values else "")
        return {
            "text": show(value.middle),
            "more": " · ".join(filter(None, more)),
            "origin": value.origin or "1 run",
        }

    def table(self, book) -> tuple[list[str], list[tuple[str, dict]]]:
        """The machines, and for each row its name and cells."""
        rows = [(row, self.measured(book, row)) for row in self.rows]
        profiles = [
            each["profile"] for each in book.machines() if any(each["profile"] in found for _, found in rows)
        ]
        cells = [{profile: self._cell(found.get(profile)) for profile in profiles} for _, found in rows]
        return profiles, [
            (f"{row.label}, {row.unit}", cell) for (row, _), cell in zip(rows, cells, strict=True)
        ]

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
            said = (
                f"{cell['text']} ({cell['more']})" if cell["more"] else cell["text"]
                for cell in cells.values()
            )
            lines.append([name, *map(notebook.text, said)])
        return [notebook.markdown("\n".join(f"| {' | '.join(line)} |" for line in lines))]
