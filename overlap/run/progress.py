"""How far a long run is, on stderr: a bar on a terminal, else a line per snippet."""

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from datetime import timedelta

from overlap.run.snippet import Snippet
from overlap.run.text import plural

#: A snippet, and how many GPUs it may see; 0 is the CPU.
Item = tuple[Snippet, int]
#: Called with what has ended, and its seconds; None where it failed.
Ended = Callable[[Item, float | None], None]
#: How long a run is expected to take, in whatever unit.
Expected = Callable[[Item], float]


@contextlib.contextmanager
def progress(items: list[Item], label: str, expected: Expected) -> Iterator[Ended]:
    """Shows that these runs begin; each that ends is to be told to the function that this gives."""
    try:
        from rich.console import Console
        from rich.progress import Progress
    except ImportError:
        Progress = None
    if Progress and sys.stderr.isatty():
        with Progress(console=Console(stderr=True), disable=not items) as bar:
            task = bar.add_task(label, total=len(items))
            yield lambda item, seconds: bar.update(task, description=_name(item), advance=1)
    else:
        yield _lines(items, expected)


def _lines(items: list[Item], expected: Expected) -> Ended:
    started = time.monotonic()
    left = list(items)

    def ended(item: Item, seconds: float | None) -> None:
        left.remove(item)
        line = f"{len(items) - len(left)}/{len(items)} {_name(item)}: "
        line += "failed" if seconds is None else f"{seconds:.1f} s"
        if left:
            left_share = sum(map(expected, left)) / sum(map(expected, items))
            left_s = (time.monotonic() - started) * left_share / (1 - left_share)
            line += f", about {timedelta(seconds=round(left_s))} left"
        print(line, file=sys.stderr, flush=True)

    return ended


def _name(item: Item) -> str:
    snippet, gpus = item
    if gpus == 0:
        return snippet.name
    return f"{snippet.name} on {plural(gpus, 'GPU')}"
