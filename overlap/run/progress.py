"""How far a long run is, on stderr: a bar on a terminal, else a line per snippet."""

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from datetime import timedelta

from overlap.run.snippet import Snippet

#: A snippet, and how many GPUs it may see; 0 is the CPU.
Item = tuple[Snippet, int]
#: Called with what has ended, and its seconds; None where it failed.
Ended = Callable[[Item, float | None], None]
#: How long a run is expected to take, in whatever unit.
Expected = Callable[[Item], float]


#: The first runs are short and say little: the estimate begins as if so many seconds had gone as expected.
_AS_EXPECTED_S = 30.0


def alike(item: Item) -> float:
    """What is expected where nothing is known: all runs take as long."""
    return 1.0


@contextlib.contextmanager
def progress(items: list[Item], label: str, expected: Expected = alike) -> Iterator[Ended]:
    """Shows that these runs begin; each that ends is to be told to the function that this gives."""
    total = len(items)
    try:
        from rich.console import Console
        from rich.progress import Progress
    except ImportError:
        Progress = None
    if Progress and sys.stderr.isatty():
        with Progress(console=Console(stderr=True), disable=not total) as bar:
            task = bar.add_task(label, total=total)
            yield lambda item, seconds: bar.update(task, description=_name(item), advance=1)
    else:
        yield _lines(items, expected)


def _lines(items: list[Item], expected: Expected) -> Ended:
    begun = time.monotonic()
    total = len(items)
    whole = sum(map(expected, items))
    count = 0
    done = 0.0
    head_start = 0.0 if expected is alike else _AS_EXPECTED_S

    def ended(item: Item, seconds: float | None) -> None:
        nonlocal count, done
        count += 1
        done += expected(item)
        took = "failed" if seconds is None else f"{seconds:.1f} s"
        left = ""
        if count < total:
            gone_s = time.monotonic() - begun
            left_s = (gone_s + head_start) / (done + head_start) * (whole - done)
            left = f", about {timedelta(seconds=round(left_s))} left"
        print(f"{count}/{total} {_name(item)}: {took}{left}", file=sys.stderr, flush=True)

    return ended


def _name(item: Item) -> str:
    snippet, gpus = item
    if gpus == 0:
        return snippet.name
    return f"{snippet.name} on {gpus} GPU" if gpus == 1 else f"{snippet.name} on {gpus} GPUs"
