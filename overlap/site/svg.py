"""SVG texts of the book: colours as the page's variables, and what is left of them in a file of its own."""

import base64
import re

#: Colours that pictures are drawn in, and the CSS variables that take their place, so that one picture serves light and dark.
SERIES = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
INK, GRID, CEILING = "#1f2328", "#d0d7de", "#808080"
_VARIABLES = {color: f"--ov-series-{i}" for i, color in enumerate(SERIES, 1)}
_VARIABLES |= {CEILING: "--ov-ceiling", INK: "--ov-ink", GRID: "--ov-grid"}
_COLORS = {variable: color for color, variable in _VARIABLES.items()}
_DARK = {"--ov-ceiling": "#a5aeb8", "--ov-ink": "#e3e7eb", "--ov-grid": "#343b44"}


def themed(color: str) -> str:
    """A colour of the book as the page's variable; another colour stays."""
    return f"var({_VARIABLES[color]})" if color in _VARIABLES else color


def on_paper(picture: str) -> str:
    """A picture as a file of its own, in the light colours on white."""
    colored = re.sub(r"var\((--ov-[\w-]+)\)", lambda variable: _COLORS[variable[1]], picture)
    return colored.replace(' style="', ' style="background:#fff;font-family:sans-serif;', 1)


def by_itself(drawing: str) -> str:
    """A drawing of the book itself as a file of its own: its letters are not the page's."""
    return drawing.replace("<svg ", '<svg style="font-family:sans-serif" ', 1)


def in_file(picture: str) -> str:
    """A picture as a file of its own, light or dark as the reader's system is; a page that takes it in gives it its colours."""
    light, dark = (
        ";".join(f"{name}:{color}" for name, color in colors.items()) for colors in (_COLORS, _DARK)
    )
    style = (
        f"svg:root{{font-family:sans-serif;{light}}}@media(prefers-color-scheme:dark){{svg:root{{{dark}}}}}"
    )
    opening, end, rest = picture.partition(">")
    return f"{opening}{end}<style>{style}</style>{rest}"


def data_uri(picture: str) -> str:
    """A picture as an address that holds it."""
    return f"data:image/svg+xml;base64,{base64.b64encode(picture.encode()).decode()}"
