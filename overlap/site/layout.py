"""Where everything of a declared picture stands: panels, their rows and scales, the room for texts.

Nothing here draws: `draw` asks for places.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

from overlap.site.numbers import Series, read
from overlap.site.scales import LINE, Scale, number, text_width, thinned, wrapped

_NARROW = 300  # pixels: below, panels stand one above the other
_GAP = 18.0  # pixels between panels side by side
_ROW = 19.0  # pixels, of a lane or a row of cells
_LANE = 14.0  # pixels, of what is drawn in a lane
_LOW = 15.0, 12.0  # the same two of a strip
_STACKED = 12.5, 10.0  # and of one whose panels stand one above the other
#: Panels of which one lasts so many times as long as another have time scales of their own.
_APART = 8


def kind(mark) -> str:
    """Which of the classes of `snippets/pictures.py` a mark is: each book has its own."""
    return type(mark).__name__


@dataclass
class Plot:
    """One panel with its place on the picture: `left` to `right`, `top` to `bottom` is where marks are."""

    panel: object
    series: list[Series]
    #: Panels of other pictures, for which its axes have room.
    beside: list = field(default_factory=list)
    #: Texts of the y axis from top to bottom with the places of their rows; none where it has numbers.
    rows: dict[str, int] = field(default_factory=dict)
    heights: list[float] = field(default_factory=list)
    #: Pixels of what is drawn in a lane.
    lane: float = _LANE
    #: Where its title begins, and what stands left of the marks.
    start: float = 0
    left: float = 0
    right: float = 0
    top: float = 0
    bottom: float = 0
    x: Scale | None = None
    y: Scale | None = None
    shows_x: bool = True
    #: Whether its rows are named: where panels stand side by side with the same rows, the first is.
    names_rows: bool = True
    title: str = ""

    def marks(self, *kinds: str) -> list:
        """Its marks of these kinds."""
        return [mark for mark in self.panel.marks if kind(mark) in kinds]

    @property
    def all_marks(self) -> list:
        """Its own and those beside it: what its axes have room for."""
        return [mark for panel in (self.panel, *self.beside) for mark in panel.marks]

    def series_of(self, mark) -> Series | None:
        """What a mark says; None where it has no value."""
        return next((item for item in self.series if item.mark is mark), None)

    def row(self, name: str) -> float:
        """The middle of a row."""
        place = self.rows[name]
        return self.top + sum(self.heights[:place]) + self.heights[place] / 2

    def across(self, place: float | str) -> float:
        """Where something is from top to bottom."""
        return self.row(place) if isinstance(place, str) else self.y(place)

    @property
    def groups(self) -> list:
        """Bars that stand beside each other in each row."""
        return [mark for mark in self.marks("Bars") if not mark.starts]

    @property
    def thick(self) -> float:
        """Pixels of a bar."""
        return 14.0 if len(self.groups) < 2 else 11.0

    def x_ticks(self) -> list[tuple[float, str]]:
        """Where the x axis has a line, with what stands there."""
        words = self.panel.x.ticks
        ticks = dict(words) if words is not None else {tick: number(tick) for tick in self.x.ticks()}
        ticks = {tick: number(tick) if word == f"{tick:,}" else word for tick, word in ticks.items()}
        return [(self.x(tick), word) for tick, word in sorted(ticks.items()) if self.x.shows(tick)]

    def y_ticks(self) -> list[tuple[float, str]]:
        """The same of an upright axis with numbers."""
        ticks = self.panel.y.ticks or {tick: number(tick) for tick in self.y.ticks()}
        return [(self.y(tick), word) for tick, word in ticks.items() if self.y.shows(tick)]

    @property
    def is_staggered(self) -> bool:
        """Whether words of the x axis have room only if every second one stands a line lower."""
        ticks = self.x_ticks()
        return not _fit(ticks) and all(map(_fit, (ticks[::2], ticks[1::2])))

    @property
    def is_upright(self) -> bool:
        """Whether words of the x axis have no room beside each other; of numbers some are left out then."""
        return not _fit(self.x_ticks()) and not self.is_staggered

    @property
    def below(self) -> float:
        """Pixels that the words of the x axis take."""
        cells = self.marks("Cells")
        words = list(cells[0].columns) if cells else list((self.panel.x.ticks or {0: "0"}).values())
        if not any(words):
            return 4
        if not cells and self.is_upright:
            return max(map(text_width, words)) + 10
        if not cells and self.is_staggered:
            return 4 + 2 * LINE
        return 4 + LINE * (1 + max(word.count("\n") for word in words))


class Layout:
    """The places of a picture on a page so wide. `top` is where its panels begin, behind the legend."""

    def __init__(self, picture, width: int, beside: Iterable):
        self.picture = picture
        self.width = width
        #: Whether it is a strip; the `Picture` of another book may not know of any.
        self.is_low = getattr(picture, "low", False)
        self.columns = picture.columns
        series = {id(item.mark): item for item in read(picture)}
        self.plots = []
        for panel in picture.panels:
            of_panel = [series[id(mark)] for mark in panel.marks if id(mark) in series]
            self.plots.append(Plot(panel, of_panel))
        for other in beside:
            if len(other.panels) == len(self.plots):
                for plot, panel in zip(self.plots, other.panels, strict=True):
                    plot.beside.append(panel)
        for plot in self.plots:
            for mark in plot.panel.marks:
                for name in _rows_of(mark):
                    plot.rows.setdefault(name, len(plot.rows))
        #: Whether it is a strip with a panel and its zoom, one above the other: only the last has numbers.
        self.is_stacked = self.is_low and width < _NARROW and len(self.plots) > 1
        if self.is_stacked and len({plot.panel.x.high for plot in self.plots}) == 1:
            self.plots = self.plots[:1]  # of two steps the first: words say how long the other is
            self.is_stacked = False
        self._name_rows()
        if self.is_stacked or (width < _NARROW and not (self.is_low or self._has_room_for_columns())):
            self.columns = 1
            self._name_rows()
        self.columns = min(self.columns, len(self.plots))

    def _has_room_for_columns(self) -> bool:
        """Whether tables of short words stand beside each other, under names that stand there once."""
        cells = [mark for plot in self.plots for mark in plot.marks("Cells")]
        if len(cells) < len(self.plots) or not self.repeats_rows:
            return False
        names = max(text_width(self.name_of_row(row)) + 8 for row in self.plots[0].rows)
        inner = (self.width - names - _GAP * (self.columns - 1)) / self.columns - 6
        return all(_wide_of_cell(mark) * len(mark.columns) <= inner for mark in cells)

    def _name_rows(self) -> None:
        self.repeats_rows = self.columns > 1 and len({tuple(plot.rows) for plot in self.plots}) == 1
        for place, plot in enumerate(self.plots):
            plot.names_rows = not (self.repeats_rows and plot.rows and place % self.columns)
            with_bars = {name for mark in plot.marks("Bars") for name in mark.values}
            plot.heights = []
            if self.is_low:
                high, plot.lane = _STACKED if self.is_stacked else _LOW
                plot.heights = [high] * len(plot.rows)
                continue
            for name in plot.rows:
                apart = 14 if plot.panel.x.log and len(plot.groups) > 1 else 8  # dots need more than bars
                high = apart + plot.thick * max(len(plot.groups), 1) if name in with_bars else _ROW
                plot.heights.append(max(high, LINE * len(self.name_of_row(name).split("\n")) + 4))

    def name_of_row(self, name: str) -> str:
        """The name in lines that leave room for the panel."""
        if not self.repeats_rows:
            return wrapped(name, 0.42 * self.width / self.columns)
        return wrapped(name, (0.26 if self.width < _NARROW else 0.3) * self.width)

    def place(self, top: float) -> float:
        """Give each panel its place; where the last ends."""
        lefts = [max(map(self._left, self.plots[column :: self.columns])) for column in range(self.columns)]
        inner = (self.width - _GAP * (self.columns - 1) - sum(lefts)) / self.columns
        shares_x = self._shares_x()
        bottom = top
        for place, plot in enumerate(self.plots):
            column = place % self.columns
            if column == 0:
                top = bottom
            plot.shows_x = not (shares_x or self.is_stacked) or plot is self.plots[-1]
            plot.start = column * (inner + _GAP) + sum(lefts[:column])
            plot.left = plot.start + lefts[column]
            plot.right = plot.left + inner - 6
            plot.title = wrapped(plot.panel.title, inner + lefts[column])
            plot.top = top + 4
            if plot.title:
                plot.top += 2 + LINE * self._lines_of_titles(place, [inner + left for left in lefts])
            if plot.panel.y.label and not plot.rows:
                plot.top += LINE + 6
            plot.bottom = plot.top + self._height(plot)
            _scale(plot)
            end = plot.bottom + 4
            if plot.shows_x:
                end += plot.below + self._height_of_label(plot)
            bottom = max(bottom, end)
        if shares_x:
            low = min(plot.x.low for plot in self.plots)
            high = max(plot.x.high for plot in self.plots)
            for plot in self.plots:
                plot.x = Scale(low, high, plot.left, plot.right, plot.x.log)
        return bottom

    def _lines_of_titles(self, place: int, widths: list[float]) -> int:
        """Lines of the longest title of the panels beside each other, whose lanes stand at one height."""
        first = place - place % self.columns
        titles = [plot.panel.title for plot in self.plots[first : first + self.columns]]
        return max(
            wrapped(title, width).count("\n") + 1 for title, width in zip(titles, widths, strict=False)
        )

    def _height(self, plot: Plot) -> float:
        """Pixels from top to bottom: all its rows, or room for an axis with numbers."""
        if plot.rows:
            return sum(plot.heights)
        return 170.0 if len(self.plots) == 1 else 110.0

    def label_of(self, plot: Plot) -> str:
        """What stands below the x axis, in lines that fit; of a strip, left of its numbers.

        An axis of values says that it is logarithmic; of one of sizes the ticks say it.
        """
        has_dots = plot.x.log and any(kind(mark) == "Bars" for mark in plot.panel.marks)
        label = plot.panel.x.label + (" (log)" if has_dots else "")
        return wrapped(label, self.width) if plot.panel.x.label else ""

    def _height_of_label(self, plot: Plot) -> float:
        label = "" if self.is_low else self.label_of(plot)
        return LINE * len(label.split("\n")) + 2 if label else 0

    def _left(self, plot: Plot) -> float:
        """How much room the texts at the left take."""
        if plot.rows:
            names = [*map(self.name_of_row, plot.rows if plot.names_rows else ())]
            names += [plot.panel.x.label] if self.is_low and plot.names_rows else []
            return max((text_width(name) + 8 for name in names), default=0.0)
        low, high = _extent(plot, "y")
        plot.y = Scale(low, high, 170, 0, plot.panel.y.log)
        return max((text_width(word) for _, word in plot.y_ticks()), default=0) + 8

    def _shares_x(self) -> bool:
        """Whether equal lengths are equal in all panels.

        They are where the last alone has a label, and in timelines whose shortest can still be seen.
        """
        panels = [plot.panel for plot in self.plots]
        if len(panels) < 2 or self.columns > 1:
            return False
        if any(panel.x.log or panel.x.ticks or panel.x.high is not None for panel in panels):
            return False
        labels = [panel.x.label for panel in panels]
        if len(set(filter(None, labels))) > 1:
            return False
        if labels[-1] and not all(labels):
            return True
        ends = [_extent(plot, "x")[1] for plot in self.plots]
        return any(plot.marks("Spans") for plot in self.plots) and max(ends) <= _APART * min(ends)


def _wide_of_cell(mark) -> float:
    """Pixels that each cell needs for its words and those of its column."""
    words = [*mark.columns, *(text for row in mark.texts or () for text in row if text)]
    return max(map(text_width, words), default=0.0) + 5


def _fit(ticks: list[tuple[float, str]]) -> bool:
    """Whether these words stand beside each other; numbers always do, since some may be left out."""
    has_numbers = any(letter.isdigit() for _, word in ticks for letter in word)
    return has_numbers or len(thinned(ticks)) == len(ticks)


def text_of_bar(mark, row: str, length: float | None) -> str:
    """What stands behind a bar: its text, else three digits; 47.0 where others of its name have 46.9."""
    if mark.texts is not None:
        return mark.texts.get(row, "")
    if length is None or not math.isfinite(length):
        return ""
    short = float(f"{length:.3g}")
    values = [value for value in mark.values.values() if value is not None]
    if 1 <= short < 1000 and any(value != int(value) for value in values if math.isfinite(value)):
        return f"{short:#.3g}".removesuffix(".")
    return f"{short:,.10g}"


def range_of(mark, row: str) -> tuple[float, ...]:
    """The lowest and the highest of all runs; nothing where they are alike."""
    return getattr(mark, "ranges", {}).get(row, ())


def _rows_of(mark) -> Iterable[str]:
    """The rows in which a mark has something."""
    match kind(mark):
        case "Bars":
            return mark.values
        case "Spans":
            return [mark.row]
        case "Cells":
            return mark.rows
        case "Dots":
            return [place for place in mark.y if isinstance(place, str)]
    return ()


def _scale(plot: Plot) -> None:
    """Give a panel its scales; the x axis is so long that what stands behind bars has room."""
    low, high = _extent(plot, "x")
    plot.x = Scale(low, high, plot.left, plot.right, plot.panel.x.log)
    if not plot.rows:
        plot.y = Scale(*_extent(plot, "y"), plot.bottom, plot.top, plot.panel.y.log)
    if plot.panel.x.high is not None:
        return
    room = plot.right - plot.left
    for value, wide in _behind(plot):
        share = room / (room - min(wide + 6, 0.6 * room))
        if plot.x.log and value > 0:
            plot.x.high = max(plot.x.high, low * (max(value, low) / low) ** share)
        elif not plot.x.log:
            plot.x.high = max(plot.x.high, low + (value - low) * share)


def _behind(plot: Plot) -> Iterable[tuple[float, float]]:
    """(place, width) of what stands behind bars, and of rules and points, which are not cut."""
    for mark in plot.all_marks:
        match kind(mark):
            case "Bars":
                for row, length in mark.values.items():
                    if length is not None and math.isfinite(length):
                        end = (mark.starts or {}).get(row, 0.0) + length
                        yield max([end, *range_of(mark, row)]), text_width(text_of_bar(mark, row, length))
            case "Note" if mark.align == "left" and isinstance(mark.y, str):
                yield mark.x, text_width(mark.text) + mark.dx
            case "Rule" if mark.axis == "x":
                yield mark.at, 0.0
            case "Dots" if plot.rows:
                yield from ((x, 0.0) for x in mark.x if x is not None and math.isfinite(x))


def _extent(plot: Plot, which: str) -> tuple[float, float]:
    """The ends of an axis: those that its author gave, else those of the data with some room."""
    axis = getattr(plot.panel, which)
    values = [value for mark in plot.all_marks for value in _values(mark, which)]
    known = [v for v in values if v is not None and math.isfinite(v) and (v > 0 or not axis.log)]
    low, high = min(known, default=0.1 if axis.log else 0.0), max(known, default=1.0)
    kinds = set(map(kind, plot.all_marks))
    if axis.log:
        room = max((high / low) ** 0.04, 1.05) if high > low else 2.0
        low, high = low / (1.5 if "Bars" in kinds and which == "x" else room), high * room
    elif "Bars" in kinds and which == "x":
        low = min(low, 0.0)
    elif "Spans" in kinds and which == "x":
        low = 0.0 if 0 <= low < 0.2 * high else low
    elif "Columns" in kinds and which == "y":
        low, high = min(low, 0.0), high + 0.1 * (high - low)  # for the texts above them
    else:
        room = 0.04 * (high - low) or 0.5
        low, high = low - room, high + room
    axes = [axis, *(getattr(panel, which) for panel in plot.beside)]
    low = low if axis.low is None else min(each.low for each in axes if each.low is not None)
    high = high if axis.high is None else max(each.high for each in axes if each.high is not None)
    if high <= low:  # one place
        high = low * 2 if axis.log else low + 1
    return low, high


def _values(mark, which: str) -> Iterable[float | None]:
    """The places of a mark along an axis."""
    match kind(mark):
        case "Bars" if which == "x":
            for row, length in mark.values.items():
                yield (mark.starts or {}).get(row, 0.0) + (length or 0.0)
                yield from range_of(mark, row)
        case "Spans" if which == "x":
            for start, length in mark.spans:
                yield start
                yield start + length
        case "Columns" if which == "x":
            for x in mark.x:
                yield x - mark.width / 2
                yield x + mark.width / 2
        case "Line" | "Dots" | "Columns":
            yield from (value for value in getattr(mark, which) if not isinstance(value, str))
        case "Rule" if mark.axis == which:
            yield mark.at
        case "Note" if not isinstance(getattr(mark, which), str):
            yield getattr(mark, which)
