"""What this machine reaches now: headline rates beside ceilings and recordings, and which claims hold here.

What is LOW says `docs/check.md`, *The verdict*, and `_bound` decides it: a CPU is of the same model if its
name is the same, a family is `ceiling.family`. Recordings are the committed ones, and not of other code than
this checkout's. A cause is named only where a fact shows it.

A snippet whose header asks for more memory (`gpu_gib`) than is free on the GPU gives way to the one that its
header calls `small`; so does one that runs out of memory. What was left out is told.

`verify` gives plain data for JSON:

    machine, software  as in a recording
    quick              whether only headlines were measured
    headlines          label, unit, machine, snippet, value, ceiling, share,
                       recorded {machine: median, low, high, runs, share, family},
                       compared ("model", "family" or null), bound, why (there is no verdict; else empty),
                       bound_by ("arithmetic", "memory", "pcie", "other" or null), smaller_is_better,
                       state ("ok", "LOW", "no verdict")
    claims             page, line, name (empty where it has none), text, expression,
                       machine (null where it did not run), state ("holds", "false", "open"), figures,
                       torch (the release here and the recorded one, where it is false and they differ),
                       busy (what other work did to the host as it ran; empty where it was calm)
    diagnosis          fact (null: the cause is not known), explains (labels of headlines)
    unchecked          what could not be measured here, and why: snippets, why
    failures           what snippets said that failed
"""

import re
from collections.abc import Callable, Iterator
from datetime import timedelta
from statistics import median

from overlap import OverlapError
from overlap.blocks.headlines import Headline, all_headlines
from overlap.blocks.pages import Pages
from overlap.book.book import Book
from overlap.book.ceiling import family
from overlap.book.limits import ABOVE, FAR, NEAR
from overlap.book.recording import busy
from overlap.book.verdict import State
from overlap.commands import diagnosis
from overlap.commands.diagnosis import LOW, NONE, OK
from overlap.commands.mine import Measured, Mine
from overlap.run import hardware
from overlap.run.progress import Item
from overlap.run.recording import CODE
from overlap.run.runner import RunFailed, Runner, grouped
from overlap.run.snippet import Snippet
from overlap.run.text import plural

#: How a failure says that a GPU's memory was full.
_FULL = re.compile(r"CUDA.*(out of memory|_ALLOC_FAILED)")


def verify(
    pages: Pages,
    names: list[str] | None = None,
    quick: bool = False,
    tell: Callable[[str], object] = lambda text: None,
    mine: Mine | None = None,
) -> dict:
    """Run what this machine can now, and compare; see above for what it gives. `tell` hears what begins.

    What the file `mine` has is not run again; it takes what is run now.
    """
    book = pages.book
    names = names or list(book.snippets)
    mine = mine or Mine(pages)
    items = _plan(pages, names, quick, mine)
    lacking = mine.lacking(items)
    earlier = "whatever ran before"
    if mine.path:
        earlier = f"{len(items) - len(lacking)} are in {mine.path.name}"

    def keep(snippet: Snippet, gpus: int, data: dict) -> None:
        book.keep(snippet, gpus, data)
        mine.add(snippet, data)

    before = diagnosis.look()
    with Runner(book.root, watchful=True) as runner:
        here = runner.probe(len(hardware.here()["gpus"]))
        free_gib = runner.free_gib() if here["machine"]["gpus"] else 0.0
        wanted = list(_fitting(book, lacking, free_gib, mine))
        seconds = timedelta(seconds=round(sum(_seconds(book, item) for item in wanted)))
        tell(f"{plural(len(wanted), 'run')} afresh, {earlier}: about {seconds} by the recordings")
        failed = runner.run_all(wanted, keep, lambda item: _seconds(book, item) or 1.0)
        smaller = [item for item in _smaller_than(book, wanted, failed) if item not in wanted]
        failed += runner.run_all(smaller, keep)
        failures = _failures(book, failed, free_gib, mine)
        now = pages.over(book.with_recordings(mine.recordings))
        headlines, unreadable = _headlines(book.as_committed, now)
        clocks = _watch_low(runner, [*items, *wanted, *smaller], headlines)
    after = diagnosis.look()

    facts = list(diagnosis.of_gpu(here["machine"]["gpus"], before.gpu, clocks))
    facts += diagnosis.of_host(before, after, *_comparable(book.as_committed, mine.recordings))
    unchecked = {name: mine.lacks[name] for name in sorted(names) if name not in mine.recordings}
    return {
        "machine": here["machine"],
        "software": here["software"],
        "quick": quick,
        "headlines": headlines,
        "claims": list(_claims(now, names, unchecked, diagnosis.other_work(before, after, []))),
        "diagnosis": list(diagnosis.explained(headlines, facts)),
        "unchecked": [{"snippet": name, "why": why} for name, why in unchecked.items()],
        "failures": failures + unreadable,
    }


# What runs


def _plan(pages: Pages, names: list[str], quick: bool, mine: Mine) -> list[Item]:
    """What this machine can run of these snippets, or of the headlines; `mine` takes why others do not."""
    book = pages.book
    runnable = list(book.local.runnable())
    items = [item for item in runnable if item[0].name in names]
    for name in book.snippets.keys() - {snippet.name for snippet, _ in runnable}:
        mine.lacks[name] = book.snippets[name].requirement
    if quick:
        for snippet, _ in items:
            mine.lacks[snippet.name] = "left out by --quick"
        items = _of_headlines(pages, items) or items
    return items


def _of_headlines(pages: Pages, able: list[Item]) -> list[Item]:
    """The runs that give headlines, each on the fewest GPUs; no small one, which stands in for another."""
    wanted = {headline.snippet for headline in all_headlines(pages)} - _by_small(pages.book).keys()
    fewest: dict[str, Item] = {}
    for snippet, gpus in sorted(able, key=lambda item: (item[1] == 0, item[1])):
        if snippet.name in wanted:
            fewest.setdefault(snippet.name, (snippet, gpus))
    return list(fewest.values())


def _by_small(book: Book) -> dict[str, str]:
    """The names of snippets that stand in for another one where memory is short, each with that one."""
    snippets = book.snippets.values()
    return {snippet.options["small"]: snippet.name for snippet in snippets if snippet.options["small"]}


def _fitting(book: Book, items: list[Item], free_gib: float, mine: Mine) -> Iterator[Item]:
    """The runs that the GPU has memory for, and small ones for the others; `mine` takes why those do not."""
    for snippet, gpus in items:
        wanted_gib = snippet.options["gpu_gib"]
        if not gpus or wanted_gib <= free_gib:
            yield snippet, gpus
            continue
        mine.lacks[snippet.name] = f"needs {wanted_gib:g} GiB of a GPU's memory, {free_gib:.1f} are free"
        small = _small(book, snippet, gpus)
        if small not in items:
            yield from filter(None, [small])


def _small(book: Book, snippet: Snippet, gpus: int) -> Item | None:
    """The run that stands in for this one where memory is short."""
    name = snippet.options["small"]
    return (book.library.snippet(name), gpus) if name else None


def _smaller_than(book: Book, items: list[Item], failed: list[RunFailed]) -> Iterator[Item]:
    """What stands in for those of the runs that found the GPU's memory full."""
    full = {failure.path for failure in failed if _FULL.search(failure.reason)}
    for snippet, gpus in items:
        if gpus and snippet.path in full:
            yield from filter(None, [_small(book, snippet, gpus)])


def _seconds(book: Book, item: Item) -> float:
    """How long a run takes by the recordings of as many GPUs; of what is not recorded nobody knows."""
    snippet, gpus = item
    recordings = book.committed.get(snippet.name, {}).values()
    known = book.library.seconds.get(snippet.name, {}).get(str(gpus), 0)
    return max((recording.seconds for recording in recordings if recording.gpus == gpus), default=known)


def _watch_low(runner: Runner, items: list[Item], headlines: list[dict]) -> dict[str, dict]:
    """What the first GPU says of itself while snippets whose rates are LOW run once more, by snippet.

    Their figures are not used.
    """
    low = {line["snippet"] for line in headlines if line["state"] == LOW and diagnosis.needs_clock(line)}
    states = {}
    for snippet, gpus in items:
        if gpus and snippet.name in low and snippet.name not in states:
            with diagnosis.watched_gpu() as state:
                runner.run_all([(snippet, gpus)])
            states[snippet.name] = state
    return states


def _failures(book: Book, failed: list[RunFailed], free_gib: float, mine: Mine) -> list[str]:
    """The messages of what failed, but for lack of a package or of memory; `mine` takes why each did."""
    snippets = {snippet.path: snippet for snippet in book.snippets.values()}
    others = []
    for failure in failed:
        snippet = snippets[failure.path]
        packages = snippet.not_installed
        if packages:
            mine.lacks[snippet.name] = f"needs {' and '.join(packages)}, not installed here"
        elif _FULL.search(failure.reason):
            mine.lacks[snippet.name] = f"found the GPU's memory full; {free_gib:.1f} GiB were free before"
        else:
            mine.lacks[snippet.name] = "failed"
            others.append(failure)
    return grouped(others)


# What the runs say


def _headlines(committed: Book, pages: Pages) -> tuple[list[dict], list[str]]:
    """Each headline on each machine that ran, beside what is recorded; and why some cannot be read.

    Small ones are left out where what they stand in for ran.
    """
    lines = []
    unreadable = []
    now = pages.book
    by_small = _by_small(now)
    for headline in all_headlines(pages):
        if headline.snippet in by_small and now.recordings(by_small[headline.snippet]):
            continue
        recorded = _recorded(committed, headline)
        for machine, recording in now.recordings(headline.snippet).items():
            try:
                values, ceilings, shares = headline.measured(now, recording)
            except OverlapError as error:
                unreadable.append(f"{headline.label} on {machine}: {error}")
                continue
            if values:
                here = {"value": values[0], "ceiling": None, "share": None}
                if shares:
                    here |= {"ceiling": ceilings[0], "share": shares[0]}
                of_family = family(recording.data["machine"])
                lines.append(_line(headline, machine, of_family, here, recorded))
    return lines, unreadable


def _line(headline: Headline, machine: str, of_family: str, here: dict, recorded: dict[str, dict]) -> dict:
    """One headline on one machine."""
    compared, bound, why = _bound(headline.is_time, machine, of_family, here, recorded)
    state = NONE
    if bound is not None:
        is_low = here["value"] > bound if headline.is_time else here["value"] < bound
        state = LOW if is_low else OK
    return here | {
        "label": headline.label,
        "unit": headline.unit,
        "machine": machine,
        "snippet": headline.snippet,
        "recorded": recorded,
        "compared": compared,
        "bound": bound,
        "why": why,
        "bound_by": headline.bound_by,
        "smaller_is_better": headline.is_time,
        "state": state,
    }


def _bound(
    is_time: bool, machine: str, of_family: str, here: dict, recorded: dict[str, dict]
) -> tuple[str | None, float | None, str]:
    """What is compared, from where on it is LOW; or why there is no verdict."""
    of_others = [item["share"] for item in recorded.values() if item["share"] and item["family"] == of_family]
    if here["share"] and here["share"] > ABOVE:
        return None, None, "above its ceiling: the measurement is wrong, or the ceiling"
    if machine in recorded:
        low, high = recorded[machine]["low"], recorded[machine]["high"]
        return "model", high / NEAR if is_time else low * NEAR, ""
    if here["share"] and of_family and of_others:
        return "family", here["ceiling"] * FAR * min(of_others), ""
    if not recorded:
        return None, None, "nothing to compare with"
    if here["share"]:
        return None, None, "neither this model nor its family is recorded"
    return None, None, "this model is not recorded"


def _recorded(committed: Book, headline: Headline) -> dict[str, dict]:
    """What the committed recordings of this code on each machine say of a headline."""
    recorded = {}
    for machine, recording in committed.recordings(headline.snippet).items():
        try:
            values, _, shares = headline.measured(committed, recording)
        except OverlapError:  # there is nothing to compare with; `overlap check` says why
            continue
        if values and recording.grade != CODE:
            recorded[machine] = {
                "median": median(values),
                "low": min(values),
                "high": max(values),
                "runs": len(values),
                "share": min(shares, default=None),
                "family": family(recording.data["machine"]),
            }
    return recorded


def _comparable(committed: Book, measured: Measured) -> tuple[list[dict], list[dict]]:
    """The runs that were made, and the recorded ones of this code on such machines."""
    runs = []
    recorded = []
    for name, by_machine in measured.items():
        for machine, recording in by_machine.items():
            runs.append(recording.data)
            known = committed.recordings(name).get(machine)
            if known and known.grade != CODE:
                recorded += known.runs
    return runs, recorded


def _claims(pages: Pages, names: list[str], unchecked: dict[str, str], other_work: str) -> Iterator[dict]:
    """What the runs say of each claim of these snippets; `other_work` says what else kept the host busy."""
    for claim in pages.claims:
        if claim.snippet not in names:
            continue
        about = {"page": claim.page, "line": claim.line, "name": claim.name}
        about |= {"text": claim.text, "expression": claim.expression}
        decided = 0
        for machine, recording in pages.book.recordings(claim.snippet).items():
            verdict = pages.book.verdict(claim, recording)
            if verdict:
                decided += 1
                about |= {"machine": machine, "state": verdict.state.word, "figures": verdict.figures}
                yield about | {"torch": verdict.torch, "busy": busy(recording.data) or other_work}
        if not decided:
            why = unchecked.get(claim.snippet, "it speaks of other machines")
            yield about | {"machine": None, "state": State.OPEN.word, "figures": why, "torch": "", "busy": ""}
