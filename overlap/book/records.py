"""Snippets and their recording on each machine: the committed one, or what this machine ran itself."""

from pathlib import Path

from overlap import OverlapError
from overlap.book.library import Library
from overlap.book.local_runs import LocalRuns, cache_folder
from overlap.book.recording import Recording, has_trials
from overlap.run import hardware
from overlap.run.derived import derived
from overlap.run.recording import has_runs_of
from overlap.run.runner import Runner
from overlap.run.snippet import Snippet


class Records:
    """Snippets with their recordings, as they are on disk when this is made.

    `execute` is `auto` or `never`: committed recordings only. `runner` is one that is running already,
    `library` one that is read already.
    """

    def __init__(
        self,
        root: Path,
        execute: str = "auto",
        runner: Runner | None = None,
        library: Library | None = None,
    ):
        if execute not in ("auto", "never"):
            reason = f"execute is auto or never, not {execute!r}"
            raise OverlapError(f"{reason}; mend OVERLAP_EXECUTE or mkdocs.yml")
        self.root = root
        self.execute = execute
        self.runner = runner
        self.library = library or Library(root)
        #: Snippets by name.
        self.snippets = self.library.snippets
        #: The reference machines, each with the number of runs wanted there; where none is named, all are.
        self.references = self.library.references
        self.docs = root / "docs"
        self.cache = cache_folder(root)
        self.local = LocalRuns(self.library, execute)
        self._forget()

    def _forget(self) -> None:
        self._recordings: dict[str, dict[str, Recording]] = {}
        self._results: dict[tuple, dict] = {}

    def is_reference(self, machine: str) -> bool:
        """Whether this is a reference machine: a false claim there stops the build."""
        return not self.references or machine in self.references

    def snippet(self, name: str) -> Snippet:
        """The snippet of this name; a wrong name is an error that says why."""
        return self.library.snippet(name)

    @property
    def committed(self) -> dict[str, dict[str, Recording]]:
        """Committed recordings by snippet and machine; one that cannot be read is an error."""
        if self.library.unreadable_recordings:
            raise OverlapError("\n".join(self.library.unreadable_recordings))
        return self.library.recordings

    def measures(self, name: str) -> bool:
        """Whether a snippet is a measurement, with trials; what never ran may be one."""
        recordings = self.committed.get(name, {}).values()
        return not recordings or any(has_trials(recording.result) for recording in recordings)

    def runs_wanted(self, name: str, machine: str) -> int:
        """How many runs of a snippet a recording of this machine should have."""
        return self.references.get(machine, 1) if self.measures(name) else 1

    def recordings(self, name: str) -> dict[str, Recording]:
        """The recording of each machine, the CPU first, then by GPU count; a wrong name is an error.

        It is the local one, unless the committed one has its runs, too.
        """
        if name not in self._recordings:
            self.snippet(name)
            recordings = dict(self.committed.get(name, {}))
            for machine, local in self.local.of(name).items():
                if machine not in recordings or not has_runs_of(recordings[machine].data, local.data):
                    recordings[machine] = local
            machines = sorted(recordings, key=hardware.order)
            self._recordings[name] = {machine: recordings[machine] for machine in machines}
        return self._recordings[name]

    def result(self, recording: Recording, number: int = 0) -> dict:
        """What `main()` returned in a run of a recording, and what `derive` adds to it."""
        key = (recording.path, number)
        if key not in self._results:
            measured = recording.runs[number]["result"]
            run = f"{recording.machine}: {recording.path}, run {number + 1}"
            self._results[key] = measured | derived(self.snippet(recording.snippet), measured, run)
        return self._results[key]

    def keep(self, snippet: Snippet, gpus: int, data: dict) -> None:
        """Put a recording into this machine's cache."""
        self.local.keep(snippet, gpus, data)
        self._forget()

    def run(self, names: list[str] | None = None, force: bool = False) -> int:
        """Run into the cache what this machine can and has not run; return how many ran.

        Failures raise, after all had their turn.
        """
        try:
            return self.local.run(names, force, self.runner)
        finally:
            self._forget()
