"""Limits of verdicts. A page writes one as `{limit: near}`, and shows the factor.

`NEAR`, `FAR`, `SPREADS` and `most` are choices of this book; `ABOVE` was measured.
"""

from collections.abc import Iterable

#: A rate is LOW below this share of the lowest recorded run of the same model.
NEAR = 0.85
#: A share of the ceiling is LOW below this share of the lowest that a recorded GPU of the family reaches.
FAR = 0.7
#: The most that a true rate can be of a ceiling that a clock is in: an H100's clock passes what it reports as
#: its highest, 1,980 MHz, by up to 3% (docs/machine.md, where ceilings come from).
ABOVE = 1.03
#: A claim must hold when what it compares moves by this many interquartile ranges over the runs.
SPREADS = 3

BY_NAME = {"near": NEAR, "far": FAR, "above": ABOVE, "spreads": SPREADS, "slower": round(1 / NEAR, 2)}


def most(runs: Iterable) -> bool:
    """Whether something is true of a machine by what each of its runs says: in more than half of them."""
    votes = list(map(bool, runs))
    return 2 * sum(votes) > len(votes)
