"""What `plot(results, ceilings)` of a snippet returns: a picture, declared as data with words.

    picture = bars({"list": 4.1, "tensor": 0.2}, {}, "ms")

A `Picture` is a grid of panels. A panel has two axes and marks: `Bars`, `Columns`, `Line`,
`Dots`, `Spans` (of a timeline), `Cells`, `Rule` (a line through a panel) and `Note` (a text).
Nothing here draws. The book draws a picture for wide and narrow pages, and takes from the same
marks the values that a pointer shows and the table of numbers.

- A place on an axis is a number, or on the y axis a text: then the panel has a row for each
  text, from top to bottom. None and NaN are gaps: nothing was measured there.
- `name` is what the legend says. Marks of one name have one colour. The legend leaves out a
  name that an axis or a note says already.
- `color` is 1 to 7 for a colour of the book, "ceiling" or "muted" (greys), "ink" or "paper", or
  what a lane is: "python", "data", "peer" (another GPU) or "gpu"; None takes the next colour.

It needs Python alone. `bars`, `sweep`, `stacked` and `timelines` make the pictures that most snippets need;
`sizes` are words at an axis, and `fitted` shortens the gaps of a profile.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, cycle
from math import isfinite
from typing import Any

#: A kind of line for each ceiling.
DASHES = ("4 2", "1 2", "6 2 1 2")
Number = float | None
Color = int | str | None


@dataclass
class Axis:
    """An axis: its label with the unit, its ends where they are not those of the data, words at places."""

    label: str = ""
    log: bool = False
    low: float | None = None
    high: float | None = None
    #: {place: what stands there}; None: numbers that fit.
    ticks: Mapping[float, str] | None = None


@dataclass
class Bars:
    """Lying bars: the length of each row. Several on a panel stand beside each other, or begin at `starts`.

    Behind a bar stands its text, else its length with three digits; `texts={}` writes nothing.
    """

    values: Mapping[str, Number]
    name: str = ""
    starts: Mapping[str, float] | None = None
    texts: Mapping[str, str] | None = None
    color: Color = None
    light: bool = False
    #: A colour of its own for some rows.
    colors: Mapping[str, Color] = field(default_factory=dict)
    #: Lowest and highest over several runs, which the book finds: `plot` leaves these two alone.
    ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    runs: int = 1


@dataclass
class Columns:
    """Standing bars of the same width, at places on the x axis; texts above them where there are some."""

    x: Sequence[float]
    y: Sequence[Number]
    name: str = ""
    width: float = 0.8
    texts: Sequence[str] = ()
    colors: Sequence[Color] = ()


@dataclass
class Line:
    """A line through points, which have dots; `step` keeps a value until the next place is reached."""

    x: Sequence[float]
    y: Sequence[Number]
    name: str = ""
    dots: bool = True
    dash: str = ""
    step: bool = False
    color: Color = None


@dataclass
class Dots:
    """Points; `diamond` is their other shape."""

    x: Sequence[Number]
    y: Sequence[Number | str]
    name: str = ""
    color: Color = None
    diamond: bool = False


@dataclass
class Spans:
    """Parts of a row, (start, length): what ran in a lane of a timeline, what lies in memory.

    Where somebody waits, they are hatched: by a name that ends in " waits", or says "waits for".
    """

    row: str
    spans: Sequence[tuple[float, float]]
    name: str = ""
    color: Color = None
    light: bool = False
    #: A thin line between neighbours.
    apart: bool = False
    #: Only a line around each part: time in which nothing of the lane was recorded.
    hollow: bool = False
    #: What each part is, as the call or the kernel: by these a reader explores a timeline.
    names: Sequence[str] = ()


@dataclass
class Cells:
    """A table whose cells are the darker the larger their values, or have `colors` of their own.

    `shades` are what they are coloured by, from 0 to 1; None: their values, from 0 to the largest.
    Where a value is None, there is no cell.
    """

    columns: Sequence[str]
    rows: Sequence[str]
    values: Sequence[Sequence[Number]]
    name: str = ""
    texts: Sequence[Sequence[str]] | None = None
    shades: Sequence[Sequence[float]] | None = None
    colors: Sequence[Sequence[Color]] | None = None


@dataclass
class Rule:
    """A straight line at a place of one axis, along the other: "x" stands upright. Or a part of it."""

    axis: str
    at: float
    name: str = ""
    dash: str = DASHES[0]
    part: tuple[float | str, float | str] | None = None
    color: Color = "ceiling"


@dataclass
class Note:
    """A text at a place, `dx` and `dy` pixels from it; `align` says which of its ends is there."""

    x: float
    y: float | str
    text: str
    align: str = "left"
    dx: float = 0
    dy: float = 0
    color: Color = "ink"


Mark = Bars | Columns | Line | Dots | Spans | Cells | Rule | Note


@dataclass
class Panel:
    """Marks on two axes, under a title. In it {machine} stands for where it was measured."""

    marks: list[Mark]
    x: Axis = field(default_factory=Axis)
    y: Axis = field(default_factory=Axis)
    title: str = ""


@dataclass
class Picture:
    """Panels, one above the other, or in `columns` where there is room.

    `low`: a strip above a text. Its lanes are low, and its axes have no labels. On a
    narrow page it has one column: the first panel, and the second if that has another
    axis, as a zoom has. `opens`: the place of the panel that is explored first;
    None: the first of those in whose lanes most runs.
    """

    panels: list[Panel]
    columns: int = 1
    low: bool = False
    opens: int | None = None


def limits(ceilings: Mapping[str, float], axis: str = "x") -> list[Rule]:
    """A line for each ceiling {label: place}."""
    pairs = zip(ceilings.items(), cycle(DASHES), strict=False)
    return [Rule(axis, limit, label, dash) for (label, limit), dash in pairs]


def bars(
    values: Mapping[str, Any],
    ceilings: Mapping[str, float],
    unit: str,
    log: bool = False,
) -> Picture:
    """A bar, or a group of bars {series: value}, for each label; ceilings are {label: number}."""
    groups = {
        row: v if isinstance(v, Mapping) else {unit: v} for row, v in values.items()
    }
    names = dict.fromkeys(name for group in groups.values() for name in group)
    marks: list[Mark] = []
    for name in names:
        marks.append(
            Bars(
                {row: group[name] for row, group in groups.items() if name in group},
                name,
            )
        )
    return Picture([Panel([*marks, *limits(ceilings)], Axis(unit, log))])


def stacked(
    parts: Mapping[str, Mapping[str, float]],
    unit: str,
    texts: Mapping[str, str] | None = None,
) -> Picture:
    """For each row a bar of parts {part: {row: length}}, one behind the other; behind its last their sum."""
    ends: dict[str, float] = {}
    marks: list[Mark] = []
    for name, lengths in parts.items():
        starts = {row: ends.get(row, 0.0) for row in lengths}
        marks.append(Bars(lengths, name, starts, {}))
        ends |= {row: starts[row] + length for row, length in lengths.items()}
    last = {row: name for name, lengths in parts.items() for row in lengths}
    texts = texts or {row: three(end) for row, end in ends.items()}
    for mark in marks:
        mark.texts = {row: texts[row] for row in mark.values if last[row] == mark.name}
    return Picture([Panel(marks, Axis(unit))])


def sweep(
    x: Sequence[float],
    series: Mapping[str, Sequence[Number]],
    ceilings: Mapping[str, float | Sequence[Number]],
    xlog: bool = False,
    ylog: bool = False,
    xlabel: str = "",
    ylabel: str = "",
) -> Picture:
    """Lines {label: y} over x, and ceilings {label: one number, or y}."""
    marks: list[Mark] = [Line(x, y, label) for label, y in series.items()]
    for (label, limit), dash in zip(ceilings.items(), cycle(DASHES), strict=False):
        over_x = limit if isinstance(limit, Sequence) else [limit] * len(x)
        marks.append(Line(x, over_x, label, dots=False, dash=dash, color="ceiling"))
    ticks = {place: f"{place:,}" for place in x}
    y_axis = Axis(ylabel, ylog, low=None if ylog else 0)
    return Picture([Panel(marks, Axis(xlabel, xlog, ticks=ticks), y_axis)])


def over_sizes(
    kib: Sequence[int],
    series: Mapping[str, Sequence[Number]],
    ceilings: Mapping[str, float | Sequence[Number]],
    xlabel: str,
    ylabel: str,
) -> Picture:
    """Lines {label: y} over sizes in KiB, as `sweep`, both axes by factors."""
    picture = sweep(kib, series, ceilings, True, True, xlabel, ylabel)
    picture.panels[0].x.ticks = sizes(kib)
    return picture


def timelines(
    panels: Mapping[str, Iterable[Sequence[Any]]], unit: str = "µs"
) -> Picture:
    """A panel for each title, of rows [lane, start, duration, name]; a lane is a row, the CPU on top.

    "CPU waits" is drawn in the row of "CPU", where there is one. Without a name nothing ran
    there, and the row is drawn only.
    """
    drawn = []
    for title, events in panels.items():
        rows = list(events)
        marks: list[Mark] = []
        lanes = sorted({row[0] for row in rows})
        for lane in lanes:
            here = [row for row in rows if row[0] == lane]
            names = [row[3] for row in here if len(row) > 3]
            own = lane.removesuffix(" waits")
            spans = [(row[1], row[2]) for row in here]
            marks.append(Spans(own if own in lanes else lane, spans, lane, names=names))
        drawn.append(Panel(marks, Axis(unit), title=title))
    return Picture(drawn)


def fitted(
    works: Iterable[tuple[float, float]], end: float, length: float
) -> Callable[[float], float]:
    """Where a time of a profile stands in a step that takes `length` without a profiler.

    It is assumed that a profiler delays launches, and no kernel (an open question of
    the clinic). So `works`, the GPU's spans (start, length), keep their length, and all
    gaps between them, until `end`, are shortened alike. If the works alone take longer
    than `length`, no gap is left.
    """
    whole: list[list[float]] = []
    for start, long in sorted(works):
        if whole and start <= whole[-1][1]:
            whole[-1][1] = max(whole[-1][1], start + long)
        else:
            whole.append([start, start + long])
    busy = sum(until - start for start, until in whole)
    gap = max(0.0, length - busy) / (end - busy) if end > busy else 1.0
    scale = length / (busy + gap * (end - busy))
    starts = [start for start, _ in whole]
    done = [0.0, *accumulate(until - start for start, until in whole)]

    def place(time: float) -> float:
        last = bisect_left(starts, time) - 1  # of the works that begin before it
        before = 0.0
        if last >= 0:
            before = done[last] + (min(whole[last][1], time) - starts[last])
        return scale * (before + gap * (time - before))

    return place


def sizes(kib: Sequence[int]) -> dict[float, str]:
    """The words at an axis of sizes: {16: "16 KiB", 4096: "4 MiB"}."""
    units = {2**20: "GiB", 2**10: "MiB", 1: "KiB"}
    words = {}
    for size in kib:
        unit = max(unit for unit in units if unit <= size)
        words[size] = f"{three(size / unit)} {units[unit]}"
    return words


def three(value: Number) -> str:
    """A number with three digits: 1,230 and 0.0123."""
    if value is None or not isfinite(value):
        return "–"
    return f"{float(f'{value:.3g}'):,.10g}"
