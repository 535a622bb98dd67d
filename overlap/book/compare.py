"""Runs of this machine beside the recorded ones, number by number, but for raw trials and timelines."""

from collections.abc import Iterator

from overlap.book.book import Book
from overlap.book.runs import Run
from overlap.book.statistic import is_number, middle
from overlap.run.recording import without_raw


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


def compared(book: Book, names: list[str] | None) -> Iterator[tuple[str, str, str, str, float, float]]:
    """(snippet, profile here, recorded profile, key, here, recorded) of each number that both have.

    Machines of as many GPUs are compared; recorded is the median of the runs, as on the pages.
    """
    for name in names or book.snippets:
        for profile, run in book.own.of(name).items():
            mine = dict(numbers(run.result))
            for other, recorded in book.committed.get(name, {}).items():
                if recorded.gpus == run.gpus:
                    for key, values in _values(recorded).items():
                        if key in mine:
                            yield name, profile, other, key, mine[key], middle(values)


def _values(recorded: Run) -> dict[str, list[float]]:
    """The values of each number in the runs that have it."""
    values: dict[str, list[float]] = {}
    for run in recorded.all:
        for key, number in numbers(without_raw(run["result"])):
            values.setdefault(key, []).append(number)
    return values
