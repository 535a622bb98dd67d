"""A figure: the picture of a snippet that is shown elsewhere, where a page says its point first."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from overlap import OverlapError
from overlap.book.blocks.block import Block, Source, Text
from overlap.book.blocks.snippet import anchor_of


@dataclass(frozen=True)
class FigureBlock(Block):
    """```` ```figure chapter/snippet ````: the picture alone; the body, its caption, states the finding."""

    snippet: str
    caption: str

    kind: ClassVar[str] = "figure"
    tab: ClassVar[str] = '<div class="ov-run" data-machine="{{ profile }}">{{ picture }}</div>'

    @classmethod
    def read(cls, source: Source) -> "FigureBlock":
        """Read the caption."""
        if not source.rows():
            raise source.refuse("a figure needs a caption", "say in its body what the picture shows")
        return cls(source.page, source.line, source.snippet, " ".join(source.rows()))

    @property
    def prose(self) -> Text:
        """Its caption, which is text like any other of the page."""
        return Text(self.page, self.line + 1, self.caption)

    def check(self, book, margins: bool) -> Iterator[str]:
        """A snippet that draws no picture, or that no page shows; what the caption says."""
        if "plot" not in book.snippet(self.snippet).functions:
            yield f"{self.where}: {self.snippet} draws no picture; write a `plot`, or show another snippet"
        if self.snippet not in book.places and not book.library.lost_pages:
            reason = f"no page shows how {self.snippet} was measured"
            yield f"{self.where}: {reason}; add a `snippet {self.snippet}` block"
        yield from self.prose.check(book, margins)

    def markdown(self, view) -> str:
        """A tab for each machine; the caption, with the way to the code."""
        book = view.book
        runs = book.runs(book.snippet(self.snippet).name)
        first = book.default(self.snippet)
        pictures = {profile: view.figure(run, at_once=profile == first) for profile, run in runs.items()}
        if not any(pictures.values()):
            remedy = f"run `overlap record {self.snippet}`, or mend its `plot`"
            raise OverlapError(f"{self.where}: there is no picture of {self.snippet}; {remedy}")
        tabs = {p: view.render(self.tab, profile=p, picture=picture) for p, picture in pictures.items()}
        tabs = view.render('<div class="ov-snippet">{{ tabs }}</div>', tabs=view.tabs(tabs, first))
        href = ""
        if place := book.places.get(self.snippet):
            anchor = anchor_of(self.snippet)
            href = f"#{anchor}" if place.page == view.path else view.page(place.page, anchor)
        return f"\n{view.put(tabs)}\n{view.captioned('', self.caption, href)}\n"

    def cells(self, notebook) -> list[dict]:
        """The caption: the picture stands below its code."""
        return self.prose.cells(notebook)
