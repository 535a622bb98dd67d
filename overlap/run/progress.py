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


@contextlib.contextmanager
def progress(total: int, label: str) -> Iterator[Ended]:
    """Shows that so many runs begin; each that ends is to be told to the function that this gives."""
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
        yield _lines(total)


def _lines(total: int) -> Ended:
    begun = time.monotonic()
    count = 0

    def ended(item: Item, seconds: float | None) -> None:
        nonlocal count
        count += 1
        took = "failed" if seconds is None else f"{seconds:.1f} s"
        left = ""
        if count < total:
            left_s = (time.monotonic() - begun) / count * (total - count)
            left = f", about {timedelta(seconds=round(left_s))} left"
        print(f"{count}/{total} {_name(item)}: {took}{left}", file=sys.stderr, flush=True)

    return ended


def _name(item: Item) -> str:
    snippet, gpus = item
    if gpus == 0:
        return snippet.name
    return f"{snippet.name} on {gpus} GPU" if gpus == 1 else f"{snippet.name} on {gpus} GPUs"
