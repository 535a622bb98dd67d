"""A picture as a file of its own: a page's colours and letters are not there."""

import base64
import re

#: The colours of pictures, and of what a page says in them, by CSS variable: (light, dark).
COLORS = {
    "--ov-series-1": ("#0a6cb0", "#5aaef0"),
    "--ov-series-2": ("#c2500a", "#f0945a"),
    "--ov-series-3": ("#00805c", "#3fc59b"),
    "--ov-series-4": ("#b0558a", "#e193bd"),
    "--ov-series-5": ("#a06c00", "#e0b040"),
    "--ov-series-6": ("#2b8fc7", "#9ad4f5"),
    "--ov-ink": ("#1f2328", "#e3e7eb"),
    "--ov-paper": ("#ffffff", "#14171b"),
    "--ov-grid": ("#d7dde3", "#343b44"),
    "--ov-ceiling": ("#6a737d", "#a5aeb8"),
    "--ov-good": ("#13703a", "#4cc38a"),
    "--ov-bad": ("#b42318", "#ff8f85"),
    "--ov-surface": ("#f6f8fa", "#1c2026"),
}
_LIGHT, _DARK = ({name: pair[scheme] for name, pair in COLORS.items()} for scheme in (0, 1))


def stylesheet() -> str:
    """The colours as a page's style sheet: by the scheme that its reader chose, light where it is printed."""
    light, dark = map(_declared, (_LIGHT, _DARK))
    screen = f'[data-md-color-scheme="default"]{{{light}}}[data-md-color-scheme="slate"]{{{dark}}}'
    return f"{screen}@media print{{[data-md-color-scheme]{{{light}}}}}\n"


def _declared(colors: dict[str, str]) -> str:
    return ";".join(f"{name}:{color}" for name, color in colors.items())


def on_paper(picture: str) -> str:
    """A picture as a file of its own, in the light colours on white."""
    colored = re.sub(r"var\((--ov-[\w-]+)\)", lambda variable: _LIGHT[variable[1]], picture)
    return colored.replace(' style="', ' style="background:#fff;font-family:sans-serif;', 1)


def by_itself(drawing: str) -> str:
    """A drawing of the book itself as a file of its own: its letters are not the page's."""
    return drawing.replace("<svg ", '<svg style="font-family:sans-serif" ', 1)


def in_file(picture: str) -> str:
    """A picture as a file of its own, light or dark as the reader's system is."""
    style = f"svg:root{{background:var(--ov-paper);font-family:sans-serif;{_declared(_LIGHT)}}}"
    style += f"@media(prefers-color-scheme:dark){{svg:root{{{_declared(_DARK)}}}}}"
    return picture.replace(">", f"><style>{style}</style>", 1)


def data_uri(picture: str) -> str:
    """A picture as an address that holds it."""
    return f"data:image/svg+xml;base64,{base64.b64encode(picture.encode()).decode()}"
