"""A diagram: an SVG of docs/assets/diagrams, inlined so that it takes the page's colours."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from overlap import OverlapError
from overlap.book.blocks.block import Block, Source


@dataclass(frozen=True)
class Diagram(Block):
    """```` ```diagram name ````, without a body."""

    name: str

    kind: ClassVar[str] = "diagram"

    @classmethod
    def read(cls, source: Source) -> "Diagram":
        """Read the name."""
        if source.rows():
            raise source.refuse("a diagram has no body", "end the fence right after its first line")
        return cls(source.page, source.line, source.argument)

    def svg(self, book) -> str:
        """The file's text; a wrong name is an error."""
        folder = book.docs / "assets/diagrams"
        path = folder / f"{self.name}.svg"
        if not re.fullmatch(r"[a-z_]+", self.name) or not path.is_file():
            there = ", ".join(file.stem for file in sorted(folder.glob("*.svg"))) or "none yet"
            reason = f"no diagram {self.name!r} in docs/assets/diagrams/"
            raise OverlapError(f"{self.where}: {reason}; there are {there}")
        return path.read_text(encoding="utf-8")

    def check(self, book, margins: bool) -> Iterator[str]:
        """Whether the file is there."""
        self.svg(book)
        yield from ()

    def html(self, view) -> str:
        """The file's text."""
        return f'<figure class="ov-diagram" data-search-exclude>{self.svg(view.book)}</figure>'

    def cells(self, notebook) -> list[dict]:
        """The same as a picture on paper."""
        return [notebook.markdown(notebook.drawing(self.svg(notebook.book), self.name))]
