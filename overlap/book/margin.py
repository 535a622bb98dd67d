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


def is_beaten(shares: list[float]) -> bool:
    """Whether shares of a measured limit, one per run, are above 1 by more than three of their spreads."""
    lower, middle, upper = quantiles(shares, n=4, method="inclusive")
    return middle - SPREADS * (upper - lower) > 1


def has_trials(value) -> bool:
    """Whether something in a result was tried several times."""
    if isinstance(value, dict):
        return any(key.endswith(_SUFFIX) or has_trials(inner) for key, inner in value.items())
    return isinstance(value, list) and any(map(has_trials, value))


def measurements(value, path: tuple = ()) -> Iterator[tuple[tuple, list[float]]]:
    """(path, raw trials) of each number in a result that has trials.

    The trials of `result["ms"]["copy"]` are in `result["ms_trials"]["copy"]` or in
    `result["ms"]["copy_trials"]`: the same path, but with one key followed by `_trials`.
    """
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _beside(inner, value.get(f"{key}{_SUFFIX}"), (*path, key))
            yield from measurements(inner, (*path, key))
    elif isinstance(value, list):
        for i, inner in enumerate(value):
            yield from measurements(inner, (*path, i))


def _beside(value, trials, path: tuple) -> Iterator[tuple[tuple, list[float]]]:
    """Numbers with the trials that stand at the same place of what is beside them."""
    if is_number(value):
        if isinstance(trials, list) and len(trials) > 2 and all(map(is_number, trials)):
            yield path, trials
    elif isinstance(value, dict) and isinstance(trials, dict):
        for key, inner in value.items():
            yield from _beside(inner, trials.get(key), (*path, key))
    elif isinstance(value, list) and isinstance(trials, list):
        for i, (inner, beside) in enumerate(zip(value, trials, strict=False)):
            yield from _beside(inner, beside, (*path, i))
