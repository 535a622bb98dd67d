"""What expressions of pages see of a run, and what they give over all runs: numbers, and verdicts on claims.

`Book` calls these once for each value, claim and run, and keeps what they return.
"""

from typing import TYPE_CHECKING

from overlap import OverlapError
from overlap.book.ceiling import ceilings
from overlap.book.expression import Chapter, Data, Undecided, evaluate, wrap
from overlap.book.runs import Run, disturbed, hosts
from overlap.book.statistic import Statistic, show
from overlap.book.value import Value
from overlap.book.verdict import State, Verdict
from overlap.run import machine

if TYPE_CHECKING:
    from overlap.book.blocks import Claim
    from overlap.book.book import Book


def machine_scope(profile: str, here: dict) -> dict:
    """What an expression or a condition knows of a recorded machine."""
    gpus = here["gpus"]
    name = gpus[0]["name"] if gpus else "the CPU"
    return {
        "profile": profile,
        "model": machine.profile([name] if gpus else []),
        "gpus": len(gpus),
        "capability": float(gpus[0]["capability"]) if gpus else 0.0,
        "cores": here["cores"],
        "ceiling": Data(ceilings(here), f"ceiling of {name}"),
    }


def speaks_of(condition: str, run: Run) -> bool:
    """Whether a condition is true of the machine of a run; an empty one is true of all."""
    return not condition or bool(evaluate(condition, machine_scope(run.profile, run.data["machine"])))


def scope(book: "Book", name: str, run: Run, number: int) -> dict:
    """Names that an expression over one of a snippet's runs can use: its own result before all else."""
    data = run.all[number]

    def load(other: str) -> dict:
        """Result of another snippet, on the same host where there is one."""
        if other not in book.snippets or run.profile not in book.runs(other):
            raise Undecided(f"no run of {other} on {run.profile}")
        runs = book.runs(other)[run.profile].all
        host = data["machine"].get("host")
        of_host = [candidate for candidate in runs if candidate["machine"].get("host") == host]
        return (of_host or runs)[0]["result"]

    chapters = {snippet.chapter for snippet in book.snippets.values()}
    names: dict = {chapter: Chapter(chapter, load) for chapter in chapters}
    names |= machine_scope(run.profile, data["machine"])
    return names | {key: wrap(value, f"{name}.{key}") for key, value in data["result"].items()}


def statistics(book: "Book", value: Value) -> dict[str, Statistic]:
    """What an expression gives in all runs of each machine; nothing anywhere is an error."""
    runs = book.runs(book.snippet(value.snippet).name)
    if value.profile:
        runs = {profile: run for profile, run in runs.items() if profile == value.profile}
    by_profile = {profile: _statistic(book, value, run) for profile, run in runs.items()}
    if any(item.values for item in by_profile.values()):
        return by_profile
    reason = f"{value.snippet}: `{value.expression}` has no value on"
    if not runs:
        remedy = f"run `overlap record {value.snippet}` where that machine is"
        raise OverlapError(f"{reason} {value.profile or 'any machine'}; {remedy}")
    *_, last = by_profile.values()
    raise OverlapError(f"{reason} {', '.join(runs)} ({last.why}); mend the expression")


def _statistic(book: "Book", value: Value, run: Run) -> Statistic:
    values = []
    runs = []
    why = ""
    for number, data in enumerate(run.all):
        try:
            item = evaluate(value.expression, book.scope(value.snippet, run, number))
            show(item, value.spec)
            values.append(item)
            runs.append(data)
        except (TypeError, ValueError, OverflowError) as error:
            why = f"`{value.expression}:{value.spec}`: {error}"
            raise OverlapError(f"{value.snippet}: {why}; mend the format, or the expression") from None
        except OverlapError as error:
            wanted = value.profile or book.at_home(run.profile)
            if wanted and not isinstance(error, Undecided):
                raise OverlapError(f"{error}, in {run.path}; mend the expression") from None
            why = why or str(error)
    return Statistic(tuple(values), hosts(runs), "" if values else why, value.spec, disturbed(runs))


def verdicts(book: "Book", claim: "Claim") -> list[Verdict]:
    """What each machine's data say of a claim; it must be decided by at least one."""
    runs = book.runs(book.snippet(claim.snippet).name)
    of_machines = [_verdict(book, claim, run) for run in runs.values()]
    of_machines = [verdict for verdict in of_machines if verdict]
    if all(verdict.state is State.OPEN for verdict in of_machines):
        figures = "; ".join(verdict.figures for verdict in of_machines)
        why = figures or "it speaks of no machine that has a recording"
        reason = f"claim {claim.snippet}: no data decide it: {why}"
        raise OverlapError(f"{claim.where}: {reason}; mend its names or its condition, or record it")
    return of_machines


def _verdict(book: "Book", claim: "Claim", run: Run) -> Verdict | None:
    try:
        return claim.verdict(book.scopes(claim.snippet, run), run)
    except OverlapError as error:
        if book.at_home(run.profile):
            reason = f"claim {claim.snippet}: {error}, in {run.path}"
            raise OverlapError(f"{claim.where}: {reason}; mend the claim") from None
        return Verdict(run.profile, State.OPEN, str(error), run.live, run.path)
