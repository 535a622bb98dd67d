"""What this machine reaches now: headline rates beside ceilings and recordings, and which claims hold here.

A rate is LOW below `NEAR` times the lowest recorded run of the same model of GPU, a time above the highest
divided by it; a CPU is of the same model if its profile is the same. Without such a recording a rate is LOW
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
from overlap.book.blocks.headlines import Headline, Headlines
from overlap.book.book import Book
from overlap.book.diagnosis import LOW, OK, UNKNOWN, Fact
from overlap.book.mine import Mine
from overlap.book.recording import Recording, busy
from overlap.book.statistic import show
from overlap.book.verdict import State
from overlap.run import machine, noise
from overlap.run.progress import Item
from overlap.run.recording import CODE
from overlap.run.runner import RunFailed, Runner, grouped
from overlap.run.snippet import Snippet
from overlap.run.text import aligned, plural

NEAR, FAR = 0.85, 0.7
#: Seconds that waiting for a busy host may take with `--quick`.
PATIENCE_S = 5

#: Runs that were made now, by snippet and profile.
Made = dict[str, dict[str, Recording]]


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
    headlines = [row for block in book.of_kind(Headlines) for row in block.rows]
    able = list(book.local.runnable(names))
    chosen = able
    if quick:
        chosen = _of_headlines(headlines, able) or able
    names = names or list(book.snippets)
    wanted = chosen
    before = "whatever ran before"
    if mine:
        wanted = mine.lacking(chosen)
        before = f"{len(chosen) - len(wanted)} are in {mine.path.name}"
    seconds = timedelta(seconds=round(sum(_seconds(book, item) for item in wanted)))
    tell(f"{plural(len(wanted), 'run')} afresh, {before}: about {seconds} by the recordings")
    first_look = diagnosis.look()
    gpu_state = diagnosis.gpu_state()
    made: Made = mine.runs() if mine else {}

    def keep(snippet: Snippet, gpus: int, data: dict) -> None:
        if mine:
            mine.add(snippet, data)
        book.keep(snippet, gpus, data)
        recording = book.local.read(snippet, gpus)
        made.setdefault(snippet.name, {})[recording.profile] = recording

    patience_s = PATIENCE_S if quick else noise.PATIENCE_S
    with Runner(book.root, watchful=True, patience_s=patience_s) as runner:
        here = runner.probe(len(machine.here()["gpus"]))
        failed = runner.run_all(wanted, keep, "verifying", lambda item: _seconds(book, item) or 1.0)
        uninstalled = _uninstalled(book, failed)
        failures = grouped([failure for failure in failed if failure.path not in uninstalled])
        now = book.with_recordings(made)
        lines = []
        for headline in headlines:
            lines += _lines(book.as_committed, now, headline, failures)
        clocks = _watch_again(runner, chosen, lines)
    last_look = diagnosis.look()

    unchecked = _unchecked(book, names, able, chosen, made, uninstalled)
    if mine:
        mine.unchecked = unchecked
    facts = []
    for gpu in here["machine"]["gpus"][:1]:  # headlines are of the first one
        facts += diagnosis.of_gpu(gpu, gpu_state, clocks)
    facts += diagnosis.of_host(first_look, last_look, *_comparable(book.as_committed, made))
    others = diagnosis.others(first_look, last_look, [])
    return {
        "machine": here["machine"],
        "software": here["software"],
        "quick": quick,
        "headlines": lines,
        "claims": list(_claims(now, made, names, unchecked, others)),
        "diagnosis": list(diagnosis.explained(lines, facts)),
        "unchecked": [{"snippet": name, "why": why} for name, why in unchecked.items()],
        "failures": failures,
    }


# What runs, and what does not


def _of_headlines(headlines: list[Headline], able: list[Item]) -> list[Item]:
    """The runs that give headlines, each on the fewest GPUs."""
    behind = {headline.snippet for headline in headlines}
    fewest: dict[str, Item] = {}
    for snippet, gpus in sorted(able, key=lambda item: (item[1] == 0, item[1])):
        if snippet.name in behind:
            fewest.setdefault(snippet.name, (snippet, gpus))
    return list(fewest.values())


def _seconds(book: Book, item: Item) -> float:
    """How long a run takes by the recordings of as many GPUs; of what is not recorded nobody knows."""
    snippet, gpus = item
    runs = book.committed.get(snippet.name, {}).values()
    known = book.library.seconds.get(snippet.name, {}).get(str(gpus), 0)
    return max((recording.seconds for recording in runs if recording.gpus == gpus), default=known)


def _uninstalled(book: Book, failed: list[RunFailed]) -> dict[str, list[str]]:
    """Packages that are not installed here, by path of the snippets that failed and ask for them."""
    paths = {failure.path for failure in failed}
    snippets = [snippet for snippet in book.snippets.values() if snippet.path in paths]
    return {snippet.path: snippet.not_installed for snippet in snippets if snippet.not_installed}


def _unchecked(
    book: Book,
    names: list[str],
    able: list[Item],
    chosen: list[Item],
    made: Made,
    uninstalled: dict[str, list[str]],
) -> dict[str, str]:
    """Why each of the other snippets was not measured."""
    runnable = {snippet.name for snippet, _ in able}
    tried = {snippet.name for snippet, _ in chosen}
    unchecked = {}
    for name in sorted(set(names) - set(made)):
        packages = uninstalled.get(book.snippets[name].path)
        if packages:
            unchecked[name] = f"needs {' and '.join(packages)}, not installed here"
        elif name in tried:
            unchecked[name] = "failed"
        elif name in runnable:
            unchecked[name] = "left out by --quick"
        else:
            unchecked[name] = book.snippets[name].requirement
    return unchecked


def _watch_again(runner: Runner, chosen: list[Item], lines: list[dict]) -> dict[str, dict]:
    """What the first GPU says of itself while snippets whose rates are LOW run once more, by snippet.

    Their figures are not used.
    """
    clock = Fact("", "clock")
    again = {line["snippet"] for line in lines if line["state"] == LOW and clock.explains(line)}
    states = {}
    for snippet, gpus in chosen:
        if gpus and snippet.name in again and snippet.name not in states:
            with diagnosis.watched_gpu() as state:
                runner.run_all([(snippet, gpus)], label="watching")
            states[snippet.name] = state
    return states


# What the runs say


def _lines(committed: Book, now: Book, headline: Headline, failures: list[str]) -> Iterator[dict]:
    """A headline on each profile that ran, beside what is recorded; what cannot be read is a failure."""
    for profile, recording in now.recordings(now.snippet(headline.snippet).name).items():
        try:
            scopes = now.scopes(headline.snippet, recording)
            values = headline.amounts(headline.expression, scopes)
            ceilings = headline.amounts(headline.ceiling, scopes)
            shares = headline.amounts(headline.share, scopes)
        except OverlapError as error:
            failures.append(f"{headline.label} on {profile}: {error}")
            continue
        if not values:
            continue
        value = values[0]
        ceiling = next(iter(ceilings), None)
        share = next(iter(shares), None)
        recorded = _recorded(committed, headline)
        recorded_shares = [item["share"] for item in recorded.values() if item["share"]]
        compared = bound = None
        if profile in recorded:
            compared = "model"
            bound = recorded[profile]["low"] * NEAR
            if headline.is_time:
                bound = recorded[profile]["high"] / NEAR
        elif share and recorded_shares:
            compared = "share"
            bound = ceiling * FAR * min(recorded_shares)
        state = UNKNOWN
        if bound is not None:
            is_low = value > bound if headline.is_time else value < bound
            state = LOW if is_low else OK
        yield {
            "label": headline.label,
            "unit": headline.unit,
            "profile": profile,
            "snippet": headline.snippet,
            "value": value,
            "ceiling": ceiling,
            "share": share,
            "recorded": recorded,
            "compared": compared,
            "bound": bound,
            "bound_by": headline.bound_by,
            "smaller_is_better": headline.is_time,
            "state": state,
        }


def _recorded(committed: Book, headline: Headline) -> dict[str, dict]:
    """What the committed recordings of this code on each machine say of a headline."""
    recorded = {}
    for profile, recording in committed.recordings(headline.snippet).items():
        scopes = committed.scopes(headline.snippet, recording)
        try:
            values = headline.amounts(headline.expression, scopes)
            shares = headline.amounts(headline.share, scopes)
        except OverlapError:  # there is nothing to compare with; `overlap check` says why
            continue
        if values and recording.grade != CODE:
            recorded[profile] = {
                "median": median(values),
                "low": min(values),
                "high": max(values),
                "runs": len(values),
                "share": min(shares, default=None),
            }
    return recorded


def _comparable(committed: Book, made: Made) -> tuple[list[dict], list[dict]]:
    """The runs that were made, and the recorded ones of this code on such machines."""
    runs = []
    recorded = []
    for name, by_profile in made.items():
        for profile, recording in by_profile.items():
            runs.append(recording.data)
            known = committed.recordings(name).get(profile)
            if known and known.grade != CODE:
                recorded += known.runs
    return runs, recorded


def _claims(now: Book, made: Made, names: list[str], unchecked: dict, others: str) -> Iterator[dict]:
    """What the runs say of each claim of these snippets; `others` says who else kept the host busy."""
    for claim in now.claims:
        if claim.snippet not in names:
            continue
        about = {"page": claim.page, "line": claim.line, "text": claim.text, "expression": claim.expression}
        about |= {"profile": None, "state": State.OPEN.word, "busy": ""}
        decided = []
        for profile, recording in made.get(claim.snippet, {}).items():
            here = {"profile": profile, "busy": busy(recording.data) or others}
            try:
                verdict = claim.verdict(now.scopes(claim.snippet, recording), recording)
                if verdict:
                    decided.append(here | {"state": verdict.state.word, "figures": verdict.figures})
            except OverlapError as error:  # it was written with other machines in mind
                decided.append(here | {"figures": str(error)})
        why = unchecked.get(claim.snippet, "it speaks of other machines")
        yield from (about | verdict for verdict in decided or [{"figures": why}])


# The report


def is_off(report: dict) -> bool:
    """Whether a headline is LOW, a claim false or a snippet failed."""
    if any(line["state"] == LOW for line in report["headlines"]):
        return True
    return any(claim["state"] == State.FALSE.word for claim in report["claims"]) or bool(report["failures"])


def as_text(report: dict) -> Iterator[str]:
    """A report for people, line by line."""
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
    text = f"Claims that hold here: {count[State.HOLDS]}; false: {count[State.FALSE]}"
    if disturbed:
        text += f" ({disturbed} while this machine was busy)"
    yield f"{text}; cannot be decided: {count[State.OPEN]}; not checked: {len(claims) - len(decided)}"
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
