"""What matplotlib writes as SVG, cut down to what a page needs and coloured by the page."""

import base64
import io
import re
import unicodedata
from collections.abc import Iterator
from xml.etree import ElementTree

#: Colours that plots are drawn in, and the CSS variables that take their place, so that one picture serves light and dark.
SERIES = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
_VARIABLES = {color: f"var(--ov-series-{i})" for i, color in enumerate(SERIES, 1)} | {
    "#808080": "var(--ov-ceiling)",
    "#1f2328": "var(--ov-ink)",
    "#d0d7de": "var(--ov-grid)",
}
_DARK = {"#808080": "#a5aeb8", "#1f2328": "#e3e7eb", "#d0d7de": "#343b44"}

#: What matplotlib draws with. All else goes: scripts, handlers, links, what only says who drew it.
ELEMENTS = frozenset(
    ["svg", "g", "defs", "clipPath", "pattern", "path", "rect", "use", "image", "text", "tspan", "title"]
)
ATTRIBUTES = frozenset(
    [
        "id",
        "class",
        "d",
        "x",
        "y",
        "width",
        "height",
        "transform",
        "clip-path",
        "style",
        "viewBox",
        "patternUnits",
        "href",
        "xlink:href",
        "xml:space",
    ]
)
PROPERTIES = frozenset(
    [
        "fill",
        "fill-opacity",
        "stroke",
        "stroke-opacity",
        "stroke-width",
        "stroke-dasharray",
        "stroke-dashoffset",
        "stroke-linejoin",
        "stroke-linecap",
        "stroke-miterlimit",
        "opacity",
        "text-anchor",
        "font-size",
        "font-style",
        "font-weight",
        "image-rendering",
    ]
)
_SVG, _XLINK = "http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"
_NAMES = {f"{{{_SVG}}}": "", f"{{{_XLINK}}}": "xlink:"}
_REFERENCE = re.compile(r"#[\w.-]+|data:image/png;base64,[A-Za-z0-9+/=\s]+")


def themed(svg: str, marks: tuple = ()) -> str:
    """Cut an SVG of matplotlib down to what a page needs: few bytes, known parts only, CSS variables for colours.

    `marks` are (x, y, width, height, text) of invisible boxes that tell their text.
    """
    root = ElementTree.Element("svg", {"xmlns": _SVG, "xmlns:xlink": _XLINK, "xml:space": "preserve"})
    drawn = ElementTree.fromstring(printable(svg))
    root.set("viewBox", drawn.get("viewBox"))
    root.set("style", "fill:var(--ov-ink);font-size:10px;stroke-linejoin:round")
    root.extend(_joined(_known(drawn)))
    small = _small(ElementTree.tostring(root, encoding="unicode"))
    return small.removesuffix("</svg>") + _transparent(marks) + "</svg>"


def _small(svg: str) -> str:
    from scour import scour  # here, as a machine that only records has none

    options = scour.sanitizeOptions()
    vars(options).update(embed_rasters=False, newlines=False, quiet=True, strip_ids=True, strip_xml_prolog=True)
    vars(options).update(style_to_xml=False)
    return scour.scourString(svg, options).strip()


def printable(text: str) -> str:
    """Text in which what XML cannot hold or nobody can see, such as a control character, is a replacement character."""
    bad = {c for c in text if (unicodedata.category(c) in ("Cc", "Cs") and c not in "\t\n") or c in "\ufffe\uffff"}
    return text.translate(dict.fromkeys(map(ord, bad), "\N{REPLACEMENT CHARACTER}")) if bad else text


def on_paper(svg: str) -> str:
    """A themed picture as a file of its own, in the light colours on white."""
    colors = {variable: color for color, variable in _VARIABLES.items()}
    root = ElementTree.fromstring(svg)
    for element in root.iter():
        if style := element.get("style"):
            element.set("style", _style({name: colors.get(value, value) for name, value in _properties(style)}))
    root.set("style", f"background:#fff;font-family:sans-serif;{root.get('style')}")
    return ElementTree.tostring(root, encoding="unicode")


def in_file(svg: str) -> str:
    """A themed picture as a file of its own, light or dark as the reader's system is; a page that takes it in gives it its colours."""

    def rule(colors: dict) -> str:
        values = ";".join(f"{_VARIABLES[color][4:-1]}:{shown}" for color, shown in colors.items())
        return f"svg:root{{font-family:sans-serif;{values}}}"

    both = rule({color: color for color in _VARIABLES}) + f"@media(prefers-color-scheme:dark){{{rule(_DARK)}}}"
    opening, end, rest = svg.partition(">")
    return f"{opening}{end}<style>{both}</style>{rest}"


def data_uri(svg: str) -> str:
    """A picture as an address that holds it."""
    return f"data:image/svg+xml;base64,{base64.b64encode(svg.encode()).decode()}"


def size(svg: str) -> tuple[int, int]:
    """Width and height."""
    _, root = next(ElementTree.iterparse(io.StringIO(svg), ["start"]))
    width, height = root.get("viewBox").split()[2:]
    return round(float(width)), round(float(height))


def _known(parent: ElementTree.Element) -> Iterator[ElementTree.Element]:
    """The known elements below `parent`, with known attributes and themed style; groups and links only hold theirs."""
    for child in parent:
        name = _name(child.tag)
        if name in ("g", "a") and not child.get("clip-path"):
            yield from _known(child)
        elif name in ELEMENTS:
            known = ElementTree.Element(name, dict(_attributes(name, child)))
            known.text = child.text if name in ("text", "tspan") else None
            known.tail = child.tail if name == "tspan" else None
            known.extend(_joined(_known(child)))
            yield known


def _name(tag: str) -> str:
    space, brace, name = tag.rpartition("}")
    return _NAMES.get(space + brace, "?:" if space else "") + name


def _attributes(name: str, element: ElementTree.Element) -> Iterator[tuple[str, str]]:
    for tag, value in element.items():
        attribute = _name(tag)
        if attribute == "style":
            yield attribute, _themed_style(name, value)
        elif attribute in ("d", "x", "y", "transform"):
            if not value.startswith("rotate(-0 "):
                yield attribute, re.sub(r"-?\d+\.\d+", _two_decimals, value)
        elif attribute.endswith("href"):
            if _REFERENCE.fullmatch(value):
                yield attribute, value
        elif attribute in ATTRIBUTES:
            yield attribute, value
    if name == "text" and element.get("style") is None:
        yield "style", _themed_style(name, "")


def _two_decimals(number: re.Match) -> str:
    return f"{float(number[0]):.2f}".rstrip("0").rstrip(".")


def _themed_style(name: str, style: str) -> str:
    """The page gives font and ink; matplotlib leaves out black, which is not the page's ink."""
    shown = {"fill": "#000000"} if name == "text" else {}
    for key, value in _properties(style):
        if key == "font":  # such as: italic 12px 'DejaVu Sans'
            shown |= {"font-size": word for word in value.split() if word.endswith("px")}
        elif key in PROPERTIES:
            shown[key] = _VARIABLES.get(value, value)
    without = {("font-size", "10px"), ("stroke-dashoffset", "0")} | (
        {("fill", "var(--ov-ink)")} if name == "text" else set()
    )
    return _style({key: value for key, value in shown.items() if (key, value) not in without})


def _properties(style: str) -> Iterator[tuple[str, str]]:
    for declaration in style.split(";"):
        key, _, value = declaration.partition(":")
        if value:
            yield key.strip(), value.strip()


def _style(properties: dict) -> str:
    return ";".join(f"{key}:{value}" for key, value in properties.items())


def _joined(elements: Iterator[ElementTree.Element]) -> list[ElementTree.Element]:
    """Neighbouring closed paths that look alike as one; what shows nothing goes."""
    kept = []
    for element in elements:
        look = {key: value for key, value in element.items() if key != "d"}
        if element.tag == "path" and look == {"style": "fill:none"}:
            continue
        last = kept[-1] if kept else None
        closed = (
            element.tag == "path"
            and element.get("d", "").rstrip().endswith("z")
            and "opacity" not in look.get("style", "")
        )
        if closed and last is not None and last.tag == "path" and {**last.attrib, "d": ""} == {**look, "d": ""}:
            last.set("d", last.get("d") + element.get("d"))
        else:
            kept.append(element)
    return kept


def _transparent(marks: tuple) -> str:
    group = ElementTree.Element("g", style="fill:transparent")
    for *sides, text in marks:
        box = dict(
            zip(("x", "y", "width", "height"), (f"{side:.1f}".removesuffix(".0") for side in sides), strict=True)
        )
        mark = ElementTree.SubElement(group, "rect", {"class": "ov-point"} | box)
        ElementTree.SubElement(mark, "title").text = printable(text)
    return ElementTree.tostring(group, encoding="unicode") if marks else ""
