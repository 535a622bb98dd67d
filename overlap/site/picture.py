"""One picture of the book: a snippet's plain matplotlib in the book's style, wide and narrow, with its numbers."""

import importlib.util
import sys
import traceback
import warnings
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from types import ModuleType

import matplotlib.pyplot as plt
from cycler import cycler
from matplotlib.figure import Figure

from overlap import OverlapError
from overlap.run.text import plain
from overlap.site.layout import Layout
from overlap.site.renderer import Canvas
from overlap.site.series import Table, read
from overlap.site.svg import GRID, INK, SERIES

#: Inches.
WIDTHS = {"wide": 7.0, "narrow": 3.7}
_ROWS = 100  # of numbers on a page; the rest is in the raw recording
_STYLE = {
    "axes.axisbelow": True,
    "axes.edgecolor": GRID,
    "axes.facecolor": "none",
    "axes.grid": True,
    "axes.labelcolor": INK,
    "axes.prop_cycle": cycler(color=SERIES),
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 10,
    "figure.dpi": 72,
    "figure.facecolor": "none",
    "figure.figsize": (WIDTHS["wide"], 3.5),
    "font.size": 10,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "legend.borderaxespad": 0.2,
    "legend.columnspacing": 1.4,
    "legend.frameon": False,
    "legend.handlelength": 1.6,
    "legend.handletextpad": 0.6,
    "lines.linewidth": 1.8,
    "lines.markersize": 5,
    "text.color": INK,
    "text.parse_math": False,
    "xtick.bottom": False,
    "xtick.color": INK,
    "ytick.color": INK,
    "ytick.left": False,
}


def draw(path: str, results: dict, ceilings: dict) -> dict:
    """Call `plot(results, ceilings)` of the file at `path`: SVG texts and sizes of the variants, and the tables of numbers."""
    with plt.rc_context(_STYLE), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # a page cannot help what matplotlib warns of
        warnings.simplefilter("ignore", RuntimeWarning)
        try:
            return _draw(_module(path).plot(results, ceilings))
        except OverlapError as error:
            raise OverlapError(f"{path}: plot() {error}") from None
        except (Exception, SystemExit) as error:
            lines = [
                frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == path
            ]
            place = f"{path}:{lines[-1]}" if lines else path
            why = f"plot() cannot be drawn: {type(error).__name__}: {error}"
            raise OverlapError(f"{place}: {why}; mend it, or what main() returned") from None
        finally:
            plt.close("all")


def _module(path: str) -> ModuleType:
    """A snippet as a module, as its file is now, and so the tools it imports."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "snippets"]:
        del sys.modules[name]
    spec = importlib.util.spec_from_file_location(f"snippets.drawn.{Path(path).stem}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _draw(figure) -> dict:
    if not isinstance(figure, Figure):
        raise OverlapError(f"must return a matplotlib figure, not {type(figure).__name__}")
    axes = list(_axes(figure))
    if not axes:
        raise OverlapError("returned a figure without axes; draw on some, such as those of plt.subplots()")
    series = [item for each in axes for item in read(each)]
    canvas, layout = Canvas(figure), Layout(figure, axes, series)
    shared = next(filter(None, (each.get_xlabel() for each in reversed(figure.axes))), "")
    picture, tables = {"sizes": {}}, []
    for variant, inches in WIDTHS.items():
        layout.fit(inches)
        tables = tables or [Table(item, shared) for item in series]
        marks = [mark for table in tables for mark in table.marks(figure.bbox.height)]
        picture[variant] = canvas.svg(marks)
        picture["sizes"][variant] = [round(figure.bbox.width), round(figure.bbox.height)]
    picture["tables"], picture["more"] = _shortened(tables)
    return picture


def _axes(figure: Figure) -> Iterator:
    """The axes that show data, then those in others."""
    for axes in figure.axes:
        if axes.get_label() != "<colorbar>":
            if axes.name != "rectilinear":
                raise OverlapError(
                    f"draws on {axes.name} axes, whose numbers the page could not show; use plain axes"
                )
            yield axes
    for axes in figure.axes:
        yield from axes.child_axes


def _shortened(tables: list[Table]) -> tuple[list[dict], int]:
    """A table for each pair of headings with a block of rows for each series; and how many rows are left out."""
    shown, left = [], _ROWS
    for headings, group in groupby(tables, key=lambda table: (plain(table.x), plain(table.y))):
        blocks = []
        for table in group:
            rows = table.rows[: max(left, 0)]
            left -= len(table.rows)
            if rows:
                name = " · ".join(filter(None, (table.title, table.series.label)))
                blocks.append({"name": name, "points": rows})
        if blocks:
            shown.append({"headings": headings, "series": blocks})
    return shown, max(-left, 0)
