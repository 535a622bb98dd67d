"""Two twins together: what is broken and what is fixed, in the same views; in the code, what changed."""

import difflib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

from overlap import OverlapError
from overlap.blocks.block import Notebook, Pages, Source, View, read_template
from overlap.blocks.snippet import SnippetBlock, for_readers
from overlap.book.book import Book
from overlap.run.snippet import BROKEN, FIXED, Snippet


@dataclass(frozen=True)
class Pair(SnippetBlock):
    """```` ```pair chapter/name ````: `name_broken` and `name_fixed`, with the options of a snippet.

    `show` names functions that one of them has, or both.
    """

    kind: ClassVar[str] = "pair"

    @classmethod
    def read(cls, source: Source) -> "Pair":
        """Read the options; what changed in the code is the point, so it is shown."""
        if not source.snippet or source.snippet.endswith((BROKEN, FIXED)):
            remedy = "write `pair chapter/name` for `name_broken` and `name_fixed`"
            raise source.refuse(f"a pair is named without {BROKEN} or {FIXED}", remedy)
        block = super().read(source._replace(argument=source.snippet + BROKEN))
        if not block.code or not block.show:
            raise source.refuse("a pair shows code of both", "say in `show: …` which functions")
        return block

    @cached_property
    def snippets(self) -> tuple[SnippetBlock, ...]:
        """The broken one, then the fixed one."""
        fields = {name: getattr(self, name) for name in ("page", "line", "show", "code", "output", "plot")}
        names = self.snippet, self.snippet.removesuffix(BROKEN) + FIXED
        return tuple(SnippetBlock(snippet=name, caption="", **fields) for name in names)

    def check(self, pages: Pages) -> Iterator[str]:
        """A twin or a function that there is not; a picture without a caption, what the caption says."""
        self.codes(pages.book)
        broken, _ = self.snippets
        yield from replace(broken, show=(), caption=self.caption).check(pages)

    def markdown(self, view: View) -> str:
        """As a snippet, once both twins are there."""
        self.codes(view.book)
        return super().markdown(view)

    def codes(self, book: Book) -> tuple[str, str]:
        """What is shown of the broken one and of the fixed one, which may borrow functions of its twin."""
        broken, fixed = (self._twin(book, block.snippet) for block in self.snippets)
        functions = {**broken.functions, **fixed.functions}
        unknown = [name for name in self.show if name not in functions]
        if unknown:
            reason = f"neither twin has a function {', '.join(unknown)}"
            raise OverlapError(f"{self.where}: {reason}; they have {', '.join(functions)}")
        borrowed = fixed.borrowed_by(fixed.imports).get(broken.name, [])
        lent = set()
        for part in borrowed:
            lent |= part.binds
        before = [broken.show([name]) for name in self.show if name in broken.functions]
        after = []
        for name in self.show:
            if name in fixed.functions:
                after.append(fixed.show([name]))
            elif name in lent:
                after.append(broken.show([name]))
        return for_readers("\n\n\n".join(before)), for_readers("\n\n\n".join(after))

    def _twin(self, book: Book, name: str) -> Snippet:
        if name not in book.snippets:
            reason = f"a pair needs two twins, and there is no snippets/{name}.py"
            raise OverlapError(f"{self.where}: {reason}; write it, or show the other one as a snippet")
        return book.snippet(name)

    def _code(self, view: View, anchors: list[str]) -> str:
        """One block of code with removed, new and equal lines; the fixed code is what is copied."""
        before, after = self.codes(view.book)
        old, new = (view.lines(code) for code in (before, after))
        matcher = difflib.SequenceMatcher(None, before.split("\n"), after.split("\n"), autojunk=False)
        lines = []
        for tag, start, end, new_start, new_end in matcher.get_opcodes():
            if tag == "equal":
                lines += [("same", line) for line in new[new_start:new_end]]
            else:
                lines += [("del", line) for line in old[start:end]]
                lines += [("ins", line) for line in new[new_start:new_end]]
        return view.render(
            read_template("pair_code"),
            anchors=anchors,
            lines=lines,
            copied=after,
            paths=[view.book.snippet(block.snippet).path for block in self.snippets],
            place=self.anchor if self.anchor in view.anchors else "",
            pieces=self._pieces(view),
        )

    def _rest(self, view: View) -> str:
        """None: its code is shown whole."""
        return ""

    def cells(self, notebook: Notebook) -> list[dict]:
        """Those of the broken one, then those of the fixed one."""
        cells = []
        for block in self.snippets:
            cells += replace(block, show=()).cells(notebook)
        return cells + self.prose.cells(notebook)
