"""Declared pictures: what they show as numbers, and their SVG."""

import json
import math
import re
from typing import Any, get_args
from xml.etree import ElementTree

import pytest
from conftest import ROOT

from overlap import OverlapError
from overlap.book.book import Book
from overlap.run.hardware import name_of
from overlap.run.recording import dump, sealed, write
from overlap.run.text import plain
from overlap.site import numbers, ranges, svg
from overlap.site.draw import _KINDS, NARROW, WIDTHS, is_wait, placed
from overlap.site.layout import Layout, _values
from overlap.site.pictures import Pictures, typical
from overlap.site.scales import LINE, Scale, log_ticks, number, round_ticks, text_width, wrapped
from snippets.pictures import (
    Axis,
    Bars,
    Cells,
    Columns,
    Dots,
    Line,
    Mark,
    Note,
    Panel,
    Picture,
    Rule,
    Spans,
    bars,
    fitted,
    sizes,
    stacked,
    sweep,
    timelines,
)

EVENTS = [["CPU", 0.0, 10.0, "launch"], ["stream 7", 12.0, 40.0, "kernel"], ["CPU waits", 10.0, 42.0, "wait"]]
EVERY_MARK = Picture(
    [
        Panel([Bars({"a": 1.0, "b": 2.0}, "bars"), Rule("x", 1.5, "limit")], Axis("ms")),
        Panel([Columns([1, 2], [3.0, 4.0], "columns", texts=["3", "4"])], Axis("step"), Axis("GB")),
        Panel([Line([1, 10, 100], [1.0, None, 3.0], "line", step=True)], Axis("n", log=True), Axis("s")),
        Panel([Dots([1.0, 2.0], ["r", "s"], "dots", diamond=True), Note(1.0, "r", "here")], Axis("W")),
        Panel([Spans("GPU", [(0.0, 1.0), (2.0, 3.0)], "work", apart=True)], Axis("ms")),
        Panel([Cells(["1", "2"], ["x"], [[1.0, 2.0]], "times", [["1.0", "2.0"]])], Axis("streams")),
    ]
)


def draw(picture, width: int, beside=()) -> tuple[str, int, int]:
    """Its SVG, width and height."""
    drawing = placed(picture, width, beside)
    return drawing.svg, drawing.width, drawing.height


#: Of each mark one that stands alone at 500 along x, or at 600 along y, or both.
PLACED: dict[Any, Any] = {
    Bars: Bars({"a": 500.0}),
    Columns: Columns([500], [600.0]),
    Line: Line([500.0], [600.0]),
    Dots: Dots([500.0], [600.0]),
    Spans: Spans("GPU", [(499.0, 1.0)]),
    Rule: Rule("y", 600.0),
    Note: Note(500.0, 600.0, "here"),
}
#: Marks that have rows along y, or whose places are said by what is drawn with them.
NO_X, NO_Y = {Rule}, {Bars, Spans}


def told(picture, width=504) -> list[str]:
    return re.findall(r"<title>(.*?)</title>", draw(picture, width)[0])


def heights(picture) -> list[float]:
    return [
        float(h) for h in re.findall(r'height="([\d.]+)" style="fill:var\(--ov-series', draw(picture, 504)[0])
    ]


def test_the_style_sheet_calls_narrow_what_pictures_and_scripts_do():
    css = (ROOT / "docs/assets/overlap.css").read_text()
    widths = re.findall(r"@media [^{]*\(max-width: ([\d.]+)rem\)", css)
    assert {f"{width}rem" for width in widths if 28 <= float(width) < 36} == {NARROW}
    wider = re.findall(r"@media [^{]*\(min-width: ([\d.]+)rem\)", css)
    above = float(NARROW.removesuffix("rem")) + 0.01
    assert {float(width) for width in wider if 28 <= float(width) < 36} == {above}


@pytest.mark.parametrize("mark", get_args(Mark))
def test_an_axis_has_room_for_each_mark(mark):
    if mark is Cells:  # its columns and rows are words
        return
    layout = Layout(Picture([Panel([PLACED[mark]])]), 504, ())
    layout.place(0.0)
    (plot,) = layout.plots
    assert plot.x.shows(500.0) == (mark not in NO_X) and (mark in NO_Y or plot.y.shows(600.0))


@pytest.mark.parametrize("width", [504, 266])
def test_each_mark_is_drawn_within_the_picture_and_tells_its_value(width):
    text, wide, high = draw(EVERY_MARK, width)
    assert wide == width and high > 400 and text.startswith("<svg") and text.endswith("</svg>")
    assert "nan" not in text.lower() and "inf" not in text
    places = [float(x) for x in re.findall(r'(?: x|x1|x2|cx)="(-?[\d.]+)"', text)]
    assert min(places) >= -6 and max(places) <= width + 6
    words = told(EVERY_MARK, width)
    assert {
        "bars · a · 1 ms",
        "limit · 1.5 ms",
        "columns · step: 1 · 3 GB",
        "line · n: 1 · 1 s",
    } <= set(words)
    assert {
        "line · n: 1 · 1 s",
        "dots · 1 W · r",
        "x, 2 streams · 2 times",
        "work · 2 to 5 ms · lasts 3 ms",
    } <= set(words)


def test_a_pointer_is_shown_three_digits_as_far_as_they_tell_something():
    assert numbers.alike([0.005983, 0.704]) == ["0.006", "0.704"]
    assert numbers.alike([22.48, 26.38]) == ["22.5", "26.4"]
    assert [numbers.short(value) for value in (1234.5, 0.08488, 0.0, 16384)] == [
        "1,234",
        "0.0849",
        "0",
        "16,384",
    ]


def test_what_was_not_measured_is_a_gap_in_the_line_and_a_dash_in_the_table():
    picture = sweep([1, 2, 3, 4], {"y": [1.0, math.nan, 3.0, 4.0]}, {}, xlabel="n", ylabel="ms")
    (table,), more = numbers.tables(numbers.read(picture))
    assert table["series"][0]["points"] == [[1, 1.0], [2, None], [3, 3.0], [4, 4.0]] and more == 0
    assert len(told(picture)) == 3
    assert draw(picture, 504)[0].count("<path") == 1  # the lone point has no line
    with pytest.raises(OverlapError, match="draws infinity in 'y'; draw NaN or None"):
        draw(sweep([1, 2], {"y": [1.0, math.inf]}, {}), 504)


def test_bars_beside_each_other_stand_apart_and_stacked_ones_in_one_row():
    beside = bars({"a": {"x": 1.0, "y": 2.0}}, {}, "ms")
    assert heights(beside) == [9.0, 9.0, 10.0, 10.0]  # of the legend, and of the bars, which have a gap
    whole = stacked({"x": {"a": 1.0}, "y": {"a": 2.0}}, "ms")
    text = draw(whole, 504)[0]
    assert text.count('height="14" style="fill:var(--ov-series') == 2
    assert ">3</text>" in text  # the sum, behind the last
    ends = re.findall(r'<rect x="([\d.]+)" y="[\d.]+" width="([\d.]+)" height="14" style', text)
    (x, wide), (next_x, _) = ((float(a), float(b)) for a, b in ends)
    assert next_x == pytest.approx(x + wide, abs=0.11)
    uneven = draw(stacked({"x": {"a": 1.0, "b": 5.0}, "y": {"a": 3.0}}, "ms"), 504)[0]
    assert ">4</text>" in uneven and ">5</text>" in uneven, "a row that lacks a part has its sum, too"


def test_bars_on_a_logarithmic_axis_are_dots_and_none_of_its_texts_leaves_the_picture():
    picture = bars({"a": 1e-4, "b": 123_456.0}, {"limit": 10.0}, "s", log=True)
    text = draw(picture, 266)[0]
    assert text.count("<circle") == 2 and ">123,000</text>" in text
    (x,) = re.findall(r'<text x="([\d.]+)" y="[\d.]+">123,000<', text)
    assert float(x) + text_width("123,000") <= 266


def test_an_axis_of_values_says_that_it_is_logarithmic_and_one_of_sizes_does_not():
    for ylog, label in ((True, "ms (log)"), (False, "ms")):
        drawn = draw(
            sweep([1, 10], {"y": [1.0, 300.0]}, {}, xlog=True, ylog=ylog, xlabel="n", ylabel="ms"), 504
        )
        assert {label, "n"} <= set(re.findall(r"<text[^>]*>([^<]*)</text>", drawn[0]))
    assert ">s (log)</text>" in draw(bars({"a": 1e-4, "b": 10.0}, {}, "s", log=True), 504)[0]


def test_a_text_stands_in_its_bar_where_a_line_would_strike_it_behind_and_covers_it_where_there_is_no_room():
    def place(values: dict, ceilings: dict) -> tuple[float, bool, bool]:
        """Where the text begins, whether it is written in paper, whether on paper."""
        text = draw(bars(values, ceilings, "ms"), 504)[0]
        (x, style) = re.search(r'<text x="([\d.]+)" y="[\d.]+"([^>]*)>9.9', text).groups()
        return float(x), "--ov-paper" in style, '12" style="fill:var(--ov-paper)"' in text

    behind, *looks = place({"a": 9.9}, {})
    assert looks == [False, False]
    inside, *looks = place({"a": 9.9}, {"limit": 10.0})
    assert looks == [True, False] and inside < behind - text_width("9.90")
    for short, inside in (("5.00", 2), ("0.100", 1)):  # all of them, if each has room
        text = draw(bars({"a": 9.9, "b": float(short)}, {"limit": 10.0}, "ms"), 504)[0]
        assert len(re.findall(f'style="fill:var\\(--ov-paper\\)">(?:9.90|{short})<', text)) == inside
    assert place({"a": 9.9}, {"limit": 10.0, "half": 9.6})[1:] == (False, True)
    beside, *looks = place({"a": 9.9, "b": 12.0}, {"limit": 9.92})
    assert looks == [False, False] and beside > place({"a": 9.9, "b": 12.0}, {})[0] + 1
    assert (
        'height="12" style="fill:var(--ov-paper)"'
        in draw(bars({"a": 9.9}, {"b": 10.0}, "ms", log=True), 504)[0]
    )


def test_lanes_have_their_colours_and_panels_one_scale_where_the_shortest_can_be_seen():
    picture = timelines({"one": EVENTS, "two": [["CPU", 0.0, 26.0, "x"]]})
    text = draw(picture, 504)[0]
    assert "fill:color-mix(in srgb, var(--ov-series-1) 35%" in text, "the CPU waits for the GPU"
    assert text.count(">µs</text>") == 1  # the label of the time scale that both share
    far = timelines({"one": EVENTS, "two": [["CPU", 0.0, 2.0, "x"]]})
    assert draw(far, 504)[0].count(">µs</text>") == 2
    far.panels[0].x.label = ""
    assert draw(far, 504)[0].count(">0</text>") == 1, (
        "a label at the last alone: one scale, as its author says"
    )
    assert "CPU · 0 to 10 µs · lasts 10 µs" in told(picture)


def test_short_spans_that_follow_each_other_are_told_together():
    spans = [["stream 7", float(i), 1.0, "k"] for i in range(400)]
    words = told(timelines({"many": spans}))
    assert len(words) < 80 and sum(int(word.split(" · ")[2].split()[0]) for word in words) == 400


def test_a_picture_that_stands_beside_another_has_room_for_it():
    small, large = bars({"a": 1.0}, {}, "ms"), bars({"a": 10.0}, {}, "ms")

    def length(text: str) -> float:
        return float(re.search(r'width="([\d.]+)" height="14" style="fill', text)[1])

    alone = length(draw(small, 504)[0])
    assert length(draw(small, 504, [large])[0]) == pytest.approx(alone / 10, rel=0.1)
    assert length(draw(large, 504, [small])[0]) == pytest.approx(alone, rel=0.1)


def test_the_legend_leaves_out_what_an_axis_or_a_note_says():
    marks = [Line([1, 2], [1, 2], "GB/s"), Line([1, 2], [2, 3], "noted"), Line([1, 2], [3, 4], "new")]
    picture = Picture([Panel([*marks, Note(1, 2, "noted")], Axis("n"), Axis("GB/s"))])
    text = draw(picture, 504)[0]
    assert [text.count(f">{name}</text>") for name in ("GB/s", "noted", "new")] == [1, 1, 1]


def test_what_is_no_picture_is_refused():
    with pytest.raises(OverlapError, match=r"must return a Picture of snippets/pictures.py, not dict"):
        draw({}, 504)
    with pytest.raises(OverlapError, match="empty panel"):
        draw(Picture([Panel([])]), 504)


def test_text_from_outside_is_escaped_and_long_names_are_wrapped():
    text = draw(bars({"<b>a very long name of a row & more of it</b>": 1.0}, {}, "ms"), 266)[0]
    assert "<b>" not in text and "&lt;b&gt;" in text
    assert all(
        text_width(line) <= 0.42 * 266 + 10
        for line in wrapped("a very long name of a row", 0.42 * 266).split("\n")
    )


def test_a_number_and_its_unit_stand_on_one_line():
    width = text_width("pinned bytes: 42.6")
    assert wrapped("pinned bytes: 42.6 ms", width).split("\n") == ["pinned bytes:", "42.6 ms"]
    assert wrapped("4 steps of it", text_width("4 steps")).split("\n")[0] == "4 steps", "no unit"


def test_words_without_room_stand_upright():
    def turned(words: list[str]) -> int:
        axis = Axis("phase", ticks=dict(enumerate(words)))
        picture = Picture([Panel([Line(range(6), range(6))], axis)])
        return draw(picture, 266)[0].count("rotate(-90")

    assert turned(["the whole forward pass", "the backward pass", "optimizer"] * 2) == 6
    assert turned(["a", "b", "c"] * 2) == 0
    assert turned(["model", "batch", "back"] * 2) == 0, "every second one stands a line lower"
    assert turned(["1,000,000", "2,000,000", "3,000,000"] * 2) == 0, "of numbers some are left out"


def test_cells_without_a_value_are_not_there():
    cells = Cells(["1", "2"], ["x"], [[3.0, None]])
    (told,) = numbers.read(Picture([Panel([cells])]))
    assert told.rows == [["x, 1", 3.0]]
    assert draw(Picture([Panel([cells])]), 300)[0].count("ov-point") == 1


def test_a_line_does_not_strike_a_note_but_one_on_a_bar_has_no_paper():
    def halos(color: str) -> int:
        note = Note(2.0, "r", "1,965", color=color)
        picture = Picture([Panel([Dots([1.0, 2.0], ["r", "r"]), note, Rule("x", 2.1)], Axis("W"))])
        return draw(picture, 504)[0].count("paint-order:stroke")

    assert [halos(color) for color in ("ink", "ceiling", "paper")] == [1, 1, 0]


def test_ticks_are_round_numbers_within_the_axis():
    assert round_ticks(0, 10, 5) == [0, 2, 4, 6, 8, 10]
    assert round_ticks(0.13, 0.37, 4) == [0.2, 0.3]
    assert log_ticks(1, 1000) == [1, 10, 100, 1000]
    assert log_ticks(3, 60) == [5, 10, 20, 50]
    across, up = Scale(0, 400, 0, 170), Scale(0, 400, 170, 0)
    assert across.ticks() == [0, 100, 200, 300, 400] and up.ticks() == [0, 100, 200, 300, 400]
    scale = Scale(1, 100, 0, 200, log=True)
    assert scale(10) == 100 and scale.shows(50) and not scale.shows(0) and not scale.shows(500)
    assert log_ticks(11.3, 14.1) == [12, 13, 14], "no power of ten lies there"


def test_large_numbers_are_millions_at_an_axis_and_whole_in_the_table():
    picture = sweep([4096, 1048576], {"y": [1.0, 3e6]}, {}, xlog=True)
    text = draw(picture, 504)[0]
    assert {">4,096</text>", ">1.05 M</text>", ">2 M</text>"} <= set(re.findall(r">[^<>]+</text>", text))
    (table,), _ = numbers.tables(numbers.read(picture))
    assert [row[0] for row in table["series"][0]["points"]] == [4096, 1048576]


def test_sizes_have_the_unit_that_fits():
    assert sizes([1, 512, 1024, 1536, 2**20]) == {
        1: "1 KiB",
        512: "512 KiB",
        1024: "1 MiB",
        1536: "1.5 MiB",
        2**20: "1 GiB",
    }


def test_a_limit_is_seen_on_a_line_that_it_covers():
    text = draw(sweep([1, 2], {"y": [1.0, 2.0]}, {"limit": [1.0, 2.0]}), 504)[0]
    first, last = re.findall(r'<path d="[^"]*" style="([^"]*)"', text)
    assert "stroke:var(--ov-series-1)" in first and "stroke:var(--ov-ink)" in last and "dasharray" in last


def test_the_words_of_an_axis_stand_in_the_table():
    picture = sweep([0, 1], {"y": [1.0, 2.0]}, {}, xlabel="turn", ylabel="times")
    picture.panels[0].x.ticks = {0: "first\none", 1: "again"}
    (table,), _ = numbers.tables(numbers.read(picture))
    assert table["series"][0]["points"] == [["first one", 1.0], ["again", 2.0]]


def test_whole_numbers_are_told_with_all_digits_and_measured_ones_with_four():
    picture = sweep([16384, 65536], {"a": [1.23456, 2.0]}, {}, xlabel="KiB", ylabel="ms")
    (table,), _ = numbers.tables(numbers.read(picture))
    assert table["series"][0]["points"][0] == [16384, 1.235]
    assert "a · 16,384 KiB · 1.23 ms" in told(picture)


def test_a_lane_that_waits_takes_no_colour_from_the_next():
    rows = [["CPU", 0.0, 1.0, "launch"], ["CPU waits", 1.0, 2.0, "wait"], ["main", 1.0, 2.0, "kernel"]]
    text, *_ = draw(timelines({"": rows}), 504)
    assert "fill:var(--ov-series-1)" in text and "fill:var(--ov-series-2)" not in text


def test_standing_bars_begin_at_zero_at_the_lower_end_of_their_axis():
    text, *_ = draw(Picture([Panel([Columns([1, 2], [17.5, 10.0])], Axis("n"), Axis("%"))]), 504)
    ticks = {word: float(y) for y, word in re.findall(r'y="([\d.]+)" text-anchor="end">([\d.]+)<', text)}
    assert list(ticks) == ["0", "5", "10", "15"]
    lower_ends = {
        float(y) + float(high)
        for y, high in re.findall(
            r'y="([\d.]+)" width="[\d.]+" height="([\d.]+)" style="fill:var\(--ov-series', text
        )
    }
    assert all(abs(ticks["0"] - 3.5 - end) < 0.2 for end in lower_ends) and lower_ends


def test_a_limit_beyond_all_bars_does_not_stand_at_the_edge():
    text, *_ = draw(bars({"a": 1.0}, {"limit": 9.0}, "ms"), 504)
    (limit,) = re.findall(r'<line x1="([\d.]+)"[^>]*stroke:var\(--ov-ink\);stroke-width:1.4', text)
    edge = max(float(x) for x in re.findall(r'x2="([\d.]+)"', text))
    assert float(limit) < edge - 4


def test_panels_side_by_side_with_the_same_rows_name_them_once():
    def panel(*rows: str) -> Panel:
        return Panel([Cells(["1", "2"], rows, [[1.0, 2.0] for _ in rows], "times")])

    same = Picture([panel("pinned", "pageable"), panel("pinned", "pageable")], columns=2)
    assert draw(same, 504)[0].count(">pinned<") == 1 and draw(same, 266)[0].count(">pinned<") == 1
    widths = re.findall(r'width="([\d.]+)" height="18" style="fill:var\(--ov-series', draw(same, 504)[0])
    assert list(map(float, widths)) == pytest.approx([float(widths[0])] * 8, abs=0.2)
    unlike = Picture([panel("pinned", "pageable"), panel("pinned")], columns=2)
    assert draw(unlike, 504)[0].count(">pinned<") == 2
    words = [["a thousand times"] * 2] * 2
    for each in same.panels:
        (cells,) = each.marks
        assert isinstance(cells, Cells)
        cells.texts = words
    assert draw(same, 266)[0].count(">pinned<") == 2, "on a narrow page these have no room beside each other"


def test_a_letter_on_a_bar_is_seen_where_a_limit_passes():
    picture = timelines({"": [["main", 0.0, 10.0, "kernel"]]})
    picture.panels[0].marks += [Note(5.0, "main", "d", "center", color="paper"), Rule("x", 5.0)]
    assert "<rect" in draw(picture, 504)[0] and 'fill:var(--ov-paper)"/>' not in draw(picture, 504)[0]


HOSTILE = [
    "</svg><script>alert(1)</script>",
    "]]>",
    "&amp;",
    "&#0;&undefined;",
    '" onload="alert(1)" \'',
    "nul \x00 bell \x07 escape \x1b[31m c1 \x85",
    "lone \ud800 surrogate",
    "שלום \u202eright to left\u202c",
]


def texts(picture: str) -> list[str]:
    """What is written in a picture; what is not XML is an error."""
    found = ElementTree.fromstring(picture).iter()
    return ["".join(each.itertext()) for each in found if each.tag.endswith("}text")]


@pytest.mark.parametrize("label", HOSTILE)
def test_no_recorded_text_breaks_a_picture(label):
    results = typical([{"ms": {label: 1.0}, "name": label}])
    (name,) = results["ms"]
    marks = [Line([1, 2], [3, 4], name), Note(1, 3, name), Rule("y", 3.5, name)]
    panel = Panel(marks, Axis(name, ticks={1: name}), Axis(name), results["name"])
    picture = Picture([panel, Panel([Bars({name: 1.0}, name), Spans(name, [(0, 1)], name)])])
    for width in (504, 266):
        text = draw(picture, width)[0]
        assert "".join(texts(text)).replace(" ", "").count(plain(label).replace(" ", "")) >= 6
        for turned in (svg.in_file(text), svg.on_paper(text)):
            assert texts(turned) == texts(text)
        tags = {found.tag.rpartition("}")[2] for found in ElementTree.fromstring(text).iter()}
        assert tags <= {"svg", "g", "path", "rect", "line", "circle", "title", "text"}


def test_each_kind_of_mark_is_drawn_has_places_and_rows():
    """But for cells, which stand in rows and columns, and notes, whose text is no value."""
    kinds = {mark.__name__ for mark in get_args(Mark)}
    marks = [mark for panel in EVERY_MARK.panels for mark in panel.marks]
    placed = {type(mark).__name__ for mark in marks if [*_values(mark, "x"), *_values(mark, "y")]}
    assert set(_KINDS) == kinds, "draw.py"
    assert placed == kinds - {"Cells"}, "layout.py"
    assert set(numbers._READ) == kinds - {"Note"}, "numbers.py"


def test_colours_are_the_pages_and_a_file_has_its_own():
    lines = {str(i): [i, i + 1] for i in range(6)}
    text = draw(sweep([1, 2], lines, {"limit": 3.0}, ylabel="y"), 504)[0]
    assert all(f"stroke:var(--ov-{name})" in text for name in ("series-1", "series-6", "ink", "grid"))
    assert "#" not in text and "font-family" not in text
    paper, file = svg.on_paper(text), svg.in_file(text)
    assert "var(" not in paper and "background:#fff" in paper and "stroke:#0a6cb0" in paper
    assert "--ov-series-1:#0a6cb0" in file and "--ov-ink:#e3e7eb" in file
    assert "--ov-link" not in file, "a file declares what it uses"


@pytest.mark.parametrize(
    ("heading", "said"),
    [
        ("ms per step", "11.6 ms per step"),
        ("time of one send (µs)", "time of one send: 11.6 µs"),
        ("bus bandwidth, GB/s", "bus bandwidth: 11.6 GB/s"),
        ("step", "step: 11.6"),
        ("", "11.6"),
    ],
)
def test_a_mark_says_a_number_before_its_unit(heading, said):
    assert numbers.said(heading, 11.6) == said


def test_a_picture_shows_the_median_of_all_runs():
    """A run that is not shown whole lacks trials and timelines; a list of another length is another thing."""
    whole = {"ms": {"a": 9.0, "b": 1}, "n": [1, 2], "rows": [{"us": 5.0, "us_trials": [5.0]}], "ok": True}
    others = [
        {"ms": {"a": 1.0, "b": 2}, "n": [1, 2, 3], "rows": [{"us": 7.0}], "ok": False},
        {"ms": {"a": 2.0, "b": 4}, "n": [3, 4], "rows": [{"us": 9.0}], "ok": True, "more": 1},
        {"ms": {"a": 8.0}, "n": None, "rows": [], "ok": True},
    ]
    shown = {"ms": {"a": 5.0, "b": 2}, "n": [1, 2], "rows": [{"us": 7.0, "us_trials": [5.0]}], "ok": True}
    assert typical([whole, *others]) == shown
    assert typical([whole]) == whole


PLOT = """
from snippets.pictures import sweep


def plot(results, ceilings):
    return sweep([0, 1], {"measured": [1, results["n"]]}, {})


def main():
    return {"n": 3}
"""


def test_a_page_asks_for_a_picture_and_what_cannot_be_drawn_is_named(small_book, template):
    small_book.snippet("a/line", PLOT)
    small_book.commit("a/line", template, {"n": 3})
    pictures = Pictures(small_book.book("never"))
    recording = pictures.book.recordings("a/line")["cpu"]
    picture = pictures.of(recording)
    assert picture["sizes"]["narrow"][0] == 266
    assert pictures.svg(recording, "", "wide") != pictures.svg(recording, "", "narrow")
    assert picture["tables"][0]["series"] == [{"name": "measured", "points": [[0, 1], [1, 3]]}]
    assert pictures.of(recording) is picture and pictures.problems() == []
    again = Pictures(small_book.book("never"))
    for variant in ("wide", "narrow"):
        same = again.svg(recording, "", variant) == pictures.svg(recording, "", variant)
        assert same, "the same bytes each time"
    small_book.snippet("a/line", PLOT.replace('results["n"]', 'results["m"]'))
    broken = Pictures(small_book.book("never"))
    (problem,) = broken.problems()
    expected = (
        r"snippets/a/line.py:\d+: plot\(\) cannot be drawn: KeyError: 'm'; .* \(with the numbers of cpu\)"
    )
    assert re.fullmatch(expected, problem)


def test_a_picture_has_its_own_axes_until_it_stands_beside_another_machine(small_book, template):
    small_book.snippet("a/line", PLOT)
    data = json.loads(small_book.commit("a/line", template, {"n": 8}, gpus=1).read_text())
    data["machine"]["gpus"][0]["name"] = "NVIDIA H100"
    data["profile"] = name_of(["NVIDIA H100"])
    write(small_book.path("a/line", data["profile"]), dump(sealed(data)))
    small_book.commit("a/line", template, {"n": 3}, gpus=1)
    small_book.commit("a/line", template, {"n": 50}, gpus=2)
    pictures = Pictures(small_book.book("never"))
    slow, fast = (pictures.book.recordings("a/line")[machine] for machine in ("h200", "h100"))

    def ends(recording, variant: str) -> tuple[float, float]:
        (plot,) = pictures.of(recording)["drawings"][variant].layout.plots
        return plot.y.low, plot.y.high

    assert ends(slow, "wide")[1] < 3.5 and 8 <= ends(slow, "wide-compared")[1] < 9
    assert list(pictures.of(slow)["sizes"]) == ["wide", "wide-compared", "narrow", "narrow-compared"]
    assert ends(fast, "wide") == ends(slow, "wide-compared"), "one of them has room for both"
    assert list(pictures.of(fast)["sizes"]) == ["wide", "narrow"], "no second file of the same picture"
    assert "8" in re.findall(r">(\d+)</text>", pictures.svg(slow, "", "wide-compared"))
    assert "8" not in re.findall(r">(\d+)</text>", pictures.svg(slow, "", "wide"))


def test_numbers_behind_bars_of_one_name_have_as_many_digits():
    def behind(values: dict) -> list[str]:
        return re.findall(
            r'<text x="[\d.]+" y="[\d.]+">([\d.,]+)</text>', draw(bars(values, {}, "ms"), 504)[0]
        )

    assert behind({"a": 46.9, "b": 47.0, "c": 1234.0}) == ["46.9", "47.0", "1,230"]
    assert behind({"a": 46, "b": 7}) == ["46", "7"]


def test_a_limit_of_each_row_is_one_block_of_the_table():
    rules = [Rule("x", at, "least", part=(row, row)) for row, at in (("a", 1.0), ("b", 2.0))]
    picture = Picture([Panel([Bars({"a": 3.0, "b": 4.0}, "took"), *rules], Axis("ms"))])
    (table,), _ = numbers.tables(numbers.read(picture))
    assert table["series"][1] == {"name": "least", "points": [["a", 1.0], ["b", 2.0]]}


def test_a_picture_is_told_in_words():
    def words(picture) -> str:
        return numbers.in_words(numbers.read(picture))

    assert words(bars({"eager": 7.912, "graph": 1.09}, {"limit": 0.5}, "ms")) == (
        "eager 7.912, graph 1.09 ms; limit: 0.5"
    )
    line = sweep([1, 2, 4], {"y": [1.0, None, 3.0]}, {}, xlabel="n", ylabel="GB/s")
    assert words(line) == "y: 1 GB/s at n: 1, 3 GB/s at n: 4"
    assert words(timelines({"one": EVENTS})).startswith("one · CPU: 10 µs in 1 part; one · CPU waits")
    assert len(words(bars({f"row {i}": 1.0 for i in range(200)}, {}, "ms"))) <= 400


def test_a_panel_without_a_label_has_the_unit_of_the_others():
    panels = [Panel([Bars({"a": 1.0, "b": 2.0}, "took")], title=title) for title in ("one", "two", "three")]
    panels[-1].x = Axis("ms")
    words = told(Picture(panels))
    assert len(words) == 6 and all(word.endswith(" ms") for word in words)


def test_lanes_of_devices_and_long_names_have_the_colours_of_their_kind():
    lanes = {
        "GPU: compute": 1,
        "CPU 1: copies": 3,
        "rank 0, NCCL": 4,
        "compute, copies": 1,
        "CPU 2": 5,
        "CPU, backward": 5,
    }
    for lane, color in lanes.items():
        text = draw(timelines({"": [[lane, 0.0, 1.0, "x"]]}), 504)[0]
        assert f'style="fill:var(--ov-series-{color})"' in text, lane


def test_other_lanes_of_a_timeline_leave_the_colours_of_the_four_answers_for_last():
    text = draw(timelines({"": [[lane, 0.0, 1.0, "x"] for lane in ("CPU", "a", "b", "c")]}), 504)[0]
    assert re.findall(r'z" style="fill:var\(--ov-series-(\d)\)', text) == ["5", "1", "2", "6"]


def test_where_somebody_waits_it_is_hatched_within_its_edges():
    waits, works = Spans("CPU waits", [(0.0, 4.0)], "CPU waits"), Spans("GPU", [(0.0, 4.0)], "GPU")
    assert is_wait(waits) and not is_wait(works)
    assert is_wait(Spans("GPU", [(0.0, 4.0)], "the GPU waits for data", "data", light=True)), "in a strip"
    assert not is_wait(Spans("a", [(0.0, 4.0)], "free", "ceiling", light=True)), "nothing else is hatched"
    text = draw(Picture([Panel([waits, works], Axis("ms", high=8.0))]), 504)[0]
    path, style = re.search(r'd="([^"]*l[^"]*)" style="([^"]*)"', text).groups()
    assert "stroke:" in style and style.count("--ov-series-1") == 2, "as the GPU it waits for"
    left, top, wide, high = map(float, re.match(r"M([\d.]+),([\d.]+)h([\d.]+)v([\d.]+)", path).groups())
    slants = [tuple(map(float, each)) for each in re.findall(r"M([\d.]+),([\d.]+)l([\d.]+),-([\d.]+)", path)]
    assert len(slants) > 10 and all(dx == dy for _, _, dx, dy in slants)
    for x, y, dx, dy in slants:
        assert (
            left - 0.6 <= x and x + dx <= left + wide + 0.6 and y <= top + high + 0.1 and y - dy >= top - 0.1
        )


def strip_of(width: int, *highs: float) -> tuple[list[str], list[float], float]:
    """Texts of a strip with a panel for each length of its axis, the feet of its titles, its height."""
    panels = []
    for title, high in zip(("fault", "second"), highs, strict=True):
        marks = [Spans(lane, [(0.0, 4.0)], lane) for lane in ("Python", "GPU")]
        panels.append(Panel(marks, Axis("ms", high=high), title=title))
    strip, _, tall = draw(Picture(panels, columns=2, low=True), width)
    assert tall < draw(Picture(panels, columns=2), width)[2]
    texts = re.findall(r'y="([\d.]+)"[^>]*>([^<]+)</text>', strip)
    titles = [float(y) for y, text in texts if text in ("fault", "second")]
    return [text for _, text in texts if not text.isdigit() or text == "0"], titles, tall


def test_a_strip_is_low_and_has_its_columns_and_no_label_at_its_axes():
    texts, titles, high = strip_of(504, 20.0, 20.0)
    assert texts == ["fault", "Python", "GPU", "0", "ms", "second", "0"], "the unit once, beside the numbers"
    assert titles[0] == titles[1] and high <= 70, "they are side by side"


def test_on_a_phone_a_strip_is_as_wide_as_the_page():
    """Of two steps the first; a step and its zoom, which has the numbers, one above the other."""
    texts, _, high = strip_of(266, 20.0, 20.0)
    assert texts == ["fault", "Python", "GPU", "0", "ms"] and high <= 70
    texts, titles, high = strip_of(266, 20.0, 40.0)
    assert texts == ["fault", "Python", "GPU", "second", "Python", "GPU", "0", "ms"]
    assert titles[0] < titles[1] and high <= 115


def test_pale_parts_of_a_lane_are_mixed_with_a_colour_that_a_dark_page_shows():
    marks = [
        Spans("GPU", [(0.0, 4.0)], "GPU", "gpu", light=True),
        Spans("GPU", [(4.0, 4.0)], "it waits", light=True),
    ]
    drawn = draw_wide([Panel(marks, Axis("ms"))])
    assert drawn.count("35%, var(--ov-pale))") == 1, "and where somebody waits with paper"


def test_spans_of_a_row_without_a_name_are_told_by_their_row():
    (word,) = told(Picture([Panel([Spans("weights", [(0, 16)])], Axis("MiB"))]))
    assert word == "weights · 0 to 16 MiB · size 16 MiB"


def test_marks_of_one_name_have_one_colour_in_all_panels_and_the_only_bars_no_legend():
    panels = [Panel([Line([1, 2], [1, 2], name) for name in names]) for names in (["a", "b"], ["b", "c"])]
    lines = re.findall(r'<path d="M[^"]*" style="fill:none;stroke:var\(--ov-series-(\d)\)', draw_wide(panels))
    assert lines == ["1", "2", "2", "1"], "b is as in the first panel, and c takes what is free in its own"
    assert ">took</text>" not in draw_wide([Panel([Bars({"a": 1.0}, "took")], Axis("ms"))])
    assert ">took</text>" in draw_wide(
        [Panel([Bars({"a": 1.0}, "took"), Rule("x", 2.0, "limit")], Axis("ms"))]
    )


def draw_wide(panels: list[Panel]) -> str:
    return draw(Picture(panels), 504)[0]


def test_words_of_a_mark_have_a_short_unit_and_a_true_minus_and_names_break_at_spaces():
    (word,) = told(Picture([Panel([Bars({"a": -2.5}, "moved")], Axis("MiB, in the order of addresses"))]))
    assert word == "moved · a · −2.5 MiB"
    assert wrapped("compiled, reduce-overhead", 80) == "compiled,\nreduce-overhead"


def test_a_note_in_a_row_leaves_its_name_free_and_has_paper_where_somebody_waits():
    name = "what it computes"
    marks: list[Any] = [Spans(name, [(0.0, 2.0)], "compute waits"), Spans(name, [(2.0, 8.0)], name)]
    marks += [Note(x, name, "nobody reads ahead of it", "center") for x in (1.0, 5.0)]
    text = draw(Picture([Panel(marks, Axis("ms"))]), 266)[0]
    named = float(re.search(f'x="([\\d.]+)"[^>]*>{name}<', text)[1])
    notes = re.findall(r'<text x="([\d.]+)"([^>]*)>nobody', text)
    half = text_width("nobody reads ahead of it") / 2
    assert all(float(x) - half >= named for x, _ in notes)
    assert ["paint-order" in look for _, look in notes] == [True, False]


def test_a_lane_that_comes_later_keeps_its_colour():
    rows = [[lane, 0.0, 1.0, "x"] for lane in ("a", "backward", "b", "GPU", "optimizer")]
    colors = re.findall(r'z" style="fill:var\(--ov-series-(\d)\)', draw(timelines({"": rows}), 504)[0])
    assert len(set(colors)) == 5 and {"1", "7"} <= set(colors)
    both = bars({"a row": {"CPU": 1.0, "GPU": 2.0}}, {}, "µs")
    assert re.findall(r'style="fill:var\(--ov-series-(\d)\)"/><rect', draw(both, 504)[0])[0] == "5"


def test_thin_pale_parts_have_no_line_around_them():
    def lines(wide: float) -> int:
        spans = Spans("a", [(0.0, wide)], "free", "ceiling", light=True)
        rest = Spans("a", [(wide, 400.0)], "used")
        return draw(Picture([Panel([spans, rest], Axis("MiB"))]), 504)[0].count("stroke:var(--ov-ceiling)")

    assert lines(50.0) == lines(2.0) + 1, "the sample of the legend has one"


def test_hollow_parts_are_only_a_line_however_thin():
    for wide in (50.0, 2.0):
        spans = [
            Spans("a", [(0.0, wide)], "reads", "python", hollow=True),
            Spans("a", [(wide, 400.0)], "used"),
        ]
        text = draw(Picture([Panel(spans, Axis("ms"))]), 504)[0]
        assert 'style="fill:var(--ov-paper);stroke:var(--ov-series-5)"/>' in text


def test_dots_in_rows_have_a_line_that_leads_to_their_name():
    dots = Dots([1.0, 9.0], ["near", "far"])
    text = draw(Picture([Panel([dots], Axis("ms"))]), 504)[0]
    lines = re.findall(r'<line x1="[\d.]+" y1="([\d.]+)" x2="[\d.]+" y2="([\d.]+)"', text)
    circles = re.findall(r'cy="([\d.]+)"', text)
    assert len(circles) == 2 and all((y, y) in lines for y in circles)


def test_small_numbers_of_an_axis_have_a_power_of_ten():
    assert [number(each) for each in (1e-4, 1e-5, 2e-7, -2.5e-5)] == ["0.0001", "10⁻⁵", "2×10⁻⁷", "−2.5×10⁻⁵"]
    assert number(0.0) == "0"


def test_the_topmost_number_of_an_axis_does_not_touch_its_label():
    marks = [Line([1, 2], [0.0, 10.0])]
    text = draw(Picture([Panel(marks, Axis("n"), Axis("GB/s", low=0.0, high=10.0))]), 504)[0]
    label, top = (float(re.search(f'y="([\\d.]+)"[^>]*>{word}<', text)[1]) for word in ("GB/s", "10"))
    assert top - label >= LINE


def test_the_gaps_of_a_profile_are_shortened_and_its_kernels_are_not():
    works = [(30.0, 10.0), (10.0, 10.0), (12.0, 4.0), (20.0, 2.0)]  # 22 of 40
    place = fitted(works, end=40.0, length=31.0)
    assert [place(at) for at in (0, 10, 22, 30, 40)] == pytest.approx([0, 5, 17, 21, 31])
    assert fitted(works, end=40.0, length=40.0)(26.0) == pytest.approx(26), "a profile that delays nothing"


def test_kernels_that_alone_take_longer_than_the_step_leave_no_gap():
    place = fitted([(10.0, 10.0), (30.0, 10.0)], end=40.0, length=10.0)
    assert [place(at) for at in (0, 10, 20, 30, 40)] == pytest.approx([0, 0, 5, 5, 10])
    assert fitted([(0.0, 10.0)], end=10.0, length=5.0)(4.0) == pytest.approx(2), "without any gap"


@pytest.mark.parametrize("name", ["machine/hbm_bandwidth", "graphs/cuda_graph_capture", "clinic/six_faults"])
def test_machines_with_as_many_gpus_stand_on_one_scale_beside_each_other(name):
    """Else a reader who compares them would compare lengths of different units."""
    book = Book(ROOT, "never")
    pictures, recordings = Pictures(book), book.recordings(name)
    grids = []
    for machine in ("h200", "h100-80gb-hbm3"):
        picture = pictures.of(recordings[machine])
        parts = {"": picture, **picture["parts"]}
        variants = {
            part: [each for each in drawn["sizes"] if "wide" in each] for part, drawn in parts.items()
        }
        svgs = [pictures.svg(recordings[machine], part, each[-1]) for part, each in variants.items()]
        grids.append([re.findall(r"<line [^>]*--ov-grid[^>]*>", text) for text in svgs])
    assert any(grids[0]) and grids[0] == grids[1]


def with_ranges(log=False, runs=3) -> Picture:
    """Bars of which one differs between runs much, one little, and one not at all."""
    picture = bars({"far": 40.5, "near": 50.5, "same": 30.0}, {}, "ms", log)
    (mark,) = picture.panels[0].marks
    assert isinstance(mark, Bars)
    mark.ranges, mark.runs = {"far": (25.0, 90.0), "near": (50.4, 50.7)}, runs
    return picture


WHISKER = r'<path d="M([\d.]+),([\d.]+)v5m0,-2.5H([\d.]+)m0,-2.5v5" style="fill:none;stroke:var\(--ov-ink\)'


@pytest.mark.parametrize("log", [False, True])
@pytest.mark.parametrize("width", WIDTHS.values())
def test_a_whisker_goes_from_the_lowest_run_to_the_highest_and_the_number_stands_behind_it(log, width):
    drawing = placed(with_ranges(log), width)
    (plot,) = drawing.layout.plots
    sample, *drawn = ([*map(float, ends)] for ends in re.findall(WHISKER, drawing.svg))
    expected = [plot.x(25.0), plot.row("far") - 2.5, plot.x(90.0)]
    assert drawn == [pytest.approx(expected, abs=0.06)], "one that nobody could see is left out"
    assert sample[0] == 0 and sample[1] < plot.top, "the legend shows one"
    assert drawing.svg.count("lowest to highest of 3 runs") == 1
    place, end = (
        float(re.search(rf'<text x="([\d.]+)"[^>]*>{text}<', drawing.svg)[1]) for text in ("40.5", "50.5")
    )
    assert place >= plot.x(90.0) + 4 and place + text_width("40.5") <= width
    assert end < plot.x(50.5) + 8, "behind its bar"


def test_what_whiskers_cannot_show_has_no_legend_and_is_still_told():
    picture = with_ranges()
    (mark,) = picture.panels[0].marks
    assert isinstance(mark, Bars)
    mark.ranges = {"near": mark.ranges["near"]}
    text = draw(picture, 504)[0]
    assert not re.search(WHISKER, text) and "lowest to highest" not in text
    assert "<title>near · 50.5 ms, 50.4 to 50.7 in 3 runs</title>" in text


def test_a_range_is_told_in_the_table_and_in_words():
    series = numbers.read(with_ranges())
    (table,), _ = numbers.tables(series)
    (block,) = table["series"]
    expected = [["far", "40.5, 25 to 90 in 3 runs"], ["near", "50.5, 50.4 to 50.7 in 3 runs"], ["same", 30.0]]
    assert block["points"] == expected
    assert numbers.in_words(series) == "far 40.5 (25 to 90), near 50.5 (50.4 to 50.7), same 30 ms"


def test_a_range_is_of_what_plot_draws_of_each_run_where_its_labels_are_the_same():
    def plot(results: dict) -> dict:
        ratio = bars({"ratio": results["ms"][1] / results["ms"][0], "1%": results["close"]}, {}, "times")
        best = bars({f"best of {min(results['ms'])}": 1.0}, {}, "ms")
        once = bars({"trials": results["trials"][0]}, {}, "ms")
        return {"": ratio, "best": best, "once": once}

    shown = {"ms": [2.0, 6.0], "close": 100.0, "trials": [5.0]}
    runs = [
        {"ms": [2.0, 6.0], "close": 100.0},
        {"ms": [1.0, 5.0], "close": 101.0},
        {"ms": [4.0, 6.0], "close": 100},
    ]
    pictures = plot(shown)
    ranges.add(pictures, plot, shown, runs)
    ratio, best, once = (picture.panels[0].marks[0] for picture in pictures.values())
    assert ratio.ranges == {"ratio": (1.5, 5.0)} and ratio.runs == 3, "of each run's ratio, and not of 1%"
    assert best.ranges == {}, "another run's bar is another one"
    assert once.ranges == {}, "only the shown run has trials"


def test_what_cannot_be_drawn_of_each_run_has_no_range():
    def plot(results: dict) -> dict:
        return {"": bars({"a": 1 / results["n"]}, {}, "ms")}

    pictures = plot({"n": 2})
    ranges.add(pictures, plot, {"n": 2}, [{"n": 2}, {"n": 0}])
    assert pictures[""].panels[0].marks[0].ranges == {}
    ranges.add(pictures, plot, {"n": 2}, [{"n": 2}, {"n": 4}])
    assert pictures[""].panels[0].marks[0].ranges == {"a": (0.25, 0.5)}


def test_bars_one_behind_another_have_no_ranges():
    """Not even the first, whose starts are all zero."""

    def plot(results):
        return {"": stacked({name: {"a": ms, "b": ms} for name, ms in results.items()}, "ms")}

    pictures = plot({"driver": 3.0, "Python": 1.0})
    ranges.add(pictures, plot, {"driver": 3.0, "Python": 1.0}, [{"driver": n, "Python": 1.0} for n in (3, 5)])
    marks = pictures[""].panels[0].marks
    assert len(marks) == 2 and all(isinstance(mark, Bars) and not mark.ranges for mark in marks)


def test_bars_that_begin_at_zero_have_ranges_on_an_axis_with_room_for_them():
    """Other panels that have the same axis keep its scale."""

    def plot(results: dict) -> dict:
        ms = results["ms"]
        axis = Axis("ms", low=0.0, high=1.2 * max(ms))
        slow = Bars({"a": ms[0]}, "slow", {"a": 0.0})
        fast = Bars({"b": ms[1]}, "fast", {"b": 0.0})
        behind = Bars({"c": ms[1]}, "behind", {"c": ms[0]})
        lanes = Spans("GPU", [(0.0, 1.0)])
        return {"": Picture([Panel([slow, fast, behind], axis), Panel([lanes], axis)])}

    runs = [{"ms": [5.0, 1.0]}, {"ms": [15.0, 2.0]}]
    pictures = plot({"ms": [10.0, 1.5]})
    ranges.add(pictures, plot, {"ms": [10.0, 1.5]}, runs)
    bars_of, lanes_of = pictures[""].panels
    assert [mark.ranges for mark in bars_of.marks] == [{"a": (5.0, 15.0)}, {"b": (1.0, 2.0)}, {}]
    assert bars_of.x.high == pytest.approx(12.0 * 15.0 / 11.5), "the longest bar ends at 11.5"
    assert lanes_of.x is bars_of.x
    assert "lowest to highest of 2 runs" in draw(pictures[""], 504)[0]


def test_pictures_of_the_book_have_the_ranges_of_its_runs():
    """In Chinese, too, where the rows have other names."""
    book = Book(ROOT, "never")
    pictures = Pictures(book, [("clinic/one_fault", "")])
    recording = book.recordings("clinic/one_fault")["h200"]
    runs = [run["result"] for run in recording.runs]
    (mark,) = (
        mark for mark in pictures.declared(recording)[0].panels[0].marks if type(mark).__name__ == "Bars"
    )
    assert len(mark.ranges) >= 3 and mark.runs == len(runs)
    assert all(low <= mark.values[row] <= high for row, (low, high) in mark.ranges.items())
    assert f"lowest to highest of {len(runs)} runs" in pictures.svg(recording, "", "wide")
    assert f"{len(runs)} 次运行中从最低到最高" in pictures.svg(recording, "", "wide", in_chinese=True)
    assert f" in {len(runs)} runs</title>" in pictures.svg(recording, "", "wide")
