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
                       state ("holds", "false", "open"), figures, calm (whether the host was, as it ran)
    diagnosis          fact (null: the cause is not known), leaves (share of what could be, or null),
                       explains and in_part (labels of headlines)
    unchecked          what could not be measured here, and why: snippets, why
    failures           what snippets said that failed
"""

from collections.abc import Callable, Iterator
from statistics import median

from overlap import OverlapError
from overlap.book import diagnosis
from overlap.book.blocks import Headline, Headlines
from overlap.book.book import Book
from overlap.book.diagnosis import LOW, OK, UNKNOWN
from overlap.book.expression import Undecided
from overlap.book.runs import Run
from overlap.book.statistic import plural, show
from overlap.book.verdict import State
from overlap.run import health, machine, recording
from overlap.run.runner import Runner
from overlap.run.snippet import Snippet

NEAR, FAR = 0.85, 0.7
#: `--quick`: seconds that the snippets may take together by their recordings, what one takes of which there
#: is none, and what waiting for a busy host may take.
QUICK_S, UNKNOWN_S, PATIENCE_S = 45, 10, 5


def verify(
    book: Book,
    names: list[str] | None = None,
    quick: bool = False,
    tell: Callable[[str], object] = lambda text: None,
) -> dict:
    """Run what this machine can now, and compare; see above for what it gives. `tell` hears what begins."""
    rows = [row for block in book.blocks if isinstance(block, Headlines) for row in block.rows]
    chosen, left = select(book, rows, names, quick)
    seconds = sum(_seconds(book, *item) for item in chosen)
    runs = plural(len(chosen), "run")
    tell(f"{runs} afresh, whatever ran before: about {seconds:.0f} s by the recordings")
    facts = diagnosis.before()
    busy = bool(facts)
    states = health.state()
    made: dict[str, dict[str, Run]] = {}

    def keep(snippet: Snippet, gpus: int, data: dict) -> None:
        book.keep(snippet, gpus, data)
        path = book.cache_path(snippet, gpus)
        run = Run(recording.read(path), path.relative_to(book.root).as_posix(), True, recording.FRESH)
        made.setdefault(snippet.name, {})[run.profile] = run

    runner = book.runner or Runner(book.root, watchful=True)
    if quick:
        runner.patience_s = PATIENCE_S
    try:
        here = runner.probe(len(machine.here()["gpus"]))
        failures = [str(failure) for failure in runner.run_all(chosen, keep, "verifying")]
        now = book.of_runs(made)
        headlines = []
        for row in rows:
            headlines += _headlines(book, now, row, failures)
        watched = _watch_again(runner, chosen, headlines)
    finally:
        if not book.runner:
            runner.close()
    for snippet, _ in chosen:
        if snippet.name not in made:
            left[snippet.name] = "failed"
    facts += diagnosis.of_gpus(here["machine"], states, watched)
    facts += diagnosis.of_host(book.as_committed, made)
    return {
        "machine": here["machine"],
        "software": here["software"],
        "quick": quick,
        "headlines": headlines,
        "claims": list(_claims(now, made, names or list(book.snippets), left, busy)),
        "diagnosis": list(diagnosis.explained(headlines, facts)),
        "unchecked": [{"snippet": name, "why": left[name]} for name in sorted(left)],
        "failures": failures,
    }


def select(
    book: Book, rows: list[Headline], names: list[str] | None, quick: bool
) -> tuple[list[tuple[Snippet, int]], dict[str, str]]:
    """What to run as (snippet, GPUs), and why each of the rest is left out."""
    able = list(book.runnable(names))
    can = {snippet.name for snippet, _ in able}
    left = {}
    for name in names or book.snippets:
        if name not in can:
            counts = book.snippets[name].options["gpus"]
            noun = "GPU" if counts == [1] else "GPUs"
            left[name] = f"needs {' or '.join(map(str, counts))} {noun}"
    if not quick:
        return able, left
    chosen = _quickest(book, rows, able)
    for name in can - {snippet.name for snippet, _ in chosen}:
        left[name] = "left out by --quick"
    return chosen, left


def _quickest(book: Book, rows: list[Headline], able: list[tuple[Snippet, int]]) -> list[tuple[Snippet, int]]:
    """The shortest runs that give headlines, each on the fewest GPUs; any runs where none of them can."""
    fewest: dict[str, tuple[Snippet, int]] = {}
    for snippet, gpus in sorted(able, key=lambda item: (item[1] == 0, item[1])):
        fewest.setdefault(snippet.name, (snippet, gpus))
    behind = set()
    for row in rows:
        behind |= {row.here.snippet} | book.reads(row.here.expression) | book.reads(row.ceiling)
    wanted = [item for name, item in fewest.items() if name in behind] or list(fewest.values())
    chosen = []
    left_s = QUICK_S
    for item in sorted(wanted, key=lambda item: _seconds(book, *item)):
        left_s -= _seconds(book, *item)
        if left_s >= 0:
            chosen.append(item)
    return chosen


def _seconds(book: Book, snippet: Snippet, gpus: int) -> float:
    """How long a run takes by the recordings of as many GPUs."""
    runs = book.committed.get(snippet.name, {}).values()
    return max((run.seconds for run in runs if run.gpus == gpus), default=UNKNOWN_S)


def _headlines(book: Book, now: Book, row: Headline, failures: list[str]) -> Iterator[dict]:
    """A headline on each profile that ran, beside what is recorded; what cannot be read is a failure."""
    for profile, run in now.runs(book.snippet(row.here.snippet).name).items():
        try:
            value, ceiling, share = row.measured(now.scope(row.here.snippet, run))
        except Undecided:
            continue
        except OverlapError as error:
            failures.append(f"{row.label} on {profile}: {error}")
            continue
        recorded = _recorded(book.as_committed, row, run)
        shares = [item["share"] for item in recorded.values() if item["share"]]
        compared = bound = None
        if profile in recorded:
            compared = "model"
            own = recorded[profile]
            bound = own["high"] / NEAR if row.is_time else own["low"] * NEAR
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
            "snippet": row.here.snippet,
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
    for profile, run in committed.runs(row.here.snippet).items():
        scopes = [committed.scope(row.here.snippet, run, number) for number in diagnosis.alike(run, here)]
        try:
            values, shares, _ = row.over(scopes)
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


def _claims(now: Book, made: dict, names: list[str], left: dict[str, str], busy: bool) -> Iterator[dict]:
    """What the runs say of each claim of these snippets; `busy`: the host was, before anything ran."""
    for claim in now.claims:
        if claim.snippet not in names:
            continue
        about = {
            "page": claim.page,
            "line": claim.line,
            "text": claim.text,
            "expression": claim.expression,
            "profile": None,
            "state": State.OPEN.word,
            "figures": left.get(claim.snippet, "it speaks of other machines"),
            "calm": True,
        }
        decided = []
        for profile, run in made.get(claim.snippet, {}).items():
            verdict = {"profile": profile, "calm": diagnosis.is_calm(run.data) and not busy}
            try:
                here = claim.verdict(now.scopes(claim.snippet, run), run)
                if here:
                    decided.append(verdict | {"state": here.state.word, "figures": here.figures})
            except OverlapError as error:  # it was written with other machines in mind
                decided.append(verdict | {"state": State.OPEN.word, "figures": str(error)})
        yield from (about | verdict for verdict in decided or [{}])


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
    yield f"Measured now: {label}, {here['cpu']}, {here['cores']} cores, torch {torch}"
    headlines = report["headlines"]
    rows = [_row(line, here, len({line["profile"] for line in headlines}) > 1) for line in headlines]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
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
    if not any(line["state"] == LOW for line in headlines):
        compared = any(line["compared"] for line in headlines)
        what = (
            "Nothing that could be compared is low."
            if compared
            else "Nothing could be compared with a recording."
        )
        yield what


def _claims_as_text(claims: list[dict]) -> Iterator[str]:
    decided = [claim for claim in claims if claim["profile"] is not None]
    count = {state: sum(claim["state"] == state.word for claim in decided) for state in State}
    yield (
        f"Claims that hold here: {count[State.HOLDS]}; false: {count[State.FALSE]}; "
        f"cannot be decided: {count[State.OPEN]}; not checked: {len(claims) - len(decided)}"
    )
    for claim in decided:
        if claim["state"] == State.FALSE.word:
            where = f"docs/{claim['page']}:{claim['line']}"
            busy = (
                "" if claim["calm"] else ", but other work disturbed the host: run it again when that is over"
            )
            yield f"  {where}: false on {machine.label(claim['profile'])}{busy}: {claim['text']}"
            yield f"    {claim['expression']}: {claim['figures']}"


def _row(line: dict, here: dict, several: bool) -> tuple[str, ...]:
    """Label, value, share, what is recorded, state; `several`: headlines of several profiles are told."""
    where = f" ({machine.label(line['profile'])})" if several else ""
    share = ""
    if line["share"]:
        share = f"{line['share']:.0%} of {show(line['ceiling'])}"
        gpu = next(iter(here["gpus"]), {})
        if line["bound_by"] == "pcie" and {"pcie_generation", "pcie_width_max"} <= gpu.keys():
            share += f" (PCIe {gpu['pcie_generation']} x{gpu['pcie_width_max']})"
    beside = "nothing to compare with"
    if line["compared"] == "model":
        own = line["recorded"][line["profile"]]
        span = f"{show(own['low'])} to {show(own['high'])}, " if own["runs"] > 1 else ""
        beside = f"recorded: {show(own['median'])} ({span}{plural(own['runs'], 'run')})"
    elif line["compared"] == "share":
        least = min(item["share"] for item in line["recorded"].values() if item["share"])
        beside = f"not recorded on this model; other GPUs reach at least {least:.0%} of theirs"
    return line["label"] + where, f"{show(line['value'])} {line['unit']}", share, beside, line["state"]
