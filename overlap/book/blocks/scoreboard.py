"""A scoreboard: figures that sources printed, beside the same measured their way and the right way, the ceiling and the verdict."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from overlap import OverlapError
from overlap.book.blocks.block import Block, Source, Text
from overlap.book.expression import parse
from overlap.book.statistic import is_number, show
from overlap.book.value import VALUE, Value
from overlap.run import machine

_FORM = (
    "write `label | unit | printed | chapter/snippet: expression of it measured its way | the same of the right way | "
    "expression of the ceiling | verdict`, and - for what there is not"
)
_HEADINGS = ("what", "printed", "its way", "right way", "ceiling", "verdict")
_LEAST, _MOST = 1e-12, 1e12


class Score(NamedTuple):
    """One row as it is written; values are `chapter/snippet@machine: expression`, or empty."""

    line: int
    label: str
    unit: str
    printed: str
    its_way: str
    right_way: str
    ceiling: str
    verdict: str

    @property
    def behind(self) -> str:
        """The unit as it stands behind a number."""
        return {"-": "", "×": "×"}.get(self.unit, f"\N{NO-BREAK SPACE}{self.unit}")

    @property
    def values(self) -> list[Value | None]:
        """Its way, the right way, the ceiling."""
        found = (VALUE.fullmatch(f"{{{text}}}") for text in (self.its_way, self.right_way, self.ceiling))
        return [Value.parse(match) if match else None for match in found]

    @property
    def markdown(self) -> str:
        """The row of the table; the unit stands where the printed figure does."""
        measured = (f"{{{text}}}" if text else "–" for text in (self.its_way, self.right_way, self.ceiling))
        return _line(self.label, f"{{printed: {self.printed}{self.behind}}}", *measured, self.verdict)

    def measured(self, book) -> dict[str, list[float | None]]:
        """What was printed, its way, the right way and the ceiling, per machine; what is no amount is an error."""
        its_way, right_way, ceiling = (_amounts(book, value) for value in self.values)
        if right_way and not right_way.keys() & its_way.keys():
            raise OverlapError(
                f"`{self.right_way}` has no machine in common with its way; record it there, or write -"
            )
        printed = float(self.printed)
        return {
            each: [printed, found, right_way.get(each), ceiling.get(each)] for each, found in its_way.items()
        }

    def gain(self, number: float) -> float:
        """How many times better than printed: of a factor (×) and a rate (…/s) more is better, of all else less."""
        ratio = number / float(self.printed)
        return ratio if self.unit == "×" or self.unit.endswith("/s") else 1 / ratio


def _line(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _amounts(book, value: Value | None) -> dict[str, float]:
    found = book.numbers(value) if value else {}
    for profile, number in found.items():
        if not is_number(number) or not _LEAST <= number <= _MOST:
            said = f"`{value.expression}` is {show(number)} on {profile}, no amount above zero"
            raise OverlapError(f"{value.snippet}: {said}; give a number from {_LEAST:g} to {_MOST:g}")
    return found


@dataclass(frozen=True)
class Scoreboard(Block):
    """```` ```scoreboard ````: rows of `label | unit | printed | its way | right way | ceiling | verdict`, shown as a table.
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
    template: ClassVar[str] = """
<div class="ov-board" style="--step:{{ (100 / (ticks|length - 1))|round(3) }}%">
<p>{% for mark, words in marks.items() %}<span><i class="{{ mark }}"></i>{{ words }}</span>{% endfor %}</p>
<div class="ov-score ov-axis" aria-hidden="true"><span></span><div>{% for tick in ticks %}<small style="--x:{{ place(10 ** tick) }}%">{{ power(tick) }}</small>{% endfor %}</div></div>
{% for name, machines, first in rows %}
<div class="ov-score"><span>{{ name }}</span><div class="ov-value" tabindex="-1">
{%- for profile, said, gains in machines %}
<span role="img" aria-label="{{ said }}" data-note="{{ said }}" data-machine="{{ profile }}"{% if profile == first %} class="ov-on"{% endif %}>
{%- for mark, gain in gains.items() %}<i class="{{ mark }}" style="--x:{{ place(gain) }}%"></i>{% endfor %}</span>
{%- endfor %}</div></div>
{% endfor %}
</div>"""

    @classmethod
    def read(cls, source: Source) -> "Scoreboard":
        """Read the rows, or the caption of the picture."""
        if source.argument == "picture" and source.rows():
            return cls(source.page, source.line, (), " ".join(source.rows()))
        if source.argument:
            remedy = "write `scoreboard` and rows, or `scoreboard picture` and a caption"
            raise source.refuse(f"`scoreboard {source.argument}` is unknown, or has no caption", remedy)
        body = enumerate(source.body, source.line + 1)
        rows = tuple(cls._score(source._replace(line=line), row) for line, row in body if row.strip())
        if not rows:
            raise source.refuse("a scoreboard without rows", _FORM)
        return cls(source.page, source.line, rows)

    @staticmethod
    def _score(place: Source, row: str) -> Score:
        cells = [cell.strip() for cell in row.split("|")]
        if len(cells) != 7 or not all(cells):
            raise place.refuse("not a row of a scoreboard", _FORM)
        label, unit, printed, *texts, verdict = cells
        try:
            known = _LEAST <= float(printed) <= _MOST
        except ValueError:
            known = False
        if not known:
            raise place.refuse(f"`{printed}` is no amount above zero", _FORM)
        snippet = texts[0].partition(":")[0]  # also of what names none
        named = [text if VALUE.fullmatch(f"{{{text}}}") else f"{snippet}: {text}" for text in texts]
        texts = ["" if text == "-" else name for text, name in zip(texts, named, strict=True)]
        score = Score(place.line, label, unit, printed, *texts, verdict)
        for text, value in zip(texts, score.values, strict=True):
            if text and not value:
                raise place.refuse(f"`{text}` is no value of a snippet", _FORM)
            try:
                parse(value.expression if value else "0")
            except OverlapError as error:
                raise place.refuse(str(error), "mend the expression") from None
        return score

    @property
    def prose(self) -> Text:
        """The table, or the caption."""
        head = [_line(*_HEADINGS), _line(*["---"] * len(_HEADINGS))]
        return Text(
            self.page, self.line + 1, self.caption or "\n".join([*head, *(row.markdown for row in self.rows)])
        )

    def board(self, book) -> "Scoreboard":
        """The one with the rows."""
        blocks = (
            block for page in book.pages.values() for block in page.blocks if isinstance(block, Scoreboard)
        )
        found = self if self.rows else next((block for block in blocks if block.rows), None)
        if not found:
            raise OverlapError(f"{self.where}: a picture of a scoreboard that no page has; {_FORM}")
        return found

    def snippets(self, book) -> set[str] | None:
        """Snippets that the rows name, also in their expressions."""
        return self.prose.snippets(book) | self.board(book).prose.snippets(book)

    def shows(self, book) -> list[str]:
        """The rows."""
        return [repr(self.board(book).rows)]

    def check(self, book, margins: bool) -> Iterator[str]:
        """Whether each row has its amounts, none beats its ceiling, and nothing else is typed in."""
        self.board(book)
        yield from self.prose.check(book, margins) if self.caption else ()
        for row in self.rows:
            yield from Text(self.page, row.line, f"{row.label} {row.verdict}").check(book, margins)
            try:
                measured = row.measured(book)
            except OverlapError as error:
                yield f"docs/{self.page}:{row.line}: {error}"
                continue
            known = {profile: numbers[2:] for profile, numbers in measured.items() if all(numbers[2:])}
            if above := [
                profile for profile, (right, limit) in known.items() if row.gain(right) > row.gain(limit)
            ]:
                said = f"`{row.right_way}` is better than its ceiling on {', '.join(above)}"
                yield f"docs/{self.page}:{row.line}: {said}; mend the expression that is wrong"

    def markdown(self, view) -> str:
        """The table; or the picture with its caption."""
        if self.caption:
            return f"\n{view.put(self.html(view))}\n{view.captioned('', self.caption)}\n"
        return f'\n<div class="ov-numbers-printed" markdown>\n\n{self.prose.text}\n\n</div>\n'

    def html(self, view) -> str:
        """A line of marks for each figure that is measured: how many times better than printed, on one scale of powers of ten."""
        rows, logs = [], [0.0]
        for row in self.board(view.book).rows:
            found, machines = row.measured(view.book), []
            for profile, numbers in found.items():
                shown = [
                    (*mark, number)
                    for mark, number in zip(self.marks.items(), numbers, strict=True)
                    if number
                ]
                said = [f"{words} {show(number)}{row.behind}" for _, words, number in shown]
                gains = {mark: row.gain(number) for mark, _, number in shown}
                machines.append((profile, " · ".join([*said, f"on {machine.label(profile)}"]), gains))
                logs += map(math.log10, gains.values())
            if machines:
                rows.append((view.inline(row.label), machines, view.book.first(found, row.values[0].snippet)))
        low, high = math.floor(min(logs)), max(math.ceil(max(logs)), 1)

        def place(gain: float) -> float:
            return round(100 * (math.log10(gain) - low) / (high - low), 2)

        ticks = range(low, high + 1)
        return view.render(self.template, marks=self.marks, rows=rows, ticks=ticks, place=place, power=_power)

    def cells(self, notebook) -> list[dict]:
        """The table, or the caption."""
        return self.prose.cells(notebook)


def _power(exponent: int) -> str:
    raised = str(exponent).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return f"{10.0**exponent:g}×" if -4 < exponent < 4 else f"10{raised}×"
