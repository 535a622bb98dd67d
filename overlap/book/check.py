"""What is wrong with a book: what cannot be read, freshness, then block by block."""

from collections.abc import Iterator

from overlap import OverlapError
from overlap.book.blocks import SnippetBlock
from overlap.book.statistic import plural
from overlap.run import recording
from overlap.run.snippet import Snippet


def problems(book, margins: bool) -> list[str]:
    """Everything that is wrong with a book as committed, each with file, reason and remedy.

    `margins`: also what is right by a hair. What depends on a
    file that cannot be read is not told: one slip is one message.
    """
    lost = [*book.library.lost_recordings, *book.library.lost_pages]
    if book.library.lost_recordings:
        return lost
    return [*lost, *_recordings(book), *_blocks(book, margins), *_hidden(book)]


def _recordings(book) -> Iterator[str]:
    for snippet in book.snippets.values():
        yield from _freshness(book, snippet)
    yield from _processors(book)
    recorded = {profile for runs in book.committed.values() for profile in runs}
    for profile in sorted((book.home or {}).keys() - recorded):
        there = ", ".join(sorted(recorded)) or "none"
        reason = f"home names {profile}, of which there is no recording"
        yield f"pyproject.toml: {reason}; mend the name (recorded: {there}) or record there"


def _processors(book) -> Iterator[str]:
    """CPU runs that stand together are of one processor with as many cores."""
    kinds = set()
    for runs in book.committed.values():
        if "cpu" in runs:
            for run in runs["cpu"].all:
                kinds.add(f"{run['machine']['cpu']} with {run['machine']['cores']} cores")
    if len(kinds) > 1:
        yield f"docs/recordings/cpu: runs on {' and '.join(sorted(kinds))}; record all of them on one machine"


def _freshness(book, snippet: Snippet) -> Iterator[str]:
    runs = book.committed.get(snippet.name, {}).values()
    recorded = {run.gpus for run in runs}
    missing = snippet.options["missing"]
    again = f"run `overlap record {snippet.name}`"
    for count in snippet.options["gpus"]:
        on = f"with {plural(count, 'GPU')}" if count else "on the CPU"
        if count in recorded and str(count) in missing:
            yield f"{snippet.path}: is recorded {on}, so drop `missing.{count}` from its header"
        if count not in recorded and str(count) not in missing:
            remedy = f"{again} where they are" if count else again
            yield f"{snippet.path}: {recording.MISSING}: no recording {on}; {remedy}"
    for run in runs:
        wanted = book.runs_wanted(snippet.name, run.profile)
        if len(run.all) < wanted and book.at_home(run.profile):
            remedy = f"{again} on such a machine, another host if there is one"
            yield f"{run.path}: {len(run.all)} of {wanted} runs; {remedy}"
        if run.grade == recording.CODE:
            yield f"{run.path}: {run.grade}: {snippet.path} or what it imports is not what ran; {again}"
        if not run.data.intact:
            yield f"{run.path}: edited by hand: its digest does not match; restore it or {again}"


def _blocks(book, margins: bool) -> Iterator[str]:
    for block in book.blocks:
        try:
            yield from block.check(book, margins)
        except OverlapError as error:
            yield f"{block.where}: {str(error).removeprefix(f'{block.where}: ')}"


def _hidden(book) -> Iterator[str]:
    """Snippets that no page shows, where all pages can be read."""
    if not book.library.lost_pages:
        names = {block.snippet for block in book.blocks if isinstance(block, SnippetBlock)}
        for name, snippet in book.snippets.items():
            if name not in names:
                yield f"{snippet.path}: no page shows it; add a snippet block to docs/"
