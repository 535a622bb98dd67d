"""Overviews of the whole book: open questions, weakened claims, all claims, all snippets."""

import re
from dataclasses import dataclass
from typing import ClassVar

from overlap.blocks.block import Block, View, read_template
from overlap.blocks.calculator import Calculator
from overlap.blocks.claim import Claim
from overlap.blocks.inline import CITED
from overlap.book.verdict import Counts, State

#: The id of the section with what a chapter does not know.
QUESTIONS = "open-questions"


@dataclass(frozen=True)
class Questions(Block):
    """```` ```questions ````: what stands under *Open questions* on each page, with its page's title."""

    kind: ClassVar[str] = "questions"

    def markdown(self, view: View) -> str:
        """The title and the list of each other page; links within a page become links to it."""
        parts = [""]
        for title, path in _paths(view).items():
            text = view.pages.section(path, QUESTIONS).strip()
            if text and path != self.page:
                parts += [f"**[{title}]({path}#{QUESTIONS})**"]
                parts += [CITED.sub("", re.sub(r"\]\(#", f"]({path}#", text))]
        return "\n\n".join([*parts, ""])


@dataclass(frozen=True)
class Weakened(Block):
    """```` ```weakened ````: the claims that said more at first, each with what made it say less."""

    kind: ClassVar[str] = "weakened"

    def html(self, view: View) -> str:
        """A list in reading order."""
        rows = {
            title: [claim for claim in claims if claim.weakened]
            for title, claims in in_reading_order(view, Claim).items()
        }
        return view.render(read_template("weakened"), view=view, rows=rows)


@dataclass(frozen=True)
class ClaimIndex(Block):
    """```` ```claims ````: how many hold by page and machine; then each with its verdicts."""

    kind: ClassVar[str] = "claims"

    def markdown(self, view: View) -> str:
        """An overview; a heading, which the page's contents name, and a table for each page."""
        machines = view.book.machines()
        verdicts = {claim: view.book.verdicts(claim) for claim in view.pages.claims}
        sections = in_reading_order(view, Claim)
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


@dataclass(frozen=True)
class Calculators(Block):
    """```` ```calculators ````: all calculators, with what each asks for, and the page that has it."""

    kind: ClassVar[str] = "calculators"

    def html(self, view: View) -> str:
        """A table in reading order."""
        rows = in_reading_order(view, Calculator)
        return view.render(read_template("calculators"), view=view, rows=rows)


def in_reading_order(view: View, kind: type = Block) -> dict[str, list]:
    """The blocks of a kind by the titles of the pages that have some."""
    pages = {title: view.pages.on(path) for title, path in _paths(view).items()}
    found = {title: [block for block in blocks if isinstance(block, kind)] for title, blocks in pages.items()}
    return {title: blocks for title, blocks in found.items() if blocks}


def _paths(view: View) -> dict[str, str]:
    """The pages by title, as the navigation has them, then the others by their paths."""
    paths = view.pages.paths
    order = dict.fromkeys([*(path for path in view.titles if path in paths), *paths])
    return {view.titles.get(path) or path.removesuffix(".md"): path for path in order}
