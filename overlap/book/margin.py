"""Margins: by how much a claim must hold, and which results were tried several times."""

from statistics import quantiles

#: A claim must hold when what it compares moves by this many interquartile ranges over the runs.
SPREADS = 3


def is_above_one(shares: list[float]) -> bool:
    """Whether shares of a measured limit, one per run, are above 1 by more than three of their spreads."""
    lower, middle, upper = quantiles(shares, n=4, method="inclusive")
    return middle - SPREADS * (upper - lower) > 1


def has_trials(value) -> bool:
    """Whether something in a result was tried several times."""
    if isinstance(value, dict):
        return any(key.endswith("_trials") or has_trials(inner) for key, inner in value.items())
    return isinstance(value, list) and any(map(has_trials, value))
