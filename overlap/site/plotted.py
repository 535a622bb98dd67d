"""Axes that write down what is drawn on them, as plain data: a picture says itself what its numbers are."""

import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise, product

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PathCollection, PolyCollection, QuadMesh
from matplotlib.container import BarContainer, Container, ErrorbarContainer
from matplotlib.image import AxesImage
from matplotlib.lines import Line2D
from matplotlib.ticker import Formatter, LogFormatterMathtext, LogitFormatter

from overlap import OverlapError


@dataclass(frozen=True)
class Drawn:
    """What one call drew: boxes (x, y, other x, other y) in data units, of no size where the `kind` is a point; cells have values."""

    kind: str
    artist: Artist | Container  # it may get its label later
    boxes: list[tuple[float, float, float, float]]
    values: list[float] | None = None


def _lines(lines: list[Line2D]) -> Iterator[Drawn]:
    for line in lines:
        yield Drawn("point", line, [(x, y, x, y) for x, y in line.get_xydata().tolist()])


def _dots(dots: PathCollection) -> Iterator[Drawn]:
    places = np.ma.filled(dots.get_offsets().astype(float), np.nan).tolist()
    yield Drawn("point", dots, [(x, y, x, y) for x, y in places])


def _bars(bars: BarContainer) -> Iterator[Drawn]:
    kind = "lying bar" if bars.orientation == "horizontal" else "bar"
    yield Drawn(kind, bars, [tuple(bar.get_bbox().extents.tolist()) for bar in bars.patches])
    yield from _errors(bars.errorbar) if bars.errorbar else ()


def _errors(errors: ErrorbarContainer) -> Iterator[Drawn]:
    line, _, ranges = errors
    yield from [Drawn("point", errors, next(_lines([line])).boxes)] if line else ()
    for kind, bars in zip(["x range"] * errors.has_xerr + ["range"] * errors.has_yerr, ranges, strict=True):
        yield Drawn(kind, errors, _segments(bars))


def _segments(lines: LineCollection) -> list[tuple]:
    """A line with a place that is no number is not drawn."""
    return [tuple(np.ravel(ends).tolist()) for ends in lines.get_segments() if len(ends) == 2]


def _extents(shapes: PolyCollection) -> list[tuple]:
    return [tuple(path.get_extents().extents.tolist()) for path in shapes.get_paths()]


def _area(area: PolyCollection) -> Iterator[Drawn]:
    """A path leads along one edge, back along the other, and to its start; one place more joins the edges at each end."""
    edges = [path.vertices for path in area.get_paths()]
    halves = [(way[1 : len(way) // 2], way[len(way) // 2 + 1 : -1][::-1]) for way in edges if len(way)]
    yield Drawn(
        "range", area, [(*a, *b) for one, other in halves for a, b in zip(one.tolist(), other.tolist(), strict=True)]
    )


def _mesh(mesh: QuadMesh) -> Iterator[Drawn]:
    corners, values = mesh.get_coordinates(), np.ma.filled(np.ma.asarray(mesh.get_array(), float), np.nan)
    if values.size != (corners.shape[0] - 1) * (corners.shape[1] - 1):
        raise OverlapError("draws a pcolormesh that does not have one value for each cell; give it a table of numbers")
    boxes = np.concatenate([corners[:-1, :-1], corners[1:, 1:]], axis=2)
    yield Drawn("cell", mesh, [tuple(box) for box in boxes.reshape(-1, 4).tolist()], values.ravel().tolist())


def _image(image: AxesImage) -> Iterator[Drawn]:
    values = np.ma.filled(np.ma.asarray(image.get_array(), float), np.nan)
    if values.ndim != 2:
        raise OverlapError("draws an imshow of colours; give it a table of numbers")
    left, right, bottom, top = image.get_extent()
    first, last = (top, bottom) if image.origin == "upper" else (bottom, top)
    x, y = (
        np.linspace(left, right, values.shape[1] + 1).tolist(),
        np.linspace(first, last, values.shape[0] + 1).tolist(),
    )
    boxes = [(a, b, c, d) for (b, d), (a, c) in product(pairwise(y), pairwise(x))]
    yield Drawn("cell", image, boxes, values.ravel().tolist())


#: How to read what a plotting method of matplotlib gave back.
READERS = {
    **dict.fromkeys(("plot", "step", "loglog", "semilogx", "semilogy"), _lines),
    **dict.fromkeys(("bar", "barh"), _bars),
    "scatter": _dots,
    "errorbar": _errors,
    "broken_barh": lambda spans: [Drawn("span", spans, _extents(spans))],
    "axhline": lambda line: [Drawn("level", line, [(0, line.get_ydata()[0]) * 2])],
    "axvline": lambda line: [Drawn("place", line, [(line.get_xdata()[0], 0) * 2])],
    "hlines": lambda lines: [Drawn("line", lines, _segments(lines))],
    "vlines": lambda lines: [Drawn("standing line", lines, _segments(lines))],
    "fill_between": _area,
    "pcolormesh": _mesh,
    "imshow": _image,
}


class _Powers(Formatter):
    """What another formatter writes as a formula, such as $\\mathdefault{2\\times10^{-3}}$, as text: 2×10⁻³."""

    _RAISED = str.maketrans("0123456789-−+", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁻⁺")

    def __init__(self, formula: Formatter):
        self.formula = formula

    def set_axis(self, axis) -> None:
        super().set_axis(axis)
        self.formula.set_axis(axis)

    def set_locs(self, locs) -> None:
        self.formula.set_locs(locs)

    def __call__(self, x: float, pos: int | None = None) -> str:
        formula = re.sub(r"\$(?:\\mathdefault\{(.*)\})?\$", r"\1", self.formula(x, pos))
        formula = re.sub(r"\^\{(.*?)\}", lambda power: power[1].translate(self._RAISED), formula)
        return formula.replace(r"\times", "×").replace(r"\cdot", "·")


class NotedAxes(Axes):
    """matplotlib's axes, with what was drawn on them in `noted`."""

    name = "rectilinear"  # while registered, plain matplotlib draws on these

    def clear(self) -> None:
        """Clear the axes and the notes."""
        self.noted: list[Drawn] = []
        self._inside = False
        super().clear()

    def write_powers(self) -> None:
        """Write powers of ten as text: `$` begins no formula in the book, as recorded names may have one."""
        for axis in (self.xaxis, self.yaxis):
            for ticks, change in ((axis.major, axis.set_major_formatter), (axis.minor, axis.set_minor_formatter)):
                if isinstance(ticks.formatter, (LogFormatterMathtext, LogitFormatter)):
                    change(_Powers(ticks.formatter))

    def shapes(self) -> int:
        """How many things besides text are drawn."""
        return sum(map(len, (self.lines, self.patches, self.collections, self.images, self.tables)))


def _noting(name: str) -> None:
    """Let the method `name` write down what it draws; one that draws what has no reader is an error."""
    original = getattr(Axes, name)

    @functools.wraps(original)
    def method(self: NotedAxes, *args, **kwargs):
        if self._inside or self.get_label() == "<colorbar>":
            return original(self, *args, **kwargs)
        before, self._inside = self.shapes(), True
        try:
            drawn = original(self, *args, **kwargs)
        finally:
            self._inside = False
        if name in READERS:
            self.noted += READERS[name](drawn)
        elif self.shapes() > before:
            raise OverlapError(f"draws with `{name}`, whose numbers the page could not show; use {', '.join(READERS)}")
        return drawn

    setattr(NotedAxes, name, method)


for _name in {*vars(Axes), "add_artist", "add_collection", "add_image", "add_line", "add_patch", "add_table"}:
    if not _name.startswith(("_", "get_", "set")) and callable(getattr(Axes, _name)):
        _noting(_name)
