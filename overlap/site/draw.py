"""Declared pictures as SVG: one text for a page so wide, in the colours of the page's variables.

The marks are those of `snippets/pictures.py`; `layout` says where everything stands. Here the legend, axes
and each kind of mark draw themselves. Over what a mark draws lie invisible boxes that a pointer finds, each
with its words.
"""

import math
import re
from collections.abc import Callable, Iterable
from functools import cached_property, partial
from itertools import pairwise
from typing import NamedTuple
from xml.sax.saxutils import escape

from overlap import OverlapError
from overlap.site.colors import LANES
from overlap.site.layout import Layout, Plot, kind, range_of, text_of_bar
from overlap.site.numbers import told
from overlap.site.scales import FONT, LINE, text_width, thinned, wrapped

#: Pixels of a page's two forms.
WIDTHS = {"wide": 504, "narrow": 266}
#: The widest page that is narrow. In a style sheet it can be no variable; a test compares them.
NARROW = "33rem"
#: A picture that has fewer pixels on a page is in its narrow form, too: beside another one, in a pair.
SMALL = 420
_NEAR = 3  # pixels: places nearer than this share a box
HATCH = 6  # pixels between the lines of what waits
_LINED = 16  # pixels: pale parts of which most are as wide have lines around them
#: A whisker is so long, or left out; on a logarithmic axis it has a dot in its middle.
_SEEN, _SEEN_BESIDE_DOT = 4, 9
_MANY = 40  # points of a line that still have dots
#: What lanes of these names are, so that they have one colour on all pages; or the number of a colour.
_LANES: dict[str, int | str] = {"CPU": "python", "CPU copies": "python", "copies": "data", "NCCL": "peer"}
_LANES |= {"all-reduce": "peer", "all-reduces": "peer", "GPU": "gpu", "compute": "gpu", "matmuls": "gpu"}
_LANES |= {"backward": "python"}  # the CPU's thread
_LANES |= {"compute, copies": "gpu", "optimizer": 7, "unprofiled": 6}
#: Models, which several pages draw. None is orange or pink.
_LANES |= {"MLP": 1, "CNN": 7, "ResNet": 6}
#: A name of marks in which somebody waits; "CPU waits" is for the GPU.
_WAITS = re.compile(r"\bwaits(?: for\b|$)")
#: Colours with a number; marks that name none take the first six.
COLORS = 7
#: What other lanes of such a timeline take first: colours that say less.
_BESIDE_LANES = (1, 2, 6, 3, 4, 5)
_INK, _PAPER, _GRID = "var(--ov-ink)", "var(--ov-paper)", "var(--ov-grid)"
#: Behind pale parts: mixed with the paper of a dark page, they are hard to see.
_PALE = "var(--ov-pale)"
_ROOT = f"fill:{_INK};font-size:{FONT}px;stroke-linejoin:round;white-space:pre"
#: Paper around letters, where a line would strike them.
_HALO = f"paint-order:stroke;stroke:{_PAPER};stroke-width:3px;"
_ANCHORS = {"left": "start", "right": "end", "center": "middle"}

Place = tuple[float, float]


def placed(picture, width: int, beside: Iterable = ()) -> "Drawing":
    """A `snippets.pictures.Picture` on a page so wide, before it is drawn.

    Its axes have room for what others show that stand `beside` it, on the same scales.
    """
    if type(picture).__name__ != "Picture":
        raise OverlapError(f"must return a Picture of snippets/pictures.py, not {type(picture).__name__}")
    if not picture.panels or not all(panel.marks for panel in picture.panels):
        raise OverlapError("returned a picture with an empty panel; give each panel a mark")
    return Drawing(picture, Layout(picture, width, beside))


class Drawing:
    """A picture whose panels have their places, below its legend; `width` and `height` are in pixels."""

    def __init__(self, picture, layout: Layout):
        self.picture = picture
        self.layout = layout
        self.width = layout.width
        self.colors = _colors(picture)
        self.parts: list[str] = []
        self.over: list[str] = []  # texts of bars, which lie over the rules that lie over bars
        self.boxes: list[str] = []
        if any(getattr(mark, "ranges", None) for plot in layout.plots for mark in plot.marks("Bars")):
            layout.place(0)  # the legend tells only of whiskers that are long enough to be seen
        self._end = layout.place(self._legend())
        self.height = round(self._end)

    @property
    def axes(self) -> list[list[float]]:
        """The ends of its axes that have numbers."""
        scales = [scale for plot in self.layout.plots for scale in (plot.x, plot.y) if scale]
        return [scale.ends for scale in scales]

    @cached_property
    def svg(self) -> str:
        """The text."""
        for plot in self.layout.plots:
            self._axes(plot)
            for mark in sorted(plot.panel.marks, key=lambda mark: _KINDS[kind(mark)].depth):
                _KINDS[kind(mark)].draw(self, plot, mark)
            self.parts += self.over
            self.over.clear()
        boxes = f'<g style="fill:transparent">{"".join(self.boxes)}</g>'
        return self.whole("".join(self.parts) + boxes)

    def whole(self, drawn: str) -> str:
        """The SVG around what is drawn."""
        size = f"0 0 {self.width} {self._end:.0f}"
        opening = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{size}" style="{_ROOT}">'
        return f"{opening}{drawn}</svg>"

    # Legend

    def _legend(self) -> float:
        """Draw it, in lines that fit; where it ends."""
        x, y = 0.0, 12.0
        samples = {name: partial(self._sample, *entry) for name, entry in self._entries().items()}
        if runs := max(map(_runs, self.layout.plots), default=0):
            samples[self._say("lowest to highest of {runs} runs").format(runs=runs)] = self._whisker_alone
        for name, draw in samples.items():
            text = wrapped(name, self.width - 30)
            wide = 18 + text_width(text)
            if x and x + wide > self.width:
                x = 0.0
                y += LINE + 4
            draw(x, y - 3.5)
            self.text(x + 18, y, text)
            y += LINE * text.count("\n")
            x += wide + 14
        return y + 8 if samples else 0.0

    def _entries(self) -> dict[str, tuple[Plot, object]]:
        """A mark for each name, but for names that an axis or a note says, and the only bars."""
        known = {""}
        entries: dict[str, tuple[Plot, object]] = {}
        for plot in self.layout.plots:
            panel = plot.panel
            known |= {panel.x.label, panel.y.label, panel.title, *(note.text for note in plot.marks("Note"))}
            spans = plot.marks("Spans")
            for mark in plot.marks(*(name for name in _KINDS if _KINDS[name].in_legend)):
                names = {other.name for other in spans if other.row == getattr(mark, "row", None)}
                if kind(mark) != "Spans" or (mark.name != mark.row and len(names) > 1):
                    entries.setdefault(mark.name, (plot, mark))
        entries = {name: entry for name, entry in entries.items() if name not in known}
        if [kind(mark) for _, mark in entries.values()] == ["Bars"]:
            return {}
        return entries

    def _say(self, words: str) -> str:
        """The book's own words in the picture's language."""
        return getattr(self.picture, "say", str)(words)

    def _whisker_alone(self, x: float, y: float) -> None:
        self.whisker(x, x + 13, y)

    def _sample(self, plot: Plot, mark, x: float, y: float) -> None:
        color = self.color(plot, mark)
        match kind(mark):
            case "Rule":
                self.line(x, y, x + 13, y, color, mark.dash, 1.6)
            case "Line":
                self.line(x, y, x + 13, y, color, mark.dash, 1.6 if color != _INK else 1.2)
                if mark.dots:
                    self.dot(x + 6.5, y, color)
            case "Dots":
                self.dot(x + 6.5, y, color, mark.diamond)
            case "Bars" if plot.panel.x.log:
                self.dot(x + 6.5, y, color)
            case _:
                self.bar(mark, x, y - 4.5, 13, 9, color)

    # Axes

    def _axes(self, plot: Plot) -> None:
        y = plot.top - 7
        if plot.panel.y.label and not plot.rows:
            y -= 2  # apart from the topmost number
            self.text(plot.start, y, plot.panel.y.label + (" (log)" if plot.y.log else ""))
            y -= LINE + 4
        if plot.title:
            self.text(plot.start, y - LINE * plot.title.count("\n"), plot.title, style="font-weight:600;")
        if plot.rows:
            for row in plot.rows if plot.names_rows else ():
                name = self.layout.name_of_row(row)
                self.text(plot.left - 6, plot.row(row) + 3.5 - LINE / 2 * name.count("\n"), name, "end")
            for row in plot.rows if {*map(kind, plot.panel.marks)} <= {"Dots", "Rule", "Note"} else ():
                self.line(plot.left, plot.row(row), plot.right, plot.row(row), _GRID)  # to its dots
        else:
            for y, word in plot.y_ticks():
                self.line(plot.left, y, plot.right, y, _GRID)
                self.text(plot.left - 6, y + 3.5, word, "end")
        if cells := plot.marks("Cells"):
            wide = (plot.right - plot.left) / len(cells[0].columns)
            for place, column in enumerate(cells[0].columns):
                self.text(plot.left + (place + 0.5) * wide, plot.bottom + 13, column, "middle")
        else:
            self.line(plot.left, plot.bottom, plot.right, plot.bottom, _GRID, wide=1.2)
            self._x_ticks(plot)
        if self.layout.is_low:
            if plot.names_rows and plot.shows_x:
                self.text(plot.left - 6, plot.bottom + 13, plot.panel.x.label, "end")
        elif plot.shows_x and (label := self.layout.label_of(plot)):
            half = text_width(label) / 2
            middle = max(min((plot.left + plot.right) / 2, self.width - half), half)
            self.text(middle, plot.bottom + plot.below + LINE, label, "middle")

    def _x_ticks(self, plot: Plot) -> None:
        ticks = plot.x_ticks()
        for x, _ in ticks:
            self.line(x, plot.top, x, plot.bottom, _GRID)
        if not plot.shows_x:
            return
        if plot.is_upright:
            for x, word in ticks:
                self.upright(x + 3.5, plot.bottom + 5, word)
            return
        lines = 2 if plot.is_staggered else 1
        for line in range(lines):
            for x, word in thinned(ticks[line::lines]):
                half = text_width(word) / 2
                y = plot.bottom + 13 + LINE * line
                self.text(min(max(x, half), self.width - half), y, word, "middle")

    # Marks

    def bars(self, plot: Plot, mark) -> None:
        """Lying bars; dots on a logarithmic axis, which has no zero that a length could begin at."""
        groups = plot.groups
        thick = plot.thick
        is_one_of_several = len(groups) > 1 and mark in groups
        series = plot.series_of(mark)
        for (row, length), told_row in zip(mark.values.items(), series.rows, strict=True):
            if length is None or not math.isfinite(length):
                continue
            y = plot.row(row) - thick / 2
            if is_one_of_several:
                y = plot.row(row) + (groups.index(mark) - len(groups) / 2) * thick
            start = (mark.starts or {}).get(row, 0.0)
            own = mark.colors.get(row)
            color = self.color(plot, mark) if own is None else _variable(own)
            end = _end_of_bar(plot, mark, row, length)
            first, last = _reach(plot, mark, row, end)
            if plot.x.log:
                begin = plot.left
                self.line(begin, y + thick / 2, end, y + thick / 2, _GRID)
                if first < last:
                    self.whisker(first, last, y + thick / 2)
                self.dot(end, y + thick / 2, color)
            else:
                begin = plot.x(max(start, plot.x.low))
                inset = 0.5 if is_one_of_several else 0
                self.bar(mark, begin, y + inset, end - begin, thick - 2 * inset, color)
                if first < last:
                    self.whisker(first, last, y + thick / 2)
            if text := text_of_bar(mark, row, length):
                self._text_of_bar(plot, mark, text, begin, first, last, y + thick / 2)
            self.box(begin, y, max(end - begin, 4), thick, told(series, [told_row]))

    def _text_of_bar(self, plot: Plot, mark, text: str, begin: float, first: float, last: float, y: float):
        """A text behind a bar, and a rule there; if a rule would strike it, inside the bar, or on paper.

        From `first` to `last` is its whisker; where it has none, both are its end.
        """
        wide = text_width(text)
        x, style = _behind_bar(plot, last), ""
        if _is_struck(plot, x, wide) or _all_inside(plot):
            inside = first - wide - 4
            has_room = inside > begin and not _is_struck(plot, inside, wide)
            if has_room and not plot.x.log and not mark.light:
                x, style = inside, f"fill:{_PAPER}"
            else:
                self.over.append(_rect(x - 1, y - 6, wide + 2, 12, f"fill:{_PAPER}"))
        self.over.append(_text(x, y + 3.5, text, style=style))

    def columns(self, plot: Plot, mark) -> None:
        """Standing bars."""
        series = plot.series_of(mark)
        for place, (x, y) in enumerate(zip(mark.x, mark.y, strict=True)):
            if not plot.y.shows(y):
                continue
            left, right = plot.x(x - mark.width / 2), plot.x(x + mark.width / 2)
            top = plot.y(y)
            color = _variable(mark.colors[place]) if mark.colors else self.color(plot, mark)
            self.rect(left, top, right - left, plot.bottom - top, color)
            if mark.texts:
                self.text((left + right) / 2, top - 3, mark.texts[place], "middle")
            self.box(left, top, right - left, max(plot.bottom - top, 4), told(series, [series.rows[place]]))

    def lines(self, plot: Plot, mark) -> None:
        """A line with its points, in pieces where something was not measured."""
        color = self.color(plot, mark)
        pieces: list[list[Place]] = [[]]
        for x, y in zip(mark.x, mark.y, strict=True):
            if not (_is_placed(x, plot.x.log) and _is_placed(y, plot.y.log)):
                pieces.append([])
                continue
            if mark.step and pieces[-1]:
                pieces[-1].append((plot.x(x), pieces[-1][-1][1]))
            pieces[-1].append((plot.x(x), plot.y(y)))
        style = f"fill:none;stroke:{color};stroke-width:{1.8 if color != _INK else 1.2}"
        style += f";stroke-dasharray:{mark.dash}" if mark.dash else ""
        for piece in pieces:
            for part in _clipped(piece, plot):
                path = "L".join(f"{_p(x)},{_p(y)}" for x, y in part)
                self.parts.append(f'<path d="M{path}" style="{style}"/>')
        self._points(plot, mark, color, mark.dots and len(mark.x) <= _MANY)

    def dots(self, plot: Plot, mark) -> None:
        """Points."""
        self._points(plot, mark, self.color(plot, mark), True)

    def _points(self, plot: Plot, mark, color: str, visible: bool) -> None:
        series = plot.series_of(mark)
        last = None
        for (x, y), row in zip(zip(mark.x, mark.y, strict=True), series.rows, strict=True):
            if not plot.x.shows(x) or not (isinstance(y, str) or plot.y.shows(y)):
                continue
            place = plot.x(x), plot.across(y)
            if visible:
                radius = 2.8 if len(mark.x) <= _MANY else 1.8
                self.dot(*place, color, getattr(mark, "diamond", False), radius)
            if last and abs(place[0] - last[0]) < _NEAR and abs(place[1] - last[1]) < _NEAR:
                continue
            last = place
            self.box(place[0] - 6, place[1] - 6, 12, 12, told(series, [row]))

    def spans(self, plot: Plot, mark) -> None:
        """Parts of a row, as one path; short ones that follow each other have one box."""
        series = plot.series_of(mark)
        if not series:
            return
        fill, line = self.look(plot, mark)
        inset = 0.5 if line else 0.0  # half of the line around it
        top = plot.row(mark.row) - plot.lane / 2
        high, lane = _p(top + inset), _p(plot.lane - 2 * inset)
        path: list[str] = []
        joined: list[tuple[float, float, list]] = []
        for row in sorted(series.rows, key=lambda row: row[0]):
            left, right = plot.x(row[0]), plot.x(row[0] + row[1])
            if right < plot.left - 1 or left > plot.right + 1:
                continue
            left, right = max(left, plot.left), min(right, plot.right)
            wide = max(right - left, 1.2) - (0.8 if mark.apart and right - left > 2 else 0)
            left = min(left, plot.right - wide)
            if is_wait(mark):
                path += _hatched(left, top, wide, plot.lane)
            else:
                width = _p(max(wide - 2 * inset, 1.2))
                path.append(f"M{_p(left + inset)},{high}h{width}v{lane}h-{width}z")
            first, last, rows = joined[-1] if joined else (-1e9, -1e9, [])
            if left - last < _NEAR and right - first < 4 * _NEAR:
                joined[-1] = (first, right, [*rows, row])
            else:
                joined.append((left, right, [row]))
        style = f"fill:{fill}" + (f";stroke:{line}" if line else "")
        self.parts.append(f'<path d="{"".join(path)}" style="{style}"/>')
        for left, right, rows in joined:
            self.box(left, top, max(right - left, 4), plot.lane, told(series, rows))

    def cells(self, plot: Plot, mark) -> None:
        """A table of values, darker where they are larger."""
        series = plot.series_of(mark)
        wide = (plot.right - plot.left) / len(mark.columns)
        gap = 1 if wide > 6 else 0
        known = [value for row in mark.values for value in row if value is not None and math.isfinite(value)]
        most = max(known, default=1) or 1
        rows = iter(series.rows)
        for y, name in enumerate(mark.rows):
            high = plot.heights[plot.rows[name]]
            top = plot.row(name) - high / 2
            for x, value in enumerate(mark.values[y]):
                if value is None:
                    continue
                left = plot.left + x * wide
                shade = mark.shades[y][x] if mark.shades else value / most
                color, depth = _variable(1), 0.05 + 0.5 * max(shade, 0)
                if mark.colors:
                    color, depth = _variable(mark.colors[y][x]), 0.45
                style = f"fill:{color};fill-opacity:{depth:.2f}"
                self.parts.append(_rect(left, top, wide - gap, high - 1, style))
                if mark.texts and mark.texts[y][x]:
                    self.text(left + wide / 2, top + high / 2 + 3.5, mark.texts[y][x], "middle")
                self.box(left, top, wide, high, told(series, [next(rows)]))

    def rule(self, plot: Plot, mark) -> None:
        """A line through the panel, or through a part of it."""
        series = plot.series_of(mark)
        words = told(series, series.rows)
        color = self.color(plot, mark)
        if mark.axis == "x" and plot.x.shows(mark.at):
            x, top, bottom = plot.x(mark.at), plot.top, plot.bottom
            if mark.part:
                top, bottom = (plot.across(place) for place in mark.part)
            if mark.part and isinstance(mark.part[0], str):  # through whole rows
                top -= plot.heights[plot.rows[mark.part[0]]] / 2
                bottom += plot.heights[plot.rows[mark.part[1]]] / 2
            self.line(x, top, x, bottom, color, mark.dash, 1.4)
            self.box(x - 2, top, 4, bottom - top, words)
        elif mark.axis == "y" and plot.y.shows(mark.at):
            y, left, right = plot.y(mark.at), plot.left, plot.right
            if mark.part:
                left, right = (plot.x(place) for place in mark.part)
            self.line(left, y, right, y, color, mark.dash, 1.4)
            self.box(left, y - 2, right - left, 4, words)

    def note(self, plot: Plot, mark) -> None:
        """A text at a place, kept within the picture."""
        if plot.x.log and mark.x <= 0:
            return
        x, y = plot.x(mark.x) + mark.dx, plot.across(mark.y) + mark.dy + 3.5
        wide = text_width(mark.text)
        left = {"left": x, "right": x - wide, "center": x - wide / 2}[mark.align]
        first = plot.left if isinstance(mark.y, str) else 0  # no row's name lies under it
        inside = min(max(left, first), max(self.width - wide, 0))
        stands_on_a_bar = mark.color == "paper" or (isinstance(mark.y, str) and plot.marks("Spans"))
        style = "" if stands_on_a_bar and not _is_hatched(plot, mark) else _HALO
        if mark.color != "ink":
            style += f"fill:{_variable(mark.color)};"
        self.text(x + inside - left, y, mark.text, _ANCHORS[mark.align], style)

    # SVG

    def color(self, plot: Plot, mark) -> str:
        """The CSS variable of a mark's colour; grey cannot be seen on bars, nor on other lines."""
        own = getattr(mark, "color", None)
        if (kind(mark) == "Rule" and plot.marks("Bars")) or (kind(mark) == "Line" and own == "ceiling"):
            return _INK
        return _variable(self.colors.get(id(mark), 1) if own is None else own)

    def look(self, plot: Plot, mark) -> tuple[str, str]:
        """What parts of a row are filled with, and the colour of the line around them; "" for none."""
        color = self.color(plot, mark)
        is_lined = is_wait(mark)
        if mark.light and mark.color == "ceiling":  # pale grey alone is hard to see
            widths = sorted(plot.x(start + length) - plot.x(start) for start, length in mark.spans)
            is_lined = is_lined or widths[len(widths) // 2] >= _LINED
        if is_hollow(mark):
            return _PAPER, color
        fill = _fill(color, is_light(mark), _PAPER if is_lined else _PALE)
        return fill, color if is_lined else ""

    def line(self, x: float, y: float, x2: float, y2: float, color: str, dash="", wide=0.6) -> None:
        """A straight line."""
        dashes = f";stroke-dasharray:{dash}" if dash else ""
        ends = f'x1="{_p(x)}" y1="{_p(y)}" x2="{_p(x2)}" y2="{_p(y2)}"'
        self.parts.append(f'<line {ends} style="stroke:{color};stroke-width:{wide}{dashes}"/>')

    def bar(self, mark, x: float, y: float, wide: float, high: float, color: str) -> None:
        """A rectangle, hatched where somebody waits."""
        if not is_wait(mark):
            self.rect(x, y, wide, high, color, getattr(mark, "light", False))
            return
        path = "".join(_hatched(x, y, wide, high))
        self.parts.append(f'<path d="{path}" style="fill:{_fill(color, True)};stroke:{color}"/>')

    def rect(self, x: float, y: float, wide: float, high: float, color: str, light=False) -> None:
        """A filled rectangle; a light one has a line around it, within its edges."""
        inset = 0.5 if light and wide > 2 else 0.0
        style = f"fill:{_fill(color, light)}" + (f";stroke:{color}" if light else "")
        self.parts.append(_rect(x + inset, y + inset, wide - 2 * inset, high - 2 * inset, style))

    def whisker(self, first: float, last: float, y: float) -> None:
        """A thin line with ends, on paper: it is seen on a bar, too."""
        path = f'd="M{_p(first)},{_p(y - 2.5)}v5m0,-2.5H{_p(last)}m0,-2.5v5"'
        for color, wide in ((_PAPER, 3), (_INK, 1)):
            self.parts.append(f'<path {path} style="fill:none;stroke:{color};stroke-width:{wide}"/>')

    def dot(self, x: float, y: float, color: str, diamond=False, radius=2.8) -> None:
        """A round dot, or a diamond."""
        if diamond:
            self.parts.append(f'<path d="M{_p(x)},{_p(y - 4)}l4,4l-4,4l-4,-4z" style="fill:{color}"/>')
        else:
            self.parts.append(f'<circle cx="{_p(x)}" cy="{_p(y)}" r="{radius}" style="fill:{color}"/>')

    def text(self, x: float, y: float, text: str, anchor="start", style="") -> None:
        """Lines of text."""
        for place, line in enumerate(text.split("\n")):
            self.parts.append(_text(x, y + place * LINE, line, anchor, style))

    def upright(self, x: float, y: float, text: str) -> None:
        """A text from below, which ends at a place."""
        turn = f'transform="rotate(-90 {_p(x)} {_p(y)})" text-anchor="end"'
        self.parts.append(f'<text x="{_p(x)}" y="{_p(y)}" {turn}>{escape(text)}</text>')

    def box(self, x: float, y: float, wide: float, high: float, words: str) -> None:
        """An invisible box that tells something to who points at it."""
        size = f'x="{_p(x)}" y="{_p(y)}" width="{_p(wide)}" height="{_p(high)}"'
        self.boxes.append(f'<rect class="ov-point" {size}><title>{escape(words)}</title></rect>')


class _Kind(NamedTuple):
    """A kind of mark: what draws it, which others it lies over, whether its name stands in the legend."""

    draw: Callable
    depth: int = 0
    in_legend: bool = True


#: Rules lie over bars and cells, under lines; notes on top.
_KINDS = {
    "Bars": _Kind(Drawing.bars),
    "Columns": _Kind(Drawing.columns),
    "Line": _Kind(Drawing.lines, 2),
    "Dots": _Kind(Drawing.dots, 2),
    "Spans": _Kind(Drawing.spans),
    "Cells": _Kind(Drawing.cells, in_legend=False),
    "Rule": _Kind(Drawing.rule, 1),
    "Note": _Kind(Drawing.note, 3, in_legend=False),
}


def _colors(picture) -> dict[int, int | str]:
    """The colour of each mark that has none of its own: marks of one name share it, lanes have theirs."""
    colors: dict[int, int | str] = {}
    by_name: dict[str, int | str] = {}
    rows = [mark for panel in picture.panels for mark in panel.marks if kind(mark) == "Spans"]
    order = _BESIDE_LANES if any(_key(mark) in _LANES for mark in rows) else range(1, COLORS)
    kept = {
        _of_lane(_key(mark), mark) for mark in rows if not is_wait(mark)
    }  # also for those that come later
    for panel in picture.panels:
        marks = [mark for mark in panel.marks if kind(mark) not in ("Note", "Cells", "Rule")]
        marks = [mark for mark in marks if getattr(mark, "color", None) is None]
        taken = {by_name.get(_key(mark)) for mark in marks if mark.name}
        if any(kind(mark) == "Spans" for mark in marks):
            taken |= set(by_name.values())  # a lane looks the same wherever it is, and another one does not
        for mark in marks:
            key = _key(mark)
            if is_wait(mark):  # in the colour of what is waited for, which it does not take from others
                colors[id(mark)] = LANES["gpu"][0] if key == "CPU waits" else "ceiling"
                continue
            if not key or key not in by_name:
                free = [color for color in order if color not in taken | kept]
                by_name[key] = _of_lane(key, mark) or (free or [len(by_name) % (COLORS - 1) + 1])[0]
                taken.add(by_name[key])
            colors[id(mark)] = by_name[key]
    return colors


def _key(mark) -> str:
    """What marks of one colour have in common: the name; of a lane without its device."""
    name = as_declared(mark).name
    return _lane(name) if kind(mark) == "Spans" else name


def _of_lane(name: str, mark) -> int | str | None:
    """The colour that a lane has on all pages, also as bars."""
    return _number(_LANES.get(name)) if kind(mark) in ("Spans", "Bars") else None


def _lane(name: str) -> str:
    """A lane without its device: `GPU 1: copies`, `rank 0, copies`; and of which core a call is."""
    name = re.sub(r"^(?:CPU|GPU)(?: \d+)?: ", "", name)
    if name not in _LANES:
        name = name.rpartition(", ")[2]
    return re.sub(r"^CPU \d+$", "CPU", name)


def _number(color):
    """The number of a lane's colour; any other colour as it is."""
    return LANES[color][0] if color in LANES else color


def _variable(color: int | str) -> str:
    color = _number(color)
    return f"var(--ov-series-{color})" if isinstance(color, int) else f"var(--ov-{color})"


def _fill(color: str, light: bool, behind: str = "") -> str:
    """A fill; a light one is solid, so that no line of the axis shines through."""
    return f"color-mix(in srgb, {color} 35%, {behind or _PAPER})" if light else color


def _end_of_bar(plot: Plot, mark, row: str, length: float) -> float:
    """Where a bar ends."""
    return _along(plot, (mark.starts or {}).get(row, 0.0) + length)


def _along(plot: Plot, number: float) -> float:
    """Its place; on a logarithmic axis what is not above zero stands where the axis begins."""
    return plot.x(number) if number > 0 or not plot.x.log else plot.left


def _reach(plot: Plot, mark, row: str, end: float) -> Place:
    """From where to where a bar's whisker goes; twice the bar's end where none could be seen."""
    reach = range_of(mark, row)
    if not reach:
        return end, end
    low, high = (_along(plot, number) for number in reach)
    low, high = max(low, plot.left), min(high, plot.right)
    least = _SEEN_BESIDE_DOT if plot.x.log else _SEEN
    return (low, high) if high - low >= least else (end, end)


def _runs(plot: Plot) -> int:
    """Of how many runs its whiskers are; 0 where it has none."""
    seen = [0]
    for mark in plot.marks("Bars"):
        for row in getattr(mark, "ranges", ()):
            end = _end_of_bar(plot, mark, row, mark.values[row])
            first, last = _reach(plot, mark, row, end)
            seen += [mark.runs] if first < last else []
    return max(seen)


def _is_struck(plot: Plot, x: float, wide: float) -> bool:
    """Whether an upright rule goes through a text that begins at x."""
    return any(x - 2 <= place <= x + wide + 2 for place in _upright(plot))


def _upright(plot: Plot) -> list[float]:
    """Where upright rules stand."""
    return [plot.x(rule.at) for rule in plot.marks("Rule") if rule.axis == "x" and plot.x.shows(rule.at)]


def _is_hatched(plot: Plot, note) -> bool:
    """Whether a note stands where somebody waits: the slanting lines would strike its letters."""
    waits = [mark for mark in plot.marks("Spans") if mark.row == note.y and is_wait(mark)]
    return any(start <= note.x <= start + length for mark in waits for start, length in mark.spans)


def _behind_bar(plot: Plot, end: float) -> float:
    """Where a text behind a bar begins: behind a rule that stands there."""
    x = end + (6 if plot.x.log else 4)
    return max([x, *(place + 5 for place in _upright(plot) if end <= place < x - 2)])


def _all_inside(plot: Plot) -> bool:
    """Whether all texts of bars stand inside: each has room, and a rule would strike one outside."""
    if plot.x.log:
        return False
    places = []
    for mark in plot.marks("Bars"):
        for row, length in mark.values.items():
            start = (mark.starts or {}).get(row, 0.0)
            if length and (text := text_of_bar(mark, row, length)):
                first, last = _reach(plot, mark, row, plot.x(start + length))
                room = 0.0 if mark.light else first - plot.x(max(start, plot.x.low))
                places.append((first, last, text_width(text), room))
    has_room = all(
        wide + 4 < room and not _is_struck(plot, first - wide - 4, wide) for first, _, wide, room in places
    )
    return has_room and any(_is_struck(plot, _behind_bar(plot, last), wide) for _, last, wide, _ in places)


def as_declared(mark):
    """The mark as its snippet declares it, in English: what it is follows from its names there."""
    return getattr(mark, "declared", mark)


def is_hollow(mark) -> bool:
    """Whether parts of a row are only lines around them; the picture of another book may not know of any."""
    return getattr(mark, "hollow", False)


def is_light(mark) -> bool:
    """Whether parts of a row are pale: also those in which somebody waits."""
    return mark.light or is_hollow(mark) or is_wait(mark)


def is_wait(mark) -> bool:
    """Whether somebody waits there, by its name. In all pictures that is hatched, and nothing else is."""
    return kind(mark) in ("Spans", "Bars") and bool(_WAITS.search(as_declared(mark).name))


def _hatched(left: float, top: float, wide: float, high: float) -> Iterable[str]:
    """A rectangle with slanting lines, as pieces of a path; the line around it is within its edges."""
    inset = 0.5 if wide > 2 else 0.0  # half of that line
    left, top, wide, high = left + inset, top + inset, wide - 2 * inset, high - 2 * inset
    yield f"M{_p(left)},{_p(top)}h{_p(wide)}v{_p(high)}h-{_p(wide)}z"
    for number in range(1, math.ceil((wide + high) / HATCH)):
        first, last = max(HATCH * number - high, 0), min(HATCH * number, wide)
        if last > first and wide > 2:
            y = top + HATCH * number - first
            yield f"M{_p(left + first)},{_p(y)}l{_p(last - first)},-{_p(last - first)}"


def _is_placed(value: float | None, log: bool) -> bool:
    """Whether a value has a place on an axis."""
    return value is not None and math.isfinite(value) and (value > 0 or not log)


def _clipped(piece: list[Place], plot: Plot) -> list[list[Place]]:
    """The parts of a line that lie in a panel, cut at its sides."""
    parts: list[list[Place]] = [[]]
    for start, end in pairwise(piece):
        cut = _segment(start, end, plot)
        if not cut:
            parts.append([])
            continue
        if not parts[-1] or parts[-1][-1] != cut[0]:
            parts.append([cut[0]])
        parts[-1].append(cut[1])
    return [part for part in parts if len(part) > 1]


def _segment(start: Place, end: Place, plot: Plot) -> tuple[Place, Place] | None:
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


def _rect(x: float, y: float, wide: float, high: float, style: str) -> str:
    size = f'x="{_p(x)}" y="{_p(y)}" width="{_p(max(wide, 0))}" height="{_p(high)}"'
    return f'<rect {size} style="{style}"/>'


def _text(x: float, y: float, line: str, anchor="start", style="") -> str:
    look = f' text-anchor="{anchor}"' if anchor != "start" else ""
    look += f' style="{style}"' if style else ""
    return f'<text x="{_p(x)}" y="{_p(y)}"{look}>{escape(line)}</text>'


def _p(value: float) -> str:
    """Pixels, to a tenth."""
    return f"{value:.1f}".removesuffix(".0")
