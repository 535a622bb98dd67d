"""All pages of a book: what is written on them, beside the data that they speak of."""

from collections.abc import Iterator
from copy import copy
from functools import cached_property
from typing import TypeVar

from overlap import OverlapError
from overlap.blocks import language
from overlap.blocks.block import Block, OfMachines
from overlap.blocks.claim import Claim
from overlap.blocks.entries import Symptom, Term, glossary, symptoms
from overlap.blocks.figure import FigureBlock
from overlap.blocks.page import Page
from overlap.blocks.snippet import SnippetBlock
from overlap.book.book import Book
from overlap.book.value import Value

B = TypeVar("B", bound=Block)


class Pages:
    """The pages of a checkout as they are on disk when this is made, and the book whose data they show."""

    def __init__(self, book: Book):
        self.book = book
        #: The pages that can be read, by path below docs/, and what is wrong with the others.
        self.by_path: dict[str, Page] = {}
        self.unreadable: list[str] = []
        for path in sorted(book.docs.glob("**/*.md")):
            try:
                page = Page.read(path, book.docs)
                self.by_path[page.path] = page
            except OverlapError as error:
                self.unreadable.append(str(error))

    def over(self, book: Book) -> "Pages":
        """These pages, over other data."""
        pages = copy(self)
        pages.book = book
        return pages

    @property
    def paths(self) -> list[str]:
        """The pages that can be read."""
        return list(self.by_path)

    def on(self, path: str) -> list[Block]:
        """The blocks of one page."""
        return self.by_path[path].blocks

    def section(self, path: str, anchor: str) -> str:
        """The Markdown of a section of a page; empty where it has none of this id."""
        sections = self.by_path[path].sections
        return next(("\n".join(section.lines) for section in sections if section.anchor == anchor), "")

    def entries(self, path: str) -> set[str]:
        """The ids of what on a page is a result of its own for the search."""
        blocks = self.on(path) if path in self.by_path else ()
        return {name for block in blocks for name in block.entries(self)}

    @property
    def blocks(self) -> Iterator[Block]:
        """All blocks of all pages."""
        for page in self.by_path.values():
            yield from page.blocks

    def of_kind(self, kind: type[B]) -> list[B]:
        """All blocks of one kind."""
        return [block for block in self.blocks if isinstance(block, kind)]

    @property
    def values(self) -> set[Value]:
        """The values in sentences, without those that are pinned to one machine."""
        found = set()
        for block in self.blocks:
            found |= {value for value in block.values_in(self.book) if not value.machine}
        return found

    @property
    def values_in_chinese(self) -> set[Value]:
        """Those of them that stand on pages in Chinese."""
        found = {value for block in self._in_chinese for value in block.values_in(self.book)}
        return {value for value in found if not value.machine}

    @property
    def pictures_in_chinese(self) -> set[tuple[str, str]]:
        """Snippet and part of each picture that a page in Chinese shows."""
        found = set()
        for block in self._in_chinese:
            found |= {(shown.snippet, "") for shown in block.snippets}
            if isinstance(block, FigureBlock):
                found.add((block.snippet, block.part))
        return found

    @property
    def _in_chinese(self) -> Iterator[Block]:
        """The blocks of pages in Chinese."""
        for path, page in self.by_path.items():
            if language.is_chinese(path):
                yield from page.blocks

    @property
    def of_machines(self) -> list[OfMachines]:
        """What in blocks each machine has its own of, but for values and claims."""
        found: list[OfMachines] = []
        for block in self.blocks:
            found += block.of_machines
        return found

    @property
    def claims(self) -> list[Claim]:
        """All claims."""
        return self.of_kind(Claim)

    def named(self, path: str) -> dict[str, Claim]:
        """The claims whose marks may stand on a page, by name: its own, then of what it translates."""
        found = {}
        for place in dict.fromkeys((language.original(path), path)):
            page = self.by_path.get(place)
            claims = [block for block in page.blocks if isinstance(block, Claim)] if page else []
            found |= {claim.name: claim for claim in claims if claim.name}
        return found

    @cached_property
    def symptoms(self) -> dict[str, dict[str, Symptom]]:
        """All symptoms by section and id."""
        return symptoms(self.book.docs)

    @cached_property
    def glossary(self) -> dict[str, Term]:
        """All terms by id."""
        return glossary(self.book.docs)

    @cached_property
    def places(self) -> dict[str, SnippetBlock]:
        """By snippet, the first block that shows its output, or else the first one."""
        places: dict[str, SnippetBlock] = {}
        for block in self.blocks:
            for shown in block.snippets:
                known = places.setdefault(shown.snippet, shown)
                if shown.output and not known.output:
                    places[shown.snippet] = shown
        return places
