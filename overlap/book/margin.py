"""Margins: which numbers of a result were tried several times, and how far they spread."""

from collections.abc import Iterator
from statistics import quantiles

from overlap.book.statistic import is_number

#: A claim must hold when what it compares moves by this many interquartile ranges over the runs.
SPREADS = 3
_SUFFIX = "_trials"


def spread(trials: list[float]) -> float:
    """Interquartile range of the trials, as a share of their median."""
    lower, middle, upper = quantiles(trials, n=4, method="inclusive")
    return (upper - lower) / abs(middle) if middle else 0.0


def beaten(shares: list[float]) -> bool:
    """Whether shares of a measured limit, one per run, are above 1 by more than three of their spreads."""
    lower, centre, upper = quantiles(shares, n=4, method="inclusive")
    return centre - SPREADS * (upper - lower) > 1


def has_trials(value) -> bool:
    """Whether something in a result was tried several times."""
    if isinstance(value, dict):
        return any(key.endswith(_SUFFIX) or has_trials(inner) for key, inner in value.items())
    return isinstance(value, list) and any(map(has_trials, value))


def measurements(result: dict) -> Iterator[tuple[tuple, list[float]]]:
    """(path, raw trials) of each number that has trials, and of each list of trials itself.

    The trials of `result["ms"]["copy"]` are in `result["ms_trials"]["copy"]` or in
    `result["ms"]["copy_trials"]`: the same path, but with one key followed by `_trials`.
    """
    for path in _leaves(result):
        for place in (path, *_places_of_trials(path)):
            trials = _at(result, place)
            if _is_trials(trials):
                yield path, trials
                break


def _places_of_trials(path: tuple) -> Iterator[tuple]:
    for i, key in enumerate(path):
        if isinstance(key, str):
            yield (*path[:i], key + _SUFFIX, *path[i + 1 :])


def _leaves(item, path: tuple = ()) -> Iterator[tuple]:
    """Paths of all numbers, and of all lists of trials."""
    if is_number(item) or (_is_trials(item) and any(str(key).endswith(_SUFFIX) for key in path)):
        yield path
    elif isinstance(item, (dict, list)):
        for key, value in item.items() if isinstance(item, dict) else enumerate(item):
            yield from _leaves(value, (*path, key))


def _at(item, path: tuple):
    """What is at this path, or None."""
    for key in path:
        try:
            item = item[key]
        except (KeyError, IndexError, TypeError):
            return None
    return item


def _is_trials(item) -> bool:
    return isinstance(item, list) and len(item) > 2 and all(map(is_number, item))
