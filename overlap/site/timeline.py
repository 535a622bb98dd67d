"""Timelines to explore: the panels of a declared picture, drawn alone, and the names of all that ran in them.

What a reader sees is drawn here, as all pictures are: lanes, axis, colours, hatches. For each part of a lane
it has a sample of a bar, which the page's script copies for each span; the script zooms, moves and tells.
A timeline has

    title       what stands above it
    us          the µs of one unit of its axis; all other times are in µs
    low, high   the ends of the axis
    lanes       from top to bottom: {name, cpu, parts}. A part has one look: `light` where letters on it are
                dark, `waits` where somebody waits; `spans` by name are [start, length, launch]. The name is
                empty where nothing ran; a call and what it launched have the same number, others have none.
    frame       [start, length] of what the clinic's game frames: spans of that name; or None
    second      [start, length] of the second of two steps, for that game: spans of that name; or None
    opens       whether it is the one to show first
    forms       by the page's form {svg, left, right, top, bottom, rows, step}: the drawing, between which
                places its bars are, the middles of its lanes, and the time from tick to tick

A drawing has `.ov-ticks`, the lines and words that are others when it is zoomed, and `.ov-bars`, a group for
each lane with a sample for each part. Its ids begin with `ov-here`: a page may have several drawings.
"""

from collections.abc import Iterable
from dataclasses import replace
from functools import cached_property

from overlap.site.draw import HATCH, WIDTHS, Drawing, as_declared, is_light, is_wait
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
    whole = Drawing(picture, Layout(picture, WIDTHS["wide"], ()))
    timelines = []
    for place, (label, us) in _of_time(picture).items():
        plot = whole.layout.plots[place]
        timelines.append(
            {
                "title": plot.panel.title,
                "us": us,
                "low": _ns(us * plot.x.low),
                "high": _ns(us * plot.x.high),
                "lanes": _lanes(plot, us, recorded.values()),
                "frame": _named(plot, us, _FRAME),
                "second": _named(plot, us, _SECOND),
                "opens": getattr(picture, "opens", None) == place,
                "forms": {form: _Alone(whole, plot, label, width).form(us) for form, width in WIDTHS.items()},
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


class _Alone(Drawing):
    """A panel without its title and legend, over the whole width, on the axis that it has in its picture."""

    def __init__(self, whole: Drawing, shown: Plot, label: str, width: int):
        axis = replace(shown.panel.x, label=label, low=shown.x.low, high=shown.x.high)
        panel = replace(shown.panel, title="", x=axis)
        alone = replace(whole.picture, panels=[panel], columns=1)
        super().__init__(alone, Layout(alone, width, ()))
        self.colors = whole.colors
        (self.plot,) = self.layout.plots

    def _legend(self) -> float:
        """None; where there are two steps, their names have room there."""
        (plot,) = self.layout.plots
        return LINE + 3.0 if any(as_declared(mark).name == _SECOND for mark in plot.marks("Spans")) else 0.0

    def form(self, us: float) -> dict:
        """The drawing with its places; a unit of its axis has so many µs."""
        plot, ticks = self.plot, self.plot.x.ticks()
        step = ticks[1] - ticks[0] if len(ticks) > 1 else plot.x.high - plot.x.low
        sides = {side: round(getattr(plot, side), 1) for side in ("left", "right", "top", "bottom")}
        rows = [round(plot.row(row), 1) for row in plot.rows]
        return {"svg": self.svg} | sides | {"rows": rows, "step": _ns(us * step)}

    @cached_property
    def svg(self) -> str:
        """The text."""
        plot = self.plot
        self._axes(plot)
        rows = []
        for marks in _parts(plot).values():
            samples = [self._sample(plot, mark) for mark in marks]
            rows.append(f"<g>{''.join(samples)}</g>")
        size = f'x="{plot.left:.4g}" width="{plot.right - plot.left:.4g}" height="{plot.bottom:.4g}"'
        self.parts.append(f'<clipPath id="ov-here"><rect {size}/></clipPath>')
        bars = f'<g class="ov-bars">{"".join(rows)}</g>'
        return self.whole(f'{"".join(self.parts)}<g clip-path="url(#ov-here)">{bars}</g>')

    def _x_ticks(self, plot: Plot) -> None:
        self.parts.append('<g class="ov-ticks">')
        super()._x_ticks(plot)
        self.parts.append("</g>")

    def _sample(self, plot: Plot, mark) -> str:
        fill, line = self.look(plot, mark)
        if is_wait(mark):
            fill = f"url(#{self._hatch(fill, line)})"
        size = f'y="{plot.row(mark.row) - plot.lane / 2:.4g}" height="{plot.lane:.4g}"'
        return f'<rect {size} style="fill:{fill};stroke:{line or fill}"/>'

    def _hatch(self, fill: str, line: str) -> str:
        """The id of a pattern of slanting lines; the script keeps it as it is while bars get wider."""
        name = f"ov-here-{len(self.parts)}"
        size = f'width="{HATCH}" height="{HATCH}"'
        lines = (
            f'<path d="M-1,1l2,-2M0,{HATCH}L{HATCH},0M{HATCH - 1},{HATCH + 1}l2,-2" style="stroke:{line}"/>'
        )
        pattern = f'<rect {size} style="fill:{fill}"/>{lines}'
        self.parts.append(f'<pattern id="{name}" patternUnits="userSpaceOnUse" {size}>{pattern}</pattern>')
        return name


def _parts(plot: Plot) -> dict[str, list]:
    """What lies in each lane, from top to bottom."""
    rows: dict[str, list] = {row: [] for row in plot.rows}
    for mark in plot.marks("Spans"):
        if mark.spans and as_declared(mark).name not in (_FRAME, _SECOND):
            rows[mark.row].append(mark)
    return rows


def _named(plot: Plot, us: float, name: str) -> list[float] | None:
    marks = [mark for mark in plot.marks("Spans") if as_declared(mark).name == name]
    spans = [span for mark in marks for span in mark.spans]
    return [_ns(us * number) for number in spans[0]] if spans else None


def _lanes(plot: Plot, us: float, recorded: Iterable[list]) -> list[dict]:
    declared = {mark.row: as_declared(mark).row for mark in plot.marks("Spans")}
    lanes, named = [], []
    for row, marks in _parts(plot).items():
        parts = []
        for mark in marks:
            spans: dict[str, list] = {}
            for (start, length), name in zip(mark.spans, mark.names or [""] * len(mark.spans), strict=True):
                spans.setdefault(name, []).append([_ns(us * start), _ns(us * length)])
            parts.append({"light": is_light(mark), "waits": is_wait(mark), "spans": spans})
            named += [(name, span) for name, of_name in spans.items() if name for span in of_name]
        is_cpu = declared.get(row, row).startswith(("CPU", "Python"))
        lanes.append({"name": row.replace("\n", " "), "cpu": is_cpu, "parts": parts})
    _number_launches(named, recorded)
    return lanes


def _number_launches(spans: list[tuple[str, list]], recorded: Iterable[list]) -> None:
    """Give calls and what they launched their numbers, if a recorded timeline has them all: the shortest."""
    for events in sorted(recorded, key=len):
        places = {(name, _ns(start)): number for number, (_, start, _, name) in enumerate(events)}
        numbers = [places.get((name, span[0])) for name, span in spans]
        if None not in numbers:
            calls = launches(events)
            called = set(calls.values())
            for (_, span), number in zip(spans, numbers, strict=True):
                if number in calls or number in called:
                    span.append(calls.get(number, number))
            return


def _ns(us: float) -> float:
    """A time in µs, to a nanosecond."""
    return round(us, 3)
