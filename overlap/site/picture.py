"""One picture: a snippet's plain matplotlib in the book's style, wide and narrow, with its numbers."""

import importlib.util
import io
import sys
import traceback
import warnings
from collections.abc import Iterable
from itertools import groupby
from pathlib import Path
from types import ModuleType

import matplotlib.pyplot as plt
from cycler import cycler
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from overlap import OverlapError
from overlap.run.text import plain
from overlap.site import svg
from overlap.site.chart import chart
from overlap.site.layout import Layout
from overlap.site.series import Series, read
from overlap.site.shared import alike, share

#: Inches.
WIDTHS = {"wide": 7.0, "narrow": 3.7}
_ROWS = 100  # of numbers on a page; the rest is in the raw recording
_STYLE = {
    "axes.axisbelow": True,
    "axes.edgecolor": svg.GRID,
    "axes.facecolor": "none",
    "axes.grid": True,
    "axes.labelcolor": svg.INK,
    "axes.prop_cycle": cycler(color=svg.SERIES),
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 10,
    "figure.dpi": 72,
    "figure.facecolor": "none",
    "figure.figsize": (WIDTHS["wide"], 3.5),
    "font.size": 10,
    "grid.color": svg.GRID,
    "grid.linewidth": 0.6,
    "legend.borderaxespad": 0.2,
    "legend.columnspacing": 1.4,
    "legend.frameon": False,
    "legend.handlelength": 1.6,
    "legend.handletextpad": 0.6,
    "lines.linewidth": 1.8,
    "lines.markersize": 5,
    "svg.fonttype": "none",
    "text.color": svg.INK,
    "text.parse_math": False,
    "xtick.bottom": False,
    "xtick.color": svg.INK,
    "ytick.color": svg.INK,
    "ytick.left": False,
}


def draw(
    path: str,
    results: dict,
    ceilings: dict,
    name: str = "",
    variants: Iterable[str] = tuple(WIDTHS),
    others: Iterable[tuple[dict, dict]] = (),
    twin: tuple[str, dict, dict] | None = None,
) -> dict:
    """Call `plot(results, ceilings)` of the file at `path`.

    Returns SVG texts and sizes of the variants, tables of numbers, and the panels of a chart. Ids in the
    picture are made of `name`.
    Where `others`, results and ceilings of other machines, give pictures of the same kind there is one more
    variant, `shared`, on axes that hold for all of them. With a `twin`, the path, results and ceilings of
    another snippet, the axes have room for what that shows on them.
    """
    with plt.rc_context(_STYLE), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # a page cannot help what matplotlib warns of
        warnings.simplefilter("ignore", RuntimeWarning)
        try:
            plot = _module(path).plot
            figure = plot(results, ceilings)
            figures = [plot(*other) for other in others]
            if twin:
                their_path, *theirs = twin
                share(figure, [_module(their_path).plot(*theirs)])
            return _draw(figure, name, variants, figures)
        except OverlapError as error:
            raise OverlapError(f"{path}: plot() {error}") from None
        except (Exception, SystemExit) as error:
            frames = traceback.extract_tb(error.__traceback__)
            lines = [frame.lineno for frame in frames if frame.filename == path]
            place = f"{path}:{lines[-1]}" if lines else path
            why = f"plot() cannot be drawn: {type(error).__name__}: {error}"
            raise OverlapError(f"{place}: {why}; mend it, or what main() returned") from None
        finally:
            plt.close("all")


def _module(path: str) -> ModuleType:
    """A snippet as a module, as its file is now, and so the tools it imports."""
    before = _take_snippets()
    try:
        spec = importlib.util.spec_from_file_location(f"snippets.drawn.{Path(path).stem}", path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module
    finally:
        _take_snippets()
        sys.modules.update(before)


def _take_snippets() -> dict[str, ModuleType]:
    """Take all snippets out of the modules that are imported."""
    names = [name for name in sys.modules if name.partition(".")[0] == "snippets"]
    return {name: sys.modules.pop(name) for name in names}


def _draw(figure, name: str, variants: Iterable[str], others: list) -> dict:
    if not isinstance(figure, Figure):
        raise OverlapError(f"must return a matplotlib figure, not {type(figure).__name__}")
    if not figure.axes:
        raise OverlapError("returned a figure without axes; draw on some, such as those of plt.subplots()")
    same = alike(figure, others)
    series = read(figure)
    picture = {"sizes": {}, "chart": chart(figure, series)}
    layout = Layout(figure, series)
    for variant in variants:
        layout.fit(WIDTHS[variant])
        _print(figure, series, picture, name, variant)
    picture["tables"], picture["more"] = _tables(series)
    if same:
        for other in same:
            Layout(other, read(other))
        share(figure, same)
        layout.fit(WIDTHS["narrow"])
        _print(figure, series, picture, name, "shared")
    return picture


def _print(figure: Figure, series: list[Series], picture: dict, name: str, variant: str) -> None:
    """Put a figure, as it is laid out now, into the picture as one of its variants."""
    file = io.StringIO()
    canvas = figure.canvas
    with plt.rc_context({"svg.hashsalt": f"{name}-{variant}"}):
        FigureCanvasSVG(figure).print_svg(file, metadata={"Date": None})
    figure.set_canvas(canvas)
    marks = [mark for item in series for mark in item.marks(figure.bbox.height)]
    picture[variant] = svg.from_matplotlib(file.getvalue(), marks)
    picture["sizes"][variant] = [round(figure.bbox.width), round(figure.bbox.height)]


def _tables(series: list[Series]) -> tuple[list[dict], int]:
    """A table for each pair of headings, with a block of rows for each series; how many rows are left out."""
    tables = []
    left = _ROWS
    for headings, group in groupby(series, key=lambda item: item.headings):
        blocks = []
        for item in group:
            rows = item.rows[: max(left, 0)]
            left -= len(item.rows)
            if rows:
                blocks.append({"name": item.name, "points": rows})
        if blocks:
            tables.append({"headings": [plain(heading) for heading in headings], "series": blocks})
    return tables, max(-left, 0)
