"""Runs of this machine beside the recorded ones, number by number, but for raw trials and timelines."""

from collections.abc import Iterator

from overlap.book.book import Book
from overlap.book.statistic import is_number, middle
from overlap.run.recording import without_raw


def compared(book: Book, names: list[str] | None) -> Iterator[tuple[str, str, str, str, float, float]]:
    """(snippet, machine here, recorded machine, key, here, recorded) of each number that differs.

    Machines of as many GPUs are compared; recorded is the median of the runs, as on the pages.
    """
    for name in names or book.snippets:
        for machine, local in book.local.of(name).items():
            for other, committed in book.committed.get(name, {}).items():
                if committed.gpus == local.gpus:
                    runs = [dict(_numbers(without_raw(run["result"]))) for run in committed.runs]
                    for key, number in _numbers(without_raw(local.result)):
                        values = [numbers[key] for numbers in runs if key in numbers]
                        if values and middle(values) != number:
                            yield name, machine, other, key, number, middle(values)


def _numbers(value, key: str = "") -> Iterator[tuple[str, float]]:
    """(key as in `rows[0].finish_ms`, number) of every number in a result."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _numbers(inner, f"{key}.{name}".lstrip("."))
    elif isinstance(value, list):
        for i, inner in enumerate(value):
            yield from _numbers(inner, f"{key}[{i}]")
    elif is_number(value):
        yield key, value
