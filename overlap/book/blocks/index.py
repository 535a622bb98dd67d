"""The index of all blocks of a kind: all claims, all snippets; a table for each page that has some."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from overlap.book.blocks.block import Block, Source, read_template


@dataclass(frozen=True)
class Index(Block):
    """```` ```claims ```` or ```` ```snippets ````, without a body."""

    of: str

    template: ClassVar[str] = read_template("index")

    @classmethod
    def read(cls, source: Source) -> "Index":
        """Read which kind."""
        if source.argument or source.rows():
            reason = f"the index of all {source.kind} has no argument and no body"
            raise source.refuse(reason, "leave them out")
        return cls(source.page, source.line, source.kind.removesuffix("s"))

    def sections(self, book) -> Iterator[tuple[str, list[Block]]]:
        """Names of pages with their blocks of the kind; one for each key in the whole book."""
        seen = set()
        for page in book.pages.values():
            blocks = []
            for block in page.blocks:
                if block.kind == self.of and block.key() not in seen and block.listed(book):
                    seen.add(block.key())
                    blocks.append(block)
            if blocks:
                yield page.name, blocks

    def markdown(self, view) -> str:
        """An overview; a heading, which the page's contents name, and a table for each page."""
        sections = dict(self.sections(view.book))
        parts = [""]
        for name, blocks in sections.items():
            kind = type(blocks[0])
            if len(parts) == 1:
                parts.append(view.put(kind.overview(view, sections)))
            parts.append(f"## {titled(name)}")
            rows = [block.row(view) for block in blocks]
            names = {"of": self.of, "title": titled(name), "headings": kind.headings(view)}
            parts.append(view.put(view.render(self.template, rows=rows, cards=kind.cards, **names)))
        return "\n\n".join([*parts, ""])

    def cells(self, notebook) -> list[dict]:
        """Nothing: what it lists is on the site."""
        return []


def titled(name: str) -> str:
    """How a page is called where blocks are listed."""
    return name.replace("_", " ").capitalize()
