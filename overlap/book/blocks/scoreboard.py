"""A scoreboard: figures that sources printed, beside the same measured their way and the right way."""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from overlap import OverlapError
from overlap.book.blocks.block import Block, Source, Text, markdown_table, read_template
from overlap.book.statistic import TIME, is_number, show
from overlap.book.value import VALUE, Value
from overlap.run import machine

if TYPE_CHECKING:
    from overlap.book.book import Book
    from overlap.site.view import View

_FORM = (
    "write `label | unit | printed | chapter/snippet: expression of it measured its way | the same of the "
    "right way | expression of the ceiling | verdict`, and - for what there is not"
)
_HEADINGS = ["what", "printed", "its way", "right way", "ceiling", "verdict"]
#: Marks of the picture, in the order of a row's numbers.
_MARKS = {
    "ov-then": "printed",
    "ov-its": "measured its way",
    "ov-right": "the right way",
    "ov-limit": "ceiling",
}
_AMOUNT = re.compile(r"\d+(\.\d+)?(e[+-]?\d+)?")
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

    @classmethod
    def read(cls, place: Source, cells: list[str]) -> "Score":
        """Read a row; what names no snippet is of the first one's."""
        if len(cells) != 7 or not all(cells):
            raise place.refuse("not a row of a scoreboard", _FORM)
        label, unit, printed, *texts, verdict = cells
        if not _AMOUNT.fullmatch(printed) or not float(printed):
            raise place.refuse(f"`{printed}` is no amount above zero", _FORM)
        snippet = texts[0].partition(":")[0]
        values = []
        for text in texts:
            match = VALUE.fullmatch(f"{{{text}}}") or VALUE.fullmatch(f"{{{snippet}: {text}}}")
            if text != "-" and not match:
                raise place.refuse(f"`{text}` is no value of a snippet", _FORM)
            if text == "-":
                values.append(None)
            else:
                values.append(Value.parse(match))
        return cls(place.line, label, unit, printed, *values, verdict)

    @property
    def behind(self) -> str:
        """The unit as it stands behind a number."""
        if self.unit in ("-", "×"):
            return self.unit.removeprefix("-")
        return f"\N{NO-BREAK SPACE}{self.unit}"

    @property
    def cells(self) -> list[str]:
        """The row of the table; the unit stands where the printed figure does."""
        measured = []
        for value in (self.its_way, self.right_way, self.ceiling):
            if not value:
                measured.append("–")
            elif self.unit == "s":
                measured.append(f"{{{replace(value, spec=TIME)}}}")
            else:
                measured.append(f"{{{value}}}")
        return [self.label, f"{{printed: {self.printed}{self.behind}}}", *measured, self.verdict]

    def amounts(self, book: "Book") -> dict[str, list[float | None]]:
        """Printed, its way, the right way and the ceiling, per machine; what is no amount is an error."""
        its_way, right_way, ceiling = (
            _amounts(book, value) for value in (self.its_way, self.right_way, self.ceiling)
        )
        printed = float(self.printed)
        return {p: [printed, number, right_way.get(p), ceiling.get(p)] for p, number in its_way.items()}

    def gain(self, number: float) -> float:
        """How many times better than printed: of a factor (×) and a rate (…/s) more is better, else less."""
        ratio = number / float(self.printed)
        return ratio if self.unit == "×" or self.unit.endswith("/s") else 1 / ratio

    def note(self, profile: str, numbers: list[float | None]) -> str:
        """`printed 5 ms · measured its way 3 ms · on CPU`."""
        pairs = zip(_MARKS.values(), numbers, strict=True)
        parts = [f"{words} {show(number)}{self.behind}" for words, number in pairs if number]
        return " · ".join([*parts, f"on {machine.label(profile)}"])

    def gains(self, numbers: list[float | None]) -> dict[str, float]:
        """The gain of each number that there is, by kind of mark."""
        return {mark: self.gain(number) for mark, number in zip(_MARKS, numbers, strict=True) if number}


@dataclass(frozen=True)
class Scoreboard(Block):
    """```` ```scoreboard ````: rows of `label | unit | printed | its way | right way | ceiling | verdict`."""

    rows: tuple[Score, ...]

    kind: ClassVar[str] = "scoreboard"

    @classmethod
    def read(cls, source: Source) -> "Block":
        """Read the rows; of `scoreboard picture` the caption."""
        if source.argument == "picture" and source.rows():
            return ScoreboardPicture(source.page, source.line, " ".join(source.rows()))
        rows = tuple(Score.read(place, cells) for place, cells in source.numbered_rows())
        if source.argument or not rows:
            raise source.refuse("a scoreboard has rows, and its picture a caption", _FORM)
        return cls(source.page, source.line, rows)

    @property
    def prose(self) -> Text:
        """The table."""
        rows = [_HEADINGS, *(row.cells for row in self.rows)]
        return Text(self.page, self.line + 1, markdown_table(rows))

    def check(self, book: "Book") -> Iterator[str]:
        """Whether each row has its amounts, none beats its ceiling, and nothing else is typed in."""
        for row in self.rows:
            yield from Text(self.page, row.line, f"{row.label} {row.verdict}").check(book)
            where = f"docs/{self.page}:{row.line}"
            try:
                measured = row.amounts(book)
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

    def markdown(self, view: "View") -> str:
        """The table."""
        return f'\n<div class="ov-numbers-printed" markdown>\n\n{self.prose.text}\n\n</div>\n'


@dataclass(frozen=True)
class ScoreboardPicture(Block):
    """```` ```scoreboard picture ````: the scoreboard's rows on one scale; the body is the caption."""

    caption: str

    @property
    def prose(self) -> Text:
        """The caption."""
        return Text(self.page, self.line + 1, self.caption)

    def markdown(self, view: "View") -> str:
        """The picture with its caption."""
        return f"\n{view.stash(self.html(view))}\n{view.captioned('', self.caption)}\n"

    def html(self, view: "View") -> str:
        """The marks of each row with a measured way, on one scale: how many times better than printed."""
        rows = []
        logarithms = [0.0]
        scores = [row for block in view.book.of_kind(Scoreboard) for row in block.rows]
        for score in scores:
            measured = score.amounts(view.book)
            if measured:
                gains = {profile: score.gains(numbers) for profile, numbers in measured.items()}
                notes = {profile: score.note(profile, numbers) for profile, numbers in measured.items()}
                first = view.first(measured, score.its_way.snippet)
                rows.append((view.inline(score.label), gains, notes, first))
                for by_mark in gains.values():
                    logarithms += map(math.log10, by_mark.values())
        low = math.floor(min(logarithms))
        high = max(math.ceil(max(logarithms)), 1)

        def place(gain: float) -> float:
            return round(100 * (math.log10(gain) - low) / (high - low), 2)

        names = {"marks": _MARKS, "rows": rows, "ticks": range(low, high + 1)}
        return view.render(read_template("scoreboard"), place=place, power=_power, **names)


def _amounts(book: "Book", value: Value | None) -> dict[str, float]:
    numbers = book.numbers(value) if value else {}
    for profile, number in numbers.items():
        if not is_number(number) or number <= 0:
            reason = f"`{value.expression}` is {show(number)} on {profile}, no amount above zero"
            raise OverlapError(f"{value.snippet}: {reason}; mend the expression")
    return numbers


def _power(exponent: int) -> str:
    """A power of ten as a factor."""
    if -4 < exponent < 4:
        return f"{10.0**exponent:g}×"
    return f"10{str(exponent).translate(_RAISED)}×"
