"""Pictures: what they show as numbers, their marks and colours, and that no recorded text breaks them."""

import json
import re
from types import SimpleNamespace
from xml.etree import ElementTree

import pytest

from overlap import OverlapError
from overlap.run.text import plain

plt = pytest.importorskip("matplotlib.pyplot")
pytest.importorskip("mkdocs")

from matplotlib.colors import to_hex  # noqa: E402

from overlap.site import picture, series, svg  # noqa: E402
from overlap.site.pictures import Pictures, drawing_pool, typical  # noqa: E402
from overlap.site.view import Site, View, number  # noqa: E402

NAN, INF = float("nan"), float("inf")
ELEMENTS = {"svg", "g", "path", "rect", "title", "text", "defs", "use", "clipPath"}


@pytest.fixture(autouse=True)
def no_leftovers():
    """What a picture sets of matplotlib ends with it."""
    yield
    assert plt.get_fignums() == [] and plt.rcParams["text.parse_math"] is True


@pytest.fixture
def drawn(monkeypatch):
    """`drawn(plot)`: what a snippet with this `plot` gives, having gone through JSON."""

    def draw(plot, results: dict | None = None) -> dict:
        monkeypatch.setattr(picture, "_module", lambda path: SimpleNamespace(plot=plot))
        made = picture.draw("snippets/a/b.py", "a/b", {"cpu": (typical([results or {}]), {})})
        return json.loads(json.dumps(made["cpu"], allow_nan=False))

    return draw


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
    axes.bar(["a", "b"], [3, 4], bottom=[1, 0], label="L")


SERIES = {
    "plot": (
        lambda axes: axes.plot([1, 2], [3, 4.56789], label="L"),
        [("L", "x", "y", [[1, 3], [2, 4.568]])],
    ),
    "loglog": (lambda axes: axes.loglog([1, 10], [3, 400]), [("", "x", "y", [[1, 3], [10, 400]])]),
    "scatter": (
        lambda axes: axes.scatter([1, 2], [3, NAN], label="L"),
        [("L", "x", "y", [[1, 3], [None, None]])],
    ),
    "gaps": (
        lambda axes: axes.plot([1, 2, 3], [3, NAN, None]),
        [("", "x", "y", [[1, 3], [2, None], [3, None]])],
    ),
    "bar": (
        words,
        [("L", "x", "y", [["a", 3], ["b", 4]])],
    ),
    "barh": (lambda axes: axes.barh(["a", "b"], [3, NAN], left=2), [("", "y", "x", [["a", 3], ["b", None]])]),
    "bars beside words": (
        lambda axes: (axes.barh([0.2, 1.2], [3, 4], 0.3), axes.set_yticks([0, 1], labels=["a $x", "b"])),
        [("", "y", "x", [["a $x", 3], ["b", 4]])],
    ),
    "broken_barh": (
        lambda axes: axes.broken_barh([(1, 2), (5, 0.5)], (0, 1), label="L"),
        [("L", "x", "lasts", [[1, 2], [5, 0.5]])],
    ),
    "axhline": (lambda axes: axes.axhline(7, label="L"), [("L", "x", "y", [["all", 7]])]),
    "axvline": (lambda axes: axes.axvline(7), [("", "y", "x", [["all", 7]])]),
    "hlines": (
        lambda axes: axes.hlines([3, 4], [0, 1], [1, 2.5]),
        [("", "x", "y", [["0 to 1", 3], ["1 to 2.5", 4]])],
    ),
    "vlines": (
        lambda axes: (
            axes.vlines([3, 4, 5, NAN], [-0.5, 0.5, -1, 0], [0.5, 1.5, 2, 0], label="L"),
            axes.set_yticks([0, 1], labels=["a", "b"]),
        ),
        [("L", "y", "x", [["a", 3], ["b", 4], ["all", 5]])],
    ),
    "pcolormesh": (
        lambda axes: axes.pcolormesh(["a", "b"], ["c", "d"], [[1, 2], [3, NAN]]),
        [("", "y, x", "", [["c, a", 1], ["c, b", 2], ["d, a", 3], ["d, b", None]])],
    ),
    "cleared": (lambda axes: (axes.plot([1]), axes.clear(), axes.set(xlabel="x", ylabel="y")), []),
    "other scale": (
        lambda axes: (axes.plot([1]), axes.twinx().plot([2])),
        [("", "x", "y", [[0, 1]]), ("", "x", "", [[0, 2]])],
    ),
}


@pytest.mark.parametrize("act, expected", SERIES.values(), ids=SERIES)
def test_series(drawn, act, expected):
    def plot(results, ceilings):
        drawing, axes = plt.subplots()
        axes.set(title="T", xlabel="x", ylabel="y")
        act(axes)
        return drawing

    found = []
    for table in drawn(plot)["tables"]:
        for block in table["series"]:
            found.append(
                (block["name"].removeprefix("T").removeprefix(" · "), *table["headings"], block["points"])
            )
    assert found == expected


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
    "a lying bar": (
        lambda axes: axes.barh([5], [5], height=1),
        [("y: 5 · x: 5", (50.4, 115.9, 201.6, 20.2))],
    ),
    "spans": (
        lambda axes: axes.broken_barh([(1, 0.02), (1.03, 0.02), (5, 1)], (4, 1), label="L"),
        [
            ("L · 1 to 1.05 · 2 together: 0.04", (89.7, 126, 4, 20.2)),
            ("L · 5 to 6 · lasts 1", (252, 126, 40.3, 20.2)),
        ],
    ),
    "a line": (lambda axes: axes.hlines(5, 0, 5), [("x: 0 to 5 · y: 5", (50.4, 124, 201.6, 4))]),
    "a cell": (
        lambda axes: axes.pcolormesh([0, 5], [0, 5], [[7]]),
        [("y, x: 2.5, 2.5 · 7", (50.4, 126, 201.6, 100.8))],
    ),
    "a cell with a unit": (
        lambda axes: axes.pcolormesh([0, 5], [0, 5], [[7]], label="% hidden"),
        [("y, x: 2.5, 2.5 · 7% hidden", (50.4, 126, 201.6, 100.8))],
    ),
    "a level": (lambda axes: axes.axhline(5), []),
    "text that looks like markup": (
        lambda axes: axes.plot([5], [5], label="<b>&amp;"),
        [("<b>&amp; · x: 5 · y: 5", (246, 120, 12, 12))],
    ),
}


@pytest.mark.parametrize("act, expected", MARKS.values(), ids=MARKS)
def test_marks(drawn, act, expected):
    found = marks(drawn(at_ten(act))["wide"])
    assert [told for told, _ in found] == [told for told, _ in expected]
    for (_, place), (_, wanted) in zip(found, expected, strict=True):
        assert place == pytest.approx(wanted, abs=0.06)


HOSTILE = [
    "</svg><script>alert(1)</script>",
    "]]>",
    "&amp;",
    "&#0;&undefined;",
    '" onload="alert(1)" \'',
    "$x$ $\\frac{1}{",
    "nul \x00 bell \x07 escape \x1b[31m c1 \x85",
    "lone \ud800 surrogate",
    "שלום \u202eright to left\u202c",
]


def test_a_picture_shows_the_median_of_all_runs():
    """A run that is not shown whole lacks trials and timelines; a list of another length is another thing."""
    whole = {
        "ms": {"a": 9.0, "b": 1},
        "n": [1, 2],
        "rows": [{"us": 5.0, "us_trials": [5.0]}],
        "ok": True,
        "name": "x",
    }
    others = [
        {"ms": {"a": 1.0, "b": 2}, "n": [1, 2, 3], "rows": [{"us": 7.0}], "ok": False, "name": "y"},
        {"ms": {"a": 2.0, "b": 4}, "n": [3, 4], "rows": [{"us": 9.0}], "ok": True, "name": "y", "more": 1},
        {"ms": {"a": 8.0}, "n": None, "rows": [], "ok": True, "name": "y"},
    ]
    shown = {
        "ms": {"a": 5.0, "b": 2},
        "n": [1, 2],
        "rows": [{"us": 7.0, "us_trials": [5.0]}],
        "ok": True,
        "name": "x",
    }
    assert typical([whole, *others]) == shown
    assert typical([whole]) == whole


@pytest.mark.parametrize("label", HOSTILE)
def test_no_recorded_text_breaks_a_picture(drawn, label, recwarn):
    def plot(results, ceilings):
        drawing, (axes, other) = plt.subplots(1, 2)
        (name,) = results["ms"]
        axes.plot([1, 2], [3, 4], label=name)
        axes.set(title=name, xlabel=name, ylabel=name)
        axes.set_xticks([1], labels=[name])
        axes.annotate(name, (1, 3))
        other.set_title(results["name"])
        other.bar([name], [1])
        drawing.suptitle(name)
        return drawing

    pictures = drawn(plot, {"ms": {label: 1}, "name": label})
    for variant in ("wide", "narrow"):
        assert texts(pictures[variant]).count(plain(label)) >= 6
        whole = [turn(pictures[variant]) for turn in (svg.in_file, svg.on_paper)]
        assert texts(whole[0]) == texts(pictures[variant]) and len(texts(whole[1])) == len(texts(whole[0]))
        assert {
            found.tag.rpartition("}")[2] for found in ElementTree.fromstring(pictures[variant]).iter()
        } <= ELEMENTS
        assert marks(pictures[variant])[0][0] == plain(f"{label}: {label} · {label}: 3")
    assert not recwarn.list


def test_colours_are_the_pages(drawn):
    def plot(results, ceilings):
        drawing, axes = plt.subplots()
        for i in range(6):
            axes.plot([1, i], linestyle="--" if i else "-")
        axes.axhline(3, color="gray")
        axes.text(0, 2, "on yellow", color="black")
        axes.set_ylabel("turned")
        return drawing

    picture = drawn(plot)["wide"]
    styles = " ".join(found.get("style", "") for found in ElementTree.fromstring(picture).iter())
    assert all(f"stroke: var(--ov-{name})" in styles for name in ("series-1", "series-6", "ceiling", "grid"))
    assert "fill: var(--ov-ink)" in styles and "#0072b2" not in styles and "stroke-dasharray" in styles
    assert "font-family" not in picture, "its letters are the page's"
    black = [found.text for found in elements(picture, "text") if "fill" not in found.get("style", "")]
    assert black == ["on yellow"], "all other text takes the page's ink"
    assert "fill:#000;" in ElementTree.fromstring(picture).get("style")
    turned = [found.get("transform") for found in elements(picture, "text") if found.text == "turned"]
    assert turned[0].startswith("rotate(-90 ")
    paper, file = svg.on_paper(picture), svg.in_file(picture)
    assert "var(" not in paper and "background:#fff" in paper and "stroke: #0072b2" in paper
    (style,) = elements(file, "style")
    assert "--ov-series-1:#0072b2" in style.text and "--ov-ink:#e3e7eb" in style.text


def test_a_part_stands_beside_the_picture(drawn):
    """`plot` returns it by its name; it is a picture with numbers like any other."""

    def plot(results, ceilings):
        main, part = (on_axes(lambda axes, n=n: axes.bar(["a"], [n]))(results, ceilings) for n in (3, 4))
        return main, {"more": part}

    pictures = drawn(plot)
    assert marks(pictures["wide"])[0][0] != marks(pictures["parts"]["more"]["wide"])[0][0]
    assert pictures["tables"][0]["series"][0]["points"] == [["a", 3]]
    assert pictures["parts"]["more"]["tables"][0]["series"][0]["points"] == [["a", 4]]


def test_a_part_that_is_not_drawn_is_an_error(small_book, template):
    small_book.snippet("a/b", "def main():\n    return {}\n\n\ndef plot(results, ceilings):\n    pass\n")
    small_book.commit("a/b", template, {})
    book = small_book.book("never")
    (recording,) = book.recordings("a/b").values()
    pictures = SimpleNamespace(of=lambda recording: {"sizes": {}, "parts": {"more": {}}})
    with pytest.raises(OverlapError, match="returns no part 'lost'; there are more"):
        View(Site(book, pictures)).figure(recording, part="lost")


def test_pictures_on_one_page_share_no_ids(drawn):
    """What is cut off or repeated is named by an id, which counts in the whole page."""

    def ids(picture: str) -> set[str]:
        return set(re.findall(r' id="([^"]+)"', picture))

    pictures = drawn(on_axes(lambda axes: axes.plot([1, 2], marker="o")))
    assert ids(pictures["wide"]) and not ids(pictures["wide"]) & ids(pictures["narrow"])
    for variant in ("wide", "narrow"):
        used = set(re.findall(r'(?:href="|url\()#([^")]+)', pictures[variant]))
        assert used == ids(pictures[variant])


@pytest.mark.parametrize("rows, height", [(1, 252), (2, 259), (3, 367)])
def test_sizes(drawn, rows, height):
    pictures = drawn(lambda results, ceilings: plt.subplots(rows)[0])
    assert pictures["sizes"] == {"wide": [504, height], "narrow": [266, height]}
    assert f'viewBox="0 0 504 {height}' in pictures["wide"]


def test_powers_of_ten_are_numbers(drawn):
    picture = drawn(
        on_axes(lambda axes: axes.plot([1e-3, 1e6], [2, 3]) and axes.set(xscale="log", yscale="log"))
    )
    assert {"0.01", "1,000,000", "2"} <= set(texts(picture["wide"])) and "$" not in picture["wide"]


ERRORS = {
    "no figure": (lambda results, ceilings: None, r"plot\(\) must return a matplotlib figure, not NoneType"),
    "no axes": (
        lambda results, ceilings: plt.figure(),
        r"plot\(\) returned a figure without axes; draw on some",
    ),
    "pie": (on_axes(lambda axes: axes.pie([1, 2])), "draws a Wedge, .*; draw with one of plot, "),
    "area": (on_axes(lambda axes: axes.fill_between([1, 2, 3], 3)), "draws a .*PolyCollection"),
    "polar": (
        on_axes(lambda axes: axes.plot([1]), subplot_kw={"projection": "polar"}),
        "draws on polar axes",
    ),
    "raised": (
        lambda results, ceilings: results["n"],
        r"plot\(\) cannot be drawn: KeyError: 'n'; mend it, or what",
    ),
    "infinite limit": (
        on_axes(lambda axes: axes.set_xlim(0, INF)),
        "cannot be drawn: ValueError: Axis limits",
    ),
}


@pytest.mark.parametrize("plot, message", ERRORS.values(), ids=ERRORS)
def test_what_cannot_be_said_is_an_error(drawn, plot, message):
    with pytest.raises(OverlapError, match=rf"^snippets/a/b.py: .*{message}"):
        drawn(plot)


INFINITE = {
    "point": lambda axes: axes.plot([1, 2], [INF, 3], label="a b"),
    "span": lambda axes: axes.broken_barh([(1, INF), (2, 1)], (0, 1), label="a b"),
    "limit": lambda axes: axes.axhline(INF, label="a b"),
}


@pytest.mark.parametrize("act", INFINITE.values(), ids=INFINITE)
def test_infinity_is_refused(drawn, act):
    with pytest.raises(OverlapError, match=r"plot\(\) draws infinity in '.*'; draw NaN or None where"):
        drawn(on_axes(act))


GAPS = {
    "points": lambda axes: axes.plot([1, 2, 3], [NAN, None, 3]),
    "bars": lambda axes: axes.barh(["a", "b"], [NAN, 3]),
    "spans": lambda axes: axes.broken_barh([(NAN, 1), (2, 1)], (0, 1)),
    "nothing else": lambda axes: axes.plot([NAN, NAN]),
}


@pytest.mark.parametrize("act", GAPS.values(), ids=GAPS)
def test_what_is_not_measured_is_a_gap(drawn, act):
    pictures = drawn(on_axes(act))
    assert "nan" not in pictures["wide"].lower().replace("nan</text>", "") and pictures["tables"]
    assert number(None) == "–" and number(1234.5) == "1,234.5"


PLOT = """
def plot(results, ceilings):
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots()
    axes.plot([1, results["n"]], marker="o", label="measured")
    figure.legend()
    return figure


def main():
    return {"n": 3}
"""


def test_pictures_are_drawn_once_and_again_when_the_code_changes(small_book, template):
    small_book.snippet("a/line", PLOT)
    small_book.commit("a/line", template, {"n": 3})

    def pictures() -> Pictures:
        return Pictures(small_book.book("never"))

    first = pictures()
    (run,) = first.missing()
    with pytest.raises(OverlapError, match=r"a/line\.py: its picture on cpu is not drawn"):
        first.of(run)
    with drawing_pool(small_book.root) as pool:
        assert first.draw(pool) == 1
        assert (
            pictures().missing() == [] and pictures().of(run)["tables"][0]["series"][0]["name"] == "measured"
        )
        drawn = pictures().of(run)
        first.draw(pool, [run])
        assert pictures().of(run) == drawn, "the same bytes each time"
        small_book.snippet("a/line", PLOT.replace('results["n"]', 'results["m"]'))
        with pytest.raises(
            OverlapError, match=r"line\.py:\d+: plot\(\) .*KeyError: 'm'.* \(with the numbers of cpu\)"
        ):
            pictures().draw(pool)


@pytest.fixture
def arranged(drawn):
    """`arranged(plot)`: the figure that `plot` made, as it is after it was drawn for a narrow page."""

    def arrange(plot):
        kept = {}

        def keep(results, ceilings):
            kept["figure"] = plot()
            return kept["figure"]

        drawn(keep)
        return kept["figure"]

    return arrange


def test_panels_of_lanes_have_one_time_scale_one_colour_for_a_thing_and_light_waiting(arranged):
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


def test_logarithmic_bars_are_dots_whose_labels_cover_the_line_that_would_strike_them(arranged):
    def plot():
        drawing, axes = plt.subplots()
        axes.bar_label(axes.barh([0, 1], [1.0, 2000.0]), fmt="%.3g", padding=3)
        axes.axvline(1.5, color="gray", linestyle="--", label="limit")
        axes.set(xscale="log", xlabel="ms")
        axes.legend()
        return drawing

    drawing = arranged(plot)
    (axes,) = drawing.axes
    assert [bar.get_visible() for bar in axes.patches] == [False, False]
    assert [line.get_xydata().tolist() for line in axes.lines[1:]] == [[[1.0, 0.0]], [[2000.0, 1.0]]]
    assert [label.get_text() for label in axes.texts] == ["1", "2,000"]
    struck, free = axes.texts
    place, line = struck.get_window_extent(), axes.transData.transform((1.5, 0))[0]
    assert place.x0 < line < place.x1 and free.get_bbox_patch() is None
    assert to_hex(struck.get_bbox_patch().get_facecolor()) == svg.PAPER
    assert struck.zorder > axes.lines[0].zorder
    assert axes.get_legend() is None and [text.get_text() for text in drawing.legends[0].texts] == ["limit"]


def test_a_long_legend_and_many_ticks_fit_a_narrow_page(arranged):
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


@pytest.mark.parametrize(
    ("heading", "told"),
    [
        ("ms per step", "11.6 ms per step"),
        ("time of one send (µs)", "time of one send: 11.6 µs"),
        ("bus bandwidth, GB/s", "bus bandwidth: 11.6 GB/s"),
        ("step", "step: 11.6"),
        ("", "11.6"),
    ],
)
def test_a_mark_says_a_number_before_its_unit(heading, told):
    assert series.said(heading, 11.6) == told
