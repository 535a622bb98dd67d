"""A picture as a file of its own: a page's colours and letters are not there."""

import base64
import re

from overlap.site.colors import DARK, LIGHT, declared

_VARIABLE = re.compile(r"var\((--ov-[\w-]+)\)")


def on_paper(picture: str) -> str:
    """A picture as a file of its own, in the light colours on white."""
    colored = _VARIABLE.sub(lambda variable: LIGHT[variable[1]], picture)
    white = LIGHT["--ov-paper"]
    return colored.replace(' style="', f' style="background:{white};font-family:sans-serif;', 1)


def by_itself(drawing: str) -> str:
    """A drawing of the book itself as a file of its own: light, with letters of its own."""
    colored = _VARIABLE.sub(lambda variable: LIGHT[variable[1]], drawing)
    return colored.replace("<svg ", '<svg style="font-family:sans-serif" ', 1)


def in_file(picture: str) -> str:
    """A picture as a file of its own, light or dark as the reader's system is."""
    used = {"--ov-paper", *_VARIABLE.findall(picture)}
    light, dark = (declared({name: scheme[name] for name in sorted(used)}) for scheme in (LIGHT, DARK))
    style = f"svg:root{{background:var(--ov-paper);font-family:sans-serif;{light}}}"
    style += f"@media(prefers-color-scheme:dark){{svg:root{{{dark}}}}}"
    return picture.replace(">", f"><style>{style}</style>", 1)


def data_uri(picture: str) -> str:
    """A picture as an address that holds it."""
    return f"data:image/svg+xml;base64,{base64.b64encode(picture.encode()).decode()}"
