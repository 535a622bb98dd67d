"""What is wrong with a book: freshness, then block by block, then what no page shows."""

from collections.abc import Iterable, Iterator

from overlap import OverlapError
from overlap.book.blocks import SnippetBlock
from overlap.book.page import Page
from overlap.run import recording
from overlap.run.snippet import Snippet


def problems(book, margins: bool, all_pages: bool = True) -> list[str]:
    """Everything that is wrong with a book as committed, each with file, reason and remedy; `all_pages`: none is missing that cannot be read."""
    found = [problem for snippet in book.snippets.values() for problem in _freshness(book, snippet)]
    recorded = {profile for runs in book.committed.values() for profile in runs}
    for profile in sorted((book.home or {}).keys() - recorded):
        there = ", ".join(sorted(recorded)) or "none"
        found.append(
            f"pyproject.toml: home names {profile}, of which there is no recording; mend the name (recorded: {there}) or record there"
        )
    shown = set()
    for page in book.pages.values():
        try:
            blocks = page.blocks
        except OverlapError as error:
            found.append(str(error))
            continue
        shown |= {block.snippet for block in blocks if isinstance(block, SnippetBlock)}
        for block in blocks:
            try:
                found += block.check(book, margins)
            except OverlapError as error:
                found.append(f"{block.where}: {str(error).removeprefix(f'{block.where}: ')}")
    hidden = (snippet for name, snippet in book.snippets.items() if all_pages and name not in shown)
    return found + [f"{snippet.path}: no page shows it; add a snippet block to docs/" for snippet in hidden]


def unread(pages: Iterable[Page]) -> Iterator[str]:
    """What is wrong with pages by themselves, where the recordings that they speak of cannot be read."""
    for page in pages:
        try:
            page.blocks  # noqa: B018 - taken apart
        except OverlapError as error:
            yield str(error)


def _freshness(book, snippet: Snippet) -> Iterator[str]:
    runs, excuses = book.committed.get(snippet.name, {}).values(), snippet.options["missing"]
    have, again = {run.gpus for run in runs}, f"run `overlap record {snippet.name}`"
    for count in snippet.options["gpus"]:
        on = f"with {count} GPU{'s' * (count > 1)}" if count else "on the CPU"
        if count in have and str(count) in excuses:
            yield f"{snippet.path}: is recorded {on}, so drop `missing.{count}` from its header"
        elif count not in have and str(count) not in excuses:
            where = " where they are" if count else ""
            yield f"{snippet.path}: {recording.MISSING}: no recording {on}; {again}{where}"
    for run in runs:
        wanted = book.runs_wanted(snippet.name, run.profile)
        if len(run.all) < wanted and book.at_home(run.profile):
            yield f"{run.path}: {len(run.all)} of {wanted} runs; {again} on such a machine, another host if there is one"
        if run.grade == recording.CODE:
            yield f"{run.path}: {run.grade}: {snippet.path} or what it imports is not what ran; {again}"
        if not run.data.intact:
            yield f"{run.path}: edited by hand: its digest does not match; restore it or {again}"
