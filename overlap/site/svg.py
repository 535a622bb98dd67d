"""What matplotlib writes as SVG, cut down to what a page needs and coloured by the page."""

import base64
import re

#: Colours that plots are drawn in, and the CSS variables that take their place, so that one picture serves light and dark.
SERIES = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
_VARIABLES = {color: f"var(--ov-series-{i})" for i, color in enumerate(SERIES, 1)} | {
    "#808080": "var(--ov-ceiling)",
    "#1f2328": "var(--ov-ink)",
    "#d0d7de": "var(--ov-grid)",
}


_DARK = {"#808080": "#a5aeb8", "#1f2328": "#e3e7eb", "#d0d7de": "#343b44"}


def on_paper(svg: str) -> str:
    """A themed picture as a file of its own, in the light colours on white."""
    for color, variable in _VARIABLES.items():
        svg = svg.replace(variable, color)
    return svg.replace('<svg style="', '<svg style="background:#fff;font-family:sans-serif;', 1)


def in_file(svg: str) -> str:
    """A themed picture as a file of its own, light or dark as the reader's system is; a page that takes it in gives it its colours."""

    def rule(colors: dict) -> str:
        values = ";".join(f"{_VARIABLES[color][4:-1]}:{shown}" for color, shown in colors.items())
        return f"svg:root{{font-family:sans-serif;{values}}}"

    both = rule({color: color for color in _VARIABLES}) + f"@media(prefers-color-scheme:dark){{{rule(_DARK)}}}"
    return svg.replace(">", f"><style>{both}</style>", 1)


def data_uri(svg: str) -> str:
    """A picture as an address that holds it."""
    return f"data:image/svg+xml;base64,{base64.b64encode(svg.encode()).decode()}"


def size(svg: str) -> tuple[int, int]:
    """Width and height."""
    width, height = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', svg).groups()
    return round(float(width)), round(float(height))


def themed(svg: str) -> str:
    """Cut an SVG down to what a page needs: no prologue, few bytes, CSS variables for colours, the page's font."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>|<defs>\s*<style.*?</defs>", "", svg, flags=re.S)
    used = set(re.findall(r'(?:url\(|href=")#([^")]+)', svg))  # these ids are hashes of what is drawn and the salt
    svg = re.sub(r' id="([^"]+)"', lambda match: match[0] if match[1] in used else "", svg)
    svg = re.sub(r"<[^>]+>", lambda tag: _short(tag[0]), svg)
    svg = re.sub(r'\s*\n\s*|<path [^>]*style="fill:none"/>', "", _without_bare_groups(svg))
    rectangle = r"M([\d.]+) ([\d.]+)L\1 ([\d.]+)L([\d.]+) \3L\4 \2(?:L\1 \2)?z"
    svg = re.sub(rectangle, r"M\1 \2V\3H\4V\2z", svg)
    filled = r'<path d="([^"]+z)"((?![^>]*opacity)[^>]*)/>'
    svg = re.sub(rf"{filled}(?:<path d=\"[^\"]+z\"\2/>)+", _one_path, svg)
    svg = re.sub(r"(<text[^>]*>)( +)", lambda match: match[1] + "\u00a0" * len(match[2]), svg)  # else they are dropped
    for color, variable in _VARIABLES.items():
        svg = svg.replace(color, variable)
    return svg.replace("<svg", '<svg style="fill:var(--ov-ink);font-size:10px;stroke-linejoin:round"', 1).strip()


def _short(tag: str) -> str:
    """A tag without what goes without saying, with two decimals, and with paths in their short form."""
    if tag.startswith("<svg"):
        tag = re.sub(r' (?:width|height|version)="[^"]*"', "", tag)
    tag = re.sub(r"font-family: [^;\"]*(?:'[^']*'[^;\"]*)*;? ?", "", tag)
    tag = re.sub(r"font: ([\d.]+px) [^;\"]*(?:'[^']*'[^;\"]*)*", r"font-size: \1", tag)
    tag = re.sub(r'font-size: 10px;? ?| transform="rotate\(-0 [^"]*"', "", tag)
    if tag.startswith("<text"):  # matplotlib leaves out black, this book the page's own colour
        tag = tag if "fill:" in tag else tag.replace('style="', 'style="fill: #000000; ')
        tag = re.sub(r";? ?fill: #1f2328", "", tag)
    tag = re.sub(r"-?\d+\.\d+", lambda number: f"{float(number[0]):.2f}".rstrip("0").rstrip("."), tag)
    tag = re.sub(r"\s+", " ", tag).replace(": ", ":").replace("; ", ";")
    return re.sub(r' d="([^"]*)"', lambda d: ' d="' + re.sub(r" ?([A-Za-z]) ?", r"\1", d[1]).strip() + '"', tag)


def _without_bare_groups(svg: str) -> str:
    """Groups without attributes only cost bytes."""
    kept = []

    def keep(tag: re.Match) -> str:
        if tag[0] != "</g>":
            kept.append(tag[0] != "<g>")
            return tag[0] if kept[-1] else ""
        return tag[0] if kept.pop() else ""

    return re.sub(r"<g(?: [^>]*)?>|</g>", keep, svg)


def _one_path(paths: re.Match) -> str:
    """Neighbours that look alike, as one path."""
    outlines = "".join(re.findall(r' d="([^"]+)"', paths[0]))
    return f'<path d="{outlines}"{paths[2]}/>'
