"""How far a long run is, on stderr: a bar on a terminal, else one line per snippet."""

import contextlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import mean

from overlap.run import machine
from overlap.run.snippet import Snippet

#: A snippet, and how many GPUs it may see; 0 is the CPU.
Item = tuple[Snippet, int]


@contextlib.contextmanager
def progress(root: Path, wanted: list[Item], label: str) -> Iterator:
    """An object with `begun(item)` and `ended(item, seconds)`; seconds are None for a failure."""
    try:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
    except ImportError:
        Progress = None
    if Progress is None or not sys.stderr.isatty():
        yield _Lines([(_name(item), _expected(root, *item)) for item in wanted])
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), disable=not wanted) as bar:
        yield _Bar(bar, label, len(wanted))


class _Bar:
    def __init__(self, bar, label: str, total: int):
        self._bar = bar
        self._label = label
        self._task = bar.add_task(label, total=total)

    def begun(self, item: Item) -> None:
        self._bar.update(self._task, description=_name(item))

    def ended(self, item: Item, seconds: float | None) -> None:
        self._bar.update(self._task, description=self._label, advance=1)


class _Lines:
    def __init__(self, expected: list[tuple[str, float | None]]):
        self._left = expected
        self._total = len(expected)
        self._known = [seconds for _, seconds in expected if seconds is not None]

    def begun(self, item: Item) -> None:
        """It says only what has ended."""

    def ended(self, item: Item, seconds: float | None) -> None:
        names = [name for name, _ in self._left]
        self._left.pop(names.index(_name(item)))
        took = "failed"
        if seconds is not None:
            took = f"{seconds:.1f} s"
            self._known.append(seconds)
        line = f"{self._total - len(self._left)}/{self._total} {_name(item)}: {took}"
        if self._left and self._known:
            usual = mean(self._known)
            left = sum(usual if expected is None else expected for _, expected in self._left)
            line += f", about {_rough(left)} left"
        print(line, file=sys.stderr, flush=True)


def _name(item: Item) -> str:
    snippet, gpus = item
    if gpus == 0:
        return snippet.name
    return f"{snippet.name} on {gpus} GPU" if gpus == 1 else f"{snippet.name} on {gpus} GPUs"


def _rough(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"


def _expected(root: Path, snippet: Snippet, gpus: int) -> float | None:
    """How long a recording says that it takes: one of this machine, else of any with as many GPUs."""
    own = machine.profile(machine.here()["gpus"][:gpus])
    paths = sorted(
        root.glob(f"docs/recordings/*/{snippet.name}.json"), key=lambda path: path.parts[-3] != own
    )
    for path in paths:
        with contextlib.suppress(OSError, ValueError, LookupError, TypeError):
            data = json.loads(path.read_text(encoding="utf-8"))
            if len(data["machine"]["gpus"]) == gpus:
                return float(data["run"]["seconds"])
    return None
