"""The drawing style of the book, applied from outside to a snippet's plain matplotlib."""

import hashlib
import html
import io
import re
from pathlib import Path

#: Colours that plots are drawn in, and the CSS variables that take their place, so that one picture serves light and dark.
SERIES = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
_VARIABLES = {color: f"var(--ov-series-{i})" for i, color in enumerate(SERIES, 1)} | {
    "#808080": "var(--ov-ceiling)",
    "#1f2328": "var(--ov-ink)",
    "#d0d7de": "var(--ov-grid)",
}
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
    "xtick.color": "#1f2328",
    "ytick.color": "#1f2328",
}


def version() -> str:
    """Hash of this module: a change of style redraws every picture."""
    return hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:12]


def draw(module, results: dict, ceilings: dict, salt: str) -> dict:
    """Call `module.plot(results, ceilings)`; return SVG text for wide and narrow pages and the plotted data as series."""
    import matplotlib.pyplot as plt
    from cycler import cycler

    pictures = {}
    for variant, size in _SIZES.items():
        name = f"{salt}-{variant}"
        style = _STYLE | {"axes.prop_cycle": cycler(color=SERIES), "figure.figsize": size, "svg.hashsalt": name}
        with plt.rc_context(style):
            drawn = module.plot(results, ceilings)
            panels = max((axes.get_gridspec().nrows for axes in drawn.axes if axes.get_gridspec()), default=1)
            drawn.set_figheight(size[1] if panels == 1 else 0.6 + 1.5 * panels)
            text = io.StringIO()
            drawn.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
            series = _series(drawn)
            pictures[variant] = _themed(text.getvalue(), name).replace("</svg>", _points(drawn, series) + "</svg>")
            pictures["table"] = [{key: item[key] for key in ("title", "label", "x", "y", "points")} for item in series]
            plt.close(drawn)
    return pictures


def standalone(svg: str) -> str:
    """A themed picture as a file of its own, in the light colours."""
    for color, variable in _VARIABLES.items():
        svg = svg.replace(variable, color)
    return svg.replace("<svg ", '<svg style="background:#fff" ', 1)


def _themed(svg: str, name: str) -> str:
    """Cut an SVG down to what a page needs: no prologue, own ids, CSS variables for colours, the page's font."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"\s*<metadata>.*?</metadata>", "", svg, flags=re.S)
    svg = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", svg, count=1)
    svg = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", svg, count=1)
    svg = re.sub(r'\bid="([^"]+)"', rf'id="{name}-\1"', svg)
    svg = re.sub(r'(url\(#|href="#)', rf"\1{name}-", svg)
    svg = re.sub(r"font-family: [^;\"]*(?:'[^']*'[^;\"]*)*", "font-family: inherit", svg)
    svg = re.sub(r"font: ([\d.]+px) [^;\"]*(?:'[^']*'[^;\"]*)*", r"font-size: \1; font-family: inherit", svg)
    svg = re.sub(r"(\d+\.\d\d)\d+", r"\1", svg)
    for color, variable in _VARIABLES.items():
        svg = svg.replace(color, variable)
    return re.sub(r"\n\s*", "\n", svg).strip()


def _series(drawn) -> list[dict]:
    """What the picture shows: labelled lines, bars and spans of time, as points in data units, with their axes."""
    found = []
    for axes in drawn.axes:
        heading = {"axes": axes, "x": axes.get_xlabel(), "y": axes.get_ylabel()}
        heading["title"] = axes.get_title(loc="left") or axes.get_title()

        def add(artist, points, heading=heading) -> None:
            label = str(artist.get_label())
            if points:
                found.append(heading | {"label": "" if label.startswith("_") else label, "points": points})

        for line in axes.get_lines():
            if str(line.get_label()).startswith("_"):
                continue
            if line.get_transform() == axes.get_yaxis_transform(which="grid"):  # axhline: one value for every x
                add(line, [["all", _plain(line.get_ydata()[0])]])
            elif line.get_transform() == axes.get_xaxis_transform(which="grid"):  # axvline
                add(line, [[_plain(line.get_xdata()[0]), "all"]])
            else:
                add(line, [[_plain(x), _plain(y)] for x, y in zip(line.get_xdata(), line.get_ydata(), strict=True)])
        for bars in axes.containers:
            for_bar = getattr(bars, "orientation", "vertical") == "horizontal"
            boxes = [bar.get_bbox() for bar in getattr(bars, "patches", ())]
            ends = [(b.x1, (b.y0 + b.y1) / 2) if for_bar else ((b.x0 + b.x1) / 2, b.y1) for b in boxes]
            add(bars, [[_plain(x), _plain(y)] for x, y in ends])
        for spans in axes.collections:
            boxes = (
                [path.get_extents() for path in spans.get_paths()] if type(spans).__name__ == "PolyCollection" else []
            )
            add(spans, [[_plain(b.x0), _plain((b.y0 + b.y1) / 2), _plain(b.width)] for b in boxes])
    return found


def _points(drawn, series: list[dict], limit: int = 600) -> str:
    """Invisible marks over the data that tell their value to a pointer or a screen reader."""
    scale, height = 72 / drawn.dpi, drawn.get_figheight() * 72
    marks = []
    for item in series:
        axes = item["axes"]
        for x, y, *width in item["points"]:
            if isinstance(x, str) or isinstance(y, str):
                continue
            left, bottom = axes.transData.transform((x, y)) * scale
            text = f"{item['label']}: " if item["label"] else ""
            text += f"{x:g} + {width[0]:g} {item['x']}" if width else f"{y:g} {item['y']} at {x:g} {item['x']}"
            right = axes.transData.transform((x + width[0], y))[0] * scale if width else left
            size = f'x="{left - 5:.1f}" y="{height - bottom - 6:.1f}" width="{right - left + 10:.1f}" height="12"'
            marks.append(f'<rect class="ov-point" {size}><title>{html.escape(text.strip())}</title></rect>')
    return f'<g class="ov-points">{"".join(marks[:limit])}</g>' if marks else ""


def _plain(value):
    return float(f"{float(value):.4g}") if hasattr(value, "__float__") else str(value)
