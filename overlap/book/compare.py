"""Runs of this machine, or of a bundle, beside the recorded ones: their numbers, and which lie outside.

A recording of several runs has a range for each number. It is widened on both sides by its own width, and by
three spreads of the trials where there are some, because a few runs do not show all that can happen; a number
that was the same in all runs and has no trials must be the same. A single run without trials has no range:
what then differs is told and not judged. Raw trials and timelines are not compared.
"""

from collections.abc import Iterator
from typing import NamedTuple

from overlap.book import margin
from overlap.book.book import Book
from overlap.book.runs import Run
from overlap.book.statistic import is_number, middle
from overlap.run.recording import measured

OUTSIDE, INSIDE, UNKNOWN = "outside", "inside", "one run, not judged"


class Compared(NamedTuple):
    """One value of a new run against the range of the recorded ones, `low` to `high`, and what that says."""

    snippet: str
    profile: str
    key: str
    here: float | None
    low: float
    high: float
    verdict: str


def numbers(value, key: str = "") -> Iterator[tuple[str, float]]:
    """(key as in `rows[0].finish_ms`, number) of everything measured, raw trials left out."""
    if isinstance(value, dict):
        for name, inner in value.items():
            if not name.endswith("_trials"):
                yield from numbers(inner, f"{key}.{name}".lstrip("."))
    elif isinstance(value, list):
        for i, inner in enumerate(value):
            yield from numbers(inner, f"{key}[{i}]")
    elif is_number(value):
        yield key, value


def beside(book: Book, names: list[str] | None) -> Iterator[tuple[str, str, str, str, float, float]]:
    """(snippet, profile here, recorded profile, key, here, recorded) of each number that both have.

    Machines of as many GPUs are compared; recorded is the median of the runs, as on the pages.
    """
    for name in names or book.snippets:
        for profile, run in book.live(name).items():
            mine = dict(numbers(run.result))
            for other, recorded in book.committed.get(name, {}).items():
                if recorded.gpus == run.gpus:
                    for key, values in _values(recorded).items():
                        if key in mine:
                            yield name, profile, other, key, mine[key], middle(values)


def compared(recorded: Run, result: dict) -> Iterator[Compared]:
    """Each number of a new result of the same snippet on the same machine against the recorded runs."""
    spreads = {_dotted(path): margin.spread(trials) for path, trials in margin.measurements(recorded.result)}
    now = dict(numbers(measured(result)))
    for key, known in _values(recorded).items():
        here = now.get(key)
        low = min(known)
        high = max(known)
        room = max(high - low, margin.SPREADS * spreads.get(key, 0) * max(abs(low), abs(high)))
        if here is None:
            verdict = OUTSIDE if len(known) == len(recorded.all) else INSIDE
        elif low - room <= here <= high + room:
            verdict = INSIDE
        else:
            verdict = OUTSIDE if len(known) > 1 or key in spreads else UNKNOWN
        yield Compared(recorded.data["snippet"], recorded.profile, key, here, low, high, verdict)


def _values(recorded: Run) -> dict[str, list[float]]:
    """The values of each number in the runs that have it."""
    values: dict[str, list[float]] = {}
    for run in recorded.all:
        for key, number in numbers(measured(run["result"])):
            values.setdefault(key, []).append(number)
    return values


def _dotted(path: tuple) -> str:
    steps = [f"[{step}]" if isinstance(step, int) else f".{step}" for step in path]
    return "".join(steps).lstrip(".")
