"""Margins: how far what a claim reads may move, by its spread over runs, before the claim is false."""

from collections.abc import Iterator
from statistics import median, quantiles

#: A claim must still hold when any one measurement that it reads moves by this many interquartile ranges of its trials.
SPREADS = 3
_SUFFIX = "_trials"


def spread(trials: list[float]) -> float:
    """Interquartile range of the trials, as a share of their median."""
    lower, middle, upper = quantiles(trials, n=4, method="inclusive")
    return (upper - lower) / abs(middle) if middle else 0.0


def measurements(result: dict) -> Iterator[tuple[tuple, list[float]]]:
    """(path, raw trials) of each number that has trials, and of each list of trials itself.

    The trials of `result["ms"]["copy"]` are in `result["ms_trials"]["copy"]` or `result["ms"]["copy_trials"]`: the same
    path, but with one key followed by `_trials`.
    """
    for path in _leaves(result):
        if _is_trials(trials := _at(result, path)):
            yield path, trials
        for i, key in enumerate(path):
            if isinstance(key, str) and _is_trials(trials := _at(result, (*path[:i], key + _SUFFIX, *path[i + 1 :]))):
                yield path, trials
                break


def moved(results: list[dict], keys: set[str]) -> Iterator[tuple[tuple, float, dict]]:
    """The results in which one measurement below `keys` is moved down, or up: its path, its spread, the result.

    With several runs (the first is the whole one) a number is what their median is, and its spread is theirs; with one run, that of
    its trials. No time and no rate is moved to zero or below.
    """
    whole = results[0]
    for path, before, share in _spread_over(results) if len(results) > 1 else _spread_within(whole):
        if not keys.intersection(path):
            continue
        for factor in (max(1 - SPREADS * share, 1e-9), 1 + SPREADS * share):
            after = [factor * each for each in before] if isinstance(before, list) else factor * before
            yield path, share, _with(whole, path, after)


def _spread_within(result: dict) -> Iterator[tuple[tuple, object, float]]:
    for path, trials in measurements(result):
        yield path, _at(result, path), spread(trials)


def _spread_over(results: list[dict]) -> Iterator[tuple[tuple, object, float]]:
    for path in _leaves(results[0]):
        found = [_at(result, path) for result in results]
        if all(map(_is_number, found)) and len(set(found)) > 1:
            yield path, median(found), spread(found)


def _with(item, path: tuple, value):
    """A copy in which this path leads to another value; what lies aside is shared."""
    if not path:
        return value
    copy = item.copy()
    copy[path[0]] = _with(item[path[0]], path[1:], value)
    return copy


def _leaves(item, path: tuple = ()) -> Iterator[tuple]:
    """Paths of all numbers, and of all lists of trials."""
    if _is_number(item) or (_is_trials(item) and any(str(key).endswith(_SUFFIX) for key in path)):
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


def _is_number(item) -> bool:
    return isinstance(item, (int, float)) and not isinstance(item, bool)


def _is_trials(item) -> bool:
    return isinstance(item, list) and len(item) > 2 and all(map(_is_number, item))
