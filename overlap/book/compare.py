"""Runs of this machine, or of a bundle, beside the recorded ones: their numbers, and which lie outside of what the recordings say.

A recording of several runs has a range for each number. It is widened on both sides by its own width, and by three spreads of the trials where
there are some, because a few runs do not show all that can happen; a number that was the same in all runs and has no trials must be the same. A single
run without trials has no range: what then differs is told and not judged. Raw trials and timelines are not compared.
"""

from collections.abc import Iterator
from typing import NamedTuple

from overlap.book import margin
from overlap.book.book import Book, Run
from overlap.book.statistic import middle
from overlap.run.recording import measured

OUTSIDE, INSIDE, UNKNOWN = "outside", "inside", "one run, not judged"


class Held(NamedTuple):
    """One value of a new run against the range of the recorded ones: `low` to `high`, and what is said of it."""

    snippet: str
    profile: str
    key: str
    here: float | None
    low: float
    high: float
    said: str


def numbers(value, key: str = "") -> Iterator[tuple[str, float]]:
    """(key as in `rows[0].finish_ms`, number) of everything measured, raw trials left out."""
    if isinstance(value, dict):
        for name, inner in value.items():
            if not name.endswith("_trials"):
                yield from numbers(inner, f"{key}.{name}".lstrip("."))
    elif isinstance(value, list):
        for i, inner in enumerate(value):
            yield from numbers(inner, f"{key}[{i}]")
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield key, value


def beside(book: Book, names: list[str] | None) -> Iterator[tuple[str, str, str, float, float]]:
    """(snippet, profile here, recorded profile, key, here, recorded) of each number that both have, on machines of as many GPUs; recorded is the
    median of the runs, as on the pages.
    """
    for name in names or book.snippets:
        for profile, run in book.live(name).items():
            mine = dict(numbers(run.result))
            for other_profile, other in book.committed.get(name, {}).items():
                theirs = _medians(other) if other.gpus == run.gpus else {}
                yield from (
                    (name, profile, other_profile, key, mine[key], theirs[key])
                    for key in mine
                    if key in theirs
                )


def _medians(run: Run) -> dict[str, float]:
    found: dict[str, list[float]] = {}
    for each in run.all:
        for key, number in numbers(measured(each["result"])):
            found.setdefault(key, []).append(number)
    return {key: middle(values) for key, values in found.items()}


def held(recorded: Run, result: dict) -> Iterator[Held]:
    """Each number of a new result of the same snippet on the same machine against the range of the recorded runs."""
    runs = [dict(numbers(measured(each["result"]))) for each in recorded.all]
    spreads = {_dotted(path): margin.spread(trials) for path, trials in margin.measurements(recorded.result)}
    name, profile, now = recorded.data["snippet"], recorded.profile, dict(numbers(measured(result)))
    for key in dict.fromkeys(key for run in runs for key in run):
        known, here = [run[key] for run in runs if key in run], now.get(key)
        low, high = min(known), max(known)
        room = max(high - low, margin.SPREADS * spreads.get(key, 0) * max(abs(low), abs(high)))
        if here is None:
            said = OUTSIDE if len(known) == len(runs) else INSIDE
        elif low - room <= here <= high + room:
            said = INSIDE
        else:
            said = OUTSIDE if len(known) > 1 or key in spreads else UNKNOWN
        yield Held(name, profile, key, here, low, high, said)


def _dotted(path: tuple) -> str:
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).lstrip(".")
