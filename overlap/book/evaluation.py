"""What expressions of pages see of a run, and what they give over all runs: numbers, and verdicts on claims.

`Book` calls these once for each value, claim and run, and keeps what they return.
"""

from dataclasses import replace
from typing import TYPE_CHECKING

from overlap import OverlapError
from overlap.book.ceiling import ceilings
from overlap.book.expression import Chapter, Data, Undecided, evaluate, wrap
from overlap.book.recording import Recording, disturbed, hosts
from overlap.book.statistic import Statistic, show
from overlap.book.value import Value
from overlap.book.verdict import State, Verdict
from overlap.run import machine
from overlap.run.derived import NotDerived, derived

if TYPE_CHECKING:
    from overlap.book.blocks import Claim
    from overlap.book.book import Book


def machine_scope(profile: str, here: dict) -> dict:
    """What an expression or a condition knows of a recorded machine."""
    name = "the CPU"
    model = machine.profile([])
    capability = 0.0
    if here["gpus"]:
        first = here["gpus"][0]
        name = first["name"]
        model = machine.profile([name])
        capability = float(first["capability"])
    return {
        "profile": profile,
        "model": model,
        "gpus": len(here["gpus"]),
        "capability": capability,
        "cores": here["cores"],
        "ceiling": Data(ceilings(here), f"ceiling of {name}"),
    }


def speaks_of(condition: str, recording: Recording) -> bool:
    """Whether a condition is true of a recording's machine; an empty one is true of all."""
    if not condition:
        return True
    return bool(evaluate(condition, machine_scope(recording.profile, recording.data["machine"])))


def result(book: "Book", recording: Recording, number: int) -> dict:
    """What `main()` returned in a run of a recording, and what `derive` adds to it."""
    measured = recording.runs[number]["result"]
    run = f"{recording.profile}: {recording.path}, run {number + 1}"
    return measured | derived(book.snippet(recording.snippet), measured, run)


def scope(book: "Book", recording: Recording, number: int) -> dict:
    """Names that an expression over one run of a recording can use; keys of the run's result come first."""
    run = recording.runs[number]

    def load(other: str) -> dict:
        """Result of another snippet, on the same host where there is one."""
        if other not in book.snippets or recording.profile not in book.recordings(other):
            raise Undecided(f"no run of {other} on {recording.profile}")
        of_other = book.recordings(other)[recording.profile]
        recorded_on = [candidate["machine"].get("host") for candidate in of_other.runs]
        host = run["machine"].get("host")
        return book.result(of_other, recorded_on.index(host) if host in recorded_on else 0)

    chapters = {snippet.chapter for snippet in book.snippets.values()}
    names: dict = {chapter: Chapter(chapter, load) for chapter in chapters}
    names |= machine_scope(recording.profile, run["machine"])
    for key, value in result(book, recording, number).items():
        names[key] = wrap(value, f"{recording.snippet}.{key}")
    return names


def statistics(book: "Book", value: Value) -> dict[str, Statistic]:
    """What an expression gives in all runs of each machine; nothing anywhere is an error."""
    recordings = book.recordings(value.snippet)
    by_profile = {}
    for profile, recording in recordings.items():
        if value.profile in (None, profile):
            by_profile[profile] = _statistic(book, value, recording)
    if any(item.values for item in by_profile.values()):
        return by_profile
    reason = f"{value.snippet}: `{value.expression}` has no value on"
    if not by_profile:
        remedy = f"run `overlap record {value.snippet}` on one"
        raise OverlapError(f"{reason} {value.profile or 'any machine'}; {remedy}")
    *_, last = by_profile.values()
    raise OverlapError(f"{reason} {', '.join(by_profile)} ({last.why}); mend the expression")


def _statistic(book: "Book", value: Value, recording: Recording) -> Statistic:
    values = []
    runs = []
    why = ""
    for number, run in enumerate(recording.runs):
        try:
            item = evaluate(value.expression, book.scope(recording, number))
            show(item, value.spec)
            values.append(item)
            runs.append(run)
        except (TypeError, ValueError, OverflowError) as error:
            why = f"`{value.expression}:{value.spec}`: {error}"
            raise OverlapError(f"{value.snippet}: {why}; mend the format, or the expression") from None
        except OverlapError as error:
            wanted = value.profile or book.is_reference(recording.profile)
            if wanted and isinstance(error, NotDerived):
                raise
            if wanted and not isinstance(error, Undecided):
                raise OverlapError(f"{error}, in {recording.path}; mend the expression") from None
            why = why or str(error)
    if values:
        why = ""
    return Statistic(tuple(values), hosts(runs), why, value.spec, disturbed(runs))


def verdicts(book: "Book", claim: "Claim") -> list[Verdict]:
    """What each machine's data say of a claim; it must be decided by at least one."""
    of_machines = []
    for profile, recording in book.recordings(claim.snippet).items():
        of_machine = verdict(book, claim, recording, strict=book.is_reference(profile))
        if of_machine:
            of_machines.append(of_machine)
    if all(item.state is State.OPEN for item in of_machines):
        figures = "; ".join(item.figures for item in of_machines)
        why = figures or "it speaks of no machine that has a recording"
        reason = f"claim {claim.snippet}: no data decide it: {why}"
        raise OverlapError(f"{claim.where}: {reason}; mend its names or its condition, or record it")
    return of_machines


def verdict(book: "Book", claim: "Claim", recording: Recording, strict: bool = False) -> Verdict | None:
    """What one machine's data say of a claim; None where it does not speak of the machine.

    A claim that cannot be evaluated there is open, or an error if `strict`.
    """
    try:
        decided = claim.verdict(book.scopes(recording), recording)
    except OverlapError as error:
        if strict and isinstance(error, NotDerived):
            raise
        if strict:
            reason = f"claim {claim.snippet}: {error}, in {recording.path}"
            raise OverlapError(f"{claim.where}: {reason}; mend the claim") from None
        return Verdict(recording, State.OPEN, str(error))
    if decided and decided.state is State.FALSE:
        return replace(decided, torch=other_torch(book, recording))
    return decided


def other_torch(book: "Book", recording: Recording) -> str:
    """`torch 2.14.1+cu130 here, 2.13.0+cpu recorded`; nothing where they are the same.

    The recorded one is that of the same machine, else of the book's own with a GPU, or without one. A
    recording of the book itself is not compared: there the claim is mended.
    """
    committed = book.committed.get(recording.snippet, {})
    is_committed = committed.get(recording.profile) is recording
    if is_committed and book.is_reference(recording.profile):
        return ""
    own = {}
    for profile, known in committed.items():
        if book.is_reference(profile) and bool(known.gpus) == bool(recording.gpus):
            own[profile] = known.data["software"]["torch"]
    if recording.profile in own:
        own = {recording.profile: own[recording.profile]}
    now = recording.data["software"]["torch"]
    if not own or now in own.values():
        return ""
    where = "there" if is_committed and recording.profile not in book.library.profiles_here else "here"
    return f"torch {now} {where}, {' and '.join(sorted(set(own.values())))} recorded"
