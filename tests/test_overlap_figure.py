"""Pictures: what they show as numbers, their marks, their colours, and that no recorded text can break them."""

import json
import os
import subprocess
import sys
import warnings
from types import SimpleNamespace
from xml.etree import ElementTree

import pytest

from overlap import OverlapError

plt = pytest.importorskip("matplotlib.pyplot")
pytest.importorskip("scour")

from matplotlib.axes import Axes  # noqa: E402
from matplotlib.colors import to_hex  # noqa: E402
from matplotlib.projections import get_projection_class  # noqa: E402

from overlap.site import figure, svg  # noqa: E402
from overlap.site.pictures import style, typical  # noqa: E402

NAN, INF = float("nan"), float("inf")
ATTRIBUTES = svg.ATTRIBUTES | {"viewBox", "class", "space", "href"}


def drawn(plot, results: dict | None = None, salt: str = "salt") -> dict:
    """What a snippet with this `plot` gives, having gone through JSON."""
    module = SimpleNamespace(plot=plot, __file__="snippets/a/b.py")
    return json.loads(json.dumps(figure.draw(module, results or {}, {}, salt), allow_nan=False))


def on_axes(act, **kwargs):
    """A `plot` that acts on one pair of axes."""

    def plot(results, ceilings):
        drawing, axes = plt.subplots(**kwargs)
        act(axes)
        return drawing

    return plot


def elements(picture: str, name: str) -> list[ElementTree.Element]:
    """Elements of that name; what is not XML is an error."""
    return [found for found in ElementTree.fromstring(picture).iter() if found.tag.rpartition("}")[2] == name]


def texts(picture: str) -> list[str]:
    return ["".join(found.itertext()) for found in elements(picture, "text")]


def marks(picture: str) -> list[tuple[str, tuple]]:
    """What each mark tells, and its x, y, width, height."""
    found = [mark for mark in elements(picture, "rect") if mark.get("class") == "ov-point"]
    sides = ("x", "y", "width", "height")
    return [("".join(mark.itertext()), tuple(float(mark.get(side)) for side in sides)) for mark in found]


def words(axes) -> None:
    axes.bar(["a", "b"], [3, 4], bottom=[1, 0], yerr=[1, 2], label="L")


SERIES = {
    "plot": (lambda axes: axes.plot([1, 2], [3, 4.56789], label="L"), [("L", "x", "y", [[1, 3], [2, 4.568]])]),
    "unlabelled": (lambda axes: axes.plot([5, 6]), [("", "x", "y", [[0, 5], [1, 6]])]),
    "two lines": (lambda axes: axes.plot([1], [2], [3], [4]), [("", "x", "y", [[1, 2]]), ("", "x", "y", [[3, 4]])]),
    "labelled later": (lambda axes: axes.plot([5])[0].set_label("late"), [("late", "x", "y", [[0, 5]])]),
    "step": (lambda axes: axes.step([1, 2], [3, 4], where="mid"), [("", "x", "y", [[1, 3], [2, 4]])]),
    "loglog": (lambda axes: axes.loglog([1, 10], [3, 400]), [("", "x", "y", [[1, 3], [10, 400]])]),
    "semilogx": (lambda axes: axes.semilogx([1, 10], [3, 4]), [("", "x", "y", [[1, 3], [10, 4]])]),
    "semilogy": (lambda axes: axes.semilogy([1, 10], [3, 4]), [("", "x", "y", [[1, 3], [10, 4]])]),
    "scatter": (lambda axes: axes.scatter([1, 2], [3, NAN], label="L"), [("L", "x", "y", [[1, 3], [None, None]])]),
    "gaps": (lambda axes: axes.plot([1, 2, 3], [3, NAN, INF]), [("", "x", "y", [[1, 3], [2, None], [3, None]])]),
    "bar": (
        words,
        [("L", "x", "y", [["a", 3], ["b", 4]]), ("", "x", "y", [["a", "3 to 5"], ["b", "2 to 6"]])],
    ),
    "barh": (lambda axes: axes.barh(["a", "b"], [3, INF], left=2), [("", "y", "x", [["a", 3], ["b", None]])]),
    "bars beside words": (
        lambda axes: (axes.barh([0.2, 1.2], [3, 4], 0.3), axes.set_yticks([0, 1], labels=["a $x", "b"])),
        [("", "y", "x", [["a $x", 3], ["b", 4]])],
    ),
    "broken_barh": (
        lambda axes: axes.broken_barh([(1, 2), (5, 0.5)], (0, 1), label="L"),
        [("L", "x", "lasts", [[1, 2], [5, 0.5]])],
    ),
    "axhline": (lambda axes: axes.axhline(7, label="L"), [("L", "x", "y", [["all", 7]])]),
    "axvline": (lambda axes: axes.axvline(7), [("", "x", "y", [[7, "all"]])]),
    "hlines": (lambda axes: axes.hlines([3, 4], [0, 1], [1, 2.5]), [("", "x", "y", [["0 to 1", 3], ["1 to 2.5", 4]])]),
    "vlines": (
        lambda axes: (
            axes.vlines([3, 4, 5, NAN], [-0.5, 0.5, -1, 0], [0.5, 1.5, 2, 0], label="L"),
            axes.set_yticks([0, 1], labels=["a", "b"]),
        ),
        [("L", "y", "x", [["a", 3], ["b", 4], ["all", 5]])],
    ),
    "fill_between": (
        lambda axes: axes.fill_between([1, 2, 3], [3, 4, NAN], [5, 6, 7], label="L"),
        [("L", "x", "y", [[1, "3 to 5"], [2, "4 to 6"]])],
    ),
    "errorbar": (
        lambda axes: axes.errorbar([1, 2], [3, 4], xerr=0.5, yerr=[[1, 2], [3, 4]], label="L"),
        [
            ("L", "x", "y", [[1, 3], [2, 4]]),
            ("L", "x", "y", [["0.5 to 1.5", 3], ["1.5 to 2.5", 4]]),
            ("L", "x", "y", [[1, "2 to 6"], [2, "2 to 8"]]),
        ],
    ),
    "errorbar without points": (
        lambda axes: axes.errorbar([1], [3], yerr=1, fmt="none"),
        [("", "x", "y", [[1, "2 to 4"]])],
    ),
    "pcolormesh": (
        lambda axes: axes.pcolormesh(["a", "b"], ["c", "d"], [[1, 2], [3, NAN]]),
        [("", "y, x", "", [["c, a", 1], ["c, b", 2], ["d, a", 3], ["d, b", None]])],
    ),
    "imshow": (
        lambda axes: axes.imshow([[1, 2], [3, 4]]),
        [("", "y, x", "", [["0, 0", 1], ["0, 1", 2], ["1, 0", 3], ["1, 1", 4]])],
    ),
    "imshow from below": (
        lambda axes: axes.imshow([[1], [2]], origin="lower", extent=(0, 2, 0, 8)),
        [("", "y, x", "", [["2, 1", 1], ["6, 1", 2]])],
    ),
    "cleared": (lambda axes: (axes.plot([1]), axes.clear(), axes.set(xlabel="x", ylabel="y")), []),
    "words only": (lambda axes: (axes.text(0, 0, "a"), axes.annotate("b", (0, 1)), axes.legend([], [])), []),
    "colour scale": (
        lambda axes: axes.figure.colorbar(axes.pcolormesh([[1, 2]])),
        [("", "y, x", "", [["0.5, 0.5", 1], ["0.5, 1.5", 2]])],
    ),
    "other scale": (
        lambda axes: (axes.plot([1]), axes.twinx().plot([2])),
        [("", "x", "y", [[0, 1]]), ("", "x", "", [[0, 2]])],
    ),
    "inset": (lambda axes: axes.inset_axes((0, 0, 0.5, 0.5)).plot([2]), [("", "x", "", [[0, 2]])]),
}


@pytest.mark.parametrize("act, expected", SERIES.values(), ids=SERIES)
def test_series(act, expected):
    def plot(results, ceilings):
        drawing, axes = plt.subplots()
        axes.set(title="T", xlabel="x", ylabel="y")
        act(axes)
        return drawing

    keys = ("label", "x", "y", "points")
    found = drawn(plot)["table"]
    assert [tuple(item[key] for key in keys) for item in found] == expected
    assert {item["title"] for item in found} <= {"T", ""}


@pytest.mark.parametrize(
    "value, expected",
    [("a", "a"), (1234567, "1.235e+06"), (0.00012345, "0.0001234"), (None, "–"), (NAN, "–"), (-INF, "–")],
)
def test_coordinates_as_text(value, expected):
    assert figure.text(value) == expected


def at_ten(act):
    """A `plot` with axes from 0 to 10 in the middle of the picture, of 0.8 of its size."""

    def plot(results, ceilings):
        drawing = plt.figure()
        axes = drawing.add_axes((0.1, 0.1, 0.8, 0.8))
        act(axes)
        axes.set(xlim=(0, 10), ylim=(0, 10), xlabel="x", ylabel="y")
        return drawing

    return plot


#: In a picture of 504 by 252: x = 50.4 + 40.32 x, y = 226.8 - 20.16 y.
MARKS = {
    "a point": (lambda axes: axes.plot([5], [5], label="L"), [("L · x: 5 · y: 5", (246, 120, 12, 12))]),
    "points too close": (
        lambda axes: axes.plot([5, 5.01, 6], [5, 5, 5]),
        [("x: 5 · y: 5", (246, 120, 12, 12)), ("x: 6 · y: 5", (286.3, 120, 12, 12))],
    ),
    "points outside and gaps": (lambda axes: axes.plot([11, 5, NAN], [5, NAN, 1]), []),
    "a bar": (lambda axes: axes.bar([5], [20], width=2), [("x: 5 · y: 20", (211.7, 25.2, 80.6, 201.6))]),
    "a lying bar": (lambda axes: axes.barh([5], [5], height=1), [("y: 5 · x: 5", (50.4, 115.9, 201.6, 20.2))]),
    "spans": (
        lambda axes: axes.broken_barh([(1, 0.02), (1.03, 0.02), (5, 1)], (4, 1), label="L"),
        [
            ("L · 1 to 1.05 · 2 of them last 0.04", (89.7, 126, 4, 20.2)),
            ("L · 5 to 6 · lasts 1", (252, 126, 40.3, 20.2)),
        ],
    ),
    "a line": (lambda axes: axes.hlines(5, 0, 5), [("x: 0 to 5 · y: 5", (50.4, 124, 201.6, 4))]),
    "a cell": (
        lambda axes: axes.pcolormesh([0, 5], [0, 5], [[7]]),
        [("y, x: 2.5, 2.5 · 7", (50.4, 126, 201.6, 100.8))],
    ),
    "a level": (lambda axes: axes.axhline(5), []),
    "text that looks like markup": (
        lambda axes: axes.plot([5], [5], label="<b>&amp;"),
        [("<b>&amp; · x: 5 · y: 5", (246, 120, 12, 12))],
    ),
}


@pytest.mark.parametrize("act, expected", MARKS.values(), ids=MARKS)
def test_marks(act, expected):
    found = marks(drawn(at_ten(act))["wide"])
    assert [told for told, _ in found] == [told for told, _ in expected]
    for (_, place), (_, wanted) in zip(found, expected, strict=True):
        assert place == pytest.approx(wanted, abs=0.06)


HOSTILE = [
    "</svg><script>alert(1)</script>",
    "<script>alert(1)</script>",
    "</text></svg>",
    "<![CDATA[x]]>",
    "]]>",
    "<!-- x -->",
    "-->",
    "<?xml version='1.0'?>",
    "&amp;",
    "&lt;b&gt;",
    "&#0;&undefined;",
    'x id="y" #0072b2 var(--ov-ink)',
    '" onload="alert(1)" \'',
    "' onclick='alert(1)",
    "url(#p0123456789)",
    "javascript:alert(1)",
    'style="fill: none" fill: #808080; font-size: 10px',
    "}</style><style>*{display:none}",
    'viewBox="0 0 1 1" width="9pt"',
    'rotate(-0 1 2) transform="x"',
    "M 0 0 L 1.234567 2.345678 z",
    "1.23456789  2.0",
    "$x$",
    "$\\frac{1}{",
    "a $ b",
    "\\$ \\",
    "$$",
    "x^{2}_{3} \\times",
    "{}%s {0!r}",
    "  two before, two  within, two after  ",
    "\tTab",
    "nul \x00 bell \x07 escape \x1b[31m delete \x7f",
    "c1 \x85 \x9f, \x0b \x0c and \r",
    "lone \ud800 surrogate \udfff",
    "not a character \ufffe \uffff",
    "שלום \u202eright to left\u202c",
    "e\u0301 a\u200d\u200b\ufeff",
    "中文 😀 glyphs",
    "\u00a0 no break \u2028 \u2029",
    "W" * 120,
    "-",
    "#",
]


def test_a_picture_shows_the_median_of_all_runs():
    """A run that is not shown whole lacks trials and timelines; a list of another length is another thing."""
    whole = {"ms": {"a": 9.0, "b": 1}, "n": [1, 2], "rows": [{"us": 5.0, "us_trials": [5.0]}], "ok": True, "name": "x"}
    others = [
        {"ms": {"a": 1.0, "b": 2}, "n": [1, 2, 3], "rows": [{"us": 7.0}], "ok": False, "name": "y"},
        {"ms": {"a": 2.0, "b": 4}, "n": [3, 4], "rows": [{"us": 9.0}], "ok": True, "name": "y", "more": 1},
        {"ms": {"a": 8.0}, "n": None, "rows": [], "ok": True, "name": "y"},
    ]
    shown = {"ms": {"a": 5.0, "b": 2}, "n": [1, 2], "rows": [{"us": 7.0, "us_trials": [5.0]}], "ok": True, "name": "x"}
    assert typical([whole, *others]) == shown
    assert typical([whole]) == whole


@pytest.mark.parametrize("label", HOSTILE)
def test_no_recorded_text_breaks_a_picture(label, recwarn):
    def plot(results, ceilings):
        drawing, (axes, other) = plt.subplots(1, 2)
        (name,) = results["ms"]
        axes.plot([1, 2], [3, 4], label=name)
        axes.set(title=name, xlabel=name, ylabel=name)
        axes.set_xticks([1], labels=[name])
        axes.annotate(name, (1, 3))
        axes.legend()
        other.set_title(results["name"])
        other.bar([name], [1])
        drawing.suptitle(name)
        return drawing

    pictures = drawn(plot, {"ms": {label: 1}, "name": label, "more": [label]})
    shown = svg.printable(label)
    for variant in ("wide", "narrow"):
        assert texts(pictures[variant]).count(shown) >= 8
        themed = ElementTree.fromstring(pictures[variant])
        whole = [ElementTree.fromstring(turn(pictures[variant])) for turn in (svg.in_file, svg.on_paper)]
        assert all(texts(ElementTree.tostring(other, "unicode")) == texts(pictures[variant]) for other in whole)
        for found in themed.iter():
            assert found.tag.rpartition("}")[2] in svg.ELEMENTS | {"title"}
            assert {name.rpartition("}")[2] for name in found.attrib} <= ATTRIBUTES
        told = [told for told, _ in marks(pictures[variant])]
        assert told[0] == f"{shown} · {shown}: {shown} · {shown}: 3"
    assert [item["label"] for item in pictures["table"]] == [shown, ""]
    assert pictures["table"][0]["title"] == shown and pictures["table"][1]["points"] == [[shown, 1]]
    assert not recwarn.list


@pytest.mark.parametrize(
    "text, expected",
    [
        ("a\nb\tc", "a\nb\tc"),
        ("\x00\r\x85", "\ufffd" * 3),
        ("\ud800\uffff", "\ufffd" * 2),
        ("é\u202e😀\u00a0", "é\u202e😀\u00a0"),
    ],
)
def test_printable(text, expected):
    assert svg.printable(text) == expected


def test_names_that_differ_in_what_nobody_sees_stay_apart():
    def plot(results, ceilings):
        drawing, axes = plt.subplots()
        axes.plot(list(results["ms"].values()))
        return drawing

    assert drawn(plot, {"ms": {"a\x00": 1, "a\x01": 2}})["table"][0]["points"] == [[0, 1], [1, 2]]


SVG = 'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" viewBox="0 0 9 9"'
DROPPED = {
    "script": ("<script>alert(1)</script>", ""),
    "handler": ('<path d="M0 0h9" onclick="alert(1)"/>', '<path d="m0 0h9"/>'),
    "link": ('<a xlink:href="javascript:alert(1)"><path d="M0 0h9"/></a>', '<path d="m0 0h9"/>'),
    "foreign": ('<foreignObject><p xmlns="http://www.w3.org/1999/xhtml">x</p></foreignObject>', ""),
    "foreign path": ('<x:path xmlns:x="http://other" d="M0 0h9"/>', ""),
    "address": ('<use xlink:href="http://other/#x"/><image xlink:href="data:text/html,x"/>', "<use/><image/>"),
    "style": (
        '<path d="M0 0h9" style="fill: url(http://other/); behavior: x; stroke: #0072b2"/>',
        '<path d="m0 0h9" style="stroke:var(--ov-series-1)"/>',
    ),
    "animation": ('<path d="M0 0h9"><set attributeName="d" to="x"/></path>', '<path d="m0 0h9"/>'),
    "unused id": ('<g id="a"><path id="b" d="M0 0h9"/></g>', '<path d="m0 0h9"/>'),
    "doubled areas": (
        '<path d="M0 0h9v9z"/><g><path d="M1 1h9v9z"/></g><path d="M1 1h9v9z" style="opacity: .5"/>',
        '<path d="m0 0h9v9zm1 1h9v9z"/><path d="m1 1h9v9z" style="opacity:.5"/>',
    ),
    "black text": ("<text>a</text>", '<text style="fill:#000000">a</text>'),
    "ink": ("<text style=\"fill: #1f2328; font: 12px 'X'\">a</text>", '<text style="font-size:12px">a</text>'),
    "formula": (
        '<text style="fill: #1f2328">\n <tspan x="1">10</tspan>\n <tspan x="2">  3</tspan>\n</text>',
        '<text><tspan x="1">10</tspan><tspan x="2">  3</tspan></text>',
    ),
    "unturned": (
        '<text x="1.23456" transform="rotate(-0 1 2)" style="fill: #1f2328">a</text>',
        '<text x="1.23">a</text>',
    ),
}


@pytest.mark.parametrize("inside, expected", DROPPED.values(), ids=DROPPED)
def test_only_what_draws_is_kept(inside, expected):
    themed = svg.themed(f"<svg {SVG}><metadata/>{inside}</svg>")
    opening, _, rest = themed.partition(">")
    assert opening.startswith("<svg ") and rest.removesuffix("</svg>").replace(' style=""', "") == expected


def test_colours_are_the_pages():
    def plot(results, ceilings):
        drawing, axes = plt.subplots()
        for i in range(6):
            axes.plot([1, i], linestyle="--" if i else "-")
        axes.axhline(3, color="gray")
        axes.text(0, 1, "#0072b2 var(--ov-grid)")
        axes.text(0, 2, "on yellow", color="black")
        axes.set_ylabel("turned")
        return drawing

    picture = drawn(plot)["wide"]
    styles = " ".join(found.get("style", "") for found in ElementTree.fromstring(picture).iter())
    assert all(f"stroke:var(--ov-{name})" in styles for name in ("series-1", "series-6", "ceiling", "grid"))
    assert "white-space:pre" in ElementTree.fromstring(picture).get("style"), "as words may begin with spaces"
    assert "fill:var(--ov-ink)" in styles and "#0072b2" not in styles and "stroke-dasharray" in styles
    assert "font-family" not in picture and "width" not in ElementTree.fromstring(picture).attrib
    black = [found.text for found in elements(picture, "text") if "fill:#000000" in found.get("style", "")]
    assert black == ["on yellow"], "all other text takes the page's ink"
    assert [found.get("transform")[:11] for found in elements(picture, "text") if found.text == "turned"] == [
        "rotate(-90 "
    ]
    paper, file = svg.on_paper(picture), svg.in_file(picture)
    assert "#0072b2 var(--ov-grid)" in texts(paper), "words are not colours"
    assert "var(" not in "".join(found.get("style", "") for found in ElementTree.fromstring(paper).iter())
    assert "background:#fff" in ElementTree.fromstring(paper).get("style") and "stroke:#0072b2" in paper
    (style,) = elements(file, "style")
    assert (
        "--ov-series-1:#0072b2" in style.text
        and "--ov-ink:#e3e7eb" in style.text
        and "prefers-color-scheme:dark" in style.text
    )
    assert svg.data_uri("<svg/>") == "data:image/svg+xml;base64,PHN2Zy8+"


@pytest.mark.parametrize(
    "rows, wide, narrow", [(1, (504, 252), (266, 252)), (2, (504, 259), (266, 259)), (3, (504, 367), (266, 367))]
)
def test_sizes(rows, wide, narrow):
    pictures = drawn(lambda results, ceilings: plt.subplots(rows)[0])
    assert svg.size(pictures["wide"]) == wide and svg.size(pictures["narrow"]) == narrow


def test_powers_of_ten_are_text():
    picture = drawn(on_axes(lambda axes: axes.plot([1e-3, 1e6], [2, 3]) and axes.set(xscale="log", yscale="log")))[
        "wide"
    ]
    assert {"10⁻²", "10⁶", "2×10⁰"} <= set(texts(picture)) and not any("$" in text for text in texts(picture))


ERRORS = {
    "no figure": (lambda results, ceilings: None, "must return a matplotlib figure, not NoneType"),
    "axes": (
        on_axes(lambda axes: None) and (lambda results, ceilings: plt.subplots()[1]),
        "must return a matplotlib figure",
    ),
    "pie": (on_axes(lambda axes: axes.pie([1, 2])), "draws with `pie`, .* use plot, "),
    "hist": (on_axes(lambda axes: axes.hist([1, 2])), "`hist`"),
    "boxplot": (on_axes(lambda axes: axes.boxplot([1, 2])), "`boxplot`"),
    "contour": (on_axes(lambda axes: axes.contour([[1, 2], [3, 4]])), "`contour`"),
    "axvspan": (on_axes(lambda axes: axes.axvspan(1, 2)), "`axvspan`"),
    "table": (on_axes(lambda axes: axes.table([["1"]])), "`table`"),
    "a shape": (on_axes(lambda axes: axes.add_patch(plt.Rectangle((0, 0), 1, 1))), "`add_patch`"),
    "an artist": (on_axes(lambda axes: axes.add_artist(plt.Line2D([0], [1]))), "`add_artist`"),
    "colours": (on_axes(lambda axes: axes.imshow([[[1, 0, 0]]])), "imshow of colours"),
    "corners": (on_axes(lambda axes: axes.pcolormesh([[1, 2], [3, 4]], shading="gouraud")), "one value for each cell"),
    "polar": (on_axes(lambda axes: axes.plot([1]), subplot_kw={"projection": "polar"}), "draws on PolarAxes"),
}


@pytest.mark.parametrize("plot, message", ERRORS.values(), ids=ERRORS)
def test_what_cannot_be_said_is_an_error(plot, message):
    with pytest.raises(OverlapError, match=rf"^snippets/a/b.py: plot\(\) .*{message}"):
        drawn(plot)
    assert plt.get_fignums() == [] and get_projection_class("rectilinear") is Axes


def test_nothing_stays_behind(recwarn):
    def plot(results, ceilings):
        plt.figure()
        warnings.warn("noise", stacklevel=1)
        raise KeyError("n")

    with pytest.raises(KeyError):
        drawn(plot)
    assert plt.get_fignums() == [] and get_projection_class("rectilinear") is Axes and not recwarn.list
    drawn(on_axes(lambda axes: axes.plot([1])))
    assert plt.get_fignums() == [] and plt.rcParams["text.parse_math"] is True


TWO = """
import json, sys
from types import SimpleNamespace
import matplotlib.pyplot as plt
from overlap.site import figure

def plot(results, ceilings):
    drawing, (one, two) = plt.subplots(1, 2)
    one.loglog([1, 2], [3, 4], marker="o", label="a")
    two.pcolormesh([[1, 2], [3, 4]])
    two.imshow([[1, 2]])
    one.legend()
    return drawing

module = SimpleNamespace(plot=plot, __file__="x")
found = {salt: figure.draw(module, {}, {}, salt) for salt in sys.argv[1:]}
print(json.dumps([found["one"], found["two"]]))
"""


def test_the_same_bytes_every_time_and_other_names_in_each():
    """In any order, in any process; two pictures of one page share no id."""
    outputs = [
        subprocess.run(
            [sys.executable, "-c", TWO, *order],
            env=os.environ | {"PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        ).stdout
        for seed, order in (("1", ("one", "two")), ("2", ("two", "one")))
    ]
    assert outputs[0] == outputs[1]
    pictures = [found[variant] for found in json.loads(outputs[0]) for variant in ("wide", "narrow")]
    ids = [name.get("id") for picture in pictures for name in ElementTree.fromstring(picture).iter() if name.get("id")]
    assert len(ids) == len(set(ids)) >= 8
    for picture in pictures:
        own = [found.get("id") for found in ElementTree.fromstring(picture).iter() if found.get("id")]
        assert all(f"#{name}" in picture for name in own), "names that nobody calls only cost bytes"
    assert elements(pictures[0], "image") and elements(pictures[0], "use")


def test_a_change_of_any_part_of_the_style_draws_anew(tmp_path, monkeypatch):
    parts = ("figure.py", "layout.py", "pictures.py", "plotted.py", "svg.py")
    for name in parts:
        (tmp_path / name).write_text(name)
    monkeypatch.setattr("overlap.site.pictures.__file__", str(tmp_path / "pictures.py"))
    versions = {style()}
    for name in parts:
        (tmp_path / name).write_text("changed")
        versions.add(style())
    assert len(versions) == 1 + len(parts)


def arranged(plot) -> dict:
    """The figure that `plot` made for a narrow page, as it is after it was drawn."""
    kept = {}

    def keep(results, ceilings):
        kept["figure"] = plot()
        return kept["figure"]

    drawn(keep)
    return kept["figure"]


def test_panels_of_lanes_have_one_time_scale_one_colour_for_a_thing_and_light_waiting():
    def plot():
        drawing, axes = plt.subplots(2)
        for panel, last in zip(axes, (100, 400), strict=True):
            for row, lane in enumerate(["CPU", "CPU waits", "copy"]):
                panel.broken_barh([(0, last)], (row - 0.4, 0.8), label=lane)
            panel.set_yticks([0, 1, 2], ["CPU", "CPU waits", "copy"])
            panel.set(xlabel="µs", ylim=(2.6, -0.6))
        return drawing

    upper, lower = arranged(plot).axes
    assert upper.get_xlim() == lower.get_xlim() and upper.get_xlim()[1] >= 400
    colors = [[to_hex(bars.get_facecolor()[0]) for bars in panel.collections] for panel in (upper, lower)]
    assert colors[0] == colors[1] == [svg.SERIES[0], "#808080", svg.SERIES[1]]
    assert [bars.get_alpha() for bars in upper.collections] == [None, 0.4, None]


def test_logarithmic_bars_are_dots_whose_labels_no_line_strikes():
    def plot():
        drawing, axes = plt.subplots()
        axes.bar_label(axes.barh([0, 1], [1.0, 2000.0]), fmt="%.3g", padding=3)
        axes.axvline(1.2, color="gray", linestyle="--", label="limit")
        axes.set(xscale="log", xlabel="ms")
        axes.legend()
        return drawing

    drawing = arranged(plot)
    (axes,) = drawing.axes
    assert [bar.get_visible() for bar in axes.patches] == [False, False]
    assert [line.get_xydata().tolist() for line in axes.lines[1:]] == [[[1.0, 0.0]], [[2000.0, 1.0]]]
    assert [label.get_text() for label in axes.texts] == ["1", "2,000"]
    assert axes.texts[0].get_window_extent().x0 > axes.transData.transform((1.2, 0))[0]
    assert axes.get_legend() is None and [text.get_text() for text in drawing.legends[0].texts] == ["limit"]


def test_a_long_legend_and_many_ticks_fit_a_narrow_page():
    words = "a label that is much longer than a narrow page is wide, so that it takes two lines or more"

    def plot():
        drawing, axes = plt.subplots()
        axes.plot([1, 2], [3, 4], label=words)
        axes.plot([1, 2], [4, 3], label="ms")
        axes.set(ylabel="ms")
        axes.set_xticks(range(1, 40), [f"{n:,}" for n in range(1000, 1039)])
        axes.legend()
        return drawing

    drawing = arranged(plot)
    (text,) = drawing.legends[0].texts
    assert "\n" in text.get_text() and drawing.legends[0].get_window_extent().width <= drawing.bbox.width
    shown = [label for label in drawing.axes[0].get_xticklabels() if label.get_visible()]
    assert 1 < len(shown) < 20
