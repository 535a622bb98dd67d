"""What lets a picture be read on a page of any width: one time scale, dots for logarithms, legends above."""

import math
import re
import textwrap
from collections.abc import Callable
from itertools import pairwise

from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.legend import Legend
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.text import Annotation
from matplotlib.ticker import FixedLocator, Formatter, LogFormatterMathtext, LogLocator, ScalarFormatter

from overlap.site.series import Series
from overlap.site.svg import CEILING, GRID, INK, PAPER, SERIES

_LANES = {"CPU": 0, "compute": 1, "copies": 2, "optimizer": 3, "NCCL": 4, "all-reduce": 4}
_LANES |= {"CPU copies": 0, "matmuls": 1, "all-reduces": 4}  # of one colour on all pages
_APART = 8  # panels of which one lasts so many times as long as another have time scales of their own
_FAR = 1e9  # beyond all axes that have bars
_HEIGHT = 3.5  # inches, of a plain picture


class Layout:
    """Changes how a figure looks, never what it shows; `fit` does what depends on the width."""

    def __init__(self, figure: Figure, series: list[Series]):
        self.figure = figure
        self.series = series
        self.lanes = all(self._has_lanes(axes) for axes in figure.axes)
        self.height = self._fair_height()
        if self.lanes:
            self._share_time()
            self._color_lanes()
        self.dotted = False
        self.inked: set[str] = set()  # labels of limits
        for axes in figure.axes:
            bars = self._of(axes, "lying bar")
            if bars:
                axes.grid(False, axis="y")
                for limit in self._of(axes, "standing line"):
                    limit.artist.set_color(INK)  # grey cannot be seen on the colours of bars
                    self.inked.add(limit.label)
            if bars and axes.get_xscale() == "log":
                _draw_dots(axes, bars)
                self.dotted = True
            _write_numbers(axes)
        self.entries = self._take_legends()
        self.legend: Legend | None = None
        #: Labels beside bars, and how far from them they stand.
        self.offsets = {label: label.xyann for axes in figure.axes for label in _labels_of_bars(axes)}

    def fit(self, inches: float) -> None:
        """Put everything in its place on a page so wide."""
        for label, offset in self.offsets.items():
            label.xyann = offset
        for axes in self.figure.axes:
            for label in axes.get_xticklabels():
                label.set_visible(True)
        self._make_room(inches)
        for axes in self.figure.axes:
            self._free_of_lines(axes)
            _thin(axes)

    def _make_room(self, inches: float) -> None:
        """A legend at the top, and the axes below, with room around them for what sticks out."""
        figure = self.figure
        figure.set_size_inches(inches, self.height)
        above = 0.0
        if self.legend:
            self.legend.remove()
        if self.entries:
            rows = self._place_legend()
            above = self.legend.get_window_extent().height / figure.dpi
            height = self.height + 0.2 * max(0, rows - 2)
        else:
            height = self.height
        figure.set_figheight(height - above)
        for _ in range(2):  # narrower axes let the labels beside bars stick out further
            figure.tight_layout(pad=0.3, w_pad=1)
        share = (height - above) / height
        margins = figure.subplotpars
        figure.subplots_adjust(bottom=margins.bottom * share, top=margins.top * share)
        figure.set_figheight(height)

    def _of(self, axes: Axes, *kinds: str) -> list[Series]:
        return [series for series in self.series if series.axes is axes and series.kind in kinds]

    def _has_lanes(self, axes: Axes) -> bool:
        return isinstance(axes.yaxis.get_major_locator(), FixedLocator) and bool(self._of(axes, "span"))

    def _fair_height(self) -> float:
        """Inches: lanes, panels and bars each need so much."""
        all_axes = self.figure.axes
        if self.lanes:
            return 0.9 + sum(0.4 + 0.26 * abs(axes.get_ylim()[1] - axes.get_ylim()[0]) for axes in all_axes)
        height = _HEIGHT
        grids = [axes.get_gridspec() for axes in all_axes]
        panels = max((grid.nrows for grid in grids if grid), default=1)
        if panels > 1:
            labels = [[text.get_text() for text in axes.get_yticklabels()] for axes in all_axes]
            lines = max(sum(1 + label.count("\n") for label in column) for column in labels)
            height = 0.6 + max(1.5, 0.5 + 0.18 * lines) * panels
        bars = sum(len(series.boxes) for series in self.series if series.kind == "lying bar")
        return max(height, 1.2 + 0.22 * bars)

    def _share_time(self) -> None:
        """Equal lengths are equal times in all panels, where the shortest can still be seen."""
        panels = self.figure.axes
        for axes in panels:
            axes.grid(False, axis="y")
        ends = [axes.get_xlim()[1] for axes in panels]
        units = {axes.get_xlabel()[:2] for axes in panels}
        if max(ends) > _APART * min(ends) or len(units) > 1:
            return
        for axes in panels:
            axes.set_xlim(min(axes.get_xlim()[0] for axes in panels), max(ends))
        for axes in panels[:-1]:
            axes.set_xlabel("")
            axes.tick_params(labelbottom=False)

    def _color_lanes(self) -> None:
        """Lanes of one name, or of one thing on several devices, in one colour; waiting is light."""
        spans = [series.artist for series in self.series if series.kind == "span"]
        if any(to_hex(color) != SERIES[0] for artist in spans for color in artist.get_facecolor()):
            return  # the author coloured them
        colors = {}
        for artist in spans:
            lane = str(artist.get_label()).rpartition(", ")[2]
            lane = re.sub(r"^CPU \d+$", "CPU", lane)
            if lane.endswith(" waits"):
                artist.set(facecolor=CEILING, edgecolor="none", alpha=0.4)
                continue
            if lane not in colors:
                colors[lane] = SERIES[_LANES.get(lane, len(colors) % len(SERIES))]
            artist.set(facecolor=colors[lane], edgecolor=colors[lane], linewidth=0.8)

    def _take_legends(self) -> list[tuple]:
        """Take legends away; their handles and labels but for those that an axis or a text says already."""
        told = {text.get_text() for axes in self.figure.axes for text in axes.texts}
        for axes in self.figure.axes:
            told |= {axes.get_xlabel(), axes.get_ylabel()}
        legends = [*self.figure.legends, *(axes.get_legend() for axes in self.figure.axes)]
        entries = []
        for legend in filter(None, legends):
            for handle, text in zip(legend.legend_handles, legend.texts, strict=True):
                if self.dotted and isinstance(handle, Rectangle):
                    handle = Line2D([], [], color=handle.get_facecolor(), marker="o", linestyle="")
                if text.get_text() in self.inked:
                    handle.set_color(INK)
                if text.get_text() not in told:
                    entries.append((handle, text.get_text()))
            legend.remove()
        return entries

    def _place_legend(self) -> int:
        """A legend in as many columns as fit; how many rows it has."""
        figure = self.figure
        width = figure.bbox.width
        handles, labels = zip(*self.entries, strict=True)
        for columns in range(min(4, len(labels)), 0, -1):
            self.legend = figure.legend(handles, labels, loc="upper left", ncols=columns)
            if columns == 1 or self.legend.get_window_extent().width <= width:
                break
            self.legend.remove()
        for text in self.legend.texts:
            wide = text.get_window_extent().width
            if wide > width - 45:
                fitting = int(len(text.get_text()) * (width - 55) / wide)
                text.set_text(textwrap.fill(text.get_text(), max(10, fitting)))
        return math.ceil(len(self.entries) / columns)

    def _free_of_lines(self, axes: Axes) -> None:
        """Let a label cover the line that would strike it: beyond the line it would seem to be more."""
        lines = []
        for series in self._of(axes, "standing line"):
            for x, low, _, high in series.boxes:
                low, high = max(low, -_FAR), min(high, _FAR)
                ends = axes.transData.transform([(x, low), (x, high)])
                lines.append((ends[0][0], *sorted(ends[:, 1])))
        for label in _labels_of_bars(axes):
            place = label.get_window_extent()
            middle = (place.y0 + place.y1) / 2
            beside = [x for x, low, high in lines if low <= middle <= high]
            struck = any(place.x0 - 1 <= x <= place.x1 + 1 for x in beside)
            label.set_bbox({"facecolor": PAPER, "edgecolor": "none", "pad": 2} if struck else None)
            label.set_zorder(4 if struck else 3)


def _numbers(powers: Formatter) -> Callable:
    """Numbers instead of powers of ten, where matplotlib would write these: 1,000 for 10³."""

    def write(x: float, pos: int | None = None) -> str:
        powers.set_locs([])  # it decides by the limits of its axis what is labelled
        return f"{x:,.10g}" if powers(x, pos) else ""

    return write


def _write_numbers(axes: Axes) -> None:
    """Numbers at axes and bars as in the text: 1,000, and neither 1000 nor 10³ nor 1e+03."""
    for axis in (axes.xaxis, axes.yaxis):
        _, high = sorted(axis.get_view_interval())
        if type(axis.get_major_formatter()) is ScalarFormatter and high >= 1000:
            axis.set_major_formatter("{x:,.10g}")
        if isinstance(axis.get_major_formatter(), LogFormatterMathtext):
            axis.set_major_formatter(_numbers(axis.get_major_formatter()))
        if isinstance(axis.get_minor_formatter(), LogFormatterMathtext):
            axis.set_minor_formatter(_numbers(axis.get_minor_formatter()))
    for label in _labels_of_bars(axes):
        if re.fullmatch(r"\d(\.\d+)?e[+-]\d+", label.get_text()):
            label.set_text(f"{float(label.get_text()):,.10g}")


def _labels_of_bars(axes: Axes) -> list[Annotation]:
    return [text for text in axes.texts if isinstance(text, Annotation) and text.anncoords == "offset points"]


def _draw_dots(axes: Axes, bars: list[Series]) -> None:
    """Lying bars on a logarithmic axis become dots: it has no zero that a length could begin at."""
    ends = []
    for series in bars:
        for bar, (_, low, end, high) in zip(series.artist, series.boxes, strict=True):
            y = (low + high) / 2
            bar.set_visible(False)
            axes.add_line(Line2D([end], [y], color=bar.get_facecolor(), marker="o", clip_on=False))
            if end > 0:
                ends.append((end, y))
    if not ends:
        return
    least, most = min(ends)[0], max(ends)[0]
    axes.set_xlim(least / 1.5, most * 4)
    lines = [[(least / 1.5, y), (end, y)] for end, y in ends]  # to the dots, and not on through their numbers
    axes.add_collection(LineCollection(lines, colors=GRID, linewidths=0.8, zorder=0.5), autolim=False)
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if most < 30 * least else (1,)))
    axes.xaxis.set_major_formatter("{x:,.10g}")
    axes.minorticks_off()
    for label in _labels_of_bars(axes):
        label.xyann = (6, 0)  # a dot reaches beyond its place


def _thin(axes: Axes) -> None:
    """Hide every second label of the x axis, until none touches its neighbour."""
    labels = [label for label in axes.get_xticklabels() if label.get_text()]
    places = [label.get_window_extent() for label in labels]
    while any(left.x1 + 2 > right.x0 for left, right in pairwise(places)):
        for label in labels[1::2]:
            label.set_visible(False)
        labels = labels[::2]
        places = places[::2]
