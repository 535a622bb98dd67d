"""A snippet on a page: its code, what it gave in one tab per machine, and the way to take it home."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from overlap import OverlapError
from overlap.book.blocks.block import Block, Source, Text
from overlap.run.runner import command
from overlap.run.snippet import Snippet

_OPTIONS = {"show": "", "code": "yes", "output": "yes", "plot": "yes", "caption": ""}
#: Lines of code that a page shows before a reader asks for more; a function that begins there is shown to its end.
SHOWN = 18


@dataclass(frozen=True)
class SnippetBlock(Block):
    """```` ```snippet chapter/snippet ````: `show: function, function`; `code: no`, `output: no`, `plot: no` leave a part out; `caption: …` says
    what the picture shows.
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
    #: Above the caption: what it gave, on each machine.
    found: ClassVar[str] = """
<div class="ov-snippet"{% if anchor %} id="{{ anchor }}"{% endif %}>
{{ tabs }}
</div>"""
    tab: ClassVar[str] = """
<div class="ov-run" data-machine="{{ run.profile }}">
{% if picture %}
{{ picture }}
<details class="ov-fold"><summary>Printed output</summary>{{ view.outputs(run) }}{{ provenance }}</details>
{% else %}
{{ view.outputs(run) }}{{ provenance }}
{% endif %}
</div>"""
    provenance: ClassVar[str] = """
<p class="ov-provenance">{{ run.provenance }}
{%- if view.raw(run) %} · <a href="{{ view.raw(run) }}">raw recording</a>{% endif %}
{%- if view.trace(run) %} · <a href="{{ view.trace(run) }}" download>trace</a><span class="ov-perfetto" data-trace="{{ view.trace(run) }}" data-title="{{ run.data.snippet }}"> for Perfetto</span>{% endif %}</p>"""
    #: The code, at most so many lines of it at once, and the way to take it home.
    taken: ClassVar[str] = """
<div class="ov-take"{% if anchor %} id="{{ anchor }}"{% endif %}>
{% if code %}
{{ view.code(first, path, place) }}
{% if rest %}
{# the theme names a code block after the id around it: without one of its own the button here would copy the block above #}
<details class="ov-fold ov-rest"{% if anchor %} id="{{ anchor }}-rest"{% endif %}><summary>{{ more }} more line{{ "s" if more > 1 }}</summary>{{ view.code(rest, "") }}</details>
{% endif %}
{% endif %}
{% if runs %}
<details class="ov-fold ov-file" data-source="{{ download }}"><summary>The whole file</summary>
<p class="ov-borrow">{% if download %}<a href="{{ download }}" download>Download <code>{{ file }}</code></a>{% else %}<code>{{ path }}</code>{% endif %}
 · runs alone: <code>{{ command }}</code>, <code>uv run {{ file }}</code> or <code>pipx run {{ file }}</code> · {{ needs }} · took
{% for run in runs.values() %}{{ label(run.profile) }} {{ "%.1f" % run.seconds }} s{{ ", " if not loop.last }}{% endfor %}</p>
{% for count, why in missing.items() %}
<p class="ov-missing">{{ count }} GPUs: not recorded, because {{ why }}.</p>
{% endfor %}
</details>
{% endif %}
</div>"""

    @classmethod
    def read(cls, source: Source) -> "SnippetBlock":
        """Read the options."""
        options, seen = dict(_OPTIONS), set()
        for row in source.rows():
            key, colon, value = (part.strip() for part in row.partition(":"))
            if not colon or key not in _OPTIONS:
                raise source.refuse(f"unknown option `{row}`", f"known are {', '.join(sorted(_OPTIONS))}")
            if key not in ("show", "caption") and value not in ("yes", "no"):
                raise source.refuse(f"`{row}`: {key} is yes or no", f"write `{key}: no` to leave it out")
            if key in seen:
                raise source.refuse(f"`{row}`: {key} is given twice", "keep one")
            seen.add(key)
            options[key] = value
        show = tuple(part.strip() for part in options["show"].split(",") if part.strip())
        parts = (options[key] == "yes" for key in ("code", "output", "plot"))
        return cls(source.page, source.line, source.snippet, show, *parts, options["caption"])

    @property
    def prose(self) -> Text:
        """Its caption, which is text like any other of the page."""
        return Text(self.page, self.line, self.caption)

    def snippets(self, book) -> set[str] | None:
        """The one it shows, and those its caption speaks of."""
        return {self.snippet} | (self.prose.snippets(book) or set())

    def check(self, book, margins: bool) -> Iterator[str]:
        """Whether the snippet has the functions to show, and a picture where there is a caption; what the caption says."""
        snippet = book.snippet(self.snippet)
        snippet.show(list(self.show))
        if self.caption and not (self.output and self.plot and "plot" in snippet.functions):
            yield f"{self.where}: a caption, but no picture of {self.snippet} here; take one of them away"
        yield from self.prose.check(book, margins)

    def markdown(self, view) -> str:
        """What it gave, the caption of its picture, code and file; where there is no picture the code comes first. Links to the snippet lead to the
        first place that shows its output.
        """
        book, snippet = view.book, view.book.snippet(self.snippet)
        runs = book.runs(snippet.name) if self.output else {}
        if self.output and not runs:
            raise OverlapError(
                f"{self.where}: {snippet.path}: nothing recorded and this machine cannot run it; run `overlap record {snippet.name}`"
            )
        anchor = anchor_of(snippet.name) if self.output or self.listed(book) else ""
        if anchor in view.anchors:
            anchor = ""
        elif anchor:
            view.anchors.add(anchor)
            view.measured += [snippet.name] * self.output
        pictures = {profile: view.figure(run) if self.plot else "" for profile, run in runs.items()}
        drawn = any(pictures.values())
        file, first, rest = Path(snippet.path).name, "", ""
        if self.code:
            first, rest = opening(snippet.show(list(self.show)))
        taken = view.render(
            self.taken,
            view=view,
            anchor="" if drawn else anchor,
            place=anchor_of(snippet.name) if anchor_of(snippet.name) in view.anchors else "",
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
        if not runs:
            return f"\n{view.put(taken)}\n"
        tabs = {profile: self._tab(view, run, pictures[profile]) for profile, run in runs.items()}
        set_of_tabs = view.tabs(tabs, book.default(snippet.name))
        found = view.render(self.found, anchor=anchor if drawn else "", tabs=set_of_tabs)
        if not drawn:
            return f"\n{view.put(taken)}\n\n{view.put(found)}\n"
        return f"\n{view.put(found)}\n{view.captioned(snippet.name, self.caption)}\n{view.put(taken)}\n"

    def _tab(self, view, run, picture: str) -> str:
        provenance = view.render(self.provenance, view=view, run=run)
        return view.render(self.tab, view=view, run=run, picture=picture, provenance=provenance)

    def cells(self, notebook) -> list[dict]:
        """The code, which runs there, with the output of one machine; a file where a cell cannot start its processes."""
        book, snippet = notebook.book, notebook.book.snippet(self.snippet)
        caption = self.prose.cells(notebook) if self.caption else []
        if not self.output:
            return [notebook.markdown(f"```python\n{snippet.show(list(self.show))}\n```")]
        profile = book.default(snippet.name)
        run = book.runs(snippet.name)[profile] if profile else None
        where = (
            f"`{snippet.path}`: the output below is from {notebook.label(profile)}."
            if run
            else f"`{snippet.path}`"
        )
        outputs = notebook.outputs(snippet, run) if run else []
        tags = [] if 0 in snippet.options["gpus"] else ["gpu"]
        if snippet.options["launcher"] == "python" and "multiprocessing" not in snippet.text:
            return [notebook.markdown(where), notebook.code(snippet.body, outputs, tags), *caption]
        file = Path(snippet.path).name
        typed = (
            command(snippet, file)
            .replace("torchrun", "-m torch.distributed.run --standalone")
            .removeprefix("python ")
        )
        return [
            notebook.markdown(where),
            notebook.code(f"%%writefile {file}\n{snippet.download}", [], tags),
            notebook.code(f"import sys\n\n!{{sys.executable}} {typed}", outputs, tags),
            *caption,
        ]

    def key(self) -> object:
        """One entry for each snippet."""
        return self.snippet

    def listed(self, book) -> bool:
        """Whether this is where the index leads to: the first place that shows its output, or else the first."""
        return book.places.get(self.snippet, self) == self

    def shows(self, book) -> list[str]:
        """Whether the index leads here."""
        return [str(self.listed(book))]

    def row(self, view) -> list[str]:
        """Name, summary, needs, times, file."""
        snippet, runs = view.book.snippet(self.snippet), view.book.runs(self.snippet)
        return [
            view.render(
                '<span class="ov-together"><a href="{{ href }}"><code>{{ name }}</code></a></span>',
                href=view.page(self.page, anchor_of(snippet.name)),
                name=snippet.name.split("/")[1],
            ),
            view.render('<span class="ov-wide">{{ text }}</span>', text=snippet.summary.replace("`", "")),
            needs(snippet),
            view.render(
                '{% for run in runs %}<span class="ov-together">{{ label(run.profile) }} {{ "%.1f" % run.seconds }} s</span>, {{ run.freshness }}'
                "{{ '<br>'|safe if not loop.last }}{% endfor %}",
                runs=runs.values(),
            ),
            view.render(
                '{% if href %}<a href="{{ href }}" download>download</a>{% endif %}',
                href=view.link(f"downloads/{snippet.name}.py"),
            ),
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
    return "a CPU is enough" if least == 0 else "needs a GPU" if least == 1 else f"needs {least} GPUs"
