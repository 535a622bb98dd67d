"""What is wrong with a book: files, freshness, blocks and downloads; remarks and findings beside."""

from collections import Counter
from collections.abc import Iterator

from overlap import OverlapError
from overlap.blocks.block import Block
from overlap.blocks.pages import Pages
from overlap.book.book import Book
from overlap.book.recording import Recording
from overlap.book.verdict import State
from overlap.run import download
from overlap.run.derived import NotDerived
from overlap.run.recording import CODE, MISSING, is_intact
from overlap.run.snippet import Snippet
from overlap.run.text import plural

#: A recorded run may take this share of its snippet's time limit: another machine is slower.
_SHARE = 1 / 3


def check(pages: Pages, remarks: bool = True) -> list[str]:
    """Everything that is wrong with the committed book, each with file, reason and remedy.

    `remarks`: also what stops no build, such as what is right by a hair.
    """
    pages = pages.over(pages.book.as_committed)
    problems = _problems(pages)
    known = set(problems)
    if remarks:
        problems += [remark for remark in _remarks(pages) if remark not in known]
    return problems


def _problems(pages: Pages) -> list[str]:
    """Everything that is wrong with a book as committed, each with file, reason and remedy.

    What depends on a file that cannot be read is left out: one slip is one message.
    """
    book = pages.book
    unreadable = [*book.library.unreadable_recordings, *pages.unreadable]
    if book.library.unreadable_recordings:
        return unreadable
    lines = unreadable
    for snippet in book.snippets.values():
        lines += _freshness(book, snippet)
        lines += _small(book, snippet)
        lines += _underived(book, snippet)
    for block in pages.blocks:
        lines += _of_block(block, block.check(pages))
    for snippet in book.snippets.values():
        lines += _downloads(snippet)
    if not pages.unreadable:
        for name, snippet in book.snippets.items():
            if name not in pages.places:
                lines.append(f"{snippet.path}: no page shows it; add a snippet block to docs/")
    return lines


def _remarks(pages: Pages) -> list[str]:
    """What an author should mend, and what stops no build: right by a hair, or missed by a reader."""
    book = pages.book
    if book.library.unreadable_recordings:
        return []
    lines = []
    for block in pages.blocks:
        lines += _of_block(block, block.remarks(pages))
    for snippet in book.snippets.values():
        lines += _style(book, snippet)
    return lines


def _of_block(block: Block, lines: Iterator[str]) -> Iterator[str]:
    """The lines; an error that stops them is one more, but for that of a `derive`, which stands alone."""
    try:
        yield from lines
    except NotDerived:
        return
    except OverlapError as error:
        yield f"{block.where}: {str(error).removeprefix(f'{block.where}: ')}"


def findings(pages: Pages, every: bool = False) -> list[str]:
    """What the claims say on machines that are no reference machines; none of it is an error.

    For each: how many claims hold, and how many do not or barely. It lists those of the machine that this is,
    or of `every` machine.
    """
    pages = pages.over(pages.book.as_committed)
    book = pages.book
    lines = []
    if book.library.unreadable_recordings:
        return lines
    for here in book.machines():
        if here["reference"]:
            continue
        details = []
        states = Counter()
        narrow = 0
        for claim, verdict in _verdicts_on(pages, here["name"]):
            states[verdict.state] += 1
            if verdict.state is State.HOLDS:
                reasons = [f"  too narrow: {claim.where}: claim {why}" for why in claim.narrow(book, verdict)]
                narrow += bool(reasons)
                details += reasons
            else:
                details.append(f"  {verdict.state.word}: {claim.where}: {claim.text} {verdict.reason}")
        line = f"{here['label']}, not one of the book's own: {_counted(states, narrow)}"
        if every or here["name"] in book.library.machines_here:
            lines += [line, *sorted(details)]
        elif details:
            lines.append(f"{line}; `overlap check --all` says which")
        else:
            lines.append(line)
    return lines


def _counted(states: Counter, narrow: int) -> str:
    """`63 claims hold, 2 of them too narrowly, 1 is open`."""
    holds = states[State.HOLDS]
    parts = [f"{plural(holds, 'claim')} {State.HOLDS.counted(holds)}"]
    if narrow:
        parts.append(f"{narrow} of them too narrowly")
    for state in (State.FALSE, State.OPEN):
        if states[state]:
            verb = "is" if states[state] == 1 else "are"
            parts.append(f"{states[state]} {verb} {state.word}")
    return ", ".join(parts)


def _verdicts_on(pages: Pages, machine: str) -> Iterator[tuple]:
    for claim in pages.claims:
        try:
            verdicts = pages.book.verdicts(claim)
        except OverlapError:  # `check` has it
            continue
        yield from ((claim, verdict) for verdict in verdicts if verdict.machine == machine)


def _underived(book: Book, snippet: Snippet) -> Iterator[str]:
    """What is wrong with its `derive`, on the first machine where it is."""
    try:
        for recording in book.committed.get(snippet.name, {}).values():
            for number in range(len(recording.runs)):
                book.result(recording, number)
    except NotDerived as error:
        yield str(error)


def _downloads(snippet: Snippet) -> Iterator[str]:
    """What cannot be made into a file that runs alone."""
    try:
        download.program(snippet)
        for function in snippet.options["take"]:
            download.piece(snippet, function)
    except OverlapError as error:
        yield str(error)


def _style(book: Book, snippet: Snippet) -> Iterator[str]:
    """What a reader or a borrower would miss."""
    if not snippet.summary:
        yield f"{snippet.path}: says nothing of itself; begin it with a docstring of one line"
    for name in sorted({borrow.snippet for borrow in snippet.imports}):
        if name.split("/")[0] not in (snippet.chapter, "timing"):
            remedy = "import from its own chapter, or the tools in snippets/timing/"
            yield f"{snippet.path}: imports {name} of another chapter; {remedy}"
    for recording in book.committed.get(snippet.name, {}).values():
        seconds = max(run["run"]["seconds"] for run in recording.runs)
        limit = snippet.options["timeout"]
        if seconds > _SHARE * limit and book.is_reference(recording.machine):
            took = f"took {seconds:.0f} s on {recording.machine}"
            reason = f"{took}, more than a third of its limit of {limit} s"
            yield f"{snippet.path}: {reason}; write a longer `timeout` into its header"


def _small(book: Book, snippet: Snippet) -> Iterator[str]:
    """Whether what stands in for it where memory is short is there."""
    name = snippet.options["small"]
    if name and name not in book.snippets:
        yield f"{snippet.path}: header: small = {name!r} is no snippet; write the name of one"


def _freshness(book: Book, snippet: Snippet) -> Iterator[str]:
    recordings = book.committed.get(snippet.name, {}).values()
    recorded = {recording.gpus for recording in recordings}
    missing = snippet.options["missing"]
    again = f"run `overlap record {snippet.name}`"
    for count in snippet.options["gpus"]:
        on = f"with {plural(count, 'GPU')}" if count else "on the CPU"
        if count in recorded and str(count) in missing:
            yield f"{snippet.path}: is recorded {on}, so drop `missing.{count}` from its header"
        excused = recorded and str(count) in missing  # without any recording there is no output to show
        if count not in recorded and not excused:
            remedy = f"{again} on such a machine" if count else again
            yield f"{snippet.path}: {MISSING}: no recording {on}; {remedy}"
    for recording in recordings:
        there = f"{again} on such a machine"
        if recording.machine in book.library.machines_here:
            there = again
        yield from _runs(book, snippet, recording)
        if recording.grade == CODE:
            reason = f"{snippet.path} or what it imports is not what ran"
            yield f"{recording.path}: {recording.grade}: {reason}; {there}"
        if not is_intact(recording.data):
            yield f"{recording.path}: edited by hand: its digest does not match; restore it or {there}"


def _runs(book: Book, snippet: Snippet, recording: Recording) -> Iterator[str]:
    """Whether a machine of the book has as many runs as it should, or the header says why not."""
    runs, wanted = len(recording.runs), book.runs_wanted(snippet.name, recording.machine)
    excused = recording.machine in snippet.options["few"]
    if runs >= wanted and excused:
        yield f"{snippet.path}: has {plural(runs, 'run')}, so drop `few.{recording.machine}` from its header"
    if runs < wanted and not excused and book.is_reference(recording.machine):
        remedy = f"run `overlap record {snippet.name}` on such a machine, another host if there is one"
        yield f"{recording.path}: {runs} of {wanted} runs; {remedy}"


def contradicted(pages: Pages, listed: set[tuple[str, str, str]]) -> Iterator[str]:
    """What to say of claims that runs of this machine contradict, but for those `listed`, where they go."""
    book = pages.book
    for claim in pages.claims:
        if not any(recording.is_local for recording in book.recordings(claim.snippet).values()):
            continue
        for verdict in book.verdicts(claim):
            key = (claim.page, claim.anchor, verdict.recording.path)
            if verdict.recording.is_local and verdict.state is State.FALSE and key not in listed:
                listed.add(key)
                yield claim.falsehood(verdict)
