"""How far the runs of a machine are apart, on the bars of its picture.

`plot` is called again with the numbers of each run, and what it then gives a bar is that run's. So a range is
that of the drawn quantity, also where `plot` computes it from several numbers. Where bars of a row stand one
behind another none has a range: their starts differ between runs, too, and the next would hide an end.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from overlap.book.statistic import is_number

#: A range narrower than this share of its bar is not drawn.
_LEAST = 0.02


def add(pictures: Mapping[str, Any], plot: Callable, results, runs: list) -> None:
    """Give the bars of these pictures their ranges over the results of all runs.

    `plot` gives pictures by part, of `results` the ones that are drawn. What another run names otherwise
    has no range, nor has anything where `plot` cannot draw each run.
    """
    drawn = dict(_bars(pictures))
    if len(runs) < 2 or not drawn:
        return
    try:
        others = [dict(_bars(plot(of_run(results, run)))) for run in runs]
    except Exception:
        return  # a run that cannot be drawn alone, as one before its snippet returned more
    for place, mark in drawn.items():
        marks = [other.get(place) for other in others]
        if all(other and (other.name, [*other.values]) == (mark.name, [*mark.values]) for other in marks):
            mark.ranges = dict(_wide(mark, marks))
            mark.runs = len(runs)
    for part, number in dict.fromkeys(place[:2] for place in drawn):
        panel = pictures[part].panels[number]
        _leave_out_stacks(panel)
        _make_room(panel)


def of_run(results, run):
    """`results`, each number that of this run where it has one in the same place."""
    if isinstance(results, dict):
        known = run if isinstance(run, dict) else {}
        return {key: of_run(each, known[key]) if key in known else each for key, each in results.items()}
    if isinstance(results, list):
        if not isinstance(run, list) or len(run) != len(results):
            return results
        return [of_run(each, other) for each, other in zip(results, run, strict=True)]
    return run if is_number(results) and is_number(run) else results


def _bars(pictures: Mapping[str, Any]) -> Iterator[tuple[tuple, Any]]:
    """Bars by part, panel and place; those of a low picture, which have no room for ranges, are left out."""
    for part, picture in pictures.items():
        if getattr(picture, "low", False):
            continue
        for number, panel in enumerate(picture.panels):
            for place, mark in enumerate(panel.marks):
                if hasattr(mark, "ranges"):
                    yield (part, number, place), mark


def _leave_out_stacks(panel) -> None:
    """A row in which a bar begins behind another has no ranges."""
    bars = [mark for mark in panel.marks if hasattr(mark, "ranges")]
    stacks = {row for mark in bars for row, start in (mark.starts or {}).items() if start}
    for mark in bars:
        mark.ranges = {row: reach for row, reach in mark.ranges.items() if row not in stacks}


def _make_room(panel) -> None:
    """An axis that `plot` ends behind the longest bar ends as far behind the highest run."""
    bars = [mark for mark in panel.marks if hasattr(mark, "ranges")]
    ends = [
        (mark.starts or {}).get(row, 0.0) + (end or 0.0) for mark in bars for row, end in mark.values.items()
    ]
    highest = [high for mark in bars for _, high in mark.ranges.values()]
    if highest and panel.x.high is not None and 0 < max(ends) < max(highest):
        panel.x.high *= max(highest) / max(ends)


def _wide(mark, marks: Iterable) -> Iterator[tuple[str, tuple[float, float]]]:
    for row, length in mark.values.items():
        lengths = [other.values[row] for other in marks]
        if all(is_number(each) and math.isfinite(each) for each in (length, *lengths)):
            low, high = min(lengths), max(lengths)
            if high - low > _LEAST * abs(length):
                yield row, (low, high)
