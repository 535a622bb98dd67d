"""What this machine reaches now: headline rates beside ceilings and recordings, and which claims hold here.

A rate is LOW below `NEAR` times the lowest recorded run of the same model of GPU, a time above the highest
divided by it; a CPU is of the same model if its name is the same. Without such a recording a rate is LOW
where its share of the ceiling is below `FAR` times the lowest share that any recorded GPU reaches.
Recordings are the committed ones, and not of other code than this checkout's. A cause is named only where
a fact shows it.

`verify` gives plain data for JSON:

    machine, software  as in a recording
    quick              whether only headlines were measured
    headlines          label, unit, profile, snippet, value, ceiling, share,
                       recorded {profile: median, low, high, runs, share},
                       compared ("model", "share" or null), bound,
                       bound_by ("arithmetic", "memory", "pcie", "other" or null), smaller_is_better,
                       state ("ok", "LOW", "unknown")
    claims             page, line, text, expression, profile (null where it did not run),
                       state ("holds", "false", "open"), figures, busy (what other work did to the host as
                       it ran; empty where it was calm)
    diagnosis          fact (null: the cause is not known), explains (labels of headlines)
    unchecked          what could not be measured here, and why: snippets, why
    failures           what snippets said that failed
"""

from collections.abc import Callable, Iterator
from datetime import timedelta
from statistics import median

from overlap import OverlapError
from overlap.book import diagnosis
from overlap.book.blocks import Headline, Headlines
from overlap.book.book import Book
from overlap.book.diagnosis import LOW, OK, UNKNOWN
from overlap.book.expression import Undecided
from overlap.book.mine import Mine
from overlap.book.runs import Run, busy
from overlap.book.statistic import plural, show
from overlap.book.verdict import State
from overlap.run import health, machine, noise
from overlap.run.runner import RunFailed, Runner, grouped
from overlap.run.snippet import Snippet
from overlap.run.text import aligned

NEAR, FAR = 0.85, 0.7
#: Seconds that waiting for a busy host may take with `--quick`.
PATIENCE_S = 5

#: Runs that were made now, by snippet and profile.
Made = dict[str, dict[str, Run]]


def verify(
    book: Book,
    names: list[str] | None = None,
    quick: bool = False,
    tell: Callable[[str], object] = lambda text: None,
    mine: Mine | None = None,
) -> dict:
    """Run what this machine can now, and compare; see above for what it gives. `tell` hears what begins.

    What the file `mine` has is not run again; it takes what is run now.
    """
    rows = [row for block in book.blocks if isinstance(block, Headlines) for row in block.rows]
    chosen = able = list(book.own.runnable(names))
    if quick:
        chosen = _of_headlines(book, rows, able) or able
    wanted = mine.lacking(chosen) if mine else chosen
    seconds = timedelta(seconds=round(sum(_seconds(book, *item) for item in wanted)))
    before = f"{len(chosen) - len(wanted)} are in {mine.path.name}" if mine else "whatever ran before"
    tell(f"{plural(len(wanted), 'run')} afresh, {before}: about {seconds} by the recordings")
    first_look = diagnosis.look()
    states = health.state()
    made: Made = mine.runs() if mine else {}

    def keep(snippet: Snippet, gpus: int, data: dict) -> None:
        if mine:
            mine.add(snippet, data)
        book.keep(snippet, gpus, data)
        run = book.own.read(snippet, gpus)
        made.setdefault(snippet.name, {})[run.profile] = run

    patience_s = PATIENCE_S if quick else noise.PATIENCE_S
    with Runner(book.root, watchful=True, patience_s=patience_s) as runner:
        here = runner.probe(len(machine.here()["gpus"]))
        failed = runner.run_all(wanted, keep, "verifying", lambda item: _seconds(book, *item) or 1.0)
        lacking = _lacking(book, failed)
        failures = grouped([failure for failure in failed if failure.path not in lacking])
        now = book.of_runs(made)
        headlines = []
        for row in rows:
            headlines += _headlines(book.as_committed, now, row, failures)
        watched = _watch_again(runner, chosen, headlines)
    last_look = diagnosis.look()
    names = names or list(book.snippets)
    unchecked = _unchecked(book, names, able, chosen, made, lacking)
    if mine:
        mine.unchecked = unchecked
    mine, recorded = _with_recorded(book.as_committed, made)
    others = diagnosis.of_others(first_look, last_look, mine)
    facts = [diagnosis.Fact(others, "host")] if others else []
    facts += diagnosis.of_gpus(here["machine"], states, watched)
    facts += diagnosis.of_host(mine, recorded)
    return {
        "machine": here["machine"],
        "software": here["software"],
        "quick": quick,
        "headlines": headlines,
        "claims": list(_claims(now, made, names, unchecked, diagnosis.of_others(first_look, last_look, []))),
        "diagnosis": list(diagnosis.explained(headlines, facts)),
        "unchecked": [{"snippet": name, "why": why} for name, why in unchecked.items()],
        "failures": failures,
    }


def _lacking(book: Book, failed: list[RunFailed]) -> dict[str, list[str]]:
    """Packages that are not installed here, by path of the snippets that failed and ask for them."""
    paths = {failure.path for failure in failed}
    lacking = {}
    for snippet in book.snippets.values():
        if snippet.path in paths and snippet.not_installed:
            lacking[snippet.path] = snippet.not_installed
    return lacking


def _unchecked(
    book: Book, names: list[str], able: list, chosen: list, made: Made, lacking: dict[str, list[str]]
) -> dict[str, str]:
    """Why each of the other snippets was not measured."""
    runnable = {snippet.name for snippet, _ in able}
    tried = {snippet.name for snippet, _ in chosen}
    unchecked = {}
    for name in sorted(set(names) - set(made)):
        unchecked[name] = book.snippets[name].requirement
        if name in runnable:
            unchecked[name] = "failed" if name in tried else "left out by --quick"
        packages = lacking.get(book.snippets[name].path)
        if packages:
            unchecked[name] = f"needs {' and '.join(packages)}, not installed here"
    return unchecked


def _of_headlines(book: Book, rows: list[Headline], able: list[tuple[Snippet, int]]) -> list:
    """The runs that give headlines, each on the fewest GPUs."""
    behind = set()
    for row in rows:
        behind |= {row.snippet} | book.reads(row.expression) | book.reads(row.ceiling)
    fewest: dict[str, tuple[Snippet, int]] = {}
    for snippet, gpus in sorted(able, key=lambda item: (item[1] == 0, item[1])):
        if snippet.name in behind:
            fewest.setdefault(snippet.name, (snippet, gpus))
    return list(fewest.values())


def _seconds(book: Book, snippet: Snippet, gpus: int) -> float:
    """How long a run takes by the recordings of as many GPUs; of what is not recorded nobody knows."""
    runs = book.committed.get(snippet.name, {}).values()
    known = book.library.seconds.get(snippet.name, {}).get(str(gpus), 0)
    return max((run.seconds for run in runs if run.gpus == gpus), default=known)


def _headlines(committed: Book, now: Book, row: Headline, failures: list[str]) -> Iterator[dict]:
    """A headline on each profile that ran, beside what is recorded; what cannot be read is a failure."""
    for profile, run in now.runs(now.snippet(row.snippet).name).items():
        try:
            value, ceiling, share = row.of_run(now.scope(row.snippet, run))
        except Undecided:
            continue
        except OverlapError as error:
            failures.append(f"{row.label} on {profile}: {error}")
            continue
        recorded = _recorded(committed, row, run)
        shares = [item["share"] for item in recorded.values() if item["share"]]
        compared = bound = None
        if profile in recorded:
            compared = "model"
            bound = recorded[profile]["high"] / NEAR if row.is_time else recorded[profile]["low"] * NEAR
        elif share and shares:
            compared = "share"
            least = FAR * min(shares)
            bound = ceiling / least if row.is_time else ceiling * least
        state = UNKNOWN
        if bound is not None:
            is_low = value > bound if row.is_time else value < bound
            state = LOW if is_low else OK
        yield {
            "label": row.label,
            "unit": row.unit,
            "profile": profile,
            "snippet": row.snippet,
            "value": value,
            "ceiling": ceiling,
            "share": share,
            "recorded": recorded,
            "compared": compared,
            "bound": bound,
            "bound_by": row.bound_by,
            "smaller_is_better": row.is_time,
            "state": state,
        }


def _recorded(committed: Book, row: Headline, here: Run) -> dict[str, dict]:
    """What the committed recordings of each machine say of a headline; of CPUs only those of this name."""
    recorded = {}
    for profile, run in committed.runs(row.snippet).items():
        scopes = [committed.scope(row.snippet, run, number) for number in diagnosis.alike(run, here)]
        try:
            values, shares = row.over(scopes)
        except OverlapError:  # there is nothing to compare with; `overlap check` says why
            continue
        if values:
            recorded[profile] = {
                "median": median(values),
                "low": min(values),
                "high": max(values),
                "runs": len(values),
                "share": min(shares, default=None),
            }
    return recorded


def _with_recorded(committed: Book, made: Made) -> tuple[list[dict], list[dict]]:
    """The runs that were made, and the recorded ones that can be compared with them."""
    mine = []
    recorded = []
    for name, runs in made.items():
        for profile, run in runs.items():
            mine.append(run.data)
            known = committed.runs(name).get(profile)
            if known:
                recorded += [known.all[number] for number in diagnosis.alike(known, run)]
    return mine, recorded


def _claims(now: Book, made: Made, names: list[str], unchecked: dict, others: str) -> Iterator[dict]:
    """What the runs say of each claim of these snippets; `others` says who else kept the host busy."""
    for claim in now.claims:
        if claim.snippet not in names:
            continue
        about = {"page": claim.page, "line": claim.line, "text": claim.text, "expression": claim.expression}
        about |= {"profile": None, "state": State.OPEN.word, "busy": ""}
        decided = []
        for profile, run in made.get(claim.snippet, {}).items():
            here = {"profile": profile, "busy": busy(run.data) or others}
            try:
                verdict = claim.verdict(now.scopes(claim.snippet, run), run)
                if verdict:
                    decided.append(here | {"state": verdict.state.word, "figures": verdict.figures})
            except OverlapError as error:  # it was written with other machines in mind
                decided.append(here | {"figures": str(error)})
        why = unchecked.get(claim.snippet, "it speaks of other machines")
        yield from (about | verdict for verdict in decided or [{"figures": why}])


def _watch_again(runner: Runner, chosen: list, headlines: list[dict]) -> dict[str, dict]:
    """What the first GPU says of itself while snippets whose rates are LOW run once more, by snippet.

    Their figures are not used.
    """
    again = {
        line["snippet"] for line in headlines if line["state"] == LOW and diagnosis.touches("clock", line)
    }
    watched = {}
    for snippet, gpus in chosen:
        if gpus and snippet.name in again and snippet.name not in watched:
            with health.watched() as states:
                runner.run_all([(snippet, gpus)], label="watching")
            watched[snippet.name] = next(iter(states), {})
    return watched


def is_off(report: dict) -> bool:
    """Whether a headline is LOW, a claim false or a snippet failed."""
    if any(line["state"] == LOW for line in report["headlines"]):
        return True
    return any(claim["state"] == State.FALSE.word for claim in report["claims"]) or bool(report["failures"])


def as_text(report: dict) -> Iterator[str]:
    """The same for people, line by line."""
    here = report["machine"]
    label = machine.label(machine.profile([gpu["name"] for gpu in here["gpus"]]))
    torch = report["software"]["torch"]
    yield f"Measured now: {label}, {here['cpu']}, {plural(here['cores'], 'core')}, torch {torch}"
    if not here["gpus"]:
        yield "torch sees no GPU here, so this measures the CPU; docs/first_steps.md tells why that may be."
    headlines = report["headlines"]
    rows = [_row(line, here, len({line["profile"] for line in headlines}) > 1) for line in headlines]
    yield from aligned(rows)
    if not rows:
        yield "No headline rate could be measured here."
    yield ""
    yield from _claims_as_text(report["claims"])
    left: dict[str, list[str]] = {}
    for item in report["unchecked"]:
        left.setdefault(item["why"], []).append(item["snippet"])
    for why, names in left.items():
        more = f" and {len(names) - 4} more" if names[4:] else ""
        yield f"Not measured ({why}): {', '.join(names[:4])}{more}"
    if report["failures"]:
        yield ""
        yield from report["failures"]
    yield ""
    yield from map(diagnosis.as_text, report["diagnosis"])
    if not any(line["compared"] for line in headlines):
        yield "Nothing could be compared with a recording."
    elif not any(line["state"] == LOW for line in headlines):
        yield "Nothing that could be compared is low."


def _claims_as_text(claims: list[dict]) -> Iterator[str]:
    decided = [claim for claim in claims if claim["profile"] is not None]
    count = {state: sum(claim["state"] == state.word for claim in decided) for state in State}
    false = [claim for claim in decided if claim["state"] == State.FALSE.word]
    disturbed = sum(bool(claim["busy"]) for claim in false)
    yield (
        f"Claims that hold here: {count[State.HOLDS]}; false: {count[State.FALSE]}"
        f"{f' ({disturbed} while this machine was busy)' if disturbed else ''}; "
        f"cannot be decided: {count[State.OPEN]}; not checked: {len(claims) - len(decided)}"
    )
    for claim in false:
        where = f"docs/{claim['page']}:{claim['line']}: false on {machine.label(claim['profile'])}"
        yield f"  {where}: {claim['text']}"
        yield f"    {claim['expression']}: {claim['figures']}"
        if claim["busy"]:
            yield f"    But this machine was busy ({claim['busy']}): repeat it when calm."


def _row(line: dict, here: dict, several: bool) -> tuple[str, ...]:
    """Label, value, share, what is recorded, state; `several`: name the profile, too."""
    where = f" ({machine.label(line['profile'])})" if several else ""
    share = ""
    if line["share"]:
        share = f"{line['share']:.0%} of {show(line['ceiling'])}"
        gpu = next(iter(here["gpus"]), {})
        if line["bound_by"] == "pcie" and {"pcie_generation", "pcie_width_max"} <= gpu.keys():
            share += f" (PCIe {gpu['pcie_generation']} x{gpu['pcie_width_max']})"
    comparison = "nothing to compare with"
    if line["compared"] == "model":
        own = line["recorded"][line["profile"]]
        span = f"{show(own['low'])} to {show(own['high'])}, " if own["runs"] > 1 else ""
        comparison = f"recorded: {show(own['median'])} ({span}{plural(own['runs'], 'run')})"
    elif line["compared"] == "share":
        least = min(item["share"] for item in line["recorded"].values() if item["share"])
        comparison = f"not recorded on this model; other GPUs reach at least {least:.0%} of theirs"
    return line["label"] + where, f"{show(line['value'])} {line['unit']}", share, comparison, line["state"]
