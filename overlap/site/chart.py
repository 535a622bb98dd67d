"""What a chart that readers change needs of a picture: numbers, limits and scales of lines and dots."""

import math

from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PathCollection
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.text import Annotation

from overlap.run.text import plain
from overlap.site.series import Series, rounded, words
from overlap.site.svg import SERIES

#: Fewer steps can be read at a glance.
_STEPS = 4
_DASHES = {"-": "", "--": "6 3", "-.": "8 3 2 3", ":": "2 3"}


def chart(figure: Figure, series: list[Series]) -> list[dict]:
    """A panel for each axes of a figure; none where one of them shows no numbers over numbers."""
    panels = []
    for axes in figure.axes:
        panel = _panel(axes, [item for item in series if item.axes is axes])
        if not panel:
            return []
        panels.append(panel)
    return panels


def _panel(axes: Axes, series: list[Series]) -> dict:
    kinds = {item.kind for item in series}
    if any(isinstance(item.artist, LineCollection) for item in series):
        return {}  # a limit of a part of the axis: a chart draws limits over all of it
    if kinds == {"cell"}:
        lines = [line for item in series for line in _rows_of_cells(item)]
    elif "point" in kinds and kinds <= {"point", "line", "standing line"}:
        lines = [_line(item) for item in series if item.kind == "point"]
    else:
        return {}
    steps = {x for line in lines for x, _ in line["points"]}
    named = any(words(axis) and axis.have_units() for axis in (axes.xaxis, axes.yaxis))
    if len(steps) < _STEPS or (named and "cell" not in kinds):
        return {}
    return {
        "kind": _kind(kinds, lines),
        "title": plain(axes.get_title(loc="left") or axes.get_title()),
        "x": _axis(axes, "x", series),
        "y": _axis(axes, "y", series),
        "series": lines,
        "limits": [_limit(item, "y") for item in series if item.kind == "line"],
        "edges": [_limit(item, "x") for item in series if item.kind == "standing line"],
        "names": [[_exact(text.xy[0]), rounded(text.xy[1]), text.get_text()] for text in _names(axes)],
    }


def _kind(kinds: set[str], lines: list[dict]) -> str:
    """`lines` where a chart shows all that the picture shows, else `dots` or `cells`."""
    if "cell" in kinds:
        return "cells"
    return "lines" if any(line["line"] and line["colour"] for line in lines) else "dots"


def _line(item: Series) -> dict:
    """One series of points; those in grey are limits, and have no colour."""
    artist = item.artist
    points = [[_exact(x), rounded(y)] for x, y, _, _ in item.boxes]
    line = {"name": plain(item.label), "points": [pair for pair in points if None not in pair]}
    if isinstance(artist, PathCollection):
        colour = to_hex(artist.get_facecolor()[0])
        return line | {"colour": _colour(colour), "dash": "", "line": False, "dots": True}
    style = artist.get_linestyle()
    return line | {
        "colour": _colour(to_hex(artist.get_color())),
        "dash": _DASHES.get(style, ""),
        "line": style in _DASHES,
        "dots": isinstance(artist, Line2D) and artist.get_marker() not in ("None", "", None),
    }


def _exact(step: float) -> float | None:
    """A step with all its digits: 1,048,576 is a power of two, 1,049,000 is none."""
    return float(f"{step:.8g}") if math.isfinite(step) else None


def _colour(hexadecimal: str) -> int:
    """Number of one of the book's colours, from 1; 0 for grey."""
    return SERIES.index(hexadecimal) + 1 if hexadecimal in SERIES else 0


def _rows_of_cells(item: Series) -> list[dict]:
    """A line over the columns for each row of a heat map, if the columns are numbers."""
    rows: dict[str, list] = {}
    for where, value in item.rows:
        name, _, column = str(where).rpartition(", ")
        if not column.replace(",", "").isdecimal():
            return []
        rows.setdefault(name, []).append([int(column.replace(",", "")), rounded(value)])
    places = {name: number for number, name in enumerate(rows, 1)}
    lines = []
    for name, points in rows.items():
        dash = "" if places[name] <= len(SERIES) else _DASHES["--"]
        look = {"colour": places[name], "dash": dash, "line": True, "dots": True}
        lines.append({"name": plain(name), "points": points} | look)
    return lines


def _limit(item: Series, key: str) -> dict:
    left, low, _, _ = item.boxes[0]
    return {"name": plain(item.label), "at": _exact(left if key == "x" else low)}


def _axis(axes: Axes, key: str, series: list[Series]) -> dict:
    """Label, scale, where it begins, and the words that the author put at places."""
    axis = axes.xaxis if key == "x" else axes.yaxis
    cells = series[0].kind == "cell"
    drawn = next(item for item in series if item.kind in ("point", "cell"))
    label = drawn.headings[0 if key == "x" else 1]
    return {
        "label": plain(label or axes.get_title(loc="left") or axes.get_title() or "value"),
        "log": axis.get_scale() == "log",
        "low": 0 if cells else rounded(min(axis.get_view_interval())),
        "ticks": [] if cells else [[_exact(place), word] for place, word in words(axis)],
    }


def _names(axes: Axes) -> list[Annotation]:
    """What is written at points."""
    return [text for text in axes.texts if isinstance(text, Annotation)]
