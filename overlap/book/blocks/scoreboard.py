"""A scoreboard: figures that sources printed, beside the same measured their way and the right way."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from overlap import OverlapError
from overlap.book.blocks.block import Block, Source, Text, read_template
from overlap.book.statistic import is_number, show
from overlap.book.value import VALUE, Value
from overlap.run import machine

_FORM = (
    "write `label | unit | printed | chapter/snippet: expression of it measured its way | the same of the "
    "right way | expression of the ceiling | verdict`, and - for what there is not"
)
_HEADINGS = ("what", "printed", "its way", "right way", "ceiling", "verdict")
_LEAST, _MOST = 1e-12, 1e12
_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


class Score(NamedTuple):
    """One row: what a source printed, and what was measured its way and the right way, or None."""

    line: int
    label: str
    unit: str
    printed: str
    its_way: Value | None
    right_way: Value | None
    ceiling: Value | None
    verdict: str

    @property
    def behind(self) -> str:
        """The unit as it stands behind a number."""
        if self.unit in ("-", "×"):
            return self.unit.removeprefix("-")
        return f"\N{NO-BREAK SPACE}{self.unit}"

    @property
    def markdown(self) -> str:
        """The row of the table; the unit stands where the printed figure does."""
        values = (self.its_way, self.right_way, self.ceiling)
        measured = [f"{{{value}}}" if value else "–" for value in values]
        return _line(self.label, f"{{printed: {self.printed}{self.behind}}}", *measured, self.verdict)

    def measured(self, book) -> dict[str, list[float | None]]:
        """Printed, its way, the right way and the ceiling, per machine; what is no amount is an error."""
        its_way = _amounts(book, self.its_way)
        right_way = _amounts(book, self.right_way)
        ceiling = _amounts(book, self.ceiling)
        if right_way and not right_way.keys() & its_way.keys():
            reason = f"`{self.right_way}` has no machine in common with its way"
            raise OverlapError(f"{reason}; record it there, or write -")
        printed = float(self.printed)
        return {p: [printed, number, right_way.get(p), ceiling.get(p)] for p, number in its_way.items()}

    def gain(self, number: float) -> float:
        """How many times better than printed: of a factor (×) and a rate (…/s) more is better, else less."""
        ratio = number / float(self.printed)
        return ratio if self.unit == "×" or self.unit.endswith("/s") else 1 / ratio


@dataclass(frozen=True)
class Scoreboard(Block):
    """```` ```scoreboard ````: rows of `label | unit | printed | its way | right way | ceiling | verdict`.

    ```` ```scoreboard picture ````, on any page: these rows as a picture; its body is the caption.
    """

    rows: tuple[Score, ...]
    caption: str = ""

    kind: ClassVar[str] = "scoreboard"
    #: Marks of the picture, in the order of a row's numbers.
    marks: ClassVar[dict[str, str]] = {
        "ov-then": "printed",
        "ov-its": "measured its way",
        "ov-right": "the right way",
        "ov-limit": "ceiling",
    }
    template: ClassVar[str] = read_template("scoreboard")

    @classmethod
    def read(cls, source: Source) -> "Scoreboard":
        """Read the rows, or the caption of the picture."""
        if source.argument == "picture" and source.rows():
            return cls(source.page, source.line, (), " ".join(source.rows()))
        if source.argument:
            reason = f"`scoreboard {source.argument}` is unknown, or has no caption"
            raise source.refuse(reason, "write `scoreboard` and rows, or `scoreboard picture` and a caption")
        body = enumerate(source.body, source.line + 1)
        rows = tuple(_score(source._replace(line=line), row) for line, row in body if row.strip())
        if not rows:
            raise source.refuse("a scoreboard without rows", _FORM)
        return cls(source.page, source.line, rows)

    @property
    def prose(self) -> Text:
        """The table, or the caption."""
        lines = [_line(*_HEADINGS), _line(*["---"] * len(_HEADINGS)), *(row.markdown for row in self.rows)]
        return Text(self.page, self.line + 1, self.caption or "\n".join(lines))

    def board(self, book) -> "Scoreboard":
        """The one with the rows."""
        for block in [self, *book.blocks]:
            if isinstance(block, Scoreboard) and block.rows:
                return block
        raise OverlapError(f"{self.where}: a picture of a scoreboard that no page has; {_FORM}")

    def check(self, book, margins: bool) -> Iterator[str]:
        """Whether each row has its amounts, none beats its ceiling, and nothing else is typed in."""
        if self.caption:
            yield from self.prose.check(book, margins)
            if not book.library.lost_pages:
                self.board(book)
        for row in self.rows:
            yield from Text(self.page, row.line, f"{row.label} {row.verdict}").check(book, margins)
            where = f"docs/{self.page}:{row.line}"
            try:
                measured = row.measured(book)
            except OverlapError as error:
                yield f"{where}: {error}"
                continue
            above = []
            for profile, (_, _, right_way, ceiling) in measured.items():
                if right_way and ceiling and row.gain(right_way) > row.gain(ceiling):
                    above.append(profile)
            if above:
                reason = f"`{row.right_way}` is better than its ceiling on {', '.join(above)}"
                yield f"{where}: {reason}; mend the expression that is wrong"

    def markdown(self, view) -> str:
        """The table; or the picture with its caption."""
        if self.caption:
            return f"\n{view.put(self.html(view))}\n{view.captioned('', self.caption)}\n"
        return f'\n<div class="ov-numbers-printed" markdown>\n\n{self.prose.text}\n\n</div>\n'

    def html(self, view) -> str:
        """The marks of each row with a measured way, on one scale: how many times better than printed."""
        rows = []
        logarithms = [0.0]
        for row in self.board(view.book).rows:
            measured = row.measured(view.book)
            machines = []
            for profile, numbers in measured.items():
                text, gains = self._marked(row, profile, numbers)
                machines.append((profile, text, gains))
                logarithms += map(math.log10, gains.values())
            if machines:
                first = view.book.first(measured, row.its_way.snippet)
                rows.append((view.inline(row.label), machines, first))
        low = math.floor(min(logarithms))
        high = max(math.ceil(max(logarithms)), 1)

        def place(gain: float) -> float:
            return round(100 * (math.log10(gain) - low) / (high - low), 2)

        ticks = range(low, high + 1)
        return view.render(self.template, marks=self.marks, rows=rows, ticks=ticks, place=place, power=_power)

    def _marked(self, row: Score, profile: str, numbers: list) -> tuple[str, dict[str, float]]:
        """What the marks of one machine say, and their gains by kind of mark."""
        parts = []
        gains = {}
        for (mark, words), number in zip(self.marks.items(), numbers, strict=True):
            if number:
                parts.append(f"{words} {show(number)}{row.behind}")
                gains[mark] = row.gain(number)
        return " · ".join([*parts, f"on {machine.label(profile)}"]), gains

    def cells(self, notebook) -> list[dict]:
        """The table, or the caption."""
        return self.prose.cells(notebook)


def _score(place: Source, row: str) -> Score:
    cells = [cell.strip() for cell in row.split("|")]
    if len(cells) != 7 or not all(cells):
        raise place.refuse("not a row of a scoreboard", _FORM)
    label, unit, printed, *texts, verdict = cells
    try:
        is_amount = _LEAST <= float(printed) <= _MOST
    except ValueError:
        is_amount = False
    if not is_amount:
        raise place.refuse(f"`{printed}` is no amount above zero", _FORM)
    snippet = texts[0].partition(":")[0]  # also of a value that names none
    values = []
    for text in texts:
        match = VALUE.fullmatch(f"{{{text}}}") or VALUE.fullmatch(f"{{{snippet}: {text}}}")
        if text != "-" and not match:
            raise place.refuse(f"`{text}` is no value of a snippet", _FORM)
        values.append(Value.parse(match) if text != "-" else None)
    return Score(place.line, label, unit, printed, *values, verdict)


def _line(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _amounts(book, value: Value | None) -> dict[str, float]:
    numbers = book.numbers(value) if value else {}
    for profile, number in numbers.items():
        if not is_number(number) or not _LEAST <= number <= _MOST:
            reason = f"`{value.expression}` is {show(number)} on {profile}, no amount above zero"
            raise OverlapError(f"{value.snippet}: {reason}; give a number from {_LEAST:g} to {_MOST:g}")
    return numbers


def _power(exponent: int) -> str:
    """A power of ten as a factor."""
    if -4 < exponent < 4:
        return f"{10.0**exponent:g}×"
    return f"10{str(exponent).translate(_RAISED)}×"
