"""The book as read: its snippets, their runs by machine, its pages, and what these say; each read once.

The command line, blocks and the site ask it. It reads files by `library`, this machine's cache by `own_runs`,
and evaluates what pages say by `evaluation`; `select` chooses which machine is shown.
"""

from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import TypeVar

from overlap import OverlapError
from overlap.book import check, evaluation, select
from overlap.book.blocks import Block, Claim, SnippetBlock
from overlap.book.library import Library
from overlap.book.own_runs import OwnRuns, cache_folder
from overlap.book.runs import Run, has_trials
from overlap.book.statistic import Statistic
from overlap.book.value import Value
from overlap.book.verdict import Verdict
from overlap.run import machine
from overlap.run.runner import Runner
from overlap.run.snippet import Snippet

B = TypeVar("B", bound=Block)


class Book:
    """A checkout of the book, as it is on disk when it is first asked.

    `execute` is `auto`, `never` (committed recordings only) or `always`; `runner` is one that is running
    already, `library` one that is read already.
    """

    def __init__(
        self,
        root: Path,
        execute: str = "auto",
        runner: Runner | None = None,
        library: Library | None = None,
    ):
        if execute not in ("auto", "never", "always"):
            reason = f"execute is auto, never or always, not {execute!r}"
            raise OverlapError(f"{reason}; mend OVERLAP_EXECUTE or mkdocs.yml")
        self.root = root
        self.execute = execute
        self.runner = runner
        self.library = library or Library(root)
        #: Snippets by name; the pages that can be read, by path below docs/. `check` names the others.
        self.snippets = self.library.snippets
        self.pages = self.library.pages
        #: Runs wanted on each of the book's own machines; where none is named, all are.
        self.home = self.library.home
        self.docs = root / "docs"
        self.recordings = root / "docs/recordings"
        self.cache = cache_folder(root)
        self.own = OwnRuns(self.library, execute)
        self._forget()

    def _forget(self) -> None:
        self._runs: dict[str, dict[str, Run]] = {}
        self._scopes: dict[tuple, dict] = {}
        self._statistics: dict[Value, dict[str, Statistic]] = {}
        self._verdicts: dict[Claim, list[Verdict]] = {}

    @cached_property
    def as_committed(self) -> "Book":
        """This book without what this machine ran itself."""
        return self if self.execute == "never" else Book(self.root, "never", library=self.library)

    def of_runs(self, runs: dict[str, dict[str, Run]]) -> "Book":
        """This book, which knows of these runs and no others."""
        book = Book(self.root, "never", library=self.library)
        book._runs = {name: runs.get(name, {}) for name in self.snippets}
        return book

    # Machines

    def at_home(self, profile: str) -> bool:
        """Whether a false claim on this machine stops the build; elsewhere it is a finding."""
        return not self.home or profile in self.home

    def machines(self) -> list[dict]:
        """All machines something ran on, and which one is shown first.

        Each has `profile`, `label`, `live` (this build ran on it), `first`, `home` (one of the book's own).
        """
        runs = {profile: run for name in self.snippets for profile, run in self.runs(name).items()}
        first = select.of_book(self)
        return [
            {
                "profile": profile,
                "label": machine.label(profile),
                "live": runs[profile].live,
                "first": profile == first,
                "home": self.at_home(profile),
            }
            for profile in sorted(runs, key=machine.order)
        ]

    # Snippets and their runs

    def snippet(self, name: str) -> Snippet:
        """The snippet of this name; a wrong name is an error that says why."""
        return self.library.snippet(name)

    @property
    def committed(self) -> dict[str, dict[str, Run]]:
        """Committed recordings by snippet and profile; one that cannot be read is an error."""
        if self.library.unreadable_recordings:
            raise OverlapError("\n".join(self.library.unreadable_recordings))
        return self.library.recordings

    def measures(self, name: str) -> bool:
        """Whether a snippet is a measurement, with trials; what never ran may be one."""
        runs = self.committed.get(name, {}).values()
        return not runs or any(has_trials(run.result) for run in runs)

    def runs_wanted(self, name: str, profile: str) -> int:
        """How many runs of a snippet should be recorded on this machine."""
        return self.home.get(profile, 1) if self.measures(name) else 1

    def runs(self, name: str) -> dict[str, Run]:
        """Best run per machine, the CPU first, then by GPU count.

        It is this machine's own, unless the committed recording has that run, too.
        """
        if name not in self._runs:
            runs = dict(self.committed.get(name, {}))
            for profile, run in self.own.of(name).items():
                if profile not in runs or not runs[profile].data.has(run.data):
                    runs[profile] = run
            self._runs[name] = {profile: runs[profile] for profile in sorted(runs, key=machine.order)}
        return self._runs[name]

    def keep(self, snippet: Snippet, gpus: int, data: dict) -> None:
        """Put a recording into this machine's cache."""
        self.own.keep(snippet, gpus, data)
        self._forget()

    def run(self, names: list[str] | None = None, force: bool = False) -> int:
        """Run into the cache what this machine can and has not run; return how many ran.

        Failures raise, after all had their turn.
        """
        try:
            return self.own.run(names, force, self.runner)
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

    def scope(self, name: str, run: Run, number: int = 0) -> dict:
        """Names an expression over this run can use; `number` counts its runs, 0 is the one shown whole."""
        key = (name, run.path, number)
        if key not in self._scopes:
            self._scopes[key] = evaluation.scope(self, name, run, number)
        return self._scopes[key]

    def scopes(self, name: str, run: Run) -> list[dict]:
        """What expressions see in each run of a recording."""
        return [self.scope(name, run, number) for number in range(len(run.all))]

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
        """What the claims say on machines that are not the book's own: told, and no error.

        `every`: in full of each such machine, and not of this one alone.
        """
        return check.findings(self.as_committed, every)
