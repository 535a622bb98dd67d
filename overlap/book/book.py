"""The book's data: recordings by machine, and what an expression or a claim gives over their runs.

The command line, blocks and the site ask it. It knows no page and no block: what it needs of a claim stands
in `verdict`. `records` has the recordings; `select` chooses which machine is shown.
"""

from dataclasses import replace
from functools import cached_property

from overlap import OverlapError
from overlap.book import select
from overlap.book.condition import machine_scope
from overlap.book.expression import Chapter, Data, Undecided, evaluate, wrap
from overlap.book.recording import Recording, disturbed, hosts
from overlap.book.records import Records
from overlap.book.statistic import Statistic, show
from overlap.book.value import Value
from overlap.book.verdict import Decidable, State, Verdict
from overlap.run import hardware
from overlap.run.derived import NotDerived


class Book(Records):
    """A checkout of the book, as it is on disk when it is made; what it says of its data is computed once."""

    def _forget(self) -> None:
        super()._forget()
        self._scopes: dict[tuple, dict] = {}
        self._statistics: dict[Value, dict[str, Statistic]] = {}
        self._verdicts: dict[Decidable, list[Verdict]] = {}

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

    def machines(self) -> list[dict]:
        """All machines something ran on, and which one is shown first.

        Each has `name`, `label`, `model` and `called` (see `hardware`), `local` (this build ran on it),
        `first`, `reference` (a claim that is false there stops the build).
        """
        is_local = {}
        for name in self.snippets:
            for machine, recording in self.recordings(name).items():
                is_local[machine] = recording.is_local
        first = select.of_book(self)
        return [
            {
                "name": machine,
                "label": hardware.label(machine),
                "model": hardware.model(machine),
                "called": hardware.called(machine),
                "local": is_local[machine],
                "first": machine == first,
                "reference": self.is_reference(machine),
            }
            for machine in sorted(is_local, key=hardware.order)
        ]

    # What an expression sees of a run

    @cached_property
    def _chapters(self) -> set[str]:
        return {snippet.chapter for snippet in self.snippets.values()}

    def scope(self, recording: Recording, number: int = 0) -> dict:
        """Names an expression over one run of a recording can use; run 0 is the one that is shown."""
        key = (recording.path, number)
        if key not in self._scopes:
            self._scopes[key] = self._scope(recording, number)
        return self._scopes[key]

    def scopes(self, recording: Recording) -> list[dict]:
        """What expressions see in each run of a recording."""
        return [self.scope(recording, number) for number in range(len(recording.runs))]

    def _scope(self, recording: Recording, number: int) -> dict:
        """Keys of the run's result come before names of machines and chapters."""
        run = recording.runs[number]

        def load(other: str) -> dict:
            """Result of another snippet, on the same host where there is one."""
            if other not in self.snippets or recording.machine not in self.recordings(other):
                raise Undecided(f"no run of {other} on {recording.machine}")
            of_other = self.recordings(other)[recording.machine]
            recorded_on = [candidate["machine"].get("host") for candidate in of_other.runs]
            host = run["machine"].get("host")
            return self.result(of_other, recorded_on.index(host) if host in recorded_on else 0)

        names: dict = {chapter: Chapter(chapter, load) for chapter in self._chapters}
        names |= machine_scope(run["machine"])
        names["software"] = Data(run["software"], f"software of {recording.snippet}")
        for key, value in self.result(recording, number).items():
            names[key] = wrap(value, f"{recording.snippet}.{key}")
        return names

    # What values and claims give over all runs

    def numbers(self, value: Value) -> dict:
        """What an expression gives on each machine that has data for it, the median of its runs."""
        return {machine: item.middle for machine, item in self.statistics(value).items() if item.values}

    def table(self, values: list[Value]) -> dict[str, list]:
        """The numbers of several expressions, on each machine that has them all."""
        columns = [self.numbers(value) for value in values]
        machines = [machine for machine in columns[0] if all(machine in column for column in columns)]
        return {machine: [column[machine] for column in columns] for machine in machines}

    def statistics(self, value: Value) -> dict[str, Statistic]:
        """What an expression gives in all runs of each machine; nothing anywhere is an error."""
        if value not in self._statistics:
            self._statistics[value] = self._statistics_of(value)
        return self._statistics[value]

    def verdicts(self, claim: Decidable) -> list[Verdict]:
        """What each machine's data say of a claim; it must be decided by at least one."""
        if claim not in self._verdicts:
            self._verdicts[claim] = self._verdicts_of(claim)
        return self._verdicts[claim]

    def _statistics_of(self, value: Value) -> dict[str, Statistic]:
        recordings = self.recordings(value.snippet)
        by_machine = {}
        for machine, recording in recordings.items():
            if value.machine in (None, machine):
                by_machine[machine] = self._statistic(value, recording)
        if any(item.values for item in by_machine.values()):
            return by_machine
        reason = f"{value.snippet}: `{value.expression}` has no value on"
        if not by_machine:
            remedy = f"run `overlap record {value.snippet}` on one"
            raise OverlapError(f"{reason} {value.machine or 'any machine'}; {remedy}")
        *_, last = by_machine.values()
        raise OverlapError(f"{reason} {', '.join(by_machine)} ({last.why}); mend the expression")

    def _statistic(self, value: Value, recording: Recording) -> Statistic:
        values = []
        runs = []
        why = ""
        for number, run in enumerate(recording.runs):
            try:
                item = evaluate(value.expression, self.scope(recording, number))
                show(item, value.spec)
                values.append(item)
                runs.append(run)
            except (TypeError, ValueError, OverflowError) as error:
                why = f"`{value.expression}:{value.spec}`: {error}"
                raise OverlapError(f"{value.snippet}: {why}; mend the format, or the expression") from None
            except OverlapError as error:
                wanted = value.machine or self.is_reference(recording.machine)
                if wanted and isinstance(error, NotDerived):
                    raise
                if wanted and not isinstance(error, Undecided):
                    raise OverlapError(f"{error}, in {recording.path}; mend the expression") from None
                why = why or str(error)
        if values:
            why = ""
        return Statistic(tuple(values), hosts(runs), why, value.spec, disturbed(runs))

    def _verdicts_of(self, claim: Decidable) -> list[Verdict]:
        of_machines = []
        for machine, recording in self.recordings(claim.snippet).items():
            of_machine = self.verdict(claim, recording, strict=self.is_reference(machine))
            if of_machine:
                of_machines.append(of_machine)
        if all(item.state is State.OPEN for item in of_machines):
            figures = "; ".join(item.figures for item in of_machines)
            why = figures or "it speaks of no machine that has a recording"
            reason = f"claim {claim.snippet}: no data decide it: {why}"
            raise OverlapError(f"{claim.where}: {reason}; mend its names or its condition, or record it")
        return of_machines

    def verdict(self, claim: Decidable, recording: Recording, strict: bool = False) -> Verdict | None:
        """What one machine's data say of a claim; None where it does not speak of the machine.

        A claim that cannot be evaluated there is open, or an error if `strict`.
        """
        try:
            decided = claim.verdict(self.scopes(recording), recording)
        except OverlapError as error:
            if strict and isinstance(error, NotDerived):
                raise
            if strict:
                reason = f"claim {claim.snippet}: {error}, in {recording.path}"
                raise OverlapError(f"{claim.where}: {reason}; mend the claim") from None
            return Verdict.undecided(recording, str(error))
        if decided and decided.state is State.FALSE:
            return replace(decided, torch=self._other_torch(recording))
        return decided

    def _other_torch(self, recording: Recording) -> str:
        """`torch 2.14.1+cu130 here, 2.13.0+cpu recorded`; nothing where they are the same.

        The recorded one is that of the same machine, else of the book's own with a GPU, or without one. A
        recording of the book itself is not compared: there the claim is mended.
        """
        committed = self.committed.get(recording.snippet, {})
        is_committed = committed.get(recording.machine) is recording
        if is_committed and self.is_reference(recording.machine):
            return ""
        own = {}
        for machine, known in committed.items():
            if self.is_reference(machine) and bool(known.gpus) == bool(recording.gpus):
                own[machine] = known.data["software"]["torch"]
        if recording.machine in own:
            own = {recording.machine: own[recording.machine]}
        now = recording.data["software"]["torch"]
        if not own or now in own.values():
            return ""
        where = "there" if is_committed and recording.machine not in self.library.machines_here else "here"
        return f"torch {now} {where}, {' and '.join(sorted(set(own.values())))} recorded"
