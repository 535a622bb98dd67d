"""How far a long run is, on stderr: a line for each snippet that has ended, with the time that is left."""

import sys
import time
from collections.abc import Callable
from datetime import timedelta

from overlap.run.snippet import Snippet
from overlap.run.text import plural

#: A snippet, and how many GPUs it may see; 0 is the CPU.
Item = tuple[Snippet, int]
#: How long a run is expected to take, in whatever unit.
Expected = Callable[[Item], float]


class Progress:
    """Counts what has ended of these runs."""

    def __init__(self, items: list[Item], expected: Expected):
        self._items = items
        self._expected = expected
        self._left = list(items)
        self._started = time.monotonic()

    def ended(self, item: Item, seconds: float | None) -> None:
        """Say that a run has ended and took so many seconds; None where it failed."""
        self._left.remove(item)
        snippet, gpus = item
        line = f"{len(self._items) - len(self._left)}/{len(self._items)} {snippet.name}"
        if gpus:
            line += f" on {plural(gpus, 'GPU')}"
        line += ": failed" if seconds is None else f": {seconds:.1f} s"
        if self._left:
            line += f", about {self._time_left()} left"
        print(line, file=sys.stderr, flush=True)

    def _time_left(self) -> timedelta:
        share = sum(map(self._expected, self._left)) / sum(map(self._expected, self._items))
        seconds = (time.monotonic() - self._started) * share / (1 - share)
        return timedelta(seconds=round(seconds))
