"""The tally: how many of the book's claims hold, in one line and by machine."""

from dataclasses import dataclass
from typing import ClassVar

from overlap.book.blocks.block import Block, Source
from overlap.book.blocks.index import Index
from overlap.book.verdict import Counts


@dataclass(frozen=True)
class Tally(Block):
    """```` ```tally ````, without a body."""

    kind: ClassVar[str] = "tally"
    template: ClassVar[str] = """
<div class="ov-book-tally">
<p>{{ counts.said() }}.{% if href %} <a href="{{ href }}">All claims</a>.{% endif %}</p>
<ul>
{% for profile in profiles %}
<li>{{ label(profile) }}: {{ counts.on(profile) }}</li>
{% endfor %}
</ul>
</div>"""

    @classmethod
    def read(cls, source: Source) -> "Tally":
        """Nothing but its place."""
        if source.argument or source.rows():
            raise source.refuse("the tally of all claims has no argument and no body", "leave them out")
        return cls(source.page, source.line)

    def snippets(self, book) -> set[str] | None:
        """All that claims read."""
        return set().union(*(claim.snippets(book) for claim in book.claims))

    def shows(self, book) -> list[str]:
        """All claims."""
        return list(map(repr, book.claims))

    def html(self, view) -> str:
        """A line with a link to the index of all claims, where there is one; a list by machine."""
        counts = _counts(view.book)
        profiles = [machine["profile"] for machine in view.book.machines() if machine["profile"] in counts.by]
        href = next((view.page(block.page, "") for block in view.book.blocks if _lists_claims(block)), "")
        return view.render(self.template, counts=counts, profiles=profiles, href=href.removesuffix("#"))

    def cells(self, notebook) -> list[dict]:
        """The line."""
        return [notebook.markdown(f"{_counts(notebook.book).said()}.")]


def _counts(book) -> Counts:
    return Counts.of(map(book.verdicts, book.claims))


def _lists_claims(block: Block) -> bool:
    return isinstance(block, Index) and block.of == "claim"
