"""What a picture shows as numbers: the rows of its table, and the words that a pointer shows at a mark."""

import math
import re
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import groupby

from overlap import OverlapError
from overlap.run.text import plain

_WORDS = 400  # characters of a picture in words
_ROWS = 100  # of numbers on a page; the rest is in the raw recording
#: Units, as they stand at the beginning of an axis' label, or at its end behind a comma or in brackets.
UNIT = r"(?:[nµm]?s|[KMGT]i?B(?:/s)?|TFLOP/s|[MG]Hz|W|%)(?![\w/])"
_COUNTS = re.compile(rf"{UNIT}|times\b|images\b")
_OF_UNIT = re.compile(rf"(?P<what>.+?)(?:, | \(|，|（)(?P<unit>{UNIT}[^,()，（）]*)[)）]?")


@dataclass
class Series:
    """What one mark of a panel says: a row [where, what] for each of its values."""

    mark: object
    name: str
    #: Of its panel: what stands at the y axis, and at the x axis.
    labels: tuple[str, str]
    headings: tuple[str, str]
    rows: list[list]
    #: Gives the book's own words in the picture's language.
    say: Callable[[str], str] = str


def read(picture) -> list[Series]:
    """All that a picture (`snippets.pictures.Picture`) shows, in its order."""
    say = getattr(picture, "say", str)  # where it is in Chinese
    labels = [panel.x.label for panel in reversed(picture.panels) if panel.x.label]
    series = []
    for panel in picture.panels:
        x_label = panel.x.label or (labels[0] if labels else "")
        for mark in panel.marks:
            kind = type(mark).__name__
            if kind in _READ:
                headings, rows = _READ[kind](mark, panel, x_label, say)
                _check_finite(rows, mark.name)
                if rows:
                    name = " · ".join(filter(None, (panel.title, mark.name or getattr(mark, "row", ""))))
                    series.append(Series(mark, name, (panel.y.label, panel.x.label), headings, rows, say))
    return series


def tables(series: list[Series]) -> tuple[list[dict], int]:
    """A table for each pair of headings, with a block of rows for each series; how many rows are left out."""
    made = []
    left = _ROWS
    for headings, group in groupby(series, key=lambda item: item.headings):
        blocks = []
        for item in group:
            rows = [[*map(rounded, row[:-1]), _cell(item, row)] for row in item.rows[: max(left, 0)]]
            left -= len(item.rows)
            if rows and blocks and blocks[-1]["name"] == item.name:
                blocks[-1]["points"] += rows
            elif rows:
                blocks.append({"name": item.name, "points": rows})
        if blocks:
            made.append({"headings": [plain(heading) for heading in headings], "series": blocks})
    return made, max(-left, 0)


def in_words(series: list[Series]) -> str:
    """What a picture shows, for who does not see it: bars with their values, of lines and cells the ends."""
    parts = []
    say: Callable[[str], str] = str
    for item in series:
        say = item.say
        rows = [row for row in item.rows if row[-1] is not None and rounded(row[-1]) is not None]
        where, what = item.headings
        if not rows:
            continue
        if type(item.mark).__name__ == "Bars":
            values = say(", ").join(f"{row} {text(value)}{_range(item, row)}" for row, value in rows)
            told_here = say("{values} {unit}").format(values=values, unit=what)
        elif type(item.mark).__name__ == "Spans":
            total = text(sum(length for _, length in rows)) + _behind(where)
            template = "{total} in {count} part" if len(rows) == 1 else "{total} in {count} parts"
            told_here = say(template).format(total=total, count=len(rows))
        elif type(item.mark).__name__ in ("Line", "Dots", "Columns"):
            ends = [said(item.headings[i], row[i], say) for row in (rows[0], rows[-1]) for i in (1, 0)]
            told_here = say("{0} at {1}, {2} at {3}").format(*ends)
        else:
            values = [value for _, value in rows]
            told_here = say(" to ").join(dict.fromkeys((text(min(values)), text(max(values)))))
        name = "" if item.name in item.headings else item.name
        parts.append(say("{0}: {1}").format(name, told_here) if name else told_here)
    return textwrap.shorten(plain(say("; ").join(parts)), _WORDS, placeholder=" …")


def _cell(series: Series, row: list) -> float | str | None:
    """The last cell of a row in a table: a number, and its range in words."""
    if not (reach := of_runs(series, row)):
        return rounded(row[-1])
    return f"{text(row[-1])}{series.say(', ')}{reach}"


def of_runs(series: Series, row: list) -> str:
    """`1.30 to 1.41 in 3 runs`; empty where the runs are alike."""
    reach = _reach(series, row[0])
    template = series.say("{range} in {runs} runs")
    return template.format(range=reach, runs=series.mark.runs) if reach else ""


def _range(series: Series, row: str) -> str:
    reach = _reach(series, row)
    return series.say(" ({range})").format(range=reach) if reach else ""


def _reach(series: Series, row: str) -> str:
    """`1.30 to 1.41`: the lowest and the highest of all runs."""
    ranges = {name.replace("\n", " "): ends for name, ends in getattr(series.mark, "ranges", {}).items()}
    return series.say(" to ").join(dict.fromkeys(alike(ranges[row]))) if row in ranges else ""


def _bars(mark, panel, x_label, say):
    rows = [[row.replace("\n", " "), value] for row, value in mark.values.items()]
    return (panel.y.label, x_label), rows


def _points(mark, panel, x_label, say):
    places = zip(mark.x, mark.y, strict=True)
    return (x_label, panel.y.label), [[at(panel.x, x), at(panel.y, y)] for x, y in places]


def _spans(mark, panel, x_label, say):
    rows = [[start, length] for start, length in mark.spans]
    return (x_label or say("from"), say(extent(x_label))), rows


def _cells(mark, panel, x_label, say):
    rows = []
    for name, values in zip(mark.rows, mark.values, strict=True):
        for column, value in zip(mark.columns, values, strict=True):
            where = say(", ").join(filter(None, (name, column)))
            if value is not None:
                rows.append([where.replace("\n", " "), value])
    return (say(", ").join(filter(None, (panel.y.label, x_label))), mark.name), rows


def _rule(mark, panel, x_label, say):
    along, label = (panel.y, panel.y.label) if mark.axis == "x" else (panel.x, x_label)
    where = say("all")
    if mark.part:
        low, high = (at(along, place) for place in mark.part)
        where = low if low == high else say(" to ").join((text(low), text(high)))
    own = x_label if mark.axis == "x" else panel.y.label
    return (label, own), [[where, mark.at]]


_READ = {
    "Bars": _bars,
    "Columns": _points,
    "Line": _points,
    "Dots": _points,
    "Spans": _spans,
    "Cells": _cells,
    "Rule": _rule,
}


def at(axis, place: float | str | None) -> float | str | None:
    """The words that stand at a place of an axis, else the place."""
    if isinstance(place, str):
        return place.replace("\n", " ")
    words = (axis.ticks or {}).get(place, "").replace("\n", " ")
    is_number = re.fullmatch(r"[\d,.]+", words)
    return words if words and not is_number else place


def extent(x_label: str) -> str:
    """What the length of a span is called: most are times, some are bytes."""
    return "size" if re.match(r"[KMG]iB\b", x_label) else "lasts"


def told(series: Series, rows: list[list]) -> str:
    """What a mark says, in words and with the units of the axes; of cells the name is the unit."""
    kind = type(series.mark).__name__
    name = series.mark.name or getattr(series.mark, "row", "")
    headings = series.headings
    say = series.say
    parts = [name] if name not in headings and kind != "Cells" else []
    if kind == "Spans":
        unit = _behind(headings[0])
        end = rows[-1][0] + rows[-1][1]
        total = short(sum(length for _, length in rows)) + unit
        parts.append(say(" to ").join(dict.fromkeys(alike([rows[0][0], end]))) + unit)
        together = say("{count} together: {total}").format(count=len(rows), total=total)
        parts.append(f"{headings[1]} {total}" if len(rows) == 1 else together)
    elif kind == "Cells":
        where, value = rows[0]  # as `pages: 4, one block`, or `one block, 4 streams`
        y_label, x_label = series.labels
        if y_label:
            where = say("{0}: {1}").format(headings[0], where)
        elif x_label:
            where = say("{place} {unit}").format(place=where, unit=x_label)
        what = say("{value} {unit}").format(value=short(value), unit=name) if name else short(value)
        parts += [where, what]
    elif kind == "Rule" and rows[0][0] == say("all"):
        parts.append(said(headings[1], rows[0][1], say))
    else:
        parts += [said(heading, place, say) for heading, place in zip(headings, rows[0], strict=True)]
        parts[-1] += "".join(say(", ") + reach for reach in [of_runs(series, rows[0])] if reach)
    return plain(" · ".join(filter(None, parts)).replace("\n", " ").replace(" %", "%"))


def said(heading: str, value: float | str | None, say: Callable[[str], str] = str) -> str:
    """A coordinate with its axis: `11.6 ms per step`, `time of one send: 139 µs`, `step: 3`."""
    heading = heading.partition("; ")[0]
    number = short(value)
    if not (isinstance(value, str) or value is None):
        if _COUNTS.match(heading):
            return f"{number} {heading.partition(', ')[0]}"
        if match := _OF_UNIT.fullmatch(heading):
            heading, number = match["what"], f"{number} {match['unit']}"
    return say("{0}: {1}").format(heading, number) if heading else number


def unit_of(label: str) -> str:
    """The unit of an axis; empty where its label names none."""
    match = re.search(rf"(?:^|, | \(|，|（)({UNIT})", label)
    return match[1] if match else ""


def _behind(label: str) -> str:
    """The unit as it stands behind a number."""
    return f" {unit_of(label)}".rstrip()


def _check_finite(rows: list[list], name: str) -> None:
    """Refuse infinity, which only a mistake gives; NaN says that something was not measured: a gap."""
    for number in _numbers(rows):
        if math.isinf(number):
            raise OverlapError(f"draws infinity in {name!r}; draw NaN or None where nothing was measured")


def _numbers(rows: list[list]) -> Iterator[float]:
    for row in rows:
        yield from (cell for cell in row if isinstance(cell, (int, float)))


def text(value: float | str | None) -> str:
    """A coordinate as text; a gap is a dash."""
    value = rounded(value)
    if isinstance(value, str):
        return value
    if isinstance(value, int):
        return f"{value:,}"
    return "–" if value is None else f"{value:,g}".replace("-", "−")


def short(value: float | str | None) -> str:
    """A coordinate of three digits, of whole numbers all: what a pointer shows."""
    return alike([value])[0] if isinstance(value, float) and math.isfinite(value) else text(value)


def alike(values: list[float]) -> list[str]:
    """Places with as many decimals as give the largest of them three digits: `0.006` and `0.704`."""
    largest = max(abs(value) for value in values)
    decimals = max(0, 2 - math.floor(math.log10(largest))) if largest else 0
    return [text(round(value, decimals) if decimals else round(value)) for value in values]


def rounded(value: float | str | None) -> float | str | None:
    """Four digits, of whole numbers all; None for what is no number."""
    if isinstance(value, (int, str)):
        return value
    if value is None or not math.isfinite(value):
        return None
    return float(f"{value:.4g}")
