"""A snippet on a page: its code, what it gave in one tab per machine, and the way to take it home."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from overlap import OverlapError
from overlap.book.blocks.block import Block, Source, Text, read_template
from overlap.run import download
from overlap.run.runner import command
from overlap.run.snippet import Snippet

_OPTIONS = {"show": "", "code": "yes", "output": "yes", "plot": "yes", "caption": ""}
#: Lines of code that a page shows at once; a function that begins there is shown to its end.
SHOWN = 18


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
    columns: ClassVar[tuple[str, ...]] = (
        "snippet",
        "what it shows",
        "machine",
        "run time, freshness",
        "file",
    )
    #: What it gave, on each machine; one machine's tab, and its line of origin.
    output_template: ClassVar[str] = read_template("snippet_output")
    run_template: ClassVar[str] = read_template("snippet_run")
    provenance_template: ClassVar[str] = read_template("snippet_provenance")
    #: The code, the first lines of it at once, and the way to take it home.
    code_template: ClassVar[str] = read_template("snippet_code")
    #: The cells of its index.
    name_template: ClassVar[str] = read_template("snippets_name")
    times_template: ClassVar[str] = read_template("snippets_times")

    @classmethod
    def read(cls, source: Source) -> "SnippetBlock":
        """Read the options."""
        given: dict[str, str] = {}
        for row in source.rows():
            key, colon, value = (part.strip() for part in row.partition(":"))
            if not colon or key not in _OPTIONS:
                raise source.refuse(f"unknown option `{row}`", f"known are {', '.join(sorted(_OPTIONS))}")
            if key not in ("show", "caption") and value not in ("yes", "no"):
                raise source.refuse(f"`{row}`: {key} is yes or no", f"write `{key}: no` to leave it out")
            if key in given:
                raise source.refuse(f"`{row}`: {key} is given twice", "keep one")
            given[key] = value
        options = _OPTIONS | given
        names = [name.strip() for name in options["show"].split(",")]
        return cls(
            source.page,
            source.line,
            source.snippet,
            show=tuple(name for name in names if name),
            code=options["code"] == "yes",
            output=options["output"] == "yes",
            plot=options["plot"] == "yes",
            caption=options["caption"],
        )

    @property
    def prose(self) -> Text:
        """Its caption, which is text like any other of the page."""
        return Text(self.page, self.line, self.caption)

    def check(self, book, margins: bool) -> Iterator[str]:
        """Functions to show that there are not, a caption without a picture, and what the caption says."""
        snippet = book.snippet(self.snippet)
        snippet.show(list(self.show))
        if self.caption and not (self.output and self.plot and "plot" in snippet.functions):
            yield f"{self.where}: a caption, but no picture of {self.snippet} here; take one of them away"
        yield from self.prose.check(book, margins)

    def markdown(self, view) -> str:
        """Picture, caption, code and file; where there is no picture the code comes first, then the output.

        Links to the snippet lead to the first place that shows its output.
        """
        book = view.book
        snippet = book.snippet(self.snippet)
        runs = book.runs(snippet.name) if self.output else {}
        if self.output and not runs:
            reason = f"{snippet.path}: nothing recorded and this machine cannot run it"
            raise OverlapError(f"{self.where}: {reason}; run `overlap record {snippet.name}`")
        anchor = self._anchor(view)
        pictures = {profile: view.figure(run) if self.plot else "" for profile, run in runs.items()}
        if not any(pictures.values()):
            code = view.put(self._code(view, snippet, runs, anchor))
            if not runs:
                return f"\n{code}\n"
            return f"\n{code}\n\n{view.put(self._output(view, runs, pictures, ''))}\n"
        output = view.put(self._output(view, runs, pictures, anchor))
        caption = view.captioned(snippet.name, self.caption)
        return f"\n{output}\n{caption}\n{view.put(self._code(view, snippet, runs, ''))}\n"

    def _anchor(self, view) -> str:
        """The id of this place; empty where a place above has it, or where links lead elsewhere."""
        anchor = anchor_of(self.snippet)
        if anchor in view.anchors or not (self.output or self.listed(view.book)):
            return ""
        view.anchors.add(anchor)
        if self.output:
            view.measured.append(self.snippet)
        return anchor

    def _output(self, view, runs: dict, pictures: dict[str, str], anchor: str) -> str:
        tabs = {}
        for profile, run in runs.items():
            provenance = view.render(self.provenance_template, view=view, run=run)
            names = {"view": view, "run": run, "picture": pictures[profile], "provenance": provenance}
            tabs[profile] = view.render(self.run_template, **names)
        tabs = view.tabs(tabs, view.book.default(self.snippet))
        return view.render(self.output_template, anchor=anchor, tabs=tabs)

    def _code(self, view, snippet: Snippet, runs: dict, anchor: str) -> str:
        file = Path(snippet.path).name
        place = anchor_of(snippet.name)
        first, rest = opening(snippet.show(list(self.show))) if self.code else ("", "")
        return view.render(
            self.code_template,
            view=view,
            anchor=anchor,
            place=place if place in view.anchors else "",
            path=snippet.path,
            code=self.code,
            first=first,
            rest=rest,
            more=sum(bool(line.strip()) for line in rest.split("\n")),
            runs=runs,
            download=view.link(f"downloads/{snippet.name}.py"),
            file=file,
            command=command(snippet, file),
            needs=needs(snippet),
            missing=snippet.options["missing"],
        )

    def cells(self, notebook) -> list[dict]:
        """The code, which runs there, with the output of one machine; a file where a cell cannot run it."""
        book = notebook.book
        snippet = book.snippet(self.snippet)
        if not self.output:
            return [notebook.markdown(f"```python\n{snippet.show(list(self.show))}\n```")]
        where = f"`{snippet.path}`"
        outputs = []
        if profile := book.default(snippet.name):
            where += f": the output below is from {notebook.label(profile)}."
            outputs = notebook.outputs(snippet, book.runs(snippet.name)[profile])
        tags = [] if 0 in snippet.options["gpus"] else ["gpu"]
        caption = self.prose.cells(notebook) if self.caption else []
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

    def key(self) -> object:
        """One entry for each snippet."""
        return self.snippet

    def listed(self, book) -> bool:
        """Whether the index leads here: to the first place that shows its output, or else the first."""
        return book.places.get(self.snippet, self) == self

    def row(self, view) -> list[str]:
        """Name, summary, needs, times, file."""
        snippet = view.book.snippet(self.snippet)
        runs = view.book.runs(self.snippet).values()
        place = view.page(self.page, anchor_of(snippet.name))
        file = view.link(f"downloads/{snippet.name}.py")
        summary = snippet.summary.replace("`", "")
        return [
            view.render(self.name_template, href=place, name=snippet.name.split("/")[1]),
            view.render('<span class="ov-wide">{{ text }}</span>', text=summary),
            needs(snippet),
            view.render(self.times_template, runs=runs),
            view.render('{% if href %}<a href="{{ href }}" download>download</a>{% endif %}', href=file),
        ]


def anchor_of(name: str) -> str:
    """HTML id of the place that shows a snippet."""
    return f"snippet-{name.replace('/', '-')}"


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


def needs(snippet: Snippet) -> str:
    """The least machine it runs on."""
    least = min(snippet.options["gpus"])
    if least == 0:
        return "a CPU is enough"
    return "needs a GPU" if least == 1 else f"needs {least} GPUs"
