"""Pictures as SVG: in the page's colours and letters, on a page or as a file of its own."""

import base64
import re
from xml.sax.saxutils import escape

#: Colours that pictures are drawn in, and the CSS variables that take their place, light or dark.
SERIES = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
INK = "#1f2328"
GRID = "#d0d7de"
CEILING = "#808080"
#: Of the page.
PAPER = "#ffffff"
_COLORS = {f"--ov-series-{i}": color for i, color in enumerate(SERIES, 1)}
_COLORS |= {"--ov-ceiling": CEILING, "--ov-ink": INK, "--ov-grid": GRID, "--ov-paper": PAPER}
_DARK = {"--ov-ceiling": "#a5aeb8", "--ov-ink": "#e3e7eb", "--ov-grid": "#343b44", "--ov-paper": "#14171b"}
_ROOT = "fill:#000;font-size:10px;stroke-linejoin:round;white-space:pre"
#: What of matplotlib's file no page needs: names of groups, comments, its fonts and line breaks.
_NEEDLESS = re.compile(
    r"""<defs>\s*<style.*?</style>\s*</defs>|<!--.*?-->|\n\s*|(?<=<g)\ id="[^"]*"
    |font-family:[^;"]*;?\ ?|(?<=")font-size:\ 10px;\ |\ transform="rotate\(-0\ [^"]*\"""",
    re.S | re.X,
)
#: Paths one after the other in the same style, none of them transparent: they can be one.
_SAME_STYLE = re.compile(
    r'<path d="[^"]*"( clip-path="[^"]*" style="(?:(?!opacity)[^"])*")/>(?:<path d="[^"]*"\1/>)+'
)


def from_matplotlib(text: str, marks: list[tuple[list[float], str]]) -> str:
    """An SVG file of matplotlib as part of a page.

    It lies under `marks`: invisible boxes [x, y, width, height], and the text of each.
    """
    size = re.search(r'viewBox="0 0 ([\d.]+ [\d.]+)"', text)[1]
    drawing = _NEEDLESS.sub("", text[text.index("</metadata>") :].removeprefix("</metadata>"))
    drawing = drawing.replace("xlink:href", "href").removesuffix("</svg>")
    drawing = re.sub(r'(?<= [dxy]=")[^"]*', _shortened, drawing)
    drawing = _SAME_STYLE.sub(lambda paths: f'<path d="{_data(paths[0])}"{paths[1]}/>', drawing)
    for variable, color in _COLORS.items():
        drawing = drawing.replace(f": {color}", f": var({variable})")
    boxes = "".join(_box(*mark) for mark in marks)
    opening = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size}" style="{_ROOT}">'
    return f'{opening}{drawing}<g style="fill:transparent">{boxes}</g></svg>'


def _shortened(numbers: re.Match) -> str:
    """Coordinates to a hundredth of a point."""
    return re.sub(r"\d+\.\d{3,}", lambda number: f"{float(number[0]):.2f}", numbers[0])


def _data(paths: str) -> str:
    return "".join(re.findall(r' d="([^"]*)"', paths))


def _box(place: list[float], text: str) -> str:
    x, y, width, height = (f"{side:.1f}".removesuffix(".0") for side in place)
    size = f'x="{x}" y="{y}" width="{width}" height="{height}"'
    return f'<rect class="ov-point" {size}><title>{escape(text)}</title></rect>'


def on_paper(picture: str) -> str:
    """A picture as a file of its own, in the light colours on white."""
    colored = re.sub(r"var\((--ov-[\w-]+)\)", lambda variable: _COLORS.get(variable[1], INK), picture)
    return colored.replace(' style="', ' style="background:#fff;font-family:sans-serif;', 1)


def by_itself(drawing: str) -> str:
    """A drawing of the book itself as a file of its own: its letters are not the page's."""
    return drawing.replace("<svg ", '<svg style="font-family:sans-serif" ', 1)


def in_file(picture: str) -> str:
    """A picture as a file of its own, light or dark as the reader's system is."""
    light, dark = (";".join(f"{name}:{color}" for name, color in of.items()) for of in (_COLORS, _DARK))
    style = f"svg:root{{background:var(--ov-paper);font-family:sans-serif;{light}}}"
    style += f"@media(prefers-color-scheme:dark){{svg:root{{{dark}}}}}"
    return picture.replace(">", f"><style>{style}</style>", 1)


def data_uri(picture: str) -> str:
    """A picture as an address that holds it."""
    return f"data:image/svg+xml;base64,{base64.b64encode(picture.encode()).decode()}"
