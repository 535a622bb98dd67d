"""Declared pictures as SVG: one text for a page so wide, in the colours of the page's variables.

The marks are those of `snippets/pictures.py`. A picture is a legend and a grid of panels. Each panel is laid
out first (`_Plot`: its rows or numbers on the left, its scales), and then each mark draws itself, with
invisible boxes that a pointer finds, each with its words. Widths of texts are estimates: the page chooses
the letters.
"""

import math
import re
import textwrap
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from xml.sax.saxutils import escape

from overlap import OverlapError
from overlap.site.numbers import Series, read, told

#: Pixels of a page's two forms.
WIDTHS = {"wide": 504, "narrow": 266}
_FONT = 10
_LINE = 12  # of text
_NARROW = 300  # below, panels stand one above the other
_NEAR = 3  # places nearer than this share a box
_MANY = 40  # above, a line has no dots, and dots are small
#: Panels of which one lasts so many times as long as another have time scales of their own.
_APART = 8
#: Colours of lanes that have one on all pages.
_LANES = {"CPU": 1, "CPU copies": 1, "compute": 2, "matmuls": 2, "copies": 3, "optimizer": 4, "unprofiled": 4}
_LANES |= {"NCCL": 5, "all-reduce": 5, "all-reduces": 5}
_COLORS = 6
_ROOT = "fill:var(--ov-ink);font-size:10px;stroke-linejoin:round;white-space:pre"
#: Widths of letters in the page's type, Inter, as parts of its size; what is not named is 0.61 wide.
_LETTERS = {"il'I ,.:;|!": 0.27, "tfjr()/[]": 0.36, '1-_"*': 0.45, "scekxzavyL7J": 0.56}
_LETTERS |= {"PRSTBKAVXY×+=−": 0.67, "DCUGNOQHw&": 0.76, "mMW…%@—": 0.91}
_WIDTHS = {letter: width for letters, width in _LETTERS.items() for letter in letters}


def draw(picture, width: int, beside: Iterable = ()) -> tuple[str, int, int]:
    """SVG of a `snippets.pictures.Picture`, its width and its height in pixels.

    Its axes have room for what others show that stand `beside` it, on the same scales.
    """
    if type(picture).__name__ != "Picture":
        raise OverlapError(f"must return a Picture of snippets/pictures.py, not {type(picture).__name__}")
    if not picture.panels or not all(panel.marks for panel in picture.panels):
        raise OverlapError("returned a picture with an empty panel; give each panel a mark")
    return _Drawing(picture, width, beside).svg()


def text_width(text: str) -> float:
    """About how many pixels the longest line of a text takes."""
    return max(map(_line_width, text.split("\n")), default=0.0)


def _line_width(line: str) -> float:
    ems = 0.0
    for letter in line:
        ems += _WIDTHS.get(letter, 0.61 if ord(letter) < 0x2E80 else 1.0)
    return ems * _FONT


def wrapped(text: str, pixels: float) -> str:
    """A text in lines of at most so many pixels, where its words allow."""
    lines = []
    for line in text.split("\n"):
        wide = _line_width(line)
        letters = max(8, int(len(line) * pixels / wide)) if wide > pixels else len(line)
        lines += textwrap.wrap(line, max(letters, 1), break_long_words=False) or [""]
    return "\n".join(lines)


@dataclass
class Scale:
    """Numbers of an axis as pixels, from `low` at `start` to `high` at `end`."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        low, high, at = self.low, self.high, value
        if self.log:
            low, high, at = math.log10(low), math.log10(high), math.log10(max(value, 1e-300))
        return self.start + (at - low) / (high - low) * (self.end - self.start)

    def shows(self, value: float | None) -> bool:
        """Whether it is a number within the ends."""
        if value is None or not math.isfinite(value) or (self.log and value <= 0):
            return False
        first, last = sorted((self.start, self.end))
        return first - 1 <= self(value) <= last + 1

    def ticks(self) -> list[float]:
        """Round numbers, as many as there is room for."""
        if self.log:
            return log_ticks(self.low, self.high)
        apart = 55 if self.start < self.end else 28  # numbers need less room above each other
        return round_ticks(self.low, self.high, max(2, int(abs(self.end - self.start) / apart)))


def round_ticks(low: float, high: float, most: int) -> list[float]:
    """Multiples of 1, 2 or 5 times a power of ten, about so many of them."""
    size = 10 ** math.floor(math.log10((high - low) / most))
    step = next(size * times for times in (1, 2, 5, 10) if (high - low) / (size * times) <= most)
    first = math.ceil(low / step - 1e-9)
    return [round(number * step, 12) for number in range(first, math.floor(high / step + 1e-9) + 1)]


def log_ticks(low: float, high: float) -> list[float]:
    """Powers of ten; 1, 2 and 5 times those where there are few, or other round numbers."""
    times = (1, 2, 5) if high < 30 * low else (1,)
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    places = [factor * 10.0**power for power in powers for factor in times]
    within = [place for place in places if low * 0.999 <= place <= high * 1.001]
    if len(within) < 2 and high < 30 * low:
        return round_ticks(low, high, 4)
    return within[:: 1 + len(within) // 8]


@dataclass
class _Plot:
    """One panel with its place on the picture: `left` to `right`, `top` to `bottom` is where marks are."""

    panel: object
    series: list[Series]
    #: Marks of other pictures, for which its axes have room.
    beside: list = field(default_factory=list)
    rows: dict[str, int] = field(default_factory=dict)
    heights: list[float] = field(default_factory=list)
    left: float = 0
    right: float = 0
    top: float = 0
    bottom: float = 0
    x: Scale | None = None
    y: Scale | None = None
    x_label: str = ""
    shows_x: bool = True
    #: Whether its rows are named: where panels stand side by side with the same rows, the first is.
    names_rows: bool = True

    def row(self, name: str) -> float:
        """The middle of a row."""
        number = self.rows[name]
        return self.top + sum(self.heights[:number]) + self.heights[number] / 2

    def across(self, place: float | str) -> float:
        """Where something is from top to bottom."""
        return self.row(place) if isinstance(place, str) else self.y(place)


class _Drawing:
    def __init__(self, picture, width: int, beside: Iterable):
        self.picture = picture
        self.width = width
        self.parts: list[str] = []
        self.over: list[str] = []  # texts of bars, which lie over the rules that bars lie under
        self.boxes: list[str] = []
        series = {id(item.mark): item for item in read(picture)}
        self.plots = []
        for panel in picture.panels:
            of_panel = [series[id(mark)] for mark in panel.marks if id(mark) in series]
            self.plots.append(_Plot(panel, of_panel))
        for other in beside:
            if len(other.panels) == len(self.plots):
                for plot, panel in zip(self.plots, other.panels, strict=True):
                    plot.beside += panel.marks
        self.columns = picture.columns if width >= _NARROW else 1
        self.colors = _colors(picture)

    def svg(self) -> tuple[str, int, int]:
        """The text, and its size."""
        top = self._legend()
        height = self._place(top)
        for plot in self.plots:
            self._axes(plot)
            for mark in sorted(plot.panel.marks, key=_depth):
                _MARKS[type(mark).__name__](self, plot, mark)
            self.parts += self.over
            self.over.clear()
        size = f"0 0 {self.width} {height:.0f}"
        opening = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{size}" style="{_ROOT}">'
        boxes = f'<g style="fill:transparent">{"".join(self.boxes)}</g>'
        return f"{opening}{''.join(self.parts)}{boxes}</svg>", self.width, round(height)

    # Layout

    def _legend(self) -> float:
        """Draw the legend; where it ends."""
        entries = self._entries()
        x, y = 0.0, 12.0
        for name, mark in entries:
            text = wrapped(name, self.width - 30)
            wide = 18 + text_width(text) + 14
            if x and x + wide - 14 > self.width:
                x = 0.0
                y += _LINE + 4
            self._sample(mark, x, y - 3.5)
            self.text(x + 18, y, text)
            y += _LINE * text.count("\n")
            x += wide
        return y + 8 if entries else 0.0

    def _entries(self) -> list[tuple[str, object]]:
        """What the legend says: each name once, but for those that an axis or a note says."""
        known = {""}
        for panel in self.picture.panels:
            known |= {panel.x.label, panel.y.label, panel.title}
            known |= {mark.text for mark in panel.marks if type(mark).__name__ == "Note"}
        entries = {}
        for panel in self.picture.panels:
            for mark in panel.marks:
                kind = type(mark).__name__
                is_told = kind in ("Note", "Cells") or (kind == "Spans" and mark.name == mark.row)
                if not is_told and mark.name not in known:
                    entries.setdefault(mark.name, mark)
        if len(entries) == 1 and type(next(iter(entries.values()))).__name__ == "Bars":
            return []
        return list(entries.items())

    def _sample(self, mark, x: float, y: float) -> None:
        kind = type(mark).__name__
        panel = next(panel for panel in self.picture.panels if mark in panel.marks)
        color = "var(--ov-ink)" if kind == "Rule" and _has_bars(panel) else self.color(mark)
        is_dot = kind == "Dots" or (kind == "Line" and mark.dots) or (kind == "Bars" and panel.x.log)
        if kind in ("Line", "Rule"):
            self.line(x, y, x + 13, y, color, mark.dash, 1.6)
        if is_dot:
            self._dot(x + 6.5, y, color, getattr(mark, "diamond", False))
        elif kind in ("Bars", "Spans", "Columns"):
            self.rect(x, y - 4.5, 13, 9, color, getattr(mark, "light", False))

    def _place(self, top: float) -> float:
        """Give each panel its place; where the last ends."""
        gap = 18.0
        for plot in self.plots:
            self._rows(plot)
            plot.x_label = plot.panel.x.label
        self.repeats_rows = self.columns > 1 and len({tuple(plot.rows) for plot in self.plots}) == 1
        for number, plot in enumerate(self.plots):
            plot.names_rows = not (self.repeats_rows and plot.rows and number % self.columns)
            self._heights(plot)
        shared = self._shares_x()
        lefts = [max(map(self._left, self.plots[column :: self.columns])) for column in range(self.columns)]
        inner = (self.width - gap * (self.columns - 1) - sum(lefts)) / self.columns
        bottom = top
        for number, plot in enumerate(self.plots):
            column = number % self.columns
            if column == 0:
                top = bottom
            is_last = number == len(self.plots) - 1
            plot.shows_x = not shared or is_last
            plot.left = column * (inner + gap) + sum(lefts[: column + 1])
            plot.right = plot.left + inner - 6
            title = wrapped(plot.panel.title, inner + lefts[column])
            plot.top = top + (4 if not title else 6 + _LINE * len(title.split("\n")))
            if title:
                self.text(plot.left - lefts[column], top + 11, title, weight=True)
            if plot.panel.y.label and not plot.rows:
                self.text(plot.left - lefts[column], plot.top + 9, plot.panel.y.label)
                plot.top += _LINE + 4
            height = sum(plot.heights) if plot.rows else (170.0 if len(self.plots) < 2 else 110.0)
            plot.bottom = plot.top + height
            self._scales(plot)
            below = 0.0
            if plot.shows_x:
                below = 16.0 + _LINE * self._lines_of_ticks(plot)
                if plot.x_label:
                    below += _LINE * len(wrapped(plot.x_label, self.width).split("\n")) + 2
            bottom = max(bottom, plot.bottom + below + 4)
        if shared:
            low = min(plot.x.low for plot in self.plots)
            high = max(plot.x.high for plot in self.plots)
            for plot in self.plots:
                plot.x = Scale(low, high, plot.left, plot.right, plot.x.log)
        return bottom

    def _rows(self, plot: _Plot) -> None:
        """The rows of a panel whose y axis has texts."""
        for mark in plot.panel.marks:
            kind = type(mark).__name__
            names: Iterable[str] = ()
            if kind == "Bars":
                names = mark.values
            elif kind == "Spans":
                names = [mark.row]
            elif kind == "Cells":
                names = mark.rows
            elif kind == "Dots":
                names = [y for y in mark.y if isinstance(y, str)]
            for name in names:
                plot.rows.setdefault(name, len(plot.rows))

    def _heights(self, plot: _Plot) -> None:
        """How high the rows are."""
        bars = [mark for mark in plot.panel.marks if type(mark).__name__ == "Bars"]
        with_bars = {name for mark in bars for name in mark.values}
        groups = sum(not mark.starts for mark in bars)
        for name in plot.rows:
            lines = len(wrapped(name, self._room()).split("\n"))
            height = 8 + _thick(groups) * max(groups, 1) if name in with_bars else 19.0
            plot.heights.append(max(height, _LINE * lines + 4))

    def _room(self) -> float:
        """How wide the names of rows can be."""
        return 0.3 * self.width if self.repeats_rows else 0.42 * self.width / self.columns

    def _left(self, plot: _Plot) -> float:
        """How much room the texts at the left take."""
        if plot.rows:
            names = plot.rows if plot.names_rows else ()
            return max((text_width(wrapped(name, self._room())) + 8 for name in names), default=0.0)
        low, high = _extent(plot, "y")
        scale = Scale(low, high, 170, 0, plot.panel.y.log)
        words = plot.panel.y.ticks or {tick: _number(tick) for tick in scale.ticks()}
        return max((text_width(word) for word in words.values()), default=0) + 8

    def _scales(self, plot: _Plot) -> None:
        low, high = _extent(plot, "x")
        plot.x = Scale(low, high, plot.left, plot.right, plot.panel.x.log)
        if not plot.rows:
            low, high = _extent(plot, "y")
            plot.y = Scale(low, high, plot.bottom, plot.top, plot.panel.y.log)
        room = plot.right - plot.left
        widest = plot.x.high
        for value, wide in self._behind(plot):  # so that what stands behind bars has room
            wide = min(wide + 6, 0.6 * room)
            if value is not None and math.isfinite(value) and (value > 0 or not plot.x.log):
                share = room / (room - wide)
                if plot.x.log:
                    widest = max(widest, low_to(plot.x.low, value, share))
                else:
                    widest = max(widest, plot.x.low + (value - plot.x.low) * share)
        if plot.panel.x.high is None:
            plot.x.high = widest

    def _behind(self, plot: _Plot) -> list[tuple[float, float]]:
        """(end of a bar or place of a note, width of the text behind it)."""
        behind = []
        for mark in [*plot.panel.marks, *plot.beside]:
            kind = type(mark).__name__
            if kind == "Bars":
                for row, length in mark.values.items():
                    end = (mark.starts or {}).get(row, 0.0) + (length or 0.0)
                    behind.append((end, text_width(_bar_text(mark, row, length))))
            elif kind == "Note" and mark.align == "left" and isinstance(mark.y, str):
                behind.append((mark.x, text_width(mark.text) + mark.dx))
            elif kind == "Rule" and mark.axis == "x":
                behind.append((mark.at, 0.0))
        return behind

    def _shares_x(self) -> bool:
        """Whether equal lengths are equal in all panels.

        They are where the last alone has a label, and in timelines whose shortest can still be seen.
        """
        if len(self.plots) < 2 or self.columns > 1:
            return False
        panels = [plot.panel for plot in self.plots]
        kinds = {type(mark).__name__ for panel in panels for mark in panel.marks}
        if any(panel.x.log or panel.x.ticks or panel.x.high is not None for panel in panels):
            return False
        if len({panel.x.label for panel in panels if panel.x.label}) > 1:
            return False
        if panels[-1].x.label and not all(panel.x.label for panel in panels):
            return True
        ends = [_extent(plot, "x")[1] for plot in self.plots]
        return "Spans" in kinds and max(ends) <= _APART * min(ends)

    # Axes

    def _axes(self, plot: _Plot) -> None:
        grid = "var(--ov-grid)"
        if plot.rows:
            for name in plot.rows if plot.names_rows else ():
                lines = wrapped(name, self._room())
                first = plot.row(name) + 3.5 - _LINE / 2 * lines.count("\n")
                self.text(plot.left - 6, first, lines, "end")
        else:
            ticks = plot.panel.y.ticks or {tick: _number(tick) for tick in plot.y.ticks()}
            for tick, word in ticks.items():
                if plot.y.shows(tick):
                    y = plot.y(tick)
                    self.line(plot.left, y, plot.right, y, grid)
                    self.text(plot.left - 6, y + 3.5, word, "end")
        cells = [mark for mark in plot.panel.marks if type(mark).__name__ == "Cells"]
        if cells:
            self._columns_of_cells(plot, cells[0])
            return
        ticks = self._ticks(plot)
        for x, _ in ticks:
            self.line(x, plot.top, x, plot.bottom, grid)
        self.line(plot.left, plot.bottom, plot.right, plot.bottom, grid, wide=1.2)
        if plot.shows_x:
            is_upright = self._is_upright(plot)
            for x, word in ticks if is_upright else _thinned(ticks):
                half = text_width(word) / 2
                if is_upright:
                    self._upright(x + 3.5, plot.bottom + 5, word)
                else:
                    self.text(min(max(x, half), self.width - half), plot.bottom + 13, word, "middle")
            self._x_label(plot)

    def _ticks(self, plot: _Plot) -> list[tuple[float, str]]:
        """Where the x axis has a line, with what stands there."""
        words = plot.panel.x.ticks
        ticks = dict(words) if words is not None else {tick: _number(tick) for tick in plot.x.ticks()}
        return [(plot.x(tick), word) for tick, word in sorted(ticks.items()) if plot.x.shows(tick)]

    def _is_upright(self, plot: _Plot) -> bool:
        """Whether words have no room beside each other; of numbers some are left out then."""
        ticks = self._ticks(plot)
        has_numbers = any(letter.isdigit() for _, word in ticks for letter in word)
        return not has_numbers and len(_thinned(ticks)) < len(ticks)

    def _columns_of_cells(self, plot: _Plot, cells) -> None:
        for number, column in enumerate(cells.columns):
            x = plot.left + (number + 0.5) * (plot.right - plot.left) / len(cells.columns)
            self.text(x, plot.bottom + 13, column, "middle")
        self._x_label(plot)

    def _lines_of_ticks(self, plot: _Plot) -> float:
        """How much room the words of the x axis take below the first line, in lines."""
        cells = [mark for mark in plot.panel.marks if type(mark).__name__ == "Cells"]
        words = list(cells[0].columns) if cells else list((plot.panel.x.ticks or {}).values())
        if not any(words) and words:
            return -1
        if not cells and self._is_upright(plot):
            return (max(map(text_width, words)) + 6) / _LINE - 1
        return max((word.count("\n") for word in words), default=0)

    def _x_label(self, plot: _Plot) -> None:
        if plot.x_label:
            y = plot.bottom + 13 + _LINE * (1 + self._lines_of_ticks(plot)) + 2
            label = wrapped(plot.x_label, self.width)
            half = text_width(label) / 2
            middle = (plot.left + plot.right) / 2
            self.text(max(min(middle, self.width - half), half), y, label, "middle")

    # Marks

    def bars(self, plot: _Plot, mark) -> None:
        """Lying bars; dots on a logarithmic axis, which has no zero that a length could begin at."""
        groups = [m for m in plot.panel.marks if type(m).__name__ == "Bars" and not m.starts]
        thick = _thick(len(groups)) if groups else _thick(1)
        series = _of(plot, mark)
        for (row, length), told_row in zip(mark.values.items(), series.rows, strict=True):
            if length is None or not math.isfinite(length):
                continue
            y = plot.row(row) - thick / 2
            if len(groups) > 1 and mark in groups:
                y = plot.row(row) + (groups.index(mark) - len(groups) / 2) * thick
            start = (mark.starts or {}).get(row, 0.0)
            color = mark.colors.get(row)
            color = self.color(mark) if color is None else _variable(color)
            end = plot.x(start + length) if start + length > 0 or not plot.x.log else plot.left
            begin = plot.left if plot.x.log else plot.x(max(start, plot.x.low))
            if plot.x.log:
                self.line(plot.left, y + thick / 2, end, y + thick / 2, "var(--ov-grid)")
                self._dot(end, y + thick / 2, color)
            else:
                inset = 0.5 if len(groups) > 1 else 0
                self.rect(begin, y + inset, end - begin, thick - 2 * inset, color, mark.light)
            said = _bar_text(mark, row, length)
            if said:
                self._text_behind(plot, end + (6 if plot.x.log else 4), y + thick / 2, said)
            self.box(begin, y, max(end - begin, 4), thick, told(series, [told_row]))

    def _under(self, plot: _Plot, x: float, y: float, text: str) -> list[str]:
        """Paper under a text, where an upright rule would strike it."""
        wide = text_width(text)
        rules = [m for m in plot.panel.marks if type(m).__name__ == "Rule" and m.axis == "x"]
        if not any(x - 2 <= plot.x(rule.at) <= x + wide + 2 for rule in rules if plot.x.shows(rule.at)):
            return []
        place = f'x="{_p(x - 1)}" y="{_p(y - 6)}" width="{_p(wide + 2)}" height="12"'
        return [f'<rect {place} style="fill:var(--ov-paper)"/>']

    def _text_behind(self, plot: _Plot, x: float, y: float, text: str) -> None:
        """A text behind a bar; a rule that would strike it lies under it."""
        self.over += self._under(plot, x, y, text)
        self.over.append(f'<text x="{_p(x)}" y="{_p(y + 3.5)}">{escape(text)}</text>')

    def columns_(self, plot: _Plot, mark) -> None:
        """Standing bars."""
        series = _of(plot, mark)
        color = self.color(mark)
        for number, (x, y) in enumerate(zip(mark.x, mark.y, strict=True)):
            if not plot.y.shows(y):
                continue
            left, right = plot.x(x - mark.width / 2), plot.x(x + mark.width / 2)
            own = mark.colors[number] if mark.colors else None
            top = plot.y(y)
            self.rect(left, top, right - left, plot.bottom - top, color if own is None else _variable(own))
            if mark.texts:
                self.text((left + right) / 2, top - 3, mark.texts[number], "middle")
            self.box(left, top, right - left, max(plot.bottom - top, 4), told(series, [series.rows[number]]))

    def lines(self, plot: _Plot, mark) -> None:
        """A line with its points, in pieces where something was not measured."""
        color = self.color(mark)
        pieces: list[list[tuple[float, float]]] = [[]]
        for x, y in zip(mark.x, mark.y, strict=True):
            seen = x is not None and y is not None and math.isfinite(x) and math.isfinite(y)
            if not seen or (plot.y.log and y <= 0) or (plot.x.log and x <= 0):
                pieces.append([])
                continue
            if mark.step and pieces[-1]:
                pieces[-1].append((plot.x(x), pieces[-1][-1][1]))
            pieces[-1].append((plot.x(x), plot.y(y)))
        for piece in filter(None, pieces):
            inside = _clipped(piece, plot)
            for part in inside:
                path = "L".join(f"{_p(x)},{_p(y)}" for x, y in part)
                dash = f" stroke-dasharray:{mark.dash};" if mark.dash else ""
                style = f"fill:none;stroke:{color};stroke-width:1.8;{dash}"
                self.parts.append(f'<path d="M{path}" style="{style}"/>')
        self._points(plot, mark, color, mark.dots and len(mark.x) <= _MANY)

    def dots(self, plot: _Plot, mark) -> None:
        """Points."""
        self._points(plot, mark, self.color(mark), True)

    def _points(self, plot: _Plot, mark, color: str, visible: bool) -> None:
        series = _of(plot, mark)
        radius = 2.8 if len(mark.x) <= _MANY else 1.8
        last = None
        for (x, y), row in zip(zip(mark.x, mark.y, strict=True), series.rows, strict=True):
            if not plot.x.shows(x) or not (isinstance(y, str) or plot.y.shows(y)):
                continue
            place = plot.x(x), plot.across(y)
            if visible:
                self._dot(*place, color, getattr(mark, "diamond", False), radius)
            if last and abs(place[0] - last[0]) < _NEAR and abs(place[1] - last[1]) < _NEAR:
                continue
            last = place
            self.box(place[0] - 6, place[1] - 6, 12, 12, told(series, [row]))

    def spans(self, plot: _Plot, mark) -> None:
        """Parts of a row, as one path; short ones that follow each other have one box."""
        series = _of(plot, mark)
        if not series:
            return
        middle = plot.row(mark.row)
        top, height = middle - 7, 14
        path, joined = [], []
        for row in sorted(series.rows, key=lambda row: row[0]):
            start, length = row
            left, right = plot.x(start), plot.x(start + length)
            if right < plot.left - 1 or left > plot.right + 1:
                continue
            left, right = max(left, plot.left), min(right, plot.right)
            wide = max(right - left, 0.6) - (0.8 if mark.apart and right - left > 2 else 0)
            path.append(f"M{_p(left)},{_p(top)}h{_p(wide)}v{height}h-{_p(wide)}z")
            last = joined[-1] if joined else None
            if last and left - last[1] < _NEAR and right - last[0] < 4 * _NEAR:
                last[1] = right
                last[2].append(row)
            else:
                joined.append([left, right, [row]])
        light = "fill-opacity:.35" if self._is_light(mark) else ""
        self.parts.append(f'<path d="{"".join(path)}" style="fill:{self.color(mark)};{light}"/>')
        for left, right, rows in joined:
            self.box(left, top, max(right - left, 4), height, told(series, rows))

    def cells(self, plot: _Plot, mark) -> None:
        """A table of values, darker where they are larger."""
        series = _of(plot, mark)
        wide = (plot.right - plot.left) / len(mark.columns)
        known = [v for row in mark.values for v in row if v is not None and math.isfinite(v)]
        most = max(known, default=1) or 1
        gap = 1 if wide > 6 else 0
        rows = iter(series.rows)
        for y, name in enumerate(mark.rows):
            for x, value in enumerate(mark.values[y]):
                if value is None:
                    continue
                row = next(rows)
                left, middle = plot.left + x * wide, plot.row(name)
                height = plot.heights[plot.rows[name]]
                shade = mark.shades[y][x] if mark.shades else (value or 0) / most
                color, depth = "var(--ov-series-1)", 0.05 + 0.5 * max(shade, 0)
                if mark.colors:
                    color, depth = _variable(mark.colors[y][x]), 0.45
                style = f"fill:{color};fill-opacity:{depth:.2f}"
                size = f'width="{_p(wide - gap)}" height="{_p(height - 1)}"'
                self.parts.append(
                    f'<rect x="{_p(left)}" y="{_p(middle - height / 2)}" {size} style="{style}"/>'
                )
                said = mark.texts[y][x] if mark.texts else ""
                if said:
                    self.text(left + wide / 2, middle + 3.5, said, "middle")
                self.box(left, middle - height / 2, wide, height, told(series, [row]))

    def rule(self, plot: _Plot, mark) -> None:
        """A line through the panel, or through a part of it."""
        color = self.color(mark)
        words = told(_of(plot, mark), [_of(plot, mark).rows[0]])
        if mark.axis == "x":
            if not plot.x.shows(mark.at):
                return
            x, top, bottom = plot.x(mark.at), plot.top, plot.bottom
            if mark.part:
                half = [plot.heights[plot.rows[p]] / 2 if isinstance(p, str) else 0 for p in mark.part]
                top, bottom = (plot.across(place) for place in mark.part)
                top, bottom = sorted((top, bottom))
                top, bottom = top - half[0], bottom + half[1]
            color = "var(--ov-ink)" if _has_bars(plot.panel) else color  # grey cannot be seen on bars
            self.line(x, top, x, bottom, color, mark.dash, 1.4)
            self.box(x - 2, top, 4, bottom - top, words)
        elif plot.y.shows(mark.at):
            y, left, right = plot.y(mark.at), plot.left, plot.right
            if mark.part:
                left, right = (plot.x(place) for place in mark.part)
            self.line(left, y, right, y, color, mark.dash, 1.4)
            self.box(left, y - 2, right - left, 4, words)

    def note(self, plot: _Plot, mark) -> None:
        """A text at a place, kept within the picture."""
        if not plot.x.log or mark.x > 0:
            x, y = plot.x(mark.x) + mark.dx, plot.across(mark.y) + mark.dy + 3.5
            wide = text_width(mark.text)
            left = {"left": x, "right": x - wide, "center": x - wide / 2}[mark.align]
            inside = min(max(left, 0), max(self.width - wide, 0))
            x += inside - left
            if mark.color != "paper":  # which stands on a bar
                self.parts += self._under(plot, inside, y - 3.5, mark.text)
            anchor = {"left": "start", "right": "end", "center": "middle"}[mark.align]
            self.text(x, y, mark.text, anchor, _variable(mark.color))

    # SVG

    def color(self, mark) -> str:
        """The CSS variable of a mark's colour."""
        own = mark_color(mark)
        return _variable(self.colors.get(id(mark), 1) if own is None else own)

    def _is_light(self, mark) -> bool:
        return mark.light or mark.name.endswith(" waits")

    def line(self, x: float, y: float, x2: float, y2: float, color: str, dash="", wide=0.6) -> None:
        """A straight line."""
        dashes = f";stroke-dasharray:{dash}" if dash else ""
        ends = f'x1="{_p(x)}" y1="{_p(y)}" x2="{_p(x2)}" y2="{_p(y2)}"'
        self.parts.append(f'<line {ends} style="stroke:{color};stroke-width:{wide}{dashes}"/>')

    def rect(self, x: float, y: float, wide: float, high: float, color: str, light=False) -> None:
        """A filled rectangle."""
        size = f'x="{_p(x)}" y="{_p(y)}" width="{_p(max(wide, 0))}" height="{_p(high)}"'
        opacity = ";fill-opacity:.35" if light else ""
        self.parts.append(f'<rect {size} style="fill:{color}{opacity}"/>')

    def _dot(self, x: float, y: float, color: str, diamond=False, radius=2.8) -> None:
        if diamond:
            self.parts.append(f'<path d="M{_p(x)},{_p(y - 4)}l4,4l-4,4l-4,-4z" style="fill:{color}"/>')
        else:
            self.parts.append(f'<circle cx="{_p(x)}" cy="{_p(y)}" r="{radius}" style="fill:{color}"/>')

    def text(self, x: float, y: float, text: str, anchor="start", color="", weight=False) -> None:
        """Lines of text."""
        style = f"fill:{color};" if color and color != "var(--ov-ink)" else ""
        style += "font-weight:600;" if weight else ""
        look = f' text-anchor="{anchor}"' if anchor != "start" else ""
        look += f' style="{style}"' if style else ""
        for number, line in enumerate(text.split("\n")):
            self.parts.append(f'<text x="{_p(x)}" y="{_p(y + number * _LINE)}"{look}>{escape(line)}</text>')

    def _upright(self, x: float, y: float, text: str) -> None:
        """A text from below, which ends at a place."""
        turn = f'transform="rotate(-90 {_p(x)} {_p(y)})" text-anchor="end"'
        self.parts.append(f'<text x="{_p(x)}" y="{_p(y)}" {turn}>{escape(text)}</text>')

    def box(self, x: float, y: float, wide: float, high: float, words: str) -> None:
        """An invisible box that tells something to who points at it."""
        size = f'x="{_p(x)}" y="{_p(y)}" width="{_p(wide)}" height="{_p(high)}"'
        self.boxes.append(f'<rect class="ov-point" {size}><title>{escape(words)}</title></rect>')


_MARKS: dict[str, Callable] = {
    "Bars": _Drawing.bars,
    "Columns": _Drawing.columns_,
    "Line": _Drawing.lines,
    "Dots": _Drawing.dots,
    "Spans": _Drawing.spans,
    "Cells": _Drawing.cells,
    "Rule": _Drawing.rule,
    "Note": _Drawing.note,
}


def _depth(mark) -> int:
    """What lies under what: rules over bars and under lines, notes on top."""
    return {"Line": 2, "Dots": 2, "Rule": 1, "Note": 3}.get(type(mark).__name__, 0)


def _has_bars(panel) -> bool:
    return any(type(mark).__name__ == "Bars" for mark in panel.marks)


def _colors(picture) -> dict[int, int]:
    """The colour of each mark that has none of its own: marks of one name share it, lanes have theirs."""
    colors: dict[int, int | str] = {}
    by_name: dict[str, int | str] = {}
    for panel in picture.panels:
        count = 0
        for mark in panel.marks:
            kind = type(mark).__name__
            if kind in ("Note", "Cells", "Rule") or mark_color(mark) is not None:
                continue
            key, color = mark.name, count % _COLORS + 1
            if kind == "Spans":
                key = re.sub(r"^CPU \d+$", "CPU", key.rpartition(", ")[2])
                known = sum(color != "ceiling" for color in by_name.values())
                color = "ceiling" if key.endswith(" waits") else _LANES.get(key, known % _COLORS + 1)
            if not key or key not in by_name:
                by_name[key] = color
            colors[id(mark)] = by_name[key]
            count += 1
    return colors


def mark_color(mark):
    """The colour that its author gave a mark."""
    return getattr(mark, "color", None)


def _variable(color: int | str) -> str:
    return f"var(--ov-series-{color})" if isinstance(color, int) else f"var(--ov-{color})"


def _of(plot: _Plot, mark) -> Series | None:
    return next((item for item in plot.series if item.mark is mark), None)


def _thick(groups: int) -> float:
    return 14.0 if groups < 2 else 11.0


def _bar_text(mark, row: str, length: float | None) -> str:
    """What stands behind a bar."""
    if mark.texts is not None:
        return mark.texts.get(row, "")
    if length is None or not math.isfinite(length):
        return ""
    return f"{float(f'{length:.3g}'):,.10g}"


def _number(value: float) -> str:
    return f"{value:,.10g}".replace("-", "−")


def _extent(plot: _Plot, which: str) -> tuple[float, float]:
    """The ends of an axis: those that its author gave, else those of the data with some room."""
    axis = getattr(plot.panel, which)
    values: list[float] = []
    from_zero = False
    for mark in [*plot.panel.marks, *plot.beside]:
        kind = type(mark).__name__
        if kind == "Bars" and which == "x":
            for row, length in mark.values.items():
                values.append((mark.starts or {}).get(row, 0.0) + (length or 0.0))
            from_zero = True
        elif kind == "Spans" and which == "x":
            values += [place for start, length in mark.spans for place in (start, start + length)]
        elif kind in ("Line", "Dots", "Columns"):
            values += [value for value in getattr(mark, which) if not isinstance(value, str)]
            if kind == "Columns":
                half = mark.width / 2
                values += [x + side for x in mark.x for side in (-half, half)] if which == "x" else [0.0]
        elif kind == "Rule" and mark.axis == which:
            values.append(mark.at)
        elif kind == "Note" and not isinstance(getattr(mark, which), str):
            values.append(getattr(mark, which))
    known = [v for v in values if v is not None and math.isfinite(v) and (v > 0 or not axis.log)]
    low, high = min(known, default=0.1 if axis.log else 0.0), max(known, default=1.0)
    if axis.log:
        room = (high / low) ** 0.04 if high > low else 2.0
        low, high = low / (1.5 if from_zero else max(room, 1.05)), high * max(room, 1.05)
    elif from_zero:
        low = min(low, 0.0)
    else:
        has_spans = any(type(mark).__name__ == "Spans" for mark in plot.panel.marks)
        room = 0.04 * (high - low) or 0.5
        stands = which == "y" and any(type(mark).__name__ == "Columns" for mark in plot.panel.marks)
        if stands:
            low, high = low and low - room, high + 2.5 * room  # for the texts above them
        elif not (has_spans and which == "x"):
            low, high = low - room, high + room
        if has_spans and which == "x" and 0 <= low < 0.2 * high:
            low = 0.0
    low = low if axis.low is None else axis.low
    high = high if axis.high is None else axis.high
    return (low, high) if high > low else (low, low * 2 if axis.log else low + 1)


def low_to(low: float, value: float, share: float) -> float:
    """Where a logarithmic axis must end, so that `value` is at the `share`-th part of it."""
    return low * (max(value, low) / low) ** share


def _thinned(labels: list[tuple[float, str]]) -> list[tuple[float, str]]:
    """Every second label goes, until none touches its neighbour."""
    while len(labels) > 2 and any(
        x + text_width(word) / 2 + 4 > x2 - text_width(word2) / 2
        for (x, word), (x2, word2) in pairwise(labels)
    ):
        labels = labels[::2]
    return labels


def _clipped(piece: list[tuple[float, float]], plot: _Plot) -> list[list[tuple[float, float]]]:
    """The parts of a line that lie in a panel, cut at its sides."""
    parts: list[list[tuple[float, float]]] = [[]]
    if len(piece) == 1:
        return []
    for start, end in pairwise(piece):
        cut = _segment(start, end, plot)
        if not cut:
            parts.append([])
            continue
        if not parts[-1] or parts[-1][-1] != cut[0]:
            parts.append([cut[0]])
        parts[-1].append(cut[1])
    return [part for part in parts if len(part) > 1]


def _segment(start, end, plot: _Plot):
    """The part of a straight line within a panel, by Liang and Barsky's method; None where there is none."""
    (x, y), (x2, y2) = start, end
    first, last = 0.0, 1.0
    across, along = x2 - x, y2 - y
    sides = [(-across, x - plot.left), (across, plot.right - x)]
    sides += [(-along, y - plot.top), (along, plot.bottom - y)]
    for toward, room in sides:
        if abs(toward) < 1e-12:
            if room < -0.5:
                return None
            continue
        share = room / toward
        if toward < 0:
            first = max(first, share)
        else:
            last = min(last, share)
    if first > last:
        return None
    return (x + first * across, y + first * along), (x + last * across, y + last * along)


def _p(value: float) -> str:
    """Pixels, to a tenth."""
    return f"{value:.1f}".removesuffix(".0")
