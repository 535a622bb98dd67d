"""How the book changes what a snippet drew, at any width: one time scale, colours of lanes, dots, numbers."""

import re
from collections.abc import Callable

from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.text import Annotation
from matplotlib.ticker import FixedLocator, Formatter, LogFormatterMathtext, LogLocator, ScalarFormatter

from overlap.site.series import Series
from overlap.site.svg import CEILING, GRID, INK, SERIES

#: Colours of lanes that have one on all pages, as numbers in `SERIES`.
_LANES = {"CPU": 0, "compute": 1, "copies": 2, "optimizer": 3, "NCCL": 4, "all-reduce": 4}
_LANES |= {"CPU copies": 0, "matmuls": 1, "unprofiled": 3, "all-reduces": 4}
#: Panels of which one lasts so many times as long as another have time scales of their own.
_APART = 8


def restyle(figure: Figure, series: list[Series]) -> None:
    """Change how a figure looks, never what it shows."""
    if has_lanes(figure, series):
        _share_time(figure.axes)
        _color_lanes([item.artist for item in series if item.kind == "span"])
    for axes in figure.axes:
        bars = on(axes, series, "lying bar")
        if bars:
            axes.grid(False, axis="y")
            for limit in on(axes, series, "standing line"):
                limit.artist.set_color(INK)  # grey cannot be seen on the colours of bars
        if bars and axes.get_xscale() == "log":
            _draw_dots(axes, bars)
        _write_numbers(axes)


def on(axes: Axes, series: list[Series], kind: str) -> list[Series]:
    """Those of one kind on these axes."""
    return [item for item in series if item.axes is axes and item.kind == kind]


def has_lanes(figure: Figure, series: list[Series]) -> bool:
    """Whether all its panels show spans of time in named lanes."""
    named = [isinstance(axes.yaxis.get_major_locator(), FixedLocator) for axes in figure.axes]
    return all(named) and all(on(axes, series, "span") for axes in figure.axes)


def labels_of_bars(axes: Axes) -> list[Annotation]:
    """What is written beside bars."""
    return [text for text in axes.texts if isinstance(text, Annotation) and text.anncoords == "offset points"]


def _share_time(panels: list[Axes]) -> None:
    """Equal lengths are equal times in all panels, where the shortest can still be seen."""
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


def _color_lanes(spans: list) -> None:
    """Lanes of one name, or of one thing on several devices, in one colour; waiting is light."""
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
    for label in labels_of_bars(axes):
        label.xyann = (6, 0)  # a dot reaches beyond its place


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
    for label in labels_of_bars(axes):
        if re.fullmatch(r"\d(\.\d+)?e[+-]\d+", label.get_text()):
            label.set_text(f"{float(label.get_text()):,.10g}")
