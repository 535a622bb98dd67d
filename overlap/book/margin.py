"""Margins: how far what a claim reads may move, by its spread over runs, before the claim is false."""

import math
import operator
import statistics
from collections.abc import Iterable, Iterator
from statistics import quantiles

from overlap.book.expression import Comparison

#: A claim must still hold when any one measurement that it reads moves by this many interquartile ranges of its trials.
SPREADS = 3
_SUFFIX = "_trials"
_ORDERS = {">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le}


def spread(trials: list[float]) -> float:
    """Interquartile range of the trials, as a share of their median."""
    lower, middle, upper = quantiles(trials, n=4, method="inclusive")
    return (upper - lower) / abs(middle) if middle else 0.0


def has_trials(value) -> bool:
    """Whether something in a result was tried several times."""
    if isinstance(value, dict):
        return any(key.endswith(_SUFFIX) or has_trials(inner) for key, inner in value.items())
    return isinstance(value, list) and any(isinstance(item, (dict, list)) and has_trials(item) for item in value)


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


def moved(result: dict, keys: set[str]) -> Iterator[tuple[tuple, float, dict]]:
    """The results in which one measurement below `keys` is moved down, or up: its path, its spread, the result.

    No time and no rate is moved to zero or below.
    """
    for path, trials in measurements(result):
        if not keys.intersection(path):
            continue
        share, before = spread(trials), _at(result, path)
        for factor in (max(1 - SPREADS * share, 1e-9), 1 + SPREADS * share):
            after = [factor * each for each in before] if isinstance(before, list) else factor * before
            yield path, share, _with(result, path, after)


def close(comparisons: Iterable[Comparison]) -> Iterator[tuple[str, str, str, float]]:
    """Of comparisons that several runs made, those that would turn if what is compared moved by three of its spreads over the runs: both sides,
    the sign, the spread.

    What is compared is the difference of the two sides, run by run, or their ratio, so that what moves both alike does not count: a claim is
    close where neither has the room. (An error near zero may double from run to run and still be far below its bound.)
    """
    for comparison in comparisons:
        if comparison.sign in _ORDERS and len(comparison.left) > 1:
            found = [_worst(comparison.sign, apart) for apart in _apart(comparison)]
            if not any(_ORDERS[comparison.sign](worst, 0) for worst, _, _ in found):
                _, width, centre = found[0]
                share = math.expm1(width) if len(found) > 1 else width / (abs(centre) or 1)
                yield comparison.source, comparison.sign, comparison.against, share


def distance(comparisons: Iterable[Comparison]) -> str:
    """How far apart the two sides are that lie nearest to each other, as a share of the right one: `15%`; empty where nothing tells."""
    ratios = [
        statistics.median(left / right for left, right in zip(each.left, each.right, strict=True))
        for each in comparisons
        if each.sign in _ORDERS and all(right > 0 for right in each.right)
    ]
    return f"{min(abs(ratio - 1) for ratio in ratios):.0%}" if ratios else ""


def beaten(shares: list[float]) -> bool:
    """Whether shares of a measured limit, one per run, are above 1 by more than three of their spreads."""
    lower, centre, upper = quantiles(shares, n=4, method="inclusive")
    return centre - SPREADS * (upper - lower) > 1


def _apart(comparison: Comparison) -> Iterator[list[float]]:
    """How far left is above right, run by run: as factors (their logarithms) where all are above zero, and as shares of the right side's median."""
    pairs = list(zip(comparison.left, comparison.right, strict=True))
    if all(left > 0 and right > 0 for left, right in pairs):
        yield [math.log(left / right) for left, right in pairs]
    scale = abs(statistics.median(comparison.right)) or 1
    yield [(left - right) / scale for left, right in pairs]


def _worst(sign: str, apart: list[float]) -> tuple[float, float, float]:
    """The median moved against the comparison by three spreads, that spread, and the median."""
    lower, centre, upper = quantiles(apart, n=4, method="inclusive")
    width = upper - lower
    return centre - SPREADS * width if sign in (">", ">=") else centre + SPREADS * width, width, centre


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
