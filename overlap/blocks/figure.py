"""Pictures that stand alone: of a snippet that is shown elsewhere, of the one step, and drawn by hand."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from overlap import OverlapError
from overlap.blocks.block import Block, Notebook, Pages, Source, Text, View
from overlap.blocks.inline import VALUE, read_value
from overlap.blocks.language import FOLDER, is_chinese, say
from overlap.book.book import Book
from overlap.book.value import Value

_BOX = """<div class="ov-snippet"><div class="ov-choice" data-search-exclude></div>
<div class="ov-outputs">{{ run }}</div></div>"""

#: The snippet whose training step leads through the book.
_ONE_STEP = "clinic/six_faults"
#: Behind its line: where it is said, once, how each of these pictures is made from a trace.
_MADE = "Pale: other parts of the step. ([How it is drawn]({to}))"
_HOW = "clinic.md#how-drawn"

#: A value in an SVG's text.
_VALUE = """<tspan class="ov-value" data-key="{{ key }}"
{%- for name, text in attributes.items() %} {{ name }}="{{ text }}"{% endfor %}>{{ text }}</tspan>"""


@dataclass(frozen=True)
class FigureBlock(Block):
    """```` ```figure chapter/snippet ````: the picture alone; the body, its caption, states the finding.

    `figure chapter/snippet part` shows another picture that `plot` returns, by its name.
    """

    snippet: str
    part: str
    caption: str

    kind: ClassVar[str] = "figure"

    @classmethod
    def read(cls, source: Source) -> "FigureBlock":
        """Read the caption."""
        if not source.rows():
            raise source.refuse("a figure needs a caption", "say in its body what the picture shows")
        snippet, _, part = source.argument.partition(" ")
        return cls(source.page, source.line, snippet.removesuffix(".py"), part, " ".join(source.rows()))

    @property
    def prose(self) -> Text:
        """Its caption, which is text like any other of the page."""
        return Text(self.page, self.line + 1, self.caption)

    def check(self, pages: Pages) -> Iterator[str]:
        """A snippet that draws no picture, or that no page shows; what the caption says."""
        if not pages.book.snippet(self.snippet).draws:
            yield f"{self.where}: {self.snippet} draws no picture; write a `plot`, or show another snippet"
        if self.snippet not in pages.places and not pages.unreadable:
            reason = f"no page shows how {self.snippet} was measured"
            yield f"{self.where}: {reason}; add a `snippet {self.snippet}` block"
        yield from super().check(pages)

    def markdown(self, view: View) -> str:
        """The picture; the caption, with the way to the code."""
        box = view.stash(view.render(_BOX, run=self._run(view)))
        return f"\n{box}\n{view.captioned('', self.caption, view.how(self.snippet))}\n"

    def _run(self, view: View) -> str:
        """The picture on the page's machine."""
        output = view.output([self.snippet], self.part)
        pictures = output.runs[self.snippet]["pictures"]
        if self.part not in pictures:
            known = ", ".join(filter(None, pictures)) or "none yet"
            reason = f"plot() returns no part {self.part!r}; there are {known}"
            raise OverlapError(f"{self.where}: snippets/{self.snippet}.py: {reason}")
        return view.run(output, alone=True, part=self.part)


@dataclass(frozen=True)
class Step(FigureBlock):
    """```` ```step part ````: the training step that leads through the book, a chapter's part in full colour.

    The body says in a line what this part is, and how long it takes. The parts are those named `strip-…`
    that `plot` of the snippet returns. It stands above the chapter's first words, and is no numbered figure.
    A link says how it is made.
    """

    kind: ClassVar[str] = "step"

    @classmethod
    def read(cls, source: Source) -> "Step":
        """Read the part and the line."""
        if not source.rows():
            raise source.refuse("a step needs a line", "say in its body what this chapter's part of it is")
        part, said = source.argument, [*source.rows()]
        if part != "clock":  # the step as it was profiled, beside what a clock says
            said.append(say(_MADE, source.page).replace("{to}", "../" * source.page.count("/") + _HOW))
        return cls(source.page, source.line, _ONE_STEP, f"strip-{part}", " ".join(said))

    def markdown(self, view: View) -> str:
        """The strip, then its line."""
        box = view.stash(view.render(_BOX, run=self._run(view)))
        return f'\n<div class="ov-step" data-search-exclude markdown>\n{box}\n\n{self.caption}\n</div>\n'

    def cells(self, notebook: Notebook) -> list[dict]:
        """None: its line speaks of the picture above a page."""
        return []


@dataclass(frozen=True)
class Diagram(Block):
    """```` ```diagram name ````: an SVG of docs/assets/diagrams, inlined to take the page's colours.

    Its texts may have values, as sentences have. A page in Chinese takes the one in the folder zh, if any.
    """

    name: str

    kind: ClassVar[str] = "diagram"

    @classmethod
    def read(cls, source: Source) -> "Diagram":
        """Read the name."""
        if source.rows():
            raise source.refuse("a diagram has no body", "end the fence right after its first line")
        return cls(source.page, source.line, source.argument)

    def svg(self, book: Book) -> str:
        """The file's text; a wrong name is an error."""
        folder = book.docs / "assets/diagrams"
        files = {file.stem: file for file in sorted(folder.glob("*.svg"))}
        if is_chinese(self.page):
            files |= {file.stem: file for file in folder.glob(f"{FOLDER}*.svg")}
        if self.name not in files:
            reason = f"no diagram {self.name!r} in docs/assets/diagrams/"
            raise OverlapError(f"{self.where}: {reason}; there are {', '.join(files) or 'none yet'}")
        return files[self.name].read_text(encoding="utf-8")

    def check(self, pages: Pages) -> Iterator[str]:
        """Whether the file is there."""
        yield from super().check(pages)
        for value in self.values_in(pages.book):
            try:
                pages.book.statistics(value)
            except OverlapError as error:
                yield f"docs/assets/diagrams/{self.name}.svg: {error}"

    def values_in(self, book: Book) -> list[Value]:
        """The values in its texts, written as in sentences."""
        return [read_value(match) for match in VALUE.finditer(self.svg(book))]

    def html(self, view: View) -> str:
        """The file's text, with the values of the page's machine."""

        def place(match: re.Match) -> str:
            value = view.value(read_value(match))
            return view.render(_VALUE, **value._asdict())

        drawing = VALUE.sub(place, self.svg(view.book))
        return f'<figure class="ov-diagram" data-search-exclude>{drawing}</figure>'

    def cells(self, notebook: Notebook) -> list[dict]:
        """The diagram as a picture on paper."""
        drawing = notebook.with_values(self.svg(notebook.book))
        return [notebook.markdown(notebook.drawing(drawing, self.name))]
