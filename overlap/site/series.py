"""What a figure shows, read from what was drawn: the rows of its table, and the marks that tell them."""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from matplotlib import category, ticker
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.collections import LineCollection, PathCollection, PolyCollection, QuadMesh
from matplotlib.container import BarContainer, Container
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from overlap import OverlapError
from overlap.run.text import plain

_KNOWN = "plot, scatter, bar, barh, broken_barh, axhline, axvline, hlines, vlines, pcolormesh"
#: Units, as they stand at the beginning of an axis' label, or at its end behind a comma or in brackets.
_UNIT = r"(?:[nµm]?s|[KMGT]i?B(?:/s)?|TFLOP/s|[MG]Hz|W|%)(?![\w/])"
_COUNTS = re.compile(rf"{_UNIT}|times\b|images\b")
_OF_UNIT = re.compile(rf"(?P<what>.+?)(?:, | \()(?P<unit>{_UNIT}[^,()]*)\)?")
_NEAR = 3  # points: spans and places nearer than this share a mark

Box = tuple[float, float, float, float]


@dataclass
class Mark:
    """A place on the picture, in points from its top left corner, and the rows of the table it shows."""

    left: float
    top: float
    right: float
    bottom: float
    rows: list[list]

    @property
    def box(self) -> list[float]:
        """[x, y, width, height], large enough to be pointed at."""
        is_point = self.left == self.right and self.top == self.bottom
        least = 12 if is_point else 4
        width = max(self.right - self.left, least)
        height = max(self.bottom - self.top, least)
        return [(self.left + self.right - width) / 2, (self.top + self.bottom - height) / 2, width, height]


@dataclass
class Series:
    """What one call drew: boxes (x, y, other x, other y) in units of the data, without a size for points.

    `values` are those of cells; panels without a label on their x axis take the `shared` one.
    """

    kind: str
    axes: Axes
    artist: Artist | Container
    boxes: list[Box]
    values: list[float]
    shared: str

    @property
    def label(self) -> str:
        """What the legend calls it."""
        label = str(self.artist.get_label())
        return "" if label.startswith("_") else label

    @property
    def extent(self) -> str:
        """What the length of a span is called: most are times, some are bytes."""
        return "size" if re.match(r"[KMG]iB\b", self.axes.get_xlabel() or self.shared) else "lasts"

    @property
    def name(self) -> str:
        """Its panel, and its label."""
        title = self.axes.get_title(loc="left") or self.axes.get_title()
        return " · ".join(filter(None, (title, self.label)))

    @property
    def headings(self) -> tuple[str, str]:
        """Of the two columns of its rows."""
        x = self.axes.get_xlabel() or self.shared
        y = self.axes.get_ylabel()
        match self.kind:
            case "lying bar" | "standing line":
                return y, x
            case "span":
                return x or "from", self.extent
            case "cell":
                return ", ".join(filter(None, (y, x))), self.label
            case _:
                return x, y

    @cached_property
    def rows(self) -> list[list]:
        """Where, and what, for each box."""
        return [self._row(i, *box) for i, box in enumerate(self.boxes)]

    def _row(self, i: int, left: float, low: float, right: float, high: float) -> list:
        x, y = self.axes.xaxis, self.axes.yaxis
        match self.kind:
            case "point":
                return [_at(x, left, right), _at(y, low, high)]
            case "bar":
                return [_at(x, left, right, 0.45), rounded(high - low)]
            case "lying bar":
                return [_at(y, low, high, 0.45), rounded(right - left)]
            case "span":
                return [rounded(left), rounded(right - left)]
            case "line":
                return [_stretch(x, left, right), rounded(low)]
            case "standing line":
                return [_stretch(y, low, high), rounded(left)]
            case _:
                where = [text(_at(y, low, high, 0.45))]
                if len(self.axes.get_xticks()):  # else its columns have no names
                    where.append(text(_at(x, left, right, 0.45)))
                return [", ".join(where), rounded(self.values[i])]

    def marks(self, height: float) -> Iterator[tuple[list[float], str]]:
        """Boxes over the data of a picture so high, and what each tells. What is too near has one mark."""
        marks: list[Mark] = []
        for mark in self._visible(height):
            last = marks[-1] if marks else None
            if last and self.kind == "span" and _continues(last, mark):
                last.right = mark.right
                last.bottom = mark.bottom
                last.rows += mark.rows
            elif not last or not _covers(last, mark):
                marks.append(mark)
        for mark in marks:
            yield mark.box, self._tells(mark.rows)

    def _visible(self, height: float) -> Iterator[Mark]:
        """A mark for each box that can be seen, cut where its axes end."""
        frame = self.axes.bbox
        corners = self.axes.transData.transform(np.reshape(self.boxes, (-1, 2))).reshape(-1, 4)
        for row, (a, b, c, d) in zip(self.rows, corners.tolist(), strict=True):
            left, right = sorted((a, c))
            bottom, top = sorted((b, d))
            across = right >= frame.x0 - 1 and left <= frame.x1 + 1
            along = top >= frame.y0 - 1 and bottom <= frame.y1 + 1
            if across and along and all(map(math.isfinite, (a, b, c, d))):
                left, right = max(left, frame.x0), min(right, frame.x1)
                bottom, top = max(bottom, frame.y0), min(top, frame.y1)
                yield Mark(left, height - top, right, height - bottom, [row])

    def _tells(self, rows: list[list]) -> str:
        """What a mark says, in words and with the units of the axes; of a cell the label is its unit."""
        parts = []
        if self.label not in self.headings and self.kind != "cell":
            parts.append(self.label)
        if self.kind == "span":
            unit = _unit(self.headings[0])
            end = rows[-1][0] + rows[-1][1]
            total = text(sum(duration for _, duration in rows)) + unit
            parts.append(f"{text(rows[0][0])} to {text(end)}{unit}")
            parts.append(f"{self.extent} {total}" if len(rows) == 1 else f"{len(rows)} together: {total}")
        elif self.kind == "cell":
            where, value = rows[0]
            if self.axes.get_ylabel():
                where = f"{self.headings[0]}: {where}"
            elif self.axes.get_xlabel():
                where = f"{where} {self.axes.get_xlabel()}"  # as 4 streams
            parts += [where, f"{text(value)} {self.label}".strip()]
        else:
            parts += map(said, self.headings, rows[0])
        return plain(" · ".join(filter(None, parts)).replace("\n", " ").replace(" %", "%"))


def said(heading: str, value: float | str | None) -> str:
    """A coordinate with its axis: `11.6 ms per step`, `time of one send: 139 µs`, `step: 3`."""
    heading = heading.partition("; ")[0]
    number = text(value)
    if isinstance(value, str) or value is None:
        return f"{heading}: {number}".removeprefix(": ")
    if _COUNTS.match(heading):
        return f"{number} {heading}"
    if match := _OF_UNIT.fullmatch(heading):
        return f"{match['what']}: {number} {match['unit']}"
    return f"{heading}: {number}".removeprefix(": ")


def _unit(heading: str) -> str:
    """The unit of an axis, with a space before it; empty where it names none."""
    match = re.search(rf"(?:^|, | \()({_UNIT})", heading)
    return f" {match[1]}" if match else ""


def _continues(last: Mark, mark: Mark) -> bool:
    """Whether a span begins where the last one ends, and both together are short."""
    return mark.left - last.right < _NEAR and mark.right - last.left < 4 * _NEAR


def _covers(last: Mark, mark: Mark) -> bool:
    """Whether a point lies under the mark of the last one."""
    is_near = abs(mark.left - last.left) < _NEAR and abs(mark.top - last.top) < _NEAR
    return mark.left == mark.right and is_near


def read(figure: Figure) -> list[Series]:
    """All that is drawn in a figure, in its order; what cannot be told in numbers is an error."""
    labels = [axes.get_xlabel() for axes in reversed(figure.axes) if axes.get_xlabel()]
    series = []
    for axes in figure.axes:
        if axes.name != "rectilinear":
            reason = f"draws on {axes.name} axes, whose numbers the page could not show"
            raise OverlapError(f"{reason}; use plain axes")
        for artist in _drawn(axes):
            kind, boxes, values = _content(axes, artist)
            if boxes:
                _check_finite(kind, boxes, str(artist.get_label()))
                series.append(Series(kind, axes, artist, boxes, values, labels[0] if labels else ""))
    return series


def _check_finite(kind: str, boxes: list[Box], label: str) -> None:
    """Refuse infinity, which only a mistake gives; NaN says that something was not measured: a gap.

    In scatter and pcolormesh matplotlib itself makes a gap of both.
    """
    match kind:  # a limit reaches from one end of its axes to the other
        case "line":
            numbers = [low for _, low, _, _ in boxes]
        case "standing line":
            numbers = [left for left, _, _, _ in boxes]
        case _:
            numbers = [number for box in boxes for number in box]
    if any(map(math.isinf, numbers)):
        raise OverlapError(f"draws infinity in {label!r}; draw NaN or None where nothing was measured")


def _drawn(axes: Axes) -> list[Artist | Container]:
    """What calls drew on these axes: bars are one thing."""
    containers = {part: container for container in axes.containers for part in container.get_children()}
    shapes = {*axes.lines, *axes.patches, *axes.collections, *axes.images, *axes.tables}
    drawn = [containers.get(child, child) for child in axes.get_children() if child in shapes]
    return list(dict.fromkeys(drawn))


def _content(axes: Axes, artist: Artist | Container) -> tuple[str, list[Box], list[float]]:
    """Kind, boxes and values of what one call drew."""
    if isinstance(artist, BarContainer):
        kind = "lying bar" if artist.orientation == "horizontal" else "bar"
        return kind, [tuple(bar.get_bbox().extents.tolist()) for bar in artist.patches], []
    if isinstance(artist, Line2D):
        places = artist.get_xydata().tolist()
        if artist.get_transform() == axes.get_yaxis_transform(which="grid"):
            return "line", [(-math.inf, places[0][1], math.inf, places[0][1])], []
        if artist.get_transform() == axes.get_xaxis_transform(which="grid"):
            return "standing line", [(places[0][0], -math.inf, places[0][0], math.inf)], []
        return "point", [(x, y, x, y) for x, y in places], []
    if isinstance(artist, PathCollection):
        places = np.ma.filled(artist.get_offsets().astype(float), np.nan).tolist()
        return "point", [(x, y, x, y) for x, y in places], []
    if isinstance(artist, LineCollection):
        boxes = [tuple(np.ravel(ends).tolist()) for ends in artist.get_segments() if len(ends) == 2]
        lying = all(y == end for _, y, _, end in boxes)
        return "line" if lying else "standing line", boxes, []
    if isinstance(artist, PolyCollection):
        corners = [path.vertices.tolist() for path in artist.get_paths() if len(path.vertices)]
        if all(len(places) == 5 for places in corners):  # rectangles, as of broken_barh
            return "span", [(*places[0], *places[2]) for places in corners], []
    if isinstance(artist, QuadMesh) and artist.get_array() is not None:
        corners = artist.get_coordinates()
        values = np.ma.filled(np.ma.asarray(artist.get_array(), float), np.nan).ravel().tolist()
        boxes = np.concatenate([corners[:-1, :-1], corners[1:, 1:]], axis=2).reshape(-1, 4)
        return "cell", [tuple(box) for box in boxes.tolist()], values
    reason = f"draws a {type(artist).__name__}, whose numbers the page could not show"
    raise OverlapError(f"{reason}; draw with one of {_KNOWN}")


def words(axis: Axis) -> list[tuple[float, str]]:
    """Places on an axis where words of the author stand, not numbers of matplotlib."""
    formatter = axis.get_major_formatter()
    written = (ticker.FixedFormatter, ticker.FuncFormatter, category.StrCategoryFormatter)
    fixed = isinstance(axis.get_major_locator(), (ticker.FixedLocator, category.StrCategoryLocator))
    if not fixed or not isinstance(formatter, written):
        return []
    ticks = [(float(place), str(formatter(place, i))) for i, place in enumerate(axis.get_majorticklocs())]
    return [(place, word) for place, word in ticks if word]


def _at(axis: Axis, low: float, high: float, within: float = 1e-9) -> float | str | None:
    """The word that an axis shows between two places, else the number there."""
    middle = (low + high) / 2
    for place, word in words(axis):
        if abs(place - middle) <= within:
            return word
    return rounded(middle)


def _stretch(axis: Axis, low: float, high: float) -> str:
    """The part of an axis between two places: the one word that stands there, or `all`."""
    low, high = sorted((low, high))
    start, end = sorted(axis.get_view_interval())
    written = [word for _, word in words(axis)]
    inside = [word for place, word in words(axis) if low <= place <= high]
    if len(inside) == 1 < len(written):
        return inside[0]
    if (inside and inside == written) or (low <= start and end <= high):
        return "all"
    return f"{text(low)} to {text(high)}"


def text(value: float | str | None) -> str:
    """A coordinate as text; a gap is a dash."""
    if isinstance(value, str):
        return value
    value = rounded(value)
    return "–" if value is None else f"{value:,g}"


def rounded(value: float | None) -> float | None:
    """Four digits; None for what is no number."""
    if value is None or not math.isfinite(value):
        return None
    return float(f"{value:.4g}")
