"""Pictures of a snippet: its plain matplotlib in the book's style, wide and narrow, with its numbers."""

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
from overlap.site import numbers, svg
from overlap.site.draw import WIDTHS as PIXELS
from overlap.site.draw import draw as draw_declared
from overlap.site.layout import Layout
from overlap.site.restyle import restyle
from overlap.site.series import Series, read
from overlap.site.shared import share

#: What `plot` gets: results and ceilings.
Numbers = tuple[dict, dict]
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
    name: str,
    machines: dict[str, Numbers],
    twin: tuple[str, dict[str, Numbers]] | None = None,
    variants: Iterable[str] = tuple(WIDTHS),
) -> dict[str, dict]:
    """Call `plot(results, ceilings)` of the file at `path` with the numbers of each machine.

    Returns by machine SVG texts and sizes of the variants, tables of numbers, and the same of its `parts`.
    Ids in a picture are made of `name` and the machine. With a `twin`, the path and the numbers of another
    snippet, the axes have room for what that shows on the same machine.
    """
    profile, *_ = machines
    pictures: dict[str, dict] = {}
    with plt.rc_context(_STYLE), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # a page cannot help what matplotlib warns of
        warnings.simplefilter("ignore", RuntimeWarning)
        try:
            plot = _module(path).plot
            twin_path, of_twin = twin or ("", {})
            plot_twin = _module(twin_path).plot if twin else None
            for profile, given in machines.items():
                drawn = plot(*given)
                figure, parts = drawn if isinstance(drawn, tuple) else (drawn, {})
                beside = [plot_twin(*of_twin[profile])] if profile in of_twin else []
                picture = _drawn(figure, beside, f"{name}-{profile}", variants)
                picture["parts"] = {}
                for part, other in parts.items():
                    picture["parts"][part] = _drawn(other, [], f"{name}-{part}-{profile}", variants)
                pictures[profile] = picture
        except OverlapError as error:
            raise OverlapError(f"{path}: plot() {error} (with the numbers of {profile})") from None
        except (Exception, SystemExit) as error:
            frames = traceback.extract_tb(error.__traceback__)
            lines = [frame.lineno for frame in frames if frame.filename == path]
            place = f"{path}:{lines[-1]}" if lines else path
            why = f"plot() cannot be drawn: {type(error).__name__}: {error}"
            remedy = f"mend it, or what main() returned (with the numbers of {profile})"
            raise OverlapError(f"{place}: {why}; {remedy}") from None
        finally:
            plt.close("all")
    return pictures


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


def _drawn(figure, beside: list, name: str, variants: Iterable[str]) -> dict:
    """The picture of what `plot` returned, with room for those that it stands beside."""
    if type(figure).__name__ == "Picture":
        return _declared(figure, beside, variants)
    for other in beside:
        share(figure, other)
    return Drawing(figure, name).draw(variants)


def _declared(declared, beside: list, variants: Iterable[str]) -> dict:
    """The picture of a declared one, with room for those that it stands beside."""
    picture = {"sizes": {}}
    for variant in variants:
        drawn, *size = draw_declared(declared, PIXELS[variant], beside)
        picture[variant] = drawn
        picture["sizes"][variant] = size
    picture["tables"], picture["more"] = numbers.tables(numbers.read(declared))
    return picture


class Drawing:
    """The figure of one machine, and the `picture` that is made of it."""

    def __init__(self, figure: Figure, name: str):
        if not isinstance(figure, Figure):
            raise OverlapError(f"must return a matplotlib figure, not {type(figure).__name__}")
        if not figure.axes:
            raise OverlapError(
                "returned a figure without axes; draw on some, such as those of plt.subplots()"
            )
        self.figure = figure
        self.name = name
        self.series = read(figure)
        self.picture = {"sizes": {}}
        restyle(figure, self.series)
        self.layout = Layout(figure, self.series)

    def draw(self, variants: Iterable[str]) -> dict:
        """The picture with these variants, and its numbers."""
        for variant in variants:
            self._add(variant)
        self.picture["tables"], self.picture["more"] = _tables(self.series)
        return self.picture

    def _add(self, variant: str) -> None:
        self.layout.fit(WIDTHS[variant])
        file = io.StringIO()
        canvas = self.figure.canvas
        with plt.rc_context({"svg.hashsalt": f"{self.name}-{variant}"}):
            FigureCanvasSVG(self.figure).print_svg(file, metadata={"Date": None})
        self.figure.set_canvas(canvas)
        box = self.figure.bbox
        marks = [mark for item in self.series for mark in item.marks(box.height)]
        self.picture[variant] = svg.from_matplotlib(file.getvalue(), marks)
        self.picture["sizes"][variant] = [round(box.width), round(box.height)]


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
