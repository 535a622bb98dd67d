"""A diagram: an SVG of docs/assets/diagrams, inlined so that it takes the page's colours."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
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

    def path(self, book) -> Path:
        """Its file; a wrong name is an error."""
        folder = book.docs / "assets/diagrams"
        if not re.fullmatch(r"[a-z_]+", self.name) or not (folder / f"{self.name}.svg").is_file():
            there = ", ".join(found.stem for found in sorted(folder.glob("*.svg"))) or "none yet"
            raise OverlapError(
                f"{self.where}: no diagram {self.name!r} in docs/assets/diagrams/; there are {there}"
            )
        return folder / f"{self.name}.svg"

    def snippets(self, book) -> set[str] | None:
        """None of them."""
        return set()

    def shows(self, book) -> list[str]:
        """The file's text."""
        return [self.path(book).read_text(encoding="utf-8")]

    def check(self, book, margins: bool) -> Iterator[str]:
        """Whether the file is there."""
        self.path(book)
        yield from ()

    def html(self, view) -> str:
        """The file's text."""
        return f'<figure class="ov-diagram">{self.path(view.book).read_text(encoding="utf-8")}</figure>'

    def cells(self, notebook) -> list[dict]:
        """The same as a picture on paper."""
        return [
            notebook.markdown(
                notebook.drawing(self.path(notebook.book).read_text(encoding="utf-8"), self.name)
            )
        ]
