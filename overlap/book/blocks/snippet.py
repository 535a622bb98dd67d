"""A snippet on a page: its code, what it gave in one tab per machine, and the way to take it home."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from overlap import OverlapError
from overlap.book.blocks.block import Block, Source
from overlap.run.runner import command
from overlap.run.snippet import Snippet

_OPTIONS = {"show": "", "code": "yes", "output": "yes", "plot": "yes"}


@dataclass(frozen=True)
class SnippetBlock(Block):
    """```` ```snippet chapter/snippet ````: `show: function, function`; `code: no`, `output: no`, `plot: no` leave a part out."""

    snippet: str
    show: tuple[str, ...]
    code: bool
    output: bool
    plot: bool

    kind: ClassVar[str] = "snippet"
    columns: ClassVar[tuple[str, ...]] = ("snippet", "what it shows", "needs", "run time, freshness", "file")
    template: ClassVar[str] = """
<div class="ov-snippet"{% if anchor %} id="{{ anchor }}"{% endif %}>
{{ code }}
{% if runs %}
{{ tabs }}
{% for count, why in missing.items() %}
<p class="ov-missing">{{ count }} GPUs: not recorded, because {{ why }}.</p>
{% endfor %}
<p class="ov-borrow">{% if download %}<a href="{{ download }}" download>Download <code>{{ file }}</code></a>{% else %}<code>{{ path }}</code>{% endif %}
 · runs alone: <code>{{ command }}</code>, <code>uv run {{ file }}</code> or <code>pipx run {{ file }}</code> · {{ needs }} · took
{% for run in runs.values() %}{{ label(run.profile) }} {{ "%.1f" % run.seconds }} s{{ ", " if not loop.last }}{% endfor %}</p>
{% endif %}
</div>"""
    tab: ClassVar[str] = """
<div class="ov-run" data-machine="{{ run.profile }}">{{ view.outputs(run) }}{{ view.figure(run) if plot }}</div>
<p class="ov-provenance">{{ run.provenance }}
{%- if view.raw(run) %} · <a href="{{ view.raw(run) }}">raw recording</a>{% endif %}
{%- if view.trace(run) %} · <a href="{{ view.trace(run) }}" download>trace</a> for Perfetto{% endif %}</p>"""

    @classmethod
    def read(cls, source: Source) -> "SnippetBlock":
        """Read the options."""
        options = dict(_OPTIONS)
        for row in source.rows():
            key, colon, value = (part.strip() for part in row.partition(":"))
            if not colon or key not in _OPTIONS:
                raise source.refuse(f"unknown option `{row}`", f"known are {', '.join(sorted(_OPTIONS))}")
            if key != "show" and value not in ("yes", "no"):
                raise source.refuse(f"`{row}`: {key} is yes or no", f"write `{key}: no` to leave it out")
            options[key] = value
        show = tuple(part.strip() for part in options["show"].split(",") if part.strip())
        parts = (options[key] == "yes" for key in ("code", "output", "plot"))
        return cls(source.page, source.line, source.snippet, show, *parts)

    def snippets(self, book) -> set[str] | None:
        """The one it shows."""
        return {self.snippet}

    def check(self, book, margins: bool) -> Iterator[str]:
        """Whether the snippet has the functions to show."""
        book.snippet(self.snippet).show(list(self.show))
        yield from ()

    def html(self, view) -> str:
        """Code, tabs, what is missing, how to borrow it; links to the snippet lead to the first place that shows its output."""
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
        file = Path(snippet.path).name
        tabs = {p: view.render(self.tab, view=view, run=run, plot=self.plot) for p, run in runs.items()}
        return view.render(
            self.template,
            anchor=anchor,
            path=snippet.path,
            code=view.code(snippet.show(list(self.show)), snippet.path) if self.code else "",
            runs=runs,
            tabs=view.tabs(tabs, book.default(snippet.name)) if runs else "",
            missing=snippet.options["missing"],
            download=view.link(f"downloads/{snippet.name}.py"),
            file=file,
            command=command(snippet, file),
            needs=needs(snippet),
        )

    def cells(self, notebook) -> list[dict]:
        """The code, which runs there, with the output of one machine; a file where a cell cannot start its processes."""
        book, snippet = notebook.book, notebook.book.snippet(self.snippet)
        if not self.output:
            return [notebook.markdown(f"```python\n{snippet.show(list(self.show))}\n```")]
        profile = book.default(snippet.name)
        run = book.runs(snippet.name)[profile] if profile else None
        where = f"`{snippet.path}`: the output below is from {notebook.label(profile)}." if run else f"`{snippet.path}`"
        outputs = notebook.outputs(snippet, run) if run else []
        tags = [] if 0 in snippet.options["gpus"] else ["gpu"]
        if snippet.options["launcher"] == "python" and "multiprocessing" not in snippet.text:
            return [notebook.markdown(where), notebook.code(snippet.body, outputs, tags)]
        file = Path(snippet.path).name
        typed = (
            command(snippet, file).replace("torchrun", "-m torch.distributed.run --standalone").removeprefix("python ")
        )
        return [
            notebook.markdown(where),
            notebook.code(f"%%writefile {file}\n{snippet.download}", [], tags),
            notebook.code(f"import sys\n\n!{{sys.executable}} {typed}", outputs, tags),
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
            view.render('<span class="ov-wide">{{ text }}</span>', text=snippet.summary),
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


def needs(snippet: Snippet) -> str:
    """The least machine it runs on."""
    least = min(snippet.options["gpus"])
    return "a CPU is enough" if least == 0 else "needs a GPU" if least == 1 else f"needs {least} GPUs"
