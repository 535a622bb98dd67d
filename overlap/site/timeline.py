"""Timelines to explore: the panels of a declared picture as data, with the names of all that ran.

The page's script draws and zooms them; lanes, colours, places, origin and unit are those of the picture.
A timeline has

    title, label  what stands above it, and below its axis
    us            the µs of one unit of its axis; all other times are in µs
    low, high     the ends of the axis
    lanes         from top to bottom: {name, cpu, parts}; a part has one colour, `fill` as CSS, `light` where
                  letters on it are dark, `line`, the colour of its hatch where somebody waits, or `outline`,
                  that of a line around parts that are not filled, and `spans`:
                  [start, length, name, launch]. The name is empty where
                  nothing ran; a call and what it launched have the same number, others have None.
    frame         [start, length] of what the clinic's game frames: spans of that name; or None
    second        [start, length] of the second of two steps, for that game: spans of that name; or None
    opens         whether it is the one to show first
    forms         by the page's form: its `width`, from `left` to `right` what is drawn, its `height`, for
                  each lane [its middle, the lines of its name]; `bar` is the height of what is drawn in a
                  lane, `line` from line to line of a text, `below` that of the words of the axis, `hatch`
                  lies between the lines of what waits; `step` is from tick to tick
"""

from collections.abc import Iterable
from dataclasses import replace

from overlap.site.draw import HATCH, WIDTHS, Drawing, is_hollow, is_light, is_wait
from overlap.site.layout import Layout, Plot, kind
from overlap.site.numbers import unit_of
from overlap.site.scales import LINE
from overlap.site.trace import launches

_US = {"µs": 1.0, "ms": 1e3, "s": 1e6}
#: Spans of these names are no parts of lanes.
_FRAME, _SECOND = "frame", "second"


def explored(picture, recorded: dict[str, list]) -> list[dict]:
    """A timeline for each panel of a `snippets.pictures.Picture` whose spans have names, in µs, ms or s.

    `recorded` are timelines as `trace.timelines` gives them: they tell what launched what.
    """
    drawings = {form: Drawing(picture, Layout(picture, width, ())) for form, width in WIDTHS.items()}
    drawing = drawings["wide"]
    wide = drawing.layout
    timelines = []
    for place, (label, us) in _of_time(picture).items():
        plot = wide.plots[place]
        forms = {}
        for form, each in drawings.items():
            layout, own = each.layout, place
            if picture.columns > 1:  # it is explored alone, so it has the room of those beside it
                alone = replace(picture, panels=[plot.panel], columns=1)
                layout, own = Drawing(alone, Layout(alone, WIDTHS[form], ())).layout, 0
            forms[form] = {"width": WIDTHS[form]} | _form(layout, layout.plots[own], us)
        timelines.append(
            {
                "title": plot.panel.title,
                "label": label,
                "us": us,
                "low": _ns(us * plot.x.low),
                "high": _ns(us * plot.x.high),
                "lanes": _lanes(drawing, plot, us, recorded.values()),
                "frame": _named(plot, us, _FRAME),
                "second": _named(plot, us, _SECOND),
                "forms": forms,
                "opens": getattr(picture, "opens", None) == place,
            }
        )
    return timelines


def can_explore(picture) -> bool:
    """Whether it has such a panel."""
    return bool(_of_time(picture))


def _of_time(picture) -> dict[int, tuple[str, float]]:
    """The places of its panels whose spans have names and times, with their label and unit in µs."""
    labels = [panel.x.label for panel in picture.panels]
    found = {}
    for place, panel in enumerate(picture.panels):
        label = next(filter(None, labels[place:]), "")
        us = _US.get(unit_of(label))
        if us is not None and any(mark.names for mark in panel.marks if kind(mark) == "Spans"):
            found[place] = label, us
    return found


def _form(layout: Layout, plot: Plot, us: float) -> dict:
    ticks = plot.x.ticks()
    step = ticks[1] - ticks[0] if len(ticks) > 1 else plot.x.high - plot.x.low
    lanes = [[plot.row(row) - plot.top, layout.name_of_row(row).split("\n")] for row in plot.rows]
    place = {"left": round(plot.left, 1), "right": round(plot.right, 1), "height": plot.bottom - plot.top}
    sizes = {"bar": plot.lane, "line": LINE, "below": plot.below, "hatch": HATCH}
    return place | sizes | {"lanes": lanes, "step": _ns(us * step)}


def _named(plot: Plot, us: float, name: str) -> list[float] | None:
    spans = [span for mark in plot.marks("Spans") if mark.name == name for span in mark.spans]
    return [_ns(us * number) for number in spans[0]] if spans else None


def _lanes(drawing: Drawing, plot: Plot, us: float, recorded: Iterable[list]) -> list[dict]:
    lanes: dict[str, dict] = {}
    for row in plot.rows:
        is_cpu = row.startswith(("CPU", "Python"))
        lanes[row] = {"name": row.replace("\n", " "), "cpu": is_cpu, "parts": []}
    named = []
    for mark in plot.marks("Spans"):
        if mark.name in (_FRAME, _SECOND):
            continue
        times = [(_ns(us * start), _ns(us * length)) for start, length in mark.spans]
        names = mark.names or [""] * len(times)
        spans = [[*time, name, None] for time, name in zip(times, names, strict=True)]
        part = {"fill": drawing.fill(plot, mark), "light": is_light(mark), "spans": spans}
        if is_wait(mark):
            part["line"] = drawing.color(plot, mark)
        elif is_hollow(mark):
            part["outline"] = drawing.color(plot, mark)
        lanes[mark.row]["parts"].append(part)
        named += [span for span in spans if span[2]]
    _number_launches(named, recorded)
    return list(lanes.values())


def _number_launches(spans: list[list], recorded: Iterable[list]) -> None:
    """Give calls and what they launched their numbers, if a recorded timeline has them all: the shortest."""
    for events in sorted(recorded, key=len):
        places = {(name, _ns(start)): number for number, (_, start, _, name) in enumerate(events)}
        numbers = [places.get((name, start)) for start, _, name, _ in spans]
        if None not in numbers:
            calls = launches(events)
            called = set(calls.values())
            for span, number in zip(spans, numbers, strict=True):
                span[3] = calls.get(number, number if number in called else None)
            return


def _ns(us: float) -> float:
    """A time in µs, to a nanosecond."""
    return round(us, 3)
