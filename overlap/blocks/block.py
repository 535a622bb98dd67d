"""What every kind of block can do, what it is given for this, and the one that is no fence: text.

A kind reads its fence (`read`), says what is wrong with it (`check`, `remarks`), stands in a page as Markdown
(`markdown`), mostly as HTML that a template makes (`html`), and in the notebook (`cells`). It is given all
`Pages` with the book, the `View` of a page, or a `Notebook`; the classes that are these know blocks, and no
block knows them.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Protocol

from overlap import OverlapError
from overlap.blocks import inline
from overlap.book.book import Book
from overlap.book.recording import Recording
from overlap.book.value import Value
from overlap.book.verdict import Verdict
from overlap.run.derived import NotDerived
from overlap.run.snippet import Snippet

#: The page that explains the syntax; its numbers are examples.
HOUSE_RULES = "contributing.md"


@cache
def read_template(name: str) -> str:
    """The text of a template that stands beside this file."""
    return Path(__file__).with_name("templates").joinpath(f"{name}.html").read_text(encoding="utf-8")


def markdown_table(rows: list[list[str]]) -> str:
    """Rows of cells as a table in Markdown; the first one has the headings."""
    headings, *others = rows
    lines = [headings, ["---"] * len(headings), *others]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


class Source(NamedTuple):
    """A fence as it is written: ```` ```kind argument ````, then the lines of its body."""

    kind: str
    argument: str
    body: list[str]
    page: str
    line: int

    @property
    def snippet(self) -> str:
        """The snippet that the argument names."""
        return self.argument.removesuffix(".py")

    @property
    def conditioned(self) -> tuple[str, str]:
        """Snippet and condition of the argument `chapter/snippet for CONDITION`; perhaps empty."""
        snippet, _, condition = self.argument.partition(" for ")
        return snippet, condition

    def rows(self) -> list[str]:
        """Lines of the body that are not empty."""
        return [row.strip() for row in self.body if row.strip()]

    def options(self, *names: str) -> tuple[dict[str, str], list[str]]:
        """The rows `name: text` of these names, the first of each; and the other rows."""
        options: dict[str, str] = {}
        others = []
        for row in self.rows():
            name, colon, text = row.partition(":")
            if colon and name.strip() in names and name.strip() not in options:
                options[name.strip()] = text.strip()
            else:
                others.append(row)
        return options, others

    def numbered_rows(self) -> Iterator[tuple["Source", list[str]]]:
        """The cells between `|` of each line that is not empty, each with its own place for messages."""
        for line, row in enumerate(self.body, self.line + 1):
            if row.strip():
                yield self._replace(line=line), [cell.strip() for cell in row.split("|")]

    def paragraphs(self) -> Iterator["Source"]:
        """What empty lines part in the body, each with its own place for messages."""
        lines = enumerate(self.body, self.line + 1)
        for filled, paragraph in groupby(lines, lambda line: bool(line[1].strip())):
            if filled:
                numbers, body = zip(*paragraph, strict=True)
                yield self._replace(line=numbers[0], body=list(body))

    def refuse(self, reason: str, remedy: str) -> OverlapError:
        """The error that says where, why, and what to write."""
        return OverlapError(f"docs/{self.page}:{self.line}: {reason}; {remedy}")


class Shown(Protocol):
    """A snippet on a page: the block that shows it."""

    page: str
    snippet: str
    #: Whether what it gave stands there, too.
    output: bool

    @property
    def anchor(self) -> str:
        """HTML id of its place."""


class OfMachines(Protocol):
    """Something in a block that each machine has its own of: where its content belongs, and what that is."""

    @property
    def key(self) -> str:
        """Identifies it among all blocks."""

    def of_machine(self, book: Book, machine: str) -> Any:
        """What this machine gave, as JSON can say it; None if nothing."""


class Pages(Protocol):
    """All pages, with the data that they speak of."""

    book: Book
    #: What is wrong with pages that cannot be read.
    unreadable: list[str]

    @property
    def paths(self) -> list[str]:
        """The pages that can be read, by their path below docs/."""

    def on(self, path: str) -> "Sequence[Block]":
        """The blocks of one page."""

    def section(self, path: str, anchor: str) -> str:
        """The Markdown of a section of a page; empty where it has none of this id."""

    def of_kind(self, kind: type) -> list:
        """All blocks of one kind."""

    @property
    def claims(self) -> list:
        """All claims."""

    def named(self, path: str) -> dict[str, "Block"]:
        """The claims whose marks may stand on a page, by name."""

    @property
    def places(self) -> dict[str, Shown]:
        """By snippet, the block that links to it lead to."""

    @property
    def symptoms(self) -> dict[str, dict[str, Any]]:
        """All symptoms by section and id."""

    @property
    def glossary(self) -> dict[str, Any]:
        """All terms by id."""


class View(Protocol):
    """A page while it is made: a block takes what its HTML needs, and tells what it has put there."""

    book: Book
    pages: Pages
    #: What the navigation calls each page, by its path; in reading order.
    titles: dict[str, str]
    #: What blocks have put on the page so far: the ids of snippets' places, the snippets whose output it
    #: shows, the verdicts of each claim.
    anchors: set[str]
    measured: list[str]
    claims: list[list[Verdict]]
    #: The names of claims whose marks stand in the prose.
    cited: set[str]
    #: The lines of the blocks that stand in closed rows.
    closed: set[int]
    #: Address of what explains marks.
    legend: str

    def stash(self, html: str) -> str:
        """Keep HTML out of Markdown's way; return what stands for it."""

    def render(self, template: str, **names: Any) -> str:
        """The HTML of a template's text; every text in it is escaped."""

    def inline(self, text: str) -> str:
        """HTML of one sentence of Markdown."""

    def code(self, text: str, title: str, anchor: str = "") -> str:
        """Highlighted Python under its path."""

    def lines(self, code: str) -> list[str]:
        """The lines of highlighted Python, each whole by itself."""

    def captioned(self, name: str, caption: str, href: str = "") -> str:
        """Markdown of the caption of the next figure."""

    def link(self, uri: str) -> str:
        """Address of a generated file; empty where there is none."""

    def address(self, path: str) -> str:
        """The way to a file below the root of the site; empty where there is none."""

    def page(self, path: str, anchor: str) -> str:
        """Address of a place on another page."""

    def fold(self, name: str) -> str:
        """Address of what `fold` of a block has below this id; empty where no build has written it."""

    def say(self, words: str) -> str:
        """Words of the book itself in the page's language."""

    def how(self, name: str) -> str:
        """Address of the place that shows how a snippet was measured; empty where no page does."""

    def first(self, by_machine: dict, name: str) -> str:
        """Of the machines that have something of a snippet, the one that the page shows."""

    def value(self, value: Value) -> Any:
        """A value on the page's machine: `text`, and the `attributes` that its element has."""

    def verdict(self, verdict: Verdict) -> list[str]:
        """What its evidence shows: state, figures, advice, address of the recording."""

    def output(self, names: list[str]) -> Any:
        """What these snippets gave on the machine that the page shows: its `runs` are data by snippet."""

    def run(self, output: Any, **options: Any) -> str:
        """An output on the page."""


class Notebook(Protocol):
    """A page as a notebook while it is made; what it gives are cells, but for words."""

    book: Book
    pages: Pages

    def markdown(self, source: str) -> dict:
        """Markdown."""

    def prose(self, text: str) -> dict:
        """The page's own Markdown, with values in their places."""

    def code(self, source: str, outputs: list[dict], tags: list[str]) -> dict:
        """Code with what it gave."""

    def outputs(self, snippet: Snippet, recording: Recording) -> list[dict]:
        """What a snippet printed and drew."""

    def with_values(self, drawing: str) -> str:
        """An SVG with its values in their places."""

    def drawing(self, picture: str, name: str) -> str:
        """An SVG of the book itself, as HTML."""

    def label(self, machine: str) -> str:
        """How a machine is called."""

    def text(self, text: str) -> str:
        """Text as Markdown that shows just this."""


#: A fence whose lines run behind those above it on its page: in a notebook it is a cell of code.
_RUNS = re.compile(r"^```\{\.python [^}\n]*\.ov-runs\}\n(?P<code>.*?)\n```$\n?", re.M | re.S)


@dataclass(frozen=True)
class Block:
    """Part of a page."""

    page: str
    line: int

    #: The word that opens the fence.
    kind: ClassVar[str] = ""

    @classmethod
    def read(cls, source: Source) -> "Block":
        """Make the block of a fence that has neither argument nor body; other kinds read theirs."""
        if source.argument or source.rows():
            raise source.refuse(f"{source.kind} has no argument and no body", "leave them out")
        return cls(source.page, source.line)

    @classmethod
    def read_all(cls, source: Source) -> list["Block"]:
        """The blocks of a fence: of most kinds it holds one."""
        return [cls.read(source)]

    @property
    def where(self) -> str:
        """Its place, for messages."""
        return f"docs/{self.page}:{self.line}"

    @property
    def prose(self) -> "Text | None":
        """Markdown that readers read in it."""
        return None

    def values_in(self, book: Book) -> list[Value]:
        """The values in it: of its prose, where it has some."""
        return [value for _, value in inline.values(self.prose.text)] if self.prose else []

    @property
    def of_machines(self) -> Sequence[OfMachines]:
        """What in it each machine has its own of, but for values: machines' files have it, by key."""
        return ()

    def entries(self, pages: Pages) -> list[str]:
        """The ids of what in it is a result of its own for the search."""
        return []

    @property
    def snippets(self) -> tuple["Shown", ...]:
        """Those whose code or output it shows; a figure shows a picture of one that stands elsewhere."""
        return ()

    def check(self, pages: Pages) -> Iterator[str]:
        """What is wrong with it, so that no build goes on."""
        if self.prose:
            yield from self.prose.check(pages)

    def remarks(self, pages: Pages) -> Iterator[str]:
        """What its author should mend, and what stops no build."""
        yield from ()

    def markdown(self, view: View) -> str:
        """What stands in its place in the page's Markdown."""
        return f"\n{view.stash(self.html(view))}\n"

    def html(self, view: View) -> str:
        """How it looks on the page."""
        raise NotImplementedError

    def fold(self, view: View) -> str:
        """HTML of what it opens on the page, which a browser fetches when it is opened."""
        return ""

    def cells(self, notebook: Notebook) -> list[dict]:
        """Its cells in the notebook: its prose, if it has some; or none."""
        return self.prose.cells(notebook) if self.prose else []


@dataclass(frozen=True)
class Text(Block):
    """Markdown that is passed on as it is, but for the values in it."""

    text: str

    @property
    def prose(self) -> "Text":
        """This block: all of its text is for readers."""
        return self

    def check(self, pages: Pages) -> Iterator[str]:
        """Numbers that are typed in, values without data, marks of unknown claims."""
        for offset, value in inline.values(self.text):
            try:
                pages.book.statistics(value)
            except NotDerived:
                continue  # `overlap check` says it once
            except OverlapError as error:
                yield f"{self._at(offset)}: {error}"
        if self.page == HOUSE_RULES:
            return
        for offset, value in inline.values_in_code(self.text):
            if value.snippet in pages.book.snippets:
                remedy = "take the backticks away, or the value out of them"
                yield f"{self._at(offset)}: the value `{value}` stands in code, and is not shown; {remedy}"
        for offset, number in inline.typed_numbers(self.text):
            remedy = "take it from a run as a value, or write {printed: …} if a source printed it"
            yield f"{self._at(offset)}: `{number.strip()}` is typed in by hand; {remedy}"
        names = pages.named(self.page)
        for offset, name in inline.cited(self.text):
            if name not in names:
                known = f"there are {', '.join(sorted(names))}" if names else "none has a name yet"
                yield f"{self._at(offset)}: no claim of this page is named {name!r}; {known}"

    def _at(self, offset: int) -> str:
        return f"docs/{self.page}:{self.line + offset}"

    def markdown(self, view: View) -> str:
        """The text; what stands in its sentences is inserted when the page is whole."""
        return self.text

    def cells(self, notebook: Notebook) -> list[dict]:
        """A cell with the values of one machine; a fence of lines that run is a cell of code."""
        cells = []
        # what stands between fences, and the code of each fence, in turn
        for i, part in enumerate(_RUNS.split(self.text)):
            if part.strip():
                cells.append(notebook.code(part, [], ["paste"]) if i % 2 else notebook.prose(part))
        return cells
