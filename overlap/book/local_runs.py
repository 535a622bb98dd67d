"""What this machine can run, what its cache has, and what is still to run. `Records` asks it."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

from overlap.book.library import Library
from overlap.book.recording import Recording
from overlap.cache import Cache, digest, is_writable, write
from overlap.run import hardware
from overlap.run.recording import dump, read
from overlap.run.runner import RunFailed, Runner, grouped
from overlap.run.snippet import Snippet

#: Where this machine keeps what it ran and made, in the project's folder.
CACHE = ".cache/overlap"


def cache_folder(root: Path) -> Path:
    """The cache of a book: in its checkout, or else in the user's cache, or among temporary files."""
    if is_writable(root / CACHE):
        return root / CACHE
    name = f"overlap-{digest(str(root))[:12]}"
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / name
    if is_writable(folder):
        return folder
    return Path(tempfile.gettempdir()) / f"{name}-{os.getuid()}"


class LocalRuns:
    """Runs of the snippets of one library on this machine; with `execute` `never` there are none."""

    def __init__(self, library: Library, execute: str):
        self._library = library
        self._root = library.root
        self._execute = execute

    def of(self, name: str) -> dict[str, Recording]:
        """What the cache has of a snippet, by machine."""
        if self._execute == "never":
            return {}
        recordings = {}
        for snippet, gpus in self.runnable([name]):
            if self.path(snippet, gpus).exists():
                recording = self.read(snippet, gpus)
                recordings[recording.machine] = recording
        return recordings

    def runnable(self, names: list[str] | None = None) -> Iterator[tuple[Snippet, int]]:
        """Snippets with the GPU counts that this machine has and they ask for."""
        for name in names or self._library.snippets:
            snippet = self._library.snippet(name)
            for gpus in range(len(self._library.machines_here)):
                if gpus in snippet.options["gpus"]:
                    yield snippet, gpus

    def lacking(self, names: list[str] | None = None, force: bool = False) -> list[tuple[Snippet, int]]:
        """What this machine can run and has not run yet; with `force` all that it can run."""
        if self._execute == "never":
            return []
        return [item for item in self.runnable(names) if force or not self.path(*item).exists()]

    def run(self, names: list[str] | None, force: bool, runner: Runner | None) -> int:
        """Run what is lacking; return how many ran. Failures raise, after all had their turn.

        `runner` is one that is running already.
        """
        lacking = self.lacking(names, force)
        if not lacking:
            return 0
        with nullcontext(runner) if runner else Runner(self._root) as running:
            failures = running.run_all(lacking, self.keep)
        if failures:
            raise RunFailed("\n\n".join(grouped(failures)))
        return len(lacking)

    def keep(self, snippet: Snippet, gpus: int, data: dict) -> None:
        """Put a recording into the cache."""
        write(self.path(snippet, gpus), dump(data))

    def read(self, snippet: Snippet, gpus: int) -> Recording:
        """A recording from the cache."""
        path = self.path(snippet, gpus)
        where = path.relative_to(self._root) if path.is_relative_to(self._root) else path
        return Recording(read(path), where.as_posix(), is_local=True)

    def path(self, snippet: Snippet, gpus: int) -> Path:
        """The file of a recording: named by source, inputs, versions and devices."""
        here = [hardware.here(), self._library.machines_here]
        made_from = [snippet.digest, snippet.input_digests, here, gpus, snippet.options["ranks"]]
        cache = Cache(cache_folder(self._root))
        return cache.path("runs", f"{snippet.name}-{gpus}", made_from, ".json")
