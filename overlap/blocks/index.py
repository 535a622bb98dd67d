"""Overviews of the whole book: how many claims hold, all claims, all snippets."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from overlap.blocks.block import Block, Notebook, View, read_template
from overlap.blocks.claim import Claim
from overlap.book.verdict import Counts, State


@dataclass(frozen=True)
class Tally(Block):
    """```` ```tally ````: how many of the book's claims hold, in one line and by machine."""

    kind: ClassVar[str] = "tally"

    def html(self, view: View) -> str:
        """A line with a link to the index of all claims, where there is one; a list by machine."""
        counts = Counts.of(map(view.book.verdicts, view.pages.claims))
        machines = [machine["name"] for machine in view.book.machines() if machine["name"] in counts.by]
        href = ""
        for block in view.pages.of_kind(ClaimIndex):
            href = view.page(block.page, "").removesuffix("#")
        return view.render(read_template("tally"), counts=counts, machines=machines, href=href)

    def cells(self, notebook: Notebook) -> list[dict]:
        """The line."""
        counts = Counts.of(map(notebook.book.verdicts, notebook.pages.claims))
        return [notebook.markdown(f"{counts.summary}.")]


@dataclass(frozen=True)
class ClaimIndex(Block):
    """```` ```claims ````: how many hold by page and machine; then each with its verdicts."""

    kind: ClassVar[str] = "claims"

    def markdown(self, view: View) -> str:
        """An overview; a heading, which the page's contents name, and a table for each page."""
        machines = view.book.machines()
        verdicts = {claim: view.book.verdicts(claim) for claim in view.pages.claims}
        sections = {}
        for title, blocks in in_reading_order(view).items():
            claims = [block for block in blocks if isinstance(block, Claim)]
            if claims:
                sections[title] = claims
        counts = {
            title: Counts.of(verdicts[claim] for claim in claims).by for title, claims in sections.items()
        }
        counts["The whole book"] = Counts.of(verdicts.values()).by
        pages = {title: claims[0].page for title, claims in sections.items()} | {"The whole book": ""}
        names = {"machines": machines, "counts": counts, "pages": pages, "states": list(State)}
        parts = ["", view.stash(view.render(read_template("claim_counts"), **names))]
        for title, claims in sections.items():
            rows = [(claim, {item.machine: item for item in verdicts[claim]}) for claim in claims]
            names = {"view": view, "title": title, "machines": machines, "rows": rows}
            parts += [f"## {title}", view.stash(view.render(read_template("claims"), **names))]
        return "\n\n".join([*parts, ""])


@dataclass(frozen=True)
class SnippetIndex(Block):
    """```` ```snippets ````: all snippets, by the page that shows their output."""

    kind: ClassVar[str] = "snippets"

    def markdown(self, view: View) -> str:
        """A heading, which the page's contents name, and a table for each page."""
        parts = [""]
        for title, blocks in in_reading_order(view).items():
            snippets = [snippet for block in blocks for snippet in block.snippets]
            first = [snippet for snippet in snippets if view.pages.places[snippet.snippet] == snippet]
            if first:
                table = view.render(read_template("snippets"), view=view, title=title, blocks=first)
                parts += [f"## {title}", view.stash(table)]
        return "\n\n".join([*parts, ""])


def in_reading_order(view: View) -> dict[str, Sequence[Block]]:
    """The blocks of pages by title, as the navigation has them, then the others by their paths."""
    paths = view.pages.paths
    order = dict.fromkeys([*(path for path in view.titles if path in paths), *paths])
    return {view.titles.get(path) or path.removesuffix(".md"): view.pages.on(path) for path in order}
