"""How far a long run is, on stderr: a bar on a terminal, else one line per snippet."""

import contextlib
import json
import sys
from pathlib import Path
from statistics import mean

from overlap.run import machine
from overlap.run.snippet import Snippet


@contextlib.contextmanager
def progress(root: Path, wanted: list[tuple[Snippet, int]], label: str):
    """Has `begun(item)` and `ended(item, seconds)` called for each item; seconds are None for a failure."""
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
        self.bar, self.label, self.task = bar, label, bar.add_task(label, total=total)

    def begun(self, item: tuple[Snippet, int]) -> None:
        self.bar.update(self.task, description=_name(item))

    def ended(self, item: tuple[Snippet, int], seconds: float | None) -> None:
        self.bar.update(self.task, description=self.label, advance=1)


class _Lines:
    def __init__(self, expected: list[tuple[str, float | None]]):
        self.left, self.total = expected, len(expected)
        self.known = [seconds for _, seconds in expected if seconds is not None]

    def begun(self, item: tuple[Snippet, int]) -> None:
        pass

    def ended(self, item: tuple[Snippet, int], seconds: float | None) -> None:
        self.left.pop([name for name, _ in self.left].index(_name(item)))
        self.known += [] if seconds is None else [seconds]
        took = "failed" if seconds is None else f"{seconds:.1f} s"
        left = ""
        if self.left and self.known:
            usual = mean(self.known)
            left = f", about {_rough(sum(usual if s is None else s for _, s in self.left))} left"
        print(f"{self.total - len(self.left)}/{self.total} {_name(item)}: {took}{left}", file=sys.stderr, flush=True)


def _name(item: tuple[Snippet, int]) -> str:
    snippet, gpus = item
    return f"{snippet.name} on {gpus} GPU{'s' * (gpus > 1)}" if gpus else snippet.name


def _rough(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"


def _expected(root: Path, snippet: Snippet, gpus: int) -> float | None:
    """How long a recording says that it takes: one of this machine, else of any with as many GPUs."""
    own = machine.profile(machine.here()["gpus"][:gpus])
    found = sorted(root.glob(f"docs/recordings/*/{snippet.name}.json"), key=lambda path: path.parts[-3] != own)
    for path in found:
        with contextlib.suppress(OSError, ValueError, LookupError, TypeError):
            data = json.loads(path.read_text(encoding="utf-8"))
            if len(data["machine"]["gpus"]) == gpus:
                return float(data["run"]["seconds"])
    return None
