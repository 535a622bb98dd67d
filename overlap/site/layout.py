"""What lets a picture be read on a page of any width: a fair height, a legend above, labels that fit."""

import math
import textwrap
from itertools import pairwise

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.legend import Legend
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle

from overlap.site.restyle import has_lanes, labels_of_bars, on
from overlap.site.series import Series
from overlap.site.svg import PAPER

_FAR = 1e9  # beyond all axes that have bars
_HEIGHT = 3.5  # inches, of a plain picture


class Layout:
    """Places of a figure that has the book's style; `fit` puts everything there for a page so wide."""

    def __init__(self, figure: Figure, series: list[Series]):
        self.figure = figure
        self.series = series
        self.height = _fair_height(figure, series)
        self.entries = _legend_entries(figure, series)
        self.legend: Legend | None = None

    def fit(self, inches: float) -> None:
        """Put everything in its place on a page so wide."""
        for axes in self.figure.axes:
            for label in axes.get_xticklabels():
                label.set_visible(True)
        self._make_room(inches)
        for axes in self.figure.axes:
            _cover_lines(axes, on(axes, self.series, "standing line"))
            _thin(axes)

    def _make_room(self, inches: float) -> None:
        """A legend at the top, and the axes below, with room around them for what sticks out."""
        figure = self.figure
        figure.set_size_inches(inches, self.height)
        height = self.height
        legend_height = 0.0
        if self.legend:
            self.legend.remove()
        if self.entries:
            rows = self._place_legend()
            legend_height = self.legend.get_window_extent().height / figure.dpi
            height += 0.2 * max(0, rows - 2)
        axes_height = height - legend_height
        figure.set_figheight(axes_height)
        figure.tight_layout(pad=0.3, w_pad=1)
        if any(labels_of_bars(axes) for axes in figure.axes):  # they stick out further of narrower axes
            figure.tight_layout(pad=0.3, w_pad=1)
        margins = figure.subplotpars
        share = axes_height / height
        figure.subplots_adjust(bottom=margins.bottom * share, top=margins.top * share)
        figure.set_figheight(height)

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


def _fair_height(figure: Figure, series: list[Series]) -> float:
    """Inches: lanes, panels and bars each need so much."""
    if has_lanes(figure, series):
        return 0.9 + sum(0.4 + 0.26 * abs(axes.get_ylim()[1] - axes.get_ylim()[0]) for axes in figure.axes)
    height = _HEIGHT
    grids = [axes.get_gridspec() for axes in figure.axes]
    panels = max((grid.nrows for grid in grids if grid), default=1)
    if panels > 1:
        labels = [[text.get_text() for text in axes.get_yticklabels()] for axes in figure.axes]
        lines = max(sum(1 + label.count("\n") for label in column) for column in labels)
        height = 0.6 + max(1.5, 0.5 + 0.18 * lines) * panels
    rows = {(item.axes, low) for item in series if item.kind == "lying bar" for _, low, _, _ in item.boxes}
    return max(height, 1.2 + 0.22 * len(rows))


def _legend_entries(figure: Figure, series: list[Series]) -> list[tuple]:
    """Take legends away; their handles and labels but for those that an axis or a text says already.

    A handle was made before its artist got the book's style.
    """
    known = {text.get_text() for axes in figure.axes for text in axes.texts}
    for axes in figure.axes:
        known |= {axes.get_xlabel(), axes.get_ylabel()}
    bars = [bar for item in series if item.kind == "lying bar" for bar in item.artist]
    dots = any(not bar.get_visible() for bar in bars)
    lines = {item.label: item.artist.get_color() for item in series if item.kind == "standing line"}
    legends = [*figure.legends, *(axes.get_legend() for axes in figure.axes)]
    entries = []
    for legend in filter(None, legends):
        for handle, text in zip(legend.legend_handles, legend.texts, strict=True):
            label = text.get_text()
            if dots and isinstance(handle, Rectangle):
                handle = Line2D([], [], color=handle.get_facecolor(), marker="o", linestyle="")
            if label in lines:
                handle.set_color(lines[label])
            if label not in known:
                entries.append((handle, label))
        legend.remove()
    return entries


def _cover_lines(axes: Axes, standing: list[Series]) -> None:
    """Let a label cover the line that would strike it: beyond the line it would seem to be more."""
    lines = []
    for item in standing:
        for x, low, _, high in item.boxes:
            low, high = max(low, -_FAR), min(high, _FAR)
            ends = axes.transData.transform([(x, low), (x, high)])
            lines.append((ends[0][0], *sorted(ends[:, 1])))
    for label in labels_of_bars(axes):
        place = label.get_window_extent()
        middle = (place.y0 + place.y1) / 2
        beside = [x for x, low, high in lines if low <= middle <= high]
        struck = any(place.x0 - 1 <= x <= place.x1 + 1 for x in beside)
        label.set_bbox({"facecolor": PAPER, "edgecolor": "none", "pad": 2} if struck else None)
        label.set_zorder(4 if struck else 3)


def _thin(axes: Axes) -> None:
    """Hide every second label of the x axis, until none touches its neighbour."""
    labels = [label for label in axes.get_xticklabels() if label.get_text()]
    places = [label.get_window_extent() for label in labels]
    while any(left.x1 + 2 > right.x0 for left, right in pairwise(places)):
        for label in labels[1::2]:
            label.set_visible(False)
        labels = labels[::2]
        places = places[::2]
