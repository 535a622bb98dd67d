"""What lets a picture be read on a page of any width: one time scale, dots for logarithms, legends and labels with room of their own."""

import math
import re
import textwrap
from itertools import pairwise

from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.legend import Legend
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.text import Annotation
from matplotlib.ticker import FixedLocator, LogLocator, ScalarFormatter

from overlap.site.plotted import NotedAxes
from overlap.site.svg import SERIES

_GAP = 4  # points between a label and what it stands beside
_INK, _GRID = "#1f2328", "#d0d7de"
_LANES = {"CPU": 0, "compute": 1, "copies": 2, "optimizer": 3, "NCCL": 4, "all-reduce": 4}
_LANES |= {"CPU copies": 0, "products": 1, "all-reduces": 4}  # of one colour on all pages
_APART = 8  # panels of which one lasts so many times as long as another have time scales of their own


def arrange(figure: Figure, axes: list[NotedAxes]) -> None:
    """Change how a figure of the book's axes looks, never what it shows."""
    lanes = [each for each in axes if _has_lanes(each)]
    panels = max((each.get_gridspec().nrows for each in figure.axes if each.get_gridspec()), default=1)
    if lanes and len(lanes) == len(axes):
        figure.set_figheight(0.9 + sum(0.4 + 0.26 * _lanes(each) for each in lanes))
        _share_time(lanes)
        _color(lanes)
    elif panels > 1:
        lines = max(sum(1 + text.get_text().count("\n") for text in each.get_yticklabels()) for each in axes)
        figure.set_figheight(0.6 + max(1.5, 0.5 + 0.18 * lines) * panels)
    bars = sum(len(noted.boxes) for each in axes for noted in each.noted if noted.kind == "lying bar")
    figure.set_figheight(max(figure.get_figheight(), 1.2 + 0.22 * bars))
    dotted = any([_dot(each) for each in axes])
    for each in axes:
        _write_out(each)
        _write_ticks(each)
        _show_limits(each)
    said = {label for each in axes for label in (each.get_xlabel(), each.get_ylabel())}
    said |= {text.get_text() for each in axes for text in each.texts}
    for legend in [*figure.legends, *filter(None, (each.get_legend() for each in figure.axes))]:
        _place(figure, legend, said, dotted)
    figure.draw_without_rendering()
    for each in axes:
        _move_off_lines(each)
        _thin(each)


def _color(lanes: list[NotedAxes]) -> None:
    """Lanes of one name, or of one thing on several devices, in one colour; waiting is light. What the author has coloured stays."""
    spans = [noted.artist for each in lanes for noted in each.noted if noted.kind == "span"]
    if any(to_hex(color) != SERIES[0] for each in spans for color in each.get_facecolor()):
        return
    colors = {}
    for each in spans:
        what = str(each.get_label()).rpartition(", ")[2]
        waits = what.endswith(" waits")
        what = "CPU" if re.fullmatch(r"CPU \d+", what) else what
        color = "gray" if waits else colors.setdefault(what, SERIES[_LANES.get(what, len(colors) % len(SERIES))])
        each.set(facecolor=color, edgecolor="none" if waits else color, linewidth=0.8, alpha=0.4 if waits else None)


def _has_lanes(axes: NotedAxes) -> bool:
    named = isinstance(axes.yaxis.get_major_locator(), FixedLocator)
    return named and any(noted.kind == "span" for noted in axes.noted)


def _lanes(axes: NotedAxes) -> float:
    low, high = sorted(axes.get_ylim())
    return high - low


def _share_time(lanes: list[NotedAxes]) -> None:
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


def _dot(axes: NotedAxes) -> bool:
    """Lying bars on a logarithmic axis become dots: it has no zero that a length could begin at."""
    noted = [each for each in axes.noted if each.kind == "lying bar" and axes.get_xscale() == "log"]
    boxes = [box for each in noted for box in each.boxes]
    for bar, (_, low, end, high) in zip((bar for each in noted for bar in each.artist), boxes, strict=True):
        bar.set_visible(False)
        look = {"color": bar.get_facecolor(), "marker": "o", "clip_on": False}
        Axes.add_line(axes, Line2D([end], [(low + high) / 2], **look))
    ends = [end for _, _, end, _ in boxes if end > 0]
    if any(noted.kind == "lying bar" for noted in axes.noted):
        axes.grid(False, axis="y")
    if ends:
        axes.set_xlim(min(ends) / 1.5, max(ends) * 4)
        guides = [[(axes.get_xlim()[0], (low + high) / 2), (end, (low + high) / 2)] for _, low, end, high in boxes]
        look = {"colors": _GRID, "linewidths": 0.8, "zorder": 0.5}  # to the dots, and not on through their numbers
        Axes.add_collection(axes, LineCollection(guides, **look), autolim=False)
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if max(ends) < 30 * min(ends) else (1,)))
        axes.xaxis.set_major_formatter("{x:,.10g}")
        axes.minorticks_off()
    return bool(ends)


def _labels_of_bars(axes: NotedAxes) -> list[Annotation]:
    return [text for text in axes.texts if isinstance(text, Annotation) and text.anncoords == "offset points"]


def _write_out(axes: NotedAxes) -> None:
    """Numbers at bars without an exponent; farther from a dot, which reaches beyond its place."""
    for label in _labels_of_bars(axes):
        if re.fullmatch(r"\d(\.\d+)?e[+-]\d+", label.get_text()):
            label.set_text(f"{float(label.get_text()):,.10g}")
        if axes.get_xscale() == "log" and label.xyann == (3, 0):
            label.xyann = (6, 0)


def _write_ticks(axes: NotedAxes) -> None:
    """Numbers at an axis as they are in the text: 1,000 and neither 1000 nor 10³."""
    for axis, scale in ((axes.xaxis, axes.get_xscale()), (axes.yaxis, axes.get_yscale())):
        low, high = sorted(axis.get_view_interval())
        plain = scale == "linear" and type(axis.get_major_formatter()) is ScalarFormatter and 1000 <= high < 1e6
        if plain or (scale == "log" and axis is axes.yaxis and low >= 1e-4 and high < 1e6):
            axis.set_major_formatter("{x:,.10g}")


def _show_limits(axes: NotedAxes) -> None:
    """A limit that crosses bars is drawn in ink: grey cannot be seen on their colours."""
    for noted in axes.noted:
        if _is_inked(axes, noted):
            noted.artist.set_color(_INK)


def _is_inked(axes: NotedAxes, noted) -> bool:
    return noted.kind in ("place", "standing line") and any(each.kind == "lying bar" for each in axes.noted)


def _place(figure: Figure, legend: Legend, said: set[str], dotted: bool) -> None:
    """A legend above the picture, in as many columns as fit, without what an axis or a text beside a line says already."""
    pairs = [(handle, text.get_text()) for handle, text in zip(legend.legend_handles, legend.texts, strict=True)]
    pairs = [(_dot_of(handle) if dotted else handle, label) for handle, label in pairs if label not in said]
    inked = {n.artist.get_label() for each in figure.axes for n in getattr(each, "noted", ()) if _is_inked(each, n)}
    for handle, label in pairs:
        if label in inked:
            handle.set_color(_INK)
    legend.remove()
    if not pairs:
        return
    handles, labels = zip(*pairs, strict=True)
    renderer, room = figure.canvas.get_renderer(), figure.bbox.width
    for columns in (4, 3, 2, 1):
        new = figure.legend(handles, labels, loc="outside upper left", ncols=columns)
        wide = new.get_window_extent(renderer).width
        if wide <= room or columns == 1:
            break
        new.remove()
    if wide > room:
        for text in new.texts:
            fits = max(10, int(len(text.get_text()) * (room - 55) / text.get_window_extent(renderer).width))
            text.set_text(textwrap.fill(text.get_text(), fits))
    rows = math.ceil(len(pairs) / columns)
    figure.set_figheight(figure.get_figheight() + 0.2 * max(0, rows - 2))


def _dot_of(handle):
    if not isinstance(handle, Rectangle):
        return handle
    return Line2D([], [], color=handle.get_facecolor(), marker="o", linestyle="")


def _move_off_lines(axes: NotedAxes) -> None:
    """Labels of bars to the right of a standing line that would strike them."""
    lines = [box for noted in axes.noted if noted.kind in ("place", "standing line") for box in noted.boxes]
    whole = {id(box) for noted in axes.noted if noted.kind == "place" for box in noted.boxes}
    for x, box in sorted((axes.transData.transform(box[:2])[0], box) for box in lines):
        low, high = sorted(axes.transData.transform([box[:2], box[2:]])[:, 1])
        for label in _labels_of_bars(axes):
            place, points = label.get_window_extent(), 72 / axes.figure.dpi
            beside = id(box) in whole or low <= (place.y0 + place.y1) / 2 <= high
            if beside and place.x0 - _GAP / points <= x <= place.x1 + 1:
                label.xyann = (label.xyann[0] + (x - place.x0) * points + _GAP, label.xyann[1])


def _thin(axes: NotedAxes) -> None:
    """Every second label of the x axis, until none touches its neighbour."""
    ticks = axes.xaxis.get_major_ticks()
    shown = [tick.label1 for tick in ticks if tick.label1.get_visible() and tick.label1.get_text()]
    while any(a.get_window_extent().x1 + 2 > b.get_window_extent().x0 for a, b in pairwise(shown)):
        for label in shown[1::2]:
            label.set_visible(False)
        shown = shown[::2]
