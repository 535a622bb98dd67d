"""A scoreboard: what sources printed, beside what it takes here and what it can take at best."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from overlap import OverlapError
from overlap.book.blocks.block import Block, Source
from overlap.book.expression import show
from overlap.book.value import Value

_FORM = "write `label | milliseconds | chapter/snippet: expression | limit or -`"


class Score(NamedTuple):
    """One row, in milliseconds: what a source printed, what it takes here, what it can take at best."""

    label: str
    printed: float
    here: Value
    limit: Value | None


@dataclass(frozen=True)
class Scoreboard(Block):
    """```` ```scoreboard ````: rows of `label | printed ms | snippet: expression | expression of the limit, or -`."""

    scores: tuple[Score, ...]

    kind: ClassVar[str] = "scoreboard"
    #: Bars are at most this wide, in per cent; their text stands behind them.
    widest: ClassVar[int] = 58
    template: ClassVar[str] = """
{% macro bar(ms, kind, limit=none, machine=none, text="") %}
<span class="ov-bar {{ kind }}" style="--w:{{ width(ms) }}%{% if limit %};--l:{{ width(limit) }}%{% endif %}"{% if machine %} data-machine="{{ machine }}"{% endif %}><b>{{ show(ms) }} ms</b> {{ text }}</span>
{%- endmacro %}
<div class="ov-scoreboard">
{% for label_, printed, here, limits, first in rows %}
<div class="ov-score"><p>{{ label_ }}</p>{{ bar(printed, "ov-theirs", text="printed") }}<div class="ov-value">
{%- for profile, ms in here.items() %}
{{- bar(ms, "ov-ours" ~ (" ov-limited" if profile in limits) ~ (" ov-on" if profile == first), limits.get(profile), profile,
        "on " ~ label(profile) ~ (" · limit " ~ show(limits[profile]) ~ " ms" if profile in limits else "")) }}
{%- endfor %}</div></div>
{% endfor %}
</div>"""

    @classmethod
    def read(cls, source: Source) -> "Scoreboard":
        """Read the rows."""
        scores = []
        for number, row in enumerate(source.body, source.line + 1):
            if row.strip():
                scores.append(cls._score(source._replace(line=number), [cell.strip() for cell in row.split("|")]))
        if not scores:
            raise source.refuse("a scoreboard without rows", _FORM)
        return cls(source.page, source.line, tuple(scores))

    @staticmethod
    def _score(place: Source, cells: list[str]) -> Score:
        try:
            label, printed, here, limit = cells
            name, _, expression = here.partition(":")
            ms = float(printed)
        except ValueError:
            raise place.refuse("not a row of a scoreboard", _FORM) from None
        if not 0 < ms < math.inf:
            raise place.refuse(f"{printed} is no time above zero", _FORM)
        values = [Value(name.strip(), None, text.strip(), "") if text != "-" else None for text in (expression, limit)]
        return Score(label, ms, *values)

    @property
    def values(self) -> list[Value]:
        """All values of all rows."""
        return [value for score in self.scores for value in (score.here, score.limit) if value]

    def times(self, book, value: Value | None) -> dict[str, float]:
        """Milliseconds per machine; what is no time above zero is an error."""
        found = book.numbers(value) if value else {}
        for profile, ms in found.items():
            if isinstance(ms, bool) or not isinstance(ms, (int, float)) or not 0 < ms < math.inf:
                said = f"`{value.expression}` is {show(ms)} on {profile}, no time above zero"
                raise OverlapError(f"{self.where}: {value.snippet}: {said}; give milliseconds")
        return found

    def snippets(self, book) -> set[str] | None:
        """Snippets that the rows name, also in their expressions."""
        return {value.snippet for value in self.values}.union(*(book.reads(value.expression) for value in self.values))

    def check(self, book, margins: bool) -> Iterator[str]:
        """Whether each row has its times."""
        for value in self.values:
            self.times(book, value)
        yield from ()

    def html(self, view) -> str:
        """Bars on one scale, from zero."""
        rows = []
        for score in self.scores:
            here, limits = (self.times(view.book, value) for value in (score.here, score.limit))
            rows.append((score.label, score.printed, here, limits, view.book.first(here, score.here.snippet)))
        numbers = [ms for _, printed, here, limits, _ in rows for ms in (printed, *here.values(), *limits.values())]

        def width(ms: float) -> str:
            return f"{self.widest * ms / max(numbers):.2f}"

        return view.render(self.template, rows=rows, width=width)

    def cells(self, notebook) -> list[dict]:
        """The same as a list."""
        rows = []
        for score in self.scores:
            here = self.times(notebook.book, score.here)
            profile = notebook.book.first(here, score.here.snippet)
            said = f"{score.label}: printed {show(score.printed)} ms, here {show(here[profile])} ms on {notebook.label(profile)}"
            rows.append(f"- {notebook.text(said)}")
        return [notebook.markdown("\n".join(rows))]
