"""The drawing style of the book, applied from outside to a snippet's plain matplotlib."""

import hashlib
import html
import io
from pathlib import Path

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
    "legend.frameon": False,
    "lines.linewidth": 1.8,
    "lines.markersize": 5,
    "svg.fonttype": "none",
    "text.color": "#1f2328",
    "xtick.bottom": False,
    "xtick.color": "#1f2328",
    "ytick.color": "#1f2328",
    "ytick.left": False,
}


def version() -> str:
    """Hash of what makes a picture: a change of style redraws every one."""
    return hashlib.sha256(Path(__file__).read_bytes() + Path(svg.__file__).read_bytes()).hexdigest()[:12]


def draw(module, results: dict, ceilings: dict, salt: str) -> dict:
    """Call `module.plot(results, ceilings)`; return SVG text for wide and narrow pages and the plotted data as series."""
    import matplotlib.pyplot as plt
    from cycler import cycler

    pictures = {}
    for variant, size in _SIZES.items():
        name = f"{salt}-{variant}"
        style = _STYLE | {"axes.prop_cycle": cycler(color=svg.SERIES), "figure.figsize": size, "svg.hashsalt": name}
        with plt.rc_context(style):
            drawn = module.plot(results, ceilings)
            panels = max((axes.get_gridspec().nrows for axes in drawn.axes if axes.get_gridspec()), default=1)
            drawn.set_figheight(size[1] if panels == 1 else 0.6 + 1.5 * panels)
            drawn_text = io.StringIO()
            drawn.savefig(drawn_text, format="svg", metadata={"Date": None, "Creator": None})
            series = _series(drawn)
            pictures[variant] = svg.themed(drawn_text.getvalue()).replace("</svg>", _marks(drawn, series) + "</svg>")
            pictures["table"] = [{key: item[key] for key in ("title", "label", "x", "y", "points")} for item in series]
            plt.close(drawn)
    return pictures


def _series(drawn) -> list[dict]:
    """What the picture shows: rows of a table under two headings, and where each row lies, as a box in data units."""
    found = []
    for axes in drawn.axes:
        x, y = axes.get_xlabel() or drawn.axes[-1].get_xlabel(), axes.get_ylabel()

        def add(artist, headings, points, boxes=(), axes=axes) -> None:
            label = str(artist.get_label())
            title = axes.get_title(loc="left") or axes.get_title()
            item = {"axes": axes, "title": title, "label": "" if label.startswith("_") else label}
            found.append(item | {"x": headings[0], "y": headings[1], "points": points, "boxes": boxes})

        for line in axes.get_lines():
            data = line.get_xydata().tolist()
            if line.get_transform() == axes.get_yaxis_transform(which="grid"):  # axhline: one value for every x
                add(line, (x, y), [["all", _plain(data[0][1])]])
            elif line.get_transform() == axes.get_xaxis_transform(which="grid"):  # axvline
                add(line, (x, y), [[_plain(data[0][0]), "all"]])
            elif not str(line.get_label()).startswith("_"):
                points = [[_place(axes.xaxis, a), _place(axes.yaxis, b)] for a, b in data]
                add(line, (x, y), points, [(a, b, a, b) for a, b in data])
        for bars in axes.containers:
            boxes = [bar.get_bbox().extents.tolist() for bar in getattr(bars, "patches", ())]
            if getattr(bars, "orientation", "") == "horizontal":
                rows = [[_place(axes.yaxis, (b + d) / 2, 0.45), _plain(c - a)] for a, b, c, d in boxes]
                add(bars, (y, x), rows, boxes)
            else:
                add(
                    bars,
                    (x, y),
                    [[_place(axes.xaxis, (a + c) / 2, 0.45), _plain(d - b)] for a, b, c, d in boxes],
                    boxes,
                )
        for shapes in axes.collections:
            boxes = [path.get_extents().extents.tolist() for path in shapes.get_paths()]
            if type(shapes).__name__ == "PolyCollection":  # broken_barh
                add(shapes, (x or "from", _LASTS), [[_plain(a), _plain(c - a)] for a, _, c, _ in boxes], boxes)
            elif type(shapes).__name__ == "QuadMesh":
                cells = [
                    (_place(axes.yaxis, (b + d) / 2, 0.45), _place(axes.xaxis, (a + c) / 2, 0.45))
                    for a, b, c, d in boxes
                ]
                values = shapes.get_array().ravel().tolist()
                rows = [[f"{row}, {column}", _plain(value)] for (row, column), value in zip(cells, values, strict=True)]
                add(shapes, (", ".join(filter(None, (y, x))), ""), rows, boxes)
    return [item for item in found if item["points"]]


def _marks(drawn, series: list[dict]) -> str:
    """Invisible boxes over the data that tell their value to a pointer, a keyboard or a screen reader.

    Neighbours too close to be told apart share one.
    """
    scale, height, near, marks = 72 / drawn.dpi, drawn.get_figheight() * 72, 3, []
    for item in series:
        frame, shared = item["axes"].bbox, []
        for point, box in zip(item["points"], item["boxes"], strict=False):
            (a, b), (c, d) = item["axes"].transData.transform([box[:2], box[2:]])
            (left, right), (bottom, top) = sorted((a, c)), sorted((b, d))
            if right < frame.x0 - 1 or left > frame.x1 + 1 or top < frame.y0 - 1 or bottom > frame.y1 + 1:
                continue
            left, right, bottom, top = (
                max(left, frame.x0),
                min(right, frame.x1),
                max(bottom, frame.y0),
                min(top, frame.y1),
            )
            now = [left * scale, height - top * scale, right * scale, height - bottom * scale]
            (x, y, end, _), points = shared[-1] if shared else (4 * [-99.0], [])
            if item["y"] == _LASTS and now[0] - end < near and now[2] - x < 4 * near:
                shared[-1] = ([x, y, *now[2:]], [*points, point])
            elif left < right or abs(now[0] - x) >= near or abs(now[1] - y) >= near:
                shared.append((now, [point]))
        for (left, top, right, bottom), points in shared:
            wide, high = (max(size, 12 if left == right else 4) for size in (right - left, bottom - top))
            x, y = (left + right - wide) / 2, (top + bottom - high) / 2
            sides = zip(("x", "y", "width", "height"), (x, y, wide, high), strict=True)
            size = " ".join(f'{side}="{value:.1f}"'.replace(".0", "") for side, value in sides)
            marks.append(f'<rect class="ov-point" {size}><title>{html.escape(_told(item, points))}</title></rect>')
    return f'<g style="fill:transparent">{"".join(marks)}</g>' if marks else ""


def _told(item: dict, points: list) -> str:
    """What a mark says; the unit of a time span stands at the axis."""
    if item["y"] == _LASTS:
        start, end, total = points[0][0], points[-1][0] + points[-1][1], sum(duration for _, duration in points)
        many = f"{_LASTS} {text(total)}" if len(points) == 1 else f"{len(points)} of them last {text(total)}"
        values = [f"{text(start)} to {text(end)}", many]
    else:
        values = [
            f"{name}: {text(value)}".removeprefix(": ")
            for name, value in zip((item["x"], item["y"]), points[0], strict=True)
        ]
    return " · ".join(filter(None, [item["label"], *values]))


def text(value: float | str) -> str:
    """A coordinate as text."""
    return value if isinstance(value, str) else f"{_plain(value):,g}"


def _place(axis, value: float, within: float = 1e-9) -> float | str:
    """The word that an axis shows here, or the number."""
    places, formatter = axis.get_majorticklocs(), axis.get_major_formatter()
    if type(axis.get_major_locator()).__name__ in ("FixedLocator", "StrCategoryLocator"):
        for i, place in enumerate(places):
            word = str(formatter(place, i)) if abs(place - value) <= within else ""
            if word and "$" not in word:
                return word
    return _plain(value)


def _plain(value: float) -> float:
    return float(f"{value:.4g}")
