"""A snippet on a page: its code, what it gave, and the way to take it home."""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from overlap import OverlapError
from overlap.blocks.block import Block, Notebook, Pages, Source, Text, View, read_template
from overlap.book import select
from overlap.book.book import Book
from overlap.run import download
from overlap.run.runner import command
from overlap.run.snippet import Snippet

_OPTIONS = ("caption", "code", "output", "plot", "show")
#: Lines of code that a page shows at once; a function that begins there is shown to its end.
SHOWN = 18
#: What a comment says to a linter, and not to a reader; scripts are given it in generated/machines.js.
FOR_TOOLS = re.compile(r"[ \t]*# (?:noqa|type: ignore|pragma:|fmt:)[^\n]*")


@dataclass(frozen=True)
class SnippetBlock(Block):
    """```` ```snippet chapter/snippet ````, with rows of options.

    `show: function, function`; `code: no`, `output: no`, `plot: no` leave a part out; `caption: …` says what
    the picture shows.
    """

    snippet: str
    show: tuple[str, ...]
    code: bool
    output: bool
    plot: bool
    caption: str = ""

    kind: ClassVar[str] = "snippet"

    @classmethod
    def read(cls, source: Source) -> "SnippetBlock":
        """Read the options."""
        options, others = source.options(*_OPTIONS)
        if others:
            remedy = f"there are {', '.join(_OPTIONS)}, each once"
            raise source.refuse(f"unknown option `{others[0]}`", remedy)
        for name in ("code", "output", "plot"):
            if options.get(name, "no") != "no":
                reason = f"`{name}: {options[name]}` says nothing"
                raise source.refuse(reason, f"write `{name}: no` to leave it out")
        names = [name.strip() for name in options.get("show", "").split(",")]
        return cls(
            source.page,
            source.line,
            source.snippet,
            show=tuple(name for name in names if name),
            code="code" not in options,
            output=options.get("output") != "no",
            plot="plot" not in options,
            caption=options.get("caption", ""),
        )

    @property
    def anchor(self) -> str:
        """HTML id of the place that shows the snippet."""
        return f"snippet-{self.snippet.replace('/', '-')}"

    @property
    def prose(self) -> Text:
        """Its caption, which is text like any other of the page."""
        return Text(self.page, self.line, self.caption)

    def check(self, pages: Pages) -> Iterator[str]:
        """Unknown functions, a caption without a picture, and what the caption says."""
        pages.book.snippet(self.snippet).show(list(self.show))
        if self.caption and not self._is_drawn(pages.book):
            yield f"{self.where}: a caption, but no picture of {self.snippet} here; take one of them away"
        yield from super().check(pages)

    def remarks(self, pages: Pages) -> Iterator[str]:
        """A picture without a caption."""
        if self._is_drawn(pages.book) and not self.caption:
            remedy = "say in `caption: …` what it shows, or write `plot: no`"
            yield f"{self.where}: the picture of {self.snippet} has no caption; {remedy}"

    def _is_drawn(self, book: Book) -> bool:
        return self.output and self.plot and book.snippet(self.snippet).draws

    @property
    def snippets(self) -> tuple["SnippetBlock", ...]:
        """The one snippet that it shows: this block."""
        return (self,)

    def markdown(self, view: View) -> str:
        """Picture, caption, code and file; where there is no picture the code comes first, then the output.

        Links to the snippet lead to the first place that shows its output.
        """
        output = view.output(self._recorded(view.book)) if self.output else None
        parts = []
        for name, anchors in self._parts(view, output):
            later = view.fold(f"{name}-{self.line}") if self._is_later(view, name) else ""
            html = (
                self._later(view, name, output, anchors, later)
                if later
                else self._part(view, name, output, anchors)
            )
            parts.append(f"\n{view.stash(html)}\n")
            if name == "output" and self._has_picture(output):
                parts.append(view.captioned(self.snippet, self.caption))
        return "".join(parts)

    def _parts(self, view: View, output: Any) -> list[tuple[str, list[str]]]:
        """Its output and its code in the order in which they stand, each with its anchors."""
        anchors = [block.place(view) for block in self.snippets]
        if output is None:
            return [("code", anchors)]
        order = ("output", "code") if self._has_picture(output) else ("code", "output")
        return list(zip(order, (anchors[:1], anchors[1:]), strict=True))

    def _has_picture(self, output: Any) -> bool:
        return self.plot and any(run["pictures"] for run in output.runs.values())

    def _part(self, view: View, name: str, output: Any, anchors: list[str]) -> str:
        return self._code(view, anchors) if name == "code" else self._output(view, output, anchors)

    def _is_later(self, view: View, name: str) -> bool:
        """Whether it stands in a closed row, and comes when that opens."""
        return self.line in view.closed and (name == "output" or self.code)

    def _later(self, view: View, name: str, output: Any, anchors: list[str], address: str) -> str:
        """What stands there for its code or its output."""
        snippets = [view.book.snippet(block.snippet) for block in self.snippets]
        return view.render(
            read_template("snippet_later"),
            view=view,
            part=name,
            address=address,
            anchors=anchors,
            output=output,
            snippets=snippets,
            pieces=self._pieces(view),
        )

    def _recorded(self, book: Book) -> list[str]:
        """The names of the snippets; one without any recording is an error."""
        names = []
        for block in self.snippets:
            snippet = book.snippet(block.snippet)
            if not book.recordings(snippet.name):
                reason = f"{snippet.path}: nothing recorded and nothing ran here; it {snippet.requirement}"
                raise OverlapError(f"{self.where}: {reason}: run `overlap record {snippet.name}` there")
            names.append(snippet.name)
        return names

    def place(self, view: View) -> str:
        """Its anchor, where this is the place that links lead to; else nothing."""
        if self.anchor in view.anchors:
            return ""
        if not self.output and view.pages.places.get(self.snippet, self) != self:
            return ""
        view.anchors.add(self.anchor)
        if self.output:
            view.measured.append(self.snippet)
        return self.anchor

    def _output(self, view: View, output: Any, anchors: list[str]) -> str:
        """What each snippet gave on the page's machine."""
        pictures = [run["pictures"][""] for run in output.runs.values() if run["pictures"] and self.plot]
        views = ["picture", "output", "numbers", "file"]
        if not pictures:
            views.remove("picture")
        if not any(picture["tables"] for picture in pictures):
            views.remove("numbers")
        return view.render(
            read_template("snippet_output"),
            anchor="".join(anchors),
            line=self.line,
            views=views,
            chosen=views[0],  # a picture is seen first, else what was printed
            run=view.run(output, picture=self.plot),
            is_pair=len(output.runs) > 1,
            files=view.fold(f"files-{self.line}"),
        )

    def _code(self, view: View, anchors: list[str]) -> str:
        snippet = view.book.snippet(self.snippet)
        first, rest = self._opening(view.book)
        return view.render(
            read_template("snippet_code"),
            view=view,
            anchor="".join(anchors),
            place=self.anchor if self.anchor in view.anchors else "",
            path=snippet.path,
            first=first,
            rest=view.fold(f"rest-{self.line}") if rest else "",
            more=sum(bool(line.strip()) for line in rest.split("\n")),
            pieces=self._pieces(view),
        )

    def _opening(self, book: Book) -> tuple[str, str]:
        """The code shown at once, and the rest; without code nothing."""
        if not self.code:
            return "", ""
        return opening(for_readers(book.snippet(self.snippet).show(list(self.show))))

    def fold(self, view: View) -> str:
        """The rest of the code, and how to run it; in a closed row all that is not prose.

        Their ids have the block's line: a page may show more of a snippet in another place.
        """
        parts = [self._rest(view), self._files(view) if self.output else ""]
        output = view.output(self._recorded(view.book)) if self.output else None
        for name, anchors in self._parts(view, output):
            if self._is_later(view, name):
                parts.append(f'<div id="{name}-{self.line}">{self._part(view, name, output, anchors)}</div>')
        return "\n".join(filter(None, parts))

    def _rest(self, view: View) -> str:
        rest = self._opening(view.book)[1]
        return f'<div id="rest-{self.line}">{view.code(rest, "")}</div>' if rest else ""

    def _files(self, view: View) -> str:
        """How to take each snippet home, and to run it."""
        files = []
        for block in self.snippets:
            snippet = view.book.snippet(block.snippet)
            file = {"name": Path(snippet.path).name, "path": snippet.path, "needs": self.needs(snippet)}
            file["command"] = command(snippet, file["name"])
            file["download"] = view.link(f"downloads/{snippet.name}.py")
            file["recordings"] = view.book.recordings(snippet.name)
            file["missing"] = snippet.options["missing"]
            files.append(file)
        return view.render(read_template("snippet_files"), line=self.line, files=files)

    @staticmethod
    def needs(snippet: Snippet) -> str:
        """The least machine it runs on."""
        least = min(snippet.options["gpus"])
        if least == 0:
            return "runs on a laptop"
        return "needs a GPU" if least == 1 else f"needs {least} GPUs"

    @staticmethod
    def what_for(snippet: Snippet, function: str) -> str:
        """What a function to take home is for, in a line."""
        return download.summary(snippet, function).replace("`", "")

    def _pieces(self, view: View) -> list[tuple[str, str, int]]:
        """Functions to take home that are shown here: name, address of the file, number of its lines."""
        pieces = []
        for snippet in (view.book.snippet(block.snippet) for block in self.snippets):
            for name in snippet.options["take"]:
                if self.code and (not self.show or name in self.show):
                    lines = download.piece(snippet, name).split("\n")
                    count = sum(bool(line.strip()) for line in lines)
                    pieces.append((name, view.link(f"downloads/{snippet.name}/{name}.py"), count))
        return pieces

    def cells(self, notebook: Notebook) -> list[dict]:
        """The code, which runs there, with the output of one machine; a file where a cell cannot run it."""
        book = notebook.book
        snippet = book.snippet(self.snippet)
        if not self.output:
            return [notebook.markdown(f"```python\n{snippet.show(list(self.show))}\n```")]
        where = f"`{snippet.path}`"
        outputs = []
        machine = select.of_snippet(book, snippet.name)
        if machine:
            where += f": the output below is from {notebook.label(machine)}."
            outputs = notebook.outputs(snippet, book.recordings(snippet.name)[machine])
        tags = [] if 0 in snippet.options["gpus"] else ["gpu"]
        caption = self.prose.cells(notebook)
        if snippet.options["launcher"] == "python" and "multiprocessing" not in snippet.text:
            return [notebook.markdown(where), notebook.code(download.cell(snippet), outputs, tags), *caption]
        file = Path(snippet.path).name
        typed = command(snippet, file).replace("torchrun", "-m torch.distributed.run --standalone")
        start = f"import sys\n\n!{{sys.executable}} {typed.removeprefix('python ')}"
        return [
            notebook.markdown(where),
            notebook.code(f"%%writefile {file}\n{download.program(snippet)}", [], tags),
            notebook.code(start, outputs, tags),
            *caption,
        ]


def for_readers(code: str) -> str:
    """Code without what its comments say to linters."""
    return FOR_TOOLS.sub("", code)


def opening(code: str) -> tuple[str, str]:
    """The code that a page shows at once, and the rest, which it folds.

    The cut lies behind a whole function or class, so that what a reader copies is never half of one:
    behind the last that ends within `SHOWN` lines, or behind the first where that is longer.
    """
    code = code.strip("\n")
    lines = code.split("\n")
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    ends = [node.end_lineno for node in ast.parse(code).body if isinstance(node, kinds)]
    cut = max([end for end in ends if end <= SHOWN] or ends[:1] or [len(lines)])
    if len(lines) - cut < SHOWN // 3:  # a fold of a few lines hides more than it saves
        cut = len(lines)
    return "\n".join(lines[:cut]), "\n".join(lines[cut:]).strip("\n")
