"""What matplotlib writes as SVG, cut down to what a page needs and coloured by the page."""

import base64
import io
import re
import unicodedata
from collections.abc import Iterable, Iterator
from xml.etree import ElementTree

#: Colours that plots are drawn in, and the CSS variables that take their place, so that one picture serves light and dark.
SERIES = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
_VARIABLES = {color: f"var(--ov-series-{i})" for i, color in enumerate(SERIES, 1)} | {
    "#808080": "var(--ov-ceiling)",
    "#1f2328": "var(--ov-ink)",
    "#d0d7de": "var(--ov-grid)",
}
_COLORS = {variable: color for color, variable in _VARIABLES.items()}
_DARK = {"#808080": "#a5aeb8", "#1f2328": "#e3e7eb", "#d0d7de": "#343b44"}

#: What matplotlib draws with. All else goes: what says who drew it, and anything that could act.
ELEMENTS = frozenset(["svg", "g", "defs", "clipPath", "pattern", "path", "rect", "use", "image", "text", "tspan"])
ATTRIBUTES = frozenset(
    ["id", "d", "x", "y", "width", "height", "transform", "opacity", "clip-path", "style", "patternUnits", "xlink:href"]
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
_VALUE = re.compile(r"[\w\s#.,%+-]*|url\(#[\w.-]+\)|#[\w.-]+|data:image/png;base64,[\w+/=\s]+", re.ASCII)
_SPACES = {"": "http://www.w3.org/2000/svg", "xlink": "http://www.w3.org/1999/xlink"}
for _prefix, _space in _SPACES.items():
    ElementTree.register_namespace(_prefix, _space)


def themed(svg: str, marks: Iterable[tuple] = ()) -> str:
    """Cut an SVG of matplotlib down to what a page needs: known parts, few bytes, CSS variables for colours.

    `marks` are (x, y, width, height, text) of invisible boxes that tell their text.
    """
    drawn = ElementTree.fromstring(printable(svg))
    root = ElementTree.Element("svg", {"xmlns": _SPACES[""], "xmlns:xlink": _SPACES["xlink"], "xml:space": "preserve"})
    root.set("viewBox", drawn.get("viewBox"))
    root.set("style", "fill:var(--ov-ink);font-size:10px;stroke-linejoin:round;white-space:pre")
    root.extend(_known(drawn))
    small = _scoured(ElementTree.tostring(root, encoding="unicode"))
    return small.removesuffix("</svg>") + _transparent(marks) + "</svg>"


def printable(text: str) -> str:
    """Text with a replacement character for each control character and whatever else XML cannot hold."""
    bad = {c for c in set(text) if c in "\ufffe\uffff" or (unicodedata.category(c) in ("Cc", "Cs") and c not in "\t\n")}
    return text.translate({ord(c): "\N{REPLACEMENT CHARACTER}" for c in bad}) if bad else text


def on_paper(svg: str) -> str:
    """A themed picture as a file of its own, in the light colours on white."""
    root = ElementTree.fromstring(svg)
    for element in root.iter():
        if style := element.get("style"):
            element.set("style", _style({name: _COLORS.get(value, value) for name, value in _properties(style)}))
    root.set("style", f"background:#fff;font-family:sans-serif;{root.get('style')}")
    return ElementTree.tostring(root, encoding="unicode")


def by_itself(svg: str) -> str:
    """An SVG of the book itself, as a file of its own: its letters are not the page's."""
    root = ElementTree.fromstring(svg)
    root.set("style", "font-family:sans-serif")
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


def _scoured(svg: str) -> str:
    from scour import scour  # here, as a machine that only records has none

    options = scour.sanitizeOptions()
    vars(options).update(embed_rasters=False, newlines=False, strip_ids=True, strip_xml_prolog=True, style_to_xml=False)
    return scour.scourString(svg, options).strip()


def _known(parent: ElementTree.Element) -> list[ElementTree.Element]:
    """What is known and seen below `parent`, without bare groups; neighbouring areas that look alike are one."""
    kept = []
    for element in _elements(parent):
        look = {name: value for name, value in element.items() if name != "d"}
        area = element.tag == "path" and element.get("d", "").endswith("z") and "opacity" not in look.get("style", "")
        if area and kept and kept[-1].tag == "path" and kept[-1].attrib | {"d": ""} == look | {"d": ""}:
            kept[-1].set("d", kept[-1].get("d") + element.get("d"))
        elif look != {"style": "fill:none"}:
            kept.append(element)
    return kept


def _elements(parent: ElementTree.Element) -> Iterator[ElementTree.Element]:
    for child in parent:
        name = _name(child.tag)
        element = ElementTree.Element(name, dict(_attributes(name, child)))
        if name == "a" or (name == "g" and set(element.keys()) <= {"id"}):
            yield from _elements(child)
        elif name in ELEMENTS:
            if name in ("text", "tspan") and not len(child):
                element.text = child.text
            element.extend(_known(child))
            yield element


def _name(tag: str) -> str:
    space, _, name = tag.removeprefix("{").rpartition("}")
    prefixes = {space: f"{prefix}:" if prefix else "" for prefix, space in _SPACES.items()} | {"": ""}
    return prefixes.get(space, "unknown:") + name


def _attributes(element: str, drawn: ElementTree.Element) -> Iterator[tuple[str, str]]:
    for tag, value in (({"style": ""} if element == "text" else {}) | drawn.attrib).items():
        name = _name(tag)
        if name == "style":
            yield name, _themed_style(element, value)
        elif name in ("d", "x", "y", "transform"):
            if not value.startswith("rotate(-0 "):
                yield name, re.sub(r"-?\d+\.\d+", lambda n: f"{float(n[0]):.2f}".rstrip("0").rstrip("."), value).strip()
        elif name in ATTRIBUTES and _VALUE.fullmatch(value):
            yield name, value


def _themed_style(element: str, style: str) -> str:
    """The page gives font and ink. matplotlib leaves out black, which is not the page's ink."""
    shown = {"fill": "#000000"} if element == "text" else {}
    for name, value in _properties(style):
        if name == "font":  # older ones write the size here, as in: 12px 'DejaVu Sans'
            name, value = "font-size", next(word for word in value.split() if word.endswith("px"))
        if name in PROPERTIES and _VALUE.fullmatch(value):
            shown[name] = _VARIABLES.get(value, value)
    needless = {"font-size": "10px", "stroke-dashoffset": "0"} | (
        {"fill": "var(--ov-ink)"} if element == "text" else {}
    )
    return _style({name: value for name, value in shown.items() if needless.get(name) != value})


def _properties(style: str) -> Iterator[tuple[str, str]]:
    for declaration in filter(str.strip, style.split(";")):
        name, _, value = declaration.partition(":")
        yield name.strip(), value.strip()


def _style(properties: dict[str, str]) -> str:
    return ";".join(f"{name}:{value}" for name, value in properties.items())


def _transparent(marks: Iterable[tuple]) -> str:
    group = ElementTree.Element("g", style="fill:transparent")
    for *sides, text in marks:
        texts = (f"{side:.1f}".removesuffix(".0") for side in sides)
        box = dict(zip(("x", "y", "width", "height"), texts, strict=True))
        mark = ElementTree.SubElement(group, "rect", {"class": "ov-point"} | box)
        ElementTree.SubElement(mark, "title").text = printable(text)
    return ElementTree.tostring(group, encoding="unicode") if len(group) else ""
