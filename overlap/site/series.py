"""What a figure shows, read from what was drawn on its axes: the rows of its table and the marks that tell them."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise, product

import numpy as np
from matplotlib import category, ticker
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.collections import LineCollection, PathCollection, PolyCollection, QuadMesh
from matplotlib.container import BarContainer, Container, ErrorbarContainer
from matplotlib.image import AxesImage
from matplotlib.lines import Line2D

from overlap import OverlapError
from overlap.run.text import plain

#: The heading of durations.
LASTS = "lasts"
_KNOWN = "plot, step, loglog, semilogx, semilogy, bar, barh, scatter, errorbar, broken_barh, axhline, axvline, hlines, "
_KNOWN += "vlines, fill_between, pcolormesh, imshow"
_NEAR = 3  # points: spans and places nearer than this share a mark

Box = tuple[float, float, float, float]


@dataclass
class Series:
    """Things of one kind and label: boxes (x, y, other x, other y) in data units, without a size where they are points."""

    kind: str
    axes: Axes
    artist: Artist | Container
    boxes: list[Box]
    values: list[float] | None = None  # of cells

    @property
    def label(self) -> str:
        """What the legend calls it."""
        label = str(self.artist.get_label())
        return "" if label.startswith("_") else label


def read(axes: Axes) -> list[Series]:
    """All that is drawn on these axes, in its order; what cannot be told in numbers is an error."""
    containers = {}
    for container in axes.containers:
        for part in container.get_children():
            containers[part] = container
    shapes = {*axes.lines, *axes.patches, *axes.collections, *axes.images, *axes.tables}
    drawn = dict.fromkeys(containers.get(child, child) for child in axes.get_children() if child in shapes)
    found = []
    for artist in drawn:
        found += [Series(kind, axes, artist, *content) for kind, *content in _read(axes, artist)]
    return [series for series in found if series.boxes]


def _read(axes: Axes, artist: Artist | Container) -> Iterator[tuple]:
    """Kind, boxes and values of what one call drew."""
    if isinstance(artist, BarContainer):
        kind = "lying bar" if artist.orientation == "horizontal" else "bar"
        yield kind, [tuple(bar.get_bbox().extents.tolist()) for bar in artist.patches]
    elif isinstance(artist, ErrorbarContainer):
        yield from _errors(artist)
    elif isinstance(artist, Line2D):
        yield from _line(axes, artist)
    elif isinstance(artist, PathCollection):
        places = np.ma.filled(artist.get_offsets().astype(float), np.nan)
        yield "point", _points(places)
    elif isinstance(artist, LineCollection):
        boxes = _segments(artist)
        yield ("line" if all(y == end for _, y, _, end in boxes) else "standing line"), boxes
    elif isinstance(artist, QuadMesh):
        yield "cell", *_cells_of_mesh(artist)
    elif isinstance(artist, PolyCollection):
        yield from _polygons(artist)
    elif isinstance(artist, AxesImage):
        yield "cell", *_cells_of_image(artist)
    else:
        kind = type(artist).__name__
        raise OverlapError(
            f"draws a {kind}, whose numbers the page could not show; draw with one of {_KNOWN}"
        )


def _points(places: np.ndarray) -> list[Box]:
    return [(x, y, x, y) for x, y in places.tolist()]


def _line(axes: Axes, line: Line2D) -> Iterator[tuple]:
    """A line through points, or one across the axes."""
    transform = line.get_transform()
    if transform == axes.get_yaxis_transform(which="grid"):
        yield "level", [(0.0, line.get_ydata()[0]) * 2]
    elif transform == axes.get_xaxis_transform(which="grid"):
        yield "place", [(line.get_xdata()[0], 0.0) * 2]
    else:
        yield "point", _points(line.get_xydata())


def _errors(errors: ErrorbarContainer) -> Iterator[tuple]:
    line, _, bars = errors
    if line:
        yield "point", _points(line.get_xydata())
    kinds = ["x range"] if errors.has_xerr else []
    if errors.has_yerr:
        kinds.append("range")
    for kind, collection in zip(kinds, bars, strict=True):
        yield kind, _segments(collection)


def _segments(lines: LineCollection) -> list[Box]:
    """A line with an end that is no number is not drawn."""
    return [tuple(np.ravel(ends).tolist()) for ends in lines.get_segments() if len(ends) == 2]


def _polygons(polygons: PolyCollection) -> Iterator[tuple]:
    """Rectangles are spans; an area goes along one edge, back along the other, with one more place at each end."""
    corners = [path.vertices.tolist() for path in polygons.get_paths() if len(path.vertices)]
    if all(len(places) == 5 for places in corners):
        yield "span", [(*places[0], *places[2]) for places in corners]
        return
    boxes = []
    for places in corners:
        half = len(places) // 2
        boxes += [
            (*low, *high) for low, high in zip(places[1:half], places[half + 1 : -1][::-1], strict=True)
        ]
    yield "range", boxes


def _cells_of_mesh(mesh: QuadMesh) -> tuple[list[Box], list[float]]:
    corners = mesh.get_coordinates()
    values = np.ma.filled(np.ma.asarray(mesh.get_array(), float), np.nan)
    if values.size != (corners.shape[0] - 1) * (corners.shape[1] - 1):
        raise OverlapError(
            "draws a pcolormesh that does not have one value for each cell; give it a table of numbers"
        )
    boxes = np.concatenate([corners[:-1, :-1], corners[1:, 1:]], axis=2)
    return [tuple(box) for box in boxes.reshape(-1, 4).tolist()], values.ravel().tolist()


def _cells_of_image(image: AxesImage) -> tuple[list[Box], list[float]]:
    values = np.ma.filled(np.ma.asarray(image.get_array(), float), np.nan)
    if values.ndim != 2:
        raise OverlapError("draws an imshow of colours; give it a table of numbers")
    left, right, bottom, top = image.get_extent()
    first, last = (top, bottom) if image.origin == "upper" else (bottom, top)
    columns = np.linspace(left, right, values.shape[1] + 1).tolist()
    rows = np.linspace(first, last, values.shape[0] + 1).tolist()
    boxes = [(a, b, c, d) for (b, d), (a, c) in product(pairwise(rows), pairwise(columns))]
    return boxes, values.ravel().tolist()


class Table:
    """The rows of a series under two headings; panels without a label on their x axis take the `shared` one."""

    def __init__(self, series: Series, shared: str):
        axes = series.axes
        x, y = axes.get_xlabel() or shared, axes.get_ylabel()
        self.title = axes.get_title(loc="left") or axes.get_title()
        self.x, self.y = {
            "lying bar": (y, x),
            "standing line": (y, x),
            "span": (x or "from", LASTS),
            "cell": (", ".join(filter(None, (y, x))), ""),
        }.get(series.kind, (x, y))
        self.series, self._words = series, {axis: _words(axis) for axis in (axes.xaxis, axes.yaxis)}
        values = series.values or [math.nan] * len(series.boxes)
        self.rows = [self._row(box, value) for box, value in zip(series.boxes, values, strict=True)]

    def _row(self, box: Box, value: float) -> list:
        """Where, and what."""
        a, b, c, d = box
        x, y = self.series.axes.xaxis, self.series.axes.yaxis
        match self.series.kind:
            case "point":
                return [self._at(x, a, c), self._at(y, b, d)]
            case "level":
                return ["all", rounded(b)]
            case "place":
                return [rounded(a), "all"]
            case "bar":
                return [self._at(x, a, c, 0.45), rounded(d - b)]
            case "lying bar":
                return [self._at(y, b, d, 0.45), rounded(c - a)]
            case "span":
                return [rounded(a), rounded(c - a)]
            case "line":
                return [self._stretch(x, a, c), rounded(b)]
            case "standing line":
                return [self._stretch(y, b, d), rounded(a)]
            case "range":
                return [self._at(x, a, c), f"{text(b)} to {text(d)}"]
            case "x range":
                return [f"{text(a)} to {text(c)}", self._at(y, b, d)]
            case _:
                where = self._at(y, b, d, 0.45), self._at(x, a, c, 0.45)
                return [", ".join(map(text, where)), rounded(value)]

    def _at(self, axis: Axis, low: float, high: float, within: float = 1e-9) -> float | str | None:
        """The word that an axis shows between two places, else the number there."""
        middle = (low + high) / 2
        for place, word in self._words[axis]:
            if abs(place - middle) <= within:
                return word
        return rounded(middle)

    def _stretch(self, axis: Axis, low: float, high: float) -> str:
        """The part of an axis between two places: the one word that stands there, or `all`."""
        low, high = sorted((low, high))
        start, end = sorted(axis.get_view_interval())
        words = [word for _, word in self._words[axis]]
        inside = [word for place, word in self._words[axis] if low <= place <= high]
        if len(inside) == 1 < len(words):
            return inside[0]
        if (inside and inside == words) or (low <= start and end <= high):
            return "all"
        return f"{text(low)} to {text(high)}"

    def marks(self, height: float) -> Iterator[tuple[list[float], str]]:
        """Boxes [x, y, width, height] over the data, in points from the top left, and what each tells."""
        if self.series.kind in ("level", "place"):
            return
        frame, shared = self.series.axes.bbox, []
        corners = self.series.axes.transData.transform(np.reshape(self.series.boxes, (-1, 2))).reshape(-1, 4)
        for row, (a, b, c, d) in zip(self.rows, corners.tolist(), strict=True):
            (left, right), (bottom, top) = sorted((a, c)), sorted((b, d))
            inside = (
                right >= frame.x0 - 1
                and left <= frame.x1 + 1
                and top >= frame.y0 - 1
                and bottom <= frame.y1 + 1
            )
            if not inside or not all(map(math.isfinite, (a, b, c, d))):
                continue
            left, right = max(left, frame.x0), min(right, frame.x1)
            top, bottom = height - min(top, frame.y1), height - max(bottom, frame.y0)
            x, y, end, rows = -99.0, -99.0, -99.0, []
            if shared:
                (x, y, end, _), rows = shared[-1]
            if self.y == LASTS and left - end < _NEAR and right - x < 4 * _NEAR:
                shared[-1] = ((x, y, right, bottom), [*rows, row])
            elif left < right or abs(left - x) >= _NEAR or abs(top - y) >= _NEAR:
                shared.append(((left, top, right, bottom), [row]))
        for (left, top, right, bottom), rows in shared:
            least = 12 if left == right and top == bottom else 4
            wide, high = max(right - left, least), max(bottom - top, least)
            yield [(left + right - wide) / 2, (top + bottom - high) / 2, wide, high], plain(self._told(rows))

    def _told(self, rows: list[list]) -> str:
        """What a mark says; the unit of a time span stands at the axis."""
        if self.y == LASTS:
            start, end = rows[0][0], rows[-1][0] + rows[-1][1]
            total = text(sum(duration for _, duration in rows))
            lasts = f"{LASTS} {total}" if len(rows) == 1 else f"{len(rows)} of them last {total}"
            values = [f"{text(start)} to {text(end)}", lasts]
        else:
            headings = zip((self.x, self.y), rows[0], strict=True)
            values = [f"{name}: {text(value)}".removeprefix(": ") for name, value in headings]
        return " · ".join(filter(None, [self.series.label, *values]))


def _words(axis: Axis) -> list[tuple[float, str]]:
    """Places on an axis where words of the author stand, not numbers of matplotlib."""
    locator, formatter = axis.get_major_locator(), axis.get_major_formatter()
    if not isinstance(locator, (ticker.FixedLocator, category.StrCategoryLocator)):
        return []
    if not isinstance(
        formatter, (ticker.FixedFormatter, ticker.FuncFormatter, category.StrCategoryFormatter)
    ):
        return []
    words = [(float(place), str(formatter(place, i))) for i, place in enumerate(axis.get_majorticklocs())]
    return [(place, word) for place, word in words if word]


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
