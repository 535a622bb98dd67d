"""What this machine reaches now: headline rates beside ceilings and recordings, which claims hold here, and what explains what is low.

A rate is LOW below `NEAR` times the lowest recorded run of the same model of GPU, a time above the highest divided by it; a CPU is of the same model if
its name is the same. Without such a recording a rate is LOW where its share of the ceiling is below `FAR` times the lowest share that any recorded GPU
reaches. Recordings are the committed ones, and not of other code than this checkout's. A cause is named only where a fact shows it.

`verify` gives plain data for JSON:

    machine, software   as in a recording
    quick               whether only headlines were measured
    headlines           label, unit, profile, snippet, value, ceiling, share, recorded {profile: median, low, high, runs, share}, compared
                        ("model", "share" or null), bound, bound_by ("arithmetic", "memory", "pcie",
                        "other" or null), smaller_is_better, state ("ok", "LOW", "unknown")
    claims              page, line, text, expression, profile (null where it did not run), state ("holds", "false", "open"), figures
    diagnosis           fact (null: the cause is not known), leaves (share of what could be, or null), explains and in_part (labels of headlines)
    unchecked           what could not be measured here, and why: snippets, why
    failures            what snippets said that failed
"""

import copy
from collections.abc import Callable, Iterator
from statistics import median

from overlap import OverlapError
from overlap.book.blocks import Headline, Headlines
from overlap.book.book import Book, Run
from overlap.book.diagnosis import LOW, OK, UNKNOWN, alike, diagnosis, facts, touches
from overlap.book.expression import Undecided
from overlap.book.statistic import show
from overlap.book.verdict import State
from overlap.run import health, machine, recording
from overlap.run.runner import Runner
from overlap.run.snippet import Snippet

NEAR, FAR = 0.85, 0.7
#: `--quick`: seconds that the snippets may take together by their recordings, what one takes of which there is none, and what a busy host may cost.
QUICK_S, UNKNOWN_S, PATIENCE_S = 45, 10, 5


def verify(
    book: Book, names: list[str] | None = None, quick: bool = False, tell: Callable = lambda text: None
) -> dict:
    """Run what this machine can now, and compare; see above for what it gives. `tell` hears what begins."""
    rows = [row for block in book.blocks if isinstance(block, Headlines) for row in block.rows]
    chosen, left = select(book, rows, names, quick)
    count, seconds = len(chosen), sum(_seconds(book, *item) for item in chosen)
    tell(
        f"{count} run{'s' * (count != 1)} afresh, whatever ran before: about {seconds:.0f} s by the recordings"
    )
    before, failures, made = health.state(), [], {}
    runner = book.runner or Runner(book.root, watchful=True)
    runner.patience_s = PATIENCE_S if quick else None

    def keep(snippet: Snippet, gpus: int, data: dict) -> None:
        book.keep(snippet, gpus, data)
        where = book.cache_path(snippet, gpus).relative_to(book.root).as_posix()
        run = Run(recording.read(book.root / where), where, True, recording.FRESH)
        made.setdefault(snippet.name, {})[run.profile] = run

    try:
        found = runner.probe(len(machine.here()["gpus"]))
        failures += map(str, runner.run_all(chosen, keep, "verifying"))
        now = _seeing(book, made)
        headlines = [line for row in rows for line in compare(book, now, row, failures)]
        seen = _watch_again(runner, chosen, headlines)
    finally:
        if not book.runner:
            runner.close()
    ran = {snippet.name for snippet, _ in chosen}
    left |= {name: "failed" for name in ran - made.keys()}
    wanted = names or list(book.snippets)
    return {
        "machine": found["machine"],
        "software": found["software"],
        "quick": quick,
        "headlines": headlines,
        "claims": list(_claims(now, made, wanted, left)),
        "diagnosis": list(diagnosis(headlines, facts(book, found["machine"], made, before, seen))),
        "unchecked": [{"snippet": name, "why": left[name]} for name in sorted(left)],
        "failures": failures,
    }


def select(
    book: Book, rows: list[Headline], names: list[str] | None, quick: bool
) -> tuple[list, dict[str, str]]:
    """What to run as (snippet, GPUs), and why each of the rest is left out."""
    able = list(book.runnable(names))
    can = {snippet.name for snippet, _ in able}
    left = {name: _needs(book.snippets[name]) for name in names or book.snippets if name not in can}
    if not quick:
        return able, left
    behind = set().union(*(row.snippets(book) for row in rows))
    fewest = {}
    for snippet, gpus in able:
        fewest.setdefault(snippet.name, []).append((gpus == 0, gpus, snippet))
    first = [
        (snippet, gpus) for _, gpus, snippet in (min(each, key=lambda it: it[:2]) for each in fewest.values())
    ]
    chosen = sorted(
        [item for item in first if item[0].name in behind] or first, key=lambda item: _seconds(book, *item)
    )
    while sum(_seconds(book, *item) for item in chosen) > QUICK_S:
        chosen.pop()
    kept = {snippet.name for snippet, _ in chosen}
    return chosen, left | {name: "left out by --quick" for name in can - kept}


def _needs(snippet: Snippet) -> str:
    counts = " or ".join(map(str, snippet.options["gpus"]))
    return f"needs {counts} GPU{'s' * (counts != '1')}"


def _seconds(book: Book, snippet: Snippet, gpus: int) -> float:
    """How long a run takes by the recordings of as many GPUs."""
    runs = book.committed.get(snippet.name, {}).values()
    return max((run.seconds for run in runs if run.gpus == gpus), default=UNKNOWN_S)


def _seeing(book: Book, made: dict[str, dict[str, Run]]) -> Book:
    """The same book, which knows of these runs and no others."""
    other = copy.copy(book)
    other._forget()
    other._runs = {name: made.get(name, {}) for name in book.snippets}
    return other


def compare(book: Book, now: Book, row: Headline, failures: list[str]) -> Iterator[dict]:
    """A headline on each profile that ran, beside what is recorded; what cannot be read from a result is a failure."""
    for profile, run in now.runs(book.snippet(row.here.snippet).name).items():
        try:
            value, ceiling, share = row.measured(now.scope(row.here.snippet, run))
        except OverlapError as error:
            failures += [] if isinstance(error, Undecided) else [f"{row.label} on {profile}: {error}"]
            continue
        recorded = _recorded(book, row, run)
        compared, bound = None, None
        if own := recorded.get(profile):
            compared, bound = "model", own["high"] / NEAR if row.is_time else own["low"] * NEAR
        elif share and (shares := [each["share"] for each in recorded.values() if each["share"]]):
            least = FAR * min(shares)
            compared, bound = "share", ceiling / least if row.is_time else ceiling * least
        low = bound is not None and (value > bound if row.is_time else value < bound)
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
            "state": LOW if low else UNKNOWN if bound is None else OK,
        }


def _recorded(book: Book, row: Headline, here: Run) -> dict[str, dict]:
    """What the committed recordings of each machine say of a headline; of CPUs only those of this name."""
    found, committed = {}, book.as_committed
    for profile, run in committed.runs(row.here.snippet).items():
        given = []
        for number in alike(run, here):
            try:
                given.append(row.measured(committed.scope(row.here.snippet, run, number)))
            except OverlapError:  # it is none to compare with; `overlap check` says why
                continue
        if given:
            values, shares = (
                [value for value, _, _ in given],
                [share for _, _, share in given if share is not None],
            )
            span = {"median": median(values), "low": min(values), "high": max(values), "runs": len(values)}
            found[profile] = span | {"share": min(shares, default=None)}
    return found


def _claims(now: Book, made: dict, wanted: list[str], left: dict[str, str]) -> Iterator[dict]:
    """What the runs say of each claim of these snippets."""
    for claim in now.claims:
        if claim.snippet not in wanted:
            continue
        said = {"page": claim.page, "line": claim.line, "text": claim.text, "expression": claim.expression}
        found = []
        for profile, run in made.get(claim.snippet, {}).items():
            try:
                if verdict := claim.verdict(now.scopes(claim.snippet, run), run):
                    found.append(
                        {"profile": profile, "state": verdict.state.word, "figures": verdict.figures}
                    )
            except OverlapError as error:  # it was written with other machines in mind
                found.append({"profile": profile, "state": State.OPEN.word, "figures": str(error)})
        why = left.get(claim.snippet, "it speaks of other machines")
        yield from (
            said | each for each in found or [{"profile": None, "state": State.OPEN.word, "figures": why}]
        )


def _watch_again(runner: Runner, chosen: list, headlines: list[dict]) -> dict[str, dict]:
    """What the first GPU says of itself while snippets whose rates of the GPU are LOW run once more, by snippet; their figures are not used."""
    again = {line["snippet"] for line in headlines if line["state"] == LOW and touches("clock", line)}
    found = {}
    for snippet, gpus in chosen:
        if gpus and snippet.name in again - found.keys():
            with health.watched() as seen:
                runner.run_all([(snippet, gpus)], label="watching")
            found[snippet.name] = next(iter(seen), {})
    return found


def is_off(report: dict) -> bool:
    """Whether a headline is LOW, a claim false or a snippet failed."""
    low = any(line["state"] == LOW for line in report["headlines"])
    return (
        low
        or any(claim["state"] == State.FALSE.word for claim in report["claims"])
        or bool(report["failures"])
    )


def said(report: dict) -> Iterator[str]:
    """The same for people."""
    here, software = report["machine"], report["software"]
    profile = machine.profile([gpu["name"] for gpu in here["gpus"]])
    yield f"Measured now: {machine.label(profile)}, {here['cpu']}, {here['cores']} cores, torch {software['torch']}"
    many = len({line["profile"] for line in report["headlines"]}) > 1
    rows = [_row(line, here, many) for line in report["headlines"]]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    yield from ("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)
    if not rows:
        yield "No headline rate could be measured here."
    yield ""
    claims = report["claims"]
    count = {
        state: sum(c["state"] == state.word and c["profile"] is not None for c in claims) for state in State
    }
    unchecked = sum(claim["profile"] is None for claim in claims)
    yield (
        f"Claims that hold here: {count[State.HOLDS]}; false: {count[State.FALSE]}; cannot be decided: {count[State.OPEN]}; "
        f"not checked: {unchecked}"
    )
    for claim in claims:
        if claim["state"] == State.FALSE.word:
            yield f"  docs/{claim['page']}:{claim['line']}: false on {machine.label(claim['profile'])}: {claim['text']}"
            yield f"    {claim['expression']}: {claim['figures']}"
    for why in dict.fromkeys(each["why"] for each in report["unchecked"]):
        names = [each["snippet"] for each in report["unchecked"] if each["why"] == why]
        more = f" and {len(names) - 4} more" if names[4:] else ""
        yield f"Not measured ({why}): {', '.join(names[:4])}{more}"
    yield from ("", *report["failures"]) if report["failures"] else ()
    yield ""
    yield from map(_reason, report["diagnosis"])
    if not any(line["state"] == LOW for line in report["headlines"]):
        yield (
            "Nothing that could be compared is low."
            if any(line["compared"] for line in report["headlines"])
            else ("Nothing could be compared with a recording.")
        )


def _row(line: dict, here: dict, many: bool) -> tuple[str, ...]:
    where = f" ({machine.label(line['profile'])})" if many else ""
    share = f"{line['share']:.0%} of {show(line['ceiling'])}" if line["share"] else ""
    gpu = next(iter(here["gpus"]), {})
    if share and line["bound_by"] == "pcie" and {"pcie_generation", "pcie_width_max"} <= gpu.keys():
        share += f" (PCIe {gpu['pcie_generation']} x{gpu['pcie_width_max']})"
    if line["compared"] == "model":
        own = line["recorded"][line["profile"]]
        span = f"{show(own['low'])} to {show(own['high'])}, " if own["runs"] > 1 else ""
        beside = f"recorded: {show(own['median'])} ({span}{own['runs']} run{'s' * (own['runs'] > 1)})"
    elif line["compared"]:
        least = min(each["share"] for each in line["recorded"].values() if each["share"])
        beside = f"not recorded on this model; other GPUs reach at least {least:.0%} of theirs"
    else:
        beside = "nothing to compare with"
    return line["label"] + where, f"{show(line['value'])} {line['unit']}", share, beside, line["state"]


def _reason(found: dict) -> str:
    """One line of the diagnosis."""
    whole, part = " and ".join(found["explains"]), " and ".join(found["in_part"])
    if found["fact"] is None:
        return f"Low, and the cause is not known: {whole}."
    text = found["fact"][0].upper() + found["fact"][1:]
    if whole:
        sure = "which explains" if found["leaves"] else "which can hold down"
        text += f" ({found['leaves']:.0%})" if found["leaves"] else ""
        text += f", {sure}: {whole}"
    return text + (f"; it explains a part only of: {part}." if part else ".")
