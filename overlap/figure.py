"""The drawing style of the book, applied from outside to a snippet's plain matplotlib."""

import hashlib
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
    """Call `module.plot(results, ceilings)`; return SVG text for wide and narrow pages and the plotted data as rows."""
    import matplotlib.pyplot as plt
    from cycler import cycler

    pictures = {}
    for variant, size in _SIZES.items():
        name = f"{salt}-{variant}"
        with plt.rc_context(
            _STYLE | {"axes.prop_cycle": cycler(color=SERIES), "figure.figsize": size, "svg.hashsalt": name}
        ):
            drawn = module.plot(results, ceilings)
            text = io.StringIO()
            drawn.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
            pictures[variant] = _themed(text.getvalue(), name)
            pictures["table"] = _rows(drawn)
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


def _rows(drawn) -> list[dict]:
    """What the picture shows, as series of points: lines, bars and spans with their labels."""
    series = []
    for axes in drawn.axes:
        heading = {
            "x": axes.get_xlabel(),
            "y": axes.get_ylabel(),
            "title": axes.get_title(loc="left") or axes.get_title(),
        }
        names = {id(line): line.get_label() for line in axes.get_lines()}
        for line in axes.get_lines():
            if not names[id(line)].startswith("_"):
                points = [[_plain(x), _plain(y)] for x, y in zip(line.get_xdata(), line.get_ydata(), strict=True)]
                series.append(heading | {"label": names[id(line)], "points": points})
        for bars in axes.containers:
            if hasattr(bars, "patches"):
                horizontal = getattr(bars, "orientation", "vertical") == "horizontal"
                points = [
                    [
                        _plain(bar.get_center()[int(horizontal)]),
                        _plain(bar.get_width() if horizontal else bar.get_height()),
                    ]
                    for bar in bars.patches
                ]
                label = bars.get_label()
                series.append(heading | {"label": "" if label.startswith("_") else label, "points": points})
    return series


def _plain(value):
    return float(f"{float(value):.4g}") if hasattr(value, "__float__") else str(value)
