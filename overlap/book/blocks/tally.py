"""The tally: how many of the book's claims hold, in one line and by machine."""

from dataclasses import dataclass
from typing import ClassVar

from overlap.book.blocks.block import Block, Source, read_template
from overlap.book.blocks.index import Index
from overlap.book.verdict import Counts


@dataclass(frozen=True)
class Tally(Block):
    """```` ```tally ````, without a body."""

    kind: ClassVar[str] = "tally"
    template: ClassVar[str] = read_template("tally")

    @classmethod
    def read(cls, source: Source) -> "Tally":
        """Nothing but its place."""
        if source.argument or source.rows():
            raise source.refuse("the tally of all claims has no argument and no body", "leave them out")
        return cls(source.page, source.line)

    def html(self, view) -> str:
        """A line with a link to the index of all claims, where there is one; a list by machine."""
        counts = Counts.of(map(view.book.verdicts, view.book.claims))
        profiles = [machine["profile"] for machine in view.book.machines() if machine["profile"] in counts.by]
        href = ""
        for block in view.book.blocks:
            if isinstance(block, Index) and block.of == "claim" and not href:
                href = view.page(block.page, "").removesuffix("#")
        return view.render(self.template, counts=counts, profiles=profiles, href=href)

    def cells(self, notebook) -> list[dict]:
        """The line."""
        counts = Counts.of(map(notebook.book.verdicts, notebook.book.claims))
        return [notebook.markdown(f"{counts.said()}.")]
