"""What lets a picture be read on a page of any width: one time scale, dots for logarithms, legends with room of their own."""

import math
import re
import textwrap
from itertools import pairwise

from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.text import Annotation, Text
from matplotlib.ticker import (
    FixedLocator,
    Formatter,
    LogFormatterMathtext,
    LogitFormatter,
    LogLocator,
    ScalarFormatter,
)
from matplotlib.transforms import Bbox

from overlap.site.series import Series
from overlap.site.svg import GRID, INK, SERIES

_GAP = 4  # points between a label and what it stands beside
_LANES = {"CPU": 0, "compute": 1, "copies": 2, "optimizer": 3, "NCCL": 4, "all-reduce": 4}
_LANES |= {"CPU copies": 0, "products": 1, "all-reduces": 4}  # of one colour on all pages
_PAD = 3
_APART = 8  # panels of which one lasts so many times as long as another have time scales of their own
_HEIGHT = 3.5  # inches, of a plain picture
_RAISED = str.maketrans("0123456789-−+", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁻⁺")


class Layout:
    """Changes how a figure looks, never what it shows: at once what is right on any page, by `fit` what depends on the width."""

    def __init__(self, figure: Figure, axes: list[Axes], series: list[Series]):
        self.figure, self.axes, self.series = figure, axes, series
        self.height = self._fair_height()
        self._color_lanes()
        self.dotted = any([_dot(each, self._of(each, "lying bar")) for each in axes])
        for each in axes:
            _write_ticks(each)
            _write_labels(each)
        self.inked = self._ink_limits()
        self._offsets = {label: label.xyann for each in axes for label in _labels_of_bars(each)}
        self._thinned: list[Text] = []
        self._shape, self._margins = (1, 1), [60.0, 10.0, 20.0, 40.0, 60.0, 40.0]
        self._cells = self._grid()
        self.legends, self._placed = [self._without_legend(legend) for legend in self._legends()], []

    def fit(self, inches: float) -> None:
        """Put everything in its place on a page so wide."""
        figure = self.figure
        figure.set_size_inches(inches, self.height)
        for legend in self._placed:
            legend.remove()
        self._placed = [self._place(pairs) for pairs in self.legends if pairs]
        for label, offset in self._offsets.items():
            label.xyann = offset
        for label in self._thinned:
            label.set_visible(True)
        self._arrange()
        self._thinned = []
        for axes in self.axes:
            self._move_off_lines(axes)
            self._thinned += _thin(axes)

    def _arrange(self) -> None:
        """Room at the edges and between panels for what stands around the axes.

        What sticks out depends on how wide the axes are: who was measured with much less or more room is measured again.
        """
        for _ in range(3):
            self._apply()
            before = self._margins
            self._margins = self._measured()
            if max(abs(now - then) for now, then in zip(self._margins, before, strict=True)) <= _GAP:
                break
        self._apply()

    def _grid(self) -> dict[tuple, list[Axes]]:
        """Axes by the first and last row and column of the grid that they take."""
        cells: dict[tuple, list[Axes]] = {}
        for axes in self.figure.axes:
            if axes.get_subplotspec():
                spec = axes.get_subplotspec().get_topmost_subplotspec()
                self._shape = spec.get_gridspec().get_geometry()
                cells.setdefault(
                    (spec.rowspan[0], spec.rowspan[-1], spec.colspan[0], spec.colspan[-1]), []
                ).append(axes)
        return cells

    def _measured(self) -> list[float]:
        """Points at the left, right, top and bottom of the picture, and between columns and rows."""
        renderer = self.figure.canvas.get_renderer()
        rows, columns = self._shape
        left, right, top, bottom = [0.0] * columns, [0.0] * columns, [0.0] * rows, [0.0] * rows
        for (first_row, last_row, first, last), together in self._cells.items():
            inner = Bbox.union([axes.get_window_extent(renderer) for axes in together])
            outer = Bbox.union([axes.get_tightbbox(renderer) for axes in together])
            left[first] = max(left[first], inner.x0 - outer.x0)
            right[last] = max(right[last], outer.x1 - inner.x1)
            top[first_row] = max(top[first_row], outer.y1 - inner.y1)
            bottom[last_row] = max(bottom[last_row], inner.y0 - outer.y0)
        across = max((a + b for a, b in zip(right, left[1:], strict=False)), default=0)
        down = max((a + b for a, b in zip(bottom, top[1:], strict=False)), default=0)
        return [
            left[0] + _PAD,
            right[-1] + _PAD,
            top[0] + _PAD,
            bottom[-1] + _PAD,
            across + 2 * _PAD,
            down + 2 * _PAD,
        ]

    def _apply(self) -> None:
        renderer, (rows, columns) = self.figure.canvas.get_renderer(), self._shape
        above = sum(each.get_window_extent(renderer).height for each in (*self._placed, *self.figure.texts))
        left, right, top, bottom, across, down = self._margins
        width, height = self.figure.bbox.size
        right, top = width - right, height - top - above
        each_wide = max(1, (right - left - across * (columns - 1)) / columns)
        each_high = max(1, (top - bottom - down * (rows - 1)) / rows)
        self.figure.subplots_adjust(
            left=left / width,
            right=max(right, left + 1) / width,
            bottom=bottom / height,
            top=max(top, bottom + 1) / height,
            wspace=across / each_wide,
            hspace=down / each_high,
        )

    def _of(self, axes: Axes, *kinds: str) -> list[Series]:
        return [each for each in self.series if each.axes is axes and each.kind in kinds]

    def _fair_height(self) -> float:
        """Inches: lanes, panels and bars each need so much."""
        height = _HEIGHT
        lanes = [each for each in self.axes if self._has_lanes(each)]
        grids = [each.get_gridspec() for each in self.figure.axes]
        panels = max((grid.nrows for grid in grids if grid), default=1)
        if lanes and len(lanes) == len(self.axes):
            height = 0.9
            for each in lanes:
                low, high = sorted(each.get_ylim())
                height += 0.4 + 0.26 * (high - low)
            self._share_time(lanes)
        elif panels > 1:
            lines = max(
                sum(1 + text.get_text().count("\n") for text in each.get_yticklabels()) for each in self.axes
            )
            height = 0.6 + max(1.5, 0.5 + 0.18 * lines) * panels
        bars = sum(len(each.boxes) for each in self.series if each.kind == "lying bar")
        return max(height, 1.2 + 0.22 * bars)

    def _has_lanes(self, axes: Axes) -> bool:
        named = isinstance(axes.yaxis.get_major_locator(), FixedLocator)
        return named and bool(self._of(axes, "span"))

    def _share_time(self, lanes: list[Axes]) -> None:
        """Equal lengths are equal times in all panels, where the shortest can still be seen."""
        for each in lanes:
            each.grid(False, axis="y")
        low, high = zip(*(each.get_xlim() for each in lanes), strict=True)
        if max(high) > _APART * min(high) or len({each.get_xlabel()[:2] for each in lanes}) > 1:
            return
        for each in lanes:
            each.set_xlim(min(low), max(high))
        for each in lanes[:-1]:
            each.set_xlabel("")
            each.tick_params(labelbottom=False)

    def _color_lanes(self) -> None:
        """Lanes of one name, or of one thing on several devices, in one colour; waiting is light. What the author coloured stays."""
        lanes = [each for each in self.axes if self._has_lanes(each)]
        if not lanes or len(lanes) < len(self.axes):
            return
        spans = [each.artist for each in self.series if each.kind == "span"]
        if any(to_hex(color) != SERIES[0] for each in spans for color in each.get_facecolor()):
            return
        colors = {}
        for each in spans:
            what = str(each.get_label()).rpartition(", ")[2]
            if re.fullmatch(r"CPU \d+", what):
                what = "CPU"
            if what.endswith(" waits"):
                each.set(facecolor="gray", edgecolor="none", linewidth=0.8, alpha=0.4)
                continue
            color = colors.setdefault(what, SERIES[_LANES.get(what, len(colors) % len(SERIES))])
            each.set(facecolor=color, edgecolor=color, linewidth=0.8)

    def _ink_limits(self) -> set[str]:
        """A limit that crosses bars is drawn in ink: grey cannot be seen on their colours. Labels of these limits."""
        labels = set()
        for axes in self.axes:
            if self._of(axes, "lying bar"):
                for limit in self._of(axes, "place", "standing line"):
                    limit.artist.set_color(INK)
                    labels.add(limit.label)
        return labels

    def _legends(self) -> list:
        return [*self.figure.legends, *filter(None, (each.get_legend() for each in self.figure.axes))]

    def _without_legend(self, legend) -> list[tuple]:
        """Take a legend away; its handles and labels but for those that an axis or a text beside a line says already."""
        said = {label for each in self.axes for label in (each.get_xlabel(), each.get_ylabel())}
        said |= {text.get_text() for each in self.axes for text in each.texts}
        pairs = []
        for handle, text in zip(legend.legend_handles, legend.texts, strict=True):
            label = text.get_text()
            if self.dotted and isinstance(handle, Rectangle):
                handle = Line2D([], [], color=handle.get_facecolor(), marker="o", linestyle="")
            if label in self.inked:
                handle.set_color(INK)
            if label not in said:
                pairs.append((handle, label))
        legend.remove()
        return pairs

    def _place(self, pairs: list[tuple]):
        """A legend above the picture, in as many columns as fit."""
        figure, room = self.figure, self.figure.bbox.width
        renderer = figure.canvas.get_renderer()
        handles, labels = zip(*pairs, strict=True)
        for columns in (4, 3, 2, 1):
            legend = figure.legend(handles, labels, loc="outside upper left", ncols=columns)
            wide = legend.get_window_extent(renderer).width
            if wide <= room or columns == 1:
                break
            legend.remove()
        if wide > room:
            for text in legend.texts:
                fits = max(
                    10, int(len(text.get_text()) * (room - 55) / text.get_window_extent(renderer).width)
                )
                text.set_text(textwrap.fill(text.get_text(), fits))
        rows = math.ceil(len(pairs) / columns)
        figure.set_figheight(figure.get_figheight() + 0.2 * max(0, rows - 2))
        return legend

    def _move_off_lines(self, axes: Axes) -> None:
        """Labels of bars to the right of a standing line that would strike them."""
        lines = []
        for series in self._of(axes, "place", "standing line"):
            for box in series.boxes:
                (x, low), (_, high) = axes.transData.transform([box[:2], box[2:]])
                if series.kind == "place":
                    low, high = -math.inf, math.inf
                lines.append((x, *sorted((low, high))))
        for x, low, high in sorted(lines):
            for label in _labels_of_bars(axes):
                place = label.get_window_extent()
                if low <= (place.y0 + place.y1) / 2 <= high and place.x0 - _GAP <= x <= place.x1 + 1:
                    label.xyann = (label.xyann[0] + x - place.x0 + _GAP, label.xyann[1])


class _Powers(Formatter):
    """What another formatter writes as a formula, such as $\\mathdefault{2\\times10^{-3}}$, as text: 2×10⁻³."""

    def __init__(self, formula: Formatter):
        self.formula = formula

    def set_axis(self, axis) -> None:
        super().set_axis(axis)
        self.formula.set_axis(axis)

    def set_locs(self, locs) -> None:
        self.formula.set_locs(locs)

    def __call__(self, x: float, pos: int | None = None) -> str:
        formula = re.sub(r"\$(?:\\mathdefault\{(.*)\})?\$", r"\1", self.formula(x, pos))
        formula = re.sub(r"\^\{(.*?)\}", lambda power: power[1].translate(_RAISED), formula)
        return formula.replace(r"\times", "×").replace(r"\cdot", "·")


def _write_ticks(axes: Axes) -> None:
    """Numbers at an axis as they are in the text: 1,000 and neither 1000 nor 10³; other powers of ten as text, as `$` begins no formula."""
    for axis, scale in ((axes.xaxis, axes.get_xscale()), (axes.yaxis, axes.get_yscale())):
        low, high = sorted(axis.get_view_interval())
        plain = (
            scale == "linear" and type(axis.get_major_formatter()) is ScalarFormatter and 1000 <= high < 1e6
        )
        if plain or (scale == "log" and axis is axes.yaxis and low >= 1e-4 and high < 1e6):
            axis.set_major_formatter("{x:,.10g}")
        for ticks, change in ((axis.major, axis.set_major_formatter), (axis.minor, axis.set_minor_formatter)):
            if isinstance(ticks.formatter, (LogFormatterMathtext, LogitFormatter)):
                change(_Powers(ticks.formatter))


def _labels_of_bars(axes: Axes) -> list[Annotation]:
    return [text for text in axes.texts if isinstance(text, Annotation) and text.anncoords == "offset points"]


def _write_labels(axes: Axes) -> None:
    """Numbers at bars without an exponent; farther from a dot, which reaches beyond its place."""
    for label in _labels_of_bars(axes):
        if re.fullmatch(r"\d(\.\d+)?e[+-]\d+", label.get_text()):
            label.set_text(f"{float(label.get_text()):,.10g}")
        if axes.get_xscale() == "log" and label.xyann == (3, 0):
            label.xyann = (6, 0)


def _dot(axes: Axes, bars: list[Series]) -> bool:
    """Lying bars on a logarithmic axis become dots: it has no zero that a length could begin at."""
    if bars:
        axes.grid(False, axis="y")
    if not bars or axes.get_xscale() != "log":
        return False
    ends, guides = [], []
    for series in bars:
        for bar, (_, low, end, high) in zip(series.artist, series.boxes, strict=True):
            y = (low + high) / 2
            bar.set_visible(False)
            axes.add_line(Line2D([end], [y], color=bar.get_facecolor(), marker="o", clip_on=False))
            if end > 0:
                ends.append(end)
                guides.append((end, y))
    if not ends:
        return False
    axes.set_xlim(min(ends) / 1.5, max(ends) * 4)
    left = axes.get_xlim()[0]
    lines = [[(left, y), (end, y)] for end, y in guides]  # to the dots, and not on through their numbers
    axes.add_collection(LineCollection(lines, colors=GRID, linewidths=0.8, zorder=0.5), autolim=False)
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if max(ends) < 30 * min(ends) else (1,)))
    axes.xaxis.set_major_formatter("{x:,.10g}")
    axes.minorticks_off()
    return True


def _thin(axes: Axes) -> list[Text]:
    """Hide every second label of the x axis, until none touches its neighbour; the labels that are hidden."""
    shown = [label for label in axes.get_xticklabels() if label.get_visible() and label.get_text()]
    hidden = []
    while any(a.get_window_extent().x1 + 2 > b.get_window_extent().x0 for a, b in pairwise(shown)):
        for label in shown[1::2]:
            label.set_visible(False)
        hidden += shown[1::2]
        shown = shown[::2]
    return hidden
