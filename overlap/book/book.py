"""The book as read: its snippets, their recordings by machine, its pages, and what these say; each read once.

The command line, blocks and the site ask it. It reads files by `library`, this machine's cache by
`local_runs`, and evaluates what pages say by `evaluation`; `select` chooses which machine is shown.
"""

from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import TypeVar

from overlap import OverlapError
from overlap.book import check, evaluation, select
from overlap.book.blocks import Block, Claim, SnippetBlock
from overlap.book.library import Library
from overlap.book.local_runs import LocalRuns, cache_folder
from overlap.book.recording import Recording, has_trials
from overlap.book.statistic import Statistic
from overlap.book.value import Value
from overlap.book.verdict import Verdict
from overlap.run import machine
from overlap.run.recording import has_runs_of
from overlap.run.runner import Runner
from overlap.run.snippet import Snippet

B = TypeVar("B", bound=Block)


class Book:
    """A checkout of the book, as it is on disk when it is first asked.

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
        #: Snippets by name; the pages that can be read, by path below docs/. `check` names the others.
        self.snippets = self.library.snippets
        self.pages = self.library.pages
        #: The reference machines, each with the number of runs wanted there; where none is named, all are.
        self.references = self.library.references
        self.docs = root / "docs"
        self.cache = cache_folder(root)
        self.local = LocalRuns(self.library, execute)
        self._forget()

    def _forget(self) -> None:
        self._recordings: dict[str, dict[str, Recording]] = {}
        self._results: dict[tuple, dict] = {}
        self._scopes: dict[tuple, dict] = {}
        self._statistics: dict[Value, dict[str, Statistic]] = {}
        self._verdicts: dict[Claim, list[Verdict]] = {}

    @cached_property
    def as_committed(self) -> "Book":
        """This book without local recordings."""
        return self if self.execute == "never" else Book(self.root, "never", library=self.library)

    def with_recordings(self, recordings: dict[str, dict[str, Recording]]) -> "Book":
        """This book, which knows of these recordings and no others."""
        book = Book(self.root, "never", library=self.library)
        book._recordings = {name: recordings.get(name, {}) for name in self.snippets}
        return book

    # Machines

    def is_reference(self, profile: str) -> bool:
        """Whether this is a reference machine: a false claim there stops the build."""
        return not self.references or profile in self.references

    def machines(self) -> list[dict]:
        """All machines something ran on, and which one is shown first.

        Each has `profile`, `label`, `short`, `local` (this build ran on it), `first`, `reference` (a claim
        that is false there stops the build).
        """
        is_local = {}
        for name in self.snippets:
            for profile, recording in self.recordings(name).items():
                is_local[profile] = recording.is_local
        first = select.of_book(self)
        return [
            {
                "profile": profile,
                "label": machine.label(profile),
                "short": machine.short(profile),
                "local": is_local[profile],
                "first": profile == first,
                "reference": self.is_reference(profile),
            }
            for profile in sorted(is_local, key=machine.order)
        ]

    # Snippets and their recordings

    def snippet(self, name: str) -> Snippet:
        """The snippet of this name; a wrong name is an error that says why."""
        return self.library.snippet(name)

    @property
    def committed(self) -> dict[str, dict[str, Recording]]:
        """Committed recordings by snippet and profile; one that cannot be read is an error."""
        if self.library.unreadable_recordings:
            raise OverlapError("\n".join(self.library.unreadable_recordings))
        return self.library.recordings

    def measures(self, name: str) -> bool:
        """Whether a snippet is a measurement, with trials; what never ran may be one."""
        recordings = self.committed.get(name, {}).values()
        return not recordings or any(has_trials(recording.result) for recording in recordings)

    def runs_wanted(self, name: str, profile: str) -> int:
        """How many runs of a snippet a recording of this machine should have."""
        return self.references.get(profile, 1) if self.measures(name) else 1

    def recordings(self, name: str) -> dict[str, Recording]:
        """The recording of each machine, the CPU first, then by GPU count; a wrong name is an error.

        It is the local one, unless the committed one has its runs, too.
        """
        if name not in self._recordings:
            self.snippet(name)
            recordings = dict(self.committed.get(name, {}))
            for profile, local in self.local.of(name).items():
                if profile not in recordings or not has_runs_of(recordings[profile].data, local.data):
                    recordings[profile] = local
            profiles = sorted(recordings, key=machine.order)
            self._recordings[name] = {profile: recordings[profile] for profile in profiles}
        return self._recordings[name]

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

    # Pages and what they say of the data

    @property
    def blocks(self) -> Iterator[Block]:
        """All blocks of all pages."""
        for page in self.pages.values():
            yield from page.blocks

    def of_kind(self, kind: type[B]) -> list[B]:
        """All blocks of one kind."""
        return [block for block in self.blocks if isinstance(block, kind)]

    @property
    def values(self) -> set[Value]:
        """The values in sentences of all pages, without those that are pinned to one machine."""
        found = set()
        for block in self.blocks:
            found |= {value for value in block.values_in(self) if not value.profile}
        return found

    @property
    def claims(self) -> list[Claim]:
        """All claims of all pages."""
        return self.of_kind(Claim)

    @cached_property
    def places(self) -> dict[str, SnippetBlock]:
        """By snippet, the first block that shows its output, or else the first one."""
        places: dict[str, SnippetBlock] = {}
        for block in self.blocks:
            for shown in block.snippets:
                known = places.setdefault(shown.snippet, shown)
                if shown.output and not known.output:
                    places[shown.snippet] = shown
        return places

    def result(self, recording: Recording, number: int = 0) -> dict:
        """What `main()` returned in a run of a recording, and what `derive` adds to it."""
        key = (recording.path, number)
        if key not in self._results:
            self._results[key] = evaluation.result(self, recording, number)
        return self._results[key]

    def scope(self, recording: Recording, number: int = 0) -> dict:
        """Names an expression over one run of a recording can use; run 0 is the one that is shown."""
        key = (recording.path, number)
        if key not in self._scopes:
            self._scopes[key] = evaluation.scope(self, recording, number)
        return self._scopes[key]

    def scopes(self, recording: Recording) -> list[dict]:
        """What expressions see in each run of a recording."""
        return [self.scope(recording, number) for number in range(len(recording.runs))]

    def numbers(self, value: Value) -> dict:
        """What an expression gives on each machine that has data for it, the median of its runs."""
        return {profile: item.middle for profile, item in self.statistics(value).items() if item.values}

    def table(self, values: list[Value]) -> dict[str, list]:
        """The numbers of several expressions, on each machine that has them all."""
        columns = [self.numbers(value) for value in values]
        profiles = [profile for profile in columns[0] if all(profile in column for column in columns)]
        return {profile: [column[profile] for column in columns] for profile in profiles}

    def statistics(self, value: Value) -> dict[str, Statistic]:
        """What an expression gives in all runs of each machine; nothing anywhere is an error."""
        if value not in self._statistics:
            self._statistics[value] = evaluation.statistics(self, value)
        return self._statistics[value]

    def verdicts(self, claim: Claim) -> list[Verdict]:
        """What each machine's data say of a claim; it must be decided by at least one."""
        if claim not in self._verdicts:
            self._verdicts[claim] = evaluation.verdicts(self, claim)
        return self._verdicts[claim]

    def check(self, remarks: bool = True) -> list[str]:
        """Everything that is wrong with the committed book, each with file, reason and remedy.

        `remarks`: also what stops no build, such as what is right by a hair.
        """
        problems = check.problems(self.as_committed)
        known = set(problems)
        if remarks:
            problems += [remark for remark in check.remarks(self.as_committed) if remark not in known]
        return problems

    def findings(self, every: bool = False) -> list[str]:
        """What the claims say on machines that are no reference machines; none of it is an error.

        `every`: in full of each such machine, and not of this one alone.
        """
        return check.findings(self.as_committed, every)
