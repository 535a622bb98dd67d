"""The drawing style of the book, applied from outside to a snippet's plain matplotlib."""

import io
import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from overlap import OverlapError
from overlap.site import svg

#: The heading of durations.
_LASTS = "lasts"
_SIZES = {"wide": (7.0, 3.5), "narrow": (3.7, 3.5)}
_STYLE = {
    "axes.edgecolor": "#d0d7de",
    "axes.grid": True,
    "axes.labelcolor": "#1f2328",
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.axisbelow": True,
    "axes.titlelocation": "left",
    "axes.titlesize": 10,
    "figure.constrained_layout.use": True,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "savefig.facecolor": "none",
    "font.size": 10,
    "grid.color": "#d0d7de",
    "grid.linewidth": 0.6,
    "legend.borderaxespad": 0.2,
    "legend.columnspacing": 1.4,
    "legend.frameon": False,
    "legend.handlelength": 1.6,
    "legend.handletextpad": 0.6,
    "lines.linewidth": 1.8,
    "lines.markersize": 5,
    "svg.fonttype": "none",
    "text.color": "#1f2328",
    "text.parse_math": False,
    "xtick.bottom": False,
    "xtick.color": "#1f2328",
    "ytick.color": "#1f2328",
    "ytick.left": False,
}


def draw(module, results: dict, ceilings: dict, salt: str) -> dict:
    """Call `module.plot(results, ceilings)`; return SVG text for wide and narrow pages and the plotted data as series."""
    from overlap.site import layout  # here, as only who draws needs matplotlib

    pictures, results = {}, _printable(results)
    for variant, size in _SIZES.items():
        with _style(size, f"{salt}-{variant}"):
            try:
                drawn = module.plot(results, ceilings)
                noted = _axes(drawn)
            except OverlapError as error:
                raise OverlapError(f"{module.__file__}: plot() {error}") from None
            drawn.set_figheight(size[1])
            for axes in noted:
                axes.write_powers()
            layout.arrange(drawn, noted)
            written = io.StringIO()
            drawn.savefig(written, format="svg", metadata={"Date": None, "Creator": None})
            shared = next(filter(None, (axes.get_xlabel() for axes in reversed(drawn.axes))), "")
            series = [item for axes in noted for item in _series(axes, shared)]
            pictures[variant] = svg.themed(written.getvalue(), _marks(drawn, series))
            pictures["table"] = [{key: item[key] for key in ("title", "label", "x", "y", "points")} for item in series]
    return pictures


@contextmanager
def _style(size: tuple[float, float], salt: str) -> Iterator[None]:
    """Plain matplotlib draws in the book's style, on axes that take notes; what it warns of, a page cannot help."""
    import matplotlib.pyplot as plt
    from cycler import cycler
    from matplotlib.projections import get_projection_class, register_projection

    from overlap.site.plotted import NotedAxes

    plain = get_projection_class("rectilinear")
    style = _STYLE | {"axes.prop_cycle": cycler(color=svg.SERIES), "figure.figsize": size, "svg.hashsalt": salt}
    with plt.rc_context(style), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        warnings.simplefilter("ignore", RuntimeWarning)
        register_projection(NotedAxes)
        try:
            yield
        finally:
            register_projection(plain)
            plt.close("all")


def _printable(data):
    """Recorded data, with keys and texts that can be drawn."""
    if isinstance(data, dict):
        names = {key: _printable(key) for key in data}
        apart = len(set(names.values())) == len(names)
        return {names[key] if apart else key: _printable(value) for key, value in data.items()}
    if isinstance(data, list):
        return [_printable(value) for value in data]
    return svg.printable(data) if isinstance(data, str) else data


def _axes(drawn) -> list:
    """The axes of a figure, with those in others; an error where they take no notes."""
    from matplotlib.figure import Figure

    from overlap.site.plotted import NotedAxes

    if not isinstance(drawn, Figure):
        raise OverlapError(f"must return a matplotlib figure, not {type(drawn).__name__}")
    unknown = [type(axes).__name__ for axes in drawn.axes if not isinstance(axes, NotedAxes)]
    if unknown:
        raise OverlapError(f"draws on {unknown[0]}, whose numbers the page could not show; use plain axes")
    insets = [inset for axes in drawn.axes for inset in axes.child_axes if isinstance(inset, NotedAxes)]
    return [*drawn.axes, *insets]


def _series(axes, shared: str) -> Iterator[dict]:
    """What the axes show: rows of a table under two headings, and where each row lies, as a box in data units.

    Panels without a label on their x axis take the `shared` one.
    """
    x, y, title = axes.get_xlabel() or shared, axes.get_ylabel(), axes.get_title(loc="left") or axes.get_title()
    headings = {
        "lying bar": (y, x),
        "standing line": (y, x),
        "span": (x or "from", _LASTS),
        "cell": (", ".join(filter(None, (y, x))), ""),
    }
    for noted in axes.noted:
        label, (first, second) = str(noted.artist.get_label()), headings.get(noted.kind, (x, y))
        values = noted.values or [None] * len(noted.boxes)
        item = {"title": title, "label": "" if label.startswith("_") else label, "x": first, "y": second}
        rows = [_row(axes, noted.kind, box, value) for box, value in zip(noted.boxes, values, strict=True)]
        if rows:
            yield item | {
                "points": rows,
                "axes": axes,
                "boxes": [] if noted.kind in ("level", "place") else noted.boxes,
            }


def _row(axes, kind: str, box: tuple, value: float | None) -> list:
    """A row of a table: where, and what."""
    a, b, c, d = box

    def at(axis, low: float, high: float, within: float = 1e-9) -> float | str | None:
        return _word(axis, (low + high) / 2, within) or _plain((low + high) / 2)

    match kind:
        case "point":
            return [at(axes.xaxis, a, c), at(axes.yaxis, b, d)]
        case "level":
            return ["all", _plain(b)]
        case "place":
            return [_plain(a), "all"]
        case "bar":
            return [at(axes.xaxis, a, c, 0.45), _plain(d - b)]
        case "lying bar":
            return [at(axes.yaxis, b, d, 0.45), _plain(c - a)]
        case "span":
            return [_plain(a), _plain(c - a)]
        case "line":
            return [_stretch(axes.xaxis, a, c), _plain(b)]
        case "standing line":
            return [_stretch(axes.yaxis, b, d), _plain(a)]
        case "range":
            return [at(axes.xaxis, a, c), f"{text(b)} to {text(d)}"]
        case "x range":
            return [f"{text(a)} to {text(c)}", at(axes.yaxis, b, d)]
        case "cell":
            where = at(axes.yaxis, b, d, 0.45), at(axes.xaxis, a, c, 0.45)
            return [", ".join(map(text, where)), _plain(value)]
    raise ValueError(kind)


def _stretch(axis, low: float, high: float) -> str:
    """The part of an axis between two places: the one word that stands there, or `all`."""
    (low, high), (start, end) = sorted((low, high)), sorted(axis.get_view_interval())
    words = [word for _, word in _words(axis)]
    there = [word for place, word in _words(axis) if low <= place <= high]
    if len(there) == 1 < len(words):
        return there[0]
    return "all" if (there and there == words) or (low <= start and end <= high) else f"{text(low)} to {text(high)}"


def _word(axis, value: float, within: float) -> str:
    """The word that an axis shows here."""
    return next((word for place, word in _words(axis) if abs(place - value) <= within), "")


def _words(axis) -> list[tuple[float, str]]:
    """Places on an axis where words of the author stand, not numbers of matplotlib."""
    from matplotlib import category, ticker

    locator, formatter = axis.get_major_locator(), axis.get_major_formatter()
    if not isinstance(locator, (ticker.FixedLocator, category.StrCategoryLocator)):
        return []
    if not isinstance(formatter, (ticker.FixedFormatter, ticker.FuncFormatter, category.StrCategoryFormatter)):
        return []
    words = [(float(place), str(formatter(place, i))) for i, place in enumerate(axis.get_majorticklocs())]
    return [(place, word) for place, word in words if word]


def _marks(drawn, series: list[dict]) -> Iterator[tuple]:
    """Boxes (x, y, width, height, what to tell) over the data, in points from the top left.

    Neighbours too close to be told apart share one.
    """
    scale, height, near = 72 / drawn.dpi, drawn.get_figheight() * 72, 3
    for item in series:
        frame, shared = item["axes"].bbox, []
        for point, box in zip(item["points"], item["boxes"], strict=False):
            (a, b), (c, d) = item["axes"].transData.transform([box[:2], box[2:]])
            (left, right), (bottom, top) = sorted((a, c)), sorted((b, d))
            inside = right >= frame.x0 - 1 and left <= frame.x1 + 1 and top >= frame.y0 - 1 and bottom <= frame.y1 + 1
            if not inside or not all(map(math.isfinite, (left, right, bottom, top))):
                continue
            left, right = max(left, frame.x0) * scale, min(right, frame.x1) * scale
            top, bottom = height - min(top, frame.y1) * scale, height - max(bottom, frame.y0) * scale
            (x, y, end, _), points = shared[-1] if shared else (4 * [-99.0], [])
            if item["y"] == _LASTS and left - end < near and right - x < 4 * near:
                shared[-1] = ([x, y, right, bottom], [*points, point])
            elif left < right or abs(left - x) >= near or abs(top - y) >= near:
                shared.append(([left, top, right, bottom], [point]))
        for (left, top, right, bottom), points in shared:
            wide, high = (
                max(size, 12 if left == right and top == bottom else 4) for size in (right - left, bottom - top)
            )
            yield (left + right - wide) / 2, (top + bottom - high) / 2, wide, high, _told(item, points)


def _told(item: dict, points: list) -> str:
    """What a mark says; the unit of a time span stands at the axis."""
    if item["y"] == _LASTS:
        start, end, total = points[0][0], points[-1][0] + points[-1][1], sum(duration for _, duration in points)
        many = f"{_LASTS} {text(total)}" if len(points) == 1 else f"{len(points)} of them last {text(total)}"
        values = [f"{text(start)} to {text(end)}", many]
    else:
        headings = zip((item["x"], item["y"]), points[0], strict=True)
        values = [f"{name}: {text(value)}".removeprefix(": ") for name, value in headings]
    return " · ".join(filter(None, [item["label"], *values]))


def text(value: float | str | None) -> str:
    """A coordinate as text; a gap is a dash."""
    return value if isinstance(value, str) else "–" if (plain := _plain(value)) is None else f"{plain:,g}"


def _plain(value: float | None) -> float | None:
    """Four digits; None for what is no number."""
    return None if value is None or not math.isfinite(value) else float(f"{value:.4g}")
